"""When Python may search for reference cycles in a worker that reads: now and then, and not while it reads.

The messages of a chunk come and go by the thousand, and each few hundred of them set the search off, which finds
nothing there. And Spark has its workers search everything after every task, 100,000 objects of the libraries that are
loaded: 60 ms for each task, however small. So what is there when a chunk is made is taken out of sight (frozen), and
shown again once in a while, so that what is in a cycle is found in the end.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY = 60.0
"""Seconds for which a cycle may go unseen."""


class CycleSearch:
    """The search of this process. `clock` is monotonic, in seconds."""

    def __init__(self, every: float = EVERY, clock: Callable[[], float] = time.monotonic) -> None:
        self._every = every
        self._clock = clock
        self._shown = clock()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No search meanwhile; afterwards everything that is there is out of its sight."""
        enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            gc.freeze()
            if enabled:
                gc.enable()

    def task_ended(self) -> None:
        """Show the next search everything, if it has not seen it for `every` seconds."""
        now = self._clock()
        if now - self._shown >= self._every:
            self._shown = now
            gc.unfreeze()
