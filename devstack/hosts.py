"""Hosts out of network namespaces: each has an address of its own, and can be cut off from the others.

A bridge on this machine joins them, so this machine reaches each of them, and they reach it (`gateway`). Names and
subnet are chosen at the start, so several networks can be there at once. All of it is gone when this process ends,
however it ends (`devstack.guard`).

`ip` (iproute2) and the right to make namespaces are needed, which root has outside of most containers: `why_not` says
what is missing.
"""

from __future__ import annotations

import os
import random
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from devstack.cache import locked
from devstack.debian import ensure, how_to_install, missing
from devstack.errors import DevstackError
from devstack.guard import guard
from devstack.place import Place

_ATTEMPTS = 20
_SUBNETS = ("10.100", "10.131")


@dataclass(frozen=True)
class Host:
    """One namespace. `number` counts from 1; `link` is the bridge's end of its cable."""

    number: int
    name: str
    address: str
    link: str

    @property
    def place(self) -> Place:
        """For servers that are to run there."""
        return Place(self.address, ("ip", "netns", "exec", self.name))


class Hosts:
    """`size` hosts, as long as the context lasts. Everything raises `DevstackError` with what `ip` said."""

    def __init__(self, size: int = 3) -> None:
        self.name = f"mu{secrets.token_hex(3)}"
        self._size = size
        self._all: list[Host] = []
        self._undo: list[list[str]] = []
        self.gateway = ""

    def __enter__(self) -> Self:
        """Make them."""
        ensure("ip")
        try:
            with locked("hosts"):
                net = self._join()
            for number in range(1, self._size + 1):
                self._all.append(self._add(number, f"{net}.{10 + number}"))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove them. What still runs on one keeps its namespace, without a name or a cable, until it ends."""
        for command in reversed(self._undo):
            with suppress(DevstackError):
                _ip(*command[1:])
            guard.undone(command)
        self._undo.clear()

    def __getitem__(self, number: int) -> Host:
        return self._all[number - 1]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._all)

    def cut(self, host: Host) -> None:
        """Pull the cable of `host`: it reaches only itself."""
        _ip("link", "set", host.link, "down")

    def join(self, host: Host) -> None:
        """Put it in again."""
        _ip("link", "set", host.link, "up")

    @contextmanager
    def off(self, host: Host) -> Iterator[None]:
        """Cut `host` off inside, and join it again outside."""
        self.cut(host)
        try:
            yield
        finally:
            self.join(host)

    @contextmanager
    def one_way(self, source: Host, target: Host) -> Iterator[None]:
        """Lose inside `source` what it sends to `target`; what `target` sends arrives, and is not answered."""
        _ip("-n", source.name, "route", "add", "blackhole", f"{target.address}/32")
        try:
            yield
        finally:
            _ip("-n", source.name, "route", "del", "blackhole", f"{target.address}/32")

    def _join(self) -> str:
        """Make the bridge; returns its subnet, without the last number. Nothing else may choose one meanwhile."""
        taken = _ip("-4", "-o", "address", "show")
        for _ in range(_ATTEMPTS):
            net = f"{random.choice(_SUBNETS)}.{random.randint(0, 255)}"  # noqa: S311  no secret depends on it
            if f" {net}." not in taken:
                self._made(["ip", "link", "delete", self.name], "link", "add", self.name, "type", "bridge")
                self.gateway = f"{net}.1"
                _ip("address", "add", f"{self.gateway}/24", "dev", self.name)
                _ip("link", "set", self.name, "up")
                return net
        raise DevstackError(
            f"no free subnet for hosts below {' or '.join(_SUBNETS)}; remove old ones ('ip netns', 'ip link')"
        )

    def _add(self, number: int, address: str) -> Host:
        host = Host(number, f"{self.name}-{number}", address, f"{self.name}v{number}")
        self._made(["ip", "netns", "delete", host.name], "netns", "add", host.name)
        _ip("link", "add", host.link, "type", "veth", "peer", "name", "eth0", "netns", host.name)
        _ip("link", "set", host.link, "master", self.name, "up")
        _ip("-n", host.name, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _ip("-n", host.name, "link", "set", device, "up")
        return host

    def _made(self, undo: list[str], *what: str) -> None:
        guard.undo(undo)
        self._undo.append(undo)
        _ip(*what)


def why_not() -> str:
    """Say why there can be no hosts here, with what to do; '' if there can be."""
    if missing("ip") and os.geteuid() != 0:
        return f"'ip' is not on the PATH; install it: {how_to_install('ip')}"
    try:
        with Hosts(1):
            return ""
    except DevstackError as error:
        return f"no network namespaces here (run as root, with the capability SYS_ADMIN): {error}"


def _ip(*words: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603  our own command line
            ["ip", *words],  # noqa: S607  on the PATH, as `ensure` has seen to
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DevstackError(f"'ip {' '.join(words)}' could not be run: {error}") from error
    if done.returncode != 0:
        raise DevstackError(f"'ip {' '.join(words)}' failed: {done.stderr.strip()}")
    return done.stdout
