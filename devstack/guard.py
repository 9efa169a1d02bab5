"""Ends servers whose owner died: the tests' servers are gone even when pytest is killed with SIGKILL.

`PR_SET_PDEATHSIG` would not do: it fires when the *thread* that started the server ends, and does not exist
outside Linux. So one small process holds the reading end of a pipe; when the owner ends, however it ends, the
pipe closes, and the guard kills the sessions that are still on its list.

This file runs as a script (`python guard.py`), so it imports nothing of the package.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import psutil

_START_TOLERANCE = 5.0
"""Seconds by which two readings of one start time may differ when the system clock is corrected."""


class Guard:
    """The owner's end. Starts its process with the first session that it is to watch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipe: IO[bytes] | None = None

    def watch(self, pid: int, started: float) -> None:
        """See to it that the session led by `pid`, which started at `started`, does not outlive this process."""
        self._send(f"+ {pid} {started}\n")

    def forget(self, pid: int) -> None:
        """Watch the session led by `pid` no more: it has ended."""
        self._send(f"- {pid} 0\n")

    def watch_marker(self, variable: str, value: str) -> None:
        """See to it that no process with `variable`=`value` in its environment outlives this process."""
        self._send(f"* {variable} {value}\n")

    def undo(self, command: Sequence[str]) -> None:
        """See to it that `command` is run when this process has ended, after all that it started is killed."""
        self._send(f"! {json.dumps(command)} \n")

    def undone(self, command: Sequence[str]) -> None:
        """Take note that `command` need not be run any more."""
        self._send(f"~ {json.dumps(command)} \n")

    def _send(self, line: str) -> None:
        with self._lock:
            if self._pipe is None:
                self._pipe = self._start()
            self._pipe.write(line.encode())
            self._pipe.flush()

    @staticmethod
    def _start() -> IO[bytes]:
        process = subprocess.Popen(  # noqa: S603  our own file
            [sys.executable, "-I", str(Path(__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        if process.stdin is None:
            raise RuntimeError("no pipe to the guard process, although one was asked for")
        return process.stdin


def _kill(pid: int, started: float) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        if abs(psutil.Process(pid).create_time() - started) > _START_TOLERANCE:
            return  # another process has the number by now
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            if os.getsid(process.pid) == pid:
                process.kill()


def _kill_marked(variable: str, value: str) -> None:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(variable) == value:
                process.kill()


def _run(command: str) -> None:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(  # noqa: S603  our owner's own command line
            json.loads(command), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30, check=False
        )


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sessions: dict[int, float] = {}
    markers: set[tuple[str, str]] = set()
    undo: list[str] = []
    for line in sys.stdin:
        sign, given = line.rstrip("\n").split(" ", 1)
        if sign == "!":
            undo.append(given)
            continue
        if sign == "~":
            undo.remove(given)
            continue
        what, rest = given.split(" ", 1)
        if sign == "+":
            sessions[int(what)] = float(rest)
        elif sign == "-":
            sessions.pop(int(what), None)
        else:
            markers.add((what, rest))
    for pid, start in sessions.items():
        _kill(pid, start)
    for variable, value in markers:
        _kill_marked(variable, value)
    for command in reversed(undo):
        _run(command)


guard = Guard()

if __name__ == "__main__":
    _main()
