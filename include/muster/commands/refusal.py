"""Why a command is refused, and texts that are too long to be meant."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 1_000
"""Characters of a name, a reason or a list of partitions."""


class CommandError(ValueError):
    """The command cannot be carried out; nothing was written. The message names the reason and the alternatives."""


def brief(what: str, text: str) -> str:
    """Return `text`, given as `what`, or raise `CommandError` if it is longer than `LONGEST`."""
    if len(text) > LONGEST:
        raise CommandError(f"the {what} has {len(text)} characters; {LONGEST} are the most, be brief")
    return text


def listed(names: Iterable[str]) -> str:
    """Return the names in order, `none` if there are none."""
    return ", ".join(sorted(names)) or "none"
