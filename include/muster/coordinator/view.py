"""What one reading of ZooKeeper and Consul gave, and what follows from it without asking anybody else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from muster.coordinator.circumstances import Known
from muster.core.assignors.pins import impossible_pins
from muster.core.decisions import NOTHING_DECIDED, Decisions
from muster.core.model import Membership, State, TopicSnapshot
from muster.core.patience import Policy
from muster.core.planner import Plan, intended_owners
from muster.core.state_machine import may_be_removed
from muster.edges.consul import Members


@dataclass(frozen=True)
class View:
    """Without `membership`, `members.doubt` says why. `leaving` are the topics that are not subscribed any more, with
    the reason; `targets` is the plan for the others. With a `planning_error` it holds only who replaces the dead."""

    snapshots: dict[str, TopicSnapshot]
    errors: dict[str, str]
    members: Members
    decisions: Decisions = NOTHING_DECIDED
    leaving: Mapping[str, str] = field(default_factory=dict)
    targets: Plan = field(default_factory=Plan)
    planning_error: str = ""
    known: Known = field(default_factory=Known)
    policy: Policy = field(default_factory=Policy)

    @property
    def membership(self) -> Membership | None:
        """Who is there, None if that is not to be trusted."""
        return self.members.membership

    @property
    def held(self) -> str:
        """Why the status quo stands, '' when planning may go on."""
        if self.decisions.paused is not None:
            return f"{self.decisions.paused}; resume the cluster to go on"
        if self.membership is None:
            return self.members.doubt
        if not self.membership.live:
            return "no consumer is live: the assignment stays as it is until one appears"
        return ""

    @property
    def all_stable(self) -> bool:
        """Whether no topic is in mid-rebalance, or still to be begun with."""
        return not any(map(_under_way, self.snapshots.values()))

    @property
    def asked(self) -> str:
        """The person who asked for a rebalance now, and the reason; '' if there is none."""
        return str(self.decisions.rebalance) if self.decisions.rebalance is not None else ""

    @property
    def warnings(self) -> list[str]:
        """What could not be taken into account, in words."""
        decisions = self.known.decisions
        pins = {
            topic: owners
            for topic, owners in decisions.pinned().items()
            if topic not in self.errors and topic not in self.leaving
        }
        topics = {topic: snapshot.partitions for topic, snapshot in self.snapshots.items()}
        live = self.membership.live if self.membership is not None else {}
        impossible = impossible_pins(pins, topics, live, decisions.excluded(), decisions.drained.keys())
        unobeyed = (
            decisions.unobeyed(topic, intended_owners(snapshot), self.targets.get(topic, {}))
            for topic, snapshot in self._decided()
            if not self.planning_error
        )
        return [*self.known.warnings, *map(str, impossible), *chain.from_iterable(unobeyed)]

    def reasons(self) -> dict[str, dict[int, str]]:
        """Why partitions move, by topic, for those that move because a person decided so."""
        found: dict[str, dict[int, str]] = {}
        if self.asked:
            for topic, targets in self.targets.items():
                owners = intended_owners(self.snapshots[topic])
                found[topic] = {p: self.asked for p, target in targets.items() if owners.get(p) != target}
        for topic, snapshot in self._decided():
            decided = self.known.decisions.reasons(
                topic, intended_owners(snapshot), self.targets.get(topic, {})
            )
            found[topic] = found.get(topic, {}) | decided
        return found

    def removable(self) -> dict[str, TopicSnapshot]:
        """The topics whose nodes may go."""
        return {
            topic: self.snapshots[topic]
            for topic in sorted(self.leaving)
            if may_be_removed(self.snapshots[topic])
        }

    def states(self) -> dict[str, int]:
        """How many topics are in which state."""
        return dict(Counter(str(snapshot.name) for snapshot in self.snapshots.values()))

    def under_way(self) -> dict[str, str]:
        """The topics that have something before them whatever the plan says, with what that is."""
        found = {
            topic: f"{snapshot.name} -> ..."
            for topic, snapshot in self.snapshots.items()
            if _under_way(snapshot)
        }
        leaving = {
            topic: f"{self.snapshots[topic].name} -> closed and removed: {reason}"
            for topic, reason in self.leaving.items()
            if topic not in found
        }
        return found | leaving

    def _decided(self) -> list[tuple[str, TopicSnapshot]]:
        staying = self.snapshots.keys() - self.leaving.keys()
        decisions = self.known.decisions
        decided = staying if decisions.drained else decisions.topics() & staying
        return [(topic, self.snapshots[topic]) for topic in sorted(decided)]


def _under_way(snapshot: TopicSnapshot) -> bool:
    if snapshot.state is None:
        return snapshot.assignment is not None and bool(snapshot.partitions)
    return snapshot.state.state is not State.STABLE
