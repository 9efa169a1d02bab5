"""The paths of the nodes in ZooKeeper."""

from __future__ import annotations

from functools import lru_cache

from muster.core.wire.names import check_id, check_topic


@lru_cache(maxsize=64)
def assignments_path(cluster: str) -> str:
    """Return the path of the parent of a cluster's assignment nodes."""
    return f"/consumers/{check_id(cluster, 'cluster name')}/assignments"


def assignment_path(cluster: str, topic: str) -> str:
    """Return the path of the assignment node of a topic."""
    return f"{assignments_path(cluster)}/{check_topic(topic)}"


def partition_path(cluster: str, topic: str, partition: int) -> str:
    """Return the path of the child that says that `partition` exists."""
    return f"{assignment_path(cluster, topic)}/{partition}"


def states_path(cluster: str) -> str:
    """Return the path of the parent of a cluster's state nodes."""
    return f"/consumers/{check_id(cluster, 'cluster name')}/state"


def state_path(cluster: str, topic: str) -> str:
    """Return the path of the state node of a topic."""
    return f"{states_path(cluster)}/{check_topic(topic)}"


def racks_parent(cluster: str) -> str:
    """Return the path of the parent of a cluster's racks nodes."""
    return f"/consumers/{check_id(cluster, 'cluster name')}/racks"


def racks_path(cluster: str, topic: str) -> str:
    """Return the path of the racks node of a topic."""
    return f"{racks_parent(cluster)}/{check_topic(topic)}"
