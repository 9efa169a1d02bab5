"""What one reading of ZooKeeper and Consul gave, and what follows from it without asking a consumer."""

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

NO_MEMBERS = Membership({})


@dataclass(frozen=True)
class View:
    """One reading, and the plan that follows.

    `unreadable_topics` maps topics whose nodes are invalid to the reason; they stay as they are. `leaving` maps the
    topics that are no longer subscribed to the reason; `targets` is the plan for the others. With a `planning_error`
    it holds only the consumers that replace dead ones.
    """

    snapshots: dict[str, TopicSnapshot]
    unreadable_topics: dict[str, str]
    members: Members
    decisions: Decisions = NOTHING_DECIDED
    leaving: Mapping[str, str] = field(default_factory=dict)
    targets: Plan = field(default_factory=Plan)
    planning_error: str = ""
    known: Known = field(default_factory=Known)
    policy: Policy = field(default_factory=Policy)

    @property
    def trusted(self) -> bool:
        """Whether Consul's answer about the consumers can be relied on; `members.doubt` says why not."""
        return self.members.membership is not None

    @property
    def membership(self) -> Membership:
        """The consumers, none if Consul's answer cannot be relied on."""
        return self.members.membership or NO_MEMBERS

    @property
    def held(self) -> str:
        """Why the status quo stands, '' when planning may go on."""
        if self.decisions.paused is not None:
            return f"{self.decisions.paused}; resume the cluster to go on"
        if not self.trusted:
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
            if topic not in self.unreadable_topics and topic not in self.leaving
        }
        topics = {topic: snapshot.partitions for topic, snapshot in self.snapshots.items()}
        impossible = impossible_pins(pins, topics, self.membership.live, decisions.excluded())
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
        return [(topic, self.snapshots[topic]) for topic in sorted(self.known.decisions.topics() & staying)]


def _under_way(snapshot: TopicSnapshot) -> bool:
    if snapshot.state is None:
        return snapshot.assignment is not None and bool(snapshot.partitions)
    return snapshot.state.state is not State.STABLE
