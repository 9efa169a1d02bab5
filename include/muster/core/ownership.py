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
- starting, running -> closing: the newest assignment names another consumer, or reads from another place or another
  topic, or the topic is gone from Kafka, or the consumer was barred.
- closing -> closed: nothing of it can be read any more, what was processed is committed, and no claim is under way
  (see below).

Invariants
----------

1. The planner is offered a partition in *closing* never, whatever a newer assignment says: it is closed first
   and then starts again, from the committed offset.
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
   A claim begins only for a partition that is held and not closing, in the same step that notes it, and a partition
   whose claim has begun is not closed before that claim has ended: if it landed later, it would fence off the next
   owner.
6. A partition whose commit was *refused* (another consumer has taken it over) is closed without committing, and not
   taken up again, whatever the assignment says, until it is allowed: the assignment that names this consumer may
   be older than the refusal. Without `fencing`, that is with no broker to refuse, nothing is committed for a
   partition that the newest assignment gives to another consumer; with it the commit is tried, because it is
   accepted only if the other one has not begun.
7. Assignments are taken in the order of ZooKeeper's `mzxid`; an older one, from a server that lags behind, is
   ignored. A node that was deleted and made again has a higher `mzxid`, so it is taken though its epoch is lower.
   An older one that was read *after a sync* is no lagging server's: ZooKeeper was restored from a backup. It is taken
   if its epoch is higher than the known one, which only a coordinator that knows of this consumer has written.
8. A topic is its id, not its name. When the assignment names another id, the partitions of the old topic are closed
   without committing, and nothing that is known of them counts for the new ones. While Kafka has the topic under
   another id than the assignment, it is neither offered nor committed. A topic whose id is not known is whatever has
   its name; it gets the id that the assignment first names.
9. A plan goes on where the one before ended, or says that and why it does not (a *jump*): there is no silent gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from muster.core.model import TopicAssignment, TopicStatus
from muster.core.positions import Jump

Range = tuple[int, int]
"""Offsets `[from, to)` of one partition in one batch."""

TopicPartition = tuple[str, int]
"""Topic and partition number."""


class PlanRefusedError(ValueError):
    """A plan cannot be accepted: it was not made from the newest offer, or does not follow from it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A Kafka cluster, and the group in it whose offsets count."""

    bootstrap_servers: str
    group_id: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where a topic's records are, where the offsets of the cluster live, and which topic it is ('': not known)."""

    bootstrap_servers: str
    group_id: str
    topic_id: str = ""

    @property
    def place(self) -> Place:
        """The Kafka cluster and the group."""
        return Place(self.bootstrap_servers, self.group_id)


@dataclass(frozen=True, slots=True)
class Due:
    """An offset to commit, of which topic it is, and for which term (see `_Partition`)."""

    offset: int
    topic_id: str = ""
    term: int = 0


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
    """A batch as it was planned: topic to partition to offsets; `topic_ids` are those that are known."""

    asked: int
    offsets: Mapping[str, Mapping[int, Range]]
    topic_ids: Mapping[str, str] = field(default_factory=dict)

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
    claiming: bool = False
    """A claim has begun and has not ended: it may still fence off the owner of that time."""
    refused: bool = False
    """What was processed is not to be committed."""
    closing: bool = False
    offered: bool = False
    """The newest offer holds it and has not been answered with a plan: a plan with it may come any moment."""
    start: int | None = None
    """Where its first batch began, or the first one since it was planned without."""
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
    def position(self) -> int | None:
        """The next offset to process, None as long as it was not planned."""
        return self.start if self.processed is None else self.processed

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
    least: int = 0
    """Lower epochs than this are of a ZooKeeper that was restored from a backup, whatever else is known."""
    elsewhere: frozenset[int] = frozenset()
    """Partitions that the newest assignment gives to other consumers."""
    held_off: set[int] = field(default_factory=set)
    """Partitions that were refused, and have not been allowed since."""
    kafka_id: str = ""
    """The id under which Kafka has the topic, as last seen; '' if that is not known."""
    gone: bool = False
    """The topic is not in Kafka any more."""
    taken_up: int = 0
    held: dict[int, _Partition] = field(default_factory=dict)

    def read(self, assignment: TopicAssignment, zxid: int) -> bool:
        """Take the assignment that stands in ZooKeeper since transaction `zxid`; False if it is older than
        what was taken before."""
        if zxid < self.zxid or assignment.epoch < self.least:
            return False
        self._take(assignment, zxid)
        return True

    def expect(self, least: int) -> None:
        """Epochs below `least` are not to be obeyed; what was obeyed of them before counts no longer."""
        self.least = max(self.least, least)
        if self.epoch is not None and self.epoch < self.least:
            self.epoch = self.least
            self.forget_assigned()

    def read_restored(self, assignment: TopicAssignment, zxid: int) -> bool:
        """Take an assignment that is older than the one known though it was read after a sync, of a ZooKeeper that
        was restored from a backup; False if it is not to be obeyed: the status quo stays.

        Another assignment of the known epoch was written over the restored state by a coordinator that had not asked
        this consumer. The epoch that this consumer reports is above it from then on, so the coordinator notices.
        """
        if assignment.epoch < self.least:
            self.epoch = max(self.epoch or 0, self.least)
            return False
        if self.epoch is not None and assignment.epoch <= self.epoch:
            owners = {p for p, consumer in assignment.owners.items() if consumer == self.owner}
            same = owners == self.assigned and frozenset(assignment.owners) - owners == self.elsewhere
            if assignment.epoch < self.epoch or not same or self._source_of(assignment) != self.source:
                self.epoch = max(self.epoch, assignment.epoch + 1)
                return False
        self._take(assignment, zxid)
        return True

    def _source_of(self, assignment: TopicAssignment) -> Source:
        source = Source(assignment.bootstrap_servers, assignment.group_id, assignment.topic_id)
        if self.source is not None and not source.topic_id and source.place == self.source.place:
            return self.source  # a coordinator that knows no ids has written it
        return source

    def _take(self, assignment: TopicAssignment, zxid: int) -> None:
        self.zxid = zxid
        self.epoch = assignment.epoch
        source = self._source_of(assignment)
        if source != self.source:
            self.gone = False
            if self.source is not None and source.place != self.source.place:
                self.kafka_id = ""
        self.source = source
        self.assigned = frozenset(p for p, consumer in assignment.owners.items() if consumer == self.owner)
        self.standby = frozenset(p for p, standbys in assignment.standbys.items() if self.owner in standbys)
        self.elsewhere = frozenset(assignment.owners) - self.assigned
        self.settle()

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
        self.gone = False
        self.settle()
        return True

    @property
    def recreated(self) -> bool:
        """Whether Kafka has the topic under another id than the assignment."""
        known = self.source.topic_id if self.source is not None else ""
        return bool(known and self.kafka_id) and known != self.kafka_id

    def identify(self, place: Place, kafka_id: str, gone: bool = False) -> None:
        """Kafka at `place` has the topic under `kafka_id` now ('': it does not tell), or the topic is `gone` from it.

        What is being closed there belongs to the topic that was there; it may be another place than the assignment's.
        """
        for partition in self.held.values():
            known = partition.source.topic_id
            if partition.closing and partition.source.place == place:
                partition.refused |= gone or bool(known and kafka_id and known != kafka_id)
        if self._is_source(place):
            self.kafka_id = kafka_id
            self.gone = gone or (self.gone and not kafka_id)
        self.settle()

    def _is_source(self, place: Place) -> bool:
        return self.source is not None and self.source.place == place

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
            partition.offered = partition.offerable and not self.recreated
        self.settle()
        return frozenset(p for p, partition in self.held.items() if partition.offered)

    def check(self, ranges: Mapping[int, Range], jumps: Mapping[int, Jump]) -> None:
        """Raise `PlanRefusedError` if `ranges` does not follow from the newest offer and the plan before."""
        for number in sorted(ranges):
            begin, end = ranges[number]
            name = f"topic {self.topic!r}, partition {number}"
            partition = self.held.get(number)
            if partition is None or not partition.offered:
                raise PlanRefusedError(f"{name}: planned, but it was not in the offer; ask again")
            if not 0 <= begin <= end:
                raise PlanRefusedError(f"{name}: offsets {begin} to {end} are no range")
            jump = jumps.get(number)
            told = jump is not None and (jump.before, jump.after) == (partition.planned, begin)
            if partition.planned is not None and begin != partition.planned and not told:
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
                # It starts again from what the group had committed, so what was known before no longer counts.
                partition.processed = None
                partition.committed = None
                partition.start = ranges[number][0]
            partition.planned = ranges[number][1]
        self.settle()

    def processed(self, ranges: Mapping[int, Range]) -> None:
        """The handler finished a batch that held `ranges`."""
        for number, (_, end) in ranges.items():
            if partition := self.held.get(number):
                partition.processed = end
        self.settle()

    def due(self) -> dict[Place, dict[int, Due]]:
        """The offsets to commit, by where they belong."""
        offsets: dict[Place, dict[int, Due]] = {}
        for number, partition in self.held.items():
            recreated = self.recreated and self._is_source(partition.source.place)
            if partition.outstanding and partition.processed is not None and not recreated:
                due = Due(partition.processed, partition.source.topic_id, partition.term)
                offsets.setdefault(partition.source.place, {})[number] = due
        return offsets

    def renewable(self) -> dict[Place, dict[int, Due]]:
        """What is committed of the partitions that are read, and may be committed again."""
        offsets: dict[Place, dict[int, Due]] = {}
        for number, partition in self.held.items():
            idle = not partition.outstanding and not partition.refused and not partition.closing
            if idle and partition.committed is not None and not self.recreated:
                due = Due(partition.committed, partition.source.topic_id, partition.term)
                offsets.setdefault(partition.source.place, {})[number] = due
        return offsets

    def committed(self, offsets: Mapping[int, Due]) -> None:
        """Kafka acknowledged these offsets; a term that is over no longer counts."""
        for number, due in offsets.items():
            partition = self.held.get(number)
            if partition is not None and partition.term == due.term:
                partition.committed = due.offset
        self.settle()

    def begin_claim(self, number: int, term: int) -> bool:
        """Note that a claim begins; False if it must not, because the partition is closing or the term is over."""
        partition = self.held.get(number)
        if partition is None or partition.term != term or partition.closing:
            return False
        partition.claiming = True
        return True

    def claim_ended(self, number: int, term: int) -> None:
        """A claim that had begun can no longer take effect, or has been given up."""
        partition = self.held.get(number)
        if partition is not None and partition.term == term:
            partition.claiming = False
        self.settle()

    def claimed(self, terms: Mapping[int, int]) -> None:
        """These partitions are claimed; a term that is over no longer counts."""
        for number, term in terms.items():
            partition = self.held.get(number)
            if partition is not None and partition.term == term:
                partition.claimed = True
                partition.claiming = False
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
        wanted = frozenset[int]() if self.barred or self.gone else self.assigned
        for number in list(self.held):
            partition = self.held[number]
            self._follow_source(partition)
            if number not in wanted:
                partition.closing = True
            if number in self.elsewhere and not self.fencing:
                partition.refused = True
            if self._is_source(partition.source.place) and (
                self.gone or (partition.closing and self.recreated)
            ):
                partition.refused = True
            if partition.closing and not (
                partition.may_be_read or partition.outstanding or partition.claiming
            ):
                del self.held[number]
        if self.source is not None:
            for number in wanted - self.held.keys() - self.held_off:
                self.taken_up += 1
                self.held[number] = _Partition(self.source, self.taken_up, claimed=not self.claims)

    def _follow_source(self, partition: _Partition) -> None:
        """Close a partition that is not where the assignment says. What was processed of another topic is not
        committed; what was read at another place is, there."""
        if self.source is None or partition.source == self.source:
            return
        if partition.source.place == self.source.place:
            if not partition.source.topic_id:
                partition.source = self.source
            if not self.source.topic_id or partition.source == self.source:
                return
            partition.refused = True
        partition.closing = True

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
        self._least: dict[str, int] = {}
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
            self.topics[topic].expect(self._least.get(topic, 0))
        return self.topics[topic].read(assignment, zxid)

    def expect(self, epochs: Mapping[str, int]) -> None:
        """Lower epochs than these, by topic, are not to be obeyed, see `TopicConsumer.expect`."""
        self._least = dict(epochs)
        for name in self.topics.keys() & epochs.keys():
            self.topics[name].expect(epochs[name])

    def read_restored(self, topic: str, assignment: TopicAssignment, zxid: int) -> bool:
        """Take an assignment that went back though it was read after a sync, see `TopicConsumer.read_restored`."""
        return self.topics[topic].read_restored(assignment, zxid)

    def identify(self, topic: str, place: Place, kafka_id: str, gone: bool = False) -> None:
        """Kafka at `place` has `topic` under this id, or it is gone, see `TopicConsumer.identify`."""
        if topic in self.topics:
            self.topics[topic].identify(place, kafka_id, gone)

    def watched(self) -> dict[Place, set[str]]:
        """The topics of which this consumer has partitions, or is assigned some, by where they are."""
        found: dict[Place, set[str]] = {}
        for name, topic in self.topics.items():
            places = {partition.source.place for partition in topic.held.values()}
            if topic.source is not None and topic.assigned:
                places.add(topic.source.place)
            for place in places:
                found.setdefault(place, set()).add(name)
        return found

    def missing(self, topics: Iterable[str], zxid: int) -> list[str]:
        """The topics that are known and not in this list, which is older than their nodes."""
        gone = self.topics.keys() - set(topics)
        return sorted(n for n in gone if self.topics[n].source is not None and zxid < self.topics[n].zxid)

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
        return any(
            p.offerable for topic in self.topics.values() if not topic.recreated for p in topic.held.values()
        )

    def nearby(self) -> dict[str, TopicOffer]:
        """Of each source the first topic that has partitions assigned, to whomever, with the first of them."""
        found: dict[Place, tuple[str, TopicOffer]] = {}
        for name, topic in sorted(self.topics.items()):
            if topic.source is not None and (partitions := topic.assigned | topic.elsewhere):
                offer = TopicOffer(topic.source, frozenset({min(partitions)}))
                found.setdefault(topic.source.place, (name, offer))
        return dict(found.values())

    def planned(
        self,
        asked: int,
        offsets: Mapping[str, Mapping[int, Range]],
        jumps: Mapping[TopicPartition, Jump] | None = None,
    ) -> None:
        """The planner planned a batch from the offer numbered `asked`, which must be the newest.

        `jumps` are the partitions that do not go on where they were read up to.

        A plan equal to the one before is no batch, unless it is the query's first. Raises `PlanRefusedError` and
        changes nothing if the plan does not follow from the newest offer, or if the batch planned before has not
        been processed.
        """
        plan = Plan(
            asked,
            {name: dict(ranges) for name, ranges in offsets.items() if ranges},
            {name: s.topic_id for name, s in self._given.items() if s.topic_id and offsets.get(name)},
        )
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
            told = {number: jump for (topic, number), jump in (jumps or {}).items() if topic == name}
            self.topics[name].check(ranges, told)
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

    def due(self) -> dict[Place, dict[TopicPartition, Due]]:
        """The offsets to commit now, by where they belong."""
        return self._offsets(TopicConsumer.due)

    def renewable(self) -> dict[Place, dict[TopicPartition, Due]]:
        """What is committed and may be committed again, by where it belongs."""
        return self._offsets(TopicConsumer.renewable)

    def _offsets(
        self, which: Callable[[TopicConsumer], dict[Place, dict[int, Due]]]
    ) -> dict[Place, dict[TopicPartition, Due]]:
        offsets: dict[Place, dict[TopicPartition, Due]] = {}
        for name, topic in self.topics.items():
            for place, found in which(topic).items():
                offsets.setdefault(place, {}).update({(name, p): due for p, due in found.items()})
        return offsets

    def committed(self, offsets: Mapping[TopicPartition, Due]) -> None:
        """Kafka acknowledged these offsets."""
        for (name, number), due in offsets.items():
            self.topics[name].committed({number: due})

    def unclaimed(self) -> dict[Place, dict[TopicPartition, int]]:
        """The partitions that have to be claimed before they can start, with their terms, by where they are."""
        return self._terms(lambda partition: not partition.claimed and not partition.closing)

    def claims_in_use(self) -> dict[Place, dict[TopicPartition, int]]:
        """All that is held and claimed, or is to be, with its terms, by where it is. Other claims are given up."""
        return self._terms(lambda partition: partition.claimed or not partition.closing)

    def begin_claim(self, key: TopicPartition, term: int) -> bool:
        """Note that a claim begins; False if it must not."""
        return self.topics[key[0]].begin_claim(key[1], term)

    def claim_ended(self, key: TopicPartition, term: int) -> None:
        """A claim that had begun can no longer take effect."""
        self.topics[key[0]].claim_ended(key[1], term)

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

    def _terms(self, which: Callable[[_Partition], bool]) -> dict[Place, dict[TopicPartition, int]]:
        found: dict[Place, dict[TopicPartition, int]] = {}
        for name, topic in self.topics.items():
            for number, partition in topic.held.items():
                if which(partition):
                    found.setdefault(partition.source.place, {})[name, number] = partition.term
        return found

    def status(self) -> dict[str, TopicStatus]:
        """What the status page says: every topic there is, those still being closed, and those whose assignment
        is of a backup and not obeyed."""
        return {
            name: topic.status()
            for name, topic in sorted(self.topics.items())
            if topic.epoch is not None or topic.held
        }

    def held(self) -> dict[TopicPartition, PartitionReport]:
        """Offsets of all that is not closed."""
        return {
            (name, number): PartitionReport(
                position=partition.position,
                committed=partition.committed,
            )
            for name, topic in sorted(self.topics.items())
            for number, partition in sorted(topic.held.items())
        }

    @property
    def closed(self) -> bool:
        """Whether nothing is held."""
        return not any(topic.held for topic in self.topics.values())
