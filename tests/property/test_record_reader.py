"""Single records are read again whatever order Kafka gives them in, and whichever it has no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.edges import record_reader
from muster.edges.record_reader import RecordReader
from muster.settings.connections import KafkaSettings

SETTINGS = KafkaSettings(config={"bootstrap.servers": "k:9092"}, operation_timeout=60)


@dataclass(frozen=True)
class Given:
    """A message of confluent-kafka: a record, or the end of a partition."""

    number: int
    at: int
    is_end: bool = False

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self.is_end else None

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def key(self) -> bytes:
        return b"%d/%d" % (self.number, self.at)

    def value(self) -> None:
        return None

    headers = value


class Kafka:
    """`confluent_kafka.Consumer` of partitions that have records at these offsets; it gives them in runs, in turns by
    chance."""

    def __init__(self, records: dict[int, list[int]], chance: Random) -> None:
        self.records, self.chance = records, chance
        self.at: dict[int, int] = {}
        self.ended: set[int] = set()
        self.ready: list[Given] = []

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.at = {place.partition: place.offset for place in places}

    def seek(self, place: TopicPartition) -> None:
        self.at[place.partition] = place.offset
        self.ended.discard(place.partition)
        self.ready = [each for each in self.ready if each.number != place.partition]

    def incremental_unassign(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            del self.at[place.partition]
            self.ready = [each for each in self.ready if each.number != place.partition]

    def poll(self, _timeout: float) -> Given | None:
        return next(iter(self.consume(1, 0)), None)

    def consume(self, most: int, _timeout: float) -> list[Given]:
        if not self.ready and (left := sorted(self.at.keys() - self.ended)):
            number = self.chance.choice(left)
            run = [at for at in self.records[number] if at >= self.at[number]][: self.chance.randint(1, 9)]
            self.ready = [Given(number, at) for at in run] or [Given(number, 100, is_end=True)]
            self.at[number] = run[-1] + 1 if run else 100
            self.ended |= set() if run else {number}
        taken, self.ready = self.ready[:most], self.ready[most:]
        return taken + (self.consume(most - len(taken), 0) if taken and len(taken) < most else [])


OFFSETS = st.sets(st.integers(0, 99)).map(sorted)


@given(
    records=st.dictionaries(st.integers(0, 3), OFFSETS, min_size=1),
    wanted=st.lists(OFFSETS, min_size=4, max_size=4),
    chance=st.randoms(use_true_random=False),
    taken=st.integers(1, 30),
    far=st.integers(1, 3_000),
)
@settings(max_examples=300, deadline=None)
def test_records_are_found_or_known_to_be_gone(
    records: dict[int, list[int]], wanted: list[list[int]], chance: Random, taken: int, far: int
) -> None:
    asked = {("t", number): wanted[number] for number in records}

    @contextmanager
    def opened(*_: object) -> Iterator[Any]:
        yield Kafka(records, chance)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_reader, "open_reader", opened)
        patch.setattr(record_reader, "TAKEN", taken)
        patch.setattr(record_reader, "FAR", far)
        found = RecordReader(SETTINGS, "g").read_all(asked)
    assert found.failed == {}
    keys = {tp: {at: record and record.key for at, record in of.items()} for tp, of in found.records.items()}
    assert keys == {
        (topic, number): {at: b"%d/%d" % (number, at) if at in records[number] else None for at in offsets}
        for (topic, number), offsets in asked.items()
    }
