"""What docs/metrics.md says that there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
_CODE = re.compile(r"`([^`]+)`")


class Described(NamedTuple):
    """One row."""

    kind: str
    labels: frozenset[str]


def described(heading: str) -> dict[str, Described]:
    """The metrics in the table under the heading that begins with `heading`, by name."""
    (section,) = (part for part in PAGE.read_text().split("\n## ") if part.startswith(heading))
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    return {
        name: Described(row[1], frozenset(_CODE.findall(row[2])))
        for row in rows
        for name in _CODE.findall(row[0])
    }


def statsd() -> dict[str, tuple[str, str, frozenset[str]]]:
    """Name to the name with the cluster in it, type and tags."""
    (section,) = (part for part in PAGE.read_text().split("\n## ") if part.startswith("The coordinator"))
    found = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            name, by_name, kind, tags, _ = (cell.strip() for cell in line.strip("|").split("|"))
            found[name.strip("`")] = (by_name.strip("`"), kind, frozenset(_CODE.findall(tags)))
    return found
