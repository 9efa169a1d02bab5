"""Co-partitioned: partition n of every topic in a group goes to the same consumer.

What Kafka Streams' `StreamsPartitionAssignor` does with tasks, for consumers that join topics by key. In this
order:

1. Topics form groups (`tasks`). Partition n of every topic of a group, a task, goes to one consumer, which
   subscribes to the whole group. Where only some of the topics have a partition n, the task is those.
2. A pin takes the whole task with it. Of several pins in one task, that of the first topic in order counts whose
   consumer subscribes to the whole group; each other one is obeyed for its own partition alone, and takes that out
   of the task: it counts as its consumer's in the balance, and the task's owner, to which it returns, is the first
   to stand by for it.
3. With `standbys: k`, each task whose owner is gone goes to the first of its standbys that is live. In a plan in
   which that happens nothing else moves that could stay; balance comes with the next plan.
4. Otherwise as balanced as single hand-overs of tasks make it, by number of partitions over all groups and in
   proportion to `weight` (`task_balance`), and a task stays with the consumer that holds most of it unless it has
   to go for the sake of balance. Of consumers that might as well be given one, and of tasks that might as well go,
   those are taken of which the one stands by for the other.

A group moves as a whole: while one of its topics is in mid-rebalance, its tasks stay where they are or are to be,
and only those without a live owner are given one.

`zone` comes after all of this: tasks without an owner go to the zone that most of their leaders are in, where that
changes neither balance nor moves. Standbys are placed in another zone than the owner's where there is one
(`standby_placement`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, MutableMapping

from muster.core.assignors.api import NOTHING, Pins, Racks, Standbys
from muster.core.assignors.balance import weights_of
from muster.core.assignors.co_partitioned.standby_placement import StandbyPlacement
from muster.core.assignors.co_partitioned.task_balance import TaskBalance
from muster.core.assignors.co_partitioned.tasks import Grouping, Task, tasks_of
from muster.core.assignors.pins import with_pinned
from muster.core.assignors.zones import Zones, swap_home, zones_that_matter
from muster.core.model import Assignment, Consumer, TopicPartition


class CoPartitioned:
    """Assigns by the rule of this module.

    Options: `groups`, a list of lists of topics or patterns (`tasks.Grouping`), by default topics that are alike;
    `standbys`, how many consumers stand by for each partition, by default 0.
    """

    name = "co-partitioned"

    def __init__(self, groups: list[list[str]] | None = None, standbys: int = 0) -> None:
        if type(standbys) is not int or standbys < 0:
            raise ValueError(f"standbys must be a whole number from 0, found {standbys!r}")
        self._grouping = Grouping(groups)
        self._standbys = standbys

    def assign(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        previous: Assignment,
        /,
        *,
        pins: Pins = NOTHING,
        racks: Racks = NOTHING,
        standbys: Standbys = NOTHING,
        unsettled: frozenset[str] = frozenset(),
    ) -> Assignment:
        """See `Assignor.assign`; `pins` are those that can be obeyed, the rest is as in `PlanningContext`."""
        groups = self._grouping.of(topics, consumers)
        held_still = [not unsettled.isdisjoint(group.topics) for group in groups]
        tasks = tasks_of(groups, topics)
        pinned = {task: task.leader(pins) for task in tasks} if pins else {}
        alone = [c for task, leader in pinned.items() for c in task.without_pinned_away(pins, leader)]
        tasks = [task for task in tasks if task.size]
        standing = {task: task.standing_by(standbys) if self._standbys else [] for task in tasks}
        balance = TaskBalance(tasks, groups, weights_of(consumers), alone)
        free: list[Task] = []
        movable: list[Task] = []
        promoted = False
        for task in tasks:
            if (leader := pinned.get(task)) is not None:
                balance.give(task, leader)
            elif (holder := task.holder(previous)) is not None:
                balance.give(task, holder)
                if not held_still[task.group]:
                    movable.append(task)
            elif standing[task]:
                balance.give(task, standing[task][0])
                promoted = True
            else:
                free.append(task)
        balance.place(free)
        if not promoted:
            balance.even_out(movable, free, standing)
        if free and (zones := zones_that_matter(racks, topics, consumers)):
            _bring_home(balance.owner, free, zones)
        return with_pinned(_partitions(balance.owner), pins)

    def tasks(
        self, topics: Mapping[str, frozenset[int]], consumers: Mapping[str, Consumer], /
    ) -> list[list[TopicPartition]]:
        """See `HasTasks.tasks`."""
        found = tasks_of(self._grouping.of(topics, consumers), topics)
        return [[(topic, task.number) for topic in task.topics] for task in found]

    def standbys(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        assignment: Assignment,
        previous_standbys: Standbys,
        /,
    ) -> Standbys:
        """See `HasStandbys.standbys`."""
        if not self._standbys:
            return {}
        tasks = tasks_of(self._grouping.of(topics, consumers), topics)
        active = Counter(owner for owners in assignment.values() for owner in owners.values())
        placement = StandbyPlacement(tasks, weights_of(consumers), consumers, self._standbys, active)
        for task in tasks:
            owner = task.leader(assignment) or task.leader(assignment, consumers)
            if owner is not None:
                placement.keep(task, owner, task.standing_by(previous_standbys))
        placement.fill()
        placement.even_out()
        result: dict[str, dict[int, tuple[str, ...]]] = {}
        for task, standing in placement.standing.items():
            leader = task.leader(assignment)
            ready = standing if leader is None else [leader, *standing]
            for topic in task.topics:
                # A person may have taken one partition out of the task.
                owner = assignment[topic][task.number]
                others = [consumer for consumer in ready if consumer != owner]
                result.setdefault(topic, {})[task.number] = tuple(others[: self._standbys])
        return result


def _partitions(owner: Mapping[Task, str]) -> dict[str, dict[int, str]]:
    assignment: dict[str, dict[int, str]] = {}
    for task, consumer in owner.items():
        for topic in task.topics:
            assignment.setdefault(topic, {})[task.number] = consumer
    return assignment


def _bring_home(owner: MutableMapping[Task, str], free: Iterable[Task], zones: Zones) -> None:
    """Swap the owners of tasks that had to be given anyway, so that most are in the zone of their leaders.

    Only tasks of one kind change places, which costs neither balance nor moves.
    """
    by_kind: dict[tuple[int, int], list[Task]] = defaultdict(list)
    for task in free:
        by_kind[task.kind].append(task)
    for tasks in by_kind.values():
        owners = [owner[task] for task in tasks]
        swap_home(owners, [_zone(task, zones) for task in tasks], zones.of)
        owner.update(zip(tasks, owners, strict=True))


def _zone(task: Task, zones: Zones) -> str | None:
    """Return the rack that most leaders of its partitions are in, in a tie the first in alphabetical order."""
    counts = Counter(zones.racks_of(topic).get(task.number) for topic in task.topics)
    del counts[None]
    return min(counts, key=lambda rack: (-counts[rack], rack or ""), default=None)
