"""How long partitions stand still between two batches, by what their consumers' status pages say."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Self

import httpx

LOOK = 0.1
"""Seconds between two looks at the status pages."""


class Gaps:
    """The longest time, in seconds, from one move of a partition's position to its next one, or until now. Pure."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.moves: Counter[int] = Counter()
        self._last: dict[int, tuple[int, float]] = {}

    def see(self, positions: Mapping[int, int], now: float) -> None:
        """Take note of the positions at `now`, seconds of any clock."""
        for partition, position in positions.items():
            before, moved = self._last.setdefault(partition, (position, now))
            self.longest = max(self.longest, now - moved)
            if position > before:
                self._last[partition] = position, now
                self.moves[partition] += 1

    def moved(self, partitions: Collection[int], times: int) -> bool:
        """Tell whether each of `partitions` has moved so many times."""
        return all(self.moves[partition] >= times for partition in partitions)


class GapWatch:
    """Watches the `partitions` of a topic on the status `pages` in a thread of its own; a context manager."""

    def __init__(self, pages: Collection[str], topic: str, partitions: Collection[int]) -> None:
        self.gaps = Gaps()
        self._pages = tuple(pages)
        self._topic = topic
        self._partitions = frozenset(partitions)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gap-watch", daemon=True)

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Watch no more."""
        self._stopped.set()
        self._thread.join(30)

    def _run(self) -> None:
        with httpx.Client(timeout=5, trust_env=False) as client:
            while not self._stopped.wait(LOOK):
                for page in self._pages:
                    try:
                        topics = client.get(page, params={"topic": self._topic}).json()["topics"]
                    except (httpx.HTTPError, ValueError, KeyError):
                        continue  # the gap goes on meanwhile
                    self.gaps.see(self._positions(topics), time.monotonic())

    def _positions(
        self, topics: Mapping[str, Mapping[str, Mapping[str, Mapping[str, int]]]]
    ) -> dict[int, int]:
        held = topics.get(self._topic, {}).get("offsets", {})
        found = {int(partition): each.get("position") for partition, each in held.items()}
        return {p: at for p, at in found.items() if at is not None and p in self._partitions}
