"""What all threads of a consumer share: its ownership behind one lock, and the events that change it.

The agent decides nothing that `muster.core.ownership` does not decide. It serialises the events. All else has an
object of its own: `shared` is the lock, `problems` what is wrong, `blocks` what is not taken up, `failing`, `parked`
and `answers` what a handler fails with, `outside` what others do in Kafka, `measures` what people want to see.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from types import MappingProxyType

from muster.consumer.blocks import TAKING_OVER, Blocks
from muster.consumer.failing.answers import Answers
from muster.consumer.failing.failing import Failing
from muster.consumer.failing.parked import ParkedPartitions
from muster.consumer.measures import STALLED_AFTER, Counters, HeldMeasures
from muster.consumer.outside import Outside, identity
from muster.consumer.problems import Problems
from muster.consumer.shared import Shared
from muster.consumer.snapshot import AgentSnapshot
from muster.consumer.stateless import Stateless
from muster.core.model import OffsetRange, Seek, TopicAssignment, TopicPartition
from muster.core.ownership import (
    LONGEST_RENEWAL,
    BatchPlan,
    Due,
    Offer,
    Ownership,
    Place,
    PlanRefusedError,
    Topic,
)
from muster.core.parking import Answer, OnPoison, Parked
from muster.core.positions import Jump, Note
from muster.core.turns import Failure
from muster.core.unread import ReadFailure
from muster.sinks.batch import NO_REPORT, Rejected, SinkReport

log = logging.getLogger(__name__)

RESTART_AFTER = 10
"""After so many failures in a row the query is started again, should that be at fault."""


class StaleTokenError(PermissionError):
    """The caller belongs to a query that ended, or is none of ours."""


@dataclass
class Agent:
    """The consumer `owner` as its threads see it. All methods are thread-safe and none blocks on I/O.

    `fencing` and `announces` are those of `Ownership`. `clock` is monotonic, in seconds.
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
    shared: Shared = field(init=False)
    problems: Problems = field(init=False)
    blocks: Blocks = field(init=False)
    parked: ParkedPartitions = field(init=False)
    failing: Failing = field(init=False)
    answers: Answers = field(init=False)
    outside: Outside = field(init=False)
    measures: HeldMeasures = field(default_factory=HeldMeasures, init=False)
    _ownership: Ownership = field(init=False)
    _counters: Counters = field(init=False)
    _token: str | None = field(default=None, init=False)
    _query_error: str = field(default="", init=False)
    _sink_fails: bool = field(default=False, init=False)
    _handler_failed: bool = field(default=False, init=False)
    """Whether the handler raised in the last batch of the query."""
    _batch_began: float | None = field(default=None, init=False)
    """When the batch under way began, None without one."""
    _under_way: frozenset[TopicPartition] = field(default=frozenset(), init=False)
    """The partitions with records in the batch that began last."""

    def __post_init__(self) -> None:
        own = self._ownership = Ownership(
            self.owner,
            self.fencing,
            self.announces,
            self.longest_renewal,
            self.states.topics,
            self.holder if self.fencing else "",
        )

        shared = self.shared = Shared(own, lambda: self.clock())  # noqa: PLW0108  tests set it later
        self.problems, self._counters = shared.problems, shared.counters
        self.blocks = Blocks(shared)
        parked = self.parked = ParkedPartitions(shared, self.fail_on_data_loss)
        failing = self.failing = Failing(shared, parked, self.states, self.handler_of, self.on_poison)
        self.answers = Answers(shared, failing, parked, self.states, self._in_handler)
        self.outside = Outside(shared)
        shared.after_change += [self._measure, self.outside.follow, parked.follow, failing.follow]

    def _measure(self, own: Ownership) -> None:
        self.measures.follow(own.held, self.clock())

    # -- from ZooKeeper -----------------------------------------------------------------------------------

    def assigned(self, topic: str, assignment: TopicAssignment, zxid: int, synced: bool = False) -> bool:
        """Take an assignment node as it stands since transaction `zxid`, read after a sync if `synced`.

        Returns whether it is obeyed; one that is older than what is known is not, as a rule.
        """
        with self.shared.change() as own:
            before, known = own.status(topic).get(topic), own.topics.get(topic, Topic()).zxid
            if not own.read(topic, assignment, zxid, synced):
                self.blocks.older(topic, zxid, assignment.epoch, synced)
                return False
            if zxid < known:
                log.warning(
                    "topic %r: its assignment went back to transaction %d in ZooKeeper, which was restored from a "
                    "backup; epoch %d is obeyed",
                    *(topic, zxid, assignment.epoch),
                )
            self.blocks.obeyed(topic)
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

    def listed(self, topics: Iterable[str], zxid: int, synced: bool = False) -> None:
        """Take the list of topics as it stands since transaction `zxid`, read after a sync if `synced`."""
        with self.shared.change() as own:
            present = set(topics)
            for topic in own.keep_only(present, zxid):
                log.info("topic %r: its assignment node is gone; closing", topic)
                self.problems.drop([f"topic {topic}"])
                self.blocks.obeyed(topic)
                self.problems.note(identity(topic), None)
            for topic in own.missing(present, zxid):
                self.blocks.older(topic, zxid, None, synced)

    def wait_closed(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until nothing is held; return whether that is so."""
        return self.shared.wait_for(lambda own: own.closed, timeout)

    # -- from Spark ---------------------------------------------------------------------------------------

    def query_started(self) -> str:
        """Begin a query; return the token that its planner has to show."""
        with self.shared.change() as own:
            self._token = secrets.token_urlsafe(32)
            self._handler_failed = False
            own.query.start()
            return self._token

    def query_ended(self, failed: bool, error: str = "") -> None:
        """End the query, because of `error` if it failed. Waits for a handler that is still at work, whose outcome
        counts."""
        with self.shared.change() as own:
            self._token = None
            self.shared.wait_for(lambda _: self.idle, None)
            own.query_ended()
            self.problems.drop(["source"])
            self._counters.query_failures += failed
            if failed and not self._handler_failed:
                self._counters.failures_in_a_row += 1
                self._sink_fails = False
            self._query_error = error or self._query_error

    def check_token(self, token: str) -> None:
        """Raise `StaleTokenError` unless `token` is that of the running query."""
        with self.shared.locked():
            if self._token is None or not secrets.compare_digest(token.encode(), self._token.encode()):
                raise StaleTokenError("the token is not that of the running query")

    def offer(self, token: str) -> Offer:
        """Return what the next batch may hold. Raises `StaleTokenError` or `PlanRefusedError`."""
        with self.shared.change() as own:
            self.check_token(token)
            return own.offer()

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
        with self.shared.change() as own:
            self.check_token(token)
            if finished != own.query.stands_at:
                raise PlanRefusedError(
                    f"Spark begins at {finished}, but the last batch that was processed ended at "
                    f"{own.query.stands_at}; the query has to be restarted"
                )
            begun = {tp for tp, held in own.held.items() if held.planned is None}
            self.failing.turns.forget(begun)
            stopped = {tp for tp, note in (notes or {}).items() if note.stopped and tp in begun}
            own.planned(asked, offsets, jumps, notes, sought, due)
            for tp in sought or {}:
                self.parked.sought(tp)
                self._counters.left_out.sought(tp, own.held[tp].claim_epoch)
            self._counters.seeks += len(sought or {})
            self.parked.follow(own)
            self.parked.park_losses(losses or {}, ends.keys())
            lost = self._count(jumps or {})
            caught_up = self.measures.seen(ends, own.held, self.clock())
            self.failing.planned(begun, stopped, (sought or {}).keys(), ends, caught_up)
            if own.held and caught_up | self.parked.all.keys() >= own.held.keys():
                self._counters.failures_in_a_row = 0
            self.problems.note("source", "; ".join(problems) or None)
            return lost

    def lost(self, token: str, jumps: Mapping[TopicPartition, Jump]) -> int:
        """Count records that were planned and that Kafka had no more when a task came to read them; return how many
        of them were not counted before.

        Raises `StaleTokenError`.
        """
        with self.shared.locked():
            self.check_token(token)
            return self._count(jumps)

    def _count(self, jumps: Mapping[TopicPartition, Jump]) -> int:
        held = self._ownership.held
        ids = {tp[0]: held[tp].source.topic_id for tp in jumps if tp in held}
        return self._counters.jumped(jumps, ids, time.time())

    def holds(self, size: int) -> None:
        """Take note of how many bytes the executors hold of what they read ahead."""
        with self.shared.locked():
            self._counters.read_ahead_bytes = size

    def received(self, token: str, size: int) -> None:
        """Count `size` bytes of keys, values and headers that tasks have read. Raises `StaleTokenError`."""
        with self.shared.locked():
            self.check_token(token)
            self._counters.read_bytes += size

    def batch_started(self) -> BatchPlan:
        """Return the plan of the batch that Spark hands over. Raises `PlanRefusedError` if it was not planned."""
        with self.shared.locked():
            plan = self._ownership.query.batch()
            self._batch_began, self._under_way = self.clock(), frozenset(plan.filled)
            return plan

    def may_reject(self, plan: BatchPlan, rejected: Rejected) -> str:
        """Return why the handler may not reject these records of the batch that it has, '' if it may."""
        if not self.fencing:
            return (
                "the cluster has 'fencing: false', and a dead letter is written in the transaction that fences its "
                "offset; take that out and restart the consumers"
            )
        return self.failing.may_reject(plan.filled, rejected)

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
        with self.shared.change() as own:
            now, counters, at = self.clock(), self._counters, time.time()
            began, self._batch_began = self._batch_began, None
            ranges = plan.filled
            for text in sinks.notices:
                counters.left_out.notice(text, at)
            if failure is not None:
                self.problems.note("sink", counters.left_out.words(at) or None)
                own.failed(plan)
                for tp in ranges.keys() & own.held.keys():
                    counters.left_out.failed(tp, own.held[tp].claim_epoch, ranges[tp])
                counters.handler_failures += 1
                self._handler_failed = True
                if self.failing.failed(ranges, failure, rejected, at):
                    return False
                counters.failures_in_a_row += 1
                self._query_error = failure.text
                self._sink_fails = not (failure.of_record or failure.death)
                return counters.failures_in_a_row % RESTART_AFTER == 0
            self._handler_failed = False
            for tp in ranges.keys() & own.held.keys():
                partition = own.held[tp]
                counters.left_out.passed(
                    tp, partition.claim_epoch, ranges[tp], sinks.left_out, at, partition.note
                )
                partition.learn_reached(sinks.reached(tp))
            self.measures.reported(ranges, sinks.stored, at)
            self.problems.note("sink", counters.left_out.words(at) or None)
            self.failing.tried(ranges)
            own.processed(plan, now, self.failing.with_letters(rejected, at))
            self.measures.well(ranges, now)
            self.failing.passed(plan.ranges, ranges, rejected)
            if ranges:
                counters.failures_in_a_row = 0
            counters.batches += 1
            counters.records += sum(end - begin for begin, end in ranges.values())
            counters.last_batch_at = time.time()
            counters.batches_took.took(0.0 if began is None else now - began)
            return False

    def batch_again(self, plan: BatchPlan) -> None:
        """Have a batch planned again, which changes more of its state than it may: with what `states.most` allows."""
        with self.shared.change() as own:
            self._batch_began = None
            own.failed(plan)

    def batch_unread(self, plan: BatchPlan, failures: Collection[ReadFailure]) -> None:
        """Take note that a batch could not be read, which is no fault of its records or of the handler."""
        with self.shared.change() as own:
            self._batch_began = None
            own.failed(plan)
            self._counters.read_failures += 1
            for failure in failures:
                self.failing.unread(failure)

    def timer_failed(self, plan: BatchPlan, tp: TopicPartition, why: str) -> None:
        """Take note that a batch failed with a timer of a partition's state, which is no fault of its records. The
        partition is parked, and the others go on."""
        with self.shared.change() as own:
            self._batch_began = None
            own.failed(plan)
            self._counters.handler_failures += 1
            self.parked.park_timer(tp, why)

    def _in_handler(self, tp: TopicPartition) -> bool:
        return self._batch_began is not None and tp in self._under_way

    @property
    def idle(self) -> bool:
        """Whether no handler is at work."""
        with self.shared.locked():
            return self._batch_began is None

    def wait_tried(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until a query has come through its first batch, which is empty as long as
        nothing may be taken up, or has failed; return whether that is so."""
        return self.shared.wait_for(
            lambda _: bool(self._counters.batches or self._counters.query_failures), timeout
        )

    # -- from Kafka ---------------------------------------------------------------------------------------

    def wait_for_place(self, known: Collection[Place], timeout: float) -> set[Place]:
        """Wait up to `timeout` seconds until there is something to claim or to commit at a place that is not
        `known`; return the new ones."""
        return self.shared.wait_for(
            lambda own: (own.due(self.clock()).keys() | own.unclaimed().keys()) - set(known), timeout
        )

    def due(self, place: Place, timeout: float = 0.0) -> dict[TopicPartition, Due]:
        """Wait up to `timeout` seconds until offsets are due at `place`; return them."""
        return self.shared.wait_for(lambda own: own.due(self.clock()).get(place, {}), timeout)

    def committed(self, offsets: Mapping[TopicPartition, Due]) -> None:
        """Take note that Kafka acknowledged these offsets."""
        with self.shared.change() as own:
            for tp, due in offsets.items():
                self._count_letters(own, tp, due)
            own.committed(offsets, self.clock())
            self._counters.commits += 1
            for tp, due in offsets.items():
                why, held = self.parked.all.get(tp), own.held.get(tp)
                if why is None or why.answer is None or held is None or held.claim_epoch != due.claim_epoch:
                    continue
                if due.offset == why.offset + 1 and why.loss is None:
                    self._passed_over(tp, why, due)

    def _count_letters(self, own: Ownership, tp: TopicPartition, due: Due) -> None:
        held = own.held.get(tp)
        if held is None or held.claim_epoch != due.claim_epoch:
            return
        if written := sum(at < due.offset for at in held.rejected):
            counted = self._counters.dead_lettered
            counted[tp[0]] = counted.get(tp[0], 0) + written
            log.warning("topic %r, partition %d: %d rejected record(s) dead-lettered", *tp, written)

    def _passed_over(self, tp: TopicPartition, why: Parked, due: Due) -> None:
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
        self.failing.passed_over(tp, due)

    def letter_too_large(self, tp: TopicPartition, due: Due, offset: int, why: str) -> None:
        """Have a person asked about the record at `offset`, whose dead letter does not fit its topic.

        If the handler rejected it, its batch counts as not processed, and is read again up to the record.
        """
        if due.letters:
            with self.shared.locked():
                self.failing.too_large[tp, offset] = why
            where = f"topic {tp[0]!r}, partition {tp[1]}"
            self.blocks.refused(
                tp,
                due.claim_epoch,
                f"{where}: {why}; it is closed without committing, and read again up to the record at offset "
                f"{offset}, which then waits for a person",
            )
            return
        self.parked.unwritten(tp, due, offset, why)

    def letters(self, place: Place, timeout: float = 0.0) -> dict[TopicPartition, Due]:
        """Wait up to `timeout` seconds until dead letters are due at `place`; return the offsets after their
        records."""
        return self.shared.wait_for(lambda own: own.letters().get(place, {}), timeout)

    def commit_tried(self, seconds: float, failed: bool) -> None:
        """Take note that a commit took so long, and whether some of it is to be tried again."""
        with self.shared.locked():
            self._counters.commits_took.took(seconds)
            self._counters.failed_commits += failed

    # -- for people ---------------------------------------------------------------------------------------

    @property
    def query_failures(self) -> tuple[int, str]:
        """How many times in a row handler or query failed without a batch coming through, and why the last time.

        0 while a sink says that the fault is its own: another consumer would meet it as well, so a person is asked.
        """
        with self.shared.locked():
            return 0 if self._sink_fails else self._counters.failures_in_a_row, self._query_error

    def view(self) -> AgentSnapshot:
        """Return everything at one moment."""
        with self.shared.locked():
            self.shared.follow()
            own, now = self._ownership, self.clock()
            took = 0.0 if self._batch_began is None else now - self._batch_began
            return AgentSnapshot(
                topics={} if TAKING_OVER in own.blocks else own.status(),
                sources={
                    name: topic.source for name, topic in own.topics.items() if topic.source is not None
                },
                held=self.measures.view(own.held, now),
                problems=self.problems.all,
                refusals=dict(self.blocks.refusals.all),
                failing=self.answers.failing,
                batch_seconds=took,
                in_batch=self._under_way if took > STALLED_AFTER else frozenset(),
                unread=self.failing.unreadable.all,
                losses=self._counters.losses.whole(time.time()),
                left_out=self._counters.left_out.losses.whole(time.time()),
                rebuilds={tp: p.note.rebuild for tp, p in own.held.items() if p.note.rebuild},
                shards={tp: shard for tp, shard in self.states.status().items() if tp in own.held},
                blocks=frozenset(own.blocks),
                query_running=self._token is not None,
                counters=deepcopy(self._counters),
            )
