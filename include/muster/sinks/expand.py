"""Options of sinks and handlers that name variables of the environment."""

from __future__ import annotations

import os
import re


def expand(text: str, option: str = "path") -> str:
    """Fill in each `${VAR}` of an option from the environment. Raises ValueError for a variable that is not set."""

    def value(match: re.Match[str]) -> str:
        if found := os.environ.get(match[1]):
            return found
        raise ValueError(f"{option!r} needs the environment variable {match[1]}, which is not set")

    return re.sub(r"\$\{(\w+)\}", value, text)
