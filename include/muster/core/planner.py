"""From what ZooKeeper holds and who is there to who should read what, over all topics of a cluster at once.

The planner gives the assignor what it needs and checks what it returns. It does not know of states: which part
of the plan may be carried out now is the state machine's business (`muster.core.state_machine`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.core.assignors import NOTHING_FURTHER, Assignor, Circumstances, run_assignor
from muster.core.model import Assignment, Consumer, Owners, TopicSnapshot, by_partition


def intended_owners(snapshot: TopicSnapshot) -> dict[int, str]:
    """Who reads each partition once the present rebalance is through.

    The new owner where one is planned, else the present one, else the one that is closing it.
    """
    owners: dict[int, str] = {}
    if snapshot.state is not None:
        owners.update(by_partition(snapshot.state.to_close))
    if snapshot.assignment is not None:
        owners.update(snapshot.assignment.owners)
    if snapshot.state is not None:
        owners.update(by_partition(snapshot.state.to_start))
    return {p: consumer for p, consumer in owners.items() if p in snapshot.partitions}


def plan(
    snapshots: Iterable[TopicSnapshot],
    consumers: Mapping[str, Consumer],
    assignor: Assignor,
    circumstances: Circumstances = NOTHING_FURTHER,
) -> dict[str, Owners]:
    """Return the owner of each partition of each topic as `assignor` wants it.

    `consumers` are the live ones. Raises `AssignorError` if the assignor fails or returns no valid assignment;
    the caller then leaves all topics as they are.
    """
    chosen = sorted(snapshots, key=lambda snapshot: snapshot.topic)
    topics = {snapshot.topic: snapshot.partitions for snapshot in chosen}
    previous: Assignment = {snapshot.topic: intended_owners(snapshot) for snapshot in chosen}
    assignment = run_assignor(assignor, topics, consumers, previous, circumstances)
    return {topic: assignment.get(topic, {}) for topic in topics}
