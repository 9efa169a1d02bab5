"""`muster status`: how a cluster's topics and consumers stand at this moment. Writes nothing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict

import click

from muster.cli.edges import Edges, Opener
from muster.cli.errors import explained
from muster.cli.tables import console, cut, listed, table
from muster.core.model import ConsumerStatus
from muster.core.overview import Overview, Reading, overview
from muster.core.readable import readable
from muster.settings.clusters import ClusterSettings, load_clusters

NOT_WELL = 5
"""Exit code of `--check` where something needs a look."""
SHOWN = 30


@click.command()
@click.option("--cluster", required=True, help="As in clusters.yaml.")
@click.option(
    "--check", is_flag=True, help="End with exit code 5 unless all topics are Stable and all is well."
)
@click.option("--all", "everything", is_flag=True, help="Show lists in full.")
@click.option("--json", "as_text", is_flag=True, help="Print JSON, always in full.")
@click.pass_obj
def status(opener: Opener, cluster: str, check: bool, everything: bool, as_text: bool) -> None:
    """Show how topics and consumers stand, and who holds up what. Changes nothing.

    Exit codes: 0 shown, 2 unknown cluster or unusable settings, 3 ZooKeeper or Consul out of reach, 5 with --check if
    something needs a look.
    """
    with explained():
        settings = load_clusters()[cluster]
        with opener(settings) as edges:
            found = overview(_read(settings, edges), time.time(), settings.stuck_after)
    if as_text:
        click.echo(json.dumps({"cluster": cluster, "well": found.well, **asdict(found)}, indent=2))
    else:
        _show(cluster, found, None if everything else SHOWN)
    if check and not found.well:
        sys.exit(NOT_WELL)


def _read(settings: ClusterSettings, edges: Edges) -> Reading:
    snapshots, left_alone = readable(edges.topics.snapshots())
    members, decisions = edges.consumers.members(), edges.consumers.decisions()
    reads = settings.topics.read_with(decisions.subscriptions, decisions.topics_in_doubt)
    live = members.membership.live if members.membership is not None else {}
    answers = edges.poll([live[consumer] for consumer in sorted(live)], settings.status_timeout)
    return Reading(
        snapshots=snapshots,
        left_alone=left_alone,
        membership=members.membership,
        doubt=members.doubt,
        registered={r.id: f"{r.address}:{r.port}" for r in members.registered.values()},
        isolated={e.consumer: f"by {e.by}: {e.why}" for e in edges.consumers.isolated().values()},
        statuses={c: a for c, a in answers.items() if isinstance(a, ConsumerStatus)},
        failures={c: a.reason for c, a in answers.items() if not isinstance(a, ConsumerStatus)},
        decisions=decisions,
        leaving=reads.leaving(snapshots),
    )


def _show(cluster: str, found: Overview, limit: int | None) -> None:
    out = console()
    topics = table("topic", "state", "for", "#partitions", "#unowned", "#starting", "#closing", "reason")
    for topic in found.topics[:limit]:
        lasting = "-" if topic.seconds is None else f"{topic.seconds:.0f} s"
        numbers = (topic.partitions, topic.unowned, topic.starting, topic.closing)
        topics.add_row(topic.topic, topic.state, lasting, *map(str, numbers), topic.reason)
    consumers = table("consumer", "state", "#partitions", "#weight", "zone", "status page")
    for each in found.consumers[:limit]:
        weight = "-" if each.weight is None else f"{each.weight:g}"
        consumers.add_row(
            each.consumer, each.state, str(each.partitions), weight, each.zone or "-", each.address or "-"
        )
    for rows, shown in ((found.topics, topics), (found.consumers, consumers)):
        if rows:
            out.print(shown)
            cut(out, len(rows), limit)
    for line in _lines(cluster, found, limit):
        out.print(line, soft_wrap=True)


def _lines(cluster: str, found: Overview, limit: int | None) -> Iterator[str]:
    live = sum(consumer.state == "live" for consumer in found.consumers)
    stable = sum(topic.state == "Stable" for topic in found.topics)
    yield f"status: cluster {cluster}, {stable} of {len(found.topics)} topics Stable, {live} live consumers"
    if found.paused:
        yield f"{found.paused}; nothing is planned or written until a person resumes it"
    if found.asked:
        yield f"{found.asked}; not carried out yet"
    if found.assignor:
        yield f"{found.assignor}; it overrides clusters.yaml"
    yield from listed("unreadable: ", found.unreadable, limit)
    if found.doubt:
        yield f"doubt: {found.doubt}"
    yield from listed("leaving: ", [f"topic {t}: {why}" for t, why in found.leaving.items()], limit)
    yield from listed("left alone: ", [f"topic {t}: {why}" for t, why in found.left_alone.items()], limit)
    isolated = [f"{each.consumer} {each.why}" for each in found.consumers if each.state == "isolated"]
    yield from listed("isolated: ", isolated, limit)
    drained = [
        f"{each.consumer} {each.why}" for each in found.consumers if each.state != "isolated" and each.why
    ]
    yield from listed("drained: ", drained, limit)
    silent = [f"{each.consumer}: {each.answers}" for each in found.consumers if each.answers]
    yield from listed("no status: ", silent, limit)
    yield from listed("waiting: ", [str(waiting) for waiting in found.waiting], limit)
    yield from listed("stuck: ", found.stuck, limit)
