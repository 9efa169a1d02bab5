"""Tells what is going on: a line that counts the seconds in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

console = Console(highlight=False, soft_wrap=True)


class Step:
    """One thing under way. `note` tells how far it is."""

    def __init__(self, name: str, bar: Progress | None) -> None:
        self.name = name
        self.result = "done"
        self._bar = bar
        self._task = bar.add_task(escape(name), total=None) if bar else None

    def note(self, text: str) -> None:
        """Show `text` beside the name; only a terminal shows it, where it replaces the last one."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=escape(f"{self.name}: {text}"))


@contextmanager
def step(name: str) -> Iterator[Step]:
    """Show that `name` is under way, and when it is done its `result` and how long it took."""
    start = time.monotonic()
    if console.is_terminal:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            current = Step(name, bar)
            yield current
    else:
        console.print(escape(f"{name} ..."))
        current = Step(name, None)
        yield current
    console.print(escape(f"{name}: {current.result} ({time.monotonic() - start:.1f} s)"))


def say(text: str) -> None:
    """Print one line (or several) of plain text."""
    console.print(escape(text))
