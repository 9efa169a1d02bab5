"""Lag in time: how old the oldest record is that is not committed, how long it takes to catch up, and how long Kafka
keeps what is unread. Pure; times are in seconds.

Each front end has just read Kafka's offsets and the timestamps of the first records that are not committed
(`TopicOffsets.first`), so no consumer has to live. The rates are since the newest point of the coordinator's looks
that is at least `RATES_OVER` seconds old (`muster.core.progress`), so they are the same in every front end.

*Age*: since the timestamp of the first record that is not committed; 0 where there is none.

*Time to catch up* of a partition, by what was committed (c) and what arrived (a) a second:

- 0 without lag;
- lag / (c - a) where records that were unread at that point still are; infinite unless c is above a;
- lag / c where all that was unread then is committed: what has arrived since is the flow itself;
- unknown where nothing was unread then, until the next look: a burst looks like the flow at first.

*Kept*: a lower bound of the seconds until Kafka deletes the first record that is not committed.

- By time, Kafka deletes a segment when its newest record is as old as the retention: not before this record is.
- By size, it deletes a segment when what follows it fills the retention: not before what follows this record does,
  at the present rate of arrival, and with records as large as those there. That is what they take without
  compression, or less if the log as a whole shows it: Kafka keeps no more than the retention, one segment, and what
  arrives between two of its checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from muster.core.model import TopicPartition
from muster.core.offsets import Retention, TopicOffsets
from muster.core.progress import Look

RATES_OVER = 30.0
"""Seconds from a point to a reading over which rates are computed; a point is `RATES_OVER` after the one before."""
LONGEST_RATES = 1_800.0
"""What is older says nothing of the present."""
CHECKED_EVERY = 300.0
"""Seconds between two checks of a broker for what retention deletes (`log.retention.check.interval.ms`)."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What a partition took in and what was committed of it a second, `since` a moment (seconds since the epoch)."""

    arriving: float
    committed: float
    since: float


@dataclass(frozen=True, slots=True)
class TimeLag:
    """How far behind a partition, or a topic, is in time; None is what is not known.

    `kept` is None also where retention deletes nothing.
    """

    age: float | None = 0.0
    catch_up: float | None = 0.0
    kept: float | None = None
    near_deletion: bool = False
    """Whether four fifths of the time are over for which Kafka keeps a partition's oldest record that is not
    committed."""

    @property
    def never(self) -> bool:
        """Whether it does not catch up at the present rates."""
        return self.catch_up == math.inf

    @property
    def seconds_to_catch_up(self) -> float | None:
        """The time to catch up where it is a number of seconds."""
        return None if self.catch_up is None or self.never else round(self.catch_up, 1)


NO_LAG = TimeLag()


def rates(look: Look, offsets: TopicOffsets, tp: TopicPartition) -> Rates | None:
    """Return the rates of a partition, None unless it was behind at a point that is old enough."""
    mark = look.marks.get(tp)
    for at, point in zip(look.points, mark.points if mark is not None else (), strict=False):
        passed = offsets.at - at
        if RATES_OVER <= passed <= LONGEST_RATES and tp in offsets.ends:
            position, end = point
            committed = max(0, (offsets.committed.get(tp) or 0) - position)
            return Rates(max(0, offsets.ends[tp] - end) / passed, committed / passed, at)
    return None


def time_lag(look: Look, offsets: TopicOffsets, tp: TopicPartition) -> TimeLag:
    """Return how far behind in time a partition is."""
    lag = offsets.lag(tp)
    if not lag:
        return NO_LAG if lag == 0 else TimeLag(None, None)
    first = offsets.first.get(tp)
    moment = first.at if first is not None else None
    known = rates(look, offsets, tp)
    if moment is None:
        return TimeLag(None, None, _by_size(offsets, tp, known))
    age = max(0.0, offsets.at - moment)
    retention = offsets.retention.get(tp[0], Retention())
    by_time = None if retention.seconds is None else max(0.0, retention.seconds - age)
    kept = _least((by_time, _by_size(offsets, tp, known)))
    near = kept is not None and kept <= age / 4
    return TimeLag(age, _catch_up(lag, moment, known), kept, near)


def of_all(partitions: Iterable[TimeLag]) -> TimeLag:
    """Return how far behind the furthest of several partitions is, and which of them loses records first.

    The age is over those where it is known. The time to catch up is unknown if it is of any, unless one never does.
    """
    found = list(partitions)
    ages = [each.age for each in found if each.age is not None]
    waits = [each.catch_up for each in found]
    known = [each for each in waits if each is not None]
    age = max(ages) if ages else (None if found else 0.0)
    catch_up = None if len(known) < len(waits) and math.inf not in known else max(known, default=0.0)
    near = any(each.near_deletion for each in found)
    return TimeLag(age, catch_up, _least(each.kept for each in found), near)


def gauges(topics: Mapping[str, TimeLag], max_lag: Callable[[str], float | None]) -> dict[str, float]:
    """Return what is said of a whole cluster: how far behind it is, and how many topics break `max_lag` or may soon
    lose what is unread."""
    ages = {topic: found.age or 0.0 for topic, found in topics.items()}
    over = [topic for topic, age in ages.items() if (most := max_lag(topic)) is not None and age > most]
    return {
        "lag_seconds": round(max(ages.values(), default=0.0), 1),
        "topics_over_max_lag": len(over),
        "topics_near_deletion": sum(found.near_deletion for found in topics.values()),
    }


def in_words(seconds: float) -> str:
    """Write a duration for people, in two units at most: `2 h 5 min`."""
    whole = int(seconds)
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    at = next((i for i, (_, size) in enumerate(units) if whole >= size), len(units) - 1)
    counts = [
        (whole % (units[i - 1][1] if i else whole + 1) // size, name) for i, (name, size) in enumerate(units)
    ]
    shown = [f"{count} {name}" for count, name in counts[at : at + 2] if count]
    return " ".join(shown) or "0 s"


def caught_up(found: TimeLag) -> str:
    if found.catch_up is None:
        return "when it will have caught up is not known yet"
    if found.never:
        return "at the present rates it does not catch up: see that its consumers run, or add some"
    return f"at the present rates it has caught up in {in_words(found.catch_up)}"


def _catch_up(lag: int, moment: float, known: Rates | None) -> float | None:
    if known is None:
        return None
    gain = known.committed - (known.arriving if moment <= known.since else 0.0)
    return lag / gain if gain > 0 else math.inf


def _by_size(offsets: TopicOffsets, tp: TopicPartition, known: Rates | None) -> float | None:
    retention, first = offsets.retention.get(tp[0], Retention()), offsets.first.get(tp)
    if retention.bytes_ is None or first is None or known is None:
        return None
    size, held = first.size, offsets.ends[tp] - offsets.beginnings.get(tp, 0)
    checked = held - known.arriving * CHECKED_EVERY
    if checked > 0:
        size = min(size, (retention.bytes_ + retention.segment) / checked)
    left = retention.bytes_ / size - (offsets.ends[tp] - first.offset)
    if left <= 0:
        return 0.0
    return left / known.arriving if known.arriving else None


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)
