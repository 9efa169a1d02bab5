"""Place the standbys of each task: in another zone than its owner, evenly, with as few changes as possible."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from muster.core.assignors.balance import CheapestFirst, for_weight
from muster.core.assignors.co_partitioned.tasks import Task
from muster.core.model import Consumer

_Pressure = tuple[int, int]
_Candidates = CheapestFirst[str, _Pressure]
_LOOK_AHEAD = 16
"""How many consumers next in turn are looked at for one that is as little loaded as the least loaded one."""


class StandbyPlacement:
    """The standbys of all tasks while they are worked out. The rule, in order:

    1. `keep`: a consumer that stood by and still can stays, in the order in which it stood.
    2. `fill`: what then is missing of `wanted` standbys a task is taken from the consumers that subscribe to the
       whole group: in another zone than the owner and the other standbys, as far as there is one; then the one that
       stands by for the fewest partitions in proportion to weight; then the one that would read the fewest, in
       proportion to weight, if all that it stands by for of that owner were promoted, which happens at one moment.
    3. `even_out`: a standby is replaced, in its place, by one in a better zone, or by one in no worse zone that even
       then stands by for less than the replaced one does now.

    At the end no replacement is possible any more, and whether one is depends on nothing but the standbys of all
    tasks: so the next planning changes nothing. Without zones, with equal weights and subscriptions, that means that
    two consumers of which one does not take part in a task of the other differ by the size of a task at most.
    A consumer without a `zone` counts as in a zone of its own.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        weights: Mapping[str, int],
        consumers: Mapping[str, Consumer],
        wanted: int,
        active: Counter[str],
    ) -> None:
        """Take `weights` in millionths (`weight_of`); `active` is how many partitions each consumer reads."""
        self.standing: dict[Task, list[str]] = {}
        self._owner: dict[Task, str] = {}
        self._wanted = wanted
        self._smallest = min((task.size for task in tasks), default=1)
        self._weights = weights
        self._active = active
        self._promoted: Counter[tuple[str, str]] = Counter()
        self._zone = {name: consumer.zone for name, consumer in consumers.items()}
        self._load: Counter[str] = Counter()
        self._given: Counter[str] = Counter()
        # The consumers that may stand by for the tasks of each crowd, by zone; and for each consumer those it is in.
        self._candidates: dict[int, dict[str | None, _Candidates]] = defaultdict(dict)
        self._candidates_with: dict[str, list[_Candidates]] = defaultdict(list)
        for crowd in {task.crowd.number: task.crowd for task in tasks}.values():
            by_zone: dict[str | None, list[str]] = defaultdict(list)
            for consumer in crowd.consumers:
                by_zone[self._zone[consumer]].append(consumer)
            for zone, near in by_zone.items():
                candidates = self._candidates[crowd.number][zone] = CheapestFirst(near, self._pressure)
                for consumer in near:
                    self._candidates_with[consumer].append(candidates)

    def keep(self, task: Task, owner: str, previous: Sequence[str]) -> None:
        """Make `task` of `owner` known, and let those of `previous` stand by for it that may."""
        self._owner[task] = owner
        self.standing[task] = [consumer for consumer in previous if consumer != owner][: self._wanted]
        for consumer in self.standing[task]:
            self._carry(task, consumer, task.size)

    def fill(self) -> None:
        """Bring every task to the wanted number of standbys, as far as there are consumers for it."""
        for place in range(self._wanted):
            for task, standing in self.standing.items():
                if len(standing) > place:
                    continue
                taken = {self._owner[task], *standing}
                best = self._best(task, standing, taken)
                if best is not None:
                    best = self._in_turn(task, standing, taken, best)
                    standing.append(best)
                    self._carry(task, best, task.size)
                    self._given[self._owner[task]] += 1

    def even_out(self) -> None:
        """Replace standbys until no single replacement makes zones better, or the load more even."""
        while sum(self._replace(task, place) for task in self.standing for place in range(self._wanted)):
            pass

    def _replace(self, task: Task, place: int) -> bool:
        standing = self.standing[task]
        if place >= len(standing):
            return False
        present = standing[place]
        others = [consumer for consumer in standing if consumer != present]
        clashes = self._clashes(self._zone[present], task, others)
        load = for_weight(self._load[present], self._weights[present])
        candidates = self._candidates[task.crowd.number].values()
        if not clashes and all(load <= in_zone.first()[0][0] for in_zone in candidates):
            return False  # the common case
        best = self._best(task, others, {self._owner[task], *standing})
        if best is None:
            return False
        would_clash = self._clashes(self._zone[best], task, others)
        after = for_weight(self._load[best] + task.size, self._weights[best])
        if (would_clash, after) >= (clashes, load):
            return False
        standing[place] = best
        self._carry(task, present, -task.size)
        self._carry(task, best, task.size)
        return True

    def _best(self, task: Task, standing: Sequence[str], taken: Collection[str]) -> str | None:
        """Return the best further standby of `task` beside `standing`, None if all are `taken`."""
        found = [
            (self._clashes(zone, task, standing), *least)
            for zone, candidates in self._candidates[task.crowd.number].items()
            if (least := candidates.first_but(taken)) is not None
        ]
        return min(found)[-1] if found else None

    def _in_turn(self, task: Task, standing: Sequence[str], taken: Collection[str], best: str) -> str:
        """Return, of `best` and those near in turn that are as good, the one that a promotion would leave with least.

        The promotion is that of all that it stands by for of the owner of `task`.
        """
        owner, crowd = self._owner[task], task.crowd.consumers
        # Those after the owner; each of its tasks starts elsewhere.
        start = bisect_left(crowd, owner) + 1 + self._given[owner] % max(1, len(crowd) - 1)
        next_in_turn = (crowd[(start + step) % len(crowd)] for step in range(min(len(crowd), _LOOK_AHEAD)))
        clashes, load = self._clashes(self._zone[best], task, standing), self._pressure(best)[0]
        as_good = [
            consumer
            for consumer in next_in_turn
            if consumer not in taken
            and self._pressure(consumer)[0] == load
            and self._clashes(self._zone[consumer], task, standing) == clashes
        ]

        def promoted(consumer: str) -> int:
            reads = self._active[consumer] + self._promoted[owner, consumer] + task.size
            return for_weight(reads, self._weights[consumer])

        return min([*as_good, best], key=promoted)

    def _clashes(self, zone: str | None, task: Task, others: Sequence[str]) -> int:
        """Return how much speaks against a standby in `zone`: the owner's zone most, then those of other standbys."""
        if zone is None:
            return 0
        same = sum(self._zone[consumer] == zone for consumer in others)
        return same + (self._wanted if self._zone[self._owner[task]] == zone else 0)

    def _pressure(self, consumer: str) -> _Pressure:
        """Return what it stands by for, with one small task more, and what it reads, in proportion to weight."""
        weight = self._weights[consumer]
        standing = for_weight(self._load[consumer] + self._smallest, weight)
        return standing, for_weight(self._active[consumer], weight)

    def _carry(self, task: Task, consumer: str, partitions: int) -> None:
        self._load[consumer] += partitions
        self._promoted[self._owner[task], consumer] += partitions
        if partitions < 0:
            for candidates in self._candidates_with[consumer]:
                candidates.push(consumer)
