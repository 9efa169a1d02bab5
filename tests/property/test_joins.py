"""The joins that ship, against an oracle that has all rows at once: whatever the batches, the same comes out."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import Row

from muster.consumer.state.compute import EVENT_TIME
from muster.consumer.state.position import Place
from muster.handlers.joins import How, Lookup, StreamJoin
from tests.support.only_long import LONG
from tests.support.state_shard import NUMBER, Shard

HISTORIES = 200 if LONG else 20
KEYS = ("a", "b", None)
OUT = pa.schema([("key", pa.string()), ("left", pa.int64()), ("right", pa.int64())])
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
DELAY = 2_000
Found = tuple[str | None, int | None, int | None]


@dataclass(frozen=True)
class Record:
    topic: str
    offset: int
    key: str | None
    at: int | None
    """Its event time, in microseconds since `BEGIN`."""
    n: int | None

    def row(self) -> Row:
        at = None if self.at is None else BEGIN + timedelta(microseconds=self.at)
        return Row(topic=self.topic, offset=self.offset, key=self.key, at=at, n=self.n)


def out(key: tuple[Any, ...], left: Any, right: Any) -> Row:
    return Row(key=key[0], left=left and left.n, right=right and right.n)


def batches(seed: int, topics: tuple[str, str], nulls: float) -> list[list[Record]]:
    """Draw batches of two topics, those of the first before those of the second."""
    draw, ends, now = random.Random(seed), dict.fromkeys(topics, 0), 0
    found = []
    for _ in range(draw.randrange(4, 14)):
        now += draw.randrange(4_000_000)
        batch = []
        for topic in topics:
            for _ in range(draw.choice([0, 1, 2, 4])):
                at = None if draw.random() < 0.05 else max(0, now - draw.randrange(6_000_000))
                n = None if draw.random() < nulls else draw.randrange(100)
                batch.append(Record(topic, ends[topic], draw.choice(KEYS), at, n))
                ends[topic] += 1
        found.append(batch)
    return found


def run(
    folder: Path, processor: Any, batches: list[list[Record]], topics: tuple[str, str], **more: Any
) -> list[Found]:
    shard = Shard(folder, processor, out=OUT, **more)
    shard.places = {topic: Place() for topic in topics}
    found = []
    for batch in batches:
        rows = shard.batch([record.row() for record in batch] or None)
        found += [(row["key"], row["left"], row["right"]) for row in rows]
    return found


@pytest.mark.parametrize("how", [How.INNER, How.LEFT])
def test_lookup_gives_what_an_oracle_gives(tmp_path: Path, how: str) -> None:
    topics = ("prices", "orders")
    for seed in range(HISTORIES):
        drawn = batches(seed, topics, nulls=0.3)
        latest: dict[str | None, int | None] = {}
        expected: list[Found] = []
        for record in (record for batch in drawn for record in batch):
            if record.topic == "prices":
                latest[record.key] = record.n
            else:
                value = None if record.key is None else latest.get(record.key)
                if value is not None or how == How.LEFT:
                    expected.append((record.key, record.n, value))
        found = run(tmp_path / str(seed), Lookup("prices", NUMBER, out, how), drawn, topics)
        assert Counter(found) == Counter(expected), seed


@dataclass(frozen=True)
class Window:
    """A right row is so much later than its left one, in microseconds."""

    low: int
    high: int

    def has(self, left: Record, right: Record) -> bool:
        if None in {left.at, right.at, left.key}:
            return False
        return left.key == right.key and self.low <= right.at - left.at <= self.high  # type: ignore[operator]


def oracle(drawn: list[list[Record]], topics: tuple[str, str], window: Window, how: str) -> list[Found]:
    """What a join gives that has all rows which are not late, and at the end knows the last watermark in force."""
    tops: dict[str, int | None] = dict.fromkeys(topics)
    watermark: int | None = None
    kept: list[Record] = []
    for batch in drawn:
        known = [top for top in tops.values() if top is not None]
        watermark = min(known) - DELAY if len(known) == len(tops) else None
        floor = None if watermark is None else watermark * 1000
        for record in batch:
            if record.at is not None:
                tops[record.topic] = max(tops[record.topic] or 0, record.at // 1000)
        kept += [r for r in batch if floor is None or r.at is None or r.at > floor]
    lefts, rights = ([record for record in kept if record.topic == topic] for topic in topics)
    pairs = [(left, right) for left in lefts for right in rights if window.has(left, right)]
    found: list[Found] = [(left.key, left.n, right.n) for left, right in pairs]

    def lonely(record: Record, side: int, last: int) -> bool:
        over = watermark is not None and record.at is not None and record.at + last <= watermark * 1000
        never = record.at is None or record.key is None
        return all(pair[side] is not record for pair in pairs) and (never or over)

    if how in {How.LEFT, How.FULL}:
        found += [(left.key, left.n, None) for left in lefts if lonely(left, 0, window.high)]
    if how in {How.RIGHT, How.FULL}:
        found += [(right.key, None, right.n) for right in rights if lonely(right, 1, -window.low)]
    return found


@pytest.mark.parametrize("how", [*How])
def test_stream_join_gives_what_an_oracle_gives(tmp_path: Path, how: str) -> None:
    topics, outer = ("clicks", "buys"), 0
    for seed in range(HISTORIES):
        drawn = batches(seed, topics, nulls=0)
        draw = random.Random(seed)
        # A millisecond is what the watermark is known to.
        low, high = sorted(1000 * draw.randrange(-3_000, 3_000) for _ in range(2))
        join = StreamJoin(
            "clicks", "buys", NUMBER, NUMBER, out,
            before=timedelta(microseconds=-low), after=timedelta(microseconds=high), how=how, event_time="at",
        )  # fmt: skip
        folder = tmp_path / str(seed)
        found = run(folder, join, drawn, topics, mode=EVENT_TIME, event_time="at", delay=DELAY)
        expected = oracle(drawn, topics, Window(low, high), how)
        assert Counter(found) == Counter(expected), seed
        outer += sum(None in row[1:] for row in expected)
    assert (outer > 0) == (how != How.INNER)


def test_stream_join_forgets_rows_no_partner_can_reach(tmp_path: Path) -> None:
    join = StreamJoin("l", "r", NUMBER, NUMBER, out, after=timedelta(seconds=1), event_time="at")
    shard = Shard(tmp_path, join, out=OUT, mode=EVENT_TIME, event_time="at")
    shard.places = {"l": Place(), "r": Place()}
    for number in range(20):
        at = number * 10_000_000
        shard.batch([Record(topic, number, "a", at, number).row() for topic in ("l", "r")])
    with_last = len([*shard.store.reader().scan(b"")])
    assert with_last < 20, "all but the newest rows and their timers are gone"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"how": "left"}, "how: 'left'; it is inner, leftOuter, rightOuter, fullOuter"),
        ({"right": "l"}, "left and right are both 'l'"),
        ({"after": timedelta(seconds=-1)}, "no right row is both"),
    ],
)
def test_stream_join_that_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    given = {"left": "l", "right": "r", "left_columns": NUMBER, "right_columns": NUMBER, "output": out}
    with pytest.raises(ValueError, match=said):
        StreamJoin(**{**given, **changes})


def test_row_of_no_side_is_refused(tmp_path: Path) -> None:
    join = StreamJoin("l", "r", NUMBER, NUMBER, out, event_time="at")
    shard = Shard(tmp_path, join, out=OUT, mode=EVENT_TIME, event_time="at")
    with pytest.raises(ValueError, match="column 'topic' is 't', and the sides are"):
        shard.batch([Record("t", 0, "a", 1, 1).row()])


def test_lookup_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="how: 'rightOuter'; a lookup is inner or leftOuter"):
        Lookup("t", NUMBER, out, How.RIGHT)


def test_schema_as_text_needs_a_spark_session() -> None:
    without = mock.patch.object(SparkContext, "_active_spark_context", None)
    with without, pytest.raises(ValueError, match="'n long' cannot be read without a Spark session"):
        Lookup("t", "n long", out)
