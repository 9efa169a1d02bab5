"""Programs that come as Debian packages: a browser for the page's tests, Prometheus for those of the metrics,
MariaDB and PostgreSQL for those of the sinks, PostgreSQL and Redis for an Airflow that is to run on them,
`ip` for hosts out of namespaces, and `strace`, which kills at a system call.

A program on the PATH is used, wherever it is from. One that is missing can be installed, by root, where there is
`apt-get`. Nothing here is needed to run Muster, so `make fetch` does not ask for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from devstack.cache import locked
from devstack.errors import DevstackError
from devstack.progress import step

PACKAGES = {
    "chromium": "chromium",
    "chromedriver": "chromium-driver",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "pg_lsclusters": "postgresql",
    "redis-server": "redis-server",
    "ip": "iproute2",
    "mariadb-install-db": "mariadb-server",
    "mariadbd": "mariadb-server",
    "strace": "strace",
}
"""Which package has which program, in Debian and what derives from it."""

_LISTS = Path("/var/lib/apt/lists")
_TAIL_LINES = 25
_TIMEOUT = 900.0


def missing(*programs: str) -> list[str]:
    """Return those of `programs` that are not on the PATH."""
    return [program for program in programs if shutil.which(program) is None]


def how_to_install(*programs: str) -> str:
    """Return the command with which a person gets `programs`."""
    return f"sudo apt-get install --no-install-recommends {' '.join(_packages(programs))}"


def ensure(*programs: str, lists: Path = _LISTS) -> list[Path]:
    """Return the paths of `programs`, keys of `PACKAGES`; what is missing is installed if that is possible.

    `lists` is where apt keeps what it knows of packages. Raises `DevstackError` if something is missing and this is
    not root on a system with apt, or if the installation fails, with what apt said.
    """
    if absent := missing(*programs):
        with locked("debian"):
            if absent := missing(*programs):
                _install(absent, lists)
    return [_path(program) for program in programs]


def _path(program: str) -> Path:
    if found := shutil.which(program):
        return Path(found)
    raise DevstackError(
        f"the package '{PACKAGES[program]}' was installed, but '{program}' is not on the PATH; "
        f"look where 'dpkg -L {PACKAGES[program]}' has it, and add that folder to the PATH"
    )


def _packages(programs: Sequence[str]) -> list[str]:
    return sorted({PACKAGES[program] for program in programs})


def _install(programs: Sequence[str], lists: Path) -> None:
    packages = _packages(programs)
    names = " and ".join(f"'{program}'" for program in programs)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise DevstackError(f"{names} not found on the PATH; install it: {how_to_install(*programs)}")
    with step(f"Installing {', '.join(packages)}") as progress:
        if not any(lists.glob("*_Packages*")):
            _apt_get("update")
            _apt_get("install", *packages)
        else:
            try:
                _apt_get("install", *packages)
            except DevstackError:  # the lists may be of versions that the archive no longer has
                _apt_get("update")
                _apt_get("install", *packages)
        progress.result = "installed"


def _apt_get(action: str, *packages: str) -> None:
    command = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=120", action]
    if packages:
        command += ["-y", "--no-install-recommends", *packages]
    try:
        run = subprocess.run(  # noqa: S603  our own command line
            command,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DevstackError(
            f"'{' '.join(command)}' did not end within {_TIMEOUT:g} s; run it by hand"
        ) from error
    if run.returncode != 0:
        end = "\n".join(run.stdout.splitlines()[-_TAIL_LINES:])
        raise DevstackError(
            f"'{' '.join(command)}' failed; run it by hand when its cause is mended. It said:\n{end}"
        )
