"""Kafka's own Java assignors, in one process that stays warm (`KafkaAssignors.java`)."""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from devstack.jars import jars, java
from muster.core.model import Assignment, Consumer, by_consumer

PROGRAM = Path(__file__).with_name("KafkaAssignors.java")


class KafkaAssignors:
    """`ask` sets the input; `assign`, `first` and `seconds` run one of Kafka's assignors on it.

    The names are `range`, `round-robin`, `sticky` and `cooperative-sticky`. A context manager: the process ends
    with it. An answer that takes longer than `limit` seconds raises `TimeoutError`; a new process takes over, which
    knows no input and is not warm.
    """

    def __init__(self, limit: float = 60.0) -> None:
        self.limit = limit
        self._start()

    def __enter__(self) -> KafkaAssignors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def ask(
        self, topics: Mapping[str, frozenset[int]], consumers: Mapping[str, Consumer], previous: Assignment
    ) -> None:
        """Set the input. Partitions must be numbered from 0.

        What Kafka's group leader would not get to see is left out: topics without partitions or subscribers, and
        owned partitions that are gone or whose owner has left or does not subscribe any more.
        """
        takers = {t: {c for c, consumer in consumers.items() if consumer.subscribes(t)} for t in topics}
        counts = {topic: len(topics[topic]) for topic in topics if topics[topic] and takers[topic]}
        owned: dict[str, dict[str, list[int]]] = {consumer: {} for consumer in consumers}
        for topic in counts:
            for consumer, partitions in by_consumer(previous.get(topic, {})).items():
                if consumer in takers[topic] and (left := partitions & topics[topic]):
                    owned[consumer][topic] = sorted(left)
        case = {
            "topics": counts,
            "consumers": {
                name: {
                    "topics": sorted(topics if consumer.topics is None else consumer.topics),
                    "owned": owned[name],
                }
                for name, consumer in consumers.items()
            },
        }
        self._say(f"case {json.dumps(case, separators=(',', ':'))}")

    def assign(self, name: str) -> dict[str, dict[int, str]]:
        """What the group has when its rebalance is over."""
        return self._assignment(f"assign {name}")

    def first(self, name: str) -> dict[str, dict[int, str]]:
        """What the first call answers: cooperative-sticky gives a partition that moves to no consumer yet."""
        return self._assignment(f"first {name}")

    def seconds(self, name: str) -> float:
        """How long one call takes. Cooperative-sticky needs a second one for the partitions that move."""
        self._say(f"time {name}")
        return int(self._answer()) / 1e9

    def _assignment(self, line: str) -> dict[str, dict[int, str]]:
        self._say(line)
        answer: dict[str, dict[str, str]] = json.loads(self._answer())
        return {topic: {int(p): c for p, c in owners.items()} for topic, owners in answer.items()}

    def _start(self) -> None:
        # Kafka logs whole assignments at INFO, and formatting them would count as its time.
        options = ["-Xmx2g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        self._process = subprocess.Popen(
            [java(), *options, "-cp", f"{jars('kafka')}/*", str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def _stop(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        # One line is asked for at a time, so nothing can stand in the buffer already.
        if not select.select([self._process.stdout], [], [], self.limit)[0]:
            self._stop()
            self._start()
            raise TimeoutError(f"no answer from {PROGRAM.name} within {self.limit:g} s")
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(
                f"{PROGRAM.name} ended with code {self._process.wait()}; what it said is above"
            )
        return line
