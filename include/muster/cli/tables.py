"""Tables and lists for people: plain text that survives a pipe, cut where it would go on for pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

_WIDTH = 200
"""Columns where the output does not go to a terminal."""


_STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What steers a terminal, or turns the direction of writing, beside tabs and ends of lines."""


class _PlainConsole(Console):
    """Writes what would steer the terminal as an escape, for it may come from any writer to ZooKeeper or Consul."""

    def render_str(self, text: str, **how: Any) -> Text:
        """Return what rich makes of each text that it is given."""
        return super().render_str(_STEERS.sub(lambda found: ascii(found[0])[1:-1], text), **how)


def console() -> Console:
    """Return where the result of a command goes: stdout as it is at this moment."""
    out = _PlainConsole(markup=False, highlight=False)
    return out if out.is_terminal else _PlainConsole(markup=False, highlight=False, width=_WIDTH)


def table(*columns: str) -> Table:
    """Make an empty table; columns whose name begins with `#` hold numbers."""
    made = Table(box=None, pad_edge=False)
    for column in columns:
        justify: JustifyMethod = "right" if column.startswith("#") else "left"
        made.add_column(column.removeprefix("#"), justify=justify, overflow="fold")
    return made


def cut(out: Console, total: int, limit: int | None) -> None:
    """Say how many rows a table of `total` rows lacks, if it was cut, and end it."""
    if limit is not None and total > limit:
        out.print(f"... and {total - limit} more; --all shows them, --json has them too")
    out.print()


def listed(label: str, lines: Sequence[str], limit: int | None) -> Iterator[str]:
    """Yield the lines, each with its label, and a last one that says how many were left out."""
    yield from (label + line for line in lines[:limit])
    if limit is not None and len(lines) > limit:
        yield f"{label}... and {len(lines) - limit} more; --all shows them"
