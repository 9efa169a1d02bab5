"""What all threads of a consumer share: its ownership, its problems, its counters, behind one lock.

The agent decides nothing that `muster.core.ownership` does not decide. It serialises the events, wakes threads that
wait for a change, and remembers what people want to see.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from muster.consumer.measures import STALLED_AFTER, Counters, Measures, PartitionView, words
from muster.consumer.stateless import Stateless
from muster.core.apart import Apart
from muster.core.failures import Failures
from muster.core.model import (
    FailingRecord,
    Loss,
    OffsetRange,
    PastFailure,
    Seek,
    ShardState,
    TopicAssignment,
    TopicPartition,
    TopicStatus,
)
from muster.core.overrides import StandingAnswer
from muster.core.ownership import (
    HELD_BACK,
    LONGEST_RENEWAL,
    BatchPlan,
    Due,
    Offer,
    Ownership,
    PassOver,
    Place,
    PlanRefusedError,
    Source,
    Topic,
    TopicOffer,
)
from muster.core.parking import Answer, OnPoison, Parked, Parking
from muster.core.poison import Poison
from muster.core.positions import OFFSET_PROBLEM, Committed, Jump, Note
from muster.core.refusals import Refusal, Refusals
from muster.core.turns import Failure, Suspect, Turns
from muster.core.unread import RETRY, Kind, ReadFailure, Unread
from muster.sinks.batch import NO_REPORT, Rejected, SinkReport

log = logging.getLogger(__name__)

STOPPING = "stopping"
"""The reason of a block that is never taken back: the process ends."""
TAKING_OVER = "taking over"
"""The reason of a block while another process may still hold what is assigned to this id. No topic is reported
meanwhile, so that 'closed' is not read from it."""
HANDLER = "handler"
"""The key of the problem that the handler fails."""
UNCOMMITTED = "uncommitted"
"""The key of the problem that partitions are held back."""
UNREAD = "unread "
"""What the keys of the problems begin with that partitions cannot be read."""
DOUBTED = "doubted "
"""What the keys of the problems begin with that partitions are read apart."""
DEATHS_ALONE = 2
"""Times that a record kills a process of Spark's alone, after which a person is asked."""
RESTART_AFTER = 10
"""After so many failures in a row the query is started again, should that be at fault."""
LOG_AGAIN = 60.0
"""Seconds until a problem that lasts is logged again, if its message is another one by then."""

SHOWN_FOR = 600.0
"""Seconds for which it is shown that another program has set a committed offset."""

_SHOWN = 5
"""So many partitions are named at most."""

_T = TypeVar("_T")


class StaleTokenError(PermissionError):
    """The caller belongs to a query that ended, or is none of ours."""


@dataclass(frozen=True, slots=True)
class AgentSnapshot:
    """The agent at one moment, for status page and metrics; see `muster.consumer.measures` for what is measured."""

    topics: Mapping[str, TopicStatus]
    sources: Mapping[str, Source]
    held: Mapping[TopicPartition, PartitionView]
    problems: Mapping[str, str]
    refusals: Mapping[TopicPartition, Refusal]
    failing: Mapping[TopicPartition, FailingRecord]
    batch_seconds: float
    """For how long the handler has been at work on the batch under way; 0 without one."""
    in_batch: frozenset[TopicPartition]
    """The partitions with records in that batch, if it has taken for longer than `STALLED_AFTER`."""
    unread: Mapping[TopicPartition, ReadFailure]
    """The partitions that cannot be read, with the reasons."""
    losses: Mapping[TopicPartition, tuple[Loss, ...]]
    left_out: Mapping[TopicPartition, tuple[Loss, ...]]
    rebuilds: Mapping[TopicPartition, int]
    """The numbers of the partitions that were rebuilt."""
    shards: Mapping[TopicPartition, ShardState]
    """The state by key of the partitions that are held."""
    blocks: frozenset[str]
    query_running: bool
    counters: Counters


@dataclass
class Agent:
    """The consumer `owner` as its threads see it. All methods are thread-safe and none blocks on I/O.

    `fencing` and `announces` are those of `Ownership`. `clock` is monotonic, in seconds. What needs the
    ownership alone goes straight to it: `locked` reads it, `change` changes it, and `wait_for` waits for a change of
    it.

    Some things may be done only once ZooKeeper was read again, from a server that does not lag: taking partitions up
    after this consumer could not be relied on (`unblock_once_read`), and taking up again what was refused
    (`refused`). Readings are numbered for that. A caller that needs one gets the number of the next
    (`reading_wanted`); a complete reading that began with that number, or a later one, is what was waited for
    (`has_read`).
    """

    owner: str
    fencing: bool = False
    announces: bool = False
    handler_of: Callable[[str], int] = lambda _topic: 0
    """The number of a topic's handler."""
    states: Stateless = field(default_factory=Stateless)
    """The state by key of the partitions."""
    on_poison: OnPoison = OnPoison.PARK
    fail_on_data_loss: bool = False
    """Whether a partition is parked of which Kafka has no more what is to be read next."""
    max_batch_time: float | None = None
    """Seconds after which a batch that is still in its handler is reported to people; None: never."""
    longest_renewal: float = LONGEST_RENEWAL
    """Seconds after which an offset that stands is committed again at the latest."""
    holder: str = ""
    """The token of this process that is committed with the offsets of what it has; '' for none."""
    clock: Callable[[], float] = time.monotonic
    on_stop: Callable[[str], None] = field(default=log.error, init=False)
    """Is called with the name of the poison record that this consumer is to stop for."""
    wake_reader: threading.Event = field(default_factory=threading.Event, init=False)
    """Is set whenever `reading_wanted` gets something."""
    _ownership: Ownership = field(init=False)
    _poison: Poison = field(init=False)
    _turns: Turns = field(init=False)
    _parking: Parking = field(default_factory=Parking, init=False)
    _failures: Failures = field(default_factory=Failures, init=False)
    _apart: Apart = field(init=False)
    _unread: Unread = field(default_factory=Unread, init=False)
    _damaged: dict[TopicPartition, ReadFailure] = field(default_factory=dict, init=False)
    """The records that cannot be read; a partition is parked when it has been read up to its own."""
    _too_large: dict[tuple[TopicPartition, int], str] = field(default_factory=dict, init=False)
    """Why the letters of rejected records could not be written, until a person answers."""
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _problems: dict[str, str] = field(default_factory=dict, init=False)
    _logged: dict[str, float] = field(default_factory=dict, init=False)
    _measures: dict[TopicPartition, Measures] = field(default_factory=dict, init=False)
    """Of what is held."""
    _counters: Counters = field(default_factory=Counters, init=False)
    _foreign: dict[TopicPartition, float] = field(default_factory=dict, init=False)
    """When another program had set the committed offset of a partition."""
    _refusals: Refusals = field(default_factory=Refusals, init=False)
    _doubts: Refusals = field(default_factory=lambda: Refusals(first_pause=0.0), init=False)
    _token: str | None = field(default=None, init=False)
    _query_error: str = field(default="", init=False)
    _handler_error: str = field(default="", init=False)
    _handler_failed: bool = field(default=False, init=False)
    """Whether the handler raised in the last batch of the query."""
    _batch_began: float | None = field(default=None, init=False)
    """When the batch under way began, None without one."""
    _under_way: frozenset[TopicPartition] = field(default=frozenset(), init=False)
    """The partitions with records in the batch that began last."""
    _to_unblock: dict[str, int] = field(default_factory=dict, init=False)
    _wanted: int = field(default=0, init=False)
    _to_check: int | None = field(default=None, init=False)
    _went_back: dict[str, tuple[int, int | None]] = field(default_factory=dict, init=False)
    """For each topic the transaction and epoch of what was older than what is known also after a sync."""

    def __post_init__(self) -> None:
        self._ownership = Ownership(
            self.owner,
            self.fencing,
            self.announces,
            self.longest_renewal,
            self.states.has,
            self.holder if self.fencing else "",
        )
        self._poison = Poison(self.handler_of)
        self._turns = self._poison.turns
        self._apart = Apart(self._ownership, self._turns)

    @contextmanager
    def locked(self) -> Iterator[Ownership]:
        """Give the ownership to read, or to change in a way that no thread waits for."""
        with self._changed:
            yield self._ownership

    @contextmanager
    def change(self) -> Iterator[Ownership]:
        """Give the ownership to change, and wake threads that wait for a change of it afterwards."""
        with self._changed:
            try:
                yield self._ownership
            finally:
                self._measure_held()
                self._changed.notify_all()

    def wait_for(self, test: Callable[[Ownership], _T], timeout: float) -> _T:
        """Wait up to `timeout` seconds until `test` finds something in the ownership; return what it finds."""
        with self._changed:
            return self._changed.wait_for(lambda: test(self._ownership), timeout)

    # -- from ZooKeeper -----------------------------------------------------------------------------------

    def assigned(self, topic: str, assignment: TopicAssignment, zxid: int, synced: bool = False) -> bool:
        """Take an assignment node as it stands since transaction `zxid`, read after a sync if `synced`.

        Returns whether it is obeyed; one that is older than what is known is not, as a rule.
        """
        with self.change() as own:
            before, known = own.status(topic).get(topic), own.topics.get(topic, Topic()).zxid
            if not own.read(topic, assignment, zxid, synced):
                self._refuse_assignment(topic, zxid, assignment.epoch, synced)
                return False
            if zxid < known:
                log.warning(
                    "topic %r: its assignment went back to transaction %d in ZooKeeper, which was restored from a "
                    "backup; epoch %d is obeyed",
                    *(topic, zxid, assignment.epoch),
                )
            self._went_back.pop(topic, None)
            self.problem(_restored(topic), None)
            after = own.status(topic)[topic]
            others = {p for p, consumer in assignment.owners.items() if consumer != self.owner}
            taken = before.held & others if before is not None and before.epoch != after.epoch else None
            if taken and not self.fencing:
                log.warning(
                    "topic %r, partitions %s: given to other consumers while they are held here; what is not "
                    "committed by now is not committed any more, they begin at what was committed before",
                    topic,
                    sorted(taken),
                )
            if before != after:
                log.info(
                    "topic %r: epoch %s: running %s, starting %s, closing %s, standing by for %s",
                    topic,
                    after.epoch,
                    sorted(after.running),
                    sorted(after.starting),
                    sorted(after.closing),
                    sorted(after.standby),
                )
            return True

    def _refuse_assignment(self, topic: str, zxid: int, epoch: int, synced: bool) -> None:
        """Say that an assignment is not obeyed. Where a server that lags behind is the likely reason, everything is
        read again after a sync, once."""
        if not synced:
            self._look_into(topic, zxid, epoch)
            return
        known = self._ownership.topics[topic].epoch
        self._went_back[topic] = (zxid, epoch)
        self.problem(
            _restored(topic),
            f"its assignment in ZooKeeper went back to epoch {epoch} (transaction {zxid}), from epoch {known}, also "
            "after a sync: ZooKeeper was restored from a backup. This consumer keeps what it has until the "
            f"coordinator, which sees epoch {known} in its status, has planned again; if it does not, look at the "
            "coordinator's last run",
        )

    def _look_into(self, topic: str, zxid: int, epoch: int | None) -> None:
        if self._to_check is None and self._went_back.get(topic) != (zxid, epoch):
            log.warning("topic %r: ignored what is older than the assignment known; reading again", topic)
            self._to_check = self._want_reading()

    def listed(self, topics: Iterable[str], zxid: int, synced: bool = False) -> None:
        """Take the list of topics as it stands since transaction `zxid`, read after a sync if `synced`."""
        with self.change() as own:
            present = set(topics)
            for topic in own.keep_only(present, zxid):
                log.info("topic %r: its assignment node is gone; closing", topic)
                self._problems.pop(f"topic {topic}", None)
                self._went_back.pop(topic, None)
                self.problem(_restored(topic), None)
                self.problem(_identity(topic), None)
            for topic in own.missing(present, zxid):
                if not synced:
                    self._look_into(topic, zxid, None)
                    continue
                self._went_back[topic] = (zxid, None)
                self.problem(
                    _restored(topic),
                    "its assignment node is not in ZooKeeper any more, which went back to an earlier transaction: it "
                    "was restored from a backup. This consumer keeps what it has until the coordinator has planned "
                    "the topic again; if it does not, look at the coordinator's last run",
                )

    def reading_wanted(self) -> int | None:
        """Return the number of the newest reading that something waits for, None if nothing waits."""
        with self._changed:
            read_for = self._refusals.to_be_read or self._doubts.to_be_read
            return self._wanted if self._to_unblock or read_for or self._to_check is not None else None

    def has_read(self, number: int, unread: Collection[str] = ()) -> None:
        """Take note that a complete reading has ended, after a sync, that began when `reading_wanted` was `number`.

        Of the topics `unread` it does not know the present assignment, nor of those that went back in ZooKeeper. What
        was read of them before counts no longer, where nothing may be taken up by it.
        """
        with self.change() as own:
            unread = {*unread, *self._went_back}
            if self._to_check is not None and self._to_check <= number:
                self._to_check = None
            due = [reason for reason, wanted in self._to_unblock.items() if wanted <= number]
            if due:
                own.forget_assigned(unread)
            for reason in due:
                self.unblock(reason)
            for each in (self._refusals, self._doubts):
                each.was_read(number, unread)
            self._allow_ready()

    def _want_reading(self) -> int:
        self._wanted += 1
        self.wake_reader.set()
        return self._wanted

    # -- from discovery and the process's own end ---------------------------------------------------------

    def block(self, reason: str) -> None:
        """Close everything, because of `reason`, and take nothing up until it is taken back."""
        with self.change() as own:
            self._to_unblock.pop(reason, None)
            if reason not in own.blocks:
                log.info("%s: closing all partitions", reason)
                own.block(reason)

    def unblock(self, reason: str) -> None:
        """Take back `reason`; without another one, take up what is assigned."""
        with self.change() as own:
            self._to_unblock.pop(reason, None)
            if reason in own.blocks:
                log.info("no longer %s", reason)
                own.unblock(reason)

    def unblock_once_read(self, reason: str) -> None:
        """Take back `reason` after everything has been read from ZooKeeper again, from a server that does not lag.

        What was read before does not count: while this consumer could not be relied on, its partitions may have been
        given to others.
        """
        with self._changed:
            if reason in self._ownership.blocks and reason not in self._to_unblock:
                self._to_unblock[reason] = self._want_reading()

    def wait_closed(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until nothing is held; return whether that is so."""
        return self.wait_for(lambda own: own.closed, timeout)

    # -- from Spark ---------------------------------------------------------------------------------------

    def query_started(self) -> str:
        """Begin a query; return the token that its planner has to show."""
        with self.change() as own:
            self._token = secrets.token_urlsafe(32)
            self._handler_failed = False
            own.query.start()
            return self._token

    def query_ended(self, failed: bool, error: str = "") -> None:
        """End the query, because of `error` if it failed. Waits for a handler that is still at work, whose outcome
        counts."""
        with self.change() as own:
            self._token = None
            self._changed.wait_for(lambda: self.idle)
            own.query_ended()
            self._problems.pop("source", None)
            self._counters.query_failures += failed
            if not self._handler_failed:
                self._counters.failures_in_a_row += failed
            self._query_error = error or self._query_error

    def check_token(self, token: str) -> None:
        """Raise `StaleTokenError` unless `token` is that of the running query."""
        with self._changed:
            if self._token is None or not secrets.compare_digest(token.encode(), self._token.encode()):
                raise StaleTokenError("the token is not that of the running query")

    def offer(self, token: str) -> Offer:
        """Return what the next batch may hold. Raises `StaleTokenError` or `PlanRefusedError`."""
        with self.change() as own:
            self.check_token(token)
            return own.offer()

    def nearby(self) -> dict[str, TopicOffer]:
        """Return what the query can warm up with, see `Ownership.nearby`."""
        with self._changed:
            return self._ownership.nearby()

    def turn(self, ready: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return whose turn it is, of those that may be read now; see `Turns.next`. What is parked has none, and what
        was parked when the planner was made an offer."""
        with self._changed:
            held = self._ownership.held
            may = {tp for tp in ready if tp not in held or held[tp].passed is None}
            now = self.clock()
            not_read = self._ownership.not_read(now)
            held_back = {tp: "" for tp, why in not_read.items() if why == HELD_BACK}
            self.problem(
                UNCOMMITTED,
                f"{_list(held_back)}: {HELD_BACK}; nothing more is read until it has answered"
                if held_back
                else None,
            )
            self._park_damaged()
            readable = self._parking.readable(may) - not_read.keys() - self._ownership.uncommitted()
            if again := self._unread.due(readable, now):
                return dict.fromkeys(again)
            turn = self._apart.next(readable - self._unread.all.keys(), now)
            return {
                tp: _least(self._before_damage(tp, most), self.states.most(tp)) for tp, most in turn.items()
            }

    def _begin_apart(self, begun: Iterable[TopicPartition], ends: Mapping[TopicPartition, int]) -> None:
        """Park the partitions that begin with a record that kills the process."""
        for tp, deaths in self._apart.begin(begun, ends).items():
            if tp not in self._parking.all:
                error = f"the process died {deaths.count} times at it, the last two with it alone"
                self._parking.park(tp, Parked(deaths.at, error, DEATHS_ALONE, time.time()))
                self.problem(_parked(tp), _waits(tp, deaths.at, error))

    def _follow_doubts(self, caught_up: Collection[TopicPartition] = ()) -> None:
        parked = self._parking.all.keys()
        self._apart.follow(parked, caught_up)
        words = {_doubted(tp): text for tp, text in self._apart.words(parked).items()}
        for key in [key for key in self._problems if key.startswith(DOUBTED) and key not in words]:
            self.problem(key, None)
        for key, text in words.items():
            self.problem(key, text)

    def due_state(self, idle: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions without records, of those, of which something of their state is due: of one handler's
        topics."""
        due = self.states.due() & set(idle)
        with self._changed:
            due -= self._ownership.not_read(self.clock()).keys() | self._ownership.uncommitted()
            due -= self._parking.all.keys()
            of = self.handler_of(min(due)[0]) if due else 0
            return frozenset(tp for tp in due if self.handler_of(tp[0]) == of)

    def _park_damaged(self) -> None:
        """Park what stands before a damaged record; forget those that a partition has left behind."""
        held = self._ownership.held
        for tp, failure in list(self._damaged.items()):
            at = held[tp].planned if tp in held else None
            if at is None or at > failure.offset:
                del self._damaged[tp]
            elif at == failure.offset and tp not in self._parking.all:
                self._parking.park(tp, Parked(failure.offset, str(failure), 1, time.time()))
                self.problem(
                    _parked(tp),
                    f"{failure}; the partition is parked at offset {failure.offset} until a person answers",
                )

    def _before_damage(self, tp: TopicPartition, most: int | None) -> int | None:
        failure, held = self._damaged.get(tp), self._ownership.held.get(tp)
        if failure is None or held is None or held.planned is None:
            return most
        left = failure.offset - held.planned
        return left if most is None else min(most, left)

    def planned(
        self,
        token: str,
        asked: int,
        finished: Mapping[str, Mapping[int, OffsetRange]],
        offsets: Mapping[str, Mapping[int, OffsetRange]],
        ends: Mapping[TopicPartition, int],
        problems: Iterable[str],
        jumps: Mapping[TopicPartition, Jump] | None = None,
        notes: Mapping[TopicPartition, Note] | None = None,
        sought: Mapping[TopicPartition, Seek] | None = None,
        losses: Mapping[TopicPartition, Jump] | None = None,
        due: frozenset[TopicPartition] = frozenset(),
    ) -> int:
        """Take the batch that the planner planned, or that it planned none (`offsets` equal to `finished`, where
        Spark stands). Returns how many records are lost that were not counted before.

        `jumps`, `notes`, `sought` and `due` are as in `Ownership.planned`. `losses` are jumps that are not made,
        because a person is to decide: their partitions are parked.

        Raises `StaleTokenError`, or `PlanRefusedError` if Spark does not stand where the agent saw it get to.
        """
        with self.change() as own:
            self.check_token(token)
            if finished != own.query.stands_at:
                raise PlanRefusedError(
                    f"Spark begins at {finished}, but the last batch that was processed ended at "
                    f"{own.query.stands_at}; the query has to be restarted"
                )
            self._turns.forget(tp for tp, held in own.held.items() if held.planned is None)
            begin = {
                tp
                for tp, note in (notes or {}).items()
                if note.stopped and tp in own.held and own.held[tp].planned is None
            }
            begun = {tp for tp, held in own.held.items() if held.planned is None}
            own.planned(asked, offsets, jumps, notes, sought, due)
            begun = {tp for tp in begun if tp in own.held and own.held[tp].planned is not None}
            for topic, partition in sorted(begin):
                self._poison.stop(topic, f"it was stopped when partition {partition} had another owner")
            self._stop(own)
            self._turns.forget(sought or {})
            for tp in sought or {}:
                self._damaged.pop(tp, None)
                if (why := self._parking.all.get(tp)) is not None and why.timer:
                    self._unpark(tp)
                self._counters.left_out.sought(tp, own.held[tp].claim_epoch)
            self._counters.seeks += len(sought or {})
            self._unpark_elsewhere()
            self._park_losses(losses or {}, ends.keys())
            now = self.clock()
            lost = self._count(jumps or {})
            caught_up = set()
            for tp in ends.keys() & self._measures.keys() & own.held.keys():
                measures, position = self._measures[tp], own.held[tp].position
                measures.seen(ends[tp], now)
                if position is not None and position >= ends[tp]:
                    measures.well(now)
                    caught_up.add(tp)
            if self._unread.forget(caught_up):
                self._say_what_is_unread()
            self._begin_apart(begun, ends)
            self._follow_doubts(caught_up)
            if own.held and caught_up | self._parking.all.keys() >= own.held.keys():
                self._counters.failures_in_a_row = 0
            self.problem("source", "; ".join(problems) or None)
            return lost

    def lost(self, token: str, jumps: Mapping[TopicPartition, Jump]) -> int:
        """Count records that were planned and that Kafka had no more when a task came to read them; return how many
        of them were not counted before.

        Raises `StaleTokenError`.
        """
        with self._changed:
            self.check_token(token)
            return self._count(jumps)

    def _count(self, jumps: Mapping[TopicPartition, Jump]) -> int:
        held = self._ownership.held
        ids = {tp[0]: held[tp].source.topic_id for tp in jumps if tp in held}
        return self._counters.jumped(jumps, ids, time.time())

    def holds(self, size: int) -> None:
        """Take note of how many bytes the executors hold of what they read ahead."""
        with self._changed:
            self._counters.read_ahead_bytes = size

    def received(self, token: str, size: int) -> None:
        """Count `size` bytes of keys, values and headers that tasks have read. Raises `StaleTokenError`."""
        with self._changed:
            self.check_token(token)
            self._counters.read_bytes += size

    def batch_started(self) -> BatchPlan:
        """Return the plan of the batch that Spark hands over. Raises `PlanRefusedError` if it was not planned."""
        with self._changed:
            plan = self._ownership.query.batch()
            self._batch_began, self._under_way = self.clock(), frozenset(plan.filled)
            return plan

    def has_lowest(self, topic: str) -> bool:
        """Tell whether this consumer is assigned the lowest of the topic's partitions."""
        with self._changed:
            known = self._ownership.topics.get(topic)
            return known is not None and min(known.assigned | known.elsewhere, default=-1) in known.assigned

    def may_reject(self, plan: BatchPlan, rejected: Rejected) -> str:
        """Return why the handler may not reject these records of the batch that it has, '' if it may."""
        if not self.fencing:
            return (
                "the cluster has 'fencing: false', and a dead letter is written in the transaction that fences its "
                "offset; take that out and restart the consumers"
            )
        with self._changed:
            for tp, offsets in self._with_large_letters(rejected).items():
                return self._too_large[tp, offsets[0]]
            return self._poison.may_reject(plan.filled, rejected, self.clock())

    def _with_large_letters(self, rejected: Rejected) -> dict[TopicPartition, list[int]]:
        """Return those whose letters are too large for their topic; only partitions that have some."""
        found = {
            tp: [at for at in offsets if (tp, at) in self._too_large] for tp, offsets in rejected.items()
        }
        return {tp: offsets for tp, offsets in found.items() if offsets}

    def batch_done(
        self,
        plan: BatchPlan,
        failure: Failure | None,
        rejected: Rejected = MappingProxyType({}),
        sinks: SinkReport = NO_REPORT,
    ) -> bool:
        """Take note that the handler is done with a batch: with a failure if it raised, None if it did not.
        `rejected` are the records that it rejected; if that was refused, which is the failure, their partitions stop
        before the first of them. `sinks` is what its sinks report of a batch that passed, or notice in any.

        Returns whether so much has failed in a row that the query should be started again.
        """
        with self.change() as own:
            now, counters, at = self.clock(), self._counters, time.time()
            began, self._batch_began = self._batch_began, None
            ranges = plan.filled
            self._apart.tried(ranges)
            for text in sinks.notices:
                counters.left_out.notice(text, at)
            if failure is not None:
                self.problem("sink", counters.left_out.words(at) or None)
                own.failed(plan)
                counters.left_out.failed(ranges)
                alone = self._fails_alone(ranges) and own.held.keys() - self._turns.suspects.keys()
                if rejected:
                    self._stop(own)
                    self._stop_before(rejected, ranges, now, failure)
                elif ranges:
                    self._poison.failed(ranges, now, failure)
                    self._note_failure(ranges, failure, at)
                    self._judge(ranges, now)
                counters.handler_failures += 1
                self._handler_error, self._handler_failed = failure.text, True
                self._say_who_is_suspect()
                if alone or rejected:
                    return False  # known already, and no fault of the others, which may just have nothing to read
                counters.failures_in_a_row += 1
                self._query_error = failure.text
                return counters.failures_in_a_row % RESTART_AFTER == 0
            self._handler_failed = False
            for tp in ranges.keys() & own.held.keys():
                counters.left_out.passed(tp, own.held[tp].claim_epoch, ranges[tp], sinks.left_out, at)
                if tp in self._measures:
                    self._measures[tp].reported(
                        {name: of[tp] for name, of in sinks.stored.items() if tp in of}, at
                    )
            self.problem("sink", counters.left_out.words(at) or None)
            own.processed(plan, now, self._with_letters(rejected, at))
            self._follow_doubts()
            for tp in ranges.keys() & self._measures.keys():
                self._measures[tp].well(now)
            if self._unread.forget(ranges):
                self._say_what_is_unread()
            if ranges:
                self._poison.passed(ranges, now, rejected)
                counters.failures_in_a_row = 0
            self._turns.moved({tp: end for tp, (_, end) in plan.ranges.items()}, now)
            self._say_who_is_suspect()
            counters.batches += 1
            counters.records += sum(end - begin for begin, end in ranges.values())
            counters.last_batch_at = time.time()
            counters.batches_took.took(0.0 if began is None else now - began)
            return False

    def _note_failure(
        self, ranges: Mapping[TopicPartition, OffsetRange], failure: Failure, now: float
    ) -> None:
        if self._fails_alone(ranges) and failure.of_record:
            ((tp, (offset, _)),) = ranges.items()
            self._failures.note(tp, offset, failure.text, now)

    def _with_letters(self, rejected: Rejected, now: float) -> Rejected:
        """Return the rejected records that get a letter; a standing answer may have others skipped."""
        letters: dict[TopicPartition, dict[int, str]] = {}
        for tp, errors in rejected.items():
            for offset, error in errors.items():
                self._failures.note(tp, offset, error, now)
                standing = self._poison.unbounded(tp[0], error)
                if standing is None or standing.answer is Answer.DEAD_LETTER:
                    letters.setdefault(tp, {})[offset] = error
                else:
                    self._counters.skipped[tp[0]] = self._counters.skipped.get(tp[0], 0) + 1
        return letters

    def _stop(self, own: Ownership) -> None:
        for topic, why in self._poison.stopped.items():
            own.stop(topic, True)
            self.problem(
                _stopped(topic),
                f"nothing of it is left out until a person answers about one of its records: {why}",
            )

    def _stop_before(
        self, rejected: Rejected, ranges: Mapping[TopicPartition, OffsetRange], now: float, why: Failure
    ) -> None:
        """Read partitions up to the first record that may not be rejected, and park those that stand before it."""
        for tp, offsets in (self._with_large_letters(rejected) or rejected).items():
            begin, first = ranges[tp][0], min(offsets)
            if first > begin:
                self._turns.only(tp, begin, first - begin, now, why)
                continue
            error = f"the handler rejects it: {rejected[tp][first]}; {why.text}"
            self._turns.forget([tp])
            self._parking.park(tp, Parked(first, error, 0, time.time(), stopped=True))
            self.problem(_parked(tp), f"{_waits(tp, first, error)}: then the others are rejected again, too")

    def _fails_alone(self, ranges: Mapping[TopicPartition, OffsetRange]) -> bool:
        """Tell whether it is a single record, known to fail."""
        known = self._turns.suspects
        return len(ranges) == 1 and all(
            end - begin == 1 and tp in known and known[tp].failures > 0 for tp, (begin, end) in ranges.items()
        )

    def batch_again(self, plan: BatchPlan) -> None:
        """Have a batch planned again, which changes more of its state than it may: with what `states.most` allows."""
        with self.change() as own:
            self._batch_began = None
            own.failed(plan)

    def batch_unread(self, plan: BatchPlan, failure: ReadFailure) -> None:
        """Take note that a batch could not be read, which is no fault of its records or of the handler. The partition
        is left out of the next batches, with those that fail for the same reason."""
        with self.change() as own:
            self._batch_began = None
            own.failed(plan)
            self._counters.read_failures += 1
            if failure.kind is Kind.CORRUPT:
                self._damaged[failure.tp] = failure
                return
            self._unread.note(self._as_unread(failure), self.clock())
            self._say_what_is_unread()

    def timer_failed(self, plan: BatchPlan, tp: TopicPartition, why: str) -> None:
        """Take note that a batch failed with a timer of a partition's state, which is no fault of its records. The
        partition is parked, and the others go on."""
        with self.change() as own:
            self._batch_began = None
            own.failed(plan)
            self._counters.handler_failures += 1
            if (held := own.held.get(tp)) is None or held.planned is None:
                return
            self._parking.park(tp, Parked(held.planned, why, 0, time.time(), timer=True))
            self.problem(
                _parked(tp),
                f"topic {tp[0]!r}, partition {tp[1]} is parked: {why}. Have the timer dropped with "
                f"'muster skip-record {tp[0]} {tp[1]} {held.planned}', which skips no record, or tried again with "
                "'muster retry-record'",
            )

    def _as_unread(self, failure: ReadFailure) -> dict[TopicPartition, ReadFailure]:
        """Return what is held and cannot be read for the same reason: a right is a whole topic's, say."""
        held = self._ownership.held
        failed = {failure.tp} & held.keys()
        if failure.kind is Kind.RIGHT:
            failed |= {tp for tp in held if tp[0] == failure.tp[0]}
        if failure.kind is Kind.KAFKA and failed:
            place = held[failure.tp].source.place
            failed |= {tp for tp, of in held.items() if of.source.place == place}
        at = {failure.tp: failure.offset}
        return {
            tp: replace(failure, tp=tp, offset=at.get(tp, held[tp].planned or failure.offset))
            for tp in failed
        }

    def _say_what_is_unread(self) -> None:
        """Note what cannot be read: one problem for each topic and reason."""
        reasons: dict[str, list[ReadFailure]] = {}
        for (topic, _), failure in sorted(self._unread.all.items()):
            reasons.setdefault(f"{UNREAD}{topic} ({failure.kind.lower()})", []).append(failure)
        for key in [key for key in self._problems if key.startswith(UNREAD) and key not in reasons]:
            self.problem(key, None)
        for key, failures in reasons.items():
            self.problem(
                key, f"{_unread(failures)}. Tried again every {RETRY:g} s, and the other partitions go on"
            )

    def _judge(self, ranges: Mapping[TopicPartition, OffsetRange], now: float) -> None:
        """Do what `on_poison` says if these are one record, and it is poison."""
        ((tp, _), *_others) = ranges.items()
        if not self._fails_alone(ranges):
            return
        if self._turns.suspects[tp].deaths >= DEATHS_ALONE:
            self._park(tp)
        if self.on_poison is OnPoison.PARK or tp in self._parking.all:
            return
        if not self._poison.gets_letter(tp, now):
            return
        self._park(tp)
        self._counters.poison += 1
        if self.on_poison is OnPoison.STOP:
            self.on_stop(self._problems[_parked(tp)])
            return
        self._poison.letter(tp, now)
        self._pass_over(tp, Answer.DEAD_LETTER, "on_poison")

    def _park(self, tp: TopicPartition) -> None:
        record = self._turns.suspects[tp]
        self._parking.park(tp, Parked(record.offset, record.failure.text, record.failures, time.time()))
        self.problem(_parked(tp), _asks(tp, record))

    def _park_losses(self, losses: Mapping[TopicPartition, Jump], known: Collection[TopicPartition]) -> None:
        """Park what would go on behind records that are lost; read again what would not, as far as Kafka has said."""
        parked = self._parking.losses
        for tp in parked.keys() & known - losses.keys():
            self._unpark(tp)
        for tp, loss in losses.items():
            if (known_one := parked.get(tp)) is not None and known_one.loss == loss:
                continue
            answered = known_one is not None and known_one.answer is not None
            if answered or (known_one is None and tp in self._parking.all):
                continue  # what was decided is under way; or it is parked for a record, which comes first
            self._parking.park(tp, Parked(loss.before, words(loss), 0, time.time(), loss=loss))
            self.problem(
                _parked(tp),
                f"topic {tp[0]!r}, partition {tp[1]}: {words(loss)}. 'failOnDataLoss' is true, so the partition is "
                f"parked at offset {loss.before}. Accept the loss with 'muster skip-record {tp[0]} {tp[1]} "
                f"{loss.before}', or have it look again with 'muster retry-record'",
            )

    def _pass_over(self, tp: TopicPartition, answer: Answer, by: str) -> None:
        """Pass over the record of a partition, unless that is closing, or does not stand before it."""
        with self.change() as own:
            if own.pass_over(tp, PassOver(self._parking.all[tp].offset, answer is Answer.DEAD_LETTER)):
                self._parking.answered(tp, answer, by, self.clock())

    def _unpark(self, tp: TopicPartition) -> None:
        self._parking.free(tp)
        self.problem(_parked(tp), None)

    def _unpark_elsewhere(self) -> None:
        """Read partitions again that are closed, or that go on somewhere else than before their poison record."""
        held = self._ownership.held
        for tp in self._parking.keep(lambda tp, why: tp in held and held[tp].planned in {None, why.offset}):
            self.problem(_parked(tp), None)

    def _say_who_is_suspect(self) -> None:
        """Note what the handler fails with, of what is held and not parked."""
        parked = self._parking.all
        suspects = {tp: suspect for tp, suspect in self._turns.suspects.items() if tp not in parked}
        if not suspects:
            self.problem(HANDLER, None)
            return
        others = len(self._ownership.held) - len(suspects) - len(parked)
        self.problem(
            HANDLER,
            f"the handler failed: {self._handler_error}; it is tried again with "
            f"{_list({tp: _failures(suspect) for tp, suspect in suspects.items()})}, while the other "
            f"{others} partitions go on",
        )

    @property
    def idle(self) -> bool:
        """Whether no handler is at work."""
        with self._changed:
            return self._batch_began is None

    def wait_tried(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until a query has come through its first batch, which is empty as long as
        nothing may be taken up, or has failed; return whether that is so."""
        return self.wait_for(lambda _: bool(self._counters.batches or self._counters.query_failures), timeout)

    # -- from Kafka ---------------------------------------------------------------------------------------

    def wait_for_place(self, known: Collection[Place], timeout: float) -> set[Place]:
        """Wait up to `timeout` seconds until there is something to claim or to commit at a place that is not
        `known`; return the new ones."""
        return self.wait_for(
            lambda own: (own.due(self.clock()).keys() | own.unclaimed().keys()) - set(known), timeout
        )

    def due(self, place: Place, timeout: float = 0.0) -> dict[TopicPartition, Due]:
        """Wait up to `timeout` seconds until offsets are due at `place`; return them."""
        return self.wait_for(lambda own: own.due(self.clock()).get(place, {}), timeout)

    def committed(self, offsets: Mapping[TopicPartition, Due]) -> None:
        """Take note that Kafka acknowledged these offsets."""
        with self.change() as own:
            for tp, due in offsets.items():
                self._count_letters(own, tp, due)
            own.committed(offsets, self.clock())
            self._counters.commits += 1
            for tp, due in offsets.items():
                why, held = self._parking.all.get(tp), own.held.get(tp)
                if why is None or why.answer is None or held is None or held.claim_epoch != due.claim_epoch:
                    continue
                if due.offset == why.offset + 1 and why.loss is None:
                    self._passed_over(tp, why)

    def _count_letters(self, own: Ownership, tp: TopicPartition, due: Due) -> None:
        held = own.held.get(tp)
        if held is None or held.claim_epoch != due.claim_epoch:
            return
        if written := sum(at < due.offset for at in held.rejected):
            counted = self._counters.dead_lettered
            counted[tp[0]] = counted.get(tp[0], 0) + written
            log.warning("topic %r, partition %d: %d rejected record(s) dead-lettered", *tp, written)

    def _passed_over(self, tp: TopicPartition, why: Parked) -> None:
        letter = why.answer is Answer.DEAD_LETTER
        log.warning(
            "topic %r, partition %d: the record at offset %d was %s, by %s; it failed %d times alone: %s",
            *tp,
            why.offset,
            "written to the dead-letter topic" if letter else "skipped",
            why.by,
            why.attempts,
            why.error,
        )
        counted = self._counters.dead_lettered if letter else self._counters.skipped
        counted[tp[0]] = counted.get(tp[0], 0) + 1
        self._poison.passed_over(tp, why.offset + 1, self.clock())
        self._unpark(tp)
        self._say_who_is_suspect()

    def letter_too_large(self, tp: TopicPartition, due: Due, offset: int, why: str) -> None:
        """Have a person asked about the record at `offset`, whose dead letter does not fit its topic.

        If the handler rejected it, its batch counts as not processed, and is read again up to the record.
        """
        if due.letters:
            with self._changed:
                self._too_large[tp, offset] = why
            where = f"topic {tp[0]!r}, partition {tp[1]}"
            self.refused(
                tp,
                due.claim_epoch,
                f"{where}: {why}; it is closed without committing, and read again up to the record at offset "
                f"{offset}, which then waits for a person",
            )
            return
        with self.change() as own:
            if tp in self._parking.all and own.keep(tp, due.claim_epoch, offset):
                self.problem(_parked(tp), _waits(tp, offset, self._parking.taken_back(tp, why).said))

    def letters(self, place: Place, timeout: float = 0.0) -> dict[TopicPartition, Due]:
        """Wait up to `timeout` seconds until dead letters are due at `place`; return the offsets after their
        records."""
        return self.wait_for(lambda own: own.letters().get(place, {}), timeout)

    def commit_tried(self, seconds: float, failed: bool) -> None:
        """Take note that a commit took so long, and whether some of it is to be tried again."""
        with self._changed:
            self._counters.commits_took.took(seconds)
            self._counters.failed_commits += failed

    def identified(self, place: Place, ids: Mapping[str, str], gone: Collection[str]) -> None:
        """Take note that Kafka has the watched topics of `place` under these ids, and not those that are `gone`."""
        with self.change() as own:
            for name in own.watched().get(place, ()):
                own.identify(name, place, ids.get(name, ""), name in gone)
                topic = own.topics[name]
                if topic.source is None or topic.is_at(place):
                    self.problem(_identity(name), self._what_is_wrong_with(name, place))

    def _what_is_wrong_with(self, name: str, place: Place) -> str | None:
        topic = self._ownership.topics[name]
        where = f"Kafka at {place.bootstrap_servers}"
        if topic.gone:
            return (
                f"{where} does not have it any more: its partitions are closed without committing; create it again, "
                "or unsubscribe the cluster from it"
            )
        if topic.recreated and topic.source is not None:
            return (
                f"{where} has it under id {topic.kafka_id}, but its assignment is for id {topic.source.topic_id}: it "
                "was deleted and created again. It is neither read nor committed until the coordinator has put the "
                "new id into the assignment; if that takes longer than some runs, look at the coordinator's last run"
            )
        return None

    def set_by_others(self, found: Mapping[TopicPartition, Committed | None], group_id: str) -> None:
        """Say that another program has set the committed offsets of these partitions, or deleted them (None). What
        this consumer has stands, and is committed again."""
        with self.change() as own:
            for tp, there in sorted(found.items()):
                partition = own.held.get(tp)
                if partition is None:
                    continue
                partition.set_by_others()
                self._counters.foreign_commits += 1
                self._foreign[tp] = self.clock()
                self.problem(
                    _foreign(tp),
                    f"its committed offset was {_what_became(there, group_id)}; this consumer goes on at "
                    f"{partition.stands} and commits that again. To have it go on elsewhere: muster seek {tp[0]} "
                    f"{tp[1]}",
                )

    def refused(self, tp: TopicPartition, claim_epoch: int, why: str) -> None:
        """Close a partition as it stands, because its commit was refused for good. `why` is for people."""
        with self.change() as own:
            if own.refuse(tp, claim_epoch):
                self._counters.refused_commits += 1
                self._refusals.note(tp, why, self.clock(), self._want_reading())
                self.problem(_fenced(tp), why)

    def is_registered(self, asked: float) -> None:
        """Take note that discovery has this very process registered, by a question that began at `asked`, of the
        agent's clock."""
        with self._changed:
            for each in (self._refusals, self._doubts):
                each.registered(asked)
            self._allow_ready()

    @property
    def asks_discovery(self) -> bool:
        """Whether partitions that were refused, or are in doubt, wait for nothing but `is_registered`."""
        with self._changed:
            return any(each.wait_for_discovery(self.clock()) for each in (self._refusals, self._doubts))

    def owns_still(self, tp: TopicPartition, claim_epoch: int, since: float) -> bool | None:
        """Return whether this consumer still owns a partition that it holds under this claim epoch, by ZooKeeper and
        discovery, which have to be asked after `since` (of the agent's clock).

        None while that is not known: they are asked, and so is to be this again.
        """
        with self._changed:
            if not self._ownership.keeps(tp, claim_epoch):
                return False
            doubt = self._doubts.all.get(tp)
            if doubt is None or doubt.at < since:
                self._doubts.note(tp, "", self.clock(), self._want_reading())
                return None
            return True if doubt.over else None

    def _allow_ready(self) -> None:
        self._doubts.take_ready(self.clock())
        for tp in self._refusals.take_ready(self.clock()):
            with self.change() as own:
                own.allow(tp)
            self.problem(_fenced(tp), None)

    # -- for people ---------------------------------------------------------------------------------------

    @property
    def failing(self) -> dict[TopicPartition, FailingRecord]:
        """The records that the handler fails with alone, unless that can be no record's fault."""
        with self._changed:
            now = self.clock()
            asked = self._poison.waiting(now).keys() - self._ownership.not_read(now).keys()
            found = {
                tp: FailingRecord(record.offset, record.failure.text, record.failures, tp in asked)
                for tp, record in self._turns.suspects.items()
                if record.tries
            }
            return found | {
                tp: FailingRecord(
                    *(why.offset, why.said, why.attempts, True, why.answer or "", why.lost, why.timer),
                    decided_for=0.0 if why.answer is None else now - why.decided,
                )
                for tp, why in self._parking.all.items()
            }

    def answered_by(self, tp: TopicPartition) -> str:
        """Tell who decided what becomes of the record of a parked partition, '' if no decision stands."""
        with self._changed:
            why = self._parking.all.get(tp)
            return "" if why is None else why.by

    def answer(self, tp: TopicPartition, offset: int, answer: Answer, by: str) -> bool:
        """Do as a person answered about the record at `offset`; False if the handler does not fail with it now, or if
        it is too late: what becomes of it is under way."""
        with self.change():
            found = self.failing.get(tp)
            if found is None or found.offset != offset or found.answer == answer:
                return False
            if answer is Answer.WAIT:
                self._poison.wait(tp[0], Failure(found.error).kind, self.clock())
                return True
            self._too_large.pop((tp, offset), None)
            if tp in self._damaged and answer is Answer.DEAD_LETTER:
                return False  # it cannot be read
            if found.lost:
                return self._answer_loss(tp, answer, by)
            if found.timer:
                return self._answer_timer(tp, answer, by)
            done = self._try_again(tp, found) if answer is Answer.RETRY else self._leave_out(tp, answer, by)
            if done:
                self._go_on(tp[0])
            self._say_who_is_suspect()
            return done

    def stand(self, standing: Iterable[StandingAnswer]) -> None:
        """Go by these standing answers from now on."""
        with self._changed:
            self._poison.stand(standing)

    def standing_due(self) -> list[tuple[TopicPartition, int, StandingAnswer]]:
        """Return the records that are due a standing answer, with it. Where one stops, a person is asked."""
        with self.change() as own:
            now, found = self.clock(), []
            for tp in self._turns.suspects.keys() - self._parking.all.keys() - own.not_read(now).keys():
                if (one := self._poison.stands(tp, now)) is not None:
                    found.append((tp, self._turns.suspects[tp].offset, one))
            self._stop(own)
            return sorted(found, key=lambda each: each[:2])

    def answer_standing(self, tp: TopicPartition, offset: int, one: StandingAnswer) -> bool:
        """Do as a standing answer says about the record at `offset`; False as for `answer`."""
        with self.change():
            found = self.failing.get(tp)
            if found is None or found.offset != offset or found.answer:
                return False
            if one.answer is Answer.RETRY:
                self._poison.retried(tp)
                return True
            if not self._leave_out(tp, one.answer, f"the standing answer of {one.by} ({one.why})"):
                return False
            self._poison.stood(tp, self.clock())
            self._say_who_is_suspect()
            return True

    def failures(self, topic: str) -> tuple[PastFailure, ...]:
        """Return the records of a topic that failed within the last hour."""
        with self._changed:
            return self._failures.of(topic, time.time())

    def _go_on(self, topic: str) -> None:
        """Have what had stopped of a topic go on, because a person has answered."""
        self._poison.answered(topic)
        self._ownership.stop(topic, False)
        self.problem(_stopped(topic), None)
        for tp, why in self._parking.all.items():
            if tp[0] == topic and why.stopped and why.answer is None:
                self._unpark(tp)

    def _try_again(self, tp: TopicPartition, record: FailingRecord) -> bool:
        if record.answer:
            return False
        self._damaged.pop(tp, None)
        if tp in (doubts := self._ownership.in_doubt()):
            self._ownership.held[tp].doubt(doubts[tp].alone_again())
        self._turns.again(tp, self.clock())
        self._unpark(tp)
        return True

    def _leave_out(self, tp: TopicPartition, answer: Answer, by: str) -> bool:
        if tp not in self._parking.all:
            if self._batch_began is not None and tp in self._under_way:
                return False  # it may be with the handler
            self._park(tp)
        self._pass_over(tp, answer, by)
        return self._parking.all[tp].answer is answer

    def _answer_loss(self, tp: TopicPartition, answer: Answer, by: str) -> bool:
        if answer is Answer.DEAD_LETTER or self._parking.all[tp].answer is not None:
            return False
        if answer is Answer.RETRY:
            self._unpark(tp)
        else:
            self._parking.answered(tp, answer, by, self.clock())
        return True

    def _answer_timer(self, tp: TopicPartition, answer: Answer, by: str) -> bool:
        if answer is Answer.DEAD_LETTER:
            return False
        if answer is Answer.SKIP:
            log.warning(
                "topic %r, partition %d: %s; it is dropped, by %s", *tp, self._parking.all[tp].error, by
            )
            self.states.drop_timer(tp)
        self._unpark(tp)
        return True

    def accepts(self, tp: TopicPartition, jump: Jump) -> bool:
        """Tell whether a partition may go on elsewhere: with `fail_on_data_loss` behind records that are lost only
        once a person has accepted that."""
        why = self.losses.get(tp)
        return not (self.fail_on_data_loss and jump.loses) or (why is not None and why.answer is not None)

    @property
    def losses(self) -> dict[TopicPartition, Parked]:
        """The partitions that are parked because records are lost."""
        with self._changed:
            return self._parking.losses

    @property
    def query_failures(self) -> tuple[int, str]:
        """How many times in a row handler or query failed without a batch coming through, and why the last time."""
        with self._changed:
            return self._counters.failures_in_a_row, self._query_error

    def problem(self, key: str, message: str | None) -> None:
        """Note what is wrong with `key` now; None when all is well again. Changes are logged."""
        with self._changed:
            if message is None:
                if self._problems.pop(key, None) is not None:
                    log.info("%s: all is well again", key)
                return
            now = self.clock()
            changed = self._problems.get(key) != message and now - self._logged.get(key, 0.0) > LOG_AGAIN
            if key not in self._problems or changed:
                log.warning("%s: %s", key, message)
                self._logged[key] = now
            self._problems[key] = message

    def view(self) -> AgentSnapshot:
        """Return everything at one moment."""
        with self._changed:
            self._measure_held()
            own, now = self._ownership, self.clock()
            took = 0.0 if self._batch_began is None else now - self._batch_began
            return AgentSnapshot(
                topics={} if TAKING_OVER in own.blocks else own.status(),
                sources={
                    name: topic.source for name, topic in own.topics.items() if topic.source is not None
                },
                held={
                    tp: self._measures[tp].view(partition.position, partition.committed, now)
                    for tp, partition in sorted(own.held.items())
                },
                problems=dict(self._problems),
                refusals=dict(self._refusals.all),
                failing=self.failing,
                batch_seconds=took,
                in_batch=self._under_way if took > STALLED_AFTER else frozenset(),
                unread=self._unread.all,
                losses=self._counters.losses.whole(time.time()),
                left_out=self._counters.left_out.losses.whole(time.time()),
                rebuilds={tp: p.note.rebuild for tp, p in own.held.items() if p.note.rebuild},
                shards={tp: shard for tp, shard in self.states.status().items() if tp in own.held},
                blocks=frozenset(own.blocks),
                query_running=self._token is not None,
                counters=deepcopy(self._counters),
            )

    def _measure_held(self) -> None:
        """Measure what is held, and nothing else."""
        now, held = self.clock(), self._ownership.held
        self._measures = {tp: self._measures.get(tp) or Measures() for tp in held}
        for tp in [tp for tp, at in self._foreign.items() if tp not in held or now - at > SHOWN_FOR]:
            del self._foreign[tp]
            self.problem(_foreign(tp), None)
        for tp, partition in held.items():
            self._measures[tp].held(partition.closing, now)
            if partition.paused_after is not None:
                self._measures[tp].well(now)
        self._unpark_elsewhere()
        for topic in self._poison.stopped.keys() - {tp[0] for tp in held}:
            self.problem(_stopped(topic), None)
        if self._unread.forget(self._unread.all.keys() - held.keys()):
            self._say_what_is_unread()
        if gone := self._turns.suspects.keys() - held.keys():
            self._turns.forget(gone)
            self._say_who_is_suspect()


def _restored(topic: str) -> str:
    """Return the key of the problem of a topic whose assignment went back."""
    return f"restored {topic}"


def _identity(topic: str) -> str:
    """Return the key of the problem of a topic that is gone, or another one than was assigned."""
    return f"identity {topic}"


def _foreign(tp: TopicPartition) -> str:
    """Return the key of the problem of a partition whose committed offset another program has set or deleted."""
    return f"{OFFSET_PROBLEM} {tp[0]} [{tp[1]}]"


def _what_became(there: Committed | None, group_id: str) -> str:
    """Say what became of a committed offset, and who may have done it."""
    if there is None:
        return (
            f"deleted from group {group_id!r} (by kafka-consumer-groups, or by Kafka itself after its "
            "offsets.retention.minutes, which have to be more than a day)"
        )
    return (
        f"set to {there.offset} by another program (kafka-consumer-groups, or a consumer that uses group "
        f"{group_id!r})"
    )


def _parked(tp: TopicPartition) -> str:
    """Return the key of the problem of a partition that is parked."""
    return f"parked {tp[0]} [{tp[1]}]"


def _unread(failures: list[ReadFailure]) -> str:
    """Name the partitions of a topic that cannot be read for one reason."""
    first, shown = failures[0], [failure.tp[1] for failure in failures[:_SHOWN]]
    if len(failures) == 1:
        return str(first)
    more = f" and {len(failures) - _SHOWN} more" if len(failures) > _SHOWN else ""
    return (
        f"topic {first.tp[0]!r}, partitions {shown}{more}: they cannot be read, the first at offset {first.offset}: "
        f"{first.why}"
    )


def _stopped(topic: str) -> str:
    """Return the key of the problem of a topic of which nothing is left out until a person answers."""
    return f"stopped {topic}"


def _doubted(tp: TopicPartition) -> str:
    """Return the key of the problem of a partition that is read apart."""
    return f"{DOUBTED}{tp[0]} [{tp[1]}]"


def _fenced(tp: TopicPartition) -> str:
    """Return the key of the problem of a partition whose commit was refused."""
    return f"fenced {tp[0]} [{tp[1]}]"


def _waits(tp: TopicPartition, offset: int, why: str) -> str:
    return (
        f"topic {tp[0]!r}, partition {tp[1]}: the record at offset {offset} waits for a person: {why}. Have it "
        "retried, skipped or dead-lettered with 'muster retry-record', 'skip-record' or 'dead-letter-record'"
    )


def _asks(tp: TopicPartition, record: Suspect) -> str:
    return (
        f"topic {tp[0]!r}, partition {tp[1]}: the record at offset {record.offset} failed {record.failures} times "
        f"alone: {record.failure.text}. Have it retried, skipped or dead-lettered with 'muster retry-record', "
        "'skip-record' or 'dead-letter-record'"
    )


def _failures(suspect: Suspect) -> str:
    alone = f" (its next record, at offset {suspect.offset}, failed {suspect.failures} times alone)"
    return alone if suspect.tries else ""


def _least(*given: int | None) -> int | None:
    return min((one for one in given if one is not None), default=None)


def _list(partitions: Mapping[TopicPartition, str]) -> str:
    """Name partitions, with what is said of each, in a line."""
    shown = [
        f"topic {topic!r}, partition {partition}{said}"
        for (topic, partition), said in sorted(partitions.items())[:_SHOWN]
    ]
    more = len(partitions) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")
