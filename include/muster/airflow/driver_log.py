"""Reading a driver's log file while it grows, so that it can be followed from the consumer's task.

The driver makes the file empty when it has become large, after a copy to `[FILE].1` (`muster.consumer.output`). What
is shown is bounded: `BURST` bytes at once and `A_DAY` bytes a day, as they stand in Airflow's log. A driver that
writes more is shown in parts, each the newest at its time, and what is passed over is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

CHUNK = 64 * 1024
"""Bytes read at once."""
BURST = 256 * 1024
"""Bytes shown without a pause. A driver writes some 10 kB while it starts."""
A_DAY = 512 * 1024
"""Bytes shown in a day besides."""
PART = 16 * 1024
"""Bytes that must be allowed for a part of more to be shown."""
PER_LINE = 200
"""Bytes that Airflow adds to each line: time, level, source."""
_DAY = 86_400.0


class DriverLog:
    """A log file that another process writes, from byte `position` on. A file that is not there is empty."""

    def __init__(self, path: str, position: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self.position = position
        self._clock = clock
        self._at = clock()
        self._allowed = float(BURST)

    def new_lines(self, final: bool = False) -> list[str]:
        """Return the complete lines written since the last call, as far as they may be shown; with `final` also the
        line that has not ended yet, and the newest `CHUNK` in any case."""
        if not self.path:
            return []
        now = self._clock()
        self._allowed = min(BURST, self._allowed + (now - self._at) * A_DAY / _DAY)
        self._at = now
        try:
            return self._rest_of_the_copy() + self._take(self.path, whole=final, now=final)
        except OSError:
            # The file is on another machine or was pruned; the consumer itself is watched by other means.
            return []

    def tail(self, lines: int = 40) -> str:
        """Return the end of the file, for an error message."""
        if not self.path:
            return ""
        try:
            with Path(self.path).open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(size - CHUNK, 0))
                data = file.read(CHUNK)
        except OSError as error:
            return f"(its log {self.path} cannot be read: {error.strerror})"
        found = data.decode(errors="replace").splitlines()[-lines:]
        return "\n".join(found) if found else "(its log is empty)"

    def end(self) -> str:
        """Return the end of the file with a heading, to add to an error message; '' without a file."""
        tail = self.tail()
        return f"\nThe end of its driver's log, {self.path}:\n{tail}" if tail else ""

    def _rest_of_the_copy(self) -> list[str]:
        """Return what was not shown of the file before it was made empty; nothing if it was not."""
        if Path(self.path).stat().st_size >= self.position:
            return []
        try:
            return self._take(f"{self.path}.1", whole=False, now=True)
        except OSError:
            return []
        finally:
            self.position = 0

    def _take(self, path: str, whole: bool, now: bool) -> list[str]:
        """Take the lines from `position` on, which moves; with `whole` all of the newest `CHUNK`, with `now` also one
        that has not ended, and what may not be shown now is passed over."""
        with Path(path).open("rb") as file:
            start = max(self.position, file.seek(0, 2) - CHUNK)
            file.seek(start)
            data = file.read(CHUNK)
        complete = data if now else data[: data.rfind(b"\n") + 1]
        lines = complete.splitlines(keepends=True)
        first = 0 if whole else self._first_shown(lines)
        if lines and first == len(lines) and not now:
            return []
        passed_over = start - self.position + sum(map(len, lines[:first]))
        self.position = start + len(complete)
        self._allowed -= sum(map(_cost, lines[first:]))
        found = [line.decode(errors="replace").rstrip("\r\n") for line in lines[first:]]
        return (
            [f"... {passed_over} bytes passed over, they are in {path}", *found] if passed_over > 0 else found
        )

    def _first_shown(self, lines: list[bytes]) -> int:
        """Tell from which of these lines on they may be shown now; after the last, to wait until more is allowed."""
        costs = [_cost(line) for line in lines]
        if sum(costs) <= self._allowed:
            return 0
        if self._allowed < PART:
            return len(lines)
        return len(lines) - sum(total <= self._allowed for total in accumulate(reversed(costs)))


def _cost(line: bytes) -> int:
    return len(line) + PER_LINE
