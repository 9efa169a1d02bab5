"""The agent's threads: each a loop that shows it is alive, and whose death is noticed.

A loop calls `beat` at least every `limit` seconds; one that is later than that is stuck. A loop that ends with
an exception cannot be trusted to come back by itself, so it is reported as a death, and the consumer then closes
what it has and exits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

Beat = Callable[[], None]


class Loop:
    """One named thread that runs `body(beat)` until that returns.

    `limit` is in seconds. `on_death` is called, in the loop's thread, with a sentence when `body` raises.
    """

    def __init__(
        self, name: str, body: Callable[[Beat], None], limit: float, on_death: Callable[[str], None]
    ) -> None:
        self.name = name
        self._body = body
        self._limit = limit
        self._on_death = on_death
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"muster-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self.beat()
        self._thread.start()

    def beat(self) -> None:
        """Show that the loop is alive."""
        self._last = time.monotonic()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def trouble(self) -> str | None:
        """What is wrong with this loop, None if nothing."""
        if not self.alive:
            return f"loop {self.name!r} has ended"
        late = time.monotonic() - self._last
        return f"loop {self.name!r} has been stuck for {late:.0f} s" if late > self._limit else None

    def join(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the thread's end; returns whether it ended."""
        self._thread.join(timeout)
        return not self.alive

    def _run(self) -> None:
        try:
            self._body(self.beat)
        except Exception as error:
            log.exception("loop %r died", self.name)
            self._on_death(f"loop {self.name!r} died of {type(error).__name__}: {error}")
