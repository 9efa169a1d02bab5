"""Processes of consumer jobs on this machine: whether one still runs, and how to end one.

A process is known by host, pid and start time, so that a pid that was given to another process since is never
taken for it.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

import psutil

START_TOLERANCE = 2.0
"""Seconds by which two readings of one process's start time may differ (the boot time they are based on moves
when the clock is set)."""


class Life(StrEnum):
    """Whether a process runs. `UNKNOWN` is a process on another machine, or in a cluster."""

    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


def this_host() -> str:
    """Return the name under which this machine stands in submissions and in Consul's metadata."""
    return socket.gethostname()


@dataclass(frozen=True)
class ProcessRef:
    """One process. `started` is in seconds since the epoch."""

    host: str
    pid: int
    started: float

    @classmethod
    def of(cls, host: str, pid: int) -> ProcessRef | None:
        """Return the process `pid` as it is now; None if it is on another machine or not there."""
        if host != this_host():
            return None
        try:
            return cls(host, pid, psutil.Process(pid).create_time())
        except psutil.Error:
            return None

    def life(self) -> Life:
        """Tell whether it still runs. A zombie has ended: it only waits for its parent to take notice."""
        if self.host != this_host():
            return Life.UNKNOWN
        return Life.ENDED if self._process() is None else Life.RUNNING

    def ask_drivers(self) -> None:
        """Send SIGTERM to the Python processes that this `spark-submit` started: they close, commit and exit.

        The JVM in between ignores SIGTERM (see `muster.airflow.submission`).
        """
        for process in self._members():
            with suppress(psutil.Error):
                if process.pid != self.pid and "python" in process.name():
                    process.terminate()

    def ask(self) -> None:
        """Send SIGTERM to this very process."""
        if (process := self._process()) is not None:
            with suppress(psutil.Error):
                process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to its session's process group if it leads one, else to it and all that it started."""
        if (process := self._process()) is None:
            return
        members = self._members()
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, signal.SIGKILL)
        for member in members:
            with suppress(psutil.Error):
                member.kill()

    def _process(self) -> psutil.Process | None:
        if self.host != this_host():
            return None
        try:
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.started) > START_TOLERANCE:
                return None
            return None if process.status() == psutil.STATUS_ZOMBIE else process
        except psutil.Error:
            return None

    def _members(self) -> Iterable[psutil.Process]:
        process = self._process()
        if process is None:
            return []
        with suppress(psutil.Error):
            return [process, *process.children(recursive=True)]
        return [process]
