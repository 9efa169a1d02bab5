"""Sticky's zones: which of equally loaded consumers reads what, so that as much as possible is read in its zone.

Given how many partitions each consumer is to have, for the partitions that the same consumers may take:

1. Within the tolerance, a consumer that has too many keeps them, and one that would have got them gets fewer.
2. A consumer that has too many gives first of what is missing in another zone, then of what is out of its zone
   anyway, and only then of its own zone.
3. Where more partitions are free in a zone than its consumers have room for, they get room from consumers of zones
   that have too much of it, if that leaves all as balanced as they were, or within the tolerance.
4. Free partitions go to consumers of their zone, then to those that still have room.
5. If moves for the zone alone are allowed, partitions that stayed are swapped between consumers, in the end and
   over all topics.

Each step takes what is best at the moment, partition by partition, and does not look further ahead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import islice
from typing import NamedTuple

from muster.core.assignors.balance import cost_of_next
from muster.core.assignors.quota import Quota
from muster.core.assignors.sticky.pool import Pool
from muster.core.assignors.subscriptions import Audience
from muster.core.assignors.zones import Zones
from muster.core.model import Assignment, TopicPartition

_Room = dict[str, int]
"""How many partitions of a pool each consumer is to get, or to give where that is negative."""
_PAIRS = 1_000_000
"""How many pairs of kinds a swap is looked for in: some 0.5 seconds at the most."""


class ZoneDeal:
    """Deals out all pools, one after the other; what one pool does within the tolerance the next one counts."""

    def __init__(
        self,
        zones: Zones,
        weights: Mapping[str, int],
        tolerance: float,
        shares: Iterable[Mapping[str, int]],
        pinned: Mapping[str, int],
    ) -> None:
        """Take as `shares` the balanced ones of all pools, to which come what is `pinned` to each consumer.

        `tolerance`: by what part of that a consumer may have more or less, rounded down to partitions.
        """
        self._zones = zones
        self._weights = weights
        self._tolerance = tolerance
        self._load: Counter[str] = Counter(dict.fromkeys(weights, 0))
        self._load.update(pinned)
        for share in shares:
            self._load.update(share)
        self._bounds = {
            c: (least - int(tolerance * least), most + int(tolerance * most))
            for c, (least, most) in self._balanced(pinned).items()
        }

    def dealt(self, pool: Pool, share: Mapping[str, int]) -> dict[str, dict[int, str]]:
        """Return the owners of all partitions of the pool, by topic."""
        room = {c: share.get(c, 0) - pool.held[c] for c in pool.audience.consumers}
        self._keep_within_tolerance(room)
        self._release(pool, room)
        self._shift_room(pool, room)
        in_zone = self._deal_in_zones(pool, room)
        rest = pool.deal({consumer: places for consumer, places in room.items() if places > 0})
        return {topic: {**owners, **in_zone.get(topic, {})} for topic, owners in rest.items()}

    def _shift(self, room: _Room, source: str, target: str) -> None:
        for consumer, partitions in ((source, -1), (target, 1)):
            room[consumer] += partitions
            self._load[consumer] += partitions

    def _balanced(self, pinned: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """Return the least and the most that each consumer can have in plans that are all as balanced as this one.

        They differ by one where another consumer could have the last partition just as well. Were only the present
        number counted, the next planning might count the other one, and partitions would move back and forth.
        """
        load, weights = self._load, self._weights
        last = {c: cost_of_next(load[c] - 1, weights[c]) for c in load if load[c] > pinned.get(c, 0)}
        more = {c: cost_of_next(load[c], weights[c]) for c in load}
        dearest = max(last.values(), default=-1)
        tied = dearest in more.values()
        return {
            c: (load[c] - (tied and last.get(c) == dearest), load[c] + (more[c] == dearest)) for c in load
        }

    def _may_shift(self, source: str, target: str) -> bool:
        if self._tolerance:
            return self._within_tolerance(source, target)
        gain = cost_of_next(self._load[source] - 1, self._weights[source])
        return self._cost_up(target) <= gain  # as balanced as before

    def _within_tolerance(self, source: str, target: str) -> bool:
        return self._load[target] < self._bounds[target][1] and self._load[source] > self._bounds[source][0]

    def _cost_up(self, consumer: str) -> int:
        return cost_of_next(self._load[consumer], self._weights[consumer])

    def _keep_within_tolerance(self, room: _Room) -> None:
        if not self._tolerance:
            return
        takers = [c for c, places in room.items() if places > 0]
        for keeper in [c for c, places in room.items() if places < 0]:
            for taker in takers:
                while room[keeper] < 0 < room[taker] and self._within_tolerance(taker, keeper):
                    self._shift(room, taker, keeper)

    def _room_by_zone(self, room: _Room) -> Counter[str | None]:
        by_zone: Counter[str | None] = Counter()
        for consumer, places in room.items():
            by_zone[self._zones.of[consumer]] += max(0, places)
        return by_zone

    def _waiting(self, pool: Pool) -> Counter[str | None]:
        """Return how many partitions are free in each rack."""
        waiting: Counter[str | None] = Counter()
        for topic, free in pool.free.items():
            waiting.update(map(self._zones.racks_of(topic).get, free))
        return waiting

    def _release(self, pool: Pool, room: _Room) -> None:
        missing = self._room_by_zone(room)
        missing.subtract(self._waiting(pool))
        del missing[None]
        held = _ranked(pool, {c for c, places in room.items() if places < 0})
        given: dict[str, list[int]] = {}
        for consumer, ranked in held.items():
            for topic, partition in self._given(ranked, self._zones.of[consumer], -room[consumer], missing):
                given.setdefault(topic, []).append(partition)
            room[consumer] = 0
        for topic, partitions in given.items():
            pool.release(topic, partitions)

    def _given(
        self, ranked: Sequence[TopicPartition], zone: str | None, excess: int, missing: Counter[str | None]
    ) -> Iterator[TopicPartition]:
        """Yield the `excess` partitions that a consumer of `zone` gives; `missing` is kept up to date."""
        by_rack: dict[str | None, list[int]] = {}
        for number, place in enumerate(ranked):
            by_rack.setdefault(self._zones.rack(*place), []).append(number)
        for numbers in by_rack.values():
            numbers.reverse()
        for _ in range(excess):
            rack = min(
                (rack for rack, numbers in by_rack.items() if numbers),
                key=lambda rack: (rack == zone, min(0, -missing[rack]), by_rack[rack][-1]),
            )
            missing[rack] -= 1
            yield ranked[by_rack[rack].pop()]

    def _shift_room(self, pool: Pool, room: _Room) -> None:
        in_zone, waiting = self._room_by_zone(room), self._waiting(pool)
        takers: dict[str, list[str]] = {}
        for consumer in room:
            if (zone := self._zones.of[consumer]) is not None:
                takers.setdefault(zone, []).append(consumer)
        givers = [c for c, places in room.items() if places > 0]
        for zone in sorted(takers):
            for giver in givers:
                source = self._zones.of[giver]
                while (
                    waiting[zone] > in_zone[zone]
                    and room[giver] > 0
                    and source != zone
                    and (source is None or in_zone[source] > waiting[source])
                ):
                    target = min(takers[zone], key=lambda c: (self._cost_up(c), c))
                    if not self._may_shift(giver, target):
                        break
                    self._shift(room, giver, target)
                    in_zone[source] -= 1
                    in_zone[zone] += 1

    def _deal_in_zones(self, pool: Pool, room: _Room) -> dict[str, dict[int, str]]:
        """Take from the pool what consumers with room can have in their zone, and return its owners."""
        free: dict[str, list[TopicPartition]] = {}
        for topic in sorted(pool.free):
            racks = self._zones.racks_of(topic)
            for partition in pool.free[topic]:
                if (rack := racks.get(partition)) is not None:
                    free.setdefault(rack, []).append((topic, partition))
        in_zone: dict[str, dict[int, str]] = {}
        for zone in sorted(free):
            near = {c: places for c, places in room.items() if self._zones.of[c] == zone and places > 0}
            total = sum(near.values())
            if not total:
                continue
            taken = _spread(free[zone])[:total]
            takes = near if len(taken) == total else dict(Quota(len(taken), near).blocks())
            for topic, owners in _pool_of(near, taken).deal(takes).items():
                in_zone.setdefault(topic, {}).update(owners)
            for consumer, partitions in takes.items():
                room[consumer] -= partitions
        for topic, owners in in_zone.items():
            left = [partition for partition in pool.free.pop(topic) if partition not in owners]
            if left:
                pool.free[topic] = left
        return in_zone


class _Kind(NamedTuple):
    """Partitions that are swapped alike: the zone they are read in, the rack of their leader, their audience, and the
    audiences that their consumer is in."""

    zone: str | None
    rack: str | None
    audience: int
    takes: frozenset[int]


def swap_for_zones(
    zones: Zones,
    moves: int,
    owners: Mapping[str, MutableMapping[int, str]],
    audiences: Sequence[Audience],
    previous: Assignment,
) -> None:
    """Swap what `owners` read out of its zone, in place, with at most so many moves of what could stay.

    Also between topics of different `audiences`, and first where both partitions come home.
    """
    takes: dict[str, list[int]] = {}
    for number, audience in enumerate(audiences):
        for consumer in audience.consumers:
            takes.setdefault(consumer, []).append(number)
    taken = {consumer: frozenset(numbers) for consumer, numbers in takes.items()}
    away: dict[_Kind, list[TopicPartition]] = {}
    for number, audience in enumerate(audiences):
        for topic in audience.topics:
            for partition, consumer in sorted(owners[topic].items()):
                zone, rack = zones.of[consumer], zones.rack(topic, partition)
                if rack != zone:
                    kind = _Kind(zone, rack, number, taken[consumer])
                    away.setdefault(kind, []).append((topic, partition))
    for kind, other in islice(_pairs(sorted(away, key=lambda kind: str(kind[:2]))), _PAIRS):
        if moves <= 0:
            return
        if away[kind] and away[other] and kind.audience in other.takes:
            moves -= _swap_pairs(away[kind], away[other], owners, previous, moves)


def _pairs(kinds: Sequence[_Kind]) -> Iterator[tuple[_Kind, _Kind]]:
    """Yield what could be swapped if the second one's consumer may take the first, so that the first comes home.

    First where both come home, then where one does.
    """
    read_in: dict[tuple[str | None, int], list[_Kind]] = {}
    for kind in kinds:
        read_in.setdefault((kind.zone, kind.audience), []).append(kind)
    for both_come_home in (True, False):
        for kind in kinds:
            for audience in sorted(kind.takes) if kind.rack is not None else ():
                for other in read_in.get((kind.rack, audience), ()):
                    if both_come_home == (kind.zone is not None and other.rack == kind.zone):
                        yield kind, other


def _swap_pairs(
    some: list[TopicPartition],
    others: list[TopicPartition],
    owners: Mapping[str, MutableMapping[int, str]],
    previous: Assignment,
    moves: int,
) -> int:
    """Swap the first of `some` with the first of `others`, and so on, and return how many of the `moves` it took."""
    spent = 0
    while some and others:
        (topic, partition), (other_topic, other) = some[0], others[0]
        taken, given = owners[topic][partition], owners[other_topic][other]
        cost = (previous.get(topic, {}).get(partition) == taken) + (
            previous.get(other_topic, {}).get(other) == given
        )
        if spent + cost > moves:
            break
        spent += cost
        del some[0], others[0]
        owners[topic][partition], owners[other_topic][other] = given, taken
    return spent


def _ranked(pool: Pool, consumers: set[str]) -> dict[str, list[TopicPartition]]:
    """Return what each of `consumers` holds, first what it has most of beyond an even share of the topic."""
    ranked: dict[str, list[tuple[float, str, int]]] = {c: [] for c in sorted(consumers)}
    for topic in pool.audience.topics if consumers else ():
        owners = pool.owners[topic]
        even = (len(owners) + len(pool.free.get(topic, ()))) / len(pool.audience.consumers)
        number: Counter[str] = Counter()
        for partition in sorted(owners):
            if (consumer := owners[partition]) in consumers:
                ranked[consumer].append((even - number[consumer], topic, partition))
                number[consumer] += 1
    return {c: [(topic, partition) for _, topic, partition in sorted(held)] for c, held in ranked.items()}


def _spread(places: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Return the same in an order in which any beginning has its part of every topic."""
    number: Counter[str] = Counter()
    total = Counter(topic for topic, _ in places)
    keyed = []
    for topic, partition in places:
        keyed.append(((2 * number[topic] + 1) / total[topic], topic, partition))
        number[topic] += 1
    return [(topic, partition) for _, topic, partition in sorted(keyed)]


def _pool_of(consumers: Iterable[str], places: Iterable[TopicPartition]) -> Pool:
    """Return a pool of `places`, none of which has an owner."""
    free: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        free.setdefault(topic, []).append(partition)
    audience = Audience(tuple(free), tuple(sorted(consumers)))
    return Pool(audience, {topic: {} for topic in free}, free, Counter())
