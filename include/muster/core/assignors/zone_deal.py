"""Sticky's zones: who of equally loaded consumers reads what, so that as much as possible is read in its zone.

Given how many partitions each consumer is to have, for the partitions that the same consumers may take:

1. Within the tolerance, a consumer that has too many keeps them, and one that would have got them gets fewer.
2. A consumer that has too many gives first of what is missing in another zone, then of what is out of its zone
   anyway, and only then of its own zone.
3. Where more partitions are free in a zone than its consumers have room for, they get room from consumers of zones
   that have too much of it, if that leaves all as balanced as they were, or within the tolerance.
4. Free partitions go to consumers of their zone, then to those that still have room.
5. If the rule allows moves for the zone alone, partitions that stayed are swapped between consumers, in the end and
   over all topics.

Each step takes what is best at the moment, partition by partition, and does not look further ahead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from muster.core.assignors.blocks import Quota
from muster.core.assignors.load import cost_of_next, weight_of
from muster.core.assignors.pool import Pool
from muster.core.assignors.subscriptions import Audience
from muster.core.assignors.zones import Racks
from muster.core.model import Assignment, Consumer

_Place = tuple[str, int]
"""A topic and a partition of it."""
_PAIRS = 1_000_000
"""How many pairs of kinds a swap is looked for in: some 0.5 seconds at the most."""


@dataclass(frozen=True, slots=True)
class ZoneRule:
    """What zones may cost.

    `tolerance`: by what part of its balanced share a consumer may have more or less, rounded down to partitions.
    `moves`: how many partitions that could stay may be moved in one planning for the sake of their zone.
    """

    tolerance: float = 0.0
    moves: int = 0


class _Kind(NamedTuple):
    """Partitions that are swapped alike: the zone they are read in, the rack of their leader, their audience, and the
    audiences that their consumer is in."""

    zone: str | None
    rack: str | None
    audience: int
    takes: frozenset[int]


class ZoneDeal:
    """Deals out all pools, one after the other; what one pool does within the tolerance the next one counts."""

    def __init__(
        self,
        consumers: Mapping[str, Consumer],
        racks: Racks,
        rule: ZoneRule,
        shares: Iterable[Mapping[str, int]],
        pinned: Mapping[str, int],
    ) -> None:
        """`shares` are the balanced ones of all pools, to which come what is `pinned` to each consumer."""
        self._zones = {c: consumer.zone for c, consumer in consumers.items()}
        self._weights = {c: weight_of(consumer) for c, consumer in consumers.items()}
        self._racks = racks
        self._moves = rule.moves
        self._load: Counter[str] = Counter(dict.fromkeys(consumers, 0))
        self._load.update(pinned)
        for share in shares:
            self._load.update(share)
        self._tolerance = rule.tolerance
        self._bounds = {
            c: (least - int(rule.tolerance * least), most + int(rule.tolerance * most))
            for c, (least, most) in self._balanced(pinned).items()
        }

    def dealt(
        self,
        audience: Audience,
        topics: Mapping[str, frozenset[int]],
        previous: Assignment,
        share: Mapping[str, int],
    ) -> dict[str, dict[int, str]]:
        """Return the owners of all partitions of the audience's topics, by topic."""
        pool = _ZonePool(audience, topics, previous, dict(share))
        self._keep_within_tolerance(pool)
        self._release(pool)
        self._shift_room(pool)
        return self._dealt(pool, topics)

    def _rack(self, place: _Place) -> str | None:
        return self._racks.get(place[0], {}).get(place[1])

    def _shift(self, pool: _ZonePool, source: str, target: str) -> None:
        for consumer, partitions in ((source, -1), (target, 1)):
            pool.share[consumer] = pool.share.get(consumer, 0) + partitions
            self._load[consumer] += partitions

    def _balanced(self, pinned: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """The least and the most that each consumer can have in plans that are all as balanced as this one.

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
        return (
            self._within_tolerance(source, target) if self._tolerance else self._as_balanced(source, target)
        )

    def _within_tolerance(self, source: str, target: str) -> bool:
        return self._load[target] < self._bounds[target][1] and self._load[source] > self._bounds[source][0]

    def _as_balanced(self, source: str, target: str) -> bool:
        gain = cost_of_next(self._load[source] - 1, self._weights[source])
        return cost_of_next(self._load[target], self._weights[target]) <= gain

    def _keep_within_tolerance(self, pool: _ZonePool) -> None:
        if not self._tolerance:
            return
        takers = [c for c in pool.consumers if pool.room(c) > 0]
        for keeper in [c for c in pool.consumers if pool.room(c) < 0]:
            for taker in takers:
                while pool.room(keeper) < 0 < pool.room(taker) and self._within_tolerance(taker, keeper):
                    self._shift(pool, taker, keeper)

    def _release(self, pool: _ZonePool) -> None:
        missing: Counter[str | None] = Counter()
        for consumer in pool.consumers:
            missing[self._zones[consumer]] += max(0, pool.room(consumer))
        missing.subtract(map(self._rack, pool.free))
        del missing[None]
        for consumer in pool.consumers:
            excess = -pool.room(consumer)
            if excess > 0:
                given = self._given(pool.ranked(consumer), self._zones[consumer], excess, missing)
                pool.release(consumer, given)

    def _given(
        self, ranked: Sequence[_Place], zone: str | None, excess: int, missing: Counter[str | None]
    ) -> list[_Place]:
        """The `excess` partitions that a consumer of `zone` gives; notes in `missing` what is missing no more."""
        by_rack: dict[str | None, list[int]] = {}
        for number, place in enumerate(ranked):
            by_rack.setdefault(self._rack(place), []).append(number)
        for numbers in by_rack.values():
            numbers.reverse()
        given = []
        for _ in range(excess):
            rack = min(
                (rack for rack, numbers in by_rack.items() if numbers),
                key=lambda rack: (rack == zone, min(0, -missing[rack]), by_rack[rack][-1]),
            )
            given.append(ranked[by_rack[rack].pop()])
            missing[rack] -= 1
        return given

    def _shift_room(self, pool: _ZonePool) -> None:
        room: Counter[str | None] = Counter()
        for consumer in pool.consumers:
            room[self._zones[consumer]] += max(0, pool.room(consumer))
        waiting = Counter(map(self._rack, pool.free))
        takers: dict[str | None, list[str]] = {}
        for consumer in pool.consumers:
            if pool.room(consumer) >= 0:
                takers.setdefault(self._zones[consumer], []).append(consumer)
        givers = [c for c in pool.consumers if pool.room(c) > 0]
        for zone in sorted(takers, key=str):
            if zone is None:
                continue
            for giver in givers:
                source = self._zones[giver]
                while (
                    waiting[zone] > room[zone]
                    and pool.room(giver) > 0
                    and source != zone
                    and (source is None or room[source] > waiting[source])
                ):
                    target = min(
                        takers[zone], key=lambda c: (cost_of_next(self._load[c], self._weights[c]), c)
                    )
                    if not self._may_shift(giver, target):
                        break
                    self._shift(pool, giver, target)
                    room[source] -= 1
                    room[zone] += 1

    def _dealt(self, pool: _ZonePool, topics: Mapping[str, frozenset[int]]) -> dict[str, dict[int, str]]:
        free: dict[str, list[_Place]] = {}
        for place in pool.free:
            if (rack := self._rack(place)) is not None:
                free.setdefault(rack, []).append(place)
        share = dict(pool.share)
        in_zone: dict[str, dict[int, str]] = {}
        for zone in sorted(free):
            room = {c: r for c in pool.consumers if self._zones[c] == zone and (r := pool.room(c)) > 0}
            total = sum(room.values())
            if not total:
                continue
            places = _spread(free[zone])[:total]
            takes = room if len(places) == total else dict(Quota(len(places), room).blocks())
            for topic, owners in _dealt_among(room, places, takes).items():
                in_zone.setdefault(topic, {}).update(owners)
            for consumer, partitions in takes.items():
                share[consumer] -= partitions
        rest = {topic: topics[topic].difference(in_zone.get(topic, ())) for topic in pool.audience.topics}
        dealt = Pool.of(pool.audience, rest, self._staying(pool)).dealt(share)
        return {topic: {**owners, **in_zone.get(topic, {})} for topic, owners in dealt.items()}

    @staticmethod
    def _staying(pool: _ZonePool) -> dict[str, dict[int, str]]:
        staying: dict[str, dict[int, str]] = {}
        for consumer, places in pool.kept.items():
            for topic, partition in places:
                staying.setdefault(topic, {})[partition] = consumer
        return staying

    def swap(
        self,
        owners: Mapping[str, MutableMapping[int, str]],
        audiences: Sequence[Audience],
        previous: Assignment,
    ) -> None:
        """Swap what `owners` read out of its zone, also between topics of different `audiences`, as far as the rule
        allows moves: first where both partitions come home.
        """
        if not self._moves:
            return
        takes: dict[str, list[int]] = {}
        for number, audience in enumerate(audiences):
            for consumer in audience.consumers:
                takes.setdefault(consumer, []).append(number)
        taken = {consumer: frozenset(numbers) for consumer, numbers in takes.items()}
        away: dict[_Kind, list[_Place]] = {}
        for number, audience in enumerate(audiences):
            for topic in audience.topics:
                for partition, consumer in sorted(owners[topic].items()):
                    zone, rack = self._zones[consumer], self._rack((topic, partition))
                    if rack != zone:
                        kind = _Kind(zone, rack, number, taken[consumer])
                        away.setdefault(kind, []).append((topic, partition))
        for kind, other in islice(_pairs(sorted(away, key=lambda kind: str(kind[:2]))), _PAIRS):
            if not self._moves:
                return
            if away[kind] and away[other] and kind.audience in other.takes:
                self._swap_pairs(away[kind], away[other], owners, previous)

    def _swap_pairs(
        self,
        some: list[_Place],
        others: list[_Place],
        owners: Mapping[str, MutableMapping[int, str]],
        previous: Assignment,
    ) -> None:
        while some and others:
            (topic, partition), (other_topic, other) = some[0], others[0]
            taken, given = owners[topic][partition], owners[other_topic][other]
            cost = (previous.get(topic, {}).get(partition) == taken) + (
                previous.get(other_topic, {}).get(other) == given
            )
            if cost > self._moves:
                return
            self._moves -= cost
            del some[0], others[0]
            owners[topic][partition], owners[other_topic][other] = given, taken


def _pairs(kinds: Sequence[_Kind]) -> Iterator[tuple[_Kind, _Kind]]:
    """What could be swapped, if the second one's consumer may take the first, so that the first comes home: first
    where both do, then where one does."""
    read_in: dict[tuple[str | None, int], list[_Kind]] = {}
    for kind in kinds:
        read_in.setdefault((kind.zone, kind.audience), []).append(kind)
    for both_come_home in (True, False):
        for kind in kinds:
            for audience in sorted(kind.takes) if kind.rack is not None else ():
                for other in read_in.get((kind.rack, audience), ()):
                    if both_come_home == (kind.zone is not None and other.rack == kind.zone):
                        yield kind, other


class _ZonePool:
    """The partitions of one audience: what each consumer keeps so far, what is free, and what each is to have."""

    def __init__(
        self,
        audience: Audience,
        topics: Mapping[str, frozenset[int]],
        previous: Assignment,
        share: dict[str, int],
    ) -> None:
        self.audience = audience
        self.consumers = audience.consumers
        self.share = share
        self.kept: dict[str, list[_Place]] = {c: [] for c in audience.consumers}
        self.free: list[_Place] = []
        self._even = {topic: len(topics[topic]) / len(audience.consumers) for topic in audience.topics}
        for topic in audience.topics:
            before = previous.get(topic, {})
            for partition in sorted(topics[topic]):
                holder = self.kept.get(before.get(partition, ""))
                (self.free if holder is None else holder).append((topic, partition))

    def room(self, consumer: str) -> int:
        """How many partitions it is to get, or to give where that is negative."""
        return self.share.get(consumer, 0) - len(self.kept[consumer])

    def ranked(self, consumer: str) -> list[_Place]:
        """What it keeps, first what it has most of beyond an even share of the topic."""
        number: Counter[str] = Counter()
        ranked = []
        for topic, partition in self.kept[consumer]:
            ranked.append((self._even[topic] - number[topic], topic, partition))
            number[topic] += 1
        return [(topic, partition) for _, topic, partition in sorted(ranked)]

    def release(self, consumer: str, given: Iterable[_Place]) -> None:
        """Free what is given."""
        places = set(given)
        self.kept[consumer] = [place for place in self.kept[consumer] if place not in places]
        self.free = sorted([*self.free, *places])


def _spread(places: Sequence[_Place]) -> list[_Place]:
    """The same in an order in which any beginning has its part of every topic."""
    number: Counter[str] = Counter()
    total = Counter(topic for topic, _ in places)
    keyed = []
    for topic, partition in places:
        keyed.append(((2 * number[topic] + 1) / total[topic], topic, partition))
        number[topic] += 1
    return [(topic, partition) for _, topic, partition in sorted(keyed)]


def _dealt_among(
    consumers: Iterable[str], places: Iterable[_Place], takes: Mapping[str, int]
) -> dict[str, dict[int, str]]:
    """Deal `places` to `consumers`, to each as many as it `takes`."""
    topics: dict[str, set[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, set()).add(partition)
    audience = Audience(tuple(sorted(topics)), tuple(sorted(consumers)))
    return Pool.of(audience, {topic: frozenset(p) for topic, p in topics.items()}, {}).dealt(takes)
