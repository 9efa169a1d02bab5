"""The questions to a person: about consumers that hold things up, which to isolate and what would happen then; about
records that a handler fails with, or that Kafka has no more, what is to become of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from muster.coordinator.coordinator import Coordinator
from muster.core.assignors import AssignorError
from muster.core.diagnosis import Waiting
from muster.core.model import Membership, TopicSnapshot
from muster.core.partition_list import format_partitions
from muster.core.preview import Preview, WhatIf, WhatIfError, preview
from muster.core.stuck import step
from muster.core.wire import readable
from muster.settings.assignor_choice import load_in_force
from muster.settings.cluster_settings import ClusterSettings

SHOWN = 30
"""Rows of a table that are shown; a person decides by the first few."""


_SINK_FIRST = (
    "**Look at the handler's sink first.** While it does not work, good records fail like this: they are tried again "
    "and again, and all goes on once the sink works. Skip or dead-letter only if the sink works."
)


class Record(NamedTuple):
    """A record in Kafka."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Question:
    """Whether to isolate `consumer`, or what is to become of the `records` of a topic that handlers fail with alike,
    or of one that is lost, by one of the `commands`; without both, what holds up `topic`. `body` (Markdown) says what
    is held up, and what would
    happen."""

    consumer: str
    subject: str
    body: str
    records: tuple[Record, ...] = ()
    commands: tuple[str, ...] = ()
    topic: str = ""


def questions(coordinator: Coordinator) -> list[Question]:
    """Ask one question a consumer that is live and holds up a topic for longer than the cluster's `stuck_after`, or
    by a batch that takes longer than its `max_batch_time`; one a topic and kind of error about records, when their
    owners say that a person is to decide; and one a topic that no live consumer holds up.

    Raises `ZooKeeperError` or `ConsulError` when one is out of reach.
    """
    cluster = coordinator.cluster
    waiting = coordinator.stuck()
    records = [each for each in waiting if each.offset is not None]
    waiting = [each for each in waiting if each.offset is None]
    snapshots, _ = readable(coordinator.store.snapshots())
    membership = coordinator.catalog.members().membership or Membership({})
    by_consumer: dict[str, list[Waiting]] = {}
    by_topic: dict[str, list[Waiting]] = {}
    for each in waiting:
        if each.consumer in membership.live:
            by_consumer.setdefault(each.consumer, []).append(each)
        else:
            by_topic.setdefault(each.topic, []).append(each)
    return [
        *(_about_records(cluster, alike) for alike in _alike(records)),
        *(_about_topic(cluster, topic, found) for topic, found in sorted(by_topic.items())),
        *(
            _about_consumer(coordinator, consumer, found, membership, snapshots)
            for consumer, found in sorted(by_consumer.items())
        ),
    ]


def _about_consumer(
    coordinator: Coordinator,
    consumer: str,
    waiting: list[Waiting],
    membership: Membership,
    snapshots: dict[str, TopicSnapshot],
) -> Question:
    cluster = coordinator.cluster
    body = (
        _held_up(consumer, waiting, snapshots.values()),
        _outcome(coordinator, consumer, membership, snapshots),
        "**Wait** changes nothing; the question comes again if it still holds things up after "
        f"another {cluster.stuck_after:g} s. The question closes by itself when it does so no longer.",
    )
    return Question(consumer, f"Isolate {consumer} of cluster {cluster.name}?", "\n\n".join(body))


def _about_topic(cluster: ClusterSettings, topic: str, waiting: list[Waiting]) -> Question:
    body = (
        "\n".join(f"- {_cell(str(each))}" for each in waiting),
        f"What to do: {step(waiting, frozenset())}.",
        "**Wait** changes nothing; the question comes again if the topic is still held up after another "
        f"{cluster.stuck_after:g} s. The question closes by itself when nothing holds it up any more.",
    )
    subject = f"Topic {topic} of cluster {cluster.name} stands still"
    return Question("", subject, "\n\n".join(body), topic=topic)


def _alike(waiting: Iterable[Waiting]) -> list[list[Waiting]]:
    """Group what waits for a person by topic and kind of error; what is lost, or a timer, stays alone."""
    groups: dict[tuple[object, ...], list[Waiting]] = {}
    for each in waiting:
        alone = each.partitions if each.lost or each.timer else ()
        groups.setdefault((each.topic, each.error, alone), []).append(each)
    return [sorted(alike, key=lambda each: each.partitions) for alike in groups.values()]


def _about_records(cluster: ClusterSettings, alike: list[Waiting]) -> Question:
    first = alike[0]
    records = tuple(
        Record(each.topic, each.partitions[0], each.offset) for each in alike if each.offset is not None
    )
    where = f"{first.topic} [{first.partitions[0]}], offset {first.offset}"
    if first.lost or first.timer:
        subject = f"What is to become of {'the timer at ' * first.timer}{where}?"
        body = _about_timer(first, where) if first.timer else _about_loss(first, where)
        return Question(first.consumer, subject, body, records, ("retry-record", "skip-record"))
    many = len(alike) > 1
    subject = (
        f"Is it the records or the sink? {first.topic}, {len(alike)} partitions fail with {first.error}"
        if many
        else f"Is it the record or the sink? {where}"
    )
    them = "the records" if many else "the record"
    letter = (
        f"**Dead-letter the record** writes {them} to topic `{cluster.dead_letter_topic}` and reads on; "
        "`muster deadletters` can write that back."
        if cluster.fencing
        else f"{them.capitalize()} cannot be dead-lettered, because the cluster has `fencing: false`."
    )
    about = (
        _failing_table(alike),
        _SINK_FIRST,
        f"**Retry the record** tries {them} again at once, after the handler was mended for example.",
        f"**Skip the record** commits the offset after {them}; only the topic in Kafka keeps a copy.",
        letter,
        "**Wait** changes nothing; you are asked again after an hour.",
        "The question closes by itself when no consumer fails with these any more.",
    )
    commands = ("retry-record", "skip-record", "dead-letter-record")
    return Question(first.consumer, subject, "\n\n".join(about), records, commands)


def _failing_table(alike: list[Waiting]) -> str:
    rows = [
        f"| {each.topic} [{each.partitions[0]}] | {each.offset} | {each.consumer} | {_cell(each.why)} |"
        for each in alike
    ]
    return "\n".join(["| partition | offset | consumer | why |", "| --- | --- | --- | --- |", *_cut(rows)])


def _about_timer(waiting: Waiting, where: str) -> str:
    body = (
        f"Consumer **{waiting.consumer}** does not get past {where}: {_cell(waiting.why)}",
        "**Retry the record** tries the timer again, after the handler was mended for example.",
        "**Skip the record** drops the timer, and skips no record; the rest of the state stays as it is.",
        "The question closes by itself when the partition gets on.",
    )
    return "\n\n".join(body)


def _about_loss(waiting: Waiting, where: str) -> str:
    body = (
        f"Consumer **{waiting.consumer}** does not get past {where}: {_cell(waiting.why)}",
        "**Retry the record** looks again, and parks the partition again if the records are still not there.",
        f"**Skip the record** accepts the loss: the partition goes on behind the {waiting.lost} records that are "
        "lost, and those that are lost by then.",
        "The question closes by itself when the records are there, or the partition goes on elsewhere (a seek).",
    )
    return "\n\n".join(body)


def _held_up(consumer: str, waiting: list[Waiting], snapshots: Iterable[TopicSnapshot]) -> str:
    states = {snapshot.topic: snapshot.name for snapshot in snapshots}
    rows = [
        f"| {each.topic} | {states.get(each.topic, '-')} | {each.phase} {format_partitions(each.partitions)} "
        f"| {_cell(each.why)} |"
        for each in waiting
    ]
    head = [
        f"Consumer **{consumer}** holds up:",
        "",
        "| topic | state | it is to | why |",
        "| --- | --- | --- | --- |",
    ]
    return "\n".join([*head, *_cut(rows)])


def _outcome(
    coordinator: Coordinator, consumer: str, membership: Membership, snapshots: dict[str, TopicSnapshot]
) -> str:
    try:
        overrides = coordinator.overrides.read()
        assignor = load_in_force(coordinator.cluster, overrides)
        context, _ = coordinator.contexts.read(snapshots, membership.live, assignor, overrides)
        without = WhatIf(without=frozenset({consumer}))
        plan = preview(snapshots.values(), membership, assignor, context, without)
    except (AssignorError, WhatIfError) as error:
        return f"What would happen if it were isolated is unknown: {error}"
    if plan.held:
        return f"If it were isolated: {plan.held}."
    return "\n".join([f"If it were isolated, {len(plan.moves)} partition(s) would move:", "", *_moves(plan)])


def _moves(plan: Preview) -> list[str]:
    groups: dict[tuple[str, str, str, str], list[int]] = {}
    for move in plan.moves:
        key = (move.topic, move.source or "-", move.target or "no consumer", move.reason)
        groups.setdefault(key, []).append(move.partition)
    rows = [
        f"| {topic} | {format_partitions(partitions)} | {source} | {target} | {_cell(why)} |"
        for (topic, source, target, why), partitions in groups.items()
    ]
    return ["| topic | partitions | from | to | why |", "| --- | --- | --- | --- | --- |", *_cut(rows)]


def _cut(rows: list[str]) -> list[str]:
    more = len(rows) - SHOWN
    return rows[:SHOWN] + ([f"\n... and {more} more"] if more > 0 else [])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")
