"""Runs a program that has to succeed before a server can start."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from devstack.errors import DevstackError


def run_to_end(
    command: Sequence[str | Path],
    problem: str,
    *,
    lines: int = 15,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """Run `command` and wait for it. Raises `DevstackError` if it fails: the `problem`, and its last `lines`."""
    result = subprocess.run(  # noqa: S603  our own command lines
        command, env=env, cwd=cwd, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        end = "\n".join((result.stdout + result.stderr).splitlines()[-lines:])
        raise DevstackError(f"{problem}. It said:\n{end}")
