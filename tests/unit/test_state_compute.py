"""What tasks make of a shard's rows: PySpark's own processors over a local store, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DecimalType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from muster.consumer.state.compute import (
    ARROW,
    CHANGES,
    EVENT_TIME,
    PANDAS,
    PROCESSING_TIME,
    ROW,
    in_task,
    unpacked,
)
from muster.consumer.state.errors import StateError, StateStoreError, TimerFailedError, failed_timer
from muster.consumer.state.handle import LARGEST
from muster.consumer.state.position import Place
from tests.support.state_shard import NUMBER, Count, Shard, keyed, table


class OneOfEach(StatefulProcessor):
    """Value, list and map, each asked in every way."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", NUMBER)
        self.list = handle.getListState("list", NUMBER)
        self.map = handle.getMapState("map", StructType([StructField("k", StringType())]), NUMBER)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        amounts = [row.amount for row in rows]
        assert self.value.exists() == (self.value.get() is not None)
        self.value.update(((self.value.get() or (0,))[0] + len(amounts),))
        self.list.appendValue((amounts[0],))
        if amounts[1:]:
            self.list.appendList([(amount,) for amount in amounts[1:]])
        assert self.list.exists()
        for amount in amounts:
            self.map.updateValue((str(amount % 2),), (amount,))
        assert self.map.exists()
        assert self.map.containsKey((str(amounts[0] % 2),))
        assert [*zip(self.map.keys(), self.map.values(), strict=True)] == [*self.map.iterator()]
        said = ",".join(str(n) for (n,) in self.list.get()) + "/"
        said += ",".join(f"{k}={v}" for (k,), (v,) in self.map.iterator())
        yield Row(key=f"{key[0]}:{said}", n=self.value.get()[0])
        if amounts[-1] == 99:
            for state in (self.value, self.list, self.map):
                state.clear()
            assert not (self.value.exists() or self.list.exists() or self.map.exists())
        if amounts[-1] == 98:
            self.map.removeKey(("0",))
            self.list.put([(5,)])

    def close(self) -> None:
        pass


def test_value_list_and_map_last_over_batches(tmp_path: Path) -> None:
    shard = Shard(tmp_path, OneOfEach())
    assert shard.batch(keyed("a", "b", "a")) == [{"key": "a:0,2/0=2", "n": 2}, {"key": "b:1/1=1", "n": 1}]
    assert shard.batch(keyed("b", "b")) == [{"key": "b:1,0,1/0=0,1=1", "n": 3}]
    assert shard.batch([Row(key="b", amount=98)]) == [{"key": "b:1,0,1,98/0=98,1=1", "n": 4}]
    assert shard.batch([Row(key="b", amount=3)]) == [{"key": "b:5,3/1=3", "n": 5}]
    assert shard.batch([Row(key="b", amount=99)]) == [{"key": "b:5,3,99/1=99", "n": 6}]
    assert shard.batch(keyed("b", "a")) == [{"key": "b:0/0=0", "n": 1}, {"key": "a:0,2,1/0=2,1=1", "n": 3}]


class CountInPandas(Count):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        n = (self.state.get() or (0,))[0] + sum(len(frame) for frame in rows)
        self.state.update((n,))
        yield pd.DataFrame({"key": [key[0]], "n": [n]})


def count_in_arrow(rows: pa.Table, state: Any) -> pa.Table:
    counts = rows.group_by("key", use_threads=False).aggregate([("amount", "count")])
    before = state.get("state", counts["key"])["n"].to_pylist()
    after = [(old or 0) + new for old, new in zip(before, counts["amount_count"].to_pylist(), strict=True)]
    state.put("state", counts["key"], pa.table({"n": after}))
    return pa.table({"key": counts["key"], "n": pa.array(after, pa.int64())})


FORMS = {ROW: Count(), PANDAS: CountInPandas(), ARROW: count_in_arrow}


@pytest.mark.parametrize("form", FORMS)
def test_forms_count_the_same(tmp_path: Path, form: str) -> None:
    shard = Shard(tmp_path, FORMS[form], form)
    assert shard.batch(keyed("b", None, "b", "a")) == [
        {"key": "b", "n": 2},
        {"key": None, "n": 1},
        {"key": "a", "n": 1},
    ]
    assert shard.batch(keyed(None, "c", "b")) == [
        {"key": None, "n": 2},
        {"key": "c", "n": 1},
        {"key": "b", "n": 3},
    ]


@pytest.mark.parametrize("length", [600, 100_000])
def test_long_keys_are_kept_apart(tmp_path: Path, length: int) -> None:
    shard = Shard(tmp_path, Count())
    one, two = "x" * length + "1", "x" * length + "2"
    shard.batch(keyed(one, two, one))
    found = {row["key"]: row["n"] for row in shard.batch(keyed(two, one))}
    assert found == {one: 3, two: 2}


class TooLarge(Count):
    def init(self, handle: Any) -> None:
        self.state = handle.getValueState("state", StructType([StructField("s", StringType())]))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        self.state.update(("x" * LARGEST,))
        return iter(())


def test_entry_above_the_limit_fails_with_it(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=rf"{LARGEST} is the most"):
        Shard(tmp_path, TooLarge()).batch(keyed("a"))


class Session(Count):
    """Counts until nothing came for 10 s."""

    def now(self, values: Any) -> int:
        return int(values.getCurrentProcessingTimeInMs())

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        list(super().handleInputRows(key, rows, timerValues))
        for moment in self.handle.listTimers():
            self.handle.deleteTimer(moment)
        self.handle.registerTimer(self.now(timerValues) + 10_000)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        yield Row(key=f"{key[0]}@{expiredTimerInfo.getExpiryTimeInMs()}", n=self.state.get()[0])
        self.state.clear()


def test_processing_timers_fire_once_when_due(tmp_path: Path) -> None:
    shard = Shard(tmp_path, Session(), mode=PROCESSING_TIME)
    assert shard.batch(keyed("a", "b")) == []
    shard.now = 5000
    assert shard.batch(keyed("b")) == []
    shard.now = 11_000
    assert shard.batch(None) == [{"key": "a@11000", "n": 1}]
    shard.now = 20_000
    assert shard.batch(keyed("c")) == [{"key": "b@15000", "n": 2}]
    shard.now = 30_000
    assert shard.batch(None) == [{"key": "c@30000", "n": 1}]
    assert list(shard.store.reader().scan(b"")) == []


class SessionByEvents(Session):
    def now(self, values: Any) -> int:
        return int(values.getCurrentWatermarkInMs())


def at(second: int, key: str = "a") -> Row:
    return Row(key=key, amount=1, at=datetime.fromtimestamp(second, UTC))


def test_event_timers_wait_for_the_watermark(tmp_path: Path) -> None:
    shard = Shard(tmp_path, SessionByEvents(), mode=EVENT_TIME, event_time="at", delay=2000)
    assert shard.batch([at(100)]) == []
    assert shard.batch([at(112), at(95, "late")]) == []
    assert shard.places["t"].top == 112_000
    assert shard.batch([at(130, "b")]) == [{"key": "a@108000", "n": 2}]


def test_late_rows_are_dropped_and_counted(tmp_path: Path) -> None:
    shard = Shard(tmp_path, Count(), mode=EVENT_TIME, event_time="at", delay=2000)
    shard.batch([at(100)])
    result = shard.compute([at(97), at(98), at(101)])
    assert result.late == 2, "what is at the watermark is late, as in Spark"
    assert result.output.to_pylist() == [{"key": "a", "n": 2}]


class Short(Count):
    """Values live for a second."""

    def init(self, handle: Any) -> None:
        self.state = handle.getValueState("state", NUMBER, 1000)


def test_ttl_removes_dead_values_and_no_live_one(tmp_path: Path) -> None:
    shard = Shard(tmp_path, Short())
    shard.batch(keyed("a", "b"))
    shard.now = 1500
    assert shard.batch(keyed("b")) == [{"key": "b", "n": 2}]
    shard.now = 2000
    shard.batch(None)
    left = [key for key, _ in shard.store.reader().scan(b"")]
    assert len(left) == 2, "b's value and its expiry"
    assert shard.batch(keyed("a", "b")) == [{"key": "a", "n": 1}, {"key": "b", "n": 3}]
    shard.now = 3000
    shard.batch(None)
    assert list(shard.store.reader().scan(b"")) == []


RICH = StructType(
    [
        StructField("day", DateType()),
        StructField("price", DecimalType(10, 2)),
        StructField("at", TimestampType()),
        StructField("parts", ArrayType(StructType([StructField("x", LongType())]))),
    ]
)
RICH_VALUE = (date(2026, 1, 2), Decimal("3.50"), datetime(2026, 1, 2, 3, 4, 5, 6), [Row(x=1), None])  # noqa: DTZ001


class Rich(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.state = handle.getValueState("state", RICH)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        found = self.state.get()
        self.state.update(RICH_VALUE)
        yield Row(key=str(found == RICH_VALUE), n=0)

    def close(self) -> None:
        pass


def test_values_of_all_kinds_come_back_as_they_were(tmp_path: Path) -> None:
    shard = Shard(tmp_path, Rich())
    assert shard.batch(keyed("a"))[0]["key"] == "False"
    assert shard.batch(keyed("a"))[0]["key"] == "True"


class Changed(Count):
    """Whose variable is as the test says."""

    def __init__(
        self, schema: StructType, name: str = "state", delete: str = "", ttl: int | None = None
    ) -> None:
        self.schema, self.name, self.delete, self.ttl = schema, name, delete, ttl

    def init(self, handle: Any) -> None:
        if self.delete:
            handle.deleteIfExists(self.delete)
        self.state = handle.getValueState(self.name, self.schema, self.ttl)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        found = self.state.get()
        self.state.update((7,) if len(self.schema.fields) == 1 else (7, "x"))
        yield Row(key=str(found), n=0)


def test_added_nullable_field_reads_as_null(tmp_path: Path) -> None:
    shard = Shard(tmp_path, Count())
    shard.batch(keyed("a"))
    shard.user = Changed(StructType([*NUMBER.fields, StructField("more", StringType())]))
    assert shard.batch(keyed("a"))[0]["key"] == "(1, None)"
    assert shard.batch(keyed("a"))[0]["key"] == "(7, 'x')"


def test_deleted_variable_goes_with_all_it_holds(tmp_path: Path) -> None:
    shard = Shard(tmp_path, Count())
    shard.batch(keyed("a", "b"))
    shard.user = Changed(NUMBER, "other", delete="state")
    assert shard.batch(keyed("a"))[0]["key"] == "None"
    assert len(list(shard.store.reader().scan(b""))) == 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (Changed(StructType([StructField("n", StringType())])), "field 'n' is bigint in the state"),
        (
            Changed(StructType([*NUMBER.fields, StructField("m", LongType(), False)])),
            "'m' was added and is not",
        ),
        (Changed(NUMBER, ttl=5), "without a TTL"),
        (
            Changed(NUMBER, "other"),
            "state variable 'state' is in the state, and the processor does not declare",
        ),
        (OneOfEach(), "'state'"),
    ],
)
def test_other_changes_of_schema_are_refused(tmp_path: Path, changed: Any, said: str) -> None:
    shard = Shard(tmp_path, Count())
    shard.batch(keyed("a"))
    shard.user = changed
    with pytest.raises(StateError, match=said):
        shard.batch(keyed("a"))


class Fails(Session):
    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        raise OSError("no")


def test_failing_timer_is_named_by_key_and_time(tmp_path: Path) -> None:
    shard = Shard(tmp_path, Fails(), mode=PROCESSING_TIME)
    shard.batch(keyed("a"))
    shard.now = 20_000
    with pytest.raises(TimerFailedError) as raised:
        shard.batch(None)
    found = failed_timer(f"TimerFailedError: {raised.value}")
    assert found is not None
    assert (found.tp, found.moment) == (("t", 0), 11_000)
    assert found.why == "the timer of key ('a',) at 1970-01-01T00:00:11.000+00:00 failed: OSError: no"
    shard.dropped = frozenset({(found.moment, found.digest)})
    assert shard.batch(None) == []
    shard.user, shard.dropped = Count(), frozenset()
    assert shard.batch(keyed("a")) == [{"key": "a", "n": 2}], "the rest of the state stays"


@pytest.mark.parametrize("form", [ROW, ARROW])
def test_records_that_are_done_change_nothing(tmp_path: Path, form: str) -> None:
    shard = Shard(tmp_path, FORMS[form], form)
    shard.batch(keyed("a", "b"))
    shard.places = {"t": Place(done=2)}
    assert shard.batch(keyed("a", "b")) == []
    assert shard.changed == 0
    assert [row["key"] for row in shard.batch(keyed("a", "b", "c"))] == ["c"]


@pytest.mark.parametrize(
    ("other", "begins"), [({"upto": 5}, "5 of .+"), ({"identity": "c/t/0/new"}, "0 of c/t/0/new")]
)
def test_task_refuses_another_store_than_its_own(tmp_path: Path, other: dict[str, Any], begins: str) -> None:
    shard = Shard(tmp_path, Count())
    work = shard.work(replace(shard.task(), **other))
    shard.store.close()  # another process has it
    with pytest.raises(
        StateStoreError, match=f"is at 0 of the changelog of .+, and the batch begins at {begins}"
    ):
        list(in_task(work)(table(keyed("a")).to_batches()))


def test_task_gives_output_and_changes_of_each_shard(tmp_path: Path) -> None:
    shard = Shard(tmp_path, Count())
    work = shard.work(shard.task())
    shard.store.close()  # another process has it
    batches = list(in_task(work)(table(keyed("a", "b", "a")).to_batches()))
    rows = pa.Table.from_batches(batches).to_pylist()
    assert [(row["key"], row["n"]) for row in rows] == [("a", 2), ("b", 1), (None, None)]
    keys, values = unpacked(rows[2][CHANGES])
    assert (len(keys), len(values)) == (2, 2)
