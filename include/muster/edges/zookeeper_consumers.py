"""What a consumer of Kafka 0.8 has left in ZooKeeper: `/consumers/[group]/offsets/[topic]/[partition]`, and the ids
of those that run, `/consumers/[group]/ids/[consumer]`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kazoo.exceptions import NoNodeError

from muster.core.imported_offsets import parse_zookeeper_offset
from muster.core.model import TopicPartition
from muster.edges.zookeeper_session import Operation, Session
from muster.settings.connections import ZooKeeperSettings


@dataclass(frozen=True)
class OldGroup:
    """The next offset to read of each partition, and which of its consumers run."""

    offsets: dict[TopicPartition, int]
    running: tuple[str, ...]


def read_old_group(settings: ZooKeeperSettings, group: str) -> OldGroup:
    """Read what consumers of `group` have left.

    Raises `ZooKeeperError`, and `ForeignOffsetsError` for a node that is no offset.
    """
    session = Session(settings)
    session.open()
    try:
        operation = session.begin()
        root = f"/consumers/{group}"
        asked = {}
        for topic in _children(operation, f"{root}/offsets"):
            for partition in _children(operation, f"{root}/offsets/{topic}"):
                if partition.isdecimal():
                    path = f"{root}/offsets/{topic}/{partition}"
                    asked[topic, int(partition)] = (path, operation.client.get_async(path))
        offsets = {
            tp: parse_zookeeper_offset(operation.wait(f"reading {path}", result)[0], path)
            for tp, (path, result) in asked.items()
        }
        return OldGroup(offsets, tuple(_children(operation, f"{root}/ids")))
    finally:
        session.close()


def _children(operation: Operation, path: str) -> list[str]:
    try:
        return sorted(operation.call(f"reading {path}", operation.client.get_children_async, path))
    except NoNodeError:
        return []
