"""Processors for state by key: classes of Spark's own kind, and a function."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle


class Totals(StatefulProcessor):
    """Count and sum by key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.totals = handle.getValueState("totals", "n long, total long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        n, total = self.totals.get() or (0, 0)
        for row in rows:
            n, total = n + 1, total + row.amount
        self.totals.update((n, total))
        yield Row(key=key[0], n=n, total=total)

    def close(self) -> None:
        pass


class Begun(Totals):
    """Totals that begin with those of an initial state."""

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        n, total = self.totals.get() or (0, 0)
        self.totals.update((n + initialState.n, total + initialState.total))


class TotalsInPandas(Totals):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        n, total = self.totals.get() or (0, 0)
        for frame in rows:
            n, total = n + len(frame), total + int(frame["amount"].sum())
        self.totals.update((n, total))
        yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})


class Announced(Totals):
    """Writes each total as a record."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for row in super().handleInputRows(key, rows, timerValues):
            yield (row.key, json.dumps({"n": row.n, "total": row.total}))


class Alarmed(Totals):
    """Sets a timer with the first record of a key, which fails for one key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        if not self.totals.exists():
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1)
        yield from super().handleInputRows(key, rows, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        if key[0] == "1":
            raise OSError("no service")
        return iter(())


def totals_in_arrow(rows: pa.Table, state: Any) -> pa.Table:
    sums = rows.group_by("key", use_threads=False).aggregate([("amount", "count"), ("amount", "sum")])
    before = state.get("totals", sums["key"])
    after = pa.table(
        {
            "n": pc.add(sums["amount_count"], pc.fill_null(before["n"], 0)),
            "total": pc.add(sums["amount_sum"], pc.fill_null(before["total"], 0)),
        }
    )
    state.put("totals", sums["key"], after)
    return pa.table({"key": sums["key"], "n": after["n"], "total": after["total"]})
