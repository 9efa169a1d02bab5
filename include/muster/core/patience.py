"""How long a consumer that is away is waited for.

A consumer is away when it is not live: isolated, failing its check, or not registered. What it owns stays its own for
a while (`hold`); what is taken from it then counts as closed after a while (`release`), if it does not say so itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from muster.core.model import ConsumerStatus, Membership, TopicSnapshot


@dataclass(frozen=True, slots=True)
class Policy:
    """What a cluster's settings say about patience; seconds.

    An owner that is away keeps its partitions for `rebalance_delay`; for `check_grace` at least if it still answers,
    because an agent that restarts reports healthy consumers as failing; for `doubt` at least if more than half of all
    consumers are away without a sign. What was taken from a consumer that still answers is waited for up to
    `closing_timeout` beyond that.
    """

    rebalance_delay: float = 0.0
    closing_timeout: float = 30.0
    check_grace: float = 5.0
    doubt: float = 10.0


@dataclass(frozen=True, slots=True)
class Heard:
    """What is known besides the answers of those that are live: see `Patience` for what follows.

    `older` are the answers of older incarnations, by the id of the consumer. `doubted` are the consumers whose
    absence is doubted, because more than half of all consumers are away without a sign. `epochs` are those that were
    noted before they were written, by topic.
    """

    older: Mapping[str, tuple[ConsumerStatus, ...]] = field(default_factory=dict)
    doubted: frozenset[str] = frozenset()
    epochs: Mapping[str, int] = field(default_factory=dict)


NOTHING_HEARD = Heard()


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a consumer that is away is waited for; seconds since it was first seen away."""

    policy: Policy
    membership: Membership
    statuses: Mapping[str, ConsumerStatus]
    heard: Heard = NOTHING_HEARD

    def hold(self, consumer: str) -> float:
        """For so long it keeps what it owns."""
        if consumer in self.membership.isolated:
            return 0.0
        if consumer in self.statuses:
            return max(self.policy.rebalance_delay, self.policy.check_grace)
        if consumer in self.heard.doubted:
            return max(self.policy.rebalance_delay, self.policy.doubt)
        return self.policy.rebalance_delay

    def release(self, consumer: str) -> float:
        """After so long what was taken from it counts as closed without its report."""
        answers = consumer in self.statuses or consumer in self.heard.older
        return self.hold(consumer) + (self.policy.closing_timeout if answers else 0.0)

    def next_change(self, snapshots: Iterable[TopicSnapshot], now: float) -> float | None:
        """When the first of these times ends after `now`, None if none runs; both in seconds since the epoch."""
        moments = [
            since + limit(consumer)
            for snapshot in snapshots
            if snapshot.state is not None
            for consumer, since in snapshot.state.missing.items()
            if consumer not in self.membership.live
            for limit in (self.hold, self.release)
        ]
        return min((moment for moment in moments if moment > now), default=None)
