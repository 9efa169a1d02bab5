"""Tells what is going on: lines that count the seconds in a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

console = Console(highlight=False, soft_wrap=True)
_PLAIN_INTERVAL = 30.0
"""Seconds between two notes of one step where nothing can be replaced, as in a log of continuous integration."""
_lock = threading.Lock()
_steps = 0
_bar: Progress | None = None


class Step:
    """One thing under way. `note` tells how far it is, `result` is what is said at its end."""

    def __init__(self, name: str, bar: Progress | None) -> None:
        self.name = name
        self.result = "done"
        self._noted = time.monotonic()
        self._bar = bar
        self._task = bar.add_task(escape(name), total=None) if bar else None

    def note(self, text: str) -> None:
        """Show `text` beside the name; in a terminal it replaces the last one, elsewhere it is shown now and then."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=escape(f"{self.name}: {text}"))
        elif time.monotonic() - self._noted > _PLAIN_INTERVAL:
            self._noted = time.monotonic()
            console.print(escape(f"{self.name}: {text}"))

    def close(self) -> None:
        """Take the line away."""
        if self._bar is not None and self._task is not None:
            self._bar.remove_task(self._task)


@contextmanager
def step(name: str) -> Iterator[Step]:
    """Show that `name` is under way, and when it is done its `result` and how long it took.

    Several can be under way at once, in several threads. What fails says so itself, by its exception.
    """
    start = time.monotonic()
    current = Step(name, _open())
    try:
        if not console.is_terminal:
            console.print(escape(f"{name} ..."))
        yield current
    finally:
        current.close()
        _close()
    console.print(escape(f"{name}: {current.result} ({time.monotonic() - start:.1f} s)"))


def say(text: str) -> None:
    """Print one line (or several) of plain text."""
    console.print(escape(text))


def _open() -> Progress | None:
    """Return the one live display that a terminal can have, shared by all steps; None without a terminal."""
    global _steps, _bar  # noqa: PLW0603  there is one terminal
    if not console.is_terminal:
        return None
    with _lock:
        if _bar is None:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            _bar = Progress(*columns, console=console, transient=True)
            _bar.start()
        _steps += 1
        return _bar


def _close() -> None:
    global _steps, _bar  # noqa: PLW0603
    with _lock:
        if _bar is None:
            return
        _steps -= 1
        if _steps == 0:
            _bar.stop()
            _bar = None
