"""One thing that is read again and again: in a thread, one reading at a time, shared by all that ask together."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from dataclasses import replace
from typing import Any, Generic, TypeVar

from muster.cluster.reading import EXPECTED, LateError, SourceReading

log = logging.getLogger(__name__)

T = TypeVar("T")

FRESH = 2.0
"""Seconds for which a reading is used again: several that ask at about the same time cost one reading."""


class Latest(Generic[T]):
    """The newest reading of `read`, made in `pool`. A reading that hangs is waited for, not started again."""

    def __init__(
        self,
        name: str,
        read: Callable[[], T],
        pool: Executor,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._read = read
        self._pool = pool
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._newest: SourceReading[T] = SourceReading()
        self._future: Future[SourceReading[T]] | None = None
        self._began = 0.0
        self._submitted = 0.0
        self._expired = False

    @property
    def newest(self) -> SourceReading[T]:
        """What the last reading that ended gave."""
        return self._newest

    def begin(
        self, least: float = FRESH, share: float = 0.0, after: Future[Any] | None = None
    ) -> Future[SourceReading[T]]:
        """Begin a reading, unless one is under way or fresh. The future never raises what reading raised.

        Fresh is one that began at most `least` seconds ago, or `share` times as long as it took (one that failed: at
        most `FRESH` seconds ago). A new one waits for `after`, which was submitted to the same pool before: so the
        pool never holds only threads that wait.
        """
        with self._lock:
            running = self._future if self._future is not None and not self._future.done() else None
            if self._future is None or self._expired or (running is None and not self._fresh(least, share)):
                self._began, self._submitted = self._monotonic(), time.monotonic()
                self._expired = False
                self._future = self._pool.submit(self._run, [each for each in (running, after) if each])
            return self._future

    def wait(self, patience: float | None = None) -> None:
        """Wait for the reading under way, until at most `patience` seconds after its beginning."""
        with self._lock:
            future, submitted = self._future, self._submitted
        if future is not None and not future.done():
            wait([future], None if patience is None else max(0.0, submitted + patience - time.monotonic()))

    def result(self, begun: Future[SourceReading[T]]) -> SourceReading[T]:
        """Return what the reading that was `begun` gave; while it is under way, what is known, with a `LateError`."""
        if begun.done():
            return begun.result()
        seconds = self._monotonic() - self._began
        return replace(self._newest, error=LateError("no answer in time"), seconds=seconds)

    def expire(self) -> None:
        """Have the next reading begun from now on, and not share one that is under way: something was changed."""
        with self._lock:
            self._expired = True

    def _fresh(self, least: float, share: float) -> bool:
        failed = self._newest.error is not None
        return self._monotonic() - self._began <= (
            FRESH if failed else max(least, share * self._newest.seconds)
        )

    def _run(self, after: list[Future[Any]]) -> SourceReading[T]:
        wait(after)
        at, began = self._clock(), self._monotonic()
        try:
            value = self._read()
        except Exception as error:  # each source fails by itself, whatever the error is
            self._note(error)
            self._newest = self._newest.fail(error, at, self._monotonic() - began)
        else:
            self._newest = self._newest.succeed(value, at, self._monotonic() - began)
        return self._newest

    def _note(self, error: Exception) -> None:
        """Log an error, once while it lasts."""
        before = self._newest.error
        if before is not None and (type(before), str(before)) == (type(error), str(error)):
            return
        if isinstance(error, EXPECTED):
            log.info("%s cannot be read: %s", self._name, error)
        else:
            log.error("%s cannot be read", self._name, exc_info=error)
