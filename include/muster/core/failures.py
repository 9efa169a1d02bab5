"""The records that a handler has failed with, or rejected, within the last hour: what a standing answer would have
been about. Pure; times are in seconds since the epoch."""

from __future__ import annotations

from muster.core.model import PastFailure, TopicPartition
from muster.core.turns import HOUR

MOST = 1_000
"""Records that are kept."""
LONGEST_ERROR = 300
"""Characters of an error that are kept."""


class Failures:
    """Those of one process; each record once, with its last error."""

    def __init__(self) -> None:
        self._found: dict[tuple[TopicPartition, int], PastFailure] = {}

    def note(self, tp: TopicPartition, offset: int, error: str, now: float) -> None:
        """Note that the record failed alone, or was rejected."""
        self._found.pop((tp, offset), None)
        self._found[tp, offset] = PastFailure(tp[1], offset, error[:LONGEST_ERROR], now)
        if len(self._found) > MOST:
            del self._found[next(iter(self._found))]

    def of(self, topic: str, now: float) -> tuple[PastFailure, ...]:
        """Return those of a topic within the last hour, the oldest first."""
        found = self._found.items()
        return tuple(one for (tp, _), one in found if tp[0] == topic and now - one.at <= HOUR)
