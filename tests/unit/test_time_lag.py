"""Lag in time, against a log and a group of which the truth is known: idle, a burst, a backlog of two hours."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from muster.core.offsets import FirstRecord, Retention, TopicOffsets
from muster.core.progress import LOOK_EVERY, Look, Mark, look
from muster.core.time_lag import TimeLag, gauges, in_words, of_all, rates, time_lag

TP = ("t", 0)


@dataclass
class Log:
    """A partition with a record at each of `moments`, of which `committed` are committed at a time."""

    moments: list[float]
    committed: Callable[[float], float]
    start: float = 0.0
    """When the coordinator's looks begin."""
    looks: list[Look] = field(default_factory=list)

    def offsets(self, now: float) -> TopicOffsets:
        end = bisect_right(self.moments, now)
        done = min(end, int(self.committed(now)))
        first = {TP: FirstRecord(done, self.moments[done])} if done < end else {}
        return TopicOffsets({"t": frozenset({0})}, {TP: end}, {TP: 0}, {TP: done}, first=first, at=now)

    def seen(self, now: float) -> TimeLag:
        last, at = Look(), self.start
        while at <= now:
            last = look(last, [TP], self.offsets(at), at)
            at += LOOK_EVERY
        return time_lag(last, self.offsets(now), TP)

    def truth(self, now: float) -> TimeLag:
        """How old the oldest record is, and when all are committed, second by second."""
        found = self.offsets(now)
        age = now - found.first[TP].at if TP in found.first else 0.0  # type: ignore[union-attr, operator]
        later = now
        while self.offsets(later).lag(TP):
            later += 0.1
        return TimeLag(age, later - now)


def evenly(rate: float, begin: float, end: float) -> list[float]:
    return [begin + n / rate for n in range(round(rate * (end - begin)))]


HOURS = 7_200.0
BACKLOG = Log(evenly(5, 0, 4 * HOURS), lambda now: max(0.0, now - HOURS) * 20, start=HOURS - 150)
"""Not read for two hours; then four times as much is committed as arrives."""
BURST = Log([1_000.0] * 20_000, lambda now: max(0.0, now - 1_000) * 50, start=910.0)
IDLE = Log(evenly(1, 0, 100), lambda _: 100.0)
STEADY = Log(evenly(10, 0, 1_000), lambda now: math.floor(now * 2) / 2 * 10 + 1, start=15.3)
"""A batch is committed twice a second, and each look meets records that are on their way."""


@pytest.mark.parametrize(
    ("log", "now"),
    [
        (IDLE, 5_000.0),
        (STEADY, 700.3),
        *((BURST, 1_000.0 + after) for after in (65.0, 110.0, 200.0, 350.0, 399.0)),
        *((BACKLOG, HOURS + after) for after in (100.0, 130.0, 1_000.0, 2_000.0)),
    ],
)
def test_lag_in_time_is_near_the_truth(log: Log, now: float) -> None:
    seen, truth = log.seen(now), log.truth(now)
    assert seen.age == pytest.approx(truth.age, rel=0.05, abs=1)
    assert seen.catch_up == pytest.approx(truth.catch_up, rel=0.05, abs=1)


def test_age_needs_no_consumer_and_no_look() -> None:
    assert time_lag(Look(), BACKLOG.offsets(HOURS - 100), TP).age == pytest.approx(HOURS - 100, abs=1)


def test_partition_without_commits_never_catches_up() -> None:
    assert replace(BACKLOG, committed=lambda _: 0.0).seen(HOURS).catch_up == math.inf
    slow = replace(BACKLOG, committed=lambda now: max(0.0, now - HOURS) * 4)
    assert slow.seen(HOURS + 500).never


def test_burst_is_unknown_until_the_next_look() -> None:
    assert [BURST.seen(1_000.0 + after).catch_up for after in (0.0, 5.0, 9.0, 20.0)] == [None] * 4
    assert BURST.seen(1_020.0).age == pytest.approx(20)


def test_flow_is_unknown_if_looks_met_nothing_unread() -> None:
    assert replace(STEADY, start=15.0, looks=[]).seen(700.3).catch_up is None


@pytest.mark.parametrize(
    ("passed", "known"), [(29.0, False), (30.0, True), (1_800.0, True), (1_801.0, False)]
)
def test_rates_need_a_point_that_is_old_enough(passed: float, known: bool) -> None:
    found = Look(0.0, {TP: Mark(0, 0, points=((0, 90),))}, points=(0,))
    offsets = TopicOffsets(ends={TP: 90}, committed={TP: 0}, at=passed)
    assert (rates(found, offsets, TP) is not None) is known


def test_deleted_records_are_no_commits() -> None:
    found = Look(0.0, {TP: Mark(5, 0, points=((50, 90),))}, points=(0,))
    after = TopicOffsets(
        ends={TP: 90}, beginnings={TP: 80}, committed={TP: 5}, first={TP: FirstRecord(80, -200.0)}, at=100.0
    )
    assert time_lag(found, after, TP) == TimeLag(300.0, math.inf)


def test_offsets_without_records_are_no_lag() -> None:
    behind = TopicOffsets(ends={TP: 9}, committed={TP: 5}, first={TP: None}, at=100.0)
    assert behind.lag(TP) == 0
    assert time_lag(Look(), behind, TP) == TimeLag(0.0, 0.0)
    assert look(Look(), [TP], behind, 100.0).marks == {}


@pytest.mark.parametrize(
    "offsets",
    [
        TopicOffsets(),
        TopicOffsets(ends={TP: 9}, beginnings={TP: 0}, committed={TP: 5}),
        TopicOffsets(ends={TP: 9}, committed={TP: 5}, first={TP: FirstRecord(5, None)}),
    ],
    ids=["no offsets", "record not read", "no timestamp"],
)
def test_unknown_age_is_not_shown(offsets: TopicOffsets) -> None:
    assert time_lag(Look(), offsets, TP) == TimeLag(None, None)


def test_record_of_the_future_has_no_negative_age() -> None:
    ahead = TopicOffsets(ends={TP: 9}, committed={TP: 5}, first={TP: FirstRecord(5, 500.0)}, at=100.0)
    assert time_lag(Look(), ahead, TP).age == 0.0


def kept(
    retention: Retention, *, begin: int = 0, end: int = 1_000, arriving: int = 60, age: float = 40.0
) -> float | None:
    """Of a record at offset 500 of 100 bytes, while so many arrive in a minute."""
    found = Look(0.0, {TP: Mark(500, 0, points=((500, end - arriving),))}, points=(0,))
    offsets = TopicOffsets(
        ends={TP: end},
        beginnings={TP: begin},
        committed={TP: 500},
        first={TP: FirstRecord(500, 60.0 - age, 100)},
        retention={"t": retention},
        at=60.0,
    )
    return time_lag(found, offsets, TP).kept


@pytest.mark.parametrize(
    ("retention", "seconds"),
    [
        (Retention(), None),
        (Retention(seconds=100), 60.0),
        (Retention(seconds=30), 0.0),
        (Retention(bytes_=60_000), 100.0),
        (Retention(bytes_=40_000), 0.0),
        (Retention(seconds=100, bytes_=60_000), 60.0),
        (Retention(seconds=200, bytes_=60_000), 100.0),
    ],
)
def test_record_is_kept_by_age_and_by_size(retention: Retention, seconds: float | None) -> None:
    assert kept(retention) == (seconds if seconds is None else pytest.approx(seconds))


def test_full_log_shows_how_small_its_records_are() -> None:
    """Of 1,500 records 300 may have come since the last check; the others are at most 70,000 bytes. As large as the
    first one is, the 1,000 that are unread would be too many."""
    assert kept(Retention(bytes_=60_000, segment=10_000), end=1_500) == pytest.approx(
        60_000 / 70_000 * 1_200 - 1_000
    )
    assert kept(Retention(bytes_=60_000, segment=1 << 30), end=1_500) == 0.0


def test_idle_log_is_kept_by_size_for_good() -> None:
    assert kept(Retention(bytes_=60_000), arriving=0) is None


@pytest.mark.parametrize(("age", "near"), [(80.0, True), (79.0, False), (120.0, True)])
def test_deletion_is_near_after_four_fifths_of_the_time(age: float, near: bool) -> None:
    offsets = TopicOffsets(
        ends={TP: 9},
        committed={TP: 5},
        first={TP: FirstRecord(5, 200.0 - age)},
        retention={"t": Retention(seconds=100.0)},
        at=200.0,
    )
    assert time_lag(Look(), offsets, TP).near_deletion is near


@pytest.mark.parametrize(
    ("partitions", "topic"),
    [
        ([], TimeLag(0.0, 0.0)),
        ([TimeLag(), TimeLag(5.0, 3.0, 90.0), TimeLag(9.0, 1.0, 70.0)], TimeLag(9.0, 3.0, 70.0)),
        ([TimeLag(999.0, 0.0, 999.0), TimeLag(1.0, 0.0, 5.0)], TimeLag(999.0, 0.0, 5.0)),
        ([TimeLag(20.0, 0.0, 5.0, True), TimeLag()], TimeLag(20.0, 0.0, 5.0, True)),
        ([TimeLag(5.0, 3.0), TimeLag(20.0, None)], TimeLag(20.0, None)),
        ([TimeLag(5.0, math.inf), TimeLag(20.0, None)], TimeLag(20.0, math.inf)),
        ([TimeLag(), TimeLag(None, None)], TimeLag(0.0, None)),
        ([TimeLag(None, None)], TimeLag(None, None)),
    ],
)
def test_topic_is_as_far_behind_as_its_partitions(partitions: list[TimeLag], topic: TimeLag) -> None:
    assert of_all(partitions) == topic


def test_gauges_count_topics_over_their_limit() -> None:
    topics = {"a": TimeLag(9.0), "b": TimeLag(5.0, None, 1.0, True), "c": TimeLag(None, None)}
    assert gauges(topics, {"a": 9.0, "b": 4.0, "c": 1.0}.get) == {
        "lag_seconds": 9.0,
        "topics_over_max_lag": 1,
        "topics_near_deletion": 1,
    }
    assert gauges({}, lambda _: None)["lag_seconds"] == 0.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (7_505, "2 h 5 min"),
        (180_000, "2 d 2 h"),
    ],
)
def test_duration_is_written_in_two_units(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
