"""One gate after every assignor: a shard with state by key moves where its state is. Pure.

An assignor says who is to read what; it knows nothing of stores. What it wants is carried out as follows, for each
task (`HasTasks`; else each partition is one) of topics with state. Topics without state are left as they are.

1. *It has no owner that stays.* The owner is gone, isolated or leaves: it moves at once. If the target's store is not
   warm and that of a standby, or of a consumer that warms up, is, it goes there.
2. *A warm-up is under way.* It stays where it is, and the task with its owner, whatever the plan would like, as long
   as that consumer may take the task. When its store is warm, the plan decides again.
3. *The plan wants it elsewhere.* If the target's store is warm, it moves. Else it stays with its owner, and a warm-up
   begins at the target, as long as no more than `most` tasks warm up. The others wait for their turn. A warm-up that
   came no further for `timeout` seconds is not counted, so another one has its turn, and is named (`Stalled`).
4. *A person wants it elsewhere* (a drain, an exclusion, a pin): as 3, and before what is balance; after `timeout`
   seconds since the person asked it moves cold.

No plan is undone by the next for the sake of a warm-up: `muster.core.planner` gives an assignor the consumer that
warms up as the one that has the partition. A sticky one leaves it there.

A consumer that does not report its stores is moved to as if there were no gate: it could never be seen warm.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from muster.core.copies import Copies, Warmth
from muster.core.model import Assignment, Consumer, State, TopicPartition, TopicSnapshot

WarmUps = Mapping[str, Mapping[int, str]]
"""Topic to partition to the consumer that warms up for it."""
MOST = 2
"""Tasks that warm up at once, unless the settings say otherwise."""
TIMEOUT = 600.0
"""Seconds for which a drain waits for a warm copy, and a warm-up without progress keeps others waiting, unless the
settings say otherwise."""


def _nothing(*_: object) -> None:
    return None


@dataclass(frozen=True)
class Gate:
    """What the gate goes by. `copies` has what consumers that were asked report; None: one does not report any.

    `asked_at` tells when, in seconds since the epoch as `now` is, a person asked that a partition leaves an owner for
    a target; None if it was not a person.
    """

    most: int = MOST
    timeout: float = TIMEOUT
    now: float = 0.0
    asked_at: Callable[[TopicPartition, str, str], float | None] = _nothing
    copies: Mapping[str, Copies | None] = field(default_factory=dict)

    def is_warm(self, consumer: str, shards: Iterable[TopicPartition]) -> bool:
        """Tell whether a consumer has warm stores of shards. One that was asked and did not answer has not."""
        copies = self.copies.get(consumer, {})
        return copies is None or all(
            (copy := copies.get(topic, {}).get(partition)) is not None and copy.warmth is Warmth.WARM
            for topic, partition in shards
        )

    def still(self, consumer: str, tp: TopicPartition) -> float:
        """Return for how many seconds a cold store came no further; 0 if that is not too long."""
        copy = (self.copies.get(consumer) or {}).get(tp[0], {}).get(tp[1])
        return 0.0 if copy is None or copy.warmth is Warmth.WARM or copy.still < self.timeout else copy.still


OPEN = Gate()
"""For plans of topics without state."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """A warm-up that came no further for so many seconds."""

    tp: TopicPartition
    consumer: str
    seconds: float

    def __str__(self) -> str:
        """Say it for people."""
        return (
            f"topic {self.tp[0]!r}, partition {self.tp[1]}: consumer {self.consumer} warms up for it, and has come "
            f"no further for {self.seconds:.0f} s; the owner reads on, and other warm-ups go on. See the problems of "
            f"{self.consumer} on its status page, or exclude it from the topic"
        )


@dataclass(frozen=True, slots=True)
class Task:
    """Partitions that go together from an owner to a target, and those of them with state."""

    partitions: tuple[TopicPartition, ...]
    shards: tuple[TopicPartition, ...]
    owner: str | None
    target: str | None

    @property
    def moves(self) -> str:
        """The consumer that it goes to; '' if it stays, or has no target."""
        return self.target if self.target is not None and self.target != self.owner else ""


@dataclass(frozen=True)
class Admission:
    """Decides what of a plan may be carried out now.

    `holders` has the owner of each partition, the next one where it is on its way. `live` are all live consumers,
    `may_take` tells whether a consumer may be given partitions of a topic, `wanted` is what the assignor wants, and
    `together` are the partitions of each task; those that are in none go alone. `has_state` tells which topics have
    state; the others go on as planned.
    """

    snapshots: Mapping[str, TopicSnapshot]
    holders: Assignment
    live: Mapping[str, Consumer]
    may_take: Callable[[str, str], bool]
    wanted: Assignment
    together: Callable[[], Sequence[Sequence[TopicPartition]]] = tuple
    has_state: Callable[[str], bool] = lambda _topic: False

    def concerned(self) -> set[str]:
        """Return the live consumers whose stores the decision depends on."""
        found: set[str | None] = set()
        for task in self._tasks:
            warming = {*self._warm_ups(task).values()}
            if not self._is_had(task):
                found |= {task.target, *warming, *self._standbys(task)}
            elif task.moves or warming:
                found |= {task.target, *warming}
        return {consumer for consumer in found if consumer is not None and consumer in self.live}

    def through(self, gate: Gate) -> tuple[Assignment, WarmUps]:
        """Return who is to have what now, and who warms up for what."""
        owners = {topic: dict(of_topic) for topic, of_topic in self.wanted.items()}
        warm_ups: dict[str, dict[int, str]] = {}
        under_way = 0
        waiting: list[tuple[float, Task]] = []
        for task in self._tasks:
            known = self._warm_ups(task)
            cold = {tp: c for tp, c in known.items() if not gate.is_warm(c, [tp])}
            under_way += any(not gate.still(c, tp) for tp, c in cold.items())
            if not self._is_had(task) or not self._is_settled(task):
                _note(warm_ups, known)
                if not self._is_had(task) and task.target is not None:
                    _give(owners, task, self._best(gate, task, task.target))
                continue
            asked = self._asked_at(gate, task)
            late = asked is not None and gate.now - asked >= gate.timeout
            if cold and not late:
                _give(owners, task, task.owner)
                _note(warm_ups, known)
            elif not task.moves or late or gate.is_warm(task.moves, task.shards):
                continue
            else:
                _give(owners, task, task.owner)
                waiting.append((float("inf") if asked is None else asked, task))
        waiting.sort(key=lambda each: (each[0], each[1].partitions))
        for _, task in waiting[: max(0, gate.most - under_way)]:
            _note(warm_ups, dict.fromkeys(task.shards, task.moves))
        return owners, warm_ups

    def stalled(self, gate: Gate) -> tuple[Stalled, ...]:
        """Return the warm-ups that came no further for too long."""
        known = [named for task in self._tasks for named in self._warm_ups(task).items()]
        return tuple(Stalled(tp, c, seconds) for tp, c in known if (seconds := gate.still(c, tp)))

    @cached_property
    def _tasks(self) -> list[Task]:
        """The tasks with state that something is to be decided about, split where owners or targets differ."""
        matter = set(self._matter())
        if not matter:
            return []
        there = {(topic, p) for topic, s in self.snapshots.items() for p in s.partitions}
        groups = [there.intersection(each) for each in self.together() if not matter.isdisjoint(each)]
        found: list[Task] = []
        for partitions in [*groups, *({tp} for tp in sorted(matter.difference(*groups)))]:
            parts: dict[tuple[str | None, str | None], list[TopicPartition]] = {}
            for tp in sorted(partitions):
                parts.setdefault(self._way(*tp), []).append(tp)
            for (owner, target), part in parts.items():
                if shards := tuple(tp for tp in part if self.has_state(tp[0])):
                    found.append(Task(tuple(part), shards, owner, target))
        return found

    def _matter(self) -> Iterator[TopicPartition]:
        """Yield the partitions with state that do not simply stay with an owner that stays."""
        for topic, snapshot in self.snapshots.items():
            if not self.has_state(topic):
                continue
            warm_ups = snapshot.assignment.warm_ups if snapshot.assignment is not None else {}
            for p in snapshot.partitions:
                owner, target = self._way(topic, p)
                if not self._stays(owner) or target not in {None, owner} or p in warm_ups:
                    yield topic, p

    def _way(self, topic: str, partition: int) -> tuple[str | None, str | None]:
        """Return the owner and the target of a partition."""
        return self.holders.get(topic, {}).get(partition), self.wanted.get(topic, {}).get(partition)

    def _stays(self, owner: str | None) -> bool:
        return owner is not None and owner in self.live and not self.live[owner].leaving

    def _is_had(self, task: Task) -> bool:
        """Tell whether the task has an owner that stays for now."""
        return self._stays(task.owner)

    def _is_settled(self, task: Task) -> bool:
        return all(is_settled(self.snapshots[topic]) for topic, _ in task.partitions)

    def _warm_ups(self, task: Task) -> dict[TopicPartition, str]:
        """Return the warm-ups of a task that are under way, or done, where they may take it."""
        found: dict[TopicPartition, str] = {}
        for topic, p in task.shards:
            assignment = self.snapshots[topic].assignment
            consumer = None if assignment is None else assignment.warm_ups.get(p)
            if consumer is not None and consumer != task.owner and self.may_take(consumer, topic):
                found[topic, p] = consumer
        return found

    def _standbys(self, task: Task) -> list[str]:
        """Return who stands by for a task and may take it, those to be promoted first in front."""
        found: list[str] = []
        for topic, p in task.shards:
            assignment = self.snapshots[topic].assignment
            found += [] if assignment is None else assignment.standbys.get(p, ())
        found += self._warm_ups(task).values()
        topics = {topic for topic, _ in task.partitions}
        return [c for c in dict.fromkeys(found) if all(self.may_take(c, topic) for topic in topics)]

    def _best(self, gate: Gate, task: Task, target: str) -> str:
        """Return who takes over a task without an owner: the target of the plan, unless another consumer is warm."""
        if gate.is_warm(target, task.shards):
            return target
        return next((c for c in self._standbys(task) if gate.is_warm(c, task.shards)), target)

    def _asked_at(self, gate: Gate, task: Task) -> float | None:
        if task.owner is None or not task.moves:
            return None
        found = [gate.asked_at(tp, task.owner, task.moves) for tp in task.partitions]
        return min((at for at in found if at is not None), default=None)


def _give(owners: dict[str, dict[int, str]], task: Task, consumer: str | None) -> None:
    for topic, p in task.partitions:
        if consumer is not None:
            owners.setdefault(topic, {})[p] = consumer


def _note(warm_ups: dict[str, dict[int, str]], found: Mapping[TopicPartition, str]) -> None:
    for (topic, p), consumer in found.items():
        warm_ups.setdefault(topic, {})[p] = consumer


def is_settled(snapshot: TopicSnapshot) -> bool:
    """Tell whether nothing of a topic is on its way, and no consumer of it is waited for."""
    state = snapshot.state
    return state is not None and state.state is State.STABLE and not state.missing


def under_way(snapshots: Collection[TopicSnapshot]) -> bool:
    """Tell whether a topic node names a consumer that warms up."""
    return any(s.assignment is not None and s.assignment.warm_ups for s in snapshots)
