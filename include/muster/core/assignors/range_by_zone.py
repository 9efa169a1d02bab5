"""Range with zones: blocks of the same size, first of partitions whose leader is in the consumer's zone.

The rule of Kafka's `RangeAssignor` since 3.5 (KIP-881), with one difference: Kafka counts the racks of all
replicas, because its consumers may fetch from followers; here only the leader's rack counts.

1. A topic gains from zones if some subscriber's zone is the rack of some of its partitions, and not all of
   its partitions have the same one. If no topic does, everything is as without zones.
2. Topics with the same subscribers and the same partitions stay co-partitioned: partition n goes to the same
   consumer in all of them. Partition by partition, the first consumer with room whose zone is the rack of
   partition n in all of these topics takes it.
3. In any other topic that gains, each subscriber in turn fills its block with partitions of its own zone.
4. What is left then is dealt out in contiguous blocks to the consumers that still have room.

A consumer without a zone stands in every zone. Who gets one partition more is not decided by id alone but by
who fills its block first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.core.assignors.blocks import Quota
from muster.core.assignors.load import weight_of
from muster.core.assignors.subscriptions import Audience
from muster.core.assignors.zones import Racks
from muster.core.model import Consumer

_Zones = Mapping[str, str | None]


def range_by_zone(
    groups: Sequence[Audience],
    topics: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    racks: Racks,
) -> dict[str, dict[int, str]] | None:
    """Return the assignment of the topics of `groups`, or None if no topic gains from zones."""
    gaining = {
        topic
        for audience in groups
        for zones in [{consumers[c].zone for c in audience.consumers}]
        for topic in audience.topics
        if _gains(zones, topics[topic], racks.get(topic, {}))
    }
    if not gaining:
        return None
    assignment: dict[str, dict[int, str]] = {}
    for audience in groups:
        weights = {c: weight_of(consumers[c]) for c in audience.consumers}
        zones = {c: consumers[c].zone for c in audience.consumers}
        alike: dict[frozenset[int], list[str]] = {}
        for topic in audience.topics:
            alike.setdefault(topics[topic], []).append(topic)
        for partitions, members in alike.items():
            quota = Quota(len(partitions), weights)
            owners: dict[int, str] = {}
            if len(members) > 1:
                owners = _co_partitioned(
                    partitions, [racks.get(topic, {}) for topic in members], zones, quota
                )
            elif members[0] in gaining:
                owners = _of_own_zone(partitions, racks.get(members[0], {}), zones, quota)
            _fill(owners, partitions, quota)
            assignment.update({topic: dict(owners) for topic in members})
    return assignment


def _gains(zones: set[str | None], partitions: frozenset[int], racks: Mapping[int, str]) -> bool:
    found = {racks.get(partition) for partition in partitions}
    return len(found) > 1 and bool((found & zones) - {None})


def _co_partitioned(
    partitions: frozenset[int], racks: Sequence[Mapping[int, str]], zones: _Zones, quota: Quota
) -> dict[int, str]:
    position = {consumer: number for number, consumer in enumerate(zones)}
    waiting: dict[str | None, list[str]] = {}
    for consumer in reversed(position):
        waiting.setdefault(zones[consumer], []).append(consumer)
    owners: dict[int, str] = {}
    for partition in sorted(partitions):
        found = {of_topic.get(partition) for of_topic in racks}
        fitting = {None, *found} if len(found) == 1 else {None}
        first: list[str] = []
        for zone in fitting:
            queue = waiting.get(zone, [])
            while queue and not quota.room(queue[-1]):
                queue.pop()
            first += queue[-1:]
        if first:
            owner = min(first, key=position.__getitem__)
            owners[partition] = owner
            quota.take(owner, 1)
    return owners


def _of_own_zone(
    partitions: frozenset[int], racks: Mapping[int, str], zones: _Zones, quota: Quota
) -> dict[int, str]:
    open_: dict[str | None, list[int]] = {}
    for partition in sorted(partitions):
        open_.setdefault(racks.get(partition), []).append(partition)
    owners: dict[int, str] = {}
    for consumer, zone in zones.items():
        if zone is None:
            mine = sorted(p for of_rack in open_.values() for p in of_rack)[: quota.room(consumer)]
        else:
            mine = open_.get(zone, [])[: quota.room(consumer)]
        for partition in mine:
            owners[partition] = consumer
            open_[racks.get(partition)].remove(partition)
        quota.take(consumer, len(mine))
    return owners


def _fill(owners: dict[int, str], partitions: frozenset[int], quota: Quota) -> None:
    left = iter(sorted(partitions.difference(owners)))
    for consumer, size in quota.blocks():
        for _, partition in zip(range(size), left, strict=False):
            owners[partition] = consumer
