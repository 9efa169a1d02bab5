"""The command `muster`, given as a person gives it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from typing import Any

from devstack.errors import DevstackError

TIMEOUT = 180.0
"""Seconds that one command may take."""


def muster(*arguments: str) -> Any:
    """Run `muster` with `--json` in this process's environment and return what it prints.

    Raises `DevstackError` with its words if it fails, or does not end within `TIMEOUT`.
    """
    command = [sys.executable, "-m", "muster.cli", *arguments, "--json"]
    try:
        done = subprocess.run(  # noqa: S603  our own command line
            command, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DevstackError(f"'{typed(*arguments)}' did not end within {TIMEOUT:g} s") from error
    if done.returncode != 0:
        raise DevstackError(f"'{typed(*arguments)}' ended with exit code {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def typed(*arguments: str) -> str:
    """Return the command as it is typed in a shell."""
    return shlex.join(["muster", *arguments])
