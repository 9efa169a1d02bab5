"""One assignor of Muster's and one of Kafka's on the same input, alternating."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from benchmarks.assignor_inputs import Input
from muster.core.assignors import load_assignor
from muster.core.model import Assignment
from tests.support.kafka_assignors import KafkaAssignors

PEERS = {
    "cooperative-sticky": "sticky",
    "sticky": "sticky",
    "range": "range",
    "round-robin": "round-robin",
}
"""Each of Kafka's assignors, and Muster's that it is held against."""

MAIN_PEER = "cooperative-sticky"


@dataclass(frozen=True)
class Outcome:
    """How many partitions left a consumer that could have kept them, and how many partitions the consumers with the
    fewest and the most have."""

    moves: int
    least: int
    most: int


@dataclass(frozen=True)
class Figure:
    """Both on one input: the median seconds of one plan of `peer`, Kafka's assignor, and of Muster's, and what came
    out. Without an outcome of Kafka's it was stopped after `kafka_seconds`. Each was timed `rounds` times."""

    input: Input
    peer: str
    kafka_seconds: float
    muster_seconds: float
    kafka: Outcome | None
    muster: Outcome
    rounds: int

    @property
    def ratio(self) -> float:
        """Muster's time over Kafka's: below 1 Muster is faster."""
        return self.muster_seconds / self.kafka_seconds


def measure(kafka: KafkaAssignors, given: Input, peer: str, rounds: int, patience: float) -> Figure:
    """Time both, Kafka's first in each round, `rounds` times, or as often as fits into `patience` seconds.

    Both are warmed up by as much again beforehand, unless a single plan of Kafka's takes longer than that.
    """
    assignor = load_assignor(PEERS[peer])

    def ours() -> float:
        began = time.perf_counter()
        assignor.assign(given.topics, given.consumers, given.previous)
        return time.perf_counter() - began

    def both(until: float) -> Iterator[tuple[float, float]]:
        for _ in range(rounds):
            yield kafka.seconds(peer), ours()
            if time.monotonic() > until:
                break

    settled: Assignment | None = None
    kafka.ask(given.topics, given.consumers, given.previous)
    try:
        settled = kafka.assign(peer)
        list(both(time.monotonic() + patience))
        times = list(both(time.monotonic() + patience))
    except TimeoutError:
        settled = None
        times = [(kafka.limit, ours()) for _ in range(min(rounds, 3))]
    kafka_seconds, muster_seconds = (median(column) for column in zip(*times, strict=True))
    plan = assignor.assign(given.topics, given.consumers, given.previous)
    return Figure(
        given,
        peer,
        kafka_seconds,
        muster_seconds,
        None if settled is None else _outcome(given, settled),
        _outcome(given, plan),
        len(times),
    )


def _outcome(given: Input, assignment: Assignment) -> Outcome:
    load = Counter(dict.fromkeys(given.consumers, 0))
    for owners in assignment.values():
        load.update(owners.values())
    moves = sum(
        owner in given.consumers and assignment[topic][partition] != owner
        for topic, owners in given.previous.items()
        for partition, owner in owners.items()
    )
    return Outcome(moves, min(load.values()), max(load.values()))
