"""Partitions that the same consumers may take: what each keeps, and what it gets of the rest.

Two steps, with the shares decided in between: `Pool.of` keeps what can stay where it is, `Pool.dealt` brings every
consumer to its share. How many partitions move follows from the shares alone. Which ones they are is free, and
that freedom is used to spread each topic over the consumers.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from muster.core.assignors.subscriptions import Audience
from muster.core.model import Assignment

_LOOK_AHEAD = 4
"""How many rounds of the consumers with room are searched for one that the topic may still go to."""


@dataclass(slots=True)
class Pool:
    """The partitions of one audience's topics.

    `owners` are the partitions that can stay where they are: they still exist, and their consumer is live and
    subscribed. `free` are the others, in ascending order, only of topics that have some. `held` counts `owners`.
    """

    audience: Audience
    owners: dict[str, dict[int, str]]
    free: dict[str, list[int]]
    held: Counter[str]

    @classmethod
    def of(cls, audience: Audience, topics: Mapping[str, frozenset[int]], previous: Assignment) -> Pool:
        """Keep of `previous` what can stay."""
        subscribers = frozenset(audience.consumers)
        pool = cls(audience, {}, {}, Counter())
        for topic in audience.topics:
            partitions, before = topics[topic], previous.get(topic)
            if not before:  # nothing to keep
                pool.owners[topic] = {}
                if partitions:
                    pool.free[topic] = sorted(partitions)
                continue
            if before.keys() == partitions:  # as nearly always, and then there is less to look up
                kept = dict(before)
                free: list[int] = []
                if not subscribers.issuperset(before.values()):
                    free = [p for p, c in before.items() if c not in subscribers]
                    for partition in free:
                        del kept[partition]
            else:
                kept = {p: c for p, c in before.items() if p in partitions and c in subscribers}
                free = list(partitions.difference(kept))
            pool.owners[topic] = kept
            pool.held.update(kept.values())
            if free:
                pool.free[topic] = sorted(free)
        return pool

    @property
    def unowned(self) -> int:
        """Return how many partitions have no keeper."""
        return sum(map(len, self.free.values()))

    @property
    def total(self) -> int:
        """Return how many partitions there are."""
        return self.held.total() + self.unowned

    def dealt(self, shares: Mapping[str, int]) -> dict[str, dict[int, str]]:
        """Give every consumer its share, which must add up to `total`, and return the owners by topic.

        A consumer gives away what it holds above its share, and no other partition moves.
        """
        self._release({c: count - shares.get(c, 0) for c, count in self.held.items()})
        room = {c: shares.get(c, 0) - self.held[c] for c in self.audience.consumers}
        return self.deal({consumer: places for consumer, places in room.items() if places > 0})

    def release(self, topic: str, partitions: Iterable[int]) -> None:
        """Take `partitions` of `topic`, one or more, from their owners."""
        owners = self.owners[topic]
        free = self.free.setdefault(topic, [])
        for partition in partitions:
            self.held[owners.pop(partition)] -= 1
            free.append(partition)
        free.sort()

    def _release(self, excess: Mapping[str, int]) -> None:
        """Free as many partitions as each consumer has in excess.

        They are of the topics of which it has most above an even share, and of several such topics those that gave
        away partitions longest ago.
        """
        giving = sorted(consumer for consumer in excess if excess[consumer] > 0)
        if not giving:
            return
        above = _AboveEven.of(self)
        turns = OrderedDict.fromkeys(self.owners)
        going: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for consumer in giving:
            for topic, count in above.most(consumer, excess[consumer], turns).items():
                going[topic][consumer] = count
                turns.move_to_end(topic)
        for topic, counts in going.items():
            self.release(topic, _last_of_each(counts, self.owners[topic]))

    def deal(self, room: Mapping[str, int]) -> dict[str, dict[int, str]]:
        """Give the free partitions to the consumers with `room`, topic by topic, and return the owners by topic.

        Each consumer's places are spread evenly over the whole deal, so that every topic meets all consumers in
        proportion to their room. A consumer that already has its share of a topic is passed over as long as
        another one is near.
        """
        places = _in_even_turns(room)[::-1]  # the next one at the end, where a list gives away cheaply
        reach = _LOOK_AHEAD * len(room)
        # As long as more places than these are left, the next ones go round: each consumer before any comes again.
        irregular = len(places) - _whole_rounds(room) * len(room)
        for topic in sorted(self.free):
            owners = self.owners[topic]
            free = self.free[topic]
            enough = -(-(len(owners) + len(free)) // len(self.audience.consumers))
            coming = places[: -len(free) - 1 : -1]
            in_one_round = len(free) <= min(len(room), len(places) - irregular)
            if (in_one_round and not owners) or _within(
                enough, owners, coming
            ):  # no consumer would be passed over
                del places[-len(free) :]
                owners.update(zip(free, coming, strict=True))
                continue
            irregular = len(places)
            has = Counter(owners.values())
            for partition in free:
                consumer = _next_place(places, has, enough, reach)
                owners[partition] = consumer
                has[consumer] += 1
        self.free.clear()
        return self.owners


@dataclass(frozen=True, slots=True)
class _AboveEven:
    """By how much each consumer is above an even share of each topic.

    All shares are multiplied by the number of `consumers`, which makes them whole numbers: `even` is one share of
    each topic, `counts` are partitions, and no consumer is above its share by more than `highest`.
    """

    consumers: int
    even: dict[str, int]
    counts: dict[str, Counter[str]]
    highest: int

    @classmethod
    def of(cls, pool: Pool) -> _AboveEven:
        consumers = len(pool.audience.consumers)
        even = {topic: len(owners) + len(pool.free.get(topic, ())) for topic, owners in pool.owners.items()}
        counts = {topic: Counter(owners.values()) for topic, owners in pool.owners.items()}
        highest = max(
            consumers * max(of_topic.values()) - even[topic] for topic, of_topic in counts.items() if of_topic
        )
        return cls(consumers, even, counts, highest)

    def most(self, consumer: str, wanted: int, turns: Iterable[str]) -> dict[str, int]:
        """Return how many partitions of which topics are to go if `consumer` gives away as many as are `wanted`.

        Topics of which it has equally much go in the order of `turns`.
        """
        levels: defaultdict[int, list[str]] = defaultdict(list)
        for topic in turns:
            if count := self.counts[topic].get(consumer, 0):
                level = self.consumers * count - self.even[topic]
                levels[level].append(topic)
                if level == self.highest and len(levels[level]) == wanted:
                    break  # the usual end: nothing that follows can be above these
        going: dict[str, int] = {}
        while wanted:
            level = max(levels)
            for topic in levels.pop(level)[:wanted]:
                going[topic] = going.get(topic, 0) + 1
                wanted -= 1
                if wanted and self.counts[topic][consumer] > going[topic]:
                    levels[level - self.consumers].append(topic)
        return going


def _last_of_each(counts: Mapping[str, int], owners: Mapping[int, str]) -> list[int]:
    """Return the partitions with the highest numbers, as many of each consumer as `counts` says."""
    left = dict(counts)
    found = []
    for partition in sorted(owners, reverse=True):
        consumer = owners[partition]
        if left.get(consumer):
            found.append(partition)
            left[consumer] -= 1
    return found


def _whole_rounds(room: Mapping[str, int]) -> int:
    """Return how often all have their turn before only some have one more; 0 if they differ by more than that."""
    least = min(room.values(), default=0)
    return least if max(room.values(), default=0) - least <= 1 else 0


def _in_even_turns(room: Mapping[str, int]) -> list[str]:
    """Return each consumer as often as it has room, at even distances."""
    if not room:
        return []
    if rounds := _whole_rounds(room):  # the common case: round after round, and no sorting
        return sorted(room) * rounds + sorted(c for c in room if room[c] > rounds)
    turns = [
        ((2 * turn + 1) / (2 * places), consumer)
        for consumer, places in room.items()
        for turn in range(places)
    ]
    turns.sort()
    return [consumer for _, consumer in turns]


def _within(enough: int, owners: Mapping[int, str], coming: Sequence[str]) -> bool:
    """Report whether each in `coming` may take one more than it has in `owners` and stay within `enough`."""
    takers = set(coming)
    if len(takers) == len(coming) and takers.isdisjoint(owners.values()):
        return True  # each takes its first one
    has = Counter(owners.values())
    has.update(coming)
    return max(map(has.__getitem__, takers)) <= enough


def _next_place(places: list[str], has: Counter[str], enough: int, reach: int) -> str:
    """Take the first place (from the end) within `reach` whose consumer has less than `enough`, else the first."""
    for position in range(1, min(reach, len(places)) + 1):
        if has[places[-position]] < enough:
            return places.pop(-position)
    return places.pop()
