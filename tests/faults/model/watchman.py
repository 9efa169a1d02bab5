"""What has to hold after every step, whatever happened before.

A consumer process *is in contact* while it is registered, Consul lists its id as passing and not isolated; and after
that as long as it answers, for `WAITED` seconds. One that another process under its id has replaced is in contact as
long as it answers and its id is live, or it is registered itself. ZooKeeper does not matter for that: a consumer that
cannot see ZooKeeper is still counted on. What a process holds at a moment when it is not in contact is *estranged*:
it may have been given to others. It stays so until the process has let go of it, or is in contact again and the
assignment names it and no other holds it.

- No partition is held, not estranged, by two processes.
- Nothing is held by a process that was never live, and an id does not seem gone because one process replaces another.
- The group's offset never goes backwards, whoever commits. What a process holds unestranged it commits before it lets
  go, and whoever begins after it begins where it ended. It is refused only where a process that holds the partition
  estranged has claimed it, or where its producer was replaced while it carried a seek back out: then the group is
  ahead, which is all that a replacement goes by, and the seek is carried out after the next claim.
- Nothing is begun that was not claimed, and nothing is claimed that the process does not hold. What was refused is
  taken back only by who has been assigned it and registered since; a claim that was under way may land before it is
  closed. What a stuck producer holds is claimed a second time only by who has it still and was registered since.
- Records that were not read are left out only where Kafka has deleted them; with `failOnDataLoss` only once a person
  has accepted it.
- A seek is carried out once, as a person has asked for it, and never after a later one or after it was taken back,
  whatever is restored; by the coordinator only where no owner is registered. The number of a rebuild only grows, and
  no record is handed out under one that Kafka has not acknowledged.
- A process that closes a partition in order is not counted as dead. A partition in doubt is read alone, and only once
  it is committed that it is tried.
- What belongs to one topic is not read or committed as another's that has its name.
- No batch begins with a partition of which something has been processed for long that is not committed.
- A process that deregisters can touch no record any more, and one that was replaced registers nothing.
- At rest every pin that can be obeyed is obeyed, and no consumer reads a topic it is excluded from if another can.
- A partition that stays assigned to a process in contact goes on running.
- A partition is taken from a live owner only to go to another, in balance, or because it vanished from Kafka; none is
  given in the write that takes it from another, nor to a consumer that is leaving, if another is there.
- Partitions are removed only by a coordinator that had read them and then not found them in Kafka.
- A partition with records that has not moved for `STUCK_AFTER` is named with what holds it up, by the rule that all
  who look compute, and a person is asked, unless one has paused it or keeps all that are live from its topic, or a
  batch of it is with a handler for no longer than `max_batch_time`, which is named with its seconds. The owner is
  named if it is live and silent. What a person decided about a record is asked about when it is not done for so long.
- Assignments are written only after a reading of Consul that succeeded and was to be trusted.
- The epoch decides: no process obeys a lower one than it has obeyed of a topic, and no write is built on an epoch
  behind which a higher one was written, whatever ZooKeeper was restored to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from muster.core import progress
from muster.core.diagnosis import Situation, held_up
from muster.core.model import (
    ConsumerStatus,
    Membership,
    State,
    TopicAssignment,
    TopicPartition,
    TopicSnapshot,
    Transition,
    by_partition,
)
from muster.core.overrides import NO_OVERRIDES
from muster.core.ownership import LONGEST_UNCOMMITTED, Source
from muster.core.patience import Replies
from muster.core.positions import Committed, of_another_topic
from muster.core.progress import Look
from muster.core.stuck import stuck
from muster.edges.consul import ConsulError
from muster.edges.status import StatusFailure
from tests.faults.model.consul import ELSEWHERE, Api, HostAgent, Service, SimulatedConsul
from tests.faults.model.flow_watch import FlowWatch
from tests.faults.model.kafka import Record
from tests.faults.model.state_watch import StateWatch
from tests.faults.model.tally import MOVES

if TYPE_CHECKING:
    from tests.faults.model.coordinator import CoordinatorProcess
    from tests.faults.model.process import Process
    from tests.faults.model.seeks import Seeking
    from tests.faults.model.world import Model

_CONFIRMED = {"assigned", "registered"}

UNCOMMITTED = 2 * LONGEST_UNCOMMITTED
"""Seconds that something may be processed and not committed while its partition is read on. A process hears later
than Kafka that it has committed, and counts from then."""
WAITED = 30.0
"""Seconds for which an owner that fails its check, or is isolated, and answers, is waited for at least: the setting
`closing_timeout`."""


STUCK_AFTER = 20.0
"""Seconds without movement after which a partition is named: the setting `stuck_after`."""


class ViolationError(AssertionError):
    """Something happened that is promised not to; the message tells the history."""

    def __init__(self, what: str, world: Model) -> None:
        history = ["/".join(map(str, world.setting)), *("/".join(event) for event in world.history)]
        super().__init__("\n".join([what, *world.story, "As a history to be stored:", *history]))
        self.what = what
        self.setting = world.setting
        self.history = tuple(world.history)


class Watchman:
    def __init__(self, world: Model) -> None:
        self.world = world
        self.stuck_after = STUCK_AFTER
        self.broken: ViolationError | None = None
        """What was raised, in case that the code that was judged has caught it."""
        self.estranged: set[tuple[str, TopicPartition]] = set()
        self.was_held: dict[str, set[TopicPartition]] = {}
        self.was_running: dict[str, dict[TopicPartition, tuple[int, Source | None]]] = {}
        """What each process ran, by which write of the assignment, and where it was read."""
        self.were_in_contact: set[str] = set()
        """Who was in contact at the last look."""
        self.taken_up: set[str] = set()
        """Who was in contact, or isolated and would else have been, at some time, and may hold something."""
        self.registered: dict[str, tuple[str, bool]] = {}
        """By consumer: the incarnation, and whether it passed by what its agent holds, at the last look."""
        self.estranged_once: set[tuple[str, TopicPartition]] = set()
        """What was estranged at some time since it was taken up."""
        self.claimed: dict[TopicPartition, tuple[Process | Seeking, bool]] = {}
        """Who claimed each partition last, and whether it was estranged at that moment."""
        self.refusals: dict[tuple[str, TopicPartition], set[str]] = {}
        """What each process was refused, and what it could have learnt since: still assigned, still registered."""
        self.asked: dict[tuple[str, TopicPartition], set[str]] = {}
        """The partitions that each process commits, and what it could have learnt since the call began: given to
        no other, still registered."""
        self.done: dict[Record, tuple[Process, int]] = {}
        """By whom each partition was read last in contact, and how far."""
        self.uncommitted_since: dict[tuple[str, Record], float] = {}
        """By process and partition: since when something is processed and not committed."""
        self.furthest: dict[Record, int] = {}
        """How far each partition was read by anybody, or what Kafka has deleted was left out."""
        self.vanished: set[Record] = set()
        """Partitions whose committed offset a person has deleted, and which are not committed since."""
        self.accepted: set[Record] = set()
        """Partitions of which a person has accepted that records are lost, and which have not gone on since."""
        self.lost_since: dict[str, float] = {}
        """Since when each process that was in contact is not live, and has answered all the time."""
        self.leaving_since: dict[str, int] = {}
        """Since which moment each consumer says that it is leaving, of those that do."""
        self.live_since: dict[str, int] = {}
        """Since which moment each consumer is live, of those that are."""
        self.owner_since: dict[TopicPartition, int] = {}
        """Since which write a partition's owner is the same."""
        self.flow = FlowWatch(self)
        self.state = StateWatch(self)
        self.stands: dict[TopicPartition, tuple[Record, Committed | None, float]] = {}
        """What is committed of each partition with records, and since when it is that."""
        self.looked = Look()
        """What one that looks at Kafka after every step has seen."""
        self.obeyed: dict[tuple[str, str], int] = {}
        """The highest epoch of each topic that each process has obeyed."""
        self.epochs: dict[str, int] = {}
        """The highest epoch of each topic that was ever written."""

    def fail(self, what: str) -> NoReturn:
        """A promise is broken."""
        self.broken = ViolationError(what, self.world)
        raise self.broken

    # -- contact --------------------------------------------------------------------------------------------

    def in_contact(self, process: Process) -> bool:
        if not process.alive:
            return False
        consul = self.world.consul
        standing = consul.standing(process.id)
        if standing is None:
            return False
        live = consul.passes(process.id, *standing)
        if standing[1].incarnation == process.incarnation:
            return live or self._is_waited_for(process)
        registered = any(s.incarnation == process.incarnation for _, s in consul.registrations(process.id))
        replaced = process.incarnation in self.were_in_contact and process.answers()
        return replaced and (live or (registered and self._is_waited_for(process)))

    def _passes(self, process: Process) -> bool:
        """Whether Consul's servers have it as passing."""
        registrations = self.world.consul.registrations(process.id)
        mine = (found for found in registrations if found[1].incarnation == process.incarnation)
        return any(service.passing for _, service in mine)

    def _is_waited_for(self, process: Process) -> bool:
        since = self.lost_since.get(process.incarnation, self.world.now)
        waited = self.world.now - since <= WAITED
        return process.incarnation in self.were_in_contact and process.answers() and waited

    def look(self) -> None:
        if self.broken is not None:
            raise self.broken
        self._note_who_is_live()
        living = [p for p in self.world.processes if p.alive]
        contacts = {p.incarnation for p in living if self.in_contact(p)}
        self.were_in_contact = contacts
        self.taken_up |= contacts | {p.incarnation for p in living if self._passes(p)}
        holders: dict[TopicPartition, Process] = {}
        for process in self.world.processes:
            if not process.alive:
                self._forget(process)
            else:
                self._look_at(process, process.incarnation in contacts, holders)
        self._reconcile()
        self._learn()
        self._names_what_stands()

    def _note_who_is_live(self) -> None:
        moment = self.world.moment()
        consul = self.world.consul
        standing = {c: found for c in consul.consumers() if (found := consul.standing(c)) is not None}
        live = {c for c, found in standing.items() if consul.passes(c, *found)}
        leaving = {c for c, (_, service) in standing.items() if "leaving" in service.meta}
        self.live_since = {c: self.live_since.get(c, moment) for c in live}
        self.leaving_since = {c: self.leaving_since.get(c, moment) for c in leaving}
        self.lost_since = {
            p.incarnation: self.lost_since.get(p.incarnation, self.world.now)
            for p in self.world.processes
            if p.id not in live and p.incarnation in self.were_in_contact
        }
        self._stays_live(standing)

    def _forget(self, process: Process) -> None:
        """The process is dead."""
        name = process.incarnation
        self.was_held.pop(name, None)
        self.was_running.pop(name, None)
        self.estranged = {e for e in self.estranged if e[0] != name}
        self.estranged_once = {e for e in self.estranged_once if e[0] != name}
        self.asked = {e: known for e, known in self.asked.items() if e[0] != name}

    def _look_at(self, process: Process, contact: bool, holders: dict[TopicPartition, Process]) -> None:
        name, held = process.incarnation, process.held
        if held and name not in self.taken_up:
            self.fail(f"{name} takes up {held}, and was never live")
        self._never_goes_back(process)
        before = self.was_held.get(name, set())
        self._forget_what_is_misnamed(process, before | held)
        for key in before - held:
            self._let_go(process, key)
            self.estranged.discard((name, key))
            self.estranged_once.discard((name, key))
        apart = set() if contact else set(held)
        self.was_held[name] = held
        self.estranged |= {(name, key) for key in apart}
        self.estranged_once |= {(name, key) for key in apart}
        self._keeps_running(process, contact)
        for key in held:
            if (name, key) in self.estranged:
                continue
            if key in holders:
                self.fail(f"{key} is held by {holders[key].incarnation} and by {name}, both in contact")
            holders[key] = process

    def _never_goes_back(self, process: Process) -> None:
        for name, topic in process.agent._ownership.topics.items():
            if topic.source is None or topic.epoch is None:
                continue
            highest = self.obeyed.get((process.incarnation, name), 0)
            if topic.epoch < highest:
                self.fail(f"{process.incarnation} obeys epoch {topic.epoch} of {name} after epoch {highest}")
            self.obeyed[process.incarnation, name] = topic.epoch

    def _forget_what_is_misnamed(self, process: Process, keys: set[TopicPartition]) -> None:
        """ZooKeeper was restored to the id of an earlier topic, so what a process reads of the present one counts as
        that topic's, and is not committed: it comes again."""
        topics = process.agent._ownership.topics
        for name, number in keys:
            source = topics[name].source if name in topics else None
            record = process.processed.get((name, number))
            named = source is None or self.world.kafka.is_the_topic(name, source)
            if record is not None and not named and self.done.get(record, (None,))[0] is process:
                del self.done[record]

    def _stays_live(self, standing: Mapping[str, tuple[HostAgent, Service]]) -> None:
        for consumer, (incarnation, passed) in self.registered.items():
            if consumer not in standing:
                continue
            agent, service = standing[consumer]
            old_news = agent.failed or agent.known is not None or service.unchecked
            gone = service.incarnation != incarnation and not service.passing and not old_news
            if gone and passed and not self.world.process(incarnation).has_left:
                self.fail(f"{consumer} seems gone, because {service.incarnation} replaces {incarnation}")
        self.registered = {
            c: (
                service.incarnation,
                service.passing and not service.maintenance and not agent.failed and agent.known is None,
            )
            for c, (agent, service) in standing.items()
        }

    def _reconcile(self) -> None:
        for name, key in list(self.estranged):
            process = self.world.process(name)
            others = [p for p in self.world.processes if p is not process and p.alive and key in p.held]
            if self.world.zookeeper.owner(*key) == process.id and self.in_contact(process) and not others:
                self.estranged.discard((name, key))

    # -- nothing stands still unnamed -------------------------------------------------------------------------

    def _names_what_stands(self) -> None:
        world, now = self.world, self.world.now
        topics = {t: s for t in world.kafka.topics if (s := world.zookeeper.snapshot(t)) is not None}
        partitions = {t: s.partitions & world.kafka.topics[t] for t, s in topics.items()}
        groups = {t: s.assignment.group_id for t, s in topics.items() if s.assignment is not None}
        tps = [(t, p) for t, found in partitions.items() for p in found]
        before, self.stands = self.stands, {}
        for tp in tps:
            if tp[0] not in world.kafka.small:
                record = world.kafka.record(tp, groups.get(tp[0], ""))
                there = world.kafka.committed.get(record)
                known = before.get(tp)
                same = known is not None and known[:2] == (record, there)
                self.stands[tp] = known if known is not None and same else (record, there, now)
        self.looked = progress.look(self.looked, tps, world.kafka.offsets(partitions, groups), now)
        if any(now - since > STUCK_AFTER + 1 for _, _, since in self.stands.values()):
            self._look_at_names(self._situation(topics))

    def _situation(self, topics: Mapping[str, TopicSnapshot]) -> Situation:
        """What one sees that reaches all servers; what is out of reach, it says."""
        doubt, membership, overrides = "", Membership({}), NO_OVERRIDES
        consul = self.world.consul
        discovery = SimulatedConsul(Api(consul, host=ELSEWHERE))
        empty, consul.empty = consul.empty, 0  # that is for whom it is meant
        try:
            members, overrides = discovery.catalog.members(), discovery.overrides.read()
            membership, doubt = members.membership or membership, members.doubt
        except ConsulError as error:
            doubt = str(error)
        finally:
            consul.empty = empty
        answers = {c: self.world.present_answer(there) for c, there in membership.live.items()}
        replies = Replies(
            {c: answer for c, answer in answers.items() if isinstance(answer, ConsumerStatus)},
            {c: answer.reason for c, answer in answers.items() if isinstance(answer, StatusFailure)},
        )
        return Situation(
            topics, membership, replies, self.world.now, STUCK_AFTER, overrides, self.looked, doubt
        )

    def _look_at_names(self, situation: Situation) -> None:
        waiting = held_up(situation)
        asked = stuck(situation, waiting)
        for tp, (record, _, since) in self.stands.items():
            if self.world.now - since <= STUCK_AFTER + 1:
                continue
            topic, partition = tp
            found = [
                w
                for w in waiting.get(topic, [])
                if w.since is not None and w.why and partition in w.partitions
            ]
            if not found:
                self.fail(f"{tp} has not moved since {since - 1_000_000:.1f}, and nothing names it")
            scopes = ("all", f"topics/{topic}", f"partitions/{topic}/{partition}")
            paused = any(f"muster/c/consumption/{scope}" in self.world.consul.keys for scope in scopes)
            decided = paused or (self.world.zookeeper.owner(*tp) is None and self.world.kept_from_all(topic))
            decided = decided or self.flow.is_within_its_bound(situation, tp, record, found)
            is_asked = topic in asked and any(w.asked for w in found)
            if not is_asked and not (decided and not situation.doubt):
                self.fail(f"{tp} has not moved since {since - 1_000_000:.1f}, and no person is asked")
            snapshot = situation.snapshots[topic]
            owner = self.world.zookeeper.owner(*tp)
            settled = snapshot.name is State.STABLE and topic not in situation.ahead and not decided
            if settled and owner in situation.replies.failures and all(w.consumer != owner for w in found):
                self.fail(f"{tp} has not moved, its owner {owner} is silent, and {found} name others")

    # -- what runs goes on ------------------------------------------------------------------------------------

    def _keeps_running(self, process: Process, contact: bool) -> None:
        name = process.incarnation
        before = self.was_running.get(name, {})
        topics = process.agent._ownership.topics
        running = {key: (topics[key[0]].zxid, topics[key[0]].source) for key in process.running}
        self.was_running[name] = running
        failed, process.query_failed = process.query_failed, False
        if not contact or failed or process.ending.asked or process.agent._ownership.blocks:
            return
        for key in before.keys() - running.keys():
            if (name, key) in self.estranged or self.world.zookeeper.owner(*key) != process.id:
                continue
            zxid, source = before[key]
            topic = topics[key[0]]
            if key in process.agent._ownership.refused:
                continue  # refused, because one that is estranged has claimed it
            if source is None or topic.source != source or not self.world.kafka.is_the_topic(key[0], source):
                continue  # it is read from another topic, or is to be
            if self.owner_since[key] <= zxid:
                self.fail(f"{key} stays with {name}, but does not run any more")

    # -- offsets ----------------------------------------------------------------------------------------------

    def begins(self, process: Process, key: TopicPartition, offset: int, from_committed: bool) -> None:
        """A batch begins with a partition at `offset`; `from_committed`: that is what was committed."""
        record = process.read[key]
        if from_committed:
            self.uncommitted_since.pop((process.incarnation, record), None)
        since = self.uncommitted_since.get((process.incarnation, record), self.world.now)
        if self.world.now - since > UNCOMMITTED:
            self.fail(f"{process.incarnation} reads on {key}, and has committed nothing since {since:g} s")
        if offset > self.furthest.get(record, 0):
            self._goes_on_behind_a_gap(process, key, offset)
        if self.estranged_now(process, key):
            return
        if from_committed and self.claimed.get(key, (None, False))[0] is not process:
            self.fail(f"{process.incarnation} begins {key}, which it has not claimed")
        if not self.world.kafka.exists(record):
            return  # another topic has the name, and the process has not heard so yet
        last, end = self.done.get(record, (None, 0))
        if offset < end and last is process and (process.incarnation, key) not in self.estranged_once:
            self.fail(f"{process.incarnation} begins {key} at {offset}, but has processed up to {end}")

        self.flow.begins(process, key, offset)

    def _goes_on_behind_a_gap(self, process: Process, key: TopicPartition, offset: int) -> None:
        record = process.read[key]
        if offset != self.world.kafka.begin(record):
            self.fail(f"{process.incarnation} begins {key} at {offset}, but {record} was not read so far")
        lost = self.furthest.get(record, 0) or self.world.kafka.stands(record)
        # Where a person has deleted the offset, only who has read the partition can know how far that was.
        if record in self.vanished and self.done.get(record, (None, 0))[0] is not process:
            lost = 0
        if lost and self.world.data_loss_fails and record not in self.accepted:
            self.fail(f"{process.incarnation} begins {key} behind a gap, which no person has accepted")
        self.accepted.discard(record)
        self.furthest[record] = offset

    def processed(self, process: Process, key: TopicPartition, end: int) -> None:
        record = process.processed[key]
        self.furthest[record] = max(end, self.furthest.get(record, 0))
        self.uncommitted_since.setdefault((process.incarnation, record), self.world.now)
        if not self.estranged_now(process, key):
            self.done[record] = (process, end)

    @staticmethod
    def _cannot_see(process: Process) -> bool:
        """Whether the process cannot look at what the group has."""
        return process.cut_off_from_kafka or process.faults.old_offsets

    def estranged_now(self, process: Process, key: TopicPartition) -> bool:
        """Whether the partition may have been given to others."""
        return (process.incarnation, key) in self.estranged or not self.in_contact(process)

    def _let_go(self, process: Process, key: TopicPartition) -> None:
        batch = process.query.batch
        if batch is not None and key[1] in batch.offsets.get(key[0], {}):
            self.fail(f"{process.incarnation} reports {key} closed while a batch that holds it is under way")
        record = process.processed.get(key)
        if (process.incarnation, key) not in self.estranged_once:
            self.flow.closes(process, key)
        if record is None or record not in self.done:
            return
        if not self.world.kafka.exists(record):
            return  # there is nothing left to commit to
        last, end = self.done[record]
        if last is not process or self.world.kafka.stands(record) >= end:
            return
        if record in self.vanished and self._cannot_see(process):
            del self.done[record]
            return
        if (process.incarnation, key) not in self.estranged_once:
            self.fail(f"{process.incarnation} reports {key} closed, but has not committed up to {end}")
        del self.done[record]  # what an estranged one has not committed comes again, and perhaps to itself

    def read_to(self, record: Record) -> int:
        """How far a partition was read, for whichever group."""
        return max((end for of, end in self.furthest.items() if of[1:] == record[1:]), default=0)

    def deleted(self, key: TopicPartition, record: Record) -> None:
        """A person has deleted a committed offset. The process that holds the partition commits it again; without
        an owner no process knows of it."""
        self.vanished.add(record)
        held = (p for p in self.world.processes if p.alive and key in p.held)
        if all(self.estranged_now(process, key) for process in held):
            self.done.pop(record, None)

    # -- claims and commits -----------------------------------------------------------------------------------

    def refusal(self, process: Process, key: TopicPartition) -> set[str] | None:
        """What was learnt since the process was refused the partition; None if it was not, or has taken it back."""
        return self.refusals.get((process.incarnation, key))

    def claims(self, process: Process, key: TopicPartition, refusal: set[str] | None) -> None:
        """The process has claimed a partition: who had it before is fenced off, or finds the group ahead of it. The
        claim began when `refusal` was what the method of this name returns."""
        if key not in process.held:
            self.fail(f"a claim of {process.incarnation} for {key} lands, which it has reported closed")
        self._learn()
        known = self.refusal(process, key)
        if known is refusal:  # else it was refused while the claim was under way
            self.refusals.pop((process.incarnation, key), None)
            if known is not None and known != _CONFIRMED:
                self.fail(
                    f"{process.incarnation} takes {key} back, which it was refused, and knows no better"
                )
        if process.agent._ownership.held[key].claimed and self.asked[process.incarnation, key] != _CONFIRMED:
            self.fail(
                f"{process.incarnation} claims {key} a second time, and cannot know that it is still its own"
            )
        self.claimed[key] = (process, self.estranged_now(process, key))
        self.flow.takes_up(process, key)

    def calls(self, process: Process, key: TopicPartition) -> None:
        """A commit of the process begins, in which its producer may get stuck."""
        self.asked[process.incarnation, key] = set()

    def refused(self, process: Process, key: TopicPartition, own_doing: bool) -> None:
        """A commit of the process was refused for good. `own_doing`: its producer was replaced while it carried a
        seek back out, or that of a shard was stuck or lost."""
        claimer, estranged = self.claimed[key]
        by_another = claimer is not process and estranged
        if not (own_doing or by_another or self._was_estranged(process, key)):
            self.fail(
                f"{process.incarnation}, in contact, is refused {key}, which {claimer.incarnation} claimed"
            )
        self.refusals[process.incarnation, key] = set()
        # Thrown out by one that should have known better: what it has processed comes again.
        self.estranged_once.add((process.incarnation, key))
        record = process.processed.get(key)
        if record is not None and record in self.done and self.done[record][0] is process:
            del self.done[record]

    def _was_estranged(self, process: Process, key: TopicPartition) -> bool:
        """Whether the process may have lost the partition at some time since it took it up."""
        return (process.incarnation, key) in self.estranged_once or self.estranged_now(process, key)

    def commits(
        self, process: Process | Seeking, key: TopicPartition, record: Record, committed: Committed
    ) -> None:
        """A commit to `record` is about to be made, which Kafka has not refused."""
        self.uncommitted_since.pop((process.incarnation, record), None)
        self.vanished.discard(record)
        before = self.world.kafka.stands(record)
        other = of_another_topic(committed.metadata, record[1])
        sought = self.flow.commits(process, key, record, committed)
        if before and (other or (committed.offset < before and not sought)):
            self.fail(f"{process.incarnation} commits {committed} for {key}, which stood at {before}")
        if not before and not other and committed.offset == self.world.kafka.begin(record):
            # Nothing was committed or read, so it begins at the first record that there is, and loses none.
            self.furthest.setdefault(record, committed.offset)
        processed = process.processed.get(key)
        if processed not in {None, record} and not other:
            what = f"{process.incarnation} commits to {record} what it has read of {processed}"
            self.fail(what)

    def _learn(self) -> None:
        """What can be known again of partitions whose commit was refused, or is under way."""
        for of, owners in ((self.refusals, set[str | None]()), (self.asked, {None})):
            for (name, key), known in of.items():
                process = self.world.process(name)
                service = self.world.consul.newest(process.id)
                if self.world.zookeeper.owner(*key) in {process.id, *owners}:
                    known.add("assigned")
                if service is not None and service.incarnation == name:
                    known.add("registered")

    # -- Consul -----------------------------------------------------------------------------------------------

    def heard(self, process: Process) -> None:
        """The process has just heard what Consul says."""
        if self._passes(process):
            self.taken_up.add(process.incarnation)
        own = self.world.consul.agents[process.host].services.get(process.id)
        key = f"muster/c/isolated/{process.id}"
        isolated = key in self.world.consul.keys or (own is not None and own.maintenance)
        if isolated and not process.ending.asked and "isolated" not in process.agent._ownership.blocks:
            self.fail(f"{process.incarnation} is isolated and hears it, but goes on")

    def registers(self, process: Process) -> None:
        """The process is about to register, or to change its registration."""
        if process.ending.replaced:
            what = f"{process.incarnation} has heard that it was replaced, and registers again"
            self.fail(what)

    def leaves(self, process: Process) -> None:
        """The process is about to deregister."""
        if process.held and not process.query.ended:
            what = f"{process.incarnation} deregisters, holds {sorted(process.held)} and reads on"
            self.fail(what)
        standing = self.world.consul.standing(process.id)
        mine = standing is not None and standing[1].incarnation == process.incarnation
        if not mine or process.is_out_of_time or process.registrar.look_at_predecessors():
            return  # silent ones count as gone, as in a takeover
        for older in self.world.processes:
            if older.id == process.id and older is not process and older.held and self.in_contact(older):
                what = (
                    f"{process.incarnation} deregisters, and {older.incarnation}, which it replaces, reads on"
                )
                self.fail(what)

    # -- writes -----------------------------------------------------------------------------------------------

    def written(
        self, transitions: Sequence[Transition], before: int, writer: CoordinatorProcess | None, read_at: int
    ) -> None:
        """These were written after the write `before` by `writer`, None if it waits for them no more, which began its
        last reading of Consul at the moment `read_at`."""
        owners = any(
            t.assignment.owners != t.before.assignment.owners for t in transitions if t.before.assignment
        )
        if owners and writer is not None and not writer.discovery.catalog.trusted:
            self.fail(f"{writer.name} writes, but its last reading of Consul failed or is in doubt")
        for transition in transitions:
            self._check_write(transition, before, read_at)
        for transition in transitions:
            self.world.say(
                f"  written: topic {transition.topic}: {transition.state.state}, epoch "
                f"{transition.assignment.epoch}, owners {dict(sorted(transition.assignment.owners.items()))}, "
                f"toClose {_lists(transition.state.to_close)}, toStart {_lists(transition.state.to_start)}"
            )

    def removes(self, topic: str, partitions: frozenset[int], writer: CoordinatorProcess) -> None:
        """These partitions were removed."""
        known = writer.store.seen.get(topic, frozenset())
        if unknown := partitions & (writer.lister.listed.get(topic, frozenset()) | (partitions - known)):
            self.fail(f"{writer.name} removes {topic} {sorted(unknown)}, and cannot know that they vanished")

    def removes_topic(self, snapshot: TopicSnapshot) -> None:
        """All nodes of a topic were removed by a coordinator."""
        topic = snapshot.topic
        held = [p.incarnation for p in self.world.processes if self.in_contact(p) and topic in _topics(p)]
        if held:
            self.fail(f"topic {topic} is removed, but {held} hold partitions of it")

    def _check_warm_ups(self, topic: str, after: TopicAssignment) -> None:
        for partition, consumer in after.warm_ups.items():
            if topic not in self.world.state:
                self.fail(f"{topic, partition}: {consumer} warms up, and there is no state")
            if after.owners.get(partition) == consumer:
                self.fail(f"{topic, partition}: its owner warms up for it, too")

    def _check_write(self, transition: Transition, last: int, read_at: int) -> None:
        topic, zookeeper = transition.topic, self.world.zookeeper
        stood = zookeeper.snapshot(topic, last)
        assert stood is not None and stood.assignment is not None
        before, after = stood.assignment, transition.assignment
        to_close = by_partition(transition.state.to_close)
        to_start = by_partition(transition.state.to_start)
        highest = max(before.epoch, self.epochs.get(topic, 0))
        changes = after.owners != before.owners or before.topic_id not in {"", after.topic_id}
        if after.epoch < highest or (after.epoch == highest and (changes or before.epoch < highest)):
            self.fail(
                f"topic {topic}: epoch {after.epoch} is built on {before.epoch}, and there is {highest}"
            )
        self.epochs[topic] = after.epoch
        for partition, standbys in after.standbys.items():
            if after.owners.get(partition) in standbys:
                self.fail(f"{topic, partition}: its owner stands by for it, too")
        self._check_warm_ups(topic, after)
        for partition in before.owners.keys() | after.owners.keys():
            old, new = before.owners.get(partition), after.owners.get(partition)
            if old == new:
                continue
            key = (topic, partition)
            self.owner_since[key] = zookeeper.written(topic)
            if transition.before.state is None or after.epoch > before.epoch + 1:
                # The nodes do not say who holds it, so consumers were asked.
                self._must_be_held(key, new, read_at)
                continue
            if new is not None:
                self._may_be_given(key, new, read_at)
            if old is None:
                continue
            if new is not None:
                self.fail(f"{key} goes from {old} to {new} in one write")
            if to_close.get(partition) != old:
                self.fail(f"{key} is taken from {old}, and that it has to close it is forgotten")
            self._may_be_taken(transition, key, old, to_start.get(partition), read_at)

    def _must_be_held(self, key: TopicPartition, new: str | None, read_at: int) -> None:
        others = [
            p.incarnation
            for p in self.world.processes
            if key in p.held and p.id != new and self._was_there(p, read_at)
        ]
        if new is not None and any(self.in_contact(self.world.process(other)) for other in others):
            self.fail(f"{key} is given to {new}, while {others} hold it")

    def _was_there(self, process: Process, read_at: int) -> bool:
        """Whether the coordinator could ask it: it was live when Consul was read, or is waited for."""
        since = self.live_since.get(process.id)
        return process.incarnation in self.lost_since if since is None else since <= read_at

    def _may_be_given(self, key: TopicPartition, new: str, read_at: int) -> None:
        leaves = self.leaving_since.get(new, read_at) < read_at
        since = self.live_since
        others = [
            c
            for c in since.keys() - self.leaving_since.keys() - {new}
            if since[c] < read_at and self.world.may_read(c, key[0])
        ]
        if leaves and others:
            self.fail(f"{key} is given to {new}, which is leaving, though {others} are there")

    def _may_be_taken(
        self, transition: Transition, key: TopicPartition, old: str, target: str | None, read_at: int
    ) -> None:
        if key[1] not in transition.before.partitions:
            return  # it vanished from Kafka
        if target is None:
            self.fail(f"{key} is taken from {old} and given to no other, though it has not vanished")
        if self.live_since.get(old, read_at) >= read_at:
            return
        if target == old:
            self.fail(f"{key} is taken from {old} only to be given back")
        if transition.before.name in {State.STARTING, State.CLOSING}:
            self.fail(f"{key} is taken from {old}, which is live, in the middle of a rebalance")
        self.world.saw.add(MOVES)


def _topics(process: Process) -> set[str]:
    return {topic for topic, _ in process.held}


def _lists(by_consumer: Mapping[str, frozenset[int]]) -> dict[str, list[int]]:
    return {consumer: sorted(partitions) for consumer, partitions in by_consumer.items()}
