"""What an event did to the flow of records, from the deliveries of one contestant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from benchmarks.failover_deliveries import Deliveries

TOPIC, PARTITIONS, MEMBERS = "numbers", 12, 3
PATIENCE = 420.0
"""Seconds until something has to have come about."""
Name = StrEnum("Name", "KILL REPLACE FREEZE LEAVE JOIN ROLL QUIET")
"""What happens to a consumer. `replace` is from the kill of one until the one that Airflow starts in its place has
its share; of Muster only. `quiet` is nothing."""
PLANNED = (Name.LEAVE, Name.JOIN, Name.ROLL)


@dataclass
class Event:
    """One thing that happened to a contestant's consumers, and what came of it.

    `began` and `ended` are in seconds since the epoch; all else that is a time is in seconds from `began`, or a
    length. `owners` are the processes that had the partitions before. A pause is the longest time between two
    deliveries of a partition, from the last before `began` to the first after `ended`.
    """

    contestant: str
    name: Name
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
