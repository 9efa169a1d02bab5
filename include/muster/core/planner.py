"""Plan the owners of all topics of a cluster at once, from what ZooKeeper holds and the consumers that are live.

The planner gives the assignor what it needs and checks what it returns. It does not know of states: which part
of the plan may be carried out now is the state machine's business (`muster.core.state_machine`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from muster.core.assignors import EMPTY_CONTEXT, Assignor, PlanningContext, run_assignor
from muster.core.assignors.api import Standbys
from muster.core.assignors.run import run_standbys
from muster.core.model import Assignment, Consumer, State, TopicSnapshot, by_partition


@dataclass(frozen=True, slots=True)
class Plan:
    """The owner and the standbys that each partition of each topic is to have."""

    owners: Assignment = field(default_factory=dict)
    standbys: Standbys = field(default_factory=dict)


def intended_owners(snapshot: TopicSnapshot) -> dict[int, str]:
    """Return the owner of each partition once the present rebalance has ended.

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
    context: PlanningContext = EMPTY_CONTEXT,
) -> Plan:
    """Return the owner of each partition of each topic, and its standbys, as `assignor` wants them.

    `consumers` are the live ones; those that are leaving or drained get nothing. What stands in the snapshots
    themselves (standbys, topics in mid-rebalance) is put into the context here. Raises `AssignorError` if the
    assignor fails or returns no valid assignment; the caller then leaves all topics as they are.
    """
    consumers = {
        name: consumer
        for name, consumer in consumers.items()
        if not (consumer.leaving or name in context.drained)
    }
    chosen = sorted(snapshots, key=lambda snapshot: snapshot.topic)
    topics = {snapshot.topic: snapshot.partitions for snapshot in chosen}
    previous: Assignment = {snapshot.topic: intended_owners(snapshot) for snapshot in chosen}
    context = replace(
        context,
        standbys={s.topic: s.assignment.standbys for s in chosen if s.assignment and s.assignment.standbys},
        unsettled=frozenset(
            s.topic for s in chosen if s.state and (s.state.state is not State.STABLE or s.state.missing)
        ),
    )
    assignment = run_assignor(assignor, topics, consumers, previous, context)
    return Plan(
        owners={topic: assignment.get(topic, {}) for topic in topics},
        standbys=run_standbys(assignor, topics, consumers, assignment, context),
    )
