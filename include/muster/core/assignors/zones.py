"""Zones: whether a partition's leader stands in the zone of the consumer that reads it.

A consumer's `zone` is compared with the rack of the partition's leader (`broker.rack`): reading within a zone
is faster and, in most clouds, free. Where racks are unknown or no consumer stands in one of them, every
assignor does exactly as it would without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.core.model import Consumer

Racks = Mapping[str, Mapping[int, str]]
"""Topic to partition to the rack of its leader; what is not known is absent."""

NO_RACKS: Racks = {}


def useful_racks(
    racks: Racks, topics: Mapping[str, frozenset[int]], consumers: Mapping[str, Consumer]
) -> Racks:
    """Return the racks of `topics`' partitions, empty if none of them is the zone of a consumer."""
    zones = {consumer.zone for consumer in consumers.values()}
    if not racks or zones <= {None}:
        return NO_RACKS
    known = {
        topic: {partition: rack for partition, rack in racks[topic].items() if partition in topics[topic]}
        for topic in topics
        if topic in racks
    }
    return known if any(zones.intersection(of_topic.values()) for of_topic in known.values()) else NO_RACKS


def swap_for_zones(
    dealt: Sequence[tuple[str, int]],
    owners: list[str],
    consumers: Mapping[str, Consumer],
    racks: Racks,
) -> None:
    """Swap `owners` of the partitions in `dealt`, so that more are read in their zone and no number changes.

    `owners` stand in the order of `dealt` and are changed in place. Two partitions are swapped if both
    consumers subscribe to what they get and more partitions are in their zone after it. Where all of them
    subscribe to everything, no further swap could gain anything: what is out of its zone then has no
    counterpart.
    """
    rack_of = [racks.get(topic, {}).get(partition) for topic, partition in dealt]
    zone_of = [consumers[owner].zone for owner in owners]
    waiting: dict[str, list[int]] = {}
    for place, zone in enumerate(zone_of):
        if zone is not None and rack_of[place] != zone:
            waiting.setdefault(zone, []).append(place)
    for place, rack in enumerate(rack_of):
        if rack is None or rack == zone_of[place]:
            continue
        other = next(
            (
                o
                for o in waiting.get(rack, ())
                if consumers[owners[o]].subscribes(dealt[place][0])
                and consumers[owners[place]].subscribes(dealt[o][0])
            ),
            None,
        )
        if other is None:
            continue
        left = zone_of[place]
        owners[place], owners[other] = owners[other], owners[place]
        zone_of[place], zone_of[other] = rack, left
        waiting[rack].remove(other)
        if left is not None:
            waiting[left].remove(place)
            if rack_of[other] != left:
                waiting[left].append(other)
