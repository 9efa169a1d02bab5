"""Range: per topic, contiguous blocks of partitions in order of consumer id.

The rule of Kafka's `RangeAssignor` and of the old ZooKeeper consumer. For each topic on its own:

1. Its subscribers stand in order of consumer id, its partitions in order of number.
2. Each subscriber takes the next `partitions // subscribers` of them, and the first `partitions % subscribers`
   subscribers take one more.

So partition n of topics with equally many partitions and the same subscribers goes to the same consumer, and with
many small topics the first consumers get more than the last. `previous` plays no part.

With different weights (which Kafka does not have) the blocks are in proportion to `weight`, rounded by the largest
remainder, with ties to the lower id; with equal weights that is the rule above.

Where leaders' racks are known, blocks keep their sizes but are no longer contiguous. The rule is Kafka's since 3.5
(KIP-881), with one difference: Kafka counts the racks of all replicas, because its consumers may fetch from
followers; here only the leader's rack counts.

1. A topic gains from zones if some subscriber's zone is the rack of some of its partitions, and not all of its
   partitions have the same one. If no topic does, everything is as without zones.
2. Topics with the same subscribers and the same partitions stay co-partitioned: partition n goes to the same
   consumer in all of them. Partition by partition, the first consumer with room whose zone is the rack of partition
   n in all of these topics takes it.
3. In any other topic that gains, each subscriber in turn fills its block with partitions of its own zone.
4. What is left then is dealt out in contiguous blocks to the consumers that still have room.

A consumer without a zone stands in every zone. Which consumers get one partition more is not decided by id alone
but by which of them fill their blocks first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.core.assignors.api import NOTHING, Racks
from muster.core.assignors.balance import weight_of
from muster.core.assignors.quota import Quota
from muster.core.assignors.subscriptions import Audience, audiences
from muster.core.assignors.zones import Zones, zones_that_matter
from muster.core.model import Assignment, Consumer


class Range:
    """Assigns by the rule of this module. It has no options."""

    name = "range"

    def assign(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        _previous: Assignment,
        /,
        racks: Racks = NOTHING,
    ) -> Assignment:
        """See `Assignor.assign`; `racks` as in `PlanningContext`."""
        groups = audiences(topics, consumers)
        zones = zones_that_matter(racks, topics, consumers)
        gaining = _gaining(groups, topics, zones) if zones else set()
        assignment: dict[str, dict[int, str]] = {}
        for audience in groups:
            weights = {c: weight_of(consumers[c]) for c in audience.consumers}
            alike: dict[frozenset[int], list[str]] = {}
            for topic in audience.topics:
                alike.setdefault(topics[topic], []).append(topic)
            for partitions, members in alike.items():
                quota = Quota(len(partitions), weights)
                owners: dict[int, str] = {}
                if zones and gaining and len(members) > 1:
                    owners = _same_zone_everywhere(partitions, members, zones, quota)
                elif zones and members[0] in gaining:
                    owners = _own_zone_first(partitions, members[0], zones, quota)
                _fill(owners, partitions, quota)
                assignment.update({topic: dict(owners) for topic in members})
        return assignment


def _gaining(groups: Sequence[Audience], topics: Mapping[str, frozenset[int]], zones: Zones) -> set[str]:
    """Return the topics that gain from zones (rule 1)."""
    gaining = set()
    for audience in groups:
        inhabited = {zones.of[consumer] for consumer in audience.consumers} - {None}
        for topic in audience.topics:
            racks = set(map(zones.racks_of(topic).get, topics[topic]))
            if len(racks) > 1 and racks & inhabited:
                gaining.add(topic)
    return gaining


def _same_zone_everywhere(
    partitions: frozenset[int], topics: Sequence[str], zones: Zones, quota: Quota
) -> dict[int, str]:
    """Give each partition whose leaders are all in one rack to the first consumer there with room (rule 2)."""
    position = {consumer: number for number, consumer in enumerate(quota.consumers)}
    waiting: dict[str | None, list[str]] = {}
    for consumer in reversed(position):
        waiting.setdefault(zones.of[consumer], []).append(consumer)
    owners: dict[int, str] = {}
    racks_of = [zones.racks_of(topic) for topic in topics]
    for partition in sorted(partitions):
        racks = {of_topic.get(partition) for of_topic in racks_of}
        first: list[str] = []
        for zone in {None, *racks} if len(racks) == 1 else {None}:
            queue = waiting.get(zone, [])
            while queue and not quota.room(queue[-1]):
                queue.pop()
            first += queue[-1:]
        if first:
            owners[partition] = min(first, key=position.__getitem__)
            quota.take(owners[partition], 1)
    return owners


def _own_zone_first(partitions: frozenset[int], topic: str, zones: Zones, quota: Quota) -> dict[int, str]:
    """Let each consumer in turn fill its block with partitions of its own zone (rule 3)."""
    racks = zones.racks_of(topic)
    by_rack: dict[str | None, list[int]] = {}
    for partition in sorted(partitions):
        by_rack.setdefault(racks.get(partition), []).append(partition)
    owners: dict[int, str] = {}
    for consumer in quota.consumers:
        zone = zones.of[consumer]
        near = by_rack.get(zone, []) if zone is not None else sorted(p for of in by_rack.values() for p in of)
        taken = near[: quota.room(consumer)]
        for partition in taken:
            owners[partition] = consumer
            by_rack[racks.get(partition)].remove(partition)
        quota.take(consumer, len(taken))
    return owners


def _fill(owners: dict[int, str], partitions: frozenset[int], quota: Quota) -> None:
    """Deal out what is left in contiguous blocks."""
    left = sorted(partitions.difference(owners))
    start = 0
    for consumer, size in quota.blocks():
        owners.update(dict.fromkeys(left[start : start + size], consumer))
        start += size
