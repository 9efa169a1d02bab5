"""What values of state become, as their schema says, and how they expire: as in Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from muster.consumer.state.codec import fitting, pack, reader_of
from muster.consumer.state.compute import PROCESSING_TIME
from muster.consumer.state.errors import StateError
from tests.support.state_shard import NUMBER, Count, Shard, keyed

LONG, INT, DOUBLE = LongType(), IntegerType(), DoubleType()


def kept(kind: DataType, value: Any) -> Any:
    """What is read of a value of this type."""
    schema = StructType([StructField("x", kind)])
    return reader_of(schema)(pack(fitting(schema)((value,))))[0]


SOMEWHERE = datetime(2026, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=5)))


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        (LONG, np.int64(5), 5),
        (INT, 2**31 - 1, 2**31 - 1),
        (DOUBLE, 1, 1.0),
        (DOUBLE, np.float32(0.5), 0.5),
        (FloatType(), 0.1, float(np.float32(0.1))),
        (StringType(), np.str_("x"), "x"),
        (BinaryType(), bytearray(b"x"), b"x"),
        (BooleanType(), np.bool_(True), True),
        (DateType(), datetime(2026, 1, 2, 3, tzinfo=UTC), date(2026, 1, 2)),
        (TimestampType(), SOMEWHERE, SOMEWHERE.astimezone().replace(tzinfo=None)),
        (TimestampType(), pd.Timestamp(SOMEWHERE), SOMEWHERE.astimezone().replace(tzinfo=None)),
        (DecimalType(10, 2), Decimal("3.5"), Decimal("3.50")),
        (ArrayType(INT), np.array([1, 2]), [1, 2]),
        (ArrayType(TimestampType()), [SOMEWHERE], [SOMEWHERE.astimezone().replace(tzinfo=None)]),
        (MapType(StringType(), LONG), {"a": np.int64(1), "b": None}, {"a": 1, "b": None}),
        (
            StructType([StructField("a", INT), StructField("b", StringType())]),
            {"b": "x", "a": np.int32(1)},
            Row(a=1, b="x"),
        ),
    ],
)
def test_values_become_what_their_schema_says(kind: DataType, value: Any, found: Any) -> None:
    assert repr(kept(kind, value)) == repr(found)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (LONG, 1.5),
        (LONG, True),
        (LONG, "1"),
        (INT, 2**31),
        (DOUBLE, "1"),
        (StringType(), 1),
        (BooleanType(), 1),
        (DecimalType(3, 2), Decimal(100)),
        (TimestampType(), date(2026, 1, 2)),
        (ArrayType(INT), ["x"]),
        (StructType([StructField("a", INT)]), (1, 2)),
    ],
)
def test_values_of_another_type_are_refused(kind: DataType, value: Any) -> None:
    with pytest.raises(TypeError, match="field 'x' is"):
        kept(kind, value)


class Does(Count):
    """What the test says."""

    def __init__(self, does: Any) -> None:
        self.does = does

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.list = handle.getListState("list", NUMBER, 1000)
        self.map = handle.getMapState("map", StructType([StructField("k", StringType())]), NUMBER, 1000)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        self.does(self, [row.amount for row in rows])
        return iter(())


def test_elements_of_a_list_expire_one_by_one(tmp_path: Path) -> None:
    found: list[Any] = []

    def does(it: Does, amounts: list[int]) -> None:
        it.list.appendList([(amount,) for amount in amounts])
        it.map.updateValue((str(amounts[0]),), (1,))
        found.append(([n for (n,) in it.list.get()], sorted(k for ((k,), _) in it.map.iterator())))

    shard = Shard(tmp_path, Does(does), mode=PROCESSING_TIME)
    for now, amount in ((1000, 1), (1600, 2), (2100, 3)):
        shard.now = now
        shard.batch([Row(key="a", amount=amount)])
    assert found == [([1], ["1"]), ([1, 2], ["1", "2"]), ([2, 3], ["2", "3"])]
    shard.now = 9000
    shard.batch(None)
    assert list(shard.store.reader().scan(b"")) == []


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (lambda it, _: it.list.put([]), "an empty list is no value"),
        (lambda it, _: it.list.appendValue(5), "5 is no tuple"),
        (lambda it, _: it.map.updateValue((1,), (1,)), "field 'k' is string, and 1 is none"),
        (lambda it, _: it.handle.getValueState("more", NUMBER), "declared after init"),
        (lambda it, _: it.handle.registerTimer(-1), "is before 1970"),
    ],
)
def test_misuse_of_the_handle_is_named(tmp_path: Path, does: Any, said: str) -> None:
    with pytest.raises(StateError, match=said):
        Shard(tmp_path, Does(does), mode=PROCESSING_TIME).batch(keyed("a"))


class Early(Count):
    def __init__(self, ttl: int = 0) -> None:
        self.ttl = ttl

    def init(self, handle: Any) -> None:
        self.state = handle.getValueState("state", NUMBER, self.ttl)
        self.state.get()


def test_init_has_no_key(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="init and close have no key"):
        Shard(tmp_path, Early()).batch(keyed("a"))
    with pytest.raises(StateError, match="ttlDurationMs is -5"):
        Shard(tmp_path, Early(-5)).batch(keyed("a"))


class Mixed(Count):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield Row(key=key[0], n=1, more=Row(x=1, y=["z"]))
        yield Row(more=None, n=2, key=key[0])


def test_output_is_taken_by_name(tmp_path: Path) -> None:
    more = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
    shard = Shard(tmp_path, Mixed(), out=pa.schema([("key", pa.string()), ("n", pa.int64()), ("more", more)]))
    assert shard.batch(keyed("a")) == [
        {"key": "a", "n": 1, "more": {"x": 1, "y": ["z"]}},
        {"key": "a", "n": 2, "more": None},
    ]
