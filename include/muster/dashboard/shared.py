"""The newest reading of each cluster, shared by everybody who looks: one reading at a time, however many ask.

A reading is used again for its `ttl`, which grows with what reading costs, so that looking at a large cluster takes
a bounded share of the machine. Who asks for an old one starts a new reading and waits for it a moment; if it takes
longer (a server that does not answer), the old one is given, which says how old it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from muster.dashboard.board import Board
from muster.dashboard.collector import Collector
from muster.dashboard.sources import Sources
from muster.settings.clusters import ClusterSettings

SHORTEST = 2.0
"""Seconds for which a reading is used again."""
SHARE = 4.0
"""And at least so many times as long as it took."""
PATIENCE = 1.5
"""Seconds from a reading's beginning that one waits for it when there is an old one. Not longer: whoever waits holds
one of the API server's threads, and there are only so many for all of Airflow."""
FIRST_PATIENCE = 5.0
"""The same for the very first reading."""
IDLE = 300.0
"""Seconds without anybody looking, after which the connections to a cluster's servers are closed."""


class Watched:
    """One cluster's newest reading."""

    def __init__(
        self,
        settings: ClusterSettings,
        sources: Sources,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.sources = sources
        self._collector = Collector(settings, sources, clock, monotonic)
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"muster-dashboard-{settings.name}")
        self._board: Board | None = None
        self._due = float("-inf")
        self._asked = self._monotonic()
        self._ttl = SHORTEST
        self._running: Future[Board] | None = None
        self._began = 0.0

    @property
    def ttl(self) -> float:
        """Seconds for which the newest reading is used again."""
        return round(self._ttl, 1)

    @property
    def idle(self) -> float:
        """Seconds since somebody last looked."""
        return self._monotonic() - self._asked

    def begin(self) -> None:
        """Begin a new reading if the newest is too old, and do not wait for it."""
        with self._lock:
            self._asked = self._monotonic()
            if self._board is not None and self._asked < self._due:
                return
            if self._running is None or self._running.done():
                self._running = self._pool.submit(self._read)
                self._began = time.monotonic()

    def board(self) -> Board | None:
        """The newest reading; None if there is none in time, because nothing could be read yet."""
        self.begin()
        with self._lock:
            running, old = self._running, self._board
            fresh = old is not None and self._asked < self._due
            patience = PATIENCE if old is not None else FIRST_PATIENCE
            left = self._began + patience - time.monotonic()
        if fresh or running is None:
            return old
        wait([running], max(0.0, left))
        return running.result() if running.done() else old

    def expire(self) -> None:
        """Have the next one who looks start a new reading: something was changed."""
        with self._lock:
            self._due = float("-inf")

    def close(self) -> None:
        """Let go of the connections, once a reading under way is through."""
        self._pool.submit(self.sources.close)
        self._pool.shutdown(wait=False)

    def _read(self) -> Board:
        began = self._monotonic()
        board = Board(self._collector.collect())
        board.prepare()
        ended = self._monotonic()
        with self._lock:
            self._board = board
            self._ttl = max(SHORTEST, SHARE * (ended - began))
            self._due = ended + self._ttl
        return board


class Shared:
    """All clusters that somebody looks at. `open_sources` gives the servers of one."""

    def __init__(
        self,
        open_sources: Callable[[ClusterSettings], Sources],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open = open_sources
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._watched: dict[str, Watched] = {}

    def watched(self, settings: ClusterSettings) -> Watched:
        """The newest reading of a cluster. Changed settings begin anew; clusters nobody looks at are let go."""
        with self._lock:
            found = self._watched.get(settings.name)
            if found is None or found.settings != settings:
                if found is not None:
                    found.close()
                found = self._watched[settings.name] = Watched(
                    settings, self._open(settings), self._clock, self._monotonic
                )
            for name, other in list(self._watched.items()):
                if other is not found and other.idle > IDLE:
                    other.close()
                    del self._watched[name]
            return found

    def close(self) -> None:
        """Let go of everything."""
        with self._lock:
            for watched in self._watched.values():
                watched.close()
            self._watched.clear()
