"""Asks consumers for the stores of shards that they have, where a plan depends on it (`muster.core.warming`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from muster.coordinator.asking import Process, StatusPoller
from muster.coordinator.planning_context import LONGEST_ASKING
from muster.core.copies import Copies
from muster.core.model import Consumer, ConsumerStatus
from muster.core.overrides import Overrides
from muster.core.planner import Proposal
from muster.core.warming import OPEN, Gate
from muster.settings.cluster_settings import ClusterSettings

COPIES_LAST = 1.0
"""Seconds for which what consumers reported is used again."""
SILENCE_LASTS = 10.0
"""Seconds for which a process that did not answer is not asked again: a frozen one would hold up every look."""


class GateReader:
    """Reads what the gate of `cluster` goes by. `clock` is in seconds since the epoch."""

    def __init__(self, cluster: ClusterSettings, poll: StatusPoller, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._poll = poll
        self._clock = clock
        self._known: dict[str, tuple[float, Copies | None]] = {}
        self._silent: dict[Process, float] = {}

    def read(self, proposal: Proposal, live: Mapping[str, Consumer], overrides: Overrides) -> Gate:
        """Return the gate that a plan goes through now."""
        if not self._cluster.consumers.state:
            return OPEN
        self._ask(live[consumer] for consumer in sorted(proposal.concerned()))
        return Gate(
            most=self._cluster.max_warm_ups,
            timeout=self._cluster.warm_up_timeout,
            now=self._clock(),
            asked_at=overrides.moved_at,
            copies={consumer: copies for consumer, (_, copies) in self._known.items()},
        )

    def _ask(self, concerned: Iterable[Consumer]) -> None:
        """Ask consumers, unless they have answered, or were asked in vain, a short while ago."""
        now = self._clock()
        self._known = {c: known for c, known in self._known.items() if 0 <= now - known[0] < COPIES_LAST}
        self._silent = {c: at for c, at in self._silent.items() if 0 <= now - at < SILENCE_LASTS}
        asked = [
            one
            for one in concerned
            if one.id not in self._known and (one.id, one.incarnation) not in self._silent
        ]
        if not asked:
            return
        answers = self._poll(asked, min(self._cluster.status_timeout, LONGEST_ASKING))
        now = self._clock()  # the poll itself may take as long as an answer lasts
        for one in asked:
            answer = answers.get(one.id)
            if isinstance(answer, ConsumerStatus):
                self._known[one.id] = now, answer.copies
            else:
                self._silent[one.id, one.incarnation] = now
