"""What fencing costs: commits through one transactional producer a partition, beside guarded and plain ones.

All three commit the same partitions of a group on the same broker, in one process, one after the other in each round;
figures are medians. Memory and threads are those of the producers, by the process's own before and after. The last
line has the ratios at the largest size, fenced over guarded (what is used with fencing off).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from statistics import median

import click
import psutil

from benchmarks.harness import report, servers
from devstack.airflow_api import wait_for
from devstack.progress import say
from muster.consumer.commits import GuardedCommits
from muster.core.model import TopicPartition
from muster.edges.kafka import GroupOffsets
from muster.edges.kafka_fencing import FencedCommits
from muster.settings.connections import KafkaSettings

SIZES = (1, 12, 100)
WARM_UP = 3


@dataclass(frozen=True)
class Cost:
    """Seconds for a commit of all partitions, of each kind, and of a take-up; memory in MB of all producers."""

    seconds: Mapping[str, float]
    claim: float
    memory: float
    threads: int
    before: float

    @property
    def ratio(self) -> float:
        return self.seconds["fenced"] / self.seconds["guarded"]


def measure(kafka: KafkaSettings, partitions: int, rounds: int) -> Cost:
    """Measure all kinds in turns, on a topic of its own."""
    process = psutil.Process()
    with (
        servers.new_topic(kafka, "bench", partitions) as topic,
        closing(GroupOffsets(kafka, f"g-{topic}")) as group,
        closing(FencedCommits(kafka, "bench", group)) as fenced,
    ):
        keys = [(topic, n) for n in range(partitions)]
        guarded = GuardedCommits(group)
        wait_for("the group's coordinator", lambda: not guarded.claim(keys).failed, 60)
        group.commit(dict.fromkeys(keys, 0))
        memory, threads = process.memory_info().rss, process.num_threads()
        began = time.perf_counter()
        left = list(keys)
        while left:
            left = list(fenced.claim(left).failed)
        claim = time.perf_counter() - began
        kinds: dict[str, Callable[[Mapping[TopicPartition, int]], object]] = {
            "plain": group.commit,
            "guarded": lambda offsets: guarded.commit(offsets).done == offsets,
            "fenced": partial(_whole, fenced),
        }
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for number in range(1, WARM_UP + rounds + 1):
            for kind, commit in kinds.items():
                began = time.perf_counter()
                if commit(dict.fromkeys(keys, number)) is False:
                    raise RuntimeError(f"{kind}: not all was committed")
                times[kind].append(time.perf_counter() - began)
        return Cost(
            {kind: median(of_kind[WARM_UP:]) for kind, of_kind in times.items()},
            claim,
            (process.memory_info().rss - memory) / 1e6,
            process.num_threads() - threads,
            memory / 1e6,
        )


def _whole(commits: FencedCommits, offsets: Mapping[TopicPartition, int]) -> bool:
    """Commit until all is acknowledged, as the committer does: a busy broker may need to be asked again."""
    deadline = time.monotonic() + 60
    left = dict(offsets)
    while left and time.monotonic() < deadline:
        outcome = commits.commit(left)
        if outcome.refused:
            return False
        left = {key: offset for key, offset in left.items() if outcome.done.get(key) != offset}
    return not left


@click.command()
@click.option("--rounds", default=20, show_default=True, help="Counted rounds of each.")
def main(rounds: int) -> None:
    """Print what commits cost, and the ratios at the largest size."""
    with servers.kafka() as (kafka, _):
        measure(kafka, 1, rounds)  # makes Kafka's internal topics
        for partitions in SIZES:
            cost = measure(kafka, partitions, rounds)
            times = ", ".join(f"{kind} {seconds * 1e3:.1f}" for kind, seconds in cost.seconds.items())
            say(
                f"{partitions} partitions: ms: {times}, take-up {cost.claim * 1e3:.0f}; ratio {cost.ratio:.1f}; "
                f"MB a partition {cost.memory / partitions:.2f}; threads {cost.threads}"
            )
    line = {
        "partitions": f"{SIZES[-1]}",
        "commit_ratio": f"{cost.ratio:.1f}",
        "commit_ms": f"{cost.seconds['fenced'] * 1e3:.0f}",
        "mb_a_partition": f"{cost.memory / SIZES[-1]:.2f}",
        "memory_ratio": f"{(cost.before + cost.memory) / cost.before:.2f}",
    }
    say(report.last_line("fencing", line))
