"""Durations as people write them in `clusters.yaml`: `500ms`, `20s`, `5m`, `2h`, `7d`, or a number of seconds."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
LONGEST = 365 * 86_400.0
"""Seconds; what is longer is a slip of the finger, and more than a clock can wait."""
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_duration(value: Any) -> float:
    """Return `value` in seconds. Raises ValueError for anything that is not a duration from 0."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LONGEST:
        return float(value)
    if isinstance(value, str) and (found := _DURATION.fullmatch(value.strip())):
        seconds = float(found[1]) * _SECONDS[found[2]]
        if seconds <= LONGEST:
            return seconds
    raise ValueError(
        "a duration is a number of seconds from 0, or text such as '500ms', '20s', '5m', '2h', '7d', and at most "
        "a year"
    )


Duration = Annotated[float, BeforeValidator(parse_duration)]
"""Seconds."""
