"""What tests say when they need a program of Debian's: skipped without it, and in CI it is installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devstack.debian import ensure, how_to_install, missing
from devstack.errors import DevstackError


def needed(*programs: str) -> list[Path]:
    """The paths of `programs` (keys of `devstack.debian.PACKAGES`), for a fixture or a test.

    If one is missing the test is skipped, with the reason and the command that installs it. With the variable `CI` in
    the environment it is installed first, and what cannot be installed is the reason.
    """
    if (absent := missing(*programs)) and not os.environ.get("CI"):
        pytest.skip(f"{' and '.join(absent)} not found on the PATH; to run this: {how_to_install(*absent)}")
    try:
        return ensure(*programs)
    except DevstackError as error:
        pytest.skip(str(error))
