"""A MariaDB of Debian's package, on a socket in a folder."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql

from tests.support.debian_programs import needed

SECONDS = 120


@contextmanager
def running_mariadb(folder: Path) -> Iterator[dict[str, str]]:
    """How pymysql finds an empty database."""
    daemon, install = needed("mariadbd", "mariadb-install-db")
    place = [f"--datadir={folder / 'data'}", "--user=root"]
    made = [str(install), "--no-defaults", *place, "--auth-root-authentication-method=normal"]
    subprocess.run(made, check=True, capture_output=True)
    connect = {"unix_socket": str(folder / "sock"), "user": "root"}
    started = [
        str(daemon),
        "--no-defaults",
        *place,
        f"--socket={connect['unix_socket']}",
        "--skip-networking",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(started, stdout=log, stderr=log) as server:
        try:
            _await(server, connect, folder / "log")
            yield connect | {"database": "muster"}
        finally:
            server.terminate()


def _await(server: subprocess.Popen[bytes], connect: dict[str, str], log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not _answers(connect):
        assert server.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


def _answers(connect: dict[str, str]) -> bool:
    try:
        with pymysql.connect(**connect) as connection:
            connection.cursor().execute("CREATE DATABASE muster")
    except pymysql.OperationalError:
        return False
    else:
        return True
