"""What an event did to the flow of records, from the deliveries of one contestant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from benchmarks.failover_deliveries import Deliveries

KILL, FREEZE, LEAVE, JOIN, ROLL, QUIET = "kill", "freeze", "leave", "join", "roll", "quiet"
REPLACE = "replace"
"""From the kill of a consumer until the one that Airflow starts in its place has its share; of Muster only."""
EVENTS = (KILL, REPLACE, FREEZE, LEAVE, JOIN, ROLL)
PLANNED = (LEAVE, JOIN, ROLL)


@dataclass
class Event:
    """One thing that happened to a contestant's consumers, and what came of it.

    `began` and `ended` are in seconds since the epoch; all else that is a time is in seconds from `began`, or a
    length. `owners` are the processes that had the partitions before. A pause is the longest time between two
    deliveries of a partition, from the last before `began` to the first after `ended`.
    """

    contestant: str
    name: str
    began: float
    owners: Mapping[int, int]
    first: Mapping[int, int]
    """The first record of each partition that was produced after `began`."""
    ended: float = 0.0
    heard_until: float = 0.0
    """Up to when records that come again are put down to this event; later than `ended` for one that was frozen."""
    flows: float | None = None
    """When the last of the partitions that moved flowed again, in the hands of its new owner."""
    moved: dict[int, float] = field(default_factory=dict)
    """Pauses of the partitions that changed hands."""
    stayed: dict[int, float] = field(default_factory=dict)
    """Pauses of the others."""
    doubled: int = 0
    parts: dict[str, float] = field(default_factory=dict)
    """Where the time went: step to seconds. Of Muster only."""
    loops: int = 0
    """Busy loops a core that ran beside it."""

    @property
    def longest_stayed(self) -> float:
        """The longest pause of a partition that did not move, 0 if all did."""
        return max(self.stayed.values(), default=0.0)


def flows(event: Event, deliveries: Deliveries, without: int | None, members: int) -> bool:
    """Tell whether every partition flows again after `event`: evenly at `members` processes, not at `without`."""
    owners = deliveries.owners()
    shares = Counter(owners.values())
    return (
        len(owners) == len(deliveries.of)
        and without not in shares
        and sorted(shares.values()) == [len(owners) // members] * members
        and all(of[-1].end > event.first[p] for p, of in deliveries.of.items())
    )


def measure(event: Event, deliveries: Deliveries) -> None:
    """Fill in what `event` came to, once it has ended."""
    moments = []
    for partition, of in deliveries.of.items():
        until = [d for d in of if d.at <= event.ended]
        after = next((d.at for d in of if d.at > event.ended), event.ended)
        before = max((d.at for d in until if d.at <= event.began), default=event.began)
        times = [before, *(d.at for d in until if d.at > event.began), after]
        pause = max(later - earlier for earlier, later in pairwise(times))
        owner = until[-1].pid
        if owner == event.owners[partition]:
            event.stayed[partition] = pause
            continue
        event.moved[partition] = pause
        fresh = (d for d in until if d.at > event.began and d.pid == owner and d.end > event.first[partition])
        moments.append(next(fresh).at - event.began)
    event.flows = max(moments, default=None)
    event.doubled = deliveries.doubled(event.began, max(event.ended, event.heard_until))


@dataclass(frozen=True)
class Row:
    """All events of one name that one contestant went through. Times in seconds: (least, median, most)."""

    contestant: str
    name: str
    events: int
    flows: tuple[float, float, float] | None
    moved: tuple[float, float, float] | None
    stayed: tuple[float, float, float] | None
    doubled: tuple[int, ...]


def rows(events: Collection[Event], contestants: Collection[str]) -> list[Row]:
    """Build the table: by event, then by contestant."""
    table = []
    for name in (*EVENTS, QUIET):
        for contestant in contestants:
            if of := [event for event in events if (event.contestant, event.name) == (contestant, name)]:
                table.append(
                    Row(
                        contestant,
                        name,
                        len(of),
                        spread([e.flows for e in of if e.flows is not None]),
                        spread([pause for e in of for pause in e.moved.values()]),
                        spread([e.longest_stayed for e in of if e.stayed]),
                        tuple(sorted(e.doubled for e in of)),
                    )
                )
    return table


def spread(values: Collection[float]) -> tuple[float, float, float] | None:
    """Return least, median and most; None of nothing."""
    return (min(values), median(values), max(values)) if values else None
