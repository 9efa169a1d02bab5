"""Measures of what may grow, at rest and after a collection, and which of them have grown."""

from __future__ import annotations

import re
import subprocess
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil

from devstack.jars import java
from tests.week import looks
from tests.week.stack import ALPHA, CONSUMERS, FOREIGN, WeekStack

LOOKS = 5
APART = 0.5
"""Seconds between two looks."""
SHARE = 0.1
ALLOWED = {
    "znodes": 10,
    "Consul keys": 5,
    "Consul bytes": 500,
    "handles": 8,
    "threads": 8,
    "heap blocks": 5_000,
    "heap kB": 8_192,
    "log files": 2,
    "Kafka files": 40,
    "ZooKeeper files": 4,
    "Consul files": 4,
}
"""What each measure may grow by besides a share of itself. Of heaps that is what some hundred batches leave in
caches that are full some day; of files, what has expired and is not deleted yet."""

Measure = tuple[str, str]
"""A process or server, and what it has: a key of `ALLOWED`."""


@dataclass(frozen=True)
class Growth:
    """A measure on two days."""

    measure: Measure
    before: float
    after: float

    @property
    def limit(self) -> float:
        """The most that it may be after."""
        return self.before * (1 + SHARE) + ALLOWED[self.measure[1]]

    @property
    def grew(self) -> bool:
        """Whether it is more than that."""
        return self.after > self.limit

    def __str__(self) -> str:
        """Return a row."""
        of, what = self.measure
        grew = "  GREW" if self.grew else ""
        return f"{of:20} {what:16} {self.before:>10.0f} {self.after:>10.0f}  at most {self.limit:.0f}{grew}"


@dataclass
class Growing:
    """The medians of each day."""

    stack: WeekStack
    days: dict[int, dict[Measure, float]] = field(default_factory=dict)
    _number: int = 0

    def look(self, day: int) -> None:
        """Take the looks of a day."""
        found: dict[Measure, list[float]] = defaultdict(list)
        for _ in range(LOOKS):
            for measure, value in self._look().items():
                found[measure].append(value)
            time.sleep(APART)
        self.days[day] = {measure: median(values) for measure, values in found.items()}

    def between(self, early: int, late: int) -> list[Growth]:
        """Return the measures that both days have."""
        return [
            Growth(measure, before, self.days[late][measure])
            for measure, before in self.days[early].items()
            if measure in self.days[late]
        ]

    def _look(self) -> dict[Measure, float]:
        self._number += 1
        looks.ask_looks(self.stack.looks, self._number)
        keys, size = self.stack.consul.kept()
        found: dict[Measure, float] = {
            ("ZooKeeper", "znodes"): self.stack.zookeeper.nodes(),
            ("Consul", "Consul keys"): keys,
            ("Consul", "Consul bytes"): size,
            ("ZooKeeper", "ZooKeeper files"): self.stack.zookeeper.files(),
            ("Consul", "Consul files"): self.stack.consul.files(),
            ("Kafka", "Kafka files"): self.stack.kafka.files(),
            ("all", "log files"): sum(file.is_file() for file in (self.stack.folder / "logs").iterdir()),
        }
        names = [one for of in CONSUMERS.values() for one in of if one != FOREIGN]
        for name in [*names, *(f"coordinator-{name}" for name in CONSUMERS)]:
            found |= {(name, what): held for what, held in self._answer(name).items()}
        for name in CONSUMERS[ALPHA] if self.stack.long else ():
            found |= _of_jvm(f"{name}'s JVM", self.stack.running(name)[-1].process.pid)
        return found

    def _answer(self, name: str) -> Mapping[str, int]:
        deadline = time.monotonic() + 30
        while (answer := looks.answered(self.stack.looks, name, self._number)) is None:
            assert time.monotonic() < deadline, f"{name} has not told within 30 s how much it holds"
            time.sleep(0.05)
        return answer


def _of_jvm(name: str, pid: int) -> dict[Measure, float]:
    _jcmd(pid, "GC.run")
    used = sum(int(kb) for kb in re.findall(r"total \d+K, used (\d+)K", _jcmd(pid, "GC.heap_info")))
    process = psutil.Process(pid)
    return {
        (name, "heap kB"): used,
        (name, "handles"): process.num_fds(),
        (name, "threads"): process.num_threads(),
    }


def _jcmd(pid: int, command: str) -> str:
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            [str(Path(java()).with_name("jcmd")), str(pid), command],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout
    return ""
