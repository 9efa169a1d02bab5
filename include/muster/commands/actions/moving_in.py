"""Importing the offsets of a consumer from before Muster, so that the cluster goes on where that one stopped.

It is done once for a cluster, before its consumers start, by a person who has the old consumer's files or servers at
hand; so it is a command of the command line alone, and is recorded in the history as the others are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from muster.commands.command import Actor, CommandError, Outcome, listed
from muster.core.imported_offsets import ForeignOffsetsError, Plan, parse_checkpoint_offsets, plan_import
from muster.core.model import TopicPartition
from muster.core.positions import format_stamp, of_another_topic
from muster.edges.kafka import GroupOffsets
from muster.edges.kafka_admin import KafkaError
from muster.edges.kafka_fencing import FencedCommits
from muster.edges.zookeeper_consumers import read_old_group
from muster.settings.connections import KafkaSettings, ZooKeeperSettings

if TYPE_CHECKING:
    from muster.commands.target import Target

AT_ONCE = 64
"""Partitions whose producers are open at the same time."""
PATIENCE = 60.0
"""Seconds within which Kafka has to take the commits of `AT_ONCE` partitions."""

Found = Mapping[TopicPartition, int]


def from_zookeeper(settings: ZooKeeperSettings, group: str) -> Found:
    """The offsets that a consumer of Kafka 0.8 left. Raises `CommandError` and `ZooKeeperError`."""
    if not group or "/" in group:
        raise CommandError(f"{group!r} is no consumer group's name")
    try:
        old = read_old_group(settings, group)
    except ForeignOffsetsError as error:
        raise CommandError(str(error)) from error
    _stopped(group, old.running)
    return _any(old.offsets, f"ZooKeeper at {settings.hosts} has no /consumers/{group}/offsets")


def from_group(kafka: KafkaSettings, group_id: str, target: Target) -> Found:
    """The offsets that another group has committed of the cluster's topics. Raises `CommandError` and `KafkaError`.

    Offsets that a Muster of before committed for a topic that was deleted since are left out.
    """
    if group_id == target.cluster.group_id:
        raise CommandError(f"{group_id!r} is the group of cluster {target.cluster.name!r} itself")
    group = GroupOffsets(kafka, group_id)
    try:
        _stopped(group_id, [member.client_id for member in group.members()])
        partitions = _partitions(group, target)
        ids = group.topic_ids({topic for topic, _ in partitions})
        found = {
            tp: committed.offset
            for tp, committed in group.positions(partitions).items()
            if committed is not None and not of_another_topic(committed.metadata, ids.get(tp[0], ""))
        }
    finally:
        group.close()
    return _any(found, f"group {group_id!r} has committed no offset of the topics of {target.cluster.name!r}")


def from_checkpoint(folder: Path) -> Found:
    """Where the last batch that Spark finished ended, by the query's checkpoint. Raises `CommandError`.

    A batch that was begun and not finished is not in it: Spark would have read it again.
    """
    try:
        finished = [int(file.name) for file in (folder / "commits").iterdir() if file.name.isdecimal()]
        if not finished:
            raise CommandError(f"{folder / 'commits'} is empty: the query has finished no batch")
        last = folder / "offsets" / str(max(finished))
        found = parse_checkpoint_offsets(last.read_text("utf-8"), str(last))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            f"{folder} cannot be read as the checkpoint of a Spark query: {error}; give the folder that has "
            "'commits' and 'offsets', copied here if it is elsewhere"
        ) from error
    except ForeignOffsetsError as error:
        raise CommandError(str(error)) from error
    return _any(found, f"{last} has no offsets of Kafka")


def plan(target: Target, kafka: KafkaSettings, found: Found) -> Plan:
    """What importing `found` changes. Raises `KafkaError`, `ConsulError`."""
    group = GroupOffsets(kafka, target.cluster.group_id)
    try:
        partitions = _partitions(group, target)
        return plan_import(
            found,
            group.committed(partitions),
            group.beginning_offsets(partitions),
            group.end_offsets(partitions),
        )
    finally:
        group.close()


def import_offsets(target: Target, actor: Actor, kafka: KafkaSettings, planned: Plan, source: str) -> Outcome:
    """Commit what is planned for the cluster's group, as the newest owner of each partition.

    Raises `CommandError` if consumers of the cluster are registered or the group has members, and `KafkaError`; then
    some may be committed, and doing it again does no harm.
    """
    cluster = target.cluster
    if registered := set(target.consul.catalog.members().registered):
        raise CommandError(
            f"consumers of cluster {cluster.name!r} run: {listed(registered)}; stop them first (pause the DAG "
            f"muster_consumers__{cluster.name} and end its tasks), because they commit over what is imported"
        )
    if not planned.imports:
        raise CommandError(f"nothing of what {source} has can be imported into cluster {cluster.name!r}")
    group = GroupOffsets(kafka, cluster.group_id)
    try:
        _stopped(cluster.group_id, [member.client_id for member in group.members()])
        ids = group.topic_ids({each.topic for each in planned.imports})
        offsets = {(each.topic, each.partition): each.to for each in planned.imports}
        stamps = {tp: format_stamp(cluster.name, ids.get(tp[0], "")) for tp in offsets}
        if cluster.fencing:
            _commit_fenced(kafka, cluster.name, group, offsets, stamps)
        else:
            group.commit(offsets, stamps)
    finally:
        group.close()
    by_topic: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in offsets.items():
        by_topic.setdefault(topic, {})[partition] = offset
    lines = (
        f"group {cluster.group_id} of cluster {cluster.name} goes on where {source} stopped, with "
        f"{len(offsets)} partition(s): {actor}",
    )
    return Outcome(lines, {"source": source, "offsets": by_topic})


def _commit_fenced(
    kafka: KafkaSettings,
    cluster: str,
    group: GroupOffsets,
    offsets: Found,
    stamps: Mapping[TopicPartition, str],
) -> None:
    """Commit as owners do: what a consumer that is not registered any more commits later is refused."""
    fences = FencedCommits(kafka, cluster, group)
    try:
        partitions = list(offsets)
        for begin in range(0, len(partitions), AT_ONCE):
            part = partitions[begin : begin + AT_ONCE]
            _until_done(part, lambda left: fences.claim(left).failed)

            def commit(left: list[TopicPartition]) -> Mapping[TopicPartition, str]:
                outcome = fences.commit({tp: offsets[tp] for tp in left}, stamps)
                for (topic, partition), why in outcome.refused.items():
                    raise KafkaError(f"topic {topic!r}, partition {partition}: refused: {why}; import again")
                return outcome.failed

            _until_done(part, commit)
            fences.release(part)
    finally:
        fences.close()


def _until_done(
    partitions: list[TopicPartition],
    ask: Callable[[list[TopicPartition]], Mapping[TopicPartition, str]],
) -> None:
    end = time.monotonic() + PATIENCE
    left = partitions
    while failed := ask(left):
        left = list(failed)
        if time.monotonic() > end:
            topic, partition = left[0]
            raise KafkaError(
                f"topic {topic!r}, partition {partition}: not committed within {PATIENCE:g} s: {failed[left[0]]}; "
                "check Kafka, and import again"
            )


def _partitions(group: GroupOffsets, target: Target) -> list[TopicPartition]:
    reads = target.cluster.topics.read_with(target.consul.overrides.decisions().subscriptions)
    there = group.topics.list_topics().partitions
    return [
        (topic, p) for topic, found in sorted(there.items()) if reads.includes(topic) for p in sorted(found)
    ]


def _stopped(group: str, running: tuple[str, ...] | list[str]) -> None:
    if running:
        raise CommandError(
            f"consumers of group {group!r} run: {listed(running)}; stop them first, because what they commit from "
            "now on would be read twice"
        )


def _any(found: Found, otherwise: str) -> Found:
    if not found:
        raise CommandError(otherwise)
    return found
