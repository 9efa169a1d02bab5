"""Where a sink's path leads: variables filled in, and on a file system."""

from __future__ import annotations

import os
import re
from pathlib import Path

_VARIABLE = re.compile(r"\$\{(\w+)\}")


def expand(path: str) -> str:
    """Fill in each `${VAR}` from the environment. Raises ValueError for a variable that is not set."""
    return _VARIABLE.sub(_value, path)


def local_folder(path: str) -> Path:
    """The absolute path that `path`, with or without `file://`, names. Raises ValueError for another scheme."""
    expanded = expand(path).removeprefix("file://")
    if "://" in expanded:
        raise ValueError(
            f"'path' {path!r} is not on a file system that is mounted here; use a mounted one, or a table format "
            "with commits of its own"
        )
    return Path(expanded).absolute()


def _value(match: re.Match[str]) -> str:
    value = os.environ.get(match[1])
    if not value:
        raise ValueError(f"'path' needs the environment variable {match[1]}, which is not set")
    return value
