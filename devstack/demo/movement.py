"""Waits for as long as anything moves. Reads no server.

Each thing has a name and words without seconds, as `flights-1` that is at `JVM started`. *Movement* is words that a
thing did not have before in this wait: a driver that dies and starts again and again does not move. Seconds are those
of `clock`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

LOOK = 1.0
"""Seconds between two looks at what moves."""


class Movement:
    """What things do, and since when; kept from one wait to the next."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._pause = pause
        self._seen: dict[str, tuple[str, float]] = {}
        self._had: set[tuple[str, str]] = set()
        self._moved = clock()

    @property
    def stands(self) -> float:
        """Seconds for which nothing has moved."""
        return self._clock() - self._moved

    def see(self, doing: Mapping[str, str]) -> None:
        """Take in what each thing does now."""
        now, old = self._clock(), self._seen
        if new := doing.items() - self._had:
            self._moved = now
            self._had |= new
        self._seen = {
            name: (words, old[name][1] if old.get(name, ("",))[0] == words else now)
            for name, words in doing.items()
        }

    def said(self) -> str:
        """Say what each thing does, and for how many seconds."""
        now = self._clock()
        return "; ".join(
            f"{name} {words} ({now - since:.0f} s)" for name, (words, since) in self._seen.items()
        )

    def wait(
        self, what: str, condition: Callable[[], Any], look: Callable[[], str], patience: Callable[[], float]
    ) -> Any:
        """Return the first true value of `condition`. About every second `look` calls `see` and says how
        things stand.

        Raises TimeoutError that names `what` and how things stand if nothing has moved for `patience` seconds.
        """
        self._moved = self._clock()
        self._had.clear()
        looked = float("-inf")
        while not (found := condition()):
            if self._clock() - looked >= LOOK:
                looked = self._clock()
                stands = look()
                if self.stands >= patience():
                    raise TimeoutError(
                        f"nothing has moved for {self.stands:.0f} s, waiting for: {what}; {stands}"
                    )
            self._pause(0.2)
        return found
