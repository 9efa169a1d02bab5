"""Claims at once what a consumer takes up, and looks at what it closes, as a committer does that reaches Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from muster.consumer.agent import Agent
from muster.core.model import TopicPartition
from muster.core.ownership import Offer, Ownership
from muster.core.positions import Committed

Group = Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, Committed | None]]
"""What a group has committed of partitions."""


def claim(own: Ownership, now: float = 0.0, group: Group | None = None) -> None:
    """Claim at `now`, in seconds, what was taken up and is not closing."""
    for claim_epochs in own.unclaimed().values():
        for tp, claim_epoch in claim_epochs.items():
            assert own.begin_claim(tp, claim_epoch)
        own.claimed(claim_epochs, now, group(claim_epochs) if group else None)


def look(own: Ownership) -> None:
    """Find the group as it was left, for what is closed after that."""
    own.looked_at([tp for partitions in own.last_looks().values() for tp in partitions])


class ClaimingOwnership(Ownership):
    """An ownership whose partitions are claimed by the time the planner asks."""

    def offer(self) -> Offer:
        claim(self)
        return super().offer()


class ClaimingAgent(Agent):
    """An agent whose partitions are claimed as soon as they are taken up, in a group of its own unless it has one."""

    group: Group | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.shared.after_change.insert(0, self._claim)

    def _claim(self, own: Ownership) -> None:
        claim(own, self.clock(), self.group)
        look(own)
