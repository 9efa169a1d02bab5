"""A stack of real servers that faults are injected into: each fault is over, and then all flows again."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

import httpx
import psutil
from confluent_kafka import KafkaException

from devstack.errors import DevstackError
from muster.edges.consul import ConsulError
from muster.edges.kafka import KafkaError
from muster.edges.zookeeper import ZooKeeperError
from tests.support.fault_score import Row

T = TypeVar("T")
W = TypeVar("W")

NOT_YET = (
    *(AssertionError, ConsulError, DevstackError, KafkaError, KafkaException, ZooKeeperError),
    *(httpx.HTTPError, psutil.Error),
)
"""What is raised while an edge is away, or a condition is not met."""


@dataclass
class Window:
    """One fault, which may be more than one injection (`times`).

    Times are in seconds since the epoch; `flowed` is when all partitions flowed again. `doubled` counts records that
    a handler was given again.
    """

    fault: str
    planned: bool
    began: float
    times: int = 1
    ended: float = 0.0
    flowed: float = 0.0
    doubled: int = 0

    @property
    def seconds(self) -> float:
        """Seconds until all partitions flowed again; if they never did, until that was given up."""
        return (self.flowed or self.ended) - self.began

    def covers(self, at: float) -> bool:
        """Whether a moment is within it."""
        return self.began <= at < self.ended


@dataclass(frozen=True)
class Fault(Generic[W]):
    """What is done to a stack; when `inject` returns, it is over. It may return how often, if that is not once.

    `planned`: what moves, moves in order, so that no record may come twice. Without `mended` the next fault begins as
    soon as all flows again, while this one is still being mended. `long` ones are not part of `make test`.
    """

    name: str
    inject: Callable[[W], int | None]
    planned: bool = False
    mended: bool = True
    long: bool = False


@dataclass
class FaultWorld(ABC):
    """What every such stack has. `longest` is in seconds, until all partitions must flow again."""

    longest: float = field(default=240.0, kw_only=True)
    windows: list[Window] = field(default_factory=list, kw_only=True)
    unwell: str = field(default="", kw_only=True)
    """Why no further fault is tried."""
    mending: bool = field(default=False, kw_only=True)
    """Whether the fault before is still being mended, and the next one comes on top of it."""

    @abstractmethod
    def well(self) -> bool:
        """Whether all is as before the first fault."""

    @abstractmethod
    def flows(self, since: float) -> float:
        """Wait until what was produced at `since` or later is committed in all partitions; return when it was."""

    @abstractmethod
    def describe(self) -> str:
        """How things stand, for messages."""

    @abstractmethod
    def restore_all(self) -> None:
        """Take back what a fault that failed has left behind, which would spoil all later ones."""

    @abstractmethod
    def doubled(self, since: float, until: float) -> int:
        """Count the records that were delivered within these times, and had been before."""

    @abstractmethod
    def went_back(self, since: float, until: float) -> int:
        """Count the commits within these times that were lower than the one before."""

    def eventually(self, what: str, condition: Callable[[], T], timeout: float = 60.0) -> T:
        """Return the condition's first true value. An error of an edge that is away counts as "not yet"."""
        deadline = time.monotonic() + timeout
        while True:
            failure: BaseException | None = None
            try:
                if value := condition():
                    return value
            except NOT_YET as error:
                failure = error
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {timeout:g} s: {what}; {self.describe()}") from failure
            time.sleep(0.1)

    @contextmanager
    def fault(self, name: str, planned: bool, mended: bool = True) -> Iterator[Window]:
        """One fault, which is over at the end of the block; then everything has to flow again, and if it is to be
        `mended` before the next one, to be well."""
        assert not self.unwell, self.unwell
        try:
            if not self.mending:
                self.eventually("all is well before the fault", self.well, self.longest)
        except AssertionError as error:
            self.unwell = f"not tried, because the stack has not recovered from an earlier fault: {error}"
            raise
        self.mending = False
        window = Window(name, planned, time.time())
        self.windows.append(window)
        try:
            yield window
            over = time.time()
            window.flowed = self.flows(window.began)
            self.flows(over)
            if mended:
                self.eventually("all is well after the fault", self.well, self.longest)
            self.mending = not mended
        finally:
            self.restore_all()
            window.ended = time.time()
            window.doubled = self.doubled(window.began, window.ended)
            print(
                f"{name}: flowed again after {window.seconds:.1f} s, "
                f"{window.doubled} delivered twice, {window.ended - window.began:.1f} s in all"
            )

    def play(self, fault: Fault[Self]) -> Window:
        """Inject a fault and see everything flow again. AssertionError if a planned one had records come twice."""
        with self.fault(fault.name, fault.planned, fault.mended) as window:
            done = fault.inject(self)
            window.times = 1 if done is None else done
        if fault.planned:
            assert window.doubled == 0, (
                f"{fault.name}: {window.doubled} records were given to a handler twice"
            )
        return window

    def rows(self, lost: Collection[float], double_owners: Collection[float] = ()) -> list[Row]:
        """Return a row a fault: `lost` is when each record was produced that never arrived, `double_owners` when each
        partition got a second owner."""
        rows = []
        for name in dict.fromkeys(window.fault for window in self.windows):
            of_it = [window for window in self.windows if window.fault == name]
            rows.append(
                Row(
                    name,
                    sum(window.times for window in of_it),
                    sum(window.covers(at) for at in lost for window in of_it),
                    sum(window.doubled for window in of_it),
                    sum(self.went_back(window.began, window.ended) for window in of_it),
                    sum(window.covers(at) for at in double_owners for window in of_it),
                    round(max(window.seconds for window in of_it), 1),
                    of_it[0].planned,
                )
            )
        return rows
