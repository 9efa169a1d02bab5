"""What fencing costs: commits through one transactional producer a partition, beside guarded and plain ones.

All three commit the same partitions of a group on the same broker, in one process, one after the other in each round;
figures are medians. Memory and threads are those of the producers, by the process's own before and after. The last
line has the ratios at the largest size, fenced over guarded (what is used with fencing off).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from uuid import uuid4

import click
import psutil
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from devstack.kafka import Kafka
from devstack.progress import say
from muster.consumer.commits import GuardedCommits
from muster.core.model import TopicPartition
from muster.edges.kafka import GroupOffsets, librdkafka_logger
from muster.edges.kafka_fencing import FencedCommits
from muster.settings.connections import KafkaSettings

SIZES = (1, 12, 100)
WARM_UP = 3
LINE = "{:>10}{:>12}{:>12}{:>12}{:>10}{:>12}{:>14}{:>10}"


@dataclass(frozen=True)
class Cost:
    """Seconds for a commit of all partitions, of each kind, and of a take-up; memory in MB of all producers."""

    plain: float
    guarded: float
    fenced: float
    claim: float
    memory: float
    threads: int
    before: float


def measure(kafka: KafkaSettings, partitions: int, rounds: int) -> Cost:
    """Measure all kinds in turns, on a topic of its own."""
    topic = f"bench-{uuid4().hex[:8]}"
    admin = AdminClient(dict(kafka.config), logger=librdkafka_logger())
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
    keys = [(topic, n) for n in range(partitions)]
    group = GroupOffsets(kafka, f"g-{topic}")
    guarded, fenced = GuardedCommits(group), FencedCommits(kafka, "bench", group)
    process = psutil.Process()
    _until(lambda: not guarded.claim(keys).failed)
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
    grown = (process.memory_info().rss - memory) / 1e6
    middle = {kind: median(of_kind[WARM_UP:]) for kind, of_kind in times.items()}
    cost = Cost(
        plain=middle["plain"],
        guarded=middle["guarded"],
        fenced=middle["fenced"],
        claim=claim,
        memory=grown,
        threads=process.num_threads() - threads,
        before=memory / 1e6,
    )
    fenced.close()
    group.close()
    return cost


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


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the broker did not answer in a minute")


@click.command()
@click.option("--rounds", default=20, show_default=True, help="Counted rounds of each.")
def main(rounds: int) -> None:
    """Print a table of what commits cost, and the ratios at the largest size."""
    say(
        LINE.format(
            "partitions",
            "plain ms",
            "guarded ms",
            "fenced ms",
            "ratio",
            "take-up ms",
            "MB a part.",
            "threads",
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        server = Kafka(Path(folder) / "kafka", guarded=True)
        server.start(240)
        try:
            kafka = KafkaSettings(config={"bootstrap.servers": server.address})
            run = partial(measure, kafka, rounds=rounds)
            run(1)  # makes Kafka's internal topics
            for partitions in SIZES:
                cost = run(partitions)
                say(
                    LINE.format(
                        partitions,
                        *(f"{value * 1e3:.1f}" for value in (cost.plain, cost.guarded, cost.fenced)),
                        f"{cost.fenced / cost.guarded:.1f}",
                        f"{cost.claim * 1e3:.0f}",
                        f"{cost.memory / partitions:.2f}",
                        cost.threads,
                    )
                )
        finally:
            server.stop()
    say(
        f"bench-fencing: partitions={SIZES[-1]} commit_ratio={cost.fenced / cost.guarded:.1f} "
        f"commit_ms={cost.fenced * 1e3:.0f} mb_a_partition={cost.memory / SIZES[-1]:.2f} "
        f"memory_ratio={(cost.before + cost.memory) / cost.before:.2f}"
    )


if __name__ == "__main__":
    main()
