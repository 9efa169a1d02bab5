"""What one reading of ZooKeeper and Consul gave, and what follows from it without asking a consumer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from muster.core.assignors.pins import impossible_pins
from muster.core.flow import with_flow
from muster.core.model import (
    Membership,
    Seek,
    State,
    TopicPartition,
    TopicSnapshot,
    Transition,
    by_partition,
)
from muster.core.overrides import NO_OVERRIDES, Overrides, SeekRequest
from muster.core.patience import Patience, Policy, Replies
from muster.core.planner import Plan, intended_owners
from muster.core.state_machine import advance, may_be_removed, registered, topics_ahead
from muster.core.stuck import changed_offsets
from muster.core.warming import under_way
from muster.edges.consul import Members

NO_MEMBERS = Membership({})


@dataclass(frozen=True)
class CoordinatorView:
    """One reading, and the plan that follows.

    `unreadable_topics` maps topics whose nodes are invalid to the reason; they stay as they are. `leaving` maps the
    topics that are no longer subscribed to the reason; `plan` is for the others. With a `planning_error` it holds
    only the consumers that replace dead ones. `unknown` says in words what could not be read.
    """

    snapshots: dict[str, TopicSnapshot]
    unreadable_topics: dict[str, str]
    members: Members
    overrides: Overrides = NO_OVERRIDES
    leaving: Mapping[str, str] = field(default_factory=dict)
    plan: Plan = field(default_factory=Plan)
    planning_error: str = ""
    unknown: tuple[str, ...] = ()
    policy: Policy = field(default_factory=Policy)
    replies: Replies = field(default_factory=Replies)
    """What consumers answered, none before they were asked."""
    sought: frozenset[TopicPartition] = frozenset()
    """The partitions whose seek was carried out, by what is committed."""

    @property
    def trusted(self) -> bool:
        """Whether Consul's answer about the consumers can be relied on; `members.doubt` says why not."""
        return self.members.membership is not None

    @property
    def membership(self) -> Membership:
        """The consumers, none if Consul's answer cannot be relied on."""
        return self.members.membership or NO_MEMBERS

    @property
    def staying(self) -> dict[str, TopicSnapshot]:
        """The topics that are subscribed."""
        return {topic: snapshot for topic, snapshot in self.snapshots.items() if topic not in self.leaving}

    @property
    def patience(self) -> Patience:
        """How long consumers that are away are waited for."""
        return Patience(self.policy, self.membership, self.replies)

    @cached_property
    def ahead(self) -> set[str]:
        """The topics whose nodes may not be the newest, as far as is known: nothing is built on them unasked."""
        answers = chain(self.replies.statuses.values(), *self.replies.older.values())
        return topics_ahead(self.snapshots, answers, self.overrides.epochs)

    @property
    def absences(self) -> bool:
        """Whether a state node keeps since when a consumer is away."""
        return any(s.state is not None and s.state.missing for s in self.snapshots.values())

    @property
    def held(self) -> str:
        """Why the status quo stands, '' when planning may go on."""
        if self.overrides.paused is not None:
            return f"{self.overrides.paused}; resume the cluster to go on"
        if not self.trusted:
            return self.members.doubt
        if not self.membership.live:
            return "no consumer is live: the assignment stays as it is until one appears"
        return ""

    @property
    def all_stable(self) -> bool:
        """Whether no topic is in mid-rebalance, or still to be begun with."""
        return not any(map(self._under_way, self.snapshots.values()))

    @property
    def asked(self) -> str:
        """The person who asked for a rebalance now, and the reason; '' if there is none."""
        return str(self.overrides.rebalance) if self.overrides.rebalance is not None else ""

    @property
    def warming(self) -> bool:
        """Whether a topic node names a consumer that warms up."""
        return under_way(self.snapshots.values())

    @property
    def to_rebalance(self) -> str:
        """`asked`, unless the request waits for warm-ups, whose end is looked for anyway."""
        return "" if self.warming else self.asked

    @property
    def warnings(self) -> list[str]:
        """What could not be taken into account, in words."""
        known = [*self.overrides.large, *self.unknown, *changed_offsets(self.replies.statuses)]
        if self.held or self.planning_error:
            return known
        overrides, live = self.overrides, self.membership.live
        pins = {
            topic: owners
            for topic, owners in overrides.pinned().items()
            if topic not in self.unreadable_topics and topic not in self.leaving
        }
        topics = {topic: snapshot.partitions for topic, snapshot in self.snapshots.items()}
        impossible = impossible_pins(pins, topics, live, overrides.excluded(), overrides.drained.keys())
        unobeyed = (
            overrides.unobeyed(topic, intended_owners(snapshot), self.plan.owners.get(topic, {}))
            for topic, snapshot in self._overridden()
        )
        stalled = map(str, self.plan.stalled)
        return [*known, *map(str, impossible), *chain.from_iterable(unobeyed), *stalled]

    def live_owners(self) -> dict[str, set[str]]:
        """Return the live owners and what they own."""
        owned: dict[str, set[str]] = {}
        for topic, snapshot in self.snapshots.items():
            if snapshot.assignment is not None:
                for consumer in self.membership.live.keys() & set(snapshot.assignment.owners.values()):
                    owned.setdefault(consumer, set()).add(topic)
        return owned

    def concerned(self, standing: Mapping[str, Collection[int]]) -> dict[str, set[str]]:
        """Return the live consumers that `standing` partitions depend on, with the topics, unless they have answered
        about them."""
        asked: dict[str, set[str]] = {}
        ahead = topics_ahead(self.snapshots, self.replies.statuses.values(), self.overrides.epochs)
        for topic, partitions in standing.items():
            snapshot = self.snapshots.get(topic)
            if snapshot is None or snapshot.assignment is None:
                continue
            owners, state = snapshot.assignment.owners, snapshot.state
            closing = by_partition(state.to_close) if state is not None else {}
            who = {closing.get(p) or owners.get(p) for p in partitions}
            for consumer in self.membership.live:
                depends = consumer in who or state is None or topic in ahead
                answer = self.replies.statuses.get(consumer)
                if depends and (answer is None or topic not in answer.topics):
                    asked.setdefault(consumer, set()).add(topic)
        return asked

    def transitions(self, now: float) -> list[Transition]:
        """Return the next step of each topic that has one; `now` is the time by which patience is counted.

        While the status quo stands for want of consumers, they only carry what people ask of the flow; while
        coordination is paused there are none.
        """
        if self.overrides.paused is not None:
            return []
        reasons, patience = {} if self.held else self.reasons(), self.patience
        steps = (
            with_flow(
                snapshot,
                None
                if self.held
                else advance(
                    snapshot,
                    patience,
                    self.plan.owners.get(topic, {}),
                    now,
                    standbys=self.plan.standbys.get(topic, {}),
                    warm_ups=self.plan.warm_ups.get(topic, {}),
                    reasons=reasons.get(topic, {}),
                    leaving=self.leaving.get(topic, ""),
                ),
                self.overrides.not_consumed(topic, snapshot.partitions),
                self.seeks(topic),
                ahead=topic in self.ahead,
            )
            for topic, snapshot in sorted(self.snapshots.items())
        )
        return [step for step in steps if step is not None]

    def seeks(self, topic: str) -> dict[int, Seek]:
        """Return the seeks of a topic that are not known to be carried out."""
        snapshot = self.snapshots[topic]
        topic_id = snapshot.assignment.topic_id if snapshot.assignment is not None else ""
        return {
            p: each.seek
            for (of, p), each in self.overrides.seeks.items()
            if of == topic
            and p in snapshot.partitions
            and (of, p) not in self.sought
            and each.topic_id == topic_id
        }

    @property
    def seeks_ended(self) -> list[tuple[SeekRequest, str]]:
        """The requests that still stand in Consul, and were carried out or are for a topic that was deleted; each
        with that in words."""
        return [
            (each, f"carried out, or overtaken by a later one: {each}")
            if tp in self.sought
            else (
                each,
                f"not carried out: {each}; topic {tp[0]} was created again since, seek it again if need be",
            )
            for tp, each in sorted(self.overrides.seeks.items())
            if tp in self.sought or self._of_former_topic(each)
        ]

    def _of_former_topic(self, request: SeekRequest) -> bool:
        snapshot = self.snapshots.get(request.topic)
        if snapshot is None or snapshot.assignment is None:
            return False
        return snapshot.assignment.topic_id not in {"", request.topic_id}

    @property
    def seeks_without_owner(self) -> dict[TopicPartition, Seek]:
        """The seeks that stand in the assignment node, if there was a plan, and that no consumer can carry out:
        neither the partition's owner nor the consumer that is to close it is registered. Where the nodes may not be
        the newest, no consumer is registered at all."""
        if not self.trusted:
            return {}
        there = registered(self.membership)
        found: dict[TopicPartition, Seek] = {}
        for topic, snapshot in self.snapshots.items():
            assignment, state = snapshot.assignment, snapshot.state
            if assignment is None:
                continue
            closing = by_partition(state.to_close) if state is not None else {}
            for partition, seek in self.seeks(topic).items():
                unknown = state is None or topic in self.ahead
                holders = there if unknown else {assignment.owners.get(partition), closing.get(partition)}
                written = state is None or assignment.seeks.get(partition) == seek
                if written and holders.isdisjoint(there):
                    found[topic, partition] = seek
        return found

    def reasons(self) -> dict[str, dict[int, str]]:
        """Say why partitions move, by topic, for those that move because of an override."""
        found: dict[str, dict[int, str]] = {}
        if self.asked:
            for topic, targets in self.plan.owners.items():
                owners = intended_owners(self.snapshots[topic])
                found[topic] = {p: self.asked for p, target in targets.items() if owners.get(p) != target}
        for topic, snapshot in self._overridden():
            targets = self.plan.owners.get(topic, {})
            overridden = self.overrides.reasons(topic, intended_owners(snapshot), targets)
            found[topic] = found.get(topic, {}) | overridden
        return found

    def removable(self) -> dict[str, TopicSnapshot]:
        """Return the topics whose nodes may go."""
        return {
            topic: self.snapshots[topic]
            for topic in sorted(self.leaving)
            if topic not in self.ahead and may_be_removed(self.snapshots[topic])
        }

    def states(self) -> dict[str, int]:
        """Count the topics that are in each state."""
        return dict(Counter(str(snapshot.name) for snapshot in self.snapshots.values()))

    def under_way(self) -> dict[str, str]:
        """Return the topics that have something before them whatever the plan says, with what that is."""
        found = {
            topic: f"{snapshot.name} -> ..."
            for topic, snapshot in self.snapshots.items()
            if self._under_way(snapshot)
        }
        leaving = {
            topic: f"{self.snapshots[topic].name} -> closed and removed: {reason}"
            for topic, reason in self.leaving.items()
            if topic not in found
        }
        return found | leaving

    def _under_way(self, snapshot: TopicSnapshot) -> bool:
        if snapshot.state is None:
            return snapshot.assignment is not None and bool(snapshot.partitions)
        return snapshot.state.state is not State.STABLE or snapshot.topic in self.ahead

    def _overridden(self) -> list[tuple[str, TopicSnapshot]]:
        """Return the topics that are planned with a pin, an exclusion or a drain."""
        if self.planning_error:
            return []
        staying = self.snapshots.keys() - self.leaving.keys()
        overridden = staying if self.overrides.drained else self.overrides.topics() & staying
        return [(topic, self.snapshots[topic]) for topic in sorted(overridden)]
