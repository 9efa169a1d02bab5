"""What all threads of a consumer share: its ownership behind one lock, problems, counters and clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from muster.consumer.measures import Counters
from muster.consumer.problems import Problems
from muster.core.ownership import Ownership

_T = TypeVar("_T")


class Shared:
    """An ownership that threads read, change, and wait for changes of. The lock guards `counters`, too, and
    `after_change` is called under it. `clock` is monotonic, in seconds."""

    def __init__(self, own: Ownership, clock: Callable[[], float]) -> None:
        self._own = own
        self._changed = threading.Condition()
        self.clock = clock
        self.problems = Problems(clock)
        self.counters = Counters()
        self.after_change: list[Callable[[Ownership], None]] = []

    @contextmanager
    def locked(self) -> Iterator[Ownership]:
        """Give the ownership to read, or to change in a way that no thread waits for."""
        with self._changed:
            yield self._own

    @contextmanager
    def change(self) -> Iterator[Ownership]:
        """Give the ownership to change, and wake threads that wait for a change of it afterwards."""
        with self._changed:
            try:
                yield self._own
            finally:
                self.follow()
                self._changed.notify_all()

    def follow(self) -> None:
        """Do what follows from a change, or from time. Under the lock."""
        for follow in self.after_change:
            follow(self._own)

    def wait_for(self, test: Callable[[Ownership], _T], timeout: float | None) -> _T:
        """Wait up to `timeout` seconds (None: without a bound) until `test` finds something; return what it finds."""
        with self._changed:
            return self._changed.wait_for(lambda: test(self._own), timeout)
