"""What fails in state by key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from muster.core.model import TopicPartition


class StateError(ValueError):
    """The handler uses state in a way that cannot work; the message names what, and what to write instead."""


class LargeBatchError(Exception):
    """A batch changes more bytes of state than it may: it is planned again, with fewer records."""


class StateStoreError(RuntimeError):
    """The local store, or what brings it to its position, failed, which is no fault of a record."""


class StoreInUseError(StateStoreError):
    """This process has the store open already, so it is neither opened again nor emptied."""


class TimerFailedError(RuntimeError):
    """The processor raised in the timer of a key: `FailedTimer`, as text."""


@dataclass(frozen=True, slots=True)
class FailedTimer:
    """A timer of the shard `tp` in which the processor raised: its `moment`, in milliseconds, and the `digest` of its
    key; `why` says it for people."""

    tp: TopicPartition
    moment: int
    digest: str
    why: str

    def __str__(self) -> str:
        return f"topic {self.tp[0]!r}, partition {self.tp[1]}, timer {self.moment}/{self.digest}: {self.why}"


_FAILED_TIMER = re.compile(
    r"TimerFailedError: topic '([^']+)', partition (\d+), timer (\d+)/([0-9a-f]+): ([^\n]*)"
)


def failed_timer(text: str) -> FailedTimer | None:
    """Find in an error's text what a `TimerFailedError` said; None if it is another error."""
    found = _FAILED_TIMER.search(text)
    if found is None:
        return None
    topic, partition, moment, digest, why = found.groups()
    return FailedTimer((topic, int(partition)), int(moment), digest, why[:500])


class NoState:
    """Stands for `batch.state` where no topic has state."""

    def __getattr__(self, name: str) -> NoReturn:
        """Say what is missing."""
        raise StateError(
            "no topic of this cluster has state; name those that have it in 'state' of the cluster's consumers, as "
            "regular expressions of whole topic names"
        )
