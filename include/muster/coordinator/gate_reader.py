"""Asks consumers for the stores of shards that they have, where a plan depends on it (`muster.core.warming`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from muster.coordinator.asking import StatusPoller
from muster.core.copies import Copies
from muster.core.model import Consumer, ConsumerStatus
from muster.core.overrides import Overrides
from muster.core.planner import Proposal
from muster.core.warming import OPEN, Gate
from muster.settings.cluster_settings import ClusterSettings

COPIES_LAST = 1.0
"""Seconds for which what consumers reported is used again."""
LONGEST_ASKING = 1.0
"""Seconds that consumers have to report: a frozen one must not hold up what has to be planned now."""


class GateReader:
    """Reads what the gate of `cluster` goes by. `clock` is in seconds since the epoch."""

    def __init__(self, cluster: ClusterSettings, poll: StatusPoller, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._poll = poll
        self._clock = clock
        self._known: dict[str, tuple[float, Copies | None]] = {}

    def read(self, proposal: Proposal, live: Mapping[str, Consumer], overrides: Overrides) -> Gate:
        """Return the gate that a plan goes through now."""
        if not self._cluster.consumers.state:
            return OPEN
        now = self._clock()
        concerned = proposal.concerned()
        self._known = {c: known for c, known in self._known.items() if 0 <= now - known[0] < COPIES_LAST}
        asked = [live[consumer] for consumer in sorted(concerned - self._known.keys())]
        timeout = min(self._cluster.status_timeout, LONGEST_ASKING)
        answers = self._poll(asked, timeout) if asked else {}
        for consumer, answer in answers.items():
            if isinstance(answer, ConsumerStatus):
                self._known[consumer] = now, answer.copies
        return Gate(
            most=self._cluster.max_warm_ups,
            timeout=self._cluster.warm_up_timeout,
            now=now,
            asked_at=overrides.moved_at,
            copies={consumer: copies for consumer, (_, copies) in self._known.items()},
        )
