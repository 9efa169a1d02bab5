"""The newest state of each cluster, shared by all that look: one reading at a time, however many ask.

A state is used again for its `ttl`, which grows with what reading costs, so that looking at a large cluster takes
a bounded share of the machine. A request for an old one starts a new reading and waits for it a moment; if it takes
longer (a server that does not answer), the old one is given, which says how old it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

from muster.cluster.latest import Latest
from muster.cluster.reader import Reader
from muster.cluster.reading import SourceName
from muster.cluster.sources import Sources
from muster.cluster.state import ClusterState
from muster.settings.cluster_settings import ClusterSettings

SHORTEST = 2.0
"""Seconds for which a state is used again."""
SHARE = 4.0
"""And at least so many times as long as it took."""
PATIENCE = 1.5
"""Seconds from a reading's beginning that a request waits for it when there is an old one. Not longer: it holds one
of the API server's threads, and there are only so many for all of Airflow."""
FIRST_PATIENCE = 5.0
"""The same for the very first reading."""
IDLE = 300.0
"""Seconds without a request, after which the connections to a cluster's servers are closed."""
AT_ONCE = 64
"""So many sources are read at the same time, and so many states made of them."""


class Watched:
    """One cluster's newest state. Sources are read in `reading`; states are made in `making`, which waits for it."""

    def __init__(
        self,
        settings: ClusterSettings,
        sources: Sources,
        reading: Executor,
        making: Executor,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.sources = sources
        self.reader = Reader(settings, sources, reading, clock, monotonic)
        self.asked = monotonic()
        """When it was asked for last."""
        self._clock = clock
        self._making = making
        self._state: Latest[ClusterState] = Latest(
            f"cluster {settings.name}", self._make, making, clock, monotonic
        )

    @property
    def ttl(self) -> float:
        """Seconds for which the newest state is used again."""
        return round(max(SHORTEST, SHARE * self._state.newest.seconds), 1)

    def begin(self) -> None:
        """Begin a new reading if the newest state is too old, and do not wait for it."""
        self._state.begin(SHORTEST, 1.0 + SHARE)

    def state(self) -> ClusterState | None:
        """Return the newest state; None if there is none in time, because nothing could be read yet."""
        self.begin()
        self._state.wait(PATIENCE if self._state.newest.value is not None else FIRST_PATIENCE)
        newest = self._state.newest
        if newest.value is None and newest.error is not None:
            raise newest.error
        return newest.value

    def expire(self) -> None:
        """Have the next request start a new reading: something was changed."""
        self.reader.expire()
        self._state.expire()

    def close(self) -> None:
        """Close the connections, once a reading under way has ended."""
        self._making.submit(self._close)

    def _make(self) -> ClusterState:
        at = self._clock()
        state = ClusterState(self.settings, self.reader.read(list(SourceName), sparing=True), at)
        state.prepare()
        return state

    def _close(self) -> None:
        self.reader.wait()
        self.sources.close()


class StateCache:
    """All clusters that are looked at. `open_sources` gives the servers of one."""

    def __init__(
        self,
        open_sources: Callable[[ClusterSettings], Sources] = Sources,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open = open_sources
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._watched: dict[str, Watched] = {}
        self._reading = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="muster-read")
        self._making = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="muster-state")

    def watched(self, settings: ClusterSettings) -> Watched:
        """Return what watches one cluster. Changed settings begin afresh; clusters without requests are closed."""
        with self._lock:
            found = self._watched.get(settings.name)
            if found is None or found.settings != settings:
                if found is not None:
                    found.close()
                found = self._watched[settings.name] = Watched(
                    settings,
                    self._open(settings),
                    self._reading,
                    self._making,
                    self._clock,
                    self._monotonic,
                )
            found.asked = now = self._monotonic()
            for name, other in list(self._watched.items()):
                if now - other.asked > IDLE:
                    other.close()
                    del self._watched[name]
            return found

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for watched in self._watched.values():
                watched.close()
            self._watched.clear()
