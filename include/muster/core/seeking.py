"""Where a partition is to go on: what a person writes, and the offset that follows from it. Pure.

A destination is `earliest`, `latest`, an offset (`120`), a number of records forth or back (`+50`, `-1000`), a moment
(`2026-11-25T10:00:00Z`) or a time ago (`-10m`); `committed`, where the group is; or `changelog`, where the state by
key is. It is made an offset once, when it is asked for, so that carrying it out later, or twice, means the same.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from muster.core.moments import LAST_MOMENT, to_seconds

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LONGEST_OFFSET = 2**63 - 1
EXPECTED = (
    "write earliest, latest, committed, changelog, an offset such as 120, records forth or back such as +50 or "
    "-1000, a time ago such as -10m (s, m, h, d), or a moment such as 2026-11-25T10:00:00Z"
)
_MOMENT = 12
_ID = re.compile(rf"[0-9a-f]{{{_MOMENT}}}[0-9a-f]{{6}}")
"""The id of a seek: milliseconds since the epoch, and what tells apart those of one moment."""
_NUMBER = re.compile(r"([+-]?)(\d{1,19})")
_AGO = re.compile(r"-(\d{1,9})([smhd])")


class SeekError(ValueError):
    """There is no such place; the message says what to write, or where the partition begins and ends."""


class To(StrEnum):
    """What a destination is measured from."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    CHANGELOG = "changelog"
    OFFSET = "offset"
    BY = "by"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Destination:
    """`value` is an offset, a number of records, or a moment in seconds since the epoch, by `to`."""

    to: To
    value: float = 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """One partition in Kafka: its first offset, the one after its last, and what the group has committed (None:
    nothing). `at_time` is the first offset from the destination's moment on, None without such a record; `changelog`
    where the state by key is, None if that is unknown. `sought` is the id of the last seek."""

    earliest: int
    end: int
    committed: int | None = None
    at_time: int | None = None
    changelog: int | None = None
    sought: str = ""

    @property
    def position(self) -> int:
        """Where the group goes on without a seek, if nothing else is set."""
        return max(self.earliest, self.earliest if self.committed is None else self.committed)


@dataclass(frozen=True, slots=True)
class StartingOffsets:
    """Where the partitions of a topic begin that is new to its group: `default`, or what `offsets` has by topic and
    partition. Partitions that `offsets` leaves out of a topic that it names begin at their first record."""

    default: Destination = Destination(To.EARLIEST)
    offsets: Mapping[str, Mapping[int, Destination]] = field(default_factory=dict)

    def of(self, topic: str, partition: int) -> Destination:
        """Choose where a partition begins."""
        of_topic = self.offsets.get(topic)
        return self.default if of_topic is None else of_topic.get(partition, Destination(To.EARLIEST))

    def at_first_record(self, topic: str) -> bool:
        """Tell whether all partitions of a topic begin at their first record, as they do without any commit."""
        return all(each.to is To.EARLIEST for each in self.offsets.get(topic, {0: self.default}).values())


def new_id(now: float, *before: str) -> str:
    """Return an id for a seek that is asked for at `now` (seconds since the epoch), above the ids `before`."""
    known = (int(each[:_MOMENT], 16) + 1 for each in before if _ID.fullmatch(each))
    moment = max(round(now * 1000), *known, 0)
    return f"{moment:0{_MOMENT}x}{secrets.token_hex(3)}"


def parse_destination(text: str, now: float) -> Destination:
    """Read what a person has written at `now` (seconds since the epoch). Raises `SeekError`."""
    word = text.strip()
    if word in {To.EARLIEST, To.LATEST, To.COMMITTED, To.CHANGELOG}:
        return Destination(To(word))
    if (found := _NUMBER.fullmatch(word)) and int(found[2]) <= LONGEST_OFFSET:
        return Destination(To.BY if found[1] else To.OFFSET, int(word))
    if found := _AGO.fullmatch(word):
        return Destination(To.TIME, now - int(found[1]) * SECONDS[found[2]])
    try:
        moment = to_seconds(datetime.fromisoformat(word))
    except (ValueError, OverflowError) as error:
        raise SeekError(f"{word[:100]!r} is no place to go on at; {EXPECTED}") from error
    if not 0 <= moment < LAST_MOMENT:
        raise SeekError(f"{word[:100]!r} is no moment that a clock has shown; {EXPECTED}")
    return Destination(To.TIME, moment)


def offset_for(destination: Destination, bounds: Bounds, where: str) -> int:
    """Return the offset that `destination` is in a partition, which `where` names for people.

    A number of records ends at the partition's first or last one. Raises `SeekError` for an offset outside of it.
    """
    value = int(destination.value)
    if destination.to is To.OFFSET and not bounds.earliest <= value <= bounds.end:
        raise SeekError(
            f"{where}: offset {value} is outside of the log: the earliest is {bounds.earliest}, the latest "
            f"{bounds.end}"
        )
    if destination.to is To.CHANGELOG and bounds.changelog is None:
        raise SeekError(f"{where}: no changelog has a position of it; write another place, such as committed")
    found: dict[To, Callable[[], int]] = {
        To.EARLIEST: lambda: bounds.earliest,
        To.LATEST: lambda: bounds.end,
        To.COMMITTED: lambda: bounds.position,
        To.CHANGELOG: lambda: bounds.changelog or 0,
        To.OFFSET: lambda: value,
        To.BY: lambda: bounds.position + value,
        To.TIME: lambda: bounds.end if bounds.at_time is None else bounds.at_time,
    }
    return min(max(found[destination.to](), bounds.earliest), bounds.end)


def effect(bounds: Bounds, offset: int) -> str:
    """Say what a seek to `offset` does: how many records come again or are passed over, by offsets."""
    before = bounds.position
    if offset < before:
        return f"{before} -> {offset}, {before - offset} record(s) come again"
    if offset > before:
        return f"{before} -> {offset}, {offset - before} record(s) are passed over"
    return f"{before}, it is there already"
