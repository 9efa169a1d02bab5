"""What is coordinated in the scale benchmark, and what happens to it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from benchmarks.counting_proxy import CountingProxy
from benchmarks.scale_kafka import Catalogue, catalogue
from benchmarks.scale_tasks import Place
from devstack.consul import Consul
from devstack.guard import guard
from devstack.zookeeper import ZooKeeper

PARTITIONS = 100
JOINING = 10
REGISTRARS = 4
"""Processes with the consumers' registrars, each a thread."""
SETTLES = 15.0
"""Seconds from the last event until consumers count as quiet."""
WINDOW = 65.0
"""Seconds for which quiet consumers are watched: longer than one of their waits."""

Told = subprocess.Popen[str]


@dataclass(frozen=True)
class Size:
    """So many topics of `PARTITIONS` partitions, so many consumers, and how many topics appear at once."""

    topics: int
    consumers: int
    appear: int

    def __str__(self) -> str:
        return f"{self.topics:,} x {PARTITIONS} x {self.consumers:,}"


SIZES = (Size(10, 10, 1), Size(100, 100, 10), Size(1_000, 1_000, 100))
EVENTS = ("quiet", "leave", "join", "topics")


@dataclass(frozen=True)
class Traffic:
    """What all consumers together asked of Consul while nothing happened: MB/s in both directions, requests/s."""

    mb_s: float
    rps: float


class Consumers:
    """The processes of simulated consumers: one with their status pages, some with their registrars.

    There are `registrars` of the latter; their way to Consul is the port `consul`, if it is given. All are ended with
    the context.
    """

    def __init__(self, place: Place, registrars: int = 1, consul: int = 0) -> None:
        self._pages = _process("benchmarks.scale_consumers", place.told())
        told = replace(place, consul=consul or place.consul).told()
        self._registrars = [_process("benchmarks.scale_registrars", told) for _ in range(registrars)]
        self._names: list[str] = []
        self._born = 0

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the processes."""
        for process in (*self._registrars, self._pages):
            process.kill()
            process.communicate()
            guard.forget(process.pid)

    def join(self, number: int) -> None:
        """Have some join, and wait until they are live."""
        names = [f"scale-{self._born + n:04d}" for n in range(number)]
        self._born += number
        self._names += names
        ports = json.loads(_tell(self._pages, f"join {' '.join(names)}"))
        for name in names:
            _write(self._registrar(name), f"join {name} {ports[name]}")
        self._all_done()

    def leave(self) -> None:
        """Have the oldest deregister, and close its page."""
        name = self._names.pop(0)
        _write(self._registrar(name), f"leave {name}")
        self._all_done()
        _tell(self._pages, f"leave {name}")

    def kill(self) -> None:
        """Have the oldest one's page refuse connections; it stays registered."""
        name = self._names.pop(0)
        _write(self._registrar(name), f"kill {name}")
        _tell(self._pages, f"leave {name}")

    @contextmanager
    def still(self) -> Iterator[None]:
        """Freeze the registrars: in the field they have machines of their own, and take none of this one's time.

        Consul still has their blocking queries.
        """
        for process in self._registrars:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in self._registrars:
                process.send_signal(signal.SIGCONT)

    def _registrar(self, name: str) -> Told:
        return self._registrars[int(name.rpartition("-")[2]) % len(self._registrars)]

    def _all_done(self) -> None:
        for process in self._registrars:
            _write(process, "end")
        for process in self._registrars:
            _answer(process)


def _process(module: str, told: str) -> Told:
    process = subprocess.Popen(  # noqa: S603  our own command line
        [sys.executable, "-m", module, told],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    # One that is frozen does not see its input's end.
    guard.watch(process.pid, psutil.Process(process.pid).create_time())
    return process


def _write(process: Told, line: str) -> None:
    if process.stdin is not None:
        process.stdin.write(f"{line}\n")
        process.stdin.flush()


def _answer(process: Told) -> str:
    if process.stdout is None or not (line := process.stdout.readline()):
        raise RuntimeError("a process of the simulated consumers ended; its error is above")
    return line


def _tell(process: Told, line: str) -> str:
    _write(process, line)
    return _answer(process)


class Stage:
    """Servers with topics and consumers, to which things happen."""

    def __init__(self, place: Place, kafka: Catalogue, consumers: Consumers, proxy: CountingProxy) -> None:
        self.place = place
        self._proxy = proxy
        self._kafka = kafka
        self.consumers = consumers
        self._born = 0

    def set_up(self, size: Size) -> None:
        """Make topics and consumers of a size."""
        self.topics(size.topics)
        self.consumers.join(size.consumers)

    def happen(self, event: str, size: Size) -> None:
        """Let an event happen."""
        if event == "leave":
            self.consumers.leave()
        elif event == "join":
            self.consumers.join(JOINING)
        elif event == "topics":
            self.topics(size.appear)

    def traffic(self) -> Traffic:
        """Measure what the consumers ask of Consul while nothing happens."""
        proxy = self._proxy
        time.sleep(SETTLES)
        began, before, asked = time.monotonic(), proxy.bytes, len(proxy.requests)
        time.sleep(WINDOW)
        took = time.monotonic() - began
        return Traffic((proxy.bytes - before) / 1e6 / took, (len(proxy.requests) - asked) / took)

    def topics(self, number: int) -> None:
        """Create topics."""
        names = [f"t-{self._born + n:05d}" for n in range(number)]
        self._born += number
        self._kafka.create(names, PARTITIONS)


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Start new servers, without topics or consumers."""
    zookeeper = ZooKeeper(folder / "zookeeper", guarded=True)
    consul = Consul(folder / "consul", guarded=True)
    try:
        zookeeper.start()
        consul.start()
        with catalogue(folder / "kafka") as kafka:
            place = Place(zookeeper.address, consul.ports["http"], kafka.servers)
            with (
                CountingProxy("127.0.0.1", place.consul) as proxy,
                Consumers(place, REGISTRARS, proxy.port) as consumers,
            ):
                yield Stage(place, kafka, consumers, proxy)
    finally:
        consul.kill()
        zookeeper.kill()
