"""How long a consumer that is away is waited for.

A consumer is away when it is not live: isolated, failing its check, or not registered. What it owns stays its own for
a while (`hold`); what is taken from it then counts as closed after a while (`release`), if it does not say so itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from muster.core.epochs import Noted, epoch_ahead, highest_epochs
from muster.core.model import ConsumerStatus, Membership, Return, TopicSnapshot, by_partition

CHECK_GRACE = 5.0
"""Seconds for which an owner that is away and still answers keeps its partitions at least: an agent that restarts
reports healthy consumers as failing."""
DOUBT = 10.0
"""Seconds for which an owner keeps them at least if more than half of all consumers are away without a sign."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a cluster's settings say about patience; seconds.

    An owner that is away keeps its partitions for `rebalance_delay`. What was taken from a consumer that still
    answers is waited for up to `closing_timeout` beyond that.
    """

    rebalance_delay: float = 0.0
    closing_timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class Replies:
    """The result of asking consumers, and what else is known of them.

    `statuses` are the answers of registered incarnations, live or not; `failures` says why others are unavailable.
    `older` are the answers of older incarnations, by the id of the consumer. `doubted` are the consumers whose
    absence is doubted, because more than half of all consumers are away without a sign. `epochs` are those that
    Consul has noted, by topic. `asked` are the topics that a consumer was asked about: an answer says nothing of
    others. One that is not in it was asked about all.
    """

    statuses: Mapping[str, ConsumerStatus] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    older: Mapping[str, tuple[ConsumerStatus, ...]] = field(default_factory=dict)
    doubted: frozenset[str] = frozenset()
    epochs: Mapping[str, Noted] = field(default_factory=dict)
    asked: Mapping[str, Collection[str]] = field(default_factory=dict)

    def answers(self, consumer: str, topic: str) -> tuple[ConsumerStatus, ...]:
        """Return what all processes of a consumer answered about a topic, the registered one first."""
        if topic not in self.asked.get(consumer, (topic,)):
            return ()
        newest, older = self.statuses.get(consumer), self.older.get(consumer, ())
        return older if newest is None else (newest, *older)


@dataclass(frozen=True)
class Patience:
    """How long a consumer that is away is waited for; seconds since it was first seen away."""

    policy: Policy
    membership: Membership
    replies: Replies

    @cached_property
    def highest_epochs(self) -> Mapping[str, int]:
        """The highest epoch of each topic that was noted or is reported."""
        answers = chain(self.replies.statuses.values(), *self.replies.older.values())
        return highest_epochs(answers, self.replies.epochs)

    def ahead(self, snapshot: TopicSnapshot) -> int | None:
        """Return the highest epoch that is known of a topic, if its nodes may not be the newest; else None."""
        return epoch_ahead(snapshot, self.highest_epochs)

    def holders(self, topic: str) -> dict[int, list[str]]:
        """Return the consumers that report a partition as held, by partition."""
        found: dict[int, list[str]] = {}
        for consumer in sorted({*self.replies.statuses, *self.replies.older}):
            answers = self.replies.answers(consumer, topic)
            for partition in frozenset[int]().union(*(answer.on(topic).held for answer in answers)):
                found.setdefault(partition, []).append(consumer)
        return found

    def as_named(self, snapshot: TopicSnapshot) -> bool:
        """Tell whether each partition that is reported as held is so by its owner, or by the consumer that has to
        close it."""
        assignment, state = snapshot.assignment, snapshot.state
        named = {} if state is None else by_partition(state.to_close)
        named |= {} if assignment is None else assignment.owners
        return all(found == [named.get(p)] for p, found in self.holders(snapshot.topic).items())

    def unanswered(self, snapshot: TopicSnapshot) -> frozenset[str]:
        """Return the live consumers that have to say what they hold of a topic before it is written again, and have
        not yet; none if its nodes count. See `muster.core.epochs`."""
        assignment, state = snapshot.assignment, snapshot.state
        ahead, note = self.ahead(snapshot), self.replies.epochs.get(snapshot.topic)
        if assignment is None or (state is not None and ahead is None):
            return frozenset()
        asked = frozenset(self.membership.live)
        pending = note is not None and (note.epoch, note.over) == (ahead, assignment.epoch)
        if note is not None and pending and state is not None and state.epoch == assignment.epoch:
            asked = asked & note.gaining if self.as_named(snapshot) else asked
        statuses = self.replies.statuses
        return frozenset(
            consumer
            for consumer in asked
            if consumer not in statuses or not statuses[consumer].has_seen(snapshot.topic, assignment.epoch)
        )

    def hold(self, consumer: str) -> float:
        """Return for how many seconds it keeps what it owns."""
        if consumer in self.membership.isolated:
            return 0.0
        if consumer in self.replies.statuses:
            return max(self.policy.rebalance_delay, CHECK_GRACE)
        if consumer in self.replies.doubted:
            return max(self.policy.rebalance_delay, DOUBT)
        return self.policy.rebalance_delay

    def counts(self, last: Return, now: float) -> bool:
        """Tell whether a consumer's last return is so recent that absences before and after it count together."""
        return now - last.at < self.policy.rebalance_delay

    def began(self, consumer: str, last: Return | None, now: float) -> float:
        """Tell when an absence that is first seen now counts as begun: earlier by those before the `last` return.

        They shorten `rebalance_delay` and nothing else: not the wait for one that answers, is isolated or is doubted.
        """
        shown = {*self.replies.statuses, *self.replies.doubted, *self.membership.isolated}
        if last is None or consumer in shown or not self.counts(last, now):
            return now
        return now - min(last.absent, self.policy.rebalance_delay)

    def release(self, consumer: str) -> float:
        """Return after how many seconds what was taken from it counts as closed without its report."""
        answers = consumer in self.replies.statuses or consumer in self.replies.older
        return self.hold(consumer) + (self.policy.closing_timeout if answers else 0.0)

    def next_change(self, snapshots: Iterable[TopicSnapshot], now: float) -> float | None:
        """Tell when the first of these times ends after `now`, None if none runs; both in seconds since the epoch."""
        moments = [
            since + limit(consumer)
            for snapshot in snapshots
            if snapshot.state is not None
            for consumer, since in snapshot.state.missing.items()
            if consumer not in self.membership.live
            for limit in (self.hold, self.release)
        ]
        return min((moment for moment in moments if moment > now), default=None)
