"""Whether all that stands still in real servers is named by those who look at the cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from muster.cluster.state import ClusterState
from tests.support.fault_world import NOT_YET

LOOK = 2.0
"""Seconds between two looks."""


@dataclass
class Standstills:
    """A thread that watches the partitions of `topic`: `committed`, and where each `ends`.

    One that has not moved for `within` seconds has to be named by the cluster's `state`. A server that is out of
    reach is a name as well.
    """

    topic: str
    committed: Callable[[], Mapping[int, int]]
    ends: Callable[[], Mapping[int, int]]
    state: Callable[[], ClusterState]
    within: float
    unnamed: list[float] = field(default_factory=list)
    """When each was found that had no name."""
    seen: int = 0
    """How many had to be named."""
    _stands: dict[int, tuple[int, float]] = field(default_factory=dict)
    _judged: set[tuple[int, int]] = field(default_factory=set)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, daemon=True, name="test-standstills")
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(60)

    def look(self, now: float) -> None:
        """Look once."""
        committed, ends = self.committed(), self.ends()
        before, self._stands = self._stands, {}
        for partition, end in ends.items():
            at = committed.get(partition, 0)
            if at < end:
                known = before.get(partition)
                self._stands[partition] = known if known is not None and known[0] == at else (at, now)
        due = {p: at for p, (at, since) in self._stands.items() if now - since > self.within}
        new = set(due.items()) - self._judged
        if not new:
            return
        self._judged |= new
        names = self._names()
        for partition, at in sorted(new):
            self.seen += 1
            if names is not None and partition not in names:
                self.unnamed.append(now)
                print(f"partition {partition} has stood at {at} for {self.within:g} s, and nothing names it")

    def _names(self) -> set[int] | None:
        """The partitions that are named; None if it is said what is out of reach."""
        state = self.state()
        reading = state.reading
        if state.blind or any(s.error for s in (reading.zookeeper, reading.consul, reading.progress)):
            return None
        waiting = state.waiting.get(self.topic, [])
        return {p for each in waiting if each.since is not None and each.why for p in each.partitions}

    def _watch(self) -> None:
        while not self._over.wait(LOOK):
            try:
                self.look(time.time())
            except NOT_YET as error:
                print(f"what stands still cannot be seen now: {error}")
