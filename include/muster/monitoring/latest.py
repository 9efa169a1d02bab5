"""One thing that is read again and again: in a thread, one reading at a time, shared by all who ask together."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

from muster.monitoring.reading import Read

log = logging.getLogger(__name__)

FRESH = 2.0
"""Seconds for which a reading is used again: several Prometheus servers, or two paths of one, cost one reading."""


@dataclass
class Latest:
    """The newest reading of `read`, made in `pool`. A reading that hangs is waited for, not started again.

    `good` is what the last reading gave that did not fail, None before it.
    """

    read: Callable[[], Any]
    pool: Executor
    clock: Callable[[], float] = time.monotonic
    good: Any = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _future: Future[Read] | None = field(default=None, init=False)
    _began: float = field(default=0.0, init=False)
    _said: str = field(default="", init=False)

    def begin(self) -> Future[Read]:
        """Begin a reading, unless one is under way or fresh. The result never raises for what the reading raised."""
        with self._lock:
            now = self.clock()
            if self._future is None or (self._future.done() and now - self._began > FRESH):
                self._began = now
                self._future = self.pool.submit(self._run)
            return self._future

    def result(self) -> Read:
        """What the reading that was begun last gave; if it is still under way, that it is late."""
        with self._lock:
            future, began = self._future, self._began
        if future is None or not future.done():
            return Read(None, self.clock() - began, "no answer in time")
        return future.result()

    def _run(self) -> Read:
        began = self.clock()
        try:
            value = self.read()
        except Exception as error:  # whatever it is, the other metrics are available nevertheless
            said = f"{type(error).__name__}: {error}"
            if said != self._said:
                log.warning("a part of the metrics is missing: %s", said)
            self._said = said
            return Read(None, self.clock() - began, said)
        self._said = ""
        self.good = value
        return Read(value, self.clock() - began)
