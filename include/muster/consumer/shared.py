"""The ownership that all threads of a consumer share, behind one lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from muster.core.ownership import Ownership

_T = TypeVar("_T")


class Shared:
    """An ownership that threads read, change, and wait for changes of. What follows from a change is done by
    `after_change`, under the lock."""

    def __init__(self, own: Ownership) -> None:
        self._own = own
        self._changed = threading.Condition()
        self.after_change: list[Callable[[], None]] = []

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
                for follow in self.after_change:
                    follow()
                self._changed.notify_all()

    def wait_for(self, test: Callable[[Ownership], _T], timeout: float | None) -> _T:
        """Wait up to `timeout` seconds (None: without a bound) until `test` finds something; return what it finds."""
        with self._changed:
            return self._changed.wait_for(lambda: test(self._own), timeout)
