"""What a consumer may read, must close and has to commit: its side of the protocol, as a pure state machine.

Nothing here talks to ZooKeeper, Spark or Kafka and nothing blocks. Events come in as method calls, one at a time (the
agent holds a lock). Each event changes facts and ends with `Ownership._settle`, the one place that decides what is
closed and what is taken up; so after each event the whole can be reported as it stands.

Quantities
----------

Of a topic (`Topic`): `assigned` are the partitions that the newest assignment gives to this consumer, `elsewhere`
those that it gives to others. A partition is *wanted* when it is assigned, the topic is in Kafka, and nothing blocks
this consumer (isolated, stopping, not live yet).

Of a partition that is held (`_Partition`), offsets are the next ones to read:

- `offered`: the newest offer to the planner holds it, and no plan has answered that offer.
- `planned`: where the planner's last plan ends, or begins if its batch failed; `processed`: where the last batch that
  the handler finished ended; `committed`: what Kafka acknowledged.
- It *may be read* while it is offered or planned; its commit is *outstanding* while `processed` is not `committed`,
  or `note` is not `noted`.
- `note` goes with each commit; `noted` is the one that went with `committed`. A seek that is not above that of the
  note is not carried out: it may have come back with servers that were restored.
- `claim_epoch` numbers the times that partitions were taken up: an answer of Kafka about an earlier one is ignored.
- `claimed`: whatever keeps a former owner's late commit from landing is in place.
- `announced`: the handler knows that the partition is this consumer's. `withdrawn`: it does not believe so, or not
  any more. For a handler that does not ask to know both are so from the start.
- It is *paused* if the assignment says so: it stays in the plans with nothing to read, and so stays running. It is
  *stopped* once nothing of it is under way or outstanding.
- It is *held back* while it has been outstanding for too long: it stays in the plans in the same way.
- It is *being rebuilt* from the plan that carries out a seek with a rebuild until the number is `noted`: likewise.
- It is *in the group* once the group was seen to have an offset of it: at its claim, or by a commit since.

State Transitions
-----------------

Each partition is *closed* (not held), *starting*, *running* or *closing*:

- closed -> starting: it is wanted.
- starting -> running: the planner planned a batch that holds the partition.
- running -> starting: the planner planned without it, or the query ended.
- starting, running -> closing: it is no longer wanted, or the assignment names another place or another topic.
- closing -> closed: it may not be read, nothing is outstanding, the handler knows, no claim is under way (see below),
  and what is in the group was looked at once more.

Invariants
----------

1. A partition in *closing* is never offered, whatever a newer assignment says: it is closed first and then starts
   again, from the committed offset.
2. A partition is closed only when no batch that holds it can be under way or be planned from an older offer,
   and every offset that was processed is committed and acknowledged. "Can be planned" is known by sequence
   numbers: each offer to the planner has one, and only the plan made from the newest offer is accepted.
3. A partition that is not in the planner's last plan (so the planner would take it up from the committed offset)
   is not offered while its commit is outstanding: it would be read twice.
4. The epoch of a topic changes in the same step as the partitions that it took away turn to *closing*. So a
   status that shows epoch N and does not list a partition proves that the partition is closed, not that its
   removal is still unknown.
5. A partition that was just taken up is not offered until it is claimed. So the committed offset that
   it starts from is read after that. A claim begins only for a partition that is held and not closing, in the same
   step that notes it, and a partition whose claim has begun is not closed before that claim has ended: if it landed
   later, it would fence off the next owner. The same holds of the claim by which a stuck producer is replaced, but it
   may begin while the partition is closing, as long as that is given to no other consumer.
6. A partition whose commit was *refused* (another consumer has taken it over) is closed without committing, and not
   taken up again, whatever the assignment says, until it is allowed: the assignment that names this consumer may
   be older than the refusal. Without `fencing`, that is with no broker to refuse, nothing is committed for a
   partition that the newest assignment gives to another consumer; with it the commit is tried, because it is
   accepted only if the other one has not begun.
7. The epoch decides which assignment is newer, whatever its `mzxid`, its time, or the server that it was read from.
   A lower epoch than the obeyed one is never obeyed. Of the obeyed epoch only the same owners are, with a newer
   request about the flow beside them: other owners were written over a backup by a coordinator that did not ask this
   consumer. A refused assignment that was read after a sync is no lagging server's: ZooKeeper was restored. This
   consumer keeps what it has, and reports an epoch above the node's, by which the coordinator notices. A topic whose
   node was deleted has to come back with a higher epoch.
8. A topic is its id, not its name. When the assignment names another id, the partitions of the old topic are closed
   without committing, and nothing that is known of them counts for the new ones. While Kafka has the topic under
   another id than the assignment, it is neither offered nor committed. A topic whose id is not known is whatever has
   its name; it gets the id that the assignment first names.
9. To a handler that asks to know, a partition is announced after its claim and before it is offered, and withdrawn
   when it may not be read any more and before it is closed. Announcing begins in the step that notes it: what began
   before the partition turned to *closing* is withdrawn as well.
10. A plan continues where the one before ended, or states where and why it does not (a *jump*): there is no silent
   gap. A jump over records that are lost is committed at once, whatever becomes of the batch: it is found once.
11. A record is *passed over* only when Kafka has acknowledged the offset after it, and its dead letter with that, if
   it gets one. Until then the partition stands before it. So neither the letter nor the decision is lost, and no
   letter is written twice.
12. The offset after a record that the handler rejected is committed only together with its dead letter.
13. A record is handed out under the number of a rebuild only once Kafka has acknowledged that number. So the next
   owner knows each number that a sink may have.
14. A partition is read on for no more than `LONGEST_UNCOMMITTED` without an answer to its commits. A process that was
   cut off and replaced may hear of it only by such an answer, and is to read nothing more until then.
15. A partition says whose process has it, in what is committed with its offset, from the plan that it begins with
   until it is closed, unless it has state. Where it is *in doubt* (`muster.core.deaths`), that and its offset are
   acknowledged before more of it is planned.
16. A partition with state by key is offered once its state is `restored`, which begins after its claim. What it has
   outstanding is committed before more of it is planned, and nothing of it is committed before it is restored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar
from zlib import crc32

from muster.core.deaths import NO_DEATHS, Deaths
from muster.core.model import OffsetRange, Seek, TopicAssignment, TopicPartition, TopicStatus
from muster.core.positions import NO_NOTE, Committed, Jump, Note, noted, of_another_topic

LONGEST_RENEWAL = 24 * 3600.0
"""Seconds after which a partition is committed again at the latest, unless the settings say otherwise.

Kafka forgets an offset that was not committed for `offsets.retention.minutes` (7 days), also of a partition that is
held and has nothing to read, and a producer that committed nothing for `transactional.id.expiration.ms` (7 days)."""
RENEWAL_SPREAD = 0.25
"""How much of the longest interval the intervals differ by: what is taken up together is not due together."""

LETTERS = 1_000
"""Dead letters that are written in one transaction."""

LONGEST_UNCOMMITTED = 30.0
"""Seconds for which a partition is read on while Kafka has not acknowledged what was processed of it. Kafka elects a
leader of the group's offsets within some 10 s, and ends the transaction of a silent owner after 30 s."""

PAUSED = "consumption is paused"
"""Why a partition is not read that a person paused."""
HELD_BACK = f"Kafka has acknowledged no commit for {LONGEST_UNCOMMITTED:g} s"
"""Why a partition is not read that is held back."""
REBUILDING = "the number of its rebuild is not committed yet"
"""Why a partition is not read that is being rebuilt."""

_T = TypeVar("_T")


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
    """An offset to commit, of which topic it is, for which claim epoch, and what goes with it."""

    offset: int
    topic_id: str = ""
    claim_epoch: int = 0
    note: Note = NO_NOTE
    letters: tuple[tuple[int, str], ...] = ()
    """Rejected records before the offset whose dead letters are to be written with it, each with its error."""
    seek: Seek | None = None
    """The last seek that this owner has carried out."""


@dataclass(frozen=True, slots=True)
class ToRestore:
    """A partition whose state is to be restored: for which claim epoch, where, what the group had at the claim, and
    the seek that is asked for ('': none)."""

    claim_epoch: int
    source: Source
    committed: Committed | None = None
    seek: str = ""


@dataclass(frozen=True, slots=True)
class PassOver:
    """One record to be passed over, once the offset after it is committed; with a dead letter of it, or without."""

    offset: int
    letter: bool = False


@dataclass(frozen=True, slots=True)
class TopicOffer:
    """The partitions of one topic that the next batch may hold; `owned` is how many of the topic have an owner."""

    source: Source
    partitions: frozenset[int]
    owned: int = 0


@dataclass(frozen=True, slots=True)
class Offer:
    """An answer to the planner: what the next batch may hold. `asked` numbers the offers of this process.

    A topic that was in an offer stays in those of the same query, without partitions if need be. `again` has where
    partitions are read again from, whose last batch has failed. `seeks` are not known to be carried out: each is to
    be, unless its id went with what is committed.
    What is `in_group` begins at the group's offset, or waits for it to be committed again.
    """

    asked: int
    topics: Mapping[str, TopicOffer]
    again: Mapping[TopicPartition, int] = field(default_factory=dict)
    seeks: Mapping[TopicPartition, Seek] = field(default_factory=dict)
    in_group: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A batch as it was planned: topic to partition to offsets; `topic_ids` are those that are known, `rebuilds` the
    numbers of the partitions that were rebuilt."""

    asked: int
    offsets: Mapping[str, Mapping[int, OffsetRange]]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    rebuilds: Mapping[TopicPartition, int] = field(default_factory=dict)
    due: frozenset[TopicPartition] = frozenset()
    """The partitions without records that are in it because something of their state is due."""

    @property
    def ranges(self) -> dict[TopicPartition, OffsetRange]:
        """The offsets by partition."""
        return {(topic, p): found for topic, ranges in self.offsets.items() for p, found in ranges.items()}

    @property
    def filled(self) -> dict[TopicPartition, OffsetRange]:
        """The offsets of the partitions that have some."""
        return {tp: (begin, end) for tp, (begin, end) in self.ranges.items() if begin < end}

    @property
    def empty(self) -> bool:
        """Whether no partition has an offset to read."""
        return not self.filled


@dataclass(frozen=True, slots=True)
class Topic:
    """What is known of one topic; without a `source` it is not assigned to any consumer."""

    source: Source | None = None
    epoch: int | None = None
    zxid: int = -1
    assigned: frozenset[int] = frozenset()
    elsewhere: frozenset[int] = frozenset()
    standby: frozenset[int] = frozenset()
    paused: frozenset[int] = frozenset()
    """The partitions whose consumption is paused, those of other consumers among them."""
    seeks: Mapping[int, Seek] = field(default_factory=dict)
    least: int = 0
    """The lowest epoch of another assignment that may be obeyed; a lower one is of a backup."""
    kafka_id: str = ""
    """The id under which Kafka has the topic, as last seen; '' if that is not known."""
    gone: bool = False
    """The topic is not in Kafka any more."""

    @property
    def recreated(self) -> bool:
        """Whether Kafka has the topic under another id than the assignment."""
        known = self.source.topic_id if self.source is not None else ""
        return bool(known and self.kafka_id) and known != self.kafka_id

    def is_at(self, place: Place) -> bool:
        """Tell whether the assignment names `place`."""
        return self.source is not None and self.source.place == place

    def obeys(self, assignment: TopicAssignment, owner: str) -> bool:
        """Tell whether `assignment` is the one that the consumer `owner` obeys, whatever is asked of the flow."""
        if self.source is None or assignment.epoch != self.epoch:
            return False
        mine = {p for p, consumer in assignment.owners.items() if consumer == owner}
        same = mine == self.assigned and assignment.owners.keys() - mine == self.elsewhere
        source = self.source_of(assignment)
        return same and self.is_at(source.place) and self.source.topic_id in {"", source.topic_id}

    def source_of(self, assignment: TopicAssignment) -> Source:
        """Return the source that an assignment names; the known id stands if a coordinator without ids wrote it."""
        source = Source(assignment.bootstrap_servers, assignment.group_id, assignment.topic_id)
        if self.source is not None and not source.topic_id and source.place == self.source.place:
            return self.source
        return source


@dataclass(slots=True)
class _Partition:
    """One partition that is held; see the module's quantities."""

    source: Source
    claim_epoch: int = 0
    seen_id: str = ""
    """The id under which Kafka first had the topic since it was taken up; '' if that is not known."""
    has_state: bool = False
    restored: bool = True
    """Whether its state is what changelog and group say; of those without state too."""
    at_claim: Committed | None = None
    """What the group had when it was claimed."""
    claimed: bool = False
    claiming: bool = False
    """A claim has begun and has not ended: it may still fence off the owner of that time."""
    announced: bool = True
    withdrawn: bool = True
    refused: bool = False
    """What was processed is not to be committed."""
    closing: bool = False
    offered: bool = False
    start: int | None = None
    """Where its first batch began, or the first one since it was planned without."""
    planned: int | None = None
    """None if the planner's last plan does not hold it."""
    processed: int | None = None
    committed: int | None = None
    committed_at: float = 0.0
    """When, or when it was claimed, on the caller's clock."""
    in_group: bool = False
    looked_at: bool = False
    """Whether the group was looked at since it is closing."""
    uncommitted_since: float | None = None
    """Since when handled records are not committed, on the caller's clock; None if all are."""
    note: Note = NO_NOTE
    noted: Note = NO_NOTE
    seek: Seek | None = None
    """The last seek that was carried out since it was taken up."""
    paused_after: int | None = None
    """How many offers had been made when its consumption was paused; None if it is not."""
    pass_over: PassOver | None = None
    passed: int | None = None
    """Where it goes on once the planner has answered the open offer, made before a record was passed over."""
    rejected: dict[int, str] = field(default_factory=dict)
    """Offsets of processed records that the handler rejected, with the error, as long as they have no letters."""

    @property
    def outstanding(self) -> bool:
        """Whether something was processed that is to be committed and is not acknowledged."""
        if self.refused or self.processed is None:
            return False
        return self.processed != self.committed or self.note.at(self.processed, self.closing) != self.noted

    @property
    def in_doubt(self) -> bool:
        """Whether its next record may be one that kills the process."""
        deaths, position = self.note.deaths, self.position
        return deaths.size > 0 and (position is None or position < deaths.end)

    @property
    def rebuilding(self) -> bool:
        """Whether the number of its rebuild is still to be acknowledged."""
        return self.note.rebuild != self.noted.rebuild

    @property
    def may_be_read(self) -> bool:
        """Whether Spark may hold a batch with it, or be about to plan one."""
        return self.offered or self.planned is not None

    @property
    def closed(self) -> bool:
        """Whether nothing holds it open any more."""
        held_open = self.may_be_read or self.outstanding or self.claiming or not self.withdrawn
        return self.closing and not held_open and not self.to_look_at

    @property
    def topic_id(self) -> str:
        """The id of the topic that it was taken up of; '' if that is not known."""
        return self.source.topic_id or self.seen_id

    @property
    def to_look_at(self) -> bool:
        """Whether the group is to be looked at once more before it is closed."""
        kept = self.in_group and bool(self.topic_id) and not self.refused
        return self.closing and kept and not (self.looked_at or self.may_be_read or self.outstanding)

    @property
    def stands(self) -> int | None:
        """The offset that the group is to have, None as long as that is not known."""
        return self.committed if self.position is None else self.position

    @property
    def position(self) -> int | None:
        """The next offset to process, None as long as it was not planned."""
        return self.start if self.processed is None else self.processed

    @property
    def offerable(self) -> bool:
        """Whether the planner may put it in the next batch."""
        ready = self.claimed and self.announced and self.restored and not self.closing
        return ready and (self.planned is not None or not (self.outstanding or self.pass_over))

    def is_held_back(self, now: float) -> bool:
        """Tell whether it has been outstanding for too long."""
        since = self.uncommitted_since
        return self.outstanding and since is not None and now - since > LONGEST_UNCOMMITTED

    def due(self, offset: int) -> Due:
        """Return `offset`, to be committed."""
        note = self.note.at(offset, self.closing)
        return Due(offset, self.source.topic_id, self.claim_epoch, note, seek=self.seek)

    def due_with_letters(self, processed: int) -> Due:
        """Return `processed`, to be committed with the letters of what was rejected; of very many only the first
        ones, and the offset of the next."""
        letters = sorted(self.rejected.items())
        if self.has_state:  # what its batch changed is one
            return replace(self.due(processed), letters=tuple(letters))
        offset = letters[LETTERS][0] if len(letters) > LETTERS else processed
        return replace(self.due(offset), letters=tuple(letters[:LETTERS]))

    def acknowledged(self, offset: int, now: float) -> None:
        """Take note that `offset` is committed."""
        self.committed, self.committed_at = offset, now
        self.in_group, self.looked_at = True, self.closing
        self.rejected = {at: error for at, error in self.rejected.items() if at >= offset}
        over = self.pass_over
        if over is None or offset != over.offset + 1:
            return
        self.processed, self.pass_over = offset, None
        if self.planned == over.offset:
            self.passed = offset
            if not self.offered:
                self.go_on()

    def found(self, there: Committed | None) -> None:
        """Take note of what the group has of it when it is claimed."""
        self.at_claim = there
        topic_id = self.source.topic_id
        if there is not None and not of_another_topic(there.metadata, topic_id):
            self.in_group, self.committed = True, there.offset
            self.note = self.noted = noted(there, topic_id)

    def go_on(self) -> None:
        """Go on after a record that was passed over."""
        if self.passed is not None and self.planned == self.passed - 1:
            self.planned = self.passed
        self.passed = None


class Ownership:
    """Everything that the consumer `owner` holds, and the one query that reads it.

    `blocks` are the reasons why nothing is taken up (isolation, stopping, being replaced); they add up. Without a
    query nothing is read, so then partitions close as soon as their commits are acknowledged.
    `fencing`: the broker refuses late commits. `announces`: the handler asks to know what it has. `has_state` tells
    of a topic whether its partitions have state by key. `holder` is the token of this process; without one nothing
    is noted of its end.
    """

    def __init__(
        self,
        owner: str,
        fencing: bool = False,
        announces: bool = False,
        longest_renewal: float = LONGEST_RENEWAL,
        has_state: Callable[[str], bool] = lambda _topic: False,
        holder: str = "",
    ) -> None:
        self.owner = owner
        self._holder = holder
        self._has_state = has_state
        self._fencing = fencing
        self._announces = announces
        self._longest_renewal = longest_renewal
        self.topics: dict[str, Topic] = {}
        self.held: dict[TopicPartition, _Partition] = {}
        self.refused: set[TopicPartition] = set()
        """Partitions that were refused, and have not been allowed since."""
        self.blocks: set[str] = set()
        self._least: dict[str, int] = {}
        self._given: dict[str, Source] = {}
        self._taken_up = 0
        self._asked = 0
        self._reset_plan(running=False)

    # -- from ZooKeeper -----------------------------------------------------------------------------------

    def read(self, name: str, assignment: TopicAssignment, zxid: int, synced: bool = False) -> bool:
        """Take the assignment of a topic that stands in ZooKeeper since transaction `zxid`, and was read after a sync
        if `synced`; False if it is not obeyed."""
        topic = self.topics.setdefault(name, Topic(least=self._least.get(name, 0)))
        if topic.obeys(assignment, self.owner):
            if zxid < topic.zxid and not synced:
                return False
        elif assignment.epoch < topic.least:
            if synced:
                self._report_above(name, assignment.epoch)
            return False
        self._take(name, assignment, zxid)
        return True

    def _report_above(self, name: str, epoch: int) -> None:
        """Report a higher epoch of a topic than `epoch`, which is in ZooKeeper and not obeyed. What is planned in
        knowledge of the report is obeyed."""
        topic = self.topics[name]
        if topic.source is None:
            self.topics[name] = replace(topic, epoch=topic.least)
        else:
            above = max(topic.epoch or 0, epoch + 1)
            self.topics[name] = replace(topic, epoch=above, least=above + 1)

    def _take(self, name: str, assignment: TopicAssignment, zxid: int) -> None:
        topic, source = self.topics[name], self.topics[name].source_of(assignment)
        assigned = frozenset(p for p, consumer in assignment.owners.items() if consumer == self.owner)
        self.topics[name] = replace(
            topic,
            source=source,
            epoch=assignment.epoch,
            least=assignment.epoch + 1,
            zxid=zxid,
            assigned=assigned,
            elsewhere=frozenset(assignment.owners) - assigned,
            standby=frozenset(p for p, standbys in assignment.standbys.items() if self.owner in standbys),
            paused=assignment.paused,
            seeks=assignment.seeks,
            kafka_id=topic.kafka_id if topic.source is None or topic.is_at(source.place) else "",
            gone=topic.gone and source == topic.source,
        )
        self._settle({name})

    def expect(self, epochs: Mapping[str, int]) -> None:
        """Obey no lower epochs than these, by topic; what was obeyed of lower ones before counts no longer."""
        self._least = dict(epochs)
        for name in self.topics.keys() & epochs.keys():
            topic = self.topics[name]
            if topic.epoch is None:
                self.topics[name] = replace(topic, least=max(topic.least, epochs[name]))
            elif topic.epoch < epochs[name]:
                self.topics[name] = replace(topic, epoch=epochs[name])
                self.forget_assigned([name])

    def missing(self, names: Iterable[str], zxid: int) -> list[str]:
        """Return the topics that are known and not in this list, which is older than their nodes."""
        absent = self.topics.keys() - set(names)
        return sorted(n for n in absent if self.topics[n].source is not None and zxid < self.topics[n].zxid)

    def keep_only(self, names: Iterable[str], zxid: int) -> list[str]:
        """Take the list of all topics, as it stands since transaction `zxid`; return those that vanished.

        A topic whose node was read later than the list stays.
        """
        absent = sorted(self.topics.keys() - set(names))
        known = [n for n in absent if self.topics[n].source is not None or self.topics[n].epoch is not None]
        vanished = [name for name in known if zxid >= self.topics[name].zxid]
        for name in vanished:
            topic = self.topics[name]
            self.topics[name] = Topic(zxid=zxid, least=topic.least, kafka_id=topic.kafka_id)
        self._settle(vanished)
        return vanished

    def forget_assigned(self, names: Collection[str]) -> None:
        """Close what is held of these topics: nothing of them is assigned until an assignment is read again that has
        at least the reported epoch."""
        for name in self.topics.keys() & set(names):
            topic = self.topics[name]
            least = topic.least if topic.epoch is None else topic.epoch
            self.topics[name] = Topic(
                epoch=topic.epoch, zxid=topic.zxid, least=least, kafka_id=topic.kafka_id
            )
        self._settle(names)

    # -- from discovery and the process's own end ---------------------------------------------------------

    def block(self, reason: str) -> None:
        """Close everything, because of `reason`, and take nothing up."""
        self.blocks.add(reason)
        self._settle()

    def unblock(self, reason: str) -> None:
        """Take back `reason`; without any other, take up what is assigned."""
        self.blocks.discard(reason)
        self._settle()

    # -- from Spark ---------------------------------------------------------------------------------------

    def query_started(self) -> None:
        """Begin a new query, with an empty start offset, which Spark runs as its first batch if nothing is
        planned."""
        self._given = {}
        self._reset_plan(running=True)

    def query_ended(self) -> None:
        """Note that the query is over: nothing is read and no plan is under way; what was processed stands."""
        self._reset_plan(running=False)
        for partition in self.held.values():
            partition.offered = False
            partition.planned = partition.passed = None
        self._settle()

    def _reset_plan(self, running: bool) -> None:
        self._running = self._first = running
        self._finished = not running
        self._answered = self._asked
        self._offered: frozenset[TopicPartition] = frozenset()
        self._plan = BatchPlan(self._asked, {})

    def offer(self) -> Offer:
        """Return what the next batch may hold; this replaces the offer before.

        Raises `PlanRefusedError` when no query runs.
        """
        if not self._running:
            raise PlanRefusedError("no query is running; the planner that asks belongs to one that ended")
        self._asked += 1
        offered: dict[str, set[int]] = {}
        for partition in self.held.values():
            partition.go_on()
        self._offered = self._offerable()
        for tp, partition in self.held.items():
            partition.offered = tp in self._offered
            if partition.offered:
                offered.setdefault(tp[0], set()).add(tp[1])
        self._settle()
        for name, topic in self.topics.items():
            if name in offered and topic.source is not None:
                self._given[name] = topic.source
        topics = {
            name: TopicOffer(
                source,
                frozenset(offered.get(name, ())),
                len(self.topics[name].assigned | self.topics[name].elsewhere),
            )
            for name, source in self._given.items()
        }
        ends = {tp: end for tp, (_, end) in self._plan.ranges.items()}
        again = {
            tp: partition.planned
            for tp, partition in self.held.items()
            if partition.offered and partition.planned is not None and partition.planned != ends.get(tp)
        }
        seeks = {
            tp: seek
            for tp, partition in self.held.items()
            if partition.offered
            and (seek := self.topics[tp[0]].seeks.get(tp[1])) is not None
            and not partition.note.has(seek.id)
        }
        known = frozenset(
            tp
            for tp, partition in self.held.items()
            if partition.offered
            and partition.planned is None
            and partition.in_group
            and partition.source.topic_id
        )
        return Offer(self._asked, topics, again, seeks, known)

    def not_read(self, now: float) -> dict[TopicPartition, str]:
        """Return what is held and not to be read for now, with the reason: it stays in the plans, with nothing to
        read. `now` is in seconds, of the same clock as that of `processed`."""
        held_back = {tp: HELD_BACK for tp, partition in self.held.items() if partition.is_held_back(now)}
        rebuilding = {tp: REBUILDING for tp, partition in self.held.items() if partition.rebuilding}
        paused = {tp: PAUSED for tp, partition in self.held.items() if partition.paused_after is not None}
        return rebuilding | held_back | paused

    @property
    def offer_changes(self) -> bool:
        """Whether an offer made now would hold other partitions than the last one: some are to be taken up or given
        up."""
        return self._offerable() != self._offered

    def _offerable(self) -> frozenset[TopicPartition]:
        return frozenset(
            tp for tp, p in self.held.items() if p.offerable and not self.topics[tp[0]].recreated
        )

    def nearby(self) -> dict[str, TopicOffer]:
        """Return, of each Kafka cluster, a topic with a partition that some consumer has, and that partition."""
        found: dict[str, tuple[str, TopicOffer]] = {}
        for name, topic in sorted(self.topics.items()):
            if topic.source is not None and (partitions := topic.assigned | topic.elsewhere):
                offer = TopicOffer(topic.source, frozenset({min(partitions)}), len(partitions))
                found.setdefault(topic.source.bootstrap_servers, (name, offer))
        return dict(found.values())

    def planned(
        self,
        asked: int,
        offsets: Mapping[str, Mapping[int, OffsetRange]],
        jumps: Mapping[TopicPartition, Jump] | None = None,
        notes: Mapping[TopicPartition, Note] | None = None,
        sought: Mapping[TopicPartition, Seek] | None = None,
        due: frozenset[TopicPartition] = frozenset(),
    ) -> None:
        """Take the batch that the planner planned from the offer numbered `asked`, which must be the newest.

        `jumps` are the partitions that do not continue where they were read up to; where that is because records are
        lost, the offset after them is committed at once. `notes` are those of the partitions that begin, by what
        is committed. `sought` are the seeks that this plan carries out, each with the offset that it goes on at: that
        is committed at once, with the id, whatever becomes of the batch. `due` is as in
        `BatchPlan`.

        A plan equal to the one before is no batch, unless it is the query's first. Raises `PlanRefusedError` and
        changes nothing if the plan does not follow from the newest offer, or if the batch planned before has not
        been processed.
        """
        plan = self._batch_plan(asked, offsets, notes or {}, due)
        if not self._running or asked != self._asked or asked == self._answered:
            raise PlanRefusedError(
                f"plan made from offer {asked} is refused, the newest open offer is {self._asked}; ask again"
            )
        if plan.offsets == self._plan.offsets and not plan.due and not self._first:
            self._answered = asked
            self._seek(sought or {})
            return
        if not self._finished and not self._first:
            raise PlanRefusedError(
                f"plan made from offer {asked} is refused, the batch planned from offer {self._plan.asked} is "
                "still under way"
            )
        ranges = plan.ranges
        for tp in sorted(ranges):
            self._check(tp, ranges[tp], (jumps or {}).get(tp), (sought or {}).get(tp))
        self._answered = asked
        self._plan = plan
        self._first = self._finished = False
        for tp, partition in self.held.items():
            partition.offered = False
            if tp not in ranges:
                partition.planned = partition.passed = None
                continue
            if partition.planned is None:
                # It starts again from what the group had committed, so what was known before no longer counts.
                partition.processed = partition.committed = partition.uncommitted_since = None
                partition.rejected = {}
                partition.start = ranges[tp][0]
                partition.note = partition.noted = (notes or {}).get(tp, NO_NOTE)
                moved = tp in (jumps or {}) or tp in (sought or {})
                self._note_holder(partition, ranges[tp][0], NO_DEATHS if moved else partition.note.deaths)
                if partition.note != partition.noted:
                    partition.processed = partition.start
            partition.planned = ranges[tp][1]
            if tp in (sought or {}):
                partition.passed = None
            if partition.pass_over is not None and partition.pass_over.offset != partition.planned:
                partition.pass_over = None  # the record is gone, and it goes on elsewhere
            partition.go_on()
        for tp, jump in (jumps or {}).items():
            if jump.loses and tp not in (sought or {}) and tp in ranges:
                self.held[tp].start = self.held[tp].processed = jump.after
        self._seek(sought or {})
        self._settle()

    def _note_holder(self, partition: _Partition, offset: int, found: Deaths) -> None:
        """Note whose process has a partition that begins at `offset`, and how many have died there."""
        if self._holder and not partition.has_state:
            deaths = found.taken_up(self._holder, offset)
            partition.note = replace(partition.note, deaths=deaths)

    def in_doubt(self) -> dict[TopicPartition, Deaths]:
        """Return the partitions whose next record may be one that kills the process, and what is known of that."""
        return {tp: p.note.deaths for tp, p in self.held.items() if p.in_doubt}

    def not_noted(self) -> frozenset[TopicPartition]:
        """Return the partitions in doubt of which it is still to be committed what is tried next."""
        return frozenset(
            tp for tp, p in self.held.items() if p.in_doubt and (p.outstanding or p.planned is None)
        )

    def doubt(self, tp: TopicPartition, deaths: Deaths) -> None:
        """Have something else noted of a partition's deaths."""
        if (partition := self.held.get(tp)) is not None:
            partition.note = replace(partition.note, deaths=deaths)

    def _batch_plan(
        self,
        asked: int,
        offsets: Mapping[str, Mapping[int, OffsetRange]],
        notes: Mapping[TopicPartition, Note],
        due: frozenset[TopicPartition],
    ) -> BatchPlan:
        found = BatchPlan(
            asked,
            {name: dict(ranges) for name, ranges in offsets.items() if ranges},
            {name: s.topic_id for name, s in self._given.items() if s.topic_id and offsets.get(name)},
            due=due,
        )
        known = {**notes, **{tp: p.note for tp, p in self.held.items() if p.planned is not None}}
        rebuilds = {tp: known[tp].rebuild for tp in found.filled.keys() & known.keys()}
        return replace(found, rebuilds={tp: number for tp, number in rebuilds.items() if number})

    def _seek(self, sought: Mapping[TopicPartition, Seek]) -> None:
        for tp, seek in sought.items():
            if partition := self.held.get(tp):
                partition.note, partition.seek = partition.note.after(seek), seek
                partition.start = partition.processed = at = seek.offset or 0
                partition.rejected = {one: e for one, e in partition.rejected.items() if one < at}

    def _check(self, tp: TopicPartition, planned: OffsetRange, jump: Jump | None, seek: Seek | None) -> None:
        """Raise `PlanRefusedError` if a partition's range does not follow from the newest offer and the last plan."""
        begin, end = planned
        name = f"topic {tp[0]!r}, partition {tp[1]}"
        partition = self.held.get(tp)
        if partition is None or not partition.offered:
            raise PlanRefusedError(f"{name}: planned, but it was not in the offer; ask again")
        if not 0 <= begin <= end:
            raise PlanRefusedError(f"{name}: offsets {begin} to {end} are no range")
        if begin < end and (partition.rebuilding or (seek is not None and seek.rebuild)):
            raise PlanRefusedError(f"{name}: planned with records, but {REBUILDING}; ask again")
        known_jump = jump is not None and (jump.before, jump.after) == (partition.planned, begin)
        if partition.planned is not None and begin != partition.planned and not known_jump:
            raise PlanRefusedError(
                f"{name}: planned from offset {begin}, but the last plan ended at {partition.planned}"
            )

    @property
    def stands_at(self) -> Mapping[str, Mapping[int, OffsetRange]]:
        """The last plan's ranges: where Spark stands once that batch is processed."""
        return self._plan.offsets

    def batch(self) -> BatchPlan:
        """Return the plan of the batch that begins now.

        Raises `PlanRefusedError` if every plan was processed already.
        """
        if self._finished:
            raise PlanRefusedError("a batch begins that was not planned; the query has to be restarted")
        self._first = False
        return self._plan

    def processed(
        self,
        plan: BatchPlan,
        now: float,
        rejected: Mapping[TopicPartition, Mapping[int, str]] | None = None,
    ) -> None:
        """Take note that the handler finished a batch at `now`, in seconds, of the same clock as that of `committed`,
        and `rejected` some of its records, by partition and offset, with the error: each gets a dead letter.

        Raises `PlanRefusedError` if it is not the last planned.
        """
        if not self._running or plan is not self._plan:
            raise PlanRefusedError(
                f"the batch of offer {plan.asked} is not the one under way; restart the query"
            )
        self._finished = True
        for tp, (_, end) in plan.ranges.items():
            partition = self.held.get(tp)
            if partition is None or partition.planned not in {None, end}:
                continue  # not held any more, or a record was passed over meanwhile
            partition.processed = end
            if tp in plan.due:
                partition.committed = None  # though it goes on where it was
            partition.rejected.update((rejected or {}).get(tp, {}))
            if partition.uncommitted_since is None and partition.outstanding:
                partition.uncommitted_since = now
        self._settle()

    def failed(self, plan: BatchPlan) -> None:
        """Take note that the handler raised: the batch is read again, by other plans. Nothing if it is not the last
        planned."""
        if not self._running or plan is not self._plan:
            return
        self._finished = True
        for tp, (begin, end) in plan.ranges.items():
            if tp in self.held and self.held[tp].planned == end:
                self.held[tp].planned = begin

    def stop(self, topic: str, stopped: bool) -> None:
        """Have it committed with the offsets of a topic whether that is stopped."""
        for partition in self._of({topic}).values():
            if partition.note.stopped != stopped:
                partition.note = replace(partition.note, stopped=stopped)
                partition.processed = partition.start if partition.processed is None else partition.processed

    # -- from people, or the settings in their place -----------------------------------------------------

    def pass_over(self, tp: TopicPartition, over: PassOver) -> bool:
        """Pass over the next record of a partition; False if the partition is closing, or does not stand before
        it."""
        partition = self.held.get(tp)
        if partition is None or partition.closing or partition.position is None:
            return False
        if partition.position > over.offset or partition.planned not in {None, over.offset}:
            return False
        if partition.planned is None and partition.offered:
            return False  # a plan may be about to begin before the record
        partition.pass_over = over
        return True

    def keep(self, tp: TopicPartition, claim_epoch: int, offset: int) -> bool:
        """Keep a record that was to be passed over with a dead letter, which cannot be written; False if it is not
        to be any more."""
        partition = self._claimed_as(tp, claim_epoch)
        if partition is None or partition.pass_over != PassOver(offset, letter=True):
            return False
        partition.pass_over = None
        return True

    # -- from Kafka ---------------------------------------------------------------------------------------

    def due(self, now: float) -> dict[Place, dict[TopicPartition, Due]]:
        """Return the offsets to commit now, by where they belong.

        What was last committed, or claimed, too long ago is due again. `now` is in seconds, of the same clock as that
        of `committed`.
        """

        def offset(tp: TopicPartition, topic: Topic, partition: _Partition) -> Due | None:
            over, stays = partition.pass_over, not (partition.refused or partition.closing or topic.recreated)
            if not partition.restored or (partition.rejected and partition.outstanding):
                return None
            if over is not None and not over.letter and stays:
                return partition.due(over.offset + 1)
            if partition.outstanding and partition.processed is not None:
                lost = topic.recreated and topic.is_at(partition.source.place)
                return None if lost else partition.due(partition.processed)
            if over is not None or not stays or partition.stands is None:
                return None
            renew = now - partition.committed_at >= renewal_interval(tp, self._longest_renewal)
            return partition.due(partition.stands) if renew else None

        return self._by_place(offset)

    def letters(self) -> dict[Place, dict[TopicPartition, Due]]:
        """Return the offsets that are to be committed together with dead letters of records before them, by where
        they belong: of those that a `Due` names, or without these of the record just before. Nothing else of these
        partitions is due meanwhile."""

        def offset(_tp: TopicPartition, topic: Topic, partition: _Partition) -> Due | None:
            if partition.rejected and partition.outstanding and partition.processed is not None:
                lost = topic.recreated and topic.is_at(partition.source.place)
                return None if lost else partition.due_with_letters(partition.processed)
            over, stays = partition.pass_over, not (partition.refused or partition.closing or topic.recreated)
            ready = over is not None and over.letter and stays and not partition.outstanding
            return partition.due(over.offset + 1) if over is not None and ready else None

        return self._by_place(offset)

    def committed(self, offsets: Mapping[TopicPartition, Due], now: float) -> None:
        """Take note that Kafka acknowledged these offsets."""
        for tp, due in offsets.items():
            if partition := self._claimed_as(tp, due.claim_epoch):
                partition.acknowledged(due.offset, now)
                partition.noted = due.note
                partition.note = replace(
                    partition.note, rebuild=max(partition.note.rebuild, due.note.rebuild)
                )
                partition.uncommitted_since = now if partition.outstanding else None
        self._settle()

    def uncommitted(self) -> frozenset[TopicPartition]:
        """Return the partitions with state of which something is to be committed before more is planned."""
        return frozenset(tp for tp, p in self.held.items() if p.has_state and p.outstanding)

    def to_restore(self) -> dict[TopicPartition, ToRestore]:
        """Return the partitions whose state is to be restored."""
        found: dict[TopicPartition, ToRestore] = {}
        for tp, partition in self.held.items():
            if partition.claimed and not (partition.restored or partition.closing):
                seek = self.topics[tp[0]].seeks.get(tp[1])
                chosen = seek.id if seek is not None and seek.offset is not None else ""
                found[tp] = ToRestore(partition.claim_epoch, partition.source, partition.at_claim, chosen)
        return found

    def restored(self, tp: TopicPartition, claim_epoch: int, commits: int | None) -> None:
        """Take note that a partition's state is what changelog and group say. `commits` is the offset that is to be
        committed once before anything is read, None for none."""
        if (partition := self._claimed_as(tp, claim_epoch)) is None or partition.closing:
            return
        partition.restored = True
        if commits is not None:
            partition.processed, partition.committed = commits, None
        self._settle({tp[0]})

    def in_group(self) -> dict[Place, dict[TopicPartition, str]]:
        """Return what the group has to have an offset of, which only another program may have changed, with the ids
        of the topics ('': unknown)."""

        def topic_id(_tp: TopicPartition, topic: Topic, partition: _Partition) -> str | None:
            kept = partition.in_group and not (partition.refused or topic.recreated)
            return partition.topic_id if kept and not partition.closing else None

        return self._by_place(topic_id)

    def last_looks(self) -> dict[Place, dict[TopicPartition, str]]:
        """Return what is closed once the group was looked at once more, with the ids of the topics."""
        return self._by_place(lambda _tp, _topic, p: p.topic_id if p.to_look_at else None)

    def looked_at(self, partitions: Iterable[TopicPartition]) -> None:
        """Take note that the group was looked at once more for these, or could not be."""
        for tp in self.held.keys() & set(partitions):
            self.held[tp].looked_at = True
        self._settle()

    def set_by_others(self, tp: TopicPartition) -> None:
        """Take note that another program has set the committed offset, or deleted it: what is known here is due
        again."""
        if (partition := self.held.get(tp)) is not None and partition.restored:
            partition.processed, partition.committed = partition.stands, None
            partition.in_group = False

    def refuse(self, tp: TopicPartition, claim_epoch: int) -> bool:
        """Close a partition without committing, because its commit was refused for good; False if it is not held
        under this claim epoch."""
        partition = self._claimed_as(tp, claim_epoch)
        if partition is None:
            return False
        partition.refused = partition.closing = True
        self.refused.add(tp)
        self._settle({tp[0]})
        return True

    def keeps(self, tp: TopicPartition, claim_epoch: int) -> bool:
        """Tell whether a partition is held under this claim epoch and was given to no other consumer, as far as is
        known; one that is to be closed is not given away before that is done."""
        partition, topic = self._claimed_as(tp, claim_epoch), self.topics.get(tp[0], Topic())
        return partition is not None and not partition.refused and tp[1] not in topic.elsewhere

    def allow(self, tp: TopicPartition) -> None:
        """Allow a partition that was refused to be taken up again, if it is assigned."""
        self.refused.discard(tp)
        self._settle({tp[0]})

    def unclaimed(self) -> dict[Place, dict[TopicPartition, int]]:
        """Return the partitions that have to be claimed before they can start, with their claim epochs, by place."""
        return self._by_place(lambda _tp, _topic, p: None if p.claimed or p.closing else p.claim_epoch)

    def claims_in_use(self) -> dict[Place, dict[TopicPartition, int]]:
        """Return all that is held and claimed, or is to be, with its claim epochs, by place; other claims are to be
        given up. So is one under way for a replacement whose partition is closed without committing."""

        def in_use(_tp: TopicPartition, _topic: Topic, partition: _Partition) -> int | None:
            pointless = not partition.claimed or (partition.refused and partition.claiming)
            return None if partition.closing and pointless else partition.claim_epoch

        return self._by_place(in_use)

    def begin_claim(self, tp: TopicPartition, claim_epoch: int) -> bool:
        """Note that a claim begins; False if it must not, because the partition is closing, or was taken up again.

        One that is claimed already, and whose producer is replaced, may be closing: it is committed before it closes.
        """
        partition = self._claimed_as(tp, claim_epoch)
        if partition is None or not self.keeps(tp, claim_epoch):
            return False
        if partition.closing and not partition.claimed:
            return False
        partition.claiming = True
        return True

    def claim_ended(self, tp: TopicPartition, claim_epoch: int) -> None:
        """Take note that a claim that had begun can no longer take effect, or has been given up."""
        if partition := self._claimed_as(tp, claim_epoch):
            partition.claiming = False
        self._settle({tp[0]})

    def claimed(
        self,
        claim_epochs: Mapping[TopicPartition, int],
        now: float,
        group: Mapping[TopicPartition, Committed | None] | None = None,
    ) -> None:
        """Take note that these partitions are claimed for these claim epochs, and what the `group` has of them since.
        `now` is in seconds, of the same clock as that of `committed`."""
        for tp, claim_epoch in claim_epochs.items():
            if partition := self._claimed_as(tp, claim_epoch):
                partition.claimed, partition.claiming = True, False
                partition.committed_at = now
                there = (group or {}).get(tp)
                partition.found(there)
                if there is not None and partition.committed == there.offset:
                    self._note_holder(partition, there.offset, partition.note.deaths)
        self._settle()

    def watched(self) -> dict[Place, set[str]]:
        """Return the topics of which this consumer has partitions, or is assigned some, by place."""
        found: dict[Place, set[str]] = {}
        for (name, _), partition in self.held.items():
            found.setdefault(partition.source.place, set()).add(name)
        for name, topic in self.topics.items():
            if topic.source is not None and topic.assigned:
                found.setdefault(topic.source.place, set()).add(name)
        return found

    def identify(self, name: str, place: Place, kafka_id: str, gone: bool = False) -> None:
        """Take note that Kafka at `place` has a topic under `kafka_id` ('': unknown), or that it is `gone` from it.

        What is being closed there belongs to the topic that was there; it may be another place than the assignment's.
        """
        if name not in self.topics:
            return
        for partition in self._of({name}).values():
            known = partition.source.topic_id
            if partition.source.place == place:
                partition.seen_id = partition.seen_id or kafka_id
            if partition.closing and partition.source.place == place:
                partition.refused |= gone or bool(known and kafka_id and known != kafka_id)
        topic = self.topics[name]
        if topic.is_at(place):
            self.topics[name] = replace(topic, kafka_id=kafka_id, gone=gone or (topic.gone and not kafka_id))
        self._settle({name})

    # -- from the handler ---------------------------------------------------------------------------------

    @property
    def to_announce(self) -> dict[TopicPartition, int]:
        """What is to be announced to the handler, with the claim epochs."""
        return {
            tp: p.claim_epoch
            for tp, p in self.held.items()
            if p.claimed and not p.announced and p.withdrawn and not p.closing
        }

    @property
    def to_withdraw(self) -> dict[TopicPartition, int]:
        """What is to be withdrawn from the handler, with the claim epochs."""
        return {
            tp: p.claim_epoch
            for tp, p in self.held.items()
            if p.closing and not p.withdrawn and not p.may_be_read
        }

    def begin_announcing(self, claim_epochs: Mapping[TopicPartition, int]) -> None:
        """Note that these begin to be announced to the handler."""
        for tp, claim_epoch in claim_epochs.items():
            if partition := self._claimed_as(tp, claim_epoch):
                partition.withdrawn = False

    def announced(self, claim_epochs: Mapping[TopicPartition, int]) -> None:
        """Take note that these were announced to the handler."""
        for tp, claim_epoch in claim_epochs.items():
            if partition := self._claimed_as(tp, claim_epoch):
                partition.announced = True

    def withdrawn(self, claim_epochs: Mapping[TopicPartition, int]) -> None:
        """Take note that these were withdrawn from the handler, or were not announced after all."""
        for tp, claim_epoch in claim_epochs.items():
            if partition := self._claimed_as(tp, claim_epoch):
                partition.withdrawn = True
        self._settle({topic for topic, _ in claim_epochs})

    @property
    def standing_by(self) -> frozenset[TopicPartition]:
        """What this consumer stands by for."""
        if self.blocks:
            return frozenset()
        return frozenset((name, p) for name, topic in self.topics.items() for p in topic.standby)

    # -- what follows -------------------------------------------------------------------------------------

    def _settle(self, names: Collection[str] | None = None) -> None:
        """Close what is not wanted, drop what is closed, take up what is wanted and closed; in that order.

        `names` are the topics that an event concerned, None for all.
        """
        for tp, partition in self._of(names).items():
            topic = self.topics[tp[0]]
            self._follow_source(topic, partition)
            if tp[1] not in self._wanted(topic):
                partition.closing = True
            if tp[1] in topic.elsewhere and not self._fencing:
                partition.refused = True
            if topic.is_at(partition.source.place) and (
                topic.gone or (partition.closing and topic.recreated)
            ):
                partition.refused = True
            if partition.closed:
                del self.held[tp]
        self._take_up(names)
        for (name, number), partition in self._of(names).items():
            if number not in self.topics[name].paused:
                partition.paused_after = None
            elif partition.paused_after is None:
                partition.paused_after = self._asked

    def _take_up(self, names: Collection[str] | None) -> None:
        for name in self.topics if names is None else names:
            topic = self.topics.get(name, Topic())
            for tp in ((name, number) for number in self._wanted(topic)):
                if topic.source is not None and tp not in self.held and tp not in self.refused:
                    self._taken_up += 1
                    state = self._has_state(name)
                    self.held[tp] = _Partition(
                        topic.source,
                        self._taken_up,
                        announced=not self._announces,
                        has_state=state,
                        restored=not state,
                    )

    def _wanted(self, topic: Topic) -> frozenset[int]:
        return frozenset() if self.blocks or topic.gone else topic.assigned

    @staticmethod
    def _follow_source(topic: Topic, partition: _Partition) -> None:
        """Close a partition that is not where the assignment says. What was processed of another topic is not
        committed; what was read at another place is, there."""
        source = topic.source
        if source is None or partition.source == source:
            return
        if partition.source.place == source.place:
            if not partition.source.topic_id:
                partition.source = source
            if not source.topic_id or partition.source == source:
                return
            partition.refused = True
        partition.closing = True

    def _of(self, names: Collection[str] | None) -> dict[TopicPartition, _Partition]:
        """Return what is held of these topics, or of all."""
        return {tp: held for tp, held in self.held.items() if names is None or tp[0] in names}

    def _claimed_as(self, tp: TopicPartition, claim_epoch: int) -> _Partition | None:
        """Return the partition if it is held under this claim epoch."""
        partition = self.held.get(tp)
        return partition if partition is not None and partition.claim_epoch == claim_epoch else None

    def _by_place(
        self, which: Callable[[TopicPartition, Topic, _Partition], _T | None]
    ) -> dict[Place, dict[TopicPartition, _T]]:
        """Return what `which` finds of the partitions that are held, by where they are."""
        found: dict[Place, dict[TopicPartition, _T]] = {}
        for tp, partition in self.held.items():
            value = which(tp, self.topics[tp[0]], partition)
            if value is not None:
                found.setdefault(partition.source.place, {})[tp] = value
        return found

    # -- for others ---------------------------------------------------------------------------------------

    def status(self, name: str | None = None) -> dict[str, TopicStatus]:
        """Return what the status page says, of one topic or of all: every topic that is assigned, those still being
        closed, and those whose assignment is of a backup and not obeyed."""
        found: dict[str, dict[str, set[int]]] = {}
        for (of, number), partition in self._of(None if name is None else {name}).items():
            running = "starting" if partition.planned is None else "running"
            lists = found.setdefault(
                of, {"running": set(), "starting": set(), "closing": set(), "paused": set()}
            )
            lists["closing" if partition.closing else running].add(number)
            if self._stopped((of, number), partition):
                lists["paused"].add(number)
        statuses: dict[str, TopicStatus] = {}
        for of in sorted(self.topics) if name is None else {name} & self.topics.keys():
            topic, lists = self.topics[of], found.get(of, {})
            if lists or topic.epoch is not None:
                statuses[of] = TopicStatus(
                    running=frozenset(lists.get("running", ())),
                    starting=frozenset(lists.get("starting", ())),
                    closing=frozenset(lists.get("closing", ())),
                    epoch=topic.epoch,
                    standby=frozenset() if self.blocks else topic.standby,
                    paused=frozenset(lists.get("paused", ())),
                )
        return statuses

    def _stopped(self, tp: TopicPartition, partition: _Partition) -> bool:
        """Tell whether its consumption is paused, and nothing of it is under way: no offer from before the pause is
        open, and what was planned is processed and committed."""
        if partition.paused_after is None or partition.closing or partition.outstanding:
            return False
        none_open = self._answered == self._asked or self._asked > partition.paused_after
        begin, end = self._plan.ranges.get(tp, (0, 0)) if not self._finished else (0, 0)
        return none_open and begin == end

    @property
    def closed(self) -> bool:
        """Whether nothing is held."""
        return not self.held


def renewal_interval(tp: TopicPartition, longest: float = LONGEST_RENEWAL) -> float:
    """Return the seconds from one commit of a partition to the next at the latest, different for each partition."""
    return longest * (1 - RENEWAL_SPREAD * crc32(f"{tp[0]}/{tp[1]}".encode()) / 2**32)
