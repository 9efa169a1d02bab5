"""The questions to a person: about consumers that hold things up, which to isolate and what would happen then; about
records that a handler fails with, or that Kafka has no more, what is to become of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from muster.coordinator.coordinator import Coordinator
from muster.core.assignors import AssignorError
from muster.core.diagnosis import Waiting, step
from muster.core.model import Membership, TopicSnapshot
from muster.core.partition_list import format_partitions
from muster.core.preview import Preview, WhatIf, WhatIfError, preview
from muster.core.wire import readable
from muster.settings.assignor_choice import load_in_force
from muster.settings.cluster_settings import ClusterSettings

SHOWN = 30
"""Rows of a table that are shown; a person decides by the first few."""


_UNPROVEN = (
    "**Look at the handler's sink first.** While it does not work, good records fail like this one: they are tried "
    "again and again, none is parked, and all goes on once the sink works. Skip or dead-letter the record only "
    "if the sink works."
)


class Record(NamedTuple):
    """A record in Kafka."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Question:
    """Whether to isolate `consumer`, or what is to become of the `record` that it fails with, or that is lost, by one
    of the `commands`; without both, what holds up `topic`. `body` (Markdown) says what is held up, and what would
    happen."""

    consumer: str
    subject: str
    body: str
    record: Record | None = None
    commands: tuple[str, ...] = ()
    topic: str = ""


def questions(coordinator: Coordinator) -> list[Question]:
    """Ask one question a consumer that is live and holds up a topic for longer than the cluster's `stuck_after`, or
    by a batch that takes longer than its `max_batch_time`, one a record that its handler fails with, once the
    partition is parked, or for longer than `stuck_after`, and one a topic that no live consumer holds up.

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
        *(_about_record(cluster, each, each.offset) for each in records if each.offset is not None),
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


def _about_record(cluster: ClusterSettings, waiting: Waiting, offset: int) -> Question:
    record = Record(waiting.topic, waiting.partitions[0], offset)
    where = f"{record.topic} [{record.partition}], offset {record.offset}"
    subject = (
        f"Is it the record or the sink? {where}" if waiting.unproven else f"What is to become of {where}?"
    )
    if waiting.lost:
        return Question(
            waiting.consumer, subject, _about_loss(waiting, where), record, ("retry-record", "skip-record")
        )
    letter = (
        f"**Dead-letter the record** writes it to topic `{cluster.dead_letter_topic}` and reads on; "
        "`muster deadletters` can write it back."
        if cluster.fencing
        else "It cannot be dead-lettered, because the cluster has `fencing: false`."
    )
    body = (
        f"Consumer **{waiting.consumer}** does not get past {where}: {_cell(waiting.why)}",
        *([_UNPROVEN] if waiting.unproven else []),
        "**Retry the record** tries it again, after the handler was mended for example, and parks the partition "
        "again if it still fails.",
        "**Skip the record** commits the offset after it; nothing keeps it but its topic in Kafka.",
        letter,
        "The question closes by itself when the consumer does not fail with the record any more.",
    )
    commands = ("retry-record", "skip-record", "dead-letter-record")
    return Question(waiting.consumer, subject, "\n\n".join(body), record, commands)


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
