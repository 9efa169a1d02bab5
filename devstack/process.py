"""One server process with all its children, addressed as a session."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from devstack.guard import guard

_START_TOLERANCE = 5.0
_ROTATE_AT = 20_000_000


@dataclass
class ServerProcess:
    """The leader of a session, known by pid and start time, so that a reused pid is never mistaken for it.

    A session rather than a process group, because Airflow's tasks move to process groups of their own; what is
    meant to live longer (a Spark driver) has a session of its own. `started` is in seconds since the epoch.
    """

    pid: int
    started: float
    guarded: bool = False
    _child: subprocess.Popen[bytes] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def spawn(
        cls,
        command: Sequence[str | Path],
        log: Path,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        guarded: bool = False,
    ) -> ServerProcess:
        """Start `command` in a new session, with its output appended to `log`.

        A `guarded` process is killed when this process ends; another one goes on.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size > _ROTATE_AT:
            log.replace(log.with_suffix(log.suffix + ".1"))
        with log.open("ab") as output:
            child = subprocess.Popen(  # noqa: S603  commands are built in this package
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=None if env is None else dict(env),
                start_new_session=True,
            )
        try:
            started = psutil.Process(child.pid).create_time()
        except psutil.NoSuchProcess:  # ended at once; waiting for its health reports it
            started = time.time()
        if guarded:
            guard.watch(child.pid, started)
        return cls(child.pid, started, guarded, child)

    def alive(self) -> bool:
        """Tell whether the leader runs (a stopped one does, a zombie does not)."""
        if self._child is not None and self._child.poll() is not None:
            return False
        try:
            process = psutil.Process(self.pid)
            return (
                abs(process.create_time() - self.started) <= _START_TOLERANCE
                and process.status() != psutil.STATUS_ZOMBIE
            )
        except psutil.NoSuchProcess:
            return False

    def members(self) -> list[psutil.Process]:
        """Return the living processes of the session, its leader among them."""
        if psutil.pid_exists(self.pid) and not self.alive() and not self._zombie():
            return []  # the number belongs to another process, which it can only when the session is empty
        found = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
                continue
        return found

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process of the session; a session that is gone is no error."""
        for process in self.members():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def stopped(self) -> bool:
        """Tell whether every thread of the session has taken note of SIGSTOP; a JVM with many takes a moment."""
        states = set()
        for process in self.members():
            with contextlib.suppress(psutil.NoSuchProcess, OSError):
                for task in Path(f"/proc/{process.pid}/task").iterdir():
                    states.add((task / "stat").read_text().rpartition(")")[2].split()[0])
        return states <= {"T", "t", "Z", "X"}

    def stop(self, grace: float) -> bool:
        """End the session: SIGTERM, up to `grace` seconds, then SIGKILL. Returns whether SIGTERM was enough."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a paused process hears SIGTERM only when it goes on
        if not self.wait_ended(grace):
            self.kill()
            return False
        return True

    def kill_children(self) -> None:
        """Kill all processes of the session but its leader."""
        for process in self.members():
            if process.pid != self.pid:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

    def wait_ended(self, timeout: float) -> bool:
        """Wait until the session has ended; False if it has not within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while self.members():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        self._ended()
        return True

    def kill(self, timeout: float = 10.0) -> None:
        """End the session at once with SIGKILL, and wait until it is gone. Raises TimeoutError if it is not."""
        deadline = time.monotonic() + timeout
        while self.members():
            self.signal(signal.SIGKILL)
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"session {self.pid} does not end on SIGKILL; look at it with 'ps -s {self.pid}'"
                )
            time.sleep(0.02)
        self._ended()

    def _zombie(self) -> bool:
        try:
            return bool(psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    def _ended(self) -> None:
        if self._child is not None:
            self._child.wait()
        if self.guarded:
            guard.forget(self.pid)
