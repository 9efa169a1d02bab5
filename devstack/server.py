"""What all local servers have in common: start until healthy, stop, and the faults that tests need."""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from devstack.errors import DevstackError
from devstack.place import HERE, Place
from devstack.ports import free_port, is_free
from devstack.process import ServerProcess

_ATTEMPTS = 4
_TAIL_LINES = 25


class Server(ABC):
    """A server at `place` with its data in `data_dir`.

    `ports` fixes ports by role (see `roles`); the others are free ones, chosen at the first start and kept for
    all later ones. With `guarded` the server is killed when this Python process ends. `extra_environment` is
    added to this process's own. Times are in seconds: `start_timeout` is for a busy machine on which all start at
    once; a server that ends is noticed at once.
    """

    name: ClassVar[str]
    roles: ClassVar[tuple[str, ...]]
    start_timeout: ClassVar[float] = 300.0
    stop_grace: ClassVar[float] = 20.0

    def __init__(
        self,
        data_dir: Path,
        ports: Mapping[str, int] | None = None,
        guarded: bool = False,
        extra_environment: Mapping[str, str] | None = None,
        place: Place = HERE,
    ) -> None:
        self.place = place
        self.data_dir = data_dir.resolve()
        self.guarded = guarded
        self.process: ServerProcess | None = None
        self.ports: dict[str, int] = {}
        self._fixed = dict(ports or {})
        self.extra_environment = dict(extra_environment or {})
        if unknown := sorted(self._fixed.keys() - set(self.roles)):
            raise ValueError(f"{self.name}: no port {', '.join(unknown)}; there are {', '.join(self.roles)}")

    @property
    def log(self) -> Path:
        """The file with the server's output."""
        return self.data_dir / "server.log"

    @property
    def port(self) -> int:
        """The port that clients use (the first role). Raises DevstackError before the first start."""
        try:
            return self.ports[self.roles[0]]
        except KeyError:
            raise DevstackError(f"{self.name} has no port yet; start it first") from None

    @property
    def address(self) -> str:
        """`host:port`, the host being 127.0.0.1 unless the server is elsewhere."""
        return f"{self.place.address}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the server's process lives; a paused one does."""
        return self.process is not None and self.process.alive()

    @abstractmethod
    def healthy(self) -> bool:
        """Tell whether the server does its work at this moment; answers within about two seconds."""

    @abstractmethod
    def prepare(self) -> None:
        """Write what the server reads at its start; called with `ports` complete."""

    @abstractmethod
    def command(self) -> Sequence[str | Path]:
        """Return the command line; called after `prepare`."""

    def environment(self) -> dict[str, str]:
        """Return the server's environment."""
        return {**os.environ, **self.extra_environment}

    def start(self, timeout: float | None = None) -> None:
        """Start and wait until healthy; nothing to do if it runs and is healthy.

        Raises `DevstackError` with the end of the log if it ends or is not healthy within `timeout`.
        """
        timeout = timeout or self.start_timeout
        if self.running:
            self._wait_healthy(timeout)
            return
        if self.process is not None:
            self.process.kill()  # what a leader that died has left of its session
        self.data_dir.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, _ATTEMPTS + 1):
            chosen_now = self.choose_ports()
            self.prepare()
            self.process = ServerProcess.spawn(
                [*self.place.prefix, *self.command()],
                self.log,
                self.data_dir,
                self.environment(),
                self.guarded,
            )
            try:
                self._wait_healthy(timeout)
            except DevstackError:
                self.process.kill()
                # Between choosing a port and the server taking it, another process may have been quicker.
                stolen = {role for role in chosen_now if not is_free(self.ports[role])}
                if not stolen or attempt == _ATTEMPTS:
                    raise
                for role in stolen:
                    del self.ports[role]
            else:
                return

    def stop(self) -> None:
        """End the server in order, by force if it takes longer than `stop_grace`."""
        if self.process is not None:
            self.process.stop(self.stop_grace)

    def kill(self) -> None:
        """Send SIGKILL, as if the machine had failed."""
        if self.process is not None:
            self.process.kill()

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): connections stay open, and nothing answers. It is frozen on return.

        Raises `DevstackError` if it is not within 10 s.
        """
        if self.process is None:
            return
        self.process.signal(signal.SIGSTOP)
        deadline = time.monotonic() + 10
        while not self.process.stopped():
            if time.monotonic() > deadline:
                raise DevstackError(f"{self.name} did not stop within 10 s of SIGSTOP")
            time.sleep(0.01)

    def resume(self) -> None:
        """Let a paused server go on (SIGCONT)."""
        if self.process is not None:
            self.process.signal(signal.SIGCONT)

    def choose_ports(self) -> set[str]:
        """Complete `ports`; return the roles for which a free port was chosen just now.

        Raises `DevstackError` if a fixed port is in use.
        """
        chosen = set()
        for role in self.roles:
            if role in self.ports:
                continue
            if role in self._fixed:
                port = self._fixed[role]
                if not is_free(port):
                    raise DevstackError(
                        f"{self.name}: port {port} ({role}) is in use; end what listens there, or choose another port"
                    )
                self.ports[role] = port
            else:
                self.ports[role] = free_port()
                chosen.add(role)
        return chosen

    def restore_ports(self, ports: Mapping[str, int]) -> None:
        """Use the ports of an earlier start again; fixed ones win, unless the server still runs."""
        for role, port in ports.items():
            if self.running or role not in self._fixed:
                self.ports[role] = port

    def release_taken_ports(self) -> set[str]:
        """Give up ports that were chosen freely and that another process has by now; returns their roles.

        Only while the server is down. The next start takes free ones instead.
        """
        taken = {role for role, port in self.ports.items() if role not in self._fixed and not is_free(port)}
        for role in taken:
            del self.ports[role]
        return taken

    def restart(self, timeout: float | None = None) -> None:
        """Stop if it runs, and start again on the same ports and data."""
        self.stop()
        self.start(timeout)

    def log_tail(self) -> str:
        """Return the last lines of the log."""
        if not self.log.exists():
            return "(no log)"
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 16_384))
            text = file.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-_TAIL_LINES:])

    def _ended_at(self, number: signal.Signals) -> bool:
        """Send a signal to the first process alone, and say whether the server has ended within `stop_grace`."""
        if self.process is None or not self.running:
            return False
        self.resume()
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)
        return self.process.wait_ended(self.stop_grace)

    @property
    def _where(self) -> str:
        return f"{self.name} at {self.address}" if self.roles else self.name

    def _wait_healthy(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not self.healthy():
            if not self.running:
                raise DevstackError(
                    f"{self.name} ended while starting; its log {self.log} ends:\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise DevstackError(
                    f"{self._where} is not healthy after {timeout:g} s; "
                    f"its log {self.log} ends:\n{self.log_tail()}"
                )
            time.sleep(0.1)
