"""`muster status`: how a cluster's topics and consumers stand at this moment. Writes nothing."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from muster.cli.errors import explained, read_clusters
from muster.cli.options import CLUSTER
from muster.cli.tables import console, cut, listed, table
from muster.cluster.condition import Condition, ConsumerState
from muster.cluster.problems import of_time
from muster.cluster.reader import read_once
from muster.cluster.reading import SourceName
from muster.cluster.sources import Opener, Sources
from muster.cluster.state import ClusterState
from muster.core import losses
from muster.core.copies import Warmth, write_copy
from muster.core.model import State
from muster.core.time_lag import in_words

NOT_WELL = 5
"""Exit code of `--check` where something needs a look."""
SHOWN = 30
_PLACES = (
    SourceName.ZOOKEEPER,
    SourceName.CONSUL,
    SourceName.CONSUMERS,
    SourceName.KAFKA,
    SourceName.PROGRESS,
)


@click.command()
@CLUSTER
@click.option(
    "--check", is_flag=True, help="End with exit code 5 unless all topics are Stable and all is well."
)
@click.option("--all", "everything", is_flag=True, help="Show lists in full.")
@click.option("--json", "as_text", is_flag=True, help="Print JSON, always in full.")
@click.pass_obj
def status(opener: Opener, cluster: str | None, check: bool, everything: bool, as_text: bool) -> None:
    """Show how topics and consumers stand, and who holds up what. Changes nothing.

    Exit codes: 0 shown, 2 unknown cluster or unusable settings, 3 ZooKeeper or Consul out of reach, 5 with --check if
    something needs a look.
    """
    with read_cluster(opener, cluster, _PLACES) as (_, found):
        pass
    if as_text:
        click.echo(json.dumps(_plain(found), indent=2))
    else:
        _show(found, None if everything else SHOWN)
    if check and not found.well:
        sys.exit(NOT_WELL)


@contextmanager
def read_cluster(
    opener: Opener, cluster: str | None, places: Sequence[SourceName]
) -> Iterator[tuple[Sources, ClusterState]]:
    """Read a cluster's `places`; its servers stay open for the block. ZooKeeper and Consul have to answer."""
    with explained():
        settings = read_clusters().chosen(cluster)
        with opener(settings) as sources:
            reading = read_once(settings, sources, places)
            for needed in (reading.zookeeper, reading.consul):
                if needed.error is not None:
                    raise needed.error
            yield sources, ClusterState(settings, reading, time.time())


def topics_outside(state: ClusterState, limit: int | None) -> Iterator[str]:
    """Name the topics that no plan is made for, with the reason."""
    for label, topics in (("left alone: ", state.unreadable_topics), ("leaving: ", state.leaving)):
        yield from listed(label, [f"topic {topic}: {why}" for topic, why in topics.items()], limit)


def _consumers(found: ClusterState) -> list[ConsumerState]:
    """Return the consumers that are known to the servers, and not only expected by the settings."""
    return [each for each in found.consumers.values() if each.seen]


def _isolated(each: ConsumerState) -> str:
    return f"by {each.isolation.by}: {each.isolation.why}" if each.isolation is not None else ""


def _drained(found: ClusterState, consumer: str) -> str:
    drain = found.overrides.drained.get(consumer)
    return f"by {drain.said()}" if drain is not None else ""


def _unreadable(found: ClusterState) -> list[str]:
    overrides = found.overrides
    return [*overrides.errors, *([overrides.assignor_error] if overrides.assignor_error else [])]


def _plain(found: ClusterState) -> dict[str, Any]:
    """Return the state as JSON; docs/cli.md lists the keys."""
    topics = [asdict(topic) for topic in found.topics.values()]
    for topic in topics:
        del topic["overdue"]
        behind = found.behind[topic["topic"]]
        topic |= {
            "lag": found.lag_of(topic["topic"])[0],
            "age": behind.age,
            "catch_up": behind.seconds_to_catch_up,
            "never": behind.never,
            "kept": behind.kept,
            "max_lag": found.settings.max_lag_of(topic["topic"]),
            "states": {p: asdict(shard) for p, shard in found.cells[topic["topic"]].shards.items()},
            "copies": {
                p: {consumer: write_copy(copy) for consumer, copy in copies.items()}
                for p, copies in found.copies_of(topic["topic"]).items()
            },
        }
    consumers = [
        {
            "consumer": each.consumer,
            "state": each.condition,
            "partitions": each.partitions,
            "weight": each.weight,
            "zone": each.zone,
            "priority": each.priority,
            "address": each.address,
            "answers": each.failure,
            "why": _isolated(each) or _drained(found, each.consumer),
        }
        for each in _consumers(found)
    ]
    return {
        "cluster": found.settings.name,
        "well": found.well,
        "topics": topics,
        "consumers": consumers,
        "waiting": [asdict(waiting) for of_topic in found.waiting.values() for waiting in of_topic],
        "stuck": list(found.stuck.values()),
        "behind": [each.what for each in of_time(found)],
        "blind": found.blind,
        "left_alone": found.unreadable_topics,
        "doubt": found.doubt,
        "leaving": found.leaving,
        "paused": str(found.overrides.paused or ""),
        "consumption_paused": [str(each) for each in found.overrides.consumption],
        "seeks": [str(each) for each in found.overrides.seeks.values()],
        "standing_answers": [str(each) for each in found.overrides.standing],
        "lost": [
            {**entry.details, "what": entry.what, "reason": entry.why, "at": entry.at}
            for entry in losses.entries(found.statuses)
        ],
        "asked": str(found.overrides.rebalance or ""),
        "assignor": str(found.overrides.assignor or ""),
        "unreadable": _unreadable(found),
    }


def _show(found: ClusterState, limit: int | None) -> None:
    out = console()
    counted = ("#partitions", "#unowned", "#starting", "#closing", "#paused")
    topics = table(
        "topic", "state", "for", *counted, "#lag", "#behind", "#caught up in", "#kept for", "reason"
    )
    for topic in list(found.topics.values())[:limit]:
        lasting = "-" if topic.seconds is None else f"{topic.seconds:.0f} s"
        numbers = (topic.partitions, topic.unowned, topic.starting, topic.closing, topic.paused)
        topics.add_row(
            topic.topic, topic.state, lasting, *map(str, numbers), *_behind(found, topic.topic), topic.reason
        )
    consumers = table("consumer", "state", "#partitions", "#weight", "zone", "status page")
    for each in _consumers(found)[:limit]:
        weight = "-" if each.weight is None else f"{each.weight:g}"
        consumers.add_row(
            each.consumer, each.condition, str(each.partitions), weight, each.zone or "-", each.address or "-"
        )
    for rows, shown in ((len(found.topics), topics), (len(_consumers(found)), consumers)):
        if rows:
            out.print(shown)
            cut(out, rows, limit)
    for line in _lines(found, limit):
        out.print(line, soft_wrap=True)


def _behind(found: ClusterState, topic: str) -> Iterator[str]:
    """Yield how far behind a topic is: in records, in time, until it has caught up, and what retention leaves."""
    lag, behind = found.lag_of(topic)[0], found.behind[topic]
    yield "-" if lag is None else str(lag)
    yield "-" if behind.age is None else in_words(behind.age)
    yield "never" if behind.never else "-" if behind.catch_up is None else in_words(behind.catch_up)
    yield "-" if behind.kept is None else in_words(behind.kept)


def _states(found: ClusterState) -> Iterator[str]:
    """Yield how much state by key each topic has, and how much of it is not there."""
    for topic, cells in found.cells.items():
        if shards := list(cells.shards.values()):
            keys, size = (sum(getattr(shard, what) for shard in shards) for what in ("keys", "bytes"))
            runs = sum(not (shard.restore or shard.differs) for shard in shards)
            restored = sum(shard.restore is not None for shard in shards)
            yield (
                f"topic {topic}: {keys:,} keys, {size / 1e6:,.1f} MB in {runs} of {len(cells.numbers)} partitions"
                + (f"; {restored} restoring" if restored else "")
                + (
                    f"; {len(shards) - runs - restored} waiting for a person"
                    if runs + restored < len(shards)
                    else ""
                )
            )


def _copies(found: ClusterState) -> Iterator[str]:
    """Yield how warm the copies of each topic's state are, and how far each is that warms up."""
    for topic in found.cells:
        copies = found.copies_of(topic)
        counted = Counter(copy.warmth for of_partition in copies.values() for copy in of_partition.values())
        if counted:
            yield f"topic {topic}: {', '.join(f'{counted[warmth]} {warmth}' for warmth in Warmth)}"
        for partition, of_partition in sorted(copies.items()):
            for consumer, copy in of_partition.items():
                if copy.warmth is Warmth.WARMING:
                    yield f"topic {topic}, partition {partition}: {consumer} is {copy}"


def _lines(found: ClusterState, limit: int | None) -> Iterator[str]:
    overrides, consumers = found.overrides, _consumers(found)
    stable = sum(topic.state is State.STABLE for topic in found.topics.values())
    yield (
        f"status: cluster {found.settings.name}, {stable} of {len(found.topics)} topics Stable, "
        f"{len(found.live)} live consumers"
    )
    if overrides.paused:
        yield f"{overrides.paused}; nothing is planned or written until a person resumes it"
    if overrides.rebalance:
        yield f"{overrides.rebalance}; not carried out yet"
    if overrides.assignor:
        yield f"{overrides.assignor}; it overrides the settings"
    paused = [f"{each.scope} by {each.said(since=True)}" for each in overrides.consumption]
    yield from listed("consumption paused: ", paused, limit)
    yield from listed("waiting: ", [str(each) for each in overrides.seeks.values()], limit)
    yield from listed("state: ", list(_states(found)), limit)
    yield from listed("copies of state: ", list(_copies(found)), limit)
    yield from listed("standing answers: ", [str(each) for each in overrides.standing], limit)
    yield from listed("behind: ", [each.what for each in of_time(found)], limit)
    yield from listed("lost: ", list(found.lost.values()), limit)
    yield from listed("unreadable: ", _unreadable(found), limit)
    if found.doubt:
        yield f"doubt: {found.doubt}"
    yield from topics_outside(found, limit)
    starting = [
        f"{c.consumer} {c.starting.said(found.at)}"
        for c in consumers
        if c.condition is Condition.STARTING and c.starting is not None
    ]
    yield from listed("starting: ", starting, limit)
    isolated = [f"{c.consumer} {_isolated(c)}" for c in consumers if c.condition is Condition.ISOLATED]
    yield from listed("isolated: ", isolated, limit)
    drained = [f"{c} {_drained(found, c)}" for c in sorted(found.overrides.drained)]
    yield from listed("drained: ", drained, limit)
    silent = [f"{each.consumer}: {each.failure}" for each in consumers if each.failure]
    yield from listed("no status: ", silent, limit)
    waiting = [str(each) for of_topic in found.waiting.values() for each in of_topic]
    yield from listed("waiting: ", waiting, limit)
    yield from listed("stuck: ", [*found.stuck.values(), *([found.blind] if found.blind else [])], limit)
