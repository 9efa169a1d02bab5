"""What one step of a topic is computed from, and what it changes; `muster.core.state_machine` has the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from muster.core.model import (
    Consumer,
    ConsumerStatus,
    Move,
    Owners,
    PartitionStandbys,
    State,
    TopicAssignment,
    TopicSnapshot,
    TopicState,
    by_partition,
)
from muster.core.patience import Patience


@dataclass(frozen=True)
class Inputs:
    """What one step is computed from, and the quantities that follow from it alone. Nothing here changes."""

    snapshot: TopicSnapshot
    before: TopicAssignment
    patience: Patience
    targets: Owners
    now: float
    standbys: PartitionStandbys
    """Those that the plan wants."""
    reasons: Mapping[int, str]
    leaving: str
    warm_ups: Owners

    @property
    def topic(self) -> str:
        return self.snapshot.topic

    @property
    def state(self) -> TopicState | None:
        """The state node; None without one."""
        return self.snapshot.state

    @property
    def at_rest(self) -> bool:
        """Whether a step would find nothing, known without going through the partitions one by one.

        That is so when the topic is Stable, all partitions are with the live owners that the plan wants, and there
        are no absences, no standbys and no answer about it: nearly all topics of a large cluster at any time.
        """
        state, before = self.state, self.before
        owners = set(before.owners.values())
        return (
            not self.leaving
            and state is not None
            and state.state is State.STABLE
            and not (state.to_start or state.to_close or state.missing or before.standbys or self.standbys)
            and before.warm_ups == self.warm_ups
            and self.ahead is None
            and before.owners == self.targets
            and before.owners.keys() == self.snapshot.partitions
            and self.live.keys() >= owners
            and not any(map(self.answers, owners))
        )

    @property
    def settled(self) -> bool:
        """Whether the state node says Stable: only then the topic may be balanced."""
        return self.state is not None and self.state.state is State.STABLE

    @property
    def live(self) -> Mapping[str, Consumer]:
        return self.patience.membership.live

    @property
    def statuses(self) -> Mapping[str, ConsumerStatus]:
        return self.patience.replies.statuses

    @cached_property
    def partitions(self) -> frozenset[int]:
        """The partitions that are to have an owner."""
        return frozenset() if self.leaving else self.snapshot.partitions

    @cached_property
    def nodes(self) -> Draft:
        """What the two nodes hold, by partition.

        Where they contradict each other, which no coordinator writes, the assignment node counts, because consumers
        obey it: what it gives to a consumer is to start there, and is not to be closed there.
        """
        owners = dict(self.before.owners)
        to_start = by_partition(self.state.to_start if self.state else {})
        to_close = by_partition(self.state.to_close if self.state else {})
        return Draft(
            owners,
            {p: owners.get(p, consumer) for p, consumer in to_start.items()},
            {p: consumer for p, consumer in to_close.items() if owners.get(p) != consumer},
        )

    @cached_property
    def ahead(self) -> int | None:
        """The highest epoch that is known, if the nodes may not be the newest."""
        return self.patience.ahead(self.snapshot)

    @cached_property
    def away(self) -> Mapping[str, float]:
        """Since when each consumer that the nodes name is away, or has not run again what it owns since it was."""
        known = self.state.missing if self.state else {}
        returned = self.state.returned if self.state else {}
        nodes = self.nodes
        named = {*nodes.owners.values(), *nodes.to_start.values(), *nodes.to_close.values()}
        named.update(chain.from_iterable(self.before.standbys.values()), self.before.warm_ups.values())
        return {
            # A time that a clock ahead of this one has written counts as now.
            consumer: min(known[consumer], self.now)
            if consumer in known
            else self.patience.began(consumer, returned.get(consumer), self.now)
            for consumer in sorted(named)
            if (
                (consumer in known and not self._runs_all(consumer))
                if consumer in self.live
                else self.patience.release(consumer) > 0
            )
        }

    @cached_property
    def held_for(self) -> frozenset[str]:
        """The consumers that are away and keep what they own."""
        return frozenset(
            consumer
            for consumer, since in self.away.items()
            if consumer not in self.live and self.now - since < self.patience.hold(consumer)
        )

    def gone(self, consumer: str) -> bool:
        """Tell whether a consumer is away and not held for."""
        return consumer not in self.live and consumer not in self.held_for

    def released(self, consumer: str) -> bool:
        """Tell whether what was taken from a consumer counts as closed without its report."""
        since = self.away.get(consumer, self.now)
        return consumer not in self.live and self.now - since >= self.patience.release(consumer)

    def answers(self, consumer: str) -> tuple[ConsumerStatus, ...]:
        """Return what all incarnations of a consumer answered, the registered one first."""
        return self.patience.replies.answers(consumer, self.topic)

    def knows_epoch(self, answer: ConsumerStatus | None) -> bool:
        """Tell whether there is an answer, given in knowledge of the assignment node's epoch."""
        return answer is not None and answer.has_seen(self.topic, self.before.epoch)

    def running(self, consumer: str) -> frozenset[int]:
        """Return the partitions that a consumer reports as running, in knowledge of the epoch."""
        answer = self.statuses.get(consumer)
        if answer is None or not self.knows_epoch(answer):
            return frozenset()
        return answer.on(self.topic).running

    def _runs_all(self, consumer: str) -> bool:
        return self.running(consumer) >= {p for p, owner in self.before.owners.items() if owner == consumer}

    def reports_closed(self, consumer: str, partition: int) -> bool:
        """Tell whether every incarnation that answered knows the epoch and reports the partition closed; False
        without answers, or without that of a live consumer."""
        if consumer in self.live and consumer not in self.statuses:
            return False
        answers = self.answers(consumer)
        return bool(answers) and all(
            self.knows_epoch(answer) and partition not in answer.on(self.topic).held for answer in answers
        )

    def live_target(self, partition: int) -> str | None:
        """Return the owner that the plan wants, if it is live."""
        target = self.targets.get(partition)
        return target if target in self.live else None

    def leaves_to_other(self, consumer: str, partition: int) -> bool:
        """Tell whether a live consumer is about to leave, and the plan wants another one for a partition."""
        leaves = consumer in self.live and self.live[consumer].leaving
        return leaves and self.live_target(partition) not in {None, consumer}

    def why_gone(self, consumer: str) -> str:
        """Say why a consumer is away, for people."""
        membership = self.patience.membership
        if consumer not in membership.isolated:
            return f"consumer {consumer} left"
        by = membership.isolated_by.get(consumer)
        return f"consumer {consumer} was isolated" + (f" by {by}" if by else "")


@dataclass
class Draft:
    """What the two nodes are to hold, by partition, and why; the only thing that a step changes."""

    owners: dict[int, str]
    to_start: dict[int, str]
    to_close: dict[int, str]
    from_reports: bool = False
    """It began with what consumers report, not with the nodes."""
    moves: list[Move] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Reasons of the step that are not those of a move."""

    def copy(self) -> Draft:
        """Return a draft of the same nodes, without moves and notes."""
        return Draft(dict(self.owners), dict(self.to_start), dict(self.to_close))

    def holder(self, partition: int) -> str | None:
        """Return the consumer that is to start a partition, else its owner; None if there is neither."""
        return self.to_start.get(partition) or self.owners.get(partition)

    def take_away(self, partition: int) -> None:
        """Take a partition from its owner, which has to close it."""
        self.to_close[partition] = self.owners.pop(partition)

    def assign(self, partition: int, consumer: str) -> None:
        """Make a consumer the next owner: at once, unless another one has to close the partition first."""
        self.to_start[partition] = consumer
        if partition not in self.to_close:
            self.owners[partition] = consumer
