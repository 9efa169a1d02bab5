"""Processors that use every method of the handle, as rows and as pandas frames, and say all that they see.

A record says what is to be done: `{"what": "list.put", "n": 3, "at": 100}`. The output has a text for each key, so
what Spark and Muster give to a processor is compared with its types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

OUTPUT = "key string, said string, at timestamp"
COLUMNS = (
    "topic",
    "partition",
    "offset",
    "CAST(key AS STRING) AS key",
    "get_json_object(CAST(value AS STRING), '$.what') AS what",
    "CAST(get_json_object(CAST(value AS STRING), '$.n') AS LONG) AS n",
    "CAST(CAST(get_json_object(CAST(value AS STRING), '$.at') AS LONG) AS TIMESTAMP) AS at",
)
NEVER = 10**15
"""A moment that does not come, in milliseconds."""
RICH = (
    "b boolean, y tinyint, i int, l bigint, f float, d double, s string, x binary, day date, at timestamp, "
    "plain timestamp_ntz, price decimal(10,2), many array<int>, named map<string,double>, "
    "of struct<a: int, b: array<struct<c: string>>>"
)


def rich(n: int) -> tuple[Any, ...]:
    moment = datetime(2026, 1, 2, 3, 4, 5, 6000 + n)  # noqa: DTZ001  as Spark has them
    inner = Row(a=n, b=[Row(c="x"), Row(c=None)])
    numbers = (n % 2 == 0, n % 100, n, n << 40, 0.1, 0.1)
    days = (date(2026, 1, 2), moment, moment, Decimal("3.5"))
    return (*numbers, f"s{n}", bytes([n % 256]), *days, [n, None], {"k": None if n % 2 else 0.5}, inner)


class Everything(StatefulProcessor):
    """Does what records say, and says what it has then."""

    variables = ("value", "list", "map", "rich", "long_lived", "long_list", "long_map")

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", "n long, s string")
        self.list = handle.getListState("list", "n long")
        self.map = handle.getMapState("map", "k string, i int", "n long, s string")
        self.rich = handle.getValueState("rich", RICH)
        self.seen: list[Any] = []

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        said = [f"{key!r} {type(key).__name__} now {self.now(timerValues)}"]
        last = None
        for what, n, at, shown in self.orders(rows):
            last = at if last is None else max(at, last)
            said.append(f"{shown} -> {self.act(what, n)!r}")
        yield from self.out(key, [*said, *self.has()], last)

    def orders(self, rows: Any) -> Iterator[tuple[str, int, Any, str]]:
        for row in rows:
            yield row.what, row.n, row.at, repr(row)

    def out(self, key: Any, said: Sequence[str], at: Any = None) -> Iterator[Any]:
        yield Row(key=key[0], said=" | ".join(said), at=at)

    def now(self, values: Any) -> str:
        now, watermark = values.getCurrentProcessingTimeInMs(), values.getCurrentWatermarkInMs()
        return f"{'a time' if now > 0 else now}, watermark {watermark}"

    def act(self, what: str, n: int) -> Any:
        """Do what a record says; returns what that returned."""
        variable, _, method = what.partition(".")
        return getattr(self, f"{variable}_{method}")(n)

    def value_update(self, n: int) -> Any:
        return self.value.exists(), self.value.update((n, f"s{n}")), self.value.exists(), self.value.get()

    def value_nulls(self, _: int) -> Any:
        return self.value.update((None, None)), self.value.exists(), self.value.get()

    def value_clear(self, _: int) -> Any:
        return self.value.clear(), self.value.exists(), self.value.get()

    def list_put(self, n: int) -> Any:
        return self.list.put([(n,), (n + 1,)]), self.list.exists()

    def list_add(self, n: int) -> Any:
        return self.list.appendValue((n,)), self.list.appendList([(n + 1,), (None,)])

    def list_clear(self, _: int) -> Any:
        return self.list.clear(), self.list.exists(), [*self.list.get()]

    def map_update(self, n: int) -> Any:
        key = f"k{n % 3}", n % 2
        return self.map.containsKey(key), self.map.updateValue(key, (n, f"s{n}")), self.map.containsKey(key)

    def map_get(self, n: int) -> Any:
        found = self.map.getValue((f"k{n % 3}", n % 2))
        return self.map.exists(), found, found and found.s

    def map_remove(self, n: int) -> Any:
        return self.map.removeKey((f"k{n % 3}", n % 2)), self.map.exists()

    def map_clear(self, _: int) -> Any:
        return self.map.clear(), self.map.exists()

    def rich_update(self, n: int) -> Any:
        return self.rich.update(rich(n)), self.rich.get()

    def has(self) -> list[str]:
        """Say all that the key has."""
        return [
            f"value {self.value.get()!r}",
            f"list {[*self.list.get()]!r}",
            f"map {sorted(self.map.iterator())!r}",
            f"keys {sorted(self.map.keys())!r} values {sorted(self.map.values())!r}",
            f"rich {self.rich.get()!r}",
        ]

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        for n, shown in self.initial(initialState):
            self.seen.append(f"{key!r} {type(key).__name__} {shown} now {self.now(timerValues)}")
            self.value.update((n, self.seen[-1]))
            self.list.appendValue((n,))

    def initial(self, given: Any) -> Iterator[tuple[int, str]]:
        yield given.n, repr(given)

    def close(self) -> None:
        pass


class Timed(Everything):
    """With timers, and values that expire."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self.long_lived = handle.getValueState("long_lived", "n long", ttlDurationMs=3_600_000)
        self.long_list = handle.getListState("long_list", "n long", ttlDurationMs=3_600_000)
        self.long_map = handle.getMapState("long_map", "k string", "n long", ttlDurationMs=3_600_000)
        self.brief = handle.getValueState("brief", "n long", ttlDurationMs=1)
        self.brief_list = handle.getListState("brief_list", "n long", ttlDurationMs=1)
        self.brief_map = handle.getMapState("brief_map", "k string", "n long", ttlDurationMs=1)

    def live_update(self, n: int) -> Any:
        self.long_lived.update((n,))
        self.long_list.appendValue((n,))
        self.long_map.updateValue((f"k{n}",), (n,))
        self.brief.update((n,))
        self.brief_list.appendList([(n,), (n,)])
        self.brief_map.updateValue((f"k{n}",), (n,))
        return self.brief.get(), [*self.brief_list.get()], [*self.brief_map.iterator()]

    def live_clear(self, _: int) -> Any:
        return self.long_lived.clear(), self.long_list.clear(), self.long_map.clear()

    def timer_register(self, n: int) -> Any:
        return self.handle.registerTimer(n), sorted(self.handle.listTimers())

    def timer_never(self, n: int) -> Any:
        return self.handle.registerTimer(NEVER + n), self.handle.registerTimer(NEVER + n)

    def timer_delete(self, n: int) -> Any:
        return (
            self.handle.deleteTimer(NEVER + n),
            self.handle.deleteTimer(n),
            sorted(self.handle.listTimers()),
        )

    def has(self) -> list[str]:
        there = self.brief.exists(), self.brief_list.exists(), self.brief_map.exists()
        return [
            *super().has(),
            f"long {self.long_lived.get()!r} {[*self.long_list.get()]!r} {sorted(self.long_map.iterator())!r}",
            f"brief {there}",
            f"timers {sorted(self.handle.listTimers())!r}",
        ]

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        at = expiredTimerInfo.getExpiryTimeInMs()
        before = sorted(self.handle.listTimers())
        self.handle.registerTimer(at)  # is deleted when this has returned
        self.handle.registerTimer(NEVER + at)
        said = f"{key!r} {type(key).__name__} timer {at} of {before} now {self.now(timerValues)}"
        yield from self.out(key, [said, *self.has()])


class EventTimed(Everything):
    """With timers of event time: a record registers one at `n` seconds."""

    def timer_register(self, n: int) -> Any:
        return self.handle.registerTimer(1000 * n), sorted(self.handle.listTimers())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        at = expiredTimerInfo.getExpiryTimeInMs()
        yield from self.out(key, [f"{key!r} timer {at} now {self.now(timerValues)}", *self.has()])


class Smaller(StatefulProcessor):
    """Everything's successor: the list and the map went, `added` came."""

    variables = ("value", "added")

    def init(self, handle: StatefulProcessorHandle) -> None:
        for name in ("list", "map", "rich", "was_never"):
            handle.deleteIfExists(name)
        self.value = handle.getValueState("value", "n long, s string")
        self.added = handle.getValueState("added", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        n = sum(1 for _ in rows)
        before = self.added.get()
        self.added.update((n + (before or (0,))[0],))
        yield Row(key=key[0], said=f"{before!r} {self.value.get()!r}", at=None)

    def close(self) -> None:
        pass


class InPandas(Everything):
    """What is another one where frames are given."""

    def orders(self, rows: Any) -> Iterator[tuple[str, int, Any, str]]:
        for frame in rows:
            kinds = {name: str(kind).split("[")[0] for name, kind in frame.dtypes.items()}
            for row in frame.itertuples(index=False):
                yield row.what, row.n, row.at, f"{tuple(row)!r} {kinds}"

    def out(self, key: Any, said: Sequence[str], at: Any = None) -> Iterator[Any]:
        moments = pd.Series([at], dtype="datetime64[ns]")
        yield pd.DataFrame({"key": [key[0]], "said": [" | ".join(said)], "at": moments})

    def initial(self, given: Any) -> Iterator[tuple[int, str]]:
        for row in given.itertuples(index=False):
            yield int(row.n), repr(tuple(row))


class EverythingInPandas(InPandas):
    pass


class TimedInPandas(InPandas, Timed):
    pass


class EventTimedInPandas(InPandas, EventTimed):
    pass
