"""A local Redis, from Debian's package: the queue between Airflow's scheduler and its Celery workers."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from devstack.debian import ensure
from devstack.secret import kept_password, write_secret
from devstack.server import Server


class Redis(Server):
    """Redis on 127.0.0.1, with a password that is made up at the first start. What is queued survives a restart."""

    name = "Redis"
    roles: ClassVar[tuple[str, ...]] = ("redis",)

    @property
    def url(self) -> str:
        """How Celery finds it."""
        return f"redis://:{self._password()}@{self.address}/0"

    def prepare(self) -> None:
        """Write `redis.conf`, which only its owner can read."""
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.data_dir),
            "requirepass": self._password(),
            "appendonly": "yes",
            "save": '""',
            # A title would be written over the environment, by which the processes of a stack are found.
            "set-proc-title": "no",
        }
        write_secret(self._settings, "".join(f"{key} {value}\n" for key, value in settings.items()))

    def command(self) -> Sequence[str | Path]:
        """Return the command line: Debian's program, with our settings only."""
        return [*ensure("redis-server"), self._settings]

    def healthy(self) -> bool:
        """Tell whether it answers."""
        return self._ask("PING") == "+PONG"

    def listeners(self) -> int:
        """Count the Celery workers that hear what is said to all of them, as they do once they take tasks on."""
        answer = self._ask("PUBSUB NUMPAT")
        return int(answer[1:]) if answer.startswith(":") else 0

    def _ask(self, command: str) -> str:
        """Return the first line of the answer to `command`, '' if there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.settimeout(2)
                connection.sendall(f"AUTH {self._password()}\r\n{command}\r\nQUIT\r\n".encode())
                answer = b""
                while part := connection.recv(4096):
                    answer += part
        except OSError:
            return ""
        lines = answer.decode().split("\r\n")
        return lines[1] if len(lines) > 1 else ""

    @property
    def _settings(self) -> Path:
        return self.data_dir / "redis.conf"

    def _password(self) -> str:
        return kept_password(self.data_dir / "password")
