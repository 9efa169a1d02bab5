"""Ends servers whose owner died: the tests' servers are gone even when pytest is killed with SIGKILL.

`PR_SET_PDEATHSIG` would not do: it fires when the *thread* that started the server ends, and does not exist
outside Linux. So one small process holds the reading end of a pipe; when the owner ends, however it ends, the
pipe closes, and the guard kills the process groups that are still on its list.

This file runs as a script (`python guard.py`), so it imports nothing of the package.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import psutil

_START_TOLERANCE = 5.0
"""Seconds by which two readings of one start time may differ when the system clock is corrected."""


class Guard:
    """The owner's end. Starts its process with the first group that it is to watch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipe: IO[bytes] | None = None

    def watch(self, pid: int, started: float) -> None:
        """See to it that the process group led by `pid`, started at `started`, does not outlive this process."""
        self._send(f"+ {pid} {started}\n")

    def forget(self, pid: int) -> None:
        """The process group has ended."""
        self._send(f"- {pid} 0\n")

    def _send(self, line: str) -> None:
        with self._lock:
            if self._pipe is None:
                process = subprocess.Popen(  # noqa: S603  our own file
                    [sys.executable, "-I", str(Path(__file__))],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    cwd="/",
                    start_new_session=True,
                )
                self._pipe = process.stdin
            assert self._pipe is not None  # noqa: S101  stdin=PIPE promises it
            self._pipe.write(line.encode())
            self._pipe.flush()


def _kill(pid: int, started: float) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        if abs(psutil.Process(pid).create_time() - started) > _START_TOLERANCE:
            return  # the number belongs to somebody else by now
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    groups: dict[int, float] = {}
    for line in sys.stdin:
        sign, pid, started = line.split()
        if sign == "+":
            groups[int(pid)] = float(started)
        else:
            groups.pop(int(pid), None)
    for pid, start in groups.items():
        _kill(pid, start)


guard = Guard()

if __name__ == "__main__":
    _main()
