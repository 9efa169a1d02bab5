"""Plan the owners of all topics of a cluster at once, from what ZooKeeper holds and the consumers that are live.

The planner gives the assignor what it needs and checks what it returns. It does not know of states: which part
of the plan may be carried out now is the state machine's business (`muster.core.state_machine`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from muster.core.assignors import EMPTY_CONTEXT, Assignor, PlanningContext, run_assignor
from muster.core.assignors.api import Standbys
from muster.core.assignors.run import run_standbys, run_tasks
from muster.core.assignors.subscriptions import without_excluded
from muster.core.model import Assignment, Consumer, State, TopicSnapshot, by_partition
from muster.core.warming import OPEN, Admission, Gate, Stalled, WarmUps


@dataclass(frozen=True, slots=True)
class Plan:
    """The owner and the standbys that each partition of each topic is to have, and who warms up for what.

    `wanted` are the owners that the assignor wants, some of which the gate holds back (`muster.core.warming`);
    `stalled` are the warm-ups that do not get on.
    """

    owners: Assignment = field(default_factory=dict)
    standbys: Standbys = field(default_factory=dict)
    warm_ups: WarmUps = field(default_factory=dict)
    wanted: Assignment = field(default_factory=dict)
    stalled: tuple[Stalled, ...] = ()


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


@dataclass(frozen=True)
class Proposal:
    """What an assignor wants, before the gate."""

    admission: Admission
    consumers: Mapping[str, Consumer]
    assignor: Assignor
    context: PlanningContext

    def concerned(self) -> set[str]:
        """Return the live consumers whose stores the plan depends on."""
        return self.admission.concerned()

    def plan(self, gate: Gate = OPEN) -> Plan:
        """Return what of it may be carried out. Raises `AssignorError` if the assignor names no valid standbys."""
        topics = {topic: snapshot.partitions for topic, snapshot in self.admission.snapshots.items()}
        owners, warm_ups = self.admission.through(gate)
        standbys = run_standbys(self.assignor, topics, self.consumers, owners, self.context)
        return Plan(owners, standbys, warm_ups, self.admission.wanted, self.admission.stalled(gate))


def plan(
    snapshots: Iterable[TopicSnapshot],
    consumers: Mapping[str, Consumer],
    assignor: Assignor,
    context: PlanningContext = EMPTY_CONTEXT,
) -> Plan:
    """Return the owner of each partition of each topic, and its standbys, as `assignor` wants them.

    See `propose`; topics with state move as if all stores were warm.
    """
    return propose(snapshots, consumers, assignor, context).plan()


def propose(
    snapshots: Iterable[TopicSnapshot],
    consumers: Mapping[str, Consumer],
    assignor: Assignor,
    context: PlanningContext = EMPTY_CONTEXT,
    has_state: Callable[[str], bool] = lambda _topic: False,
) -> Proposal:
    """Return what `assignor` wants. The gate is for the topics that have state by `has_state`.

    `consumers` are the live ones; those that are leaving or drained get nothing. What stands in the snapshots
    themselves (standbys, topics in mid-rebalance) is put into the context here. A consumer that warms up for a
    partition counts as the one that has it, so that the next plan wants no other. Raises `AssignorError` if the
    assignor fails or returns no valid assignment; the caller then leaves all topics as they are.
    """
    staying = {
        name: consumer
        for name, consumer in consumers.items()
        if not (consumer.leaving or name in context.drained)
    }
    chosen = sorted(snapshots, key=lambda snapshot: snapshot.topic)
    topics = {snapshot.topic: snapshot.partitions for snapshot in chosen}
    reachable = without_excluded(staying, context.exclusions, topics)

    def may_take(consumer: str, topic: str) -> bool:
        return consumer in reachable and reachable[consumer].subscribes(topic)

    holders: Assignment = {snapshot.topic: intended_owners(snapshot) for snapshot in chosen}
    previous = {s.topic: {**holders[s.topic], **_warming(s, may_take)} for s in chosen}
    context = replace(
        context,
        standbys={s.topic: s.assignment.standbys for s in chosen if s.assignment and s.assignment.standbys},
        unsettled=frozenset(
            s.topic for s in chosen if s.state and (s.state.state is not State.STABLE or s.state.missing)
        ),
    )
    assignment = run_assignor(assignor, topics, staying, previous, context)
    admission = Admission(
        snapshots={s.topic: s for s in chosen},
        holders=holders,
        live=consumers,
        may_take=may_take,
        wanted={topic: assignment.get(topic, {}) for topic in topics},
        together=lambda: run_tasks(assignor, topics, reachable),
        has_state=has_state,
    )
    return Proposal(admission, staying, assignor, context)


def _warming(snapshot: TopicSnapshot, may_take: Callable[[str, str], bool]) -> dict[int, str]:
    """Return who warms up for which partition, of those that may take it."""
    warm_ups = snapshot.assignment.warm_ups if snapshot.assignment is not None else {}
    return {
        p: consumer
        for p, consumer in warm_ups.items()
        if p in snapshot.partitions and may_take(consumer, snapshot.topic)
    }
