"""A local PostgreSQL for Airflow's database, from Debian's package. The stack has one if it is asked for."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from devstack.command import run_to_end
from devstack.debian import PACKAGES, ensure
from devstack.errors import DevstackError
from devstack.secret import kept_password
from devstack.server import Server

_VERSIONS = Path("/usr/lib/postgresql")
"""Debian keeps each version's programs in a folder of its own, which is on no PATH."""
_SERVICE_USER = "postgres"
_USER, _DATABASE = "airflow", "postgres"


class PostgreSQL(Server):
    """One database on 127.0.0.1, with a password that is made up at the first start.

    PostgreSQL refuses to run as root. Started by root it runs as the user of Debian's package, who is let through to
    its folder however closed the ones above it are. Its processes for clients are sessions of their own, which end
    when the first one does; so `pause` stops new connections only.
    """

    name = "PostgreSQL"
    roles: ClassVar[tuple[str, ...]] = ("sql",)

    def url(self, scheme: str) -> str:
        """Return how SQLAlchemy finds the database; `scheme` names its driver (`postgresql+psycopg2`)."""
        return f"{scheme}://{_USER}:{self._password()}@{self.address}/{_DATABASE}"

    def prepare(self) -> None:
        """Make the database if there is none. Raises `DevstackError`."""
        if (self._files / "PG_VERSION").exists():
            return
        shutil.rmtree(self._files, ignore_errors=True)  # what an attempt that was interrupted has left
        self._files.mkdir(mode=0o700)
        self._password()
        if (owner := _other_user()) is not None:
            os.chown(self._files, owner.pw_uid, owner.pw_gid)
        run_to_end(
            [
                *_as_user(),
                _program("initdb"),
                f"--pgdata={self._files}",
                f"--username={_USER}",
                f"--pwfile={self._password_file}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
            ],
            f"PostgreSQL: {self._files} cannot be made",
        )

    def command(self) -> Sequence[str | Path]:
        """Return the command line: PostgreSQL's defaults, but for what follows."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            # Airflow's processes keep connections in pools of their own: API server, scheduler, workers.
            "max_connections": "200",
            # A killed server loses nothing without it, only a machine that loses power does.
            "fsync": "off",
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [*_as_user(), _program("postgres"), "-D", self._files, *options]

    def healthy(self) -> bool:
        """Tell whether it takes connections."""
        answer = subprocess.run(  # noqa: S603  our own command line
            [_program("pg_isready"), "-q", "-t", "2", "-h", "127.0.0.1", "-p", str(self.port)],
            check=False,
        )
        return answer.returncode == 0

    def stop(self) -> None:
        """Have it end at once and in order: at SIGTERM it would wait until all its clients have gone."""
        if not self._ended_at(signal.SIGINT):
            super().stop()

    @property
    def _files(self) -> Path:
        return self.data_dir / "data"

    @property
    def _password_file(self) -> Path:
        return self.data_dir / "password"

    def _password(self) -> str:
        return kept_password(self._password_file)


def _other_user() -> pwd.struct_passwd | None:
    """Tell who it is to run as if not as who we are. Raises `DevstackError` if the package's user is missing."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_SERVICE_USER)
    except KeyError as error:
        raise DevstackError(
            f"PostgreSQL does not run as root, and there is no user '{_SERVICE_USER}'; run this as another user"
        ) from error


def _as_user() -> list[str]:
    """Return what a command line begins with so that it is run as `_other_user`; nothing if that is None."""
    owner = _other_user()
    if owner is None:
        return []
    through = "+dac_override"  # the folders above may be closed to everybody but root
    user = [f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
    return ["setpriv", *user, f"--inh-caps={through}", f"--ambient-caps={through}"]


def _program(name: str) -> Path:
    """Return the path of one of PostgreSQL's programs, of the newest version. Raises `DevstackError`."""
    ensure("pg_lsclusters")
    found = sorted(_VERSIONS.glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    if not found:
        raise DevstackError(
            f"'{name}' is not below {_VERSIONS}; install the package '{PACKAGES['pg_lsclusters']}' again"
        )
    return found[-1]
