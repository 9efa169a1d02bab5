"""The examples of docs/joins.md as they stand there, with a real Spark and a real Kafka, two topics and an oracle."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from muster.core.partitioner import partition_of
from muster.core.state_topics import StateTopics
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from muster.sinks import Batch
from tests.conftest import Eventually
from tests.support.kafka_topics import make_topic
from tests.support.only_long import only_long
from tests.support.recipes import Recipe
from tests.support.state_query import Make, begin_at_the_first_record, committed_records

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PARTITIONS = 2
MINUTE = 60_000


class Fails:
    """A handler that does its work and fails, every third time."""

    def __init__(self, handler: Callable[[DataFrame, Batch], None]) -> None:
        self._handler = handler
        self.calls = 0

    def __call__(self, batch_df: DataFrame, batch: Batch) -> None:
        self._handler(batch_df, batch)
        self.calls += 1
        if self.calls % 3 == 0:
            raise RuntimeError("after all of it")


class Page:
    """The example of a section, with topics of its own in place of those that it names."""

    def __init__(
        self, kafka: KafkaSettings, group: GroupOffsets, heading: str, topics: tuple[str, str], output: str
    ) -> None:
        self.kafka, self.output = kafka, make_topic(kafka, 1)
        code = Recipe("joins.md", heading).code.replace(f'topic="{output}"', f'topic="{self.output}"')
        self.topics = tuple(make_topic(kafka, PARTITIONS) for _ in topics)
        for name, topic in zip(topics, self.topics, strict=True):
            begin_at_the_first_record(group, topic, PARTITIONS)
            code = code.replace(f'"{name}"', f'"{topic}"')
        found: dict[str, Any] = {}
        exec(code, found)  # noqa: S102
        self.handler = Fails(found["process"])

    def send(self, side: int, records: list[tuple[str, str | None, int]]) -> None:
        """Send records to a topic: key, value, and time in milliseconds."""
        producer = Producer(dict(self.kafka.config))
        for key, value, at in records:
            producer.produce(
                self.topics[side], value, key, partition_of(key.encode(), PARTITIONS), timestamp=at
            )
        assert producer.flush(30) == 0

    def came_out(self) -> Counter[tuple[str | None, str]]:
        return Counter(committed_records(self.kafka, self.output))


@only_long
def test_lookup_example_names_each_order_once(
    state_query: Make, kafka: KafkaSettings, group: GroupOffsets, tmp_path: Path, eventually: Eventually
) -> None:
    page = Page(kafka, group, "Look up the latest value", ("customers", "orders"), "named-orders")
    shared = StateTopics([page.topics])
    with state_query(tmp_path, page.handler, most=20, topics=shared) as query:
        for topic in page.topics:
            query.hold(topic, range(PARTITIONS))
        expected: Counter[tuple[str | None, str]] = Counter()
        now = round(time.time() * 1000)
        for round_ in range(3):
            known = {f"c{n}": None if (n + round_) % 4 == 0 else f"name-{n}-{round_}" for n in range(8)}
            page.send(0, [(key, name, now) for key, name in known.items()])
            eventually(lambda: read(group, page.topics[0]) == 8 * (round_ + 1), 120, "known")  # noqa: B023
            orders = [(f"c{n % 10}", f"order-{round_}-{n}", now) for n in range(40)]
            page.send(1, orders)
            expected.update((key, f"{text} {known.get(key) or 'unknown'}") for key, text, _ in orders)
            eventually(lambda: page.came_out().total() >= expected.total(), 180, "named")
        assert page.came_out() == expected
        assert page.handler.calls > 3


def read(group: GroupOffsets, topic: str) -> int:
    """How many records of a topic are committed."""
    found = group.committed([(topic, p) for p in range(PARTITIONS)])
    return sum(at or 0 for at in found.values())


def test_stream_join_example_gives_pairs_and_lonely_clicks(
    state_query: Make, kafka: KafkaSettings, group: GroupOffsets, tmp_path: Path, eventually: Eventually
) -> None:
    page = Page(kafka, group, "Join two streams", ("clicks", "buys"), "clicks-and-buys")
    draw, now = random.Random(1), round(time.time() * 1000) - 120 * MINUTE  # Kafka takes no future
    keys = [f"k{n}" for n in range(6)]
    clicks = [(draw.choice(keys), f"click-{n}", now + 1000 * n) for n in range(100)]
    buys = [(draw.choice(keys), f"buy-{n}", now + 1000 * n + 500) for n in range(0, 100, 3)]
    expected: Counter[tuple[str | None, str]] = Counter()
    for key, click, at in clicks:
        partners = [buy for of, buy, then in buys if of == key and 0 <= then - at <= MINUTE]
        expected.update((key, f"{click} {buy}") for buy in partners or ["nothing"])
    with state_query(tmp_path, page.handler, most=20, topics=StateTopics([page.topics])) as query:
        for topic in page.topics:
            query.hold(topic, range(PARTITIONS))
        # Both sides side by side, so that none is late by what the other lets the watermark be.
        for begin in range(0, 100, 10):
            page.send(0, clicks[begin : begin + 10])
            page.send(1, [buy for buy in buys if begin * 1000 <= buy[2] - now < (begin + 10) * 1000])
            sent = min(100, begin + 10)
            eventually(lambda: read(group, page.topics[0]) == sent, 120, "read")  # noqa: B023
        # What ends the time of all of them, in each partition and of each topic, in two batches.
        ends = ["k0", next(key for key in keys if place(key) != place("k0"))]
        for later in (3, 6):
            for side in (0, 1):
                page.send(side, [(key, "end", now + later * 10 * MINUTE) for key in ends])
            eventually(lambda: read(group, page.topics[0]) == 100 + 2 * later // 3, 120, "ended")  # noqa: B023
            eventually(lambda: read(group, page.topics[1]) == 34 + 2 * later // 3, 120, "ended")  # noqa: B023

        def of_clicks() -> Counter[tuple[str | None, str]]:
            found = page.came_out()
            return Counter({record: n for record, n in found.items() if "end" not in record[1]})

        eventually(lambda: of_clicks().total() >= expected.total(), 180, "joined")
        assert of_clicks() == expected
        assert page.handler.calls > 3


def place(key: str) -> int:
    return partition_of(key.encode(), PARTITIONS)
