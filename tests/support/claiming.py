"""Claims at once what a consumer takes up, as a committer does that reaches Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from muster.consumer.agent import Agent
from muster.core.ownership import Offer, Ownership


def claim(own: Ownership) -> None:
    """Claim what was taken up and is not closing."""
    for claim_epochs in own.unclaimed().values():
        for tp, claim_epoch in claim_epochs.items():
            assert own.begin_claim(tp, claim_epoch)
        own.claimed(claim_epochs)


class ClaimingOwnership(Ownership):
    """An ownership whose partitions are claimed by the time the planner asks."""

    def offer(self) -> Offer:
        claim(self)
        return super().offer()


class ClaimingAgent(Agent):
    """An agent whose partitions are claimed as soon as they are taken up."""

    @contextmanager
    def change(self) -> Iterator[Ownership]:
        with super().change() as own:
            yield own
            claim(own)
