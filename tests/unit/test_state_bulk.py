"""The vectorised form of state: many keys got and put at once do what one by one does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from muster.consumer.state.bulk import BulkState
from muster.consumer.state.codec import pack, unpack, unpack_all
from muster.consumer.state.errors import StateError
from muster.consumer.state.handle import LARGEST, Overlay, TooManyChangesError
from muster.consumer.state.position import Variable

KIND = StructType([StructField("n", LongType()), StructField("s", StringType())])
PRICES = Variable(1, "value", KIND.json())


class Committed:
    """What is stored, and the keys that were `asked` for."""

    def __init__(self, found: dict[bytes, bytes] | None = None) -> None:
        self.found = found or {}
        self.asked: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        return self.found.get(key)

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        self.asked += keys
        return {key: self.found[key] for key in keys if key in self.found}

    def scan(self, _prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(())


def state(below: Committed | None = None, most: int | None = None) -> tuple[BulkState, Overlay]:
    overlay = Overlay(below or Committed(), 7, most)
    return BulkState(overlay, {"prices": PRICES}), overlay


def rows(*values: tuple[Any, Any]) -> pa.Table:
    numbers, texts = zip(*values, strict=True)
    return pa.table({"n": pa.array(numbers, pa.int64()), "s": pa.array(texts, pa.string())})


def test_bulk_gets_what_it_put_and_deleted() -> None:
    bulk, _ = state()
    keys = pa.chunked_array([["a", "b"], ["c", None]])
    bulk.put("prices", keys, rows((1, "x"), (2, None), (None, "z"), (4, "null")))
    bulk.put("prices", ["b", "b"], rows((5, "first"), (6, "last")))
    bulk.delete("prices", ["a"])
    found = bulk.get("prices", pa.array(["c", "b", "a", None, "b"]))
    assert found.to_pylist() == [
        {"n": None, "s": "z"},
        {"n": 6, "s": "last"},
        {"n": None, "s": None},
        {"n": 4, "s": "null"},
        {"n": 6, "s": "last"},
    ]
    assert bulk.get("prices", pa.array([], pa.string())).num_rows == 0


def test_bulk_reads_the_store_once_a_key() -> None:
    first, written = state()
    first.put("prices", ["a", "b"], rows((1, "x"), (2, "y")))
    keys, values = written.written()
    below = Committed({key: value for key, value in zip(keys, values, strict=True) if value is not None})
    bulk, _ = state(below)
    names = pa.array(["a", "b"])
    assert bulk.get("prices", names).column("n").to_pylist() == [1, 2]
    bulk.put("prices", names, rows((3, "x"), (4, "y")))
    assert bulk.get("prices", names).column("n").to_pylist() == [3, 4]
    assert bulk.get("prices", pa.table({"key": names})).column("n").to_pylist() == [3, 4]
    bulk.get("prices", ["a"])
    assert sorted(below.asked) == sorted(keys)


def test_bulk_reads_added_fields_as_null() -> None:
    bulk, overlay = state()
    bulk.put("prices", ["a", "b"], rows((1, "x"), (2, "y")))
    (a, _), _ = overlay.written()
    overlay.changes[a[4:]] = pack((5,))  # of a schema with one field
    assert bulk.get("prices", ["a", "b"]).to_pylist() == [{"n": 5, "s": None}, {"n": 2, "s": "y"}]


def test_bulk_counts_bytes_as_one_by_one() -> None:
    keys = [b"a", b"bb", b"a"]
    values = [b"1", b"22", b"333"]
    many, single = Overlay(Committed(), 7), Overlay(Committed(), 7)
    for overlay in (many, single):
        overlay.put(b"bb", b"before")
        overlay.delete(b"a")
    many.put_many(keys, values)
    for key, value in zip(keys, values, strict=True):
        single.put(key, value)
    assert many.size == single.size
    assert many.changes == single.changes
    with pytest.raises(TooManyChangesError):
        Overlay(Committed(), 7, 4).put_many([b"a", b"b"], [b"1", b"23"])
    with pytest.raises(StateError, match=f"{LARGEST} is the most"):
        many.put_many([b"k"], [b"v" * LARGEST])


def test_values_are_read_together_as_one_by_one() -> None:
    written = [pack(value) for value in ((1, "x"), (None,), ([1, 2], {"k": b"v"}))]
    assert unpack_all(written) == [unpack(one) for one in written]
    assert unpack_all([]) == []
