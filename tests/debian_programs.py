"""What tests say when they need a program of Debian's: skipped on a laptop without it, never in CI."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devstack.debian import ensure, how_to_install, missing


def needed(*programs: str) -> list[Path]:
    """The paths of `programs` (keys of `devstack.debian.PACKAGES`), for a fixture or a test.

    If one is missing the test is skipped, with the reason and the command that installs it. With the variable `CI` in
    the environment it is installed instead, and what cannot be installed fails.
    """
    if os.environ.get("CI"):
        return ensure(*programs)
    if absent := missing(*programs):
        pytest.skip(f"{' and '.join(absent)} not found on the PATH; to run this: {how_to_install(*absent)}")
    return ensure(*programs)
