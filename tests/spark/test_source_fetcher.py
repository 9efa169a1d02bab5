"""The executor's side on a real Kafka: ranges of offsets in, records out."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from devstack.kafka import Kafka
from muster.consumer.source import fetcher as fetcher_module
from muster.consumer.source.fetcher import KafkaReadError, RangeFetcher
from muster.consumer.source.reader import ClusterRanges, FetcherCache, Task, read
from muster.consumer.source.shares import ShareBooks
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.spark.topics import (
    create_topic,
    delete_before,
    delete_topic,
    end_offset,
    make_topic,
    numbered,
    produce,
    producer_of,
)

Ranges = dict[tuple[str, int], tuple[int, int]]


@pytest.fixture
def fetcher(kafka: KafkaSettings) -> Iterator[RangeFetcher]:
    made = RangeFetcher({**kafka.config, "group.id": "fetcher"}, read_timeout=30)
    yield made
    made.close()


def fetched(fetcher: RangeFetcher, ranges: Ranges) -> dict[tuple[str, int], list[tuple[int, str]]]:
    """Offset and value of each record, by partition."""
    found: dict[tuple[str, int], list[tuple[int, str]]] = {tp: [] for tp in ranges}
    for chunk in fetcher.fetch(ranges):
        for tp, messages in chunk:
            found[tp] += [(message.offset(), message.value().decode()) for message in messages]
    return found


def expected(ranges: Ranges) -> dict[tuple[str, int], list[tuple[int, str]]]:
    return {
        (topic, p): [(n, f"{p}:{n}") for n in range(start, end)]
        for (topic, p), (start, end) in ranges.items()
    }


@pytest.fixture(scope="module")
def topic(kafka: KafkaSettings) -> str:
    """Four partitions of 5,000 records."""
    name = create_topic(kafka, 4)
    produce(kafka, name, {p: numbered(f"{p}:", 5000) for p in range(4)})
    return name


def test_ranges_that_follow_each_other_and_ranges_that_do_not(fetcher: RangeFetcher, topic: str) -> None:
    """Forwards, backwards, overlapping, with partitions that come and go: always exactly the range."""
    chance = random.Random(3)
    at = dict.fromkeys(range(4), 0)
    for _ in range(150):
        ranges: Ranges = {}
        for p in chance.sample(range(4), chance.randint(1, 4)):
            start = at[p] if chance.random() < 0.7 else chance.randint(0, 4900)
            end = min(5000, start + chance.choice([1, 10, 300, 2500]))
            at[p] = 0 if end == 5000 else end
            if end > start:
                ranges[topic, p] = (start, end)
        assert fetched(fetcher, ranges) == expected(ranges)


def test_the_next_range_begins_with_what_was_fetched_ahead(fetcher: RangeFetcher, topic: str) -> None:
    assert fetched(fetcher, {(topic, 0): (0, 1000), (topic, 1): (0, 5000)})
    before = fetcher.held()
    assert fetched(fetcher, {(topic, 0): (1000, 2000)}) == expected({(topic, 0): (1000, 2000)})
    assert (topic, 1) in before
    assert fetcher.held() <= {(topic, 0)}, "a partition that is not asked for is not fetched"


class CountsAssigning:
    """A fetcher's consumer that counts how often it is assigned partitions."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.assigned = 0

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned += len(partitions)
        self._consumer.incremental_assign(partitions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)


def counted(fetcher: RangeFetcher) -> CountsAssigning:
    count = CountsAssigning(fetcher._consumer)
    fetcher._consumer = count  # type: ignore[assignment]
    return count


def test_workers_that_read_small_batches_in_turns_stay_with_their_partitions(
    kafka: KafkaSettings, topic: str
) -> None:
    """Each passes over what the other has read, and keeps partitions that have nothing this time."""
    pair = [RangeFetcher({**kafka.config, "group.id": f"turns-{n}"}, 30) for n in range(2)]
    counts = [counted(fetcher) for fetcher in pair]
    for fetcher in pair:
        fetcher.tune(1000, 50_000)  # as after the first chunk: what it keeps is not more than it may
    chance = random.Random(5)
    at = dict.fromkeys(range(4), 0)
    for turn in range(40):
        ranges: Ranges = {}
        for p in range(4):
            ranges[topic, p] = (at[p], at[p] + chance.choice([0, 0, 1, 20, 90]))
            at[p] = ranges[topic, p][1]
        assert fetched(pair[turn % 2], ranges) == expected(ranges)
    assert [count.assigned for count in counts] == [4, 4]
    for fetcher in pair:
        fetcher.close()


def test_fetcher_seeks_to_a_range_far_ahead(fetcher: RangeFetcher, topic: str) -> None:
    count = counted(fetcher)
    ranges: list[Ranges] = [{(topic, 0): bounds} for bounds in ((0, 10), (30, 40), (4000, 4010))]
    for each, assigned in zip(ranges, (1, 1, 2), strict=True):
        assert fetched(fetcher, each) == expected(each)
        assert count.assigned == assigned


def test_fetcher_reads_a_bounded_amount_beyond_a_range(
    fetcher: RangeFetcher, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher_module, "_KEEP_RECORDS", 0)
    fetcher.tune(1, fetcher_module._CHUNK_BYTES // 50)
    ranges: Ranges = {(topic, 0): (0, 1), (topic, 1): (0, 1), (topic, 2): (0, 5000)}
    assert fetched(fetcher, ranges) == expected(ranges)
    following: Ranges = {(topic, p): (1 if p < 2 else 4999, 5000) for p in range(3)}
    assert fetched(fetcher, following) == expected(following)


def test_a_worker_chooses_the_share_that_it_has_fetched_ahead(
    kafka: KafkaSettings, topic: str, tmp_path: Path
) -> None:
    """Whichever task it is given; here two workers, each with its fetchers."""
    config = {**kafka.config, "group.id": "shares"}
    workers = [FetcherCache(), FetcherCache()]
    books = ShareBooks(str(tmp_path))
    counts = []
    for number, worker in enumerate(workers):
        fetcher = worker.take(config, 30)
        fetcher.tune(1000, 50_000)  # as after the first chunk: what it keeps is not more than it may
        counts.append(counted(fetcher))
        ranges: Ranges = {(topic, p): (0, 1000) for p in (2 * number, 2 * number + 1)}
        assert fetched(fetcher, ranges) == expected(ranges)
        worker.put_back(config, fetcher)
    for turn, (start, end) in enumerate([(1000, 2000), (2000, 4000), (4000, 5000)]):
        halves: list[Ranges] = [{(topic, p): (start, end) for p in pair} for pair in ((0, 1), (2, 3))]
        shares = tuple((ClusterRanges("", config, half),) for half in halves)
        tasks = [Task(shares, 30, choice) for choice in books.open(2)]
        given = tasks if turn % 2 else tasks[::-1]
        for number, (worker, task) in enumerate(zip(workers, given, strict=True)):
            (chosen,) = task.share(worker.ahead)
            assert chosen.ranges == halves[number]
            fetcher = worker.take(config, 30)
            assert fetched(fetcher, chosen.ranges) == expected(halves[number])
            worker.put_back(config, fetcher)
    assert [count.assigned for count in counts] == [2, 2], "nothing was fetched anew"
    for worker in workers:
        worker.take(config, 30).close()


def test_a_reader_that_stops_early_spoils_nothing(kafka: KafkaSettings, topic: str) -> None:
    config = {**kafka.config, "group.id": "early"}
    task = Task(((ClusterRanges("", config, {(topic, 0): (0, 5000)}),),))
    batches = read(task)
    first = next(batches)
    assert 0 < first.num_rows < 5000
    assert gc.isenabled(), "Python looks for cycles again while Spark has its turn"
    batches.close()  # type: ignore[attr-defined]
    assert sum(batch.num_rows for batch in read(task)) == 5000
    nested = [(a.num_rows, sum(b.num_rows for b in read(task))) for a in read(task)]
    assert sum(rows for rows, _ in nested) == 5000
    assert {rows for _, rows in nested} == {5000}, "one reader within another has a fetcher of its own"


def test_a_compacted_topic_is_read_to_its_end(
    kafka: KafkaSettings, fetcher: RangeFetcher, eventually: Eventually
) -> None:
    """The cleaner leaves gaps, also at the end of a range."""
    name = create_topic(
        kafka,
        1,
        {
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "100",
        },
    )
    producer = producer_of(kafka)

    def churn() -> list[int]:
        for n in range(50):
            producer.produce(name, f"{n}".encode(), key=f"k{n % 5}".encode(), partition=0)
        producer.flush(30)
        end = end_offset(kafka, name, 0)
        return [offset for offset, _ in fetched(fetcher, {(name, 0): (0, end)})[name, 0]]

    offsets = churn()

    def gaps() -> bool:
        nonlocal offsets
        time.sleep(0.5)  # lets a segment become old enough to be rolled
        offsets = churn()
        return len(offsets) < offsets[-1] + 1 - 40

    eventually(gaps, 90, "compaction")
    gone = next(n for n in range(offsets[-1]) if n not in offsets)
    assert fetched(fetcher, {(name, 0): (gone, gone + 1)}) == {(name, 0): []}
    # The cleaner is still at work, but the last record stays.
    left = [offset for offset, _ in fetched(fetcher, {(name, 0): (gone, offsets[-1] + 1)})[name, 0]]
    assert left[-1] == offsets[-1]
    assert set(left) <= set(offsets)


def test_a_transactional_topic_is_read_to_its_end(
    kafka: KafkaSettings, fetcher: RangeFetcher, eventually: Eventually
) -> None:
    """The last offset of a committed transaction is a control record; an aborted one has no record to give."""
    name = create_topic(kafka, 1)
    producer = producer_of(kafka, **{"transactional.id": name})
    producer.init_transactions(30)

    def transaction(commit: bool, *values: str) -> int:
        end = end_offset(kafka, name, 0) + len(values) + 1
        producer.begin_transaction()
        for value in values:
            producer.produce(name, value.encode(), partition=0)
        producer.flush(30)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
        # The control record is written a moment after the producer is told.
        eventually(lambda: end_offset(kafka, name, 0) == end, 30, "the transaction's end")
        return end

    first = transaction(True, "a", "b")
    assert first == 3
    assert [v for _, v in fetched(fetcher, {(name, 0): (0, first)})[name, 0]] == ["a", "b"]
    second = transaction(False, "no", "no")
    began = time.monotonic()
    assert fetched(fetcher, {(name, 0): (first, second)}) == {(name, 0): []}
    assert time.monotonic() - began < 5
    assert fetched(fetcher, {(name, 0): (second - 1, second)}) == {(name, 0): []}
    third = transaction(True, "c")
    assert [v for _, v in fetched(fetcher, {(name, 0): (second, third)})[name, 0]] == ["c"]
    assert [v for _, v in fetched(fetcher, {(name, 0): (0, third)})[name, 0]] == ["a", "b", "c"]


def test_records_that_retention_deleted_are_passed_over_with_a_warning(
    kafka: KafkaSettings, fetcher: RangeFetcher, caplog: pytest.LogCaptureFixture
) -> None:
    name = create_topic(kafka, 2)
    produce(kafka, name, {0: numbered("0:", 100), 1: numbered("1:", 100)})
    delete_before(kafka, name, 0, 40)
    found = fetched(fetcher, {(name, 0): (10, 60), (name, 1): (0, 100)})
    assert found == expected({(name, 0): (40, 60), (name, 1): (0, 100)})
    assert "offsets 10 to 39 were deleted by retention before they were read: 30 skipped" in caplog.text
    assert f"topic '{name}', partition 0" in caplog.text
    assert fetched(fetcher, {(name, 0): (0, 20)}) == {(name, 0): []}
    assert fetched(fetcher, {(name, 0): (60, 100)}) == expected({(name, 0): (60, 100)})


def test_recreated_topic_ends_a_range_in_time(
    kafka: KafkaSettings,
    fetcher: RangeFetcher,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetcher_module, "_GONE_AFTER", 1.0)
    name = create_topic(kafka, 2)
    produce(kafka, name, {0: numbered("0:", 100), 1: numbered("1:", 100)})
    delete_topic(kafka, name)
    make_topic(kafka, name, 2)
    produce(kafka, name, {0: numbered("0:", 20)})
    found = fetched(fetcher, {(name, 0): (10, 100), (name, 1): (50, 100)})
    assert found == expected({(name, 0): (10, 20), (name, 1): (0, 0)})
    assert (
        f"topic '{name}', partition 0: the partition ends at 20, so offsets 20 to 99 are gone" in caplog.text
    )
    assert (
        f"topic '{name}', partition 1: the partition ends at 0, so offsets 50 to 99 are gone" in caplog.text
    )


def test_records_that_do_not_come_are_an_error_that_names_them(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Kafka away for less than the time-out is waited for, for longer it is an error."""
    server = Kafka(tmp_path_factory.mktemp("kafka"), guarded=True)
    server.start()
    kafka = KafkaSettings(config={"bootstrap.servers": server.address})
    fetcher = RangeFetcher({**kafka.config, "group.id": "gone"}, read_timeout=30)
    try:
        name = create_topic(kafka, 1)
        produce(kafka, name, {0: numbered("0:", 10)})
        assert fetched(fetcher, {(name, 0): (0, 5)}) == expected({(name, 0): (0, 5)})
        server.stop()
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.append(fetched(fetcher, {(name, 0): (0, 10)})))
        thread.start()
        thread.join(2)
        assert thread.is_alive(), "a Kafka that is away is waited for"
        server.start()
        thread.join(30)
        assert found == [expected({(name, 0): (0, 10)})]
        server.kill()
        fetcher.read_timeout = 2
        with pytest.raises(
            KafkaReadError, match=rf"topic '{name}', partition 0: nothing at offset 0 .*for 2 s"
        ):
            fetched(fetcher, {(name, 0): (0, 10)})
    finally:
        fetcher.close()
        server.kill()


def test_an_idle_fetcher_stops_fetching_and_later_leaves(
    kafka: KafkaSettings, topic: str, eventually: Eventually
) -> None:
    cache = FetcherCache(park_after=0.2, close_after=0.8)
    config = {**kafka.config, "group.id": "idle"}
    fetcher = cache.take(config, 30)
    assert fetched(fetcher, {(topic, 0): (0, 10)})
    cache.put_back(config, fetcher)
    assert cache.take(config, 30) is fetcher
    cache.put_back(config, fetcher)
    assert fetcher.held() == {(topic, 0)}
    eventually(lambda: not fetcher.held(), 5, "parking")
    eventually(lambda: cache.idle == 0, 5, "closing")
    other = cache.take(config, 30)
    assert other is not fetcher
    assert fetched(other, {(topic, 0): (10, 20)}) == expected({(topic, 0): (10, 20)})
    other.close()
