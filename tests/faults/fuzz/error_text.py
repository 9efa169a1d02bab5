"""What an error for a person has to have."""

from __future__ import annotations

import re

NEXT_STEP = re.compile(
    r"delete|correct|take|shows|set |check|give|create|look|restart|write|register|put ", re.IGNORECASE
)


def explains(error: str, *things: str) -> None:
    """The error names what it is about, and what to do."""
    for thing in things:
        assert thing in error, f"{thing!r} is not named: {error}"
    assert NEXT_STEP.search(error), f"no next step: {error}"
    assert len(error) < 2_000, f"{len(error)} characters"
