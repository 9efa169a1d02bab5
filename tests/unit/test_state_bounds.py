"""How much a batch may change of a shard, and the initial state that a shard begins with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.sql import Row

from muster.consumer.state import compute as computing
from muster.consumer.state.compute import PROCESSING_TIME, SHARD, in_task
from muster.consumer.state.errors import StateError
from muster.consumer.state.handle import TooManyChangesError
from muster.consumer.state.initial import Initial
from muster.consumer.state.position import Place, Position
from muster.consumer.state.shards import Shard as HeldShard
from muster.consumer.state.shards import States
from muster.core.partitioner import partition_of
from muster.core.state_topics import StateTopics
from muster.settings.connections import KafkaSettings
from tests.support.state_shard import Count, Shard, keyed, table

KAFKA = KafkaSettings(config={"bootstrap.servers": "k:1"})


def test_task_gives_no_changes_above_its_bound(tmp_path: Path) -> None:
    shard = Shard(tmp_path, Count(), most=60)
    many, few = table(keyed(*"abcdefgh")), table(keyed(*"ab"))
    work = shard.work(shard.task())
    shard.store.close()  # another process has it
    (said,) = (row[SHARD] for batch in in_task(work)(many.to_batches()) for row in batch.to_pylist())
    assert "size" not in said
    found = [row for batch in in_task(work)(few.to_batches()) for row in batch.to_pylist()]
    assert '"size"' in found[-1][SHARD]
    assert [row["n"] for row in found[:-1]] == [1, 1]


def test_single_record_may_change_more(tmp_path: Path) -> None:
    shard = Shard(tmp_path, Count(), most=5)
    with pytest.raises(TooManyChangesError):
        shard.batch(keyed("a", "b"))
    assert shard.batch(keyed("a")) == [{"key": "a", "n": 1}]


class Alarm(Count):
    def init(self, handle: Any) -> None:
        super().init(handle)
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        self.handle.registerTimer(2000)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        yield Row(key=key.key, n=0)


def test_timers_beyond_the_bound_wait_for_the_next_batch(tmp_path: Path) -> None:
    shard = Shard(tmp_path, Alarm(), mode=PROCESSING_TIME)
    shard.batch(keyed(*"abcdef"))
    shard.now, shard.more["most"] = 3000, 100
    rounds = []
    while found := shard.batch(None):
        rounds.append([row["key"] for row in found])
    assert [key for keys in rounds for key in keys] == [*"abcdef"]
    assert len(rounds) > 1


def test_next_batch_is_as_large_as_its_share_allows(tmp_path: Path) -> None:
    states = States("c", "me", KAFKA, StateTopics([".*"]), tmp_path, most_changes=1000)
    for number in range(2):
        store = Shard(tmp_path / str(number), Count()).store
        states._shards["t", number] = HeldShard(1, "log", store, store.mark, Position({"t": Place(0)}), 2)
    assert states.most(("t", 0)) is None, "nothing is known of it"
    states.changed(("t", 0), 100, 1000)
    assert states.most(("t", 0)) == 37
    states.changed(("t", 0), 50, 2 * 500)
    assert states.most(("t", 0)) == 18, "less than half of what was too much"
    states.changed(("t", 0), 25, 25)
    assert states.most(("t", 0)) == 35, "what helped once is unlearnt by and by"
    states.changed(("t", 0), 1, 9_000_000)
    assert states.most(("t", 0)) == 1
    states.keep({})


class Begun(Count):
    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self.state.update((initialState.n + (self.state.get() or (0,))[0],))


def initial(*rows: tuple[str, int]) -> Initial:
    keys, numbers = zip(*rows, strict=True)
    return Initial(pa.table({"key": keys, "n": numbers}), 1)


def test_initial_state_comes_before_the_rows(tmp_path: Path) -> None:
    shard = Shard(tmp_path, Begun())
    found = shard.batch(keyed("a", "b", "a"), initial(("a", 100), ("c", 7), ("a", 1000)))
    assert found == [{"key": "a", "n": 1102}, {"key": "b", "n": 1}]
    assert shard.batch(keyed("c", "a")) == [{"key": "c", "n": 8}, {"key": "a", "n": 1103}]


def test_initial_state_is_bounded_by_itself(tmp_path: Path) -> None:
    begin = initial(*((f"k{n}", n) for n in range(20)))
    shard = Shard(tmp_path, Begun(), most=100)
    assert len(shard.batch(keyed("k1", "k2"), begin)) == 2, "it does not count for the batch"
    with (
        mock.patch.object(computing, "LARGEST_INITIAL", 100),
        pytest.raises(StateError, match="initial state of one partition changes more than 100 bytes"),
    ):
        Shard(tmp_path / "other", Begun()).batch(keyed("k1"), begin)


@pytest.mark.parametrize(
    ("key", "found"),  # of the tests of Kafka's own client
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_are_placed_as_by_kafkas_client(key: bytes, found: int) -> None:
    assert partition_of(key, 1 << 31) == found & 0x7FFFFFFF


def test_records_of_another_partitioner_refuse_initial_state() -> None:
    at = partition_of(b"foobar", 4)
    begin = Initial(pa.table({"key": ["foobar"], "n": [1]}), 4)
    begin.check(("t", at), table(keyed("foobar", None)))
    with pytest.raises(StateError, match=rf"partitioner puts that key in partition {at}"):
        begin.check(("t", at + 1), table(keyed("foobar")))


class Remembers(Count):
    """Keeps something in itself."""

    seen = ""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        self.seen += key[0]
        yield Row(key=self.seen, n=0)


def test_each_shard_has_a_processor_of_its_own(tmp_path: Path) -> None:
    shard, other = Shard(tmp_path / "0", Remembers()), Shard(tmp_path / "1", Remembers())
    work = shard.work(shard.task())
    work = replace(work, shards={("t", 0): shard.task(), ("t", 1): replace(other.task(), tp=("t", 1))})
    shard.store.close()
    other.store.close()
    rows = [table(keyed("a")), table(keyed("b")).set_column(1, "partition", pa.array([1]))]
    found = [row for batch in in_task(work)(pa.concat_tables(rows).to_batches()) for row in batch.to_pylist()]
    assert [row["key"] for row in found if row["key"]] == ["a", "b"]
