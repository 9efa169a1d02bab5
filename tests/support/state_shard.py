"""One shard on disk, whose batches are computed without Spark and applied one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StructField, StructType

from muster.consumer.state.compute import ARROW, NO_TIME, ROW, Result, ShardTask, Work, compute
from muster.consumer.state.handle import Handle, Overlay
from muster.consumer.state.initial import Initial
from muster.consumer.state.position import FIRST, Place, Variable
from muster.consumer.state.store import Store

NUMBER = StructType([StructField("n", LongType())])
OUT = pa.schema([("key", pa.string()), ("n", pa.int64())])
GENERATION = FIRST


class Shard:
    """`user` is what computes it, and `more` are other fields of its `Work`."""

    def __init__(self, folder: Path, user: Any, form: str = ROW, **more: Any) -> None:
        self.store = Store(folder / "store", "s", 0.0)
        self.user, self.form, self.more = user, form, more
        self.known: Mapping[str, Variable] = {}
        self.now, self.places = 1000, {"t": Place()}
        self.changed = 0
        self.dropped = frozenset[tuple[int, str]]()

    def declared(self) -> Mapping[str, Variable]:
        if self.form == ARROW:
            handle = Handle(Overlay(self.store.reader(), GENERATION), self.known, self.now)
            handle.getValueState("state", NUMBER)
        else:
            handle = Handle(
                Overlay(self.store.reader(), GENERATION), self.known, self.now, self.mode != NO_TIME
            )
            copy(self.user).init(handle)
        return handle.variables()

    @property
    def mode(self) -> str:
        return str(self.more.get("mode", NO_TIME))

    def work(self, task: ShardTask) -> Work:
        return Work(
            self.form,
            self.user,
            ("key",),
            self.more.get("out", OUT),
            self.mode,
            self.more.get("event_time", ""),
            self.more.get("delay", 0),
            False,
            {("t", 0): task},
            most=self.more.get("most", 1 << 20),
        )

    def task(self) -> ShardTask:
        mark = self.store.mark
        return ShardTask(
            str(self.store.folder), mark.identity, mark.upto, GENERATION, self.now, self.places, self.known,
            self.declared(), ("t", 0), self.dropped,
        )  # fmt: skip

    def batch(self, rows: list[Row] | None, initial: Initial | None = None) -> list[dict[str, Any]]:
        result = self.compute(rows, initial)
        mark = self.store.mark
        changes = list(zip(result.keys, result.values, strict=True))
        assert self.store.apply(changes, mark, replace(mark, upto=mark.upto + 1))
        self.known, self.changed = self.declared(), len(changes)
        self.places = {name: replace(place, top=result.tops[name]) for name, place in self.places.items()}
        return list(result.output.to_pylist())

    def compute(self, rows: list[Row] | None, initial: Initial | None = None) -> Result:
        task, reader = self.task(), self.store.reader()
        try:
            work = replace(self.work(task), user=copy(self.user))
            return compute(work, task, reader, None if rows is None else table(rows), initial)
        finally:
            reader.close()


def table(rows: list[Row]) -> pa.Table:
    places = [{"topic": "t", "partition": 0, "offset": n} for n in range(len(rows))]
    return pa.Table.from_pylist([{**place, **row.asDict()} for place, row in zip(places, rows, strict=True)])


def keyed(*keys: str | None) -> list[Row]:
    return [Row(key=key, amount=n) for n, key in enumerate(keys)]


class Count(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.state = handle.getValueState("state", NUMBER)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        n = (self.state.get() or (0,))[0] + sum(1 for _ in rows)
        self.state.update((n,))
        yield Row(key=key[0], n=n)

    def close(self) -> None:
        pass
