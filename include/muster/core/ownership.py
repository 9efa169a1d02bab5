"""What a consumer may read, must close and has to commit: its side of the protocol, as a pure state machine.

`Ownership` is the whole consumer, `TopicConsumer` one topic of it. Nothing here talks to ZooKeeper, Spark or
Kafka and nothing blocks; events come in as method calls, one at a time (the agent holds a lock), and every
method leaves the whole in a state that can be reported as it stands.

State Transitions
-----------------

Each partition is *closed* (not held), *starting*, *running* or *closing*:

- closed -> starting: the newest assignment names this consumer, and it is not barred (isolated, or stopping).
- starting -> running: the planner planned a batch that holds the partition.
- running -> starting: the planner planned without it, or the query ended.
- starting, running -> closing: the newest assignment names somebody else, or reads from another place, or the
  consumer was barred.
- closing -> closed: nothing of it can be read any more, and what was processed is committed (see below).

Invariants
----------

1. The planner is offered a partition in *closing* never, whatever a newer assignment says: it is closed first
   and then starts anew, from the committed offset.
2. A partition is closed only when no batch that holds it can be under way or be planned from an older offer,
   and every offset that was processed is committed and acknowledged. "Can be planned" is known by sequence
   numbers: each offer to the planner has one, and only the plan made from the newest offer is accepted.
3. A partition that is not in the planner's last plan (so the planner would take it up from the committed offset)
   is not offered while a commit for it is outstanding: it would be read twice.
4. The epoch of a topic changes in the same step as the partitions that it took away turn to *closing*. So a
   status that shows epoch N and does not list a partition proves that the partition is closed, not that its
   removal is still unknown.
5. With `claims`, a partition that was just taken up is not offered until it is *claimed*: until whatever keeps a
   former owner's late commit from landing is in place. So the committed offset it starts from is read after that.
6. A partition whose commit was *refused* (somebody else has taken it over) is closed without committing, and not
   taken up again, whatever the assignment says, until it is allowed: the assignment that names this consumer may
   be older than the refusal. Without `fencing`, that is with no broker to refuse, nothing is committed for a
   partition that the newest assignment gives to another consumer; with it the commit is tried, because it is
   accepted only if the other one has not begun.
7. Assignments are taken in the order of ZooKeeper's `mzxid`; an older one, from a server that lags behind, is
   ignored. A node that was deleted and made again has a higher `mzxid`, so it is taken though its epoch is lower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from muster.core.model import TopicAssignment, TopicStatus

Range = tuple[int, int]
"""Offsets `[from, to)` of one partition in one batch."""

TopicPartition = tuple[str, int]
"""Topic and partition number."""


class PlanRefusedError(ValueError):
    """A plan cannot be accepted: it was not made from the newest offer, or does not follow from it."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a topic's records are and where the offsets of the cluster live."""

    bootstrap_servers: str
    group_id: str


@dataclass(frozen=True, slots=True)
class TopicOffer:
    """The partitions of one topic that the next batch may hold."""

    source: Source
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class Offer:
    """An answer to the planner: what the next batch may hold. `asked` numbers the offers of this process.

    A topic that was in an offer stays in those of the same query, without partitions if need be.
    """

    asked: int
    topics: Mapping[str, TopicOffer]


@dataclass(frozen=True, slots=True)
class Plan:
    """A batch as it was planned: topic to partition to offsets."""

    asked: int
    offsets: Mapping[str, Mapping[int, Range]]

    @property
    def empty(self) -> bool:
        """Whether no partition has an offset to read."""
        return all(begin == end for ranges in self.offsets.values() for begin, end in ranges.values())


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """Offsets of one partition for people and metrics; None is what this ownership has not shown yet."""

    position: int | None
    committed: int | None


@dataclass(slots=True)
class _Partition:
    """One partition that is held. Offsets are the next ones to read."""

    source: Source
    term: int = 0
    """Numbers the times that the topic's partitions were taken up."""
    claimed: bool = True
    refused: bool = False
    """What was processed is not to be committed."""
    closing: bool = False
    offered: bool = False
    """The newest offer holds it and has not been answered with a plan: a plan with it may come any moment."""
    planned: int | None = None
    """End of its range in the planner's last plan; None if that plan does not hold it."""
    processed: int | None = None
    """End of the last batch that the handler finished."""
    committed: int | None = None
    """What Kafka acknowledged."""

    @property
    def outstanding(self) -> bool:
        """Whether something was processed that Kafka has not acknowledged."""
        return not self.refused and self.processed is not None and self.processed != self.committed

    @property
    def may_be_read(self) -> bool:
        """Whether Spark may hold a batch with it, or be about to plan one."""
        return self.offered or self.planned is not None

    @property
    def offerable(self) -> bool:
        return self.claimed and not self.closing and (self.planned is not None or not self.outstanding)


@dataclass(slots=True)
class TopicConsumer:
    """One topic of this consumer."""

    topic: str
    owner: str
    source: Source | None = None
    epoch: int | None = None
    zxid: int = -1
    assigned: frozenset[int] = frozenset()
    standby: frozenset[int] = frozenset()
    barred: bool = False
    claims: bool = False
    fencing: bool = False
    elsewhere: frozenset[int] = frozenset()
    """Partitions that the newest assignment gives to other consumers."""
    held_off: set[int] = field(default_factory=set)
    """Partitions that were refused, and have not been allowed since."""
    taken_up: int = 0
    held: dict[int, _Partition] = field(default_factory=dict)

    def read(self, assignment: TopicAssignment, zxid: int) -> bool:
        """Take the assignment that stands in ZooKeeper since transaction `zxid`; False if it is older than
        what was taken before."""
        if zxid < self.zxid:
            return False
        self.zxid = zxid
        self.epoch = assignment.epoch
        self.source = Source(assignment.bootstrap_servers, assignment.group_id)
        self.assigned = frozenset(p for p, consumer in assignment.owners.items() if consumer == self.owner)
        self.standby = frozenset(p for p, standbys in assignment.standbys.items() if self.owner in standbys)
        self.elsewhere = frozenset(assignment.owners) - self.assigned
        self.settle()
        return True

    def vanish(self, zxid: int) -> bool:
        """Take the removal of the topic's node, seen in a list that stands since transaction `zxid`; False if
        that list is older than the node that was read before."""
        if zxid < self.zxid or self.source is None:
            return False
        self.zxid = zxid
        self.epoch = None
        self.source = None
        self.assigned = frozenset()
        self.standby = frozenset()
        self.elsewhere = frozenset()
        self.settle()
        return True

    def forget_assigned(self) -> None:
        """Nothing is known to be assigned until the assignment is read again; what is held is closed."""
        self.assigned = frozenset()
        self.settle()

    def bar(self, barred: bool) -> None:
        """Close everything and take nothing up while `barred`."""
        self.barred = barred
        self.settle()

    def offer(self) -> frozenset[int]:
        """The partitions that the planner may put in the next batch; replaces the offer made before."""
        for partition in self.held.values():
            partition.offered = partition.offerable
        self.settle()
        return frozenset(p for p, partition in self.held.items() if partition.offered)

    def check(self, ranges: Mapping[int, Range]) -> None:
        """Raise `PlanRefusedError` if `ranges` does not follow from the newest offer."""
        for number in sorted(ranges):
            begin, end = ranges[number]
            name = f"topic {self.topic!r}, partition {number}"
            partition = self.held.get(number)
            if partition is None or not partition.offered:
                raise PlanRefusedError(f"{name}: planned, but it was not in the offer; ask again")
            if not 0 <= begin <= end:
                raise PlanRefusedError(f"{name}: offsets {begin} to {end} are no range")
            if partition.planned is not None and begin != partition.planned:
                raise PlanRefusedError(
                    f"{name}: planned from offset {begin}, but the last plan ended at {partition.planned}"
                )

    def planned(self, ranges: Mapping[int, Range]) -> None:
        """Take the plan made from the newest offer; `check` has passed it."""
        for number, partition in self.held.items():
            partition.offered = False
            if number not in ranges:
                partition.planned = None
                continue
            if partition.planned is None:
                # It starts anew from what the group had committed, so what was known before no longer counts.
                partition.processed = None
                partition.committed = None
            partition.planned = ranges[number][1]
        self.settle()

    def processed(self, ranges: Mapping[int, Range]) -> None:
        """The handler finished a batch that held `ranges`."""
        for number, (_, end) in ranges.items():
            if partition := self.held.get(number):
                partition.processed = end
        self.settle()

    def due(self) -> dict[Source, dict[int, int]]:
        """The offsets to commit, by where they belong."""
        offsets: dict[Source, dict[int, int]] = {}
        for number, partition in self.held.items():
            if partition.outstanding and partition.processed is not None:
                offsets.setdefault(partition.source, {})[number] = partition.processed
        return offsets

    def committed(self, source: Source, offsets: Mapping[int, int]) -> None:
        """Kafka acknowledged these offsets."""
        for number, offset in offsets.items():
            partition = self.held.get(number)
            if partition is not None and partition.source == source:
                partition.committed = offset
        self.settle()

    def claimed(self, terms: Mapping[int, int]) -> None:
        """These partitions are claimed; a term that is over no longer counts."""
        for number, term in terms.items():
            partition = self.held.get(number)
            if partition is not None and partition.term == term:
                partition.claimed = True
        self.settle()

    def refuse(self, number: int, term: int) -> bool:
        """A commit was refused for good: close without committing; False if the term is over anyway."""
        partition = self.held.get(number)
        if partition is None or partition.term != term:
            return False
        partition.refused = True
        partition.closing = True
        self.held_off.add(number)
        self.settle()
        return True

    def allow(self, number: int) -> None:
        """A partition that was refused may be taken up again, if it is assigned."""
        self.held_off.discard(number)
        self.settle()

    def query_ended(self) -> None:
        """The query is gone, nothing is read and no plan is under way; what was processed stands."""
        for partition in self.held.values():
            partition.offered = False
            partition.planned = None
        self.settle()

    def settle(self) -> None:
        """Close what is not wanted, drop what is closed, take up what is wanted and closed; in that order."""
        wanted = frozenset[int]() if self.barred else self.assigned
        for number in list(self.held):
            partition = self.held[number]
            if number not in wanted or partition.source != self.source:
                partition.closing = True
            if number in self.elsewhere and not self.fencing:
                partition.refused = True
            if partition.closing and not partition.may_be_read and not partition.outstanding:
                del self.held[number]
        if self.source is not None:
            for number in wanted - self.held.keys() - self.held_off:
                self.taken_up += 1
                self.held[number] = _Partition(self.source, self.taken_up, claimed=not self.claims)

    def status(self) -> TopicStatus:
        """What the status page says on this topic."""
        lists: dict[str, set[int]] = {"running": set(), "starting": set(), "closing": set()}
        for number, partition in self.held.items():
            running = "starting" if partition.planned is None else "running"
            lists["closing" if partition.closing else running].add(number)
        return TopicStatus(
            running=frozenset(lists["running"]),
            starting=frozenset(lists["starting"]),
            closing=frozenset(lists["closing"]),
            epoch=self.epoch,
            standby=frozenset() if self.barred else self.standby,
        )


class Ownership:
    """All topics of the consumer `owner`, and the one query that reads them.

    `barred` reasons (isolation, stopping, being replaced) add up: partitions are taken up only while there is
    none. Without a query nothing is read, so then partitions close as soon as their commits are acknowledged.
    `claims`: partitions have to be claimed before they are offered. `fencing`: the broker refuses late commits.
    """

    def __init__(self, owner: str, claims: bool = False, fencing: bool = False) -> None:
        self.owner = owner
        self._claims = claims
        self._fencing = fencing
        self.topics: dict[str, TopicConsumer] = {}
        self.bars: set[str] = set()
        self._given: dict[str, Source] = {}
        self._asked = 0
        self._answered = 0
        self._running = False
        self._plan = Plan(0, {})
        self._first = True
        self._finished = True

    def read(self, topic: str, assignment: TopicAssignment, zxid: int) -> bool:
        """Take the assignment of `topic` as it stands since `zxid`; False if it is older than the one known."""
        if topic not in self.topics:
            self.topics[topic] = TopicConsumer(
                topic, self.owner, barred=bool(self.bars), claims=self._claims, fencing=self._fencing
            )
        return self.topics[topic].read(assignment, zxid)

    def keep_only(self, topics: Iterable[str], zxid: int) -> list[str]:
        """Take the list of the topics there are, as it stands since `zxid`; returns those that vanished."""
        present = set(topics)
        return [name for name in sorted(self.topics.keys() - present) if self.topics[name].vanish(zxid)]

    def forget_assigned(self, topics: Iterable[str]) -> None:
        """What was read of `topics` counts no longer; see `TopicConsumer.forget_assigned`."""
        for name in self.topics.keys() & set(topics):
            self.topics[name].forget_assigned()

    def bar(self, reason: str) -> None:
        """Close everything, because of `reason`, until it is lifted."""
        self.bars.add(reason)
        for topic in self.topics.values():
            topic.bar(True)

    def lift(self, reason: str) -> None:
        """Take back `reason`; without any other, partitions are taken up again."""
        self.bars.discard(reason)
        for topic in self.topics.values():
            topic.bar(bool(self.bars))

    def query_started(self) -> None:
        """A new query begins, with an empty start offset, which Spark runs as its first batch if nothing is
        planned."""
        self._running = True
        self._given = {}
        self._answered = self._asked
        self._plan = Plan(self._asked, {})
        self._first = True
        self._finished = False

    def query_ended(self) -> None:
        """The query is over: its handler has returned and its planner is no longer heard."""
        self._running = False
        self._answered = self._asked
        self._plan = Plan(self._asked, {})
        self._finished = True
        for topic in self.topics.values():
            topic.query_ended()

    def offer(self) -> Offer:
        """The planner asks what the next batch may hold. Raises `PlanRefusedError` when no query runs."""
        if not self._running:
            raise PlanRefusedError("no query is running; the planner that asks belongs to one that ended")
        self._asked += 1
        offered: dict[str, frozenset[int]] = {}
        for name, topic in self.topics.items():
            offered[name] = topic.offer()
            if offered[name] and topic.source is not None:
                self._given[name] = topic.source
        topics = {name: TopicOffer(source, offered[name]) for name, source in self._given.items()}
        return Offer(self._asked, topics)

    @property
    def has_something_to_offer(self) -> bool:
        """Whether an offer made now would hold a partition."""
        return any(p.offerable for topic in self.topics.values() for p in topic.held.values())

    def nearby(self) -> dict[str, TopicOffer]:
        """Of each source the first topic that has partitions assigned, to whomever, with the first of them."""
        found: dict[Source, tuple[str, int]] = {}
        for name, topic in sorted(self.topics.items()):
            if topic.source is not None and (partitions := topic.assigned | topic.elsewhere):
                found.setdefault(topic.source, (name, min(partitions)))
        return {name: TopicOffer(source, frozenset({first})) for source, (name, first) in found.items()}

    def planned(self, asked: int, offsets: Mapping[str, Mapping[int, Range]]) -> None:
        """The planner planned a batch from the offer numbered `asked`, which must be the newest.

        A plan equal to the one before is no batch, unless it is the query's first. Raises `PlanRefusedError` and
        changes nothing if the plan does not follow from the newest offer, or if the batch planned before has not
        been processed.
        """
        plan = Plan(asked, {name: dict(ranges) for name, ranges in offsets.items() if ranges})
        if not self._running or asked != self._asked or asked == self._answered:
            raise PlanRefusedError(
                f"plan made from offer {asked} is refused, the newest open offer is {self._asked}; ask again"
            )
        if plan.offsets == self._plan.offsets and not self._first:
            self._answered = asked
            return
        if not self._finished and not self._first:
            raise PlanRefusedError(
                f"plan made from offer {asked} is refused, the batch planned from offer {self._plan.asked} is "
                "still under way"
            )
        for name, ranges in plan.offsets.items():
            if name not in self.topics:
                raise PlanRefusedError(f"topic {name!r}: planned, but it was not in the offer; ask again")
            self.topics[name].check(ranges)
        self._answered = asked
        self._plan = plan
        self._first = False
        self._finished = False
        for name, topic in self.topics.items():
            topic.planned(plan.offsets.get(name, {}))

    @property
    def stands_at(self) -> Mapping[str, Mapping[int, Range]]:
        """The last plan's ranges: where Spark stands once that batch is processed."""
        return self._plan.offsets

    def batch(self) -> Plan:
        """The plan of the batch that begins now. Raises `PlanRefusedError` if every plan was processed already."""
        if self._finished:
            raise PlanRefusedError("a batch begins that was not planned; the query has to be restarted")
        self._first = False
        return self._plan

    def processed(self, plan: Plan) -> None:
        """The handler finished the batch planned as `plan`. Raises `PlanRefusedError` if it is not the last."""
        if not self._running or plan is not self._plan:
            raise PlanRefusedError(
                f"the batch of offer {plan.asked} is not the one under way; restart the query"
            )
        self._finished = True
        for name, ranges in plan.offsets.items():
            self.topics[name].processed(ranges)

    def due(self) -> dict[Source, dict[TopicPartition, int]]:
        """The offsets to commit now, by where they belong."""
        offsets: dict[Source, dict[TopicPartition, int]] = {}
        for name, topic in self.topics.items():
            for source, due in topic.due().items():
                offsets.setdefault(source, {}).update({(name, p): offset for p, offset in due.items()})
        return offsets

    def committed(self, source: Source, offsets: Mapping[TopicPartition, int]) -> None:
        """Kafka acknowledged these offsets."""
        for (name, number), offset in offsets.items():
            self.topics[name].committed(source, {number: offset})

    def unclaimed(self) -> dict[Source, dict[TopicPartition, int]]:
        """The partitions that have to be claimed before they can start, with their terms, by where they are."""
        return self._terms(lambda partition: not partition.claimed and not partition.closing)

    def terms(self) -> dict[Source, dict[TopicPartition, int]]:
        """All that is held, with its terms, by where it is."""
        return self._terms(lambda _: True)

    def claimed(self, terms: Mapping[TopicPartition, int]) -> None:
        """These partitions are claimed for these terms."""
        for (name, number), term in terms.items():
            self.topics[name].claimed({number: term})

    def refuse(self, key: TopicPartition, term: int) -> bool:
        """A commit was refused for good, see `TopicConsumer.refuse`."""
        return self.topics[key[0]].refuse(key[1], term)

    def allow(self, key: TopicPartition) -> None:
        """A partition that was refused may be taken up again."""
        self.topics[key[0]].allow(key[1])

    def _terms(self, which: Callable[[_Partition], bool]) -> dict[Source, dict[TopicPartition, int]]:
        found: dict[Source, dict[TopicPartition, int]] = {}
        for name, topic in self.topics.items():
            for number, partition in topic.held.items():
                if which(partition):
                    found.setdefault(partition.source, {})[name, number] = partition.term
        return found

    def status(self) -> dict[str, TopicStatus]:
        """What the status page says: every topic there is, and those still being closed."""
        return {
            name: topic.status()
            for name, topic in sorted(self.topics.items())
            if topic.source is not None or topic.held
        }

    def held(self) -> dict[TopicPartition, PartitionReport]:
        """Offsets of all that is not closed."""
        return {
            (name, number): PartitionReport(
                position=partition.processed,
                committed=partition.committed,
            )
            for name, topic in sorted(self.topics.items())
            for number, partition in sorted(topic.held.items())
        }

    def sources(self) -> dict[Source, set[TopicPartition]]:
        """What is held, by where it is read from."""
        found: dict[Source, set[TopicPartition]] = {}
        for name, topic in self.topics.items():
            for number, partition in topic.held.items():
                found.setdefault(partition.source, set()).add((name, number))
        return found

    @property
    def closed(self) -> bool:
        """Whether nothing is held."""
        return not any(topic.held for topic in self.topics.values())
