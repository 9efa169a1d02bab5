"""Balance measured load: where partitions stay, where new ones go, and which ones move.

Loads are whole numbers (`partition_loads`), a consumer carries `load / weight`. What makes two of them
most even is what makes the sum of `load² / weight` smallest; each move and each swap makes it smaller, so they end.
That holds from plan to plan, too: what is moved is measured, as is everything else at both consumers, and counts the
same in every plan. So under constant load it comes to rest, however late what has moved is measured again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from muster.core.assignors.api import Pins
from muster.core.assignors.balance import CheapestFirst, weight_of
from muster.core.assignors.load_aware import PartitionLoads
from muster.core.assignors.subscriptions import Audience
from muster.core.assignors.zones import Zones
from muster.core.model import Assignment, Consumer

_Item = tuple[int, str, int]
"""What a partition counts, its topic and its number."""
_PARTNERS = 8
"""How many consumers a swap is looked for with; a move is looked for with all."""
_NO_OWNER = -1


class LoadBalancer:
    """An assignment while its load is balanced. Consumers and audiences go by their position.

    `owners` is the assignment, complete after `place`.
    """

    def __init__(
        self,
        groups: Sequence[Audience],
        consumers: Mapping[str, Consumer],
        loads: PartitionLoads,
        tolerance: float,
    ) -> None:
        """Take what each partition counts as `loads`; `tolerance` is a fraction of the average load for a weight."""
        self.owners: dict[str, dict[int, str]] = {}
        self._counts = loads.counts
        self._estimated = loads.estimated
        self._average = loads.average
        self._names = sorted({consumer for audience in groups for consumer in audience.consumers})
        self._position = {consumer: number for number, consumer in enumerate(self._names)}
        self._zones = [consumers[c].zone for c in self._names]
        self._weights = [weight_of(consumers[c]) for c in self._names]
        self._shares = np.array(self._weights, dtype=np.float64)
        self._load = [0] * len(self._names)
        self._takers = [[self._position[c] for c in audience.consumers] for audience in groups]
        self._audience = {topic: number for number, group in enumerate(groups) for topic in group.topics}
        # What each consumer may give away, by audience and in ascending order of load.
        self._holdings: list[dict[int, list[_Item]]] = [{} for _ in self._names]
        total = sum(sum(of_topic.values()) for of_topic in loads.counts.values())
        self._mean = total / max(1, sum(self._weights))
        self._allowed = tolerance * self._mean
        self._home: dict[tuple[str, int], int] = {}
        self._carried: NDArray[np.float64] = np.zeros(len(self._names))
        # The consumers of partitions whose load is not known: what they carry is not known either.
        self._unmeasured: list[int] = []
        # Which consumers may take of each audience, and the least that each could give away of it.
        self._takes = np.zeros((len(self._takers), len(self._names)), dtype=np.bool_)
        for number, takers in enumerate(self._takers):
            self._takes[number, takers] = True
        self._least = np.full(self._takes.shape, np.inf)

    def place(
        self, topics: Mapping[str, frozenset[int]], previous: Assignment, pins: Pins, zones: Zones | None
    ) -> None:
        """Leave each partition of `topics` where it can stay; the others go to the consumers that carry least."""
        unowned: list[_Item] = []
        subscribers = [frozenset(takers) for takers in self._takers]
        for topic in sorted(topics):
            audience, counts = self._audience[topic], self._counts[topic]
            before, pinned = previous.get(topic, {}), pins.get(topic, {})
            owners = self.owners[topic] = {}
            for partition in sorted(topics[topic]):
                consumer = self._position.get(before.get(partition, ""), _NO_OWNER)
                item = (counts[partition], topic, partition)
                if consumer not in subscribers[audience]:
                    unowned.append(item)
                    continue
                owners[partition] = self._names[consumer]
                self._load[consumer] += item[0]
                if partition not in pinned:
                    self._holdings[consumer].setdefault(audience, []).append(item)
                    self._home[topic, partition] = consumer
        self._place_unowned(unowned, zones)
        self._unmeasured = sorted(
            {self._position[self.owners[t][p]] for t, numbers in self._estimated.items() for p in numbers}
        )
        for consumer, of_consumer in enumerate(self._holdings):
            for audience, items in of_consumer.items():
                items.sort()
                self._least[audience, consumer] = items[0][0]
        self._carried = np.array(self._load, dtype=np.float64) / self._shares

    def _place_unowned(self, unowned: list[_Item], zones: Zones | None) -> None:
        by_zone: dict[tuple[int, str | None], CheapestFirst[int, tuple[float, int]]] = {}
        number = [sum(map(len, of_consumer.values())) for of_consumer in self._holdings]
        # Beside its load a partition costs something by itself: idle ones may wake up, and are spread, too.
        each = self._average // 10

        def carried(consumer: int) -> tuple[float, int]:
            load = self._load[consumer] + number[consumer] * each + self._average
            return load / self._weights[consumer], number[consumer]

        def takers(audience: int, zone: str | None) -> CheapestFirst[int, tuple[float, int]]:
            if (found := by_zone.get((audience, zone))) is None:
                near = (c for c in self._takers[audience] if zone is None or self._zones[c] == zone)
                found = by_zone[audience, zone] = CheapestFirst(near, carried)
            return found

        unowned.sort(key=lambda item: (-item[0], item[1], item[2]))
        for item in unowned:
            count, topic, partition = item
            audience, rack = self._audience[topic], zones.rack(topic, partition) if zones else None
            consumer = takers(audience, None).first()[1]
            if rack is not None and (near := takers(audience, rack)):
                neighbour = near.first()[1]
                with_it = (self._load[neighbour] + count) / self._weights[neighbour]
                consumer = neighbour if with_it <= self._mean + self._allowed else consumer
            self.owners[topic][partition] = self._names[consumer]
            self._holdings[consumer].setdefault(audience, []).append(item)
            self._load[consumer] += count
            number[consumer] += 1

    def even_out(self, budget: int) -> None:
        """Move partitions until all carry their part within the tolerance; at most `budget` leave their home.

        A consumer of a partition whose load is not known neither gives nor takes any until it is.
        """
        if not self._names:
            return
        moved_any = True
        while moved_any:
            moved_any = False
            stuck: set[int] = set()
            while budget > 0 and (found := self._furthest_off(stuck)) is not None:
                consumer, gives = found
                cost = self._improve(consumer, gives, budget)
                if cost is None:
                    stuck.add(consumer)
                    continue
                moved_any = True
                budget -= cost

    def _furthest_off(self, stuck: set[int]) -> tuple[int, bool] | None:
        """Return the consumer furthest off, and whether it carries too much; None if all are within the tolerance."""
        off = np.abs(self._carried - self._mean)
        off[[*stuck, *self._unmeasured]] = 0
        consumer = int(off.argmax())
        if off[consumer] <= self._allowed * (1 + 1e-9):
            return None
        return consumer, bool(self._carried[consumer] > self._mean)

    def _improve(self, consumer: int, gives: bool, budget: int) -> int | None:
        """Move or swap what makes `consumer` and another one more even.

        Returns how many moves it cost, None if there is nothing to move.
        """
        for swap in (False, True):
            for partner in self._partners(consumer, gives, swap):
                giver, taker = (consumer, partner) if gives else (partner, consumer)
                found = self._swap(giver, taker) if swap else self._move(giver, taker)
                if found is None:
                    continue
                cost = sum(self._cost(item, to) for item, _, to in found)
                if cost > budget:
                    continue
                for item, source, target in found:
                    self._hand_over(item, source, target)
                return cost
        return None

    def _partners(self, consumer: int, gives: bool, swap: bool) -> list[int]:
        """Return the consumers that it could give to or take from, least (or most) load first, if they differ enough.

        For a swap the first few of them; for a move all those for which some partition is small enough.
        """
        gap = (self._carried[consumer] - self._carried) * (1 if gives else -1)
        own = self._weights[consumer]
        limit = np.full(len(gap), np.inf) if swap else 2 * gap * own * self._shares / (own + self._shares)
        if gives:
            held = np.flatnonzero(self._least[:, consumer] < np.inf)
            able = (self._takes[held] & (self._least[held, consumer][:, np.newaxis] < limit)).any(axis=0)
        else:
            able = (self._least[self._takes[:, consumer]] < limit).any(axis=0)
        able[[consumer, *self._unmeasured]] = False
        gap[~able] = 0
        first = np.argsort(-gap, kind="stable")[: _PARTNERS if swap else len(gap)]
        return [int(c) for c in first if gap[c] > self._allowed]

    def _common(self, giver: int, taker: int) -> Iterator[list[_Item]]:
        """Yield what `giver` holds that `taker` may take, one list an audience."""
        for audience, items in sorted(self._holdings[giver].items()):
            if items and self._takes[audience, taker]:
                yield items

    def _ideal(self, giver: int, taker: int) -> float:
        """Return how much load from one to the other would make them even; up to twice as much helps."""
        heavy, light = self._weights[giver], self._weights[taker]
        return (self._load[giver] * light - self._load[taker] * heavy) / (heavy + light)

    def _move(self, giver: int, taker: int) -> list[tuple[_Item, int, int]] | None:
        ideal = self._ideal(giver, taker)
        near: list[_Item] = []
        for items in self._common(giver, taker):
            place = bisect_left(items, (ideal,))
            near += items[max(0, place - 1) : place + 1]
        best = min(near, key=lambda item: (abs(item[0] - ideal), item), default=None)
        if best is None or best[0] >= 2 * ideal:
            return None
        return [(best, giver, taker)]

    def _swap(self, giver: int, taker: int) -> list[tuple[_Item, int, int]] | None:
        ideal = self._ideal(giver, taker)
        back = sorted(item for items in self._common(taker, giver) for item in items)
        best: tuple[float, _Item, _Item] | None = None
        for items in self._common(giver, taker):
            for item in items:
                place = bisect_left(back, (item[0] - ideal,))
                for other in back[max(0, place - 1) : place + 1]:
                    difference = item[0] - other[0]
                    if 0 < difference < 2 * ideal:
                        found = (abs(difference - ideal), item, other)
                        best = found if best is None else min(best, found)
        if best is None:
            return None
        return [(best[1], giver, taker), (best[2], taker, giver)]

    def _cost(self, item: _Item, target: int) -> int:
        """Return how many partitions more are away from home after this one went to `target`."""
        _, topic, partition = item
        home = self._home.get((topic, partition))
        if home is None:
            return 0
        now = self._position[self.owners[topic][partition]]
        return (target != home) - (now != home)

    def _hand_over(self, item: _Item, source: int, target: int) -> None:
        count, topic, partition = item
        audience = self._audience[topic]
        items = self._holdings[source][audience]
        del items[bisect_left(items, item)]
        insort(self._holdings[target].setdefault(audience, []), item)
        for consumer in (source, target):
            held = self._holdings[consumer][audience]
            self._least[audience, consumer] = held[0][0] if held else np.inf
        self.owners[topic][partition] = self._names[target]
        for consumer, load in ((source, -count), (target, count)):
            self._load[consumer] += load
            self._carried[consumer] = self._load[consumer] / self._weights[consumer]
