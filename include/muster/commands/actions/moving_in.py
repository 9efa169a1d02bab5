"""Importing the offsets of a consumer from before Muster, so that the cluster goes on where that one stopped.

A source that is a file, or behind another connection, is reached with the rights of the process that carries the
command out. Where these are not those of the person who gives it, the cluster's settings name what may be reached
(`allowed_imports`), and no error shows what a file or node holds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.commands.command import Actor, CommandError, CommandOutcome, Foreseen, listed
from muster.core.imported_offsets import (
    ForeignOffsetsError,
    Import,
    ImportPlan,
    parse_checkpoint_offsets,
    plan_import,
)
from muster.core.model import TopicPartition
from muster.core.positions import Committed, format_stamp, of_another_topic, parse_stamp, taken_up

if TYPE_CHECKING:
    from muster.commands.target import Target
    from muster.edges.kafka import GroupOffsets

Found = Mapping[TopicPartition, int]
"""The next offset to read of each partition, as the old consumer left it."""

_GROUP_OF_KAFKA_08 = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]+")
"""What Kafka 0.8 takes for a group's name, without what would be a step in a path."""
_BEGUN = "its state by key has begun, and only an owner moves it: start the consumers and use 'muster seek --state'"


def foresee_import(
    target: Target, _actor: Actor, group: str, zookeeper_group: str, zookeeper: str, checkpoint: str
) -> Foreseen:
    """Return what an import would change, in records, and change nothing. Raises as `import_offsets`, but not while
    consumers of the cluster run; that is the last line then."""
    _, found = _find(target, group, zookeeper_group, zookeeper, checkpoint)
    with target.jobs_group(target.cluster.group_id) as own:
        planned = _plan(target, own, found)
        refusal = _refusal(target, own)
    return _foreseen(planned, *([f"refused at present: {refusal}"] if refusal else []))


def import_offsets(
    target: Target, actor: Actor, group: str, zookeeper_group: str, zookeeper: str, checkpoint: str
) -> CommandOutcome:
    """Commit for the cluster's group what the one source that is given has, as the newest owner of each partition.

    Raises `CommandError` if not just one source is given, if it may not be read or has nothing, while its consumers
    or those of the cluster run, and `ConnectionSettingsError`, `ConsulError`, `ZooKeeperError` and `KafkaError`;
    after the last some may be committed, and importing again does no harm.
    """
    cluster = target.cluster
    source, found = _find(target, group, zookeeper_group, zookeeper, checkpoint)
    with target.jobs_group(cluster.group_id) as own:
        if refusal := _refusal(target, own):
            raise CommandError(refusal)
        planned = _plan(target, own, found)
        if not planned.imports:
            raise CommandError(f"nothing of what {source} has can be imported into cluster {cluster.name!r}")
        ids = own.topic_ids({each.topic for each in planned.imports})
        offsets = {(each.topic, each.partition): each.to for each in planned.imports}
        stamps = {
            tp: _stamp(cluster.name, ids.get(tp[0], ""), there)
            for tp, there in own.positions(offsets).items()
        }
        target.commit_imported(own, offsets, stamps)
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        by_topic.setdefault(topic, {})[str(partition)] = offset
    lines = (
        f"group {cluster.group_id} of cluster {cluster.name} goes on where {source} stopped, with "
        f"{len(offsets)} partition(s): {actor}",
        *_foreseen(planned).lines(),
    )
    return CommandOutcome(lines, {"source": source, "offsets": by_topic})


def _find(
    target: Target, group: str, zookeeper_group: str, zookeeper: str, checkpoint: str
) -> tuple[str, Found]:
    """Return the source in words, and what it has. Raises `CommandError`."""
    if sum(map(bool, (group, zookeeper_group, checkpoint))) != 1:
        raise CommandError("give one source: a group, a group in ZooKeeper, or a checkpoint")
    if zookeeper and not zookeeper_group:
        raise CommandError(
            f"connection {zookeeper!r} is for a group in ZooKeeper; name that as well, or leave it out"
        )
    if group:
        return f"group {group}", from_group(target, group)
    if checkpoint:
        return f"checkpoint {checkpoint}", from_checkpoint(_allowed_folder(target, checkpoint))
    where = f" (connection {zookeeper})" if zookeeper else ""
    return f"group {zookeeper_group} in ZooKeeper{where}", from_zookeeper(target, zookeeper, zookeeper_group)


def from_zookeeper(target: Target, conn_id: str, group: str) -> Found:
    """Return the offsets that a consumer of Kafka 0.8 left; without `conn_id` in the cluster's own ZooKeeper.

    Raises `CommandError` and `ZooKeeperError`.
    """
    if not _GROUP_OF_KAFKA_08.fullmatch(group):
        raise CommandError(f"{group[:100]!r} is no name of a consumer group of Kafka 0.8")
    cluster = target.cluster
    allowed = {cluster.zookeeper, *cluster.allowed_imports.zookeeper}
    conn_id = conn_id or cluster.zookeeper
    if conn_id not in allowed and not target.own_rights:
        raise CommandError(
            f"connection {conn_id!r} is not one of those that 'allowed_imports.zookeeper' of cluster "
            f"{cluster.name!r} names in the settings, nor its own: {listed(allowed)}; have it added, or run 'muster "
            "import-offsets' where the connection is yours"
        )
    try:
        old = target.old_group(conn_id, group)
    except ForeignOffsetsError as error:
        raise CommandError(str(error)) from error
    _stopped(group, old.running)
    return _any(old.offsets, f"the ZooKeeper of {conn_id} has no /consumers/{group}/offsets")


def from_group(target: Target, group_id: str) -> Found:
    """Return the offsets that another group has committed of the cluster's topics.

    Raises `CommandError` and `KafkaError`. Offsets that a Muster of before committed for a topic that was deleted
    since are left out.
    """
    if group_id == target.cluster.group_id:
        raise CommandError(f"{group_id!r} is the group of cluster {target.cluster.name!r} itself")
    with target.jobs_group(group_id) as group:
        _stopped(group_id, [member.client_id for member in group.members()])
        partitions = _partitions(group, target)
        ids = group.topic_ids({topic for topic, _ in partitions})
        found = {
            tp: committed.offset
            for tp, committed in group.positions(partitions).items()
            if committed is not None and not of_another_topic(committed.metadata, ids.get(tp[0], ""))
        }
    return _any(found, f"group {group_id!r} has committed no offset of the topics of {target.cluster.name!r}")


def from_checkpoint(folder: Path) -> Found:
    """Return where the last batch that Spark finished ended, by the query's checkpoint. Raises `CommandError`.

    A batch that was begun and not finished is not in it: Spark would have read it again.
    """
    try:
        root = folder.resolve()
        finished = [int(file.name) for file in (root / "commits").iterdir() if file.name.isdecimal()]
        if not finished:
            raise CommandError(f"{folder / 'commits'} is empty: the query has finished no batch")
        last = root / "offsets" / str(max(finished))
        found = parse_checkpoint_offsets(_text_inside(root, last), str(last))
    except (OSError, RuntimeError) as error:
        raise CommandError(
            f"{folder} cannot be read as the checkpoint of a Spark query: {error}; give the folder that has "
            "'commits' and 'offsets', copied to where the command is carried out if it is elsewhere"
        ) from error
    except ForeignOffsetsError as error:
        raise CommandError(str(error)) from error
    return _any(found, f"{last} has no offsets of Kafka")


def _text_inside(root: Path, file: Path) -> str:
    """Read a file of the folder `root`. Raises OSError, also for a link that leads out of the folder."""
    real = file.resolve(strict=True)
    if not real.is_relative_to(root) or not real.is_file():
        raise OSError(f"{file} is no file in that folder")
    return real.read_text("utf-8", "replace")


def _allowed_folder(target: Target, text: str) -> Path:
    """Return the folder, with links resolved if it has to be one that the settings allow. Raises `CommandError`,
    which does not tell whether the folder is there."""
    if target.own_rights:
        return Path(text)
    allowed = target.cluster.allowed_imports.checkpoints
    try:
        real = Path(text).resolve()
        if any(real.is_relative_to(Path(each).resolve()) for each in allowed):
            return real
    except (OSError, RuntimeError):
        pass  # a link that leads to itself, say
    raise CommandError(
        f"{text!r} is not in a folder that 'allowed_imports.checkpoints' of cluster {target.cluster.name!r} names in "
        f"the settings: {listed(allowed)}; have it added, or run 'muster import-offsets' where you may read the "
        "folder yourself"
    )


def _plan(target: Target, group: GroupOffsets, found: Found) -> ImportPlan:
    """Return what importing `found` changes. Raises `KafkaError`, `ConsulError`."""
    partitions = _partitions(group, target)
    there = group.positions(partitions)
    begun = {
        tp for tp in found.keys() & there.keys() if (at := there[tp]) is not None and _has_state(at.metadata)
    }
    planned = plan_import(
        {tp: offset for tp, offset in found.items() if tp not in begun},
        {tp: None if at is None else at.offset for tp, at in there.items() if tp not in begun},
        group.beginning_offsets(partitions),
        group.end_offsets(partitions),
    )
    return replace(planned, left_out={**planned.left_out, **dict.fromkeys(sorted(begun), _BEGUN)})


def _stamp(cluster: str, topic_id: str, there: Committed | None) -> str:
    """Return the metadata of an imported offset, in place of what is `there`."""
    note = taken_up(there, topic_id)
    return format_stamp(cluster, topic_id, note if there is None else note.gone_back(there.offset))


def _has_state(metadata: str) -> bool:
    stamp = parse_stamp(metadata)
    return stamp is not None and stamp.seq > 0


def _refusal(target: Target, group: GroupOffsets) -> str:
    """Return why nothing may be imported now, '' if it may. Raises `KafkaError`, `ConsulError`."""
    cluster = target.cluster
    if registered := set(target.consul.catalog.members().registered):
        return (
            f"consumers of cluster {cluster.name!r} run: {listed(registered)}; stop them first (pause the DAG "
            f"muster_consumers__{cluster.name} and end its tasks), because they commit over what is imported"
        )
    return _running(cluster.group_id, [member.client_id for member in group.members()])


def _foreseen(planned: ImportPlan, *more: str) -> Foreseen:
    imports = planned.imports
    partitions = (
        *(
            f"topic {each.topic!r}, partition {each.partition}: {'nothing' if each.now is None else each.now} -> "
            f"{each.to}, {_words(_effects(each))}"
            for each in imports
        ),
        *(f"left out: topic {topic!r}, partition {p}: {why}" for (topic, p), why in planned.left_out.items()),
        *(
            f"topic {topic!r}, partition {p}: stays as it is, nothing was found"
            for topic, p in planned.without
        ),
    )
    summary = (
        f"{len(imports)} partition(s) are imported, {len(planned.left_out)} left out, {len(planned.without)} stay as "
        "they are",
        f"together {_words(_effects(*imports))}, by offsets and what is committed now",
        *more,
    )
    return Foreseen(partitions, summary, _values(planned))


def _effects(*imports: Import) -> dict[str, int]:
    """Return what importing them means, each in offsets."""
    return {
        "read_again": sum(each.again for each in imports),
        "passed_over": sum(each.passed_over for each in imports),
        "lost": sum(each.lost for each in imports),
        "to_read": sum(each.left for each in imports),
    }


def _words(effects: Mapping[str, int]) -> str:
    return (
        f"{effects['read_again']} record(s) come again, {effects['passed_over']} are left out, {effects['lost']} are "
        f"lost, {effects['to_read']} are to be read"
    )


def _values(planned: ImportPlan) -> dict[str, Any]:
    return {
        "imports": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "now": each.now,
                "imported": each.to,
                **_effects(each),
            }
            for each in planned.imports
        ],
        "left_out": [
            {"topic": topic, "partition": partition, "why": why}
            for (topic, partition), why in planned.left_out.items()
        ],
        "without": [{"topic": topic, "partition": partition} for topic, partition in planned.without],
    }


def _partitions(group: GroupOffsets, target: Target) -> list[TopicPartition]:
    reads = target.cluster.topics.read_with(target.consul.overrides.read().subscriptions)
    there = group.topics.list_topics().partitions
    return [
        (topic, p) for topic, found in sorted(there.items()) if reads.includes(topic) for p in sorted(found)
    ]


def _running(group: str, running: Collection[str]) -> str:
    """Return why the group cannot be read or written while consumers run, '' if there are none."""
    if not running:
        return ""
    return (
        f"consumers of group {group!r} run: {listed(running)}; stop them first, because what they commit from now on "
        "would be read twice"
    )


def _stopped(group: str, running: Collection[str]) -> None:
    if words := _running(group, running):
        raise CommandError(words)


def _any(found: Found, otherwise: str) -> Found:
    if not found:
        raise CommandError(otherwise)
    return found
