"""Partitions that Kafka, or the reader, does not give: no right to read, no leader, a damaged record, silence.

That is no fault of a record or of the handler: it counts towards no poison. Such a partition is left out of the
batches, so that the others flow, and tried again in a batch of its own every `RETRY` seconds. Partitions that fail
for one reason are tried together. A partition with a damaged record is read up to that, and then parked.

Pure; times are in seconds, of the caller's clock.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from muster.core.model import TopicPartition

RETRY = 10.0
"""Seconds until a partition is tried again."""


class Kind(StrEnum):
    """Why a partition cannot be read, as the connector's `ReadException` names it."""

    RIGHT = "RIGHT"
    CODEC = "CODEC"
    LEADER = "LEADER"
    CORRUPT = "CORRUPT"
    MISSING = "MISSING"
    SILENT = "SILENT"
    KAFKA = "KAFKA"


@dataclass(frozen=True, slots=True)
class ReadFailure:
    """What the connector said: `tp` cannot be read at `offset`, and `why`, with what to do about it."""

    kind: Kind
    tp: TopicPartition
    offset: int
    why: str

    def __str__(self) -> str:
        return f"topic {self.tp[0]!r}, partition {self.tp[1]}: it cannot be read at offset {self.offset}: {self.why}"


_SAID = re.compile(
    rf"ReadException: ({'|'.join(Kind)}): topic '([^']+)', partition (\d+), offset (\d+): ([^\n]*)"
)


def read_failures(text: str) -> list[ReadFailure]:
    """Find in an error's text what the connector's `ReadException` said, once of each partition; empty if it is
    another error."""
    found: dict[TopicPartition, ReadFailure] = {}
    for kind, topic, partition, offset, why in _SAID.findall(text):
        tp = topic, int(partition)
        found.setdefault(tp, ReadFailure(Kind(kind), tp, int(offset), why[:500]))
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Noted:
    failure: ReadFailure
    retry_at: float


class Unread:
    """The partitions of one process that cannot be read."""

    def __init__(self) -> None:
        self._noted: dict[TopicPartition, _Noted] = {}

    @property
    def all(self) -> dict[TopicPartition, ReadFailure]:
        """All of them, with the reasons."""
        return {tp: noted.failure for tp, noted in self._noted.items()}

    def note(self, failures: Mapping[TopicPartition, ReadFailure], now: float) -> None:
        """Leave out partitions."""
        for tp, failure in failures.items():
            self._noted[tp] = _Noted(failure, now + RETRY)

    def forget(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Have partitions read as usual; returns those that were not."""
        return [tp for tp in partitions if self._noted.pop(tp, None) is not None]

    def due(self, ready: Collection[TopicPartition], now: float) -> set[TopicPartition]:
        """Return those of `ready` that are to be tried now, all for one reason; none until then."""
        due = {tp: noted for tp, noted in self._noted.items() if tp in ready and noted.retry_at <= now}
        if not due:
            return set()
        first = min(due.values(), key=lambda noted: noted.retry_at).failure
        chosen = {tp for tp, noted in due.items() if _reason(noted.failure) == _reason(first)}
        for tp in chosen:
            self._noted[tp] = _Noted(due[tp].failure, now + RETRY)
        return chosen


def _reason(failure: ReadFailure) -> tuple[Kind, str]:
    return failure.kind, failure.why
