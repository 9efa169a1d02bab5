"""Zones: whether a partition's leader stands in the zone of the consumer that reads it.

A consumer's `zone` is compared with the rack of the partition's leader (`broker.rack`): reading within a zone
is faster and, in most clouds, free. Where racks are unknown or no consumer stands in one of them, every
assignor does exactly as it would without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from muster.core.assignors.api import Racks
from muster.core.model import Consumer


@dataclass(frozen=True, slots=True)
class Zones:
    """The zone of each consumer, None where it has none, and the rack of each partition's leader, where known."""

    of: Mapping[str, str | None]
    racks: Racks

    def racks_of(self, topic: str) -> Mapping[int, str]:
        """Return the racks of the leaders of a topic's partitions, as far as they are known."""
        return self.racks.get(topic, {})

    def rack(self, topic: str, partition: int) -> str | None:
        """Return the rack of the partition's leader, None if it is not known."""
        return self.racks_of(topic).get(partition)


def zones_that_matter(
    racks: Racks, topics: Mapping[str, frozenset[int]], consumers: Mapping[str, Consumer]
) -> Zones | None:
    """Return the zones if that of some consumer is the rack of some partition of `topics`, else None."""
    of = {name: consumer.zone for name, consumer in consumers.items()}
    inhabited = set(of.values()) - {None}
    matter = any(
        rack in inhabited and partition in partitions
        for topic, partitions in topics.items()
        for partition, rack in (racks.get(topic, {}).items() if inhabited else ())
    )
    return Zones(of, racks) if matter else None


def swap_home(
    owners: list[str],
    wanted: Sequence[str | None],
    zone_of: Mapping[str, str | None],
    may_take: Callable[[int, str], bool] = lambda _place, _consumer: True,
) -> None:
    """Swap `owners`, in place, so that more of them are in the zone that is `wanted` there; no number changes.

    `wanted` is the leader's zone of what each one reads, None where it is not known; `may_take` says whether a
    consumer may read what stands at a place. Two owners are swapped if both may, and if more of what they read is in
    its zone after it. Where all may, no further swap could gain anything: what is out of its zone then has no
    counterpart.
    """
    zones = [zone_of[owner] for owner in owners]
    waiting: dict[str, list[int]] = {}
    for place, zone in enumerate(zones):
        if zone is not None and wanted[place] != zone:
            waiting.setdefault(zone, []).append(place)
    for place, rack in enumerate(wanted):
        left = zones[place]
        if rack is None or rack == left:
            continue
        other = next(
            (o for o in waiting.get(rack, ()) if may_take(place, owners[o]) and may_take(o, owners[place])),
            None,
        )
        if other is None:
            continue
        owners[place], owners[other] = owners[other], owners[place]
        zones[place], zones[other] = rack, left
        waiting[rack].remove(other)
        if left is not None:
            waiting[left].remove(place)
            if wanted[other] != left:
                waiting[left].append(other)
