"""`muster isolate`, `restore`, `pin`, `unpin`, `exclude`, `include`, `pause`, `resume`, `rebalance`, `assignor`,
`subscribe`, `unsubscribe`: the levers of the DAGs of these names.

Each asks for a reason, which stands beside the decision in Consul with who pulled the lever and when, and in the
cluster's history. The coordinator acts upon it with its next run; nothing here touches an assignment.
"""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click

from muster.cli.errors import explained
from muster.cli.what_if import PairType
from muster.edges.consul import Discovery
from muster.edges.zookeeper import TopicStore
from muster.levers import assignor as assignors
from muster.levers import coordination, isolation, placement, topics
from muster.levers.audit import recorded
from muster.levers.outcome import LeverError, Outcome, Word, brief
from muster.levers.partition_list import parse_partitions
from muster.settings.clusters import ClusterSettings, load_clusters
from muster.settings.connection_lookup import CONNECTIONS

Lever = Callable[..., Outcome]
"""Takes the cluster, the word of whoever pulls it, and the command's own arguments."""


def _lever(pull: Lever) -> Callable[..., None]:
    """Give a command the options that all levers share, and print what came of it."""

    @click.option("--cluster", required=True, help="As in clusters.yaml.")
    @click.option("--reason", required=True, help="Reason, recorded in the audit history.")
    @click.option("--by", default=getpass.getuser, show_default="you", help="Who decided it.")
    @click.option("--json", "as_text", is_flag=True, help="Print JSON.")
    @wraps(pull)
    def command(cluster: str, reason: str, by: str, as_text: bool, **asked: Any) -> None:
        with explained():
            settings = load_clusters()[cluster]
            for what, text in asked.items():
                brief(what, str(text))
            outcome = pull(settings, Word(by, reason, time.time()), **asked)
            outcome = recorded(outcome, lambda: _store(settings), "command line")
        click.echo(json.dumps(dict(outcome.values), indent=2) if as_text else "\n".join(outcome.lines))

    return command


def _discovery(cluster: ClusterSettings) -> Discovery:
    return Discovery.of(CONNECTIONS.consul(cluster.consul), cluster)


def _store(cluster: ClusterSettings) -> TopicStore:
    return TopicStore(CONNECTIONS.zookeeper(cluster.zookeeper), cluster.name, read_only=True)


@click.command()
@click.argument("consumer")
@_lever
def isolate(cluster: ClusterSettings, word: Word, consumer: str) -> Outcome:
    """Isolate CONSUMER: its partitions go to the others."""
    return isolation.isolate(_discovery(cluster), cluster, consumer, word)


@click.command()
@click.argument("consumer")
@_lever
def restore(cluster: ClusterSettings, word: Word, consumer: str) -> Outcome:
    """Take the isolation of CONSUMER back."""
    return isolation.restore(_discovery(cluster), cluster, consumer, word)


@click.command()
@click.argument("topic")
@click.argument("partitions")
@click.argument("consumer")
@_lever
def pin(cluster: ClusterSettings, word: Word, topic: str, partitions: str, consumer: str) -> Outcome:
    """Fix PARTITIONS (such as 0-3,7) of TOPIC to CONSUMER."""
    numbers = parse_partitions(partitions)
    with _store(cluster) as store:
        return placement.pin(_discovery(cluster), store, cluster, topic, numbers, consumer, word)


@click.command()
@click.argument("topic")
@click.argument("partitions")
@_lever
def unpin(cluster: ClusterSettings, word: Word, topic: str, partitions: str) -> Outcome:
    """Take the pins of PARTITIONS (such as 0-3,7) of TOPIC back."""
    return placement.unpin(_discovery(cluster), cluster, topic, parse_partitions(partitions), word)


@click.command()
@click.argument("consumer")
@click.argument("topic")
@_lever
def exclude(cluster: ClusterSettings, word: Word, consumer: str, topic: str) -> Outcome:
    """Keep CONSUMER from TOPIC."""
    with _store(cluster) as store:
        return placement.exclude(_discovery(cluster), store, cluster, consumer, topic, word)


@click.command()
@click.argument("consumer")
@click.argument("topic")
@_lever
def include(cluster: ClusterSettings, word: Word, consumer: str, topic: str) -> Outcome:
    """Take the exclusion of CONSUMER from TOPIC back."""
    return placement.include(_discovery(cluster), cluster, consumer, topic, word)


@click.command()
@_lever
def pause(cluster: ClusterSettings, word: Word) -> Outcome:
    """Hold coordination still: nothing is planned or written until it is resumed."""
    return coordination.pause(_discovery(cluster), cluster, word)


@click.command()
@_lever
def resume(cluster: ClusterSettings, word: Word) -> Outcome:
    """Let the coordination that was paused go on."""
    return coordination.resume(_discovery(cluster), cluster, word)


@click.command()
@_lever
def rebalance(cluster: ClusterSettings, word: Word) -> Outcome:
    """Rebalance now: wait for no absent consumer, and move what the assignor leaves where it is."""
    return coordination.rebalance_now(_discovery(cluster), cluster, word)


@click.command()
@click.argument("name", required=False)
@click.option(
    "--option", "options", multiple=True, type=PairType("key", "value"), help="An option of NAME. Repeatable."
)
@click.option("--clear", is_flag=True, help="Take the choice back: clusters.yaml's assignor counts again.")
@_lever
def assignor(
    cluster: ClusterSettings, word: Word, name: str | None, options: Sequence[tuple[str, Any]], clear: bool
) -> Outcome:
    """Plan with the assignor NAME instead of the one in clusters.yaml: a built-in one, or one that it allows.

    'muster plan --assignor NAME' shows beforehand what that would move.
    """
    if clear == (name is not None) or (clear and options):
        raise LeverError("give either the NAME of an assignor, with its options, or --clear")
    if name is None:
        return assignors.clear_assignor(_discovery(cluster), cluster, word)
    return assignors.set_assignor(_discovery(cluster), cluster, name, dict(options), word)


_pattern = click.option(
    "--pattern", is_flag=True, help="TOPIC is a regular expression for whole names of topics."
)


@click.command()
@click.argument("topic")
@_pattern
@_lever
def subscribe(cluster: ClusterSettings, word: Word, topic: str, pattern: bool) -> Outcome:
    """Read TOPIC too, on top of what clusters.yaml names."""
    return topics.subscribe(_discovery(cluster), cluster, topic, pattern, word)


@click.command()
@click.argument("topic")
@_pattern
@_lever
def unsubscribe(cluster: ClusterSettings, word: Word, topic: str, pattern: bool) -> Outcome:
    """No longer read TOPIC: it is closed in order, and committed, before it goes."""
    with _store(cluster) as store:
        return topics.unsubscribe(_discovery(cluster), store, cluster, topic, pattern, word)
