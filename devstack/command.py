"""Runs a program that has to succeed before a server can start."""

from __future__ import annotations

import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from devstack.errors import DevstackError


def run_to_end(
    command: Sequence[str | Path],
    problem: str,
    *,
    note: Callable[[str], None] | None = None,
    lines: int = 15,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """Run `command` and wait for it, giving `note` each line that it prints.

    Raises `DevstackError` if it fails: the `problem`, and its last `lines`.
    """
    end: deque[str] = deque(maxlen=lines)
    with subprocess.Popen(  # noqa: S603  our own command lines
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            end.append(line.rstrip())
            if note is not None:
                note(line.rstrip())
    if process.returncode != 0:
        raise DevstackError("\n".join([f"{problem}. It said:", *end]))


def maven_note(note: Callable[[str], None]) -> Callable[[str], None]:
    """Make a `note` for Maven in batch mode: which file was downloaded last, how many, and what it does now."""
    downloaded = 0

    def of_line(line: str) -> None:
        nonlocal downloaded
        if "Downloaded from " in line:
            downloaded += 1
            note(f"{downloaded} files downloaded, {line.partition(' (')[0].rpartition('/')[2]}")
        elif line.startswith("[INFO] --- "):
            note(line.removeprefix("[INFO] --- ").partition(" @ ")[0])

    return of_line
