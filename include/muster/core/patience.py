"""How long a consumer that is away is waited for.

A consumer is away when it is not live: isolated, failing its check, or not registered. What it owns stays its own for
a while (`hold`); what is taken from it then counts as closed after a while (`release`), if it does not say so itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from muster.core.model import ConsumerStatus, Membership, Return, TopicSnapshot

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
    absence is doubted, because more than half of all consumers are away without a sign. `epochs` are those that were
    noted before they were written, by topic.
    """

    statuses: Mapping[str, ConsumerStatus] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    older: Mapping[str, tuple[ConsumerStatus, ...]] = field(default_factory=dict)
    doubted: frozenset[str] = frozenset()
    epochs: Mapping[str, int] = field(default_factory=dict)


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

    @cached_property
    def reported(self) -> frozenset[str]:
        """The topics that an answer of a registered incarnation is about."""
        return frozenset[str]().union(*(status.topics for status in self.replies.statuses.values()))

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


def highest_epochs(answers: Iterable[ConsumerStatus], noted: Mapping[str, int]) -> dict[str, int]:
    """Return the highest epoch of each topic, of those `noted` and those that `answers` report."""
    found = dict(noted)
    for answer in answers:
        for topic, status in answer.topics.items() if answer.epochs else ():
            if status.epoch is not None and status.epoch > found.get(topic, 0):
                found[topic] = status.epoch
    return found
