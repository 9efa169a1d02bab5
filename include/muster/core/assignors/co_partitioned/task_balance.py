"""Balance tasks of different sizes over consumers, with hand-overs that each improve the balance.

What is looked for is balance as `muster.core.assignors.balance` defines it, the least sum of `partitions² / weight`.
With tasks of unequal sizes the very least is out of reach (it is bin packing). So:

1. tasks without an owner go, the largest first, to where they cost least;
2. while handing one task from one consumer to another makes the sum smaller, the consumer under most pressure hands
   over the one that does so most.

At the end no single hand-over improves the balance. With equal weights and subscriptions that means: a consumer has
at most as many partitions more than another one as its smallest task holds. Where all tasks are of one size and all
consumers subscribe to the same topics, it is the exact optimum, with the fewest moves. With different subscriptions a
chain of hand-overs could still improve it, or save a move.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from muster.core.assignors.balance import CheapestFirst, cost_of_next, for_weight, hand_over_in_turn
from muster.core.assignors.co_partitioned.tasks import Task
from muster.core.assignors.subscriptions import Audience

_Kind = tuple[int, int]
"""`Task.kind`."""
_Prepared = tuple[CheapestFirst[str, int], dict[str, list[Task]]]
"""Consumers by cost, and the tasks that each of them stands by for."""


class TaskBalance:
    """The owner of each task, while it is worked out. `weights` are in millionths (`weight_of`)."""

    def __init__(
        self,
        tasks: Sequence[Task],
        groups: Sequence[Audience],
        weights: Mapping[str, int],
        alone: Iterable[str] = (),
    ) -> None:
        """Take as `alone` the consumers of single partitions that are in none of `tasks`, one entry a partition."""
        self.weights = weights
        self.owner: dict[Task, str] = {}
        self.load: Counter[str] = Counter(alone)
        self.crowds = {task.crowd.number: task.crowd.consumers for task in tasks}
        counts = Counter(task.group for task in tasks)
        self.even_share = [counts[g] / len(group.consumers) for g, group in enumerate(groups)]
        self.smallest = min((task.size for task in tasks), default=1)

    def give(self, task: Task, consumer: str) -> None:
        """Give `task` to `consumer`, from any owner."""
        if (before := self.owner.get(task)) is not None:
            self.load[before] -= task.size
        self.owner[task] = consumer
        self.load[consumer] += task.size

    def place(self, free: Iterable[Task]) -> None:
        """Give away what has no owner: large tasks first, then those that few can take."""
        by_kind: dict[_Kind, list[Task]] = defaultdict(list)
        for task in free:
            by_kind[task.kind].append(task)
        for kind in sorted(by_kind, key=lambda kind: (-kind[0], len(self.crowds[kind[1]]), kind[1])):
            receivers = self._cheapest_first(self.crowds[kind[1]], kind)
            for task in by_kind[kind]:
                self.give(task, receivers.first()[1])

    def even_out(
        self, movable: Iterable[Task], strays: Iterable[Task], standing: Mapping[Task, Iterable[str]]
    ) -> None:
        """Hand over tasks until no single hand-over improves the balance.

        `movable` may be handed over, at the cost of a move; `strays` are on the move anyway and go first.
        `standing` are the standbys of a task: they are preferred where another hand-over would be no better.
        """
        offered = self._offered(movable)
        for task in strays:
            offered[self.owner[task]][task.kind].append(task)
        while self._once_round(offered, standing):
            pass

    def _offered(self, movable: Iterable[Task]) -> dict[str, dict[_Kind, list[Task]]]:
        """Return what each consumer could hand over, by kind, the first to go last in its list.

        First goes what it has most above an even share of, and not the same group at every consumer.
        """
        held: dict[str, dict[int, list[Task]]] = defaultdict(lambda: defaultdict(list))
        for task in movable:
            held[self.owner[task]][task.group].append(task)
        offered: dict[str, dict[_Kind, list[Task]]] = defaultdict(lambda: defaultdict(list))
        for turn, consumer in enumerate(sorted(held)):
            ranked = sorted(
                (number - self.even_share[group], (group + turn) % len(self.even_share), task.number, task)
                for group, tasks in held[consumer].items()
                for number, task in enumerate(sorted(tasks, key=lambda task: task.number))
            )
            for *_, task in ranked:
                offered[consumer][task.kind].append(task)
        return offered

    def _once_round(
        self,
        offered: dict[str, dict[_Kind, list[Task]]],
        standing: Mapping[Task, Iterable[str]],
    ) -> bool:
        receivers: dict[_Kind, CheapestFirst[str, int]] = {}
        prepared: dict[tuple[str, _Kind], _Prepared] = {}

        def hand_over(giver: str) -> str | None:
            if (best := self._best(giver, offered[giver], receivers)) is None:
                return None
            kind, receiver = best
            tasks = offered[giver][kind]
            if (giver, kind) not in prepared:
                prepared[giver, kind] = self._prepared(tasks, kind, standing)
            found = self._from_prepared(prepared[giver, kind], giver, self._cost_up(receiver, kind[0]))
            task, receiver = found or (tasks.pop(), receiver)
            self.give(task, receiver)
            offered[receiver][kind].append(task)
            return receiver

        return hand_over_in_turn(offered, self._pressure, hand_over)

    def _best(
        self, giver: str, offered: Mapping[_Kind, list[Task]], receivers: dict[_Kind, CheapestFirst[str, int]]
    ) -> tuple[_Kind, str] | None:
        """Return the kind of which `giver` should hand a task over, and to which consumer; None if none helps."""
        best: tuple[int, _Kind, str] | None = None
        for kind in sorted(offered):
            while (tasks := offered[kind]) and self.owner[tasks[-1]] != giver:
                tasks.pop()  # was handed over out of turn
            if not tasks:
                continue
            if kind not in receivers:
                receivers[kind] = self._cheapest_first(self.crowds[kind[1]], kind)
            cost, receiver = receivers[kind].first()
            gain = self._saving(giver, kind[0]) - cost
            if gain > 0 and (best is None or gain > best[0]):
                best = (gain, kind, receiver)
        return best and best[1:]

    def _prepared(
        self, tasks: Iterable[Task], kind: _Kind, standing: Mapping[Task, Iterable[str]]
    ) -> _Prepared:
        """Return the standbys of `tasks`, by what one would cost them, and the tasks of each."""
        tasks_for: dict[str, list[Task]] = defaultdict(list)
        for task in tasks:
            for consumer in standing.get(task, ()):
                tasks_for[consumer].append(task)
        return self._cheapest_first(tasks_for, kind), tasks_for

    def _from_prepared(self, prepared: _Prepared, giver: str, cost: int) -> tuple[Task, str] | None:
        """Return a task of `giver` and its standby, if one costs no more than `cost`."""
        standbys, tasks_for = prepared
        while standbys:
            least, consumer = standbys.first()
            if least > cost:
                return None
            while tasks := tasks_for[consumer]:
                if self.owner[task := tasks.pop()] == giver:
                    return task, consumer
            standbys.drop_first()
        return None

    def _cheapest_first(self, consumers: Iterable[str], kind: _Kind) -> CheapestFirst[str, int]:
        return CheapestFirst(consumers, lambda consumer: self._cost_up(consumer, kind[0]))

    def _cost_up(self, consumer: str, size: int) -> int:
        """Return what `size` partitions more cost a consumer."""
        return cost_of_next(self.load[consumer], self.weights[consumer], size)

    def _saving(self, consumer: str, size: int) -> int:
        """Return what `size` partitions less save a consumer."""
        return cost_of_next(self.load[consumer] - size, self.weights[consumer], size)

    def _pressure(self, consumer: str) -> int:
        return for_weight(2 * self.load[consumer] - self.smallest, self.weights[consumer])
