"""Planning, side by side: Muster's sticky assignor and Kafka's cooperative-sticky on the same inputs.

Both run in one session, alternating, after a warm-up; the figure is the median. The last line has the ratios at the
largest size, Muster's time over Kafka's: below 1 Muster is faster.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import click

from devstack.jars import jars, java
from devstack.progress import say
from muster.core.assignors import load_assignor
from muster.core.model import Assignment, Consumer

SIZES = ((10, 100, 10), (100, 100, 100), (1000, 100, 1000))
EVENTS = ("start", "leave", "join")
WARM_UP = 5


class Kafka:
    """Kafka's assignor in a process of its own."""

    def __init__(self, topics: int, partitions: int, consumers: int) -> None:
        program = Path(__file__).with_name("KafkaAssignors.java")
        sizes = [str(topics), str(partitions), str(consumers)]
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [java(), "-Xmx2g", "-cp", f"{jars('kafka')}/*", str(program), *sizes],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if self._answer() != "ready":
            raise RuntimeError(f"{program.name} did not start; run it by hand to see why")

    def run(self, event: str) -> tuple[float, int]:
        """Seconds and moves of one assignment."""
        assert self._process.stdin is not None  # noqa: S101 - it was asked for above
        self._process.stdin.write(f"{event}\n")
        self._process.stdin.flush()
        nanoseconds, moves = self._answer().split()
        return int(nanoseconds) / 1e9, int(moves)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _answer(self) -> str:
        assert self._process.stdout is not None  # noqa: S101
        return self._process.stdout.readline().strip()


class Muster:
    """Muster's assignor on the same input."""

    def __init__(self, topics: int, partitions: int, consumers: int) -> None:
        self._assignor = load_assignor("sticky", {})
        self._topics = {f"topic-{n:05d}": frozenset(range(partitions)) for n in range(topics)}
        self._consumers = {f"consumer-{n:05d}": Consumer(f"consumer-{n:05d}") for n in range(consumers)}
        self._settled = self._assignor.assign(self._topics, self._consumers, {})

    def run(self, event: str) -> tuple[float, int]:
        """Seconds and moves of one assignment."""
        consumers = dict(self._consumers)
        before: Assignment = {} if event == "start" else self._settled
        if event == "leave":
            del consumers["consumer-00000"]
        elif event == "join":
            newcomer = f"consumer-{len(consumers):05d}"
            consumers[newcomer] = Consumer(newcomer)
        began = time.perf_counter()
        after = self._assignor.assign(self._topics, consumers, before)
        took = time.perf_counter() - began
        moves = sum(
            owner in consumers and after[topic][partition] != owner
            for topic, owners in before.items()
            for partition, owner in owners.items()
        )
        return took, moves


@click.command()
@click.option("--rounds", default=15, show_default=True, help="Counted rounds of each.")
def main(rounds: int) -> None:
    """Print a table of median times and moves, and the ratios at the largest size."""
    line = "{:<34}{:<8}{:>10}{:>11}{:>8}{:>14}"
    say(line.format("topics x partitions x consumers", "event", "Kafka ms", "Muster ms", "ratio", "moves"))
    ratios: dict[str, float] = {}
    for size in SIZES:
        kafka, muster = Kafka(*size), Muster(*size)
        name = " x ".join(f"{n:,}" for n in size)
        try:
            for event in EVENTS:
                theirs, ours = _alternate(partial(kafka.run, event), partial(muster.run, event), rounds)
                ratios[event] = ours[0] / theirs[0]
                times = (f"{theirs[0] * 1e3:.2f}", f"{ours[0] * 1e3:.2f}", f"{ratios[event]:.2f}")
                say(line.format(name, event, *times, f"{theirs[1]} / {ours[1]}"))
        finally:
            kafka.close()
    say("bench-assignors: " + " ".join(f"{event}_ratio={ratio:.2f}" for event, ratio in ratios.items()))


def _alternate(
    first: Callable[[], tuple[float, int]], second: Callable[[], tuple[float, int]], rounds: int
) -> tuple[tuple[float, int], tuple[float, int]]:
    """Median seconds, and moves, of both."""
    results = [(first(), second()) for _ in range(WARM_UP + rounds)][WARM_UP:]
    theirs, ours = zip(*results, strict=True)
    return (median(t for t, _ in theirs), theirs[-1][1]), (median(t for t, _ in ours), ours[-1][1])


if __name__ == "__main__":
    main()
