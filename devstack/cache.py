"""Where downloaded and built software is kept: outside the checkout, shared by all checkouts."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devstack.errors import DevstackError


def cache_dir() -> Path:
    """Return `$MUSTER_CACHE`, else `muster` in the user's cache folder. Created if it is not there."""
    if chosen := os.environ.get("MUSTER_CACHE"):
        path = Path(chosen)
    else:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster"
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the cache's lock `name`, so that two processes do not fetch the same thing at once."""
    with (cache_dir() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def tool(name: str, why: str, install: str) -> str:
    """Return the path of the program `name`. Raises `DevstackError` saying what it is for and how to get it."""
    if found := shutil.which(name):
        return found
    raise DevstackError(f"'{name}' is not on the PATH; it is needed {why}. Install {install}.")
