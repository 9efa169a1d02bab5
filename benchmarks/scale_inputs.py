"""What is coordinated in the scale benchmark, and what happens to it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.scale_kafka import Catalogue, catalogue
from benchmarks.scale_tasks import Place
from devstack.consul import Consul
from devstack.zookeeper import ZooKeeper

PARTITIONS = 100
JOINING = 10


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


class Consumers:
    """The process of simulated consumers; ended with the context."""

    def __init__(self, place: Place) -> None:
        self._process = subprocess.Popen(  # noqa: S603  our own command line
            [sys.executable, "-m", "benchmarks.scale_consumers", place.told()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._done()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def tell(self, line: str) -> None:
        """Have some join or leave, and wait until they have."""
        if self._process.stdin is not None:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        self._done()

    def _done(self) -> None:
        if self._process.stdout is None or self._process.stdout.readline() != "done\n":
            raise RuntimeError("the process of the simulated consumers ended; its words are above")


class Stage:
    """Servers with topics and consumers, to which things happen."""

    def __init__(self, place: Place, kafka: Catalogue, consumers: Consumers) -> None:
        self.place = place
        self._kafka = kafka
        self._consumers = consumers
        self._born = 0

    def set_up(self, size: Size) -> None:
        """Topics and consumers of a size."""
        self.topics(size.topics)
        self._consumers.tell(f"join {size.consumers}")

    def happen(self, event: str, size: Size) -> None:
        """Let an event happen."""
        if event == "leave":
            self._consumers.tell("leave 1")
        elif event == "join":
            self._consumers.tell(f"join {JOINING}")
        elif event == "topics":
            self.topics(size.appear)

    def topics(self, number: int) -> None:
        """Create topics."""
        names = [f"t-{self._born + n:05d}" for n in range(number)]
        self._born += number
        self._kafka.create(names, PARTITIONS)


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """New servers, without topics or consumers."""
    zookeeper = ZooKeeper(folder / "zookeeper", guarded=True)
    consul = Consul(folder / "consul", guarded=True)
    try:
        zookeeper.start()
        consul.start()
        with catalogue(folder / "kafka") as kafka:
            place = Place(zookeeper.address, consul.ports["http"], kafka.servers)
            with Consumers(place) as consumers:
                yield Stage(place, kafka, consumers)
    finally:
        consul.kill()
        zookeeper.kill()
