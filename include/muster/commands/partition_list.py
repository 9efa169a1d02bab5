"""Lists of partitions as people write them: `0-3,7`."""

from __future__ import annotations

import re

from muster.commands.refusal import CommandError

PATTERN = r"^\s*\d{1,10}(\s*-\s*\d{1,10})?(\s*,\s*\d{1,10}(\s*-\s*\d{1,10})?)*\s*$"
"""A list, as a regular expression that forms can check too."""

EXAMPLE = "0-3,7"

MOST = 100_000
"""Partitions in one list; more are a slip of the finger."""


def parse_partitions(text: str) -> frozenset[int]:
    """Read `0-3,7`: numbers and ranges (both ends included) between commas. Raises `CommandError` for anything
    else."""
    if not re.fullmatch(PATTERN, text):
        raise CommandError(f"partitions {text!r}: write numbers and ranges between commas, such as 0-3,7")
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin, end = int(first), int(last or first)
        if end < begin:
            raise CommandError(f"partitions {text!r}: {part.strip()} goes backwards; write {end}-{begin}")
        if len(found) + end - begin >= MOST:
            raise CommandError(f"partitions {text!r}: these are more than {MOST}; name fewer at once")
        found.update(range(begin, end + 1))
    return frozenset(found)
