"""Finds every process that belongs to a local stack, whatever its parent is by now.

Each server is started with `MUSTER_DEVSTACK` in its environment, which all that it starts inherits: tasks, Spark's
JVMs, Python workers. So nothing needs to be remembered to find them, not even a state file.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil

from muster.settings.consumer import VARIABLE as CONSUMER

MARKER = "MUSTER_DEVSTACK"
"""Environment variable with the folder of the stack that a process belongs to."""


def processes_of(folder: Path, consumers_only: bool = False) -> list[psutil.Process]:
    """Find the living processes of the stack in `folder`; with `consumers_only` those of consumer jobs."""
    found = []
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        if process.pid in own:
            continue
        try:
            environment = process.environ()
            belongs = environment.get(MARKER) == str(folder)
            belongs = belongs and (CONSUMER in environment or not consumers_only)
            if belongs and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue  # ended meanwhile, or of another user
    return found


def end_consumers(folder: Path, grace: float) -> tuple[int, int]:
    """Let the stack's consumer jobs close their partitions and end, by SIGTERM and up to `grace` seconds.

    All processes of a job get the signal; only its driver heeds it. What is left then is killed. Returns how many
    jobs there were, and how many of them had to be killed.
    """
    there = processes_of(folder, consumers_only=True)
    jobs = {_session(process) for process in there} - {None}
    _signal(there, signal.SIGTERM)
    late = _wait(folder, grace, consumers_only=True)
    killed = {_session(process) for process in late}
    _signal(late, signal.SIGKILL)
    return len(jobs), len(killed & jobs)


def kill_consumer(folder: Path, pid: int) -> None:
    """Kill all processes of the stack's consumer job that has the process `pid`: its JVM, driver and workers."""
    session = os.getsid(pid)
    _signal([p for p in processes_of(folder, consumers_only=True) if _session(p) == session], signal.SIGKILL)


def end_all(folder: Path, grace: float = 5.0) -> int:
    """End whatever is left of the stack, by SIGTERM, then SIGKILL. Returns how many processes that were."""
    there = processes_of(folder)
    _signal(there, signal.SIGTERM)
    late = _wait(folder, grace) if there else []
    while late:
        _signal(late, signal.SIGKILL)
        late = _wait(folder, 1.0)
    return len(there)


def _session(process: psutil.Process) -> int | None:
    """Return the session of a process, which all processes of a consumer job share; None if it has ended."""
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return None


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def _wait(folder: Path, timeout: float, consumers_only: bool = False) -> list[psutil.Process]:
    deadline = time.monotonic() + timeout
    while (left := processes_of(folder, consumers_only)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left
