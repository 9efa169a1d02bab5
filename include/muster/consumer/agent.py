"""What all threads of a consumer share: its ownership, its problems, its counters, behind one lock.

The agent decides nothing that `muster.core.ownership` does not decide. It serialises the events, wakes those who
wait for a change, and remembers what people want to see.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from muster.consumer.arrival_rates import ArrivalRates
from muster.consumer.losses import Losses
from muster.consumer.progress import Progress
from muster.consumer.renewals import Renewals
from muster.consumer.time_lag import TimeLags
from muster.consumer.timings import Timings
from muster.core.model import TopicAssignment, TopicStatus
from muster.core.ownership import (
    Due,
    Offer,
    Ownership,
    PartitionReport,
    Place,
    Plan,
    PlanRefusedError,
    Range,
    Source,
    TopicOffer,
    TopicPartition,
)
from muster.core.positions import Jump, Why
from muster.core.refusals import Refusal, Refusals

log = logging.getLogger(__name__)

STOPPING = "stopping"
"""The reason of a bar that is never lifted: the process ends."""
LOG_AGAIN = 60.0
"""Seconds until a problem that lasts is logged again, if it is put in other words by then."""


class StaleTokenError(PermissionError):
    """The caller belongs to a query that ended, or is none of ours."""


@dataclass(slots=True)
class Counters:
    """What was done since the process started."""

    records: int = 0
    batches: int = 0
    commits: int = 0
    failed_commits: int = 0
    refused_commits: int = 0
    query_failures: int = 0
    failures_in_a_row: int = 0
    """Failures of the query since a batch came through, or a planning found all that is held without lag."""
    last_batch_at: float | None = None


@dataclass(frozen=True, slots=True)
class View:
    """The agent at one moment, for status page and metrics."""

    topics: Mapping[str, TopicStatus]
    sources: Mapping[str, Source]
    held: Mapping[TopicPartition, PartitionReport]
    ends: Mapping[TopicPartition, int]
    rates: Mapping[TopicPartition, float]
    """Records that arrive a second, see `muster.consumer.arrival_rates`; absent where it is not known yet."""
    seconds_behind: Mapping[TopicPartition, float]
    """Lag in time, see `muster.consumer.time_lag`; absent where it is not known."""
    stalled: Mapping[TopicPartition, float]
    """Seconds without progress, see `muster.consumer.progress`; absent where there is progress, or nothing to
    read."""
    lost: Mapping[TopicPartition, Mapping[Why, int]]
    """Offsets that Kafka had no more when they were to be read, since this process started."""
    recreated: int
    """Partitions that began at the first record of a topic that was created again."""
    problems: Mapping[str, str]
    refusals: Mapping[TopicPartition, Refusal]
    bars: frozenset[str]
    query_running: bool
    counters: Counters
    batches_took: Timings
    commits_took: Timings


@dataclass
class Agent:
    """The consumer `owner` as its threads see it. All methods are thread-safe and none blocks on I/O.

    `claims` and `fencing` are those of `Ownership`. `clock` is monotonic, in seconds.

    Some things may be done only once ZooKeeper was read again, from a server that does not lag: taking partitions up
    after this consumer was not to be counted on (`lift_once_read`), and taking up again what was refused (`refused`).
    Readings are numbered for that. A caller that needs one gets the number of the next (`reading_wanted`); a complete
    reading that began with that number, or a later one, is what was waited for (`has_read`).
    """

    owner: str
    claims: bool = False
    fencing: bool = False
    clock: Callable[[], float] = time.monotonic
    _ownership: Ownership = field(init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _problems: dict[str, str] = field(default_factory=dict, init=False)
    _ends: dict[TopicPartition, int] = field(default_factory=dict, init=False)
    _rates: ArrivalRates = field(default_factory=ArrivalRates, init=False)
    _time_lags: TimeLags = field(default_factory=TimeLags, init=False)
    _progress: Progress = field(default_factory=Progress, init=False)
    _renewals: Renewals = field(default_factory=Renewals, init=False)
    _losses: Losses = field(default_factory=Losses, init=False)
    _query_error: str = field(default="", init=False)
    _batches_took: Timings = field(default_factory=Timings, init=False)
    _commits_took: Timings = field(default_factory=Timings, init=False)
    _refusals: Refusals = field(default_factory=Refusals, init=False)
    _counters: Counters = field(default_factory=Counters, init=False)
    _logged: dict[str, float] = field(default_factory=dict, init=False)
    _token: str | None = field(default=None, init=False)
    _batch_began: float = field(default=0.0, init=False)
    _batch_under_way: bool = field(default=False, init=False)
    _mute: set[str] = field(default_factory=set, init=False)
    _to_lift: dict[str, int] = field(default_factory=dict, init=False)
    _wanted: int = field(default=0, init=False)
    _to_check: int | None = field(default=None, init=False)
    _went_back: dict[str, tuple[int, int | None]] = field(default_factory=dict, init=False)
    """For each topic the transaction and epoch of what was older than what is known also after a sync."""
    _wake_reader: Callable[[], None] = field(default_factory=lambda: _nobody, init=False)

    def __post_init__(self) -> None:
        self._ownership = Ownership(self.owner, self.claims, self.fencing)

    # -- from ZooKeeper -----------------------------------------------------------------------------------

    def assigned(self, topic: str, assignment: TopicAssignment, zxid: int, synced: bool = False) -> bool:
        """An assignment node was read as it stands since transaction `zxid`, `synced` if after a sync.

        Returns whether it is obeyed; one that is older than what is known is not, as a rule.
        """
        with self._changed:
            before = self._ownership.status().get(topic)
            if not self._ownership.read(topic, assignment, zxid) and not self._obey_restored(
                topic, assignment, zxid, synced
            ):
                return False
            self._went_back.pop(topic, None)
            self._set_problem(_restored(topic), None)
            after = self._ownership.status()[topic]
            others = {p for p, consumer in assignment.owners.items() if consumer != self.owner}
            if (
                before is not None
                and before.epoch != after.epoch
                and not self.fencing
                and before.held & others
            ):
                log.warning(
                    "topic %r, partitions %s: given to other consumers while they are held here; what is not "
                    "committed by now is not committed any more, they begin at what was committed before",
                    topic,
                    sorted(before.held & others),
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
            self._note_held()
            self._changed.notify_all()
            return True

    def _obey_restored(self, topic: str, assignment: TopicAssignment, zxid: int, synced: bool) -> bool:
        """Whether an assignment that is older than the one known is nevertheless obeyed.

        Where a server that lags behind is the likely reason, everything is read again after a sync, once.
        """
        if not synced:
            self._look_into(topic, zxid, assignment.epoch)
            return False
        topics = self._ownership.topics
        known = max(topics[topic].epoch or 0, topics[topic].least)
        if self._ownership.read_restored(topic, assignment, zxid):
            log.warning(
                "topic %r: its assignment went back to transaction %d in ZooKeeper, which was restored from a "
                "backup; epoch %d is obeyed",
                *(topic, zxid, assignment.epoch),
            )
            return True
        self._went_back[topic] = (zxid, assignment.epoch)
        self._set_problem(
            _restored(topic),
            f"its assignment in ZooKeeper went back to epoch {assignment.epoch} (transaction {zxid}), from epoch "
            f"{known}, also after a sync: ZooKeeper was restored from a backup. This consumer keeps what it has "
            f"until the coordinator, which sees epoch {known} in its status, has planned again; if it does not, "
            "look at the coordinator's last run",
        )
        return False

    def _look_into(self, topic: str, zxid: int, epoch: int | None) -> None:
        if self._to_check is None and self._went_back.get(topic) != (zxid, epoch):
            log.warning("topic %r: ignored what is older than the assignment known; reading again", topic)
            self._to_check = self._want_reading()

    def listed(self, topics: Iterable[str], zxid: int, synced: bool = False) -> None:
        """The list of topics was read as it stands since transaction `zxid`, `synced` if after a sync."""
        with self._changed:
            present = set(topics)
            for topic in self._ownership.keep_only(present, zxid):
                log.info("topic %r: its assignment node is gone; closing", topic)
                self._problems.pop(f"topic {topic}", None)
                self._went_back.pop(topic, None)
                self._set_problem(_restored(topic), None)
                self._set_problem(_identity(topic), None)
            for topic in self._ownership.missing(present, zxid):
                if not synced:
                    self._look_into(topic, zxid, None)
                    continue
                self._went_back[topic] = (zxid, None)
                self._set_problem(
                    _restored(topic),
                    "its assignment node is not in ZooKeeper any more, which went back to an earlier transaction: it "
                    "was restored from a backup. This consumer keeps what it has until the coordinator has planned "
                    "the topic again; if it does not, look at the coordinator's last run",
                )
            self._note_held()
            self._changed.notify_all()

    # -- from discovery and the process's own end ---------------------------------------------------------

    def bar(self, reason: str, mute: bool = False) -> None:
        """Close everything, because of `reason`, until it is lifted.

        With `mute` no topic is reported until then, so that 'closed' is not read from it: another process may still
        hold what is assigned to this id.
        """
        with self._changed:
            self._to_lift.pop(reason, None)
            if mute:
                self._mute.add(reason)
            if reason not in self._ownership.bars:
                log.info("%s: closing all partitions", reason)
                self._ownership.bar(reason)
                self._changed.notify_all()

    def lift(self, reason: str) -> None:
        """Take back `reason`; without another one, take up what is assigned."""
        with self._changed:
            self._to_lift.pop(reason, None)
            self._mute.discard(reason)
            if reason in self._ownership.bars:
                log.info("no longer %s", reason)
                self._ownership.lift(reason)
                self._note_held()
                self._changed.notify_all()

    def lift_once_read(self, reason: str) -> None:
        """Take back `reason` after everything has been read from ZooKeeper again, from a server that does not lag.

        What was read before is of no use: while this consumer was not to be counted on, its partitions may have
        been given to others.
        """
        with self._changed:
            if reason in self._ownership.bars and reason not in self._to_lift:
                self._to_lift[reason] = self._want_reading()

    def expect(self, epochs: Mapping[str, int]) -> None:
        """ZooKeeper has got so far, by topic: an assignment with a lower epoch is of a backup, and not obeyed."""
        with self._changed:
            self._ownership.expect(epochs)
            self._changed.notify_all()

    def wake_for_reading(self, wake: Callable[[], None]) -> None:
        """Have `wake` called whenever `reading_wanted` gets something. It must not block."""
        with self._changed:
            self._wake_reader = wake

    def reading_wanted(self) -> int | None:
        """The number of the newest reading that something waits for, None if nothing waits."""
        with self._changed:
            waited_for = self._to_lift or self._refusals.to_be_read or self._to_check is not None
            return self._wanted if waited_for else None

    def has_read(self, number: int, unread: Collection[str] = ()) -> None:
        """A complete reading has ended, after a sync, that began when `reading_wanted` was `number`.

        Of the topics `unread` it could not tell how they stand, nor of those that went back in ZooKeeper. What was
        read of them before counts no longer, where nothing may be taken up on the strength of it.
        """
        with self._changed:
            unread = {*unread, *self._went_back}
            if self._to_check is not None and self._to_check <= number:
                self._to_check = None
            due = [reason for reason, wanted in self._to_lift.items() if wanted <= number]
            if due:
                self._ownership.forget_assigned(unread)
            for reason in due:
                self.lift(reason)
            self._refusals.was_read(number, unread)
            self._allow_ready()

    def _want_reading(self) -> int:
        self._wanted += 1
        self._wake_reader()
        return self._wanted

    def wait_closed(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until nothing is held; returns whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self._ownership.closed, timeout)

    @property
    def idle(self) -> bool:
        """Whether no handler is at work."""
        with self._changed:
            return not self._batch_under_way

    def wait_tried(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until a query has come through its first batch, which is empty as long as
        nothing may be taken up, or has failed; returns whether that is so."""
        with self._changed:
            return self._changed.wait_for(
                lambda: bool(self._counters.batches or self._counters.query_failures), timeout
            )

    # -- from Spark ---------------------------------------------------------------------------------------

    def query_started(self) -> str:
        """A query begins; returns the token that its planner has to show."""
        with self._changed:
            self._token = secrets.token_urlsafe(32)
            self._ownership.query_started()
            self._changed.notify_all()
            return self._token

    def query_ended(self, failed: bool, error: str = "") -> None:
        """The query is over, because of `error` if it failed. Waits for a handler that is still at work, whose
        outcome counts."""
        with self._changed:
            self._token = None
            self._changed.wait_for(lambda: not self._batch_under_way)
            self._ownership.query_ended()
            self._problems.pop("source", None)
            self._counters.query_failures += failed
            self._counters.failures_in_a_row += failed
            self._query_error = error or self._query_error
            self._changed.notify_all()

    def check_token(self, token: str) -> None:
        """Raise `StaleTokenError` unless `token` is that of the running query."""
        with self._changed:
            self._check(token)

    def offer(self, token: str) -> Offer:
        """What the next batch may hold. Raises `StaleTokenError` or `PlanRefusedError`."""
        with self._changed:
            self._check(token)
            offer = self._ownership.offer()
            self._changed.notify_all()
            return offer

    def wait_for_offer(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until there is something to offer."""
        with self._changed:
            self._changed.wait_for(lambda: self._ownership.has_something_to_offer, timeout)

    def nearby(self) -> Mapping[str, TopicOffer]:
        """A topic of each Kafka cluster and group, with one of the partitions that consumers are assigned."""
        with self._changed:
            return self._ownership.nearby()

    def planned(
        self,
        token: str,
        asked: int,
        finished: Mapping[str, Mapping[int, Range]],
        offsets: Mapping[str, Mapping[int, Range]],
        ends: Mapping[TopicPartition, int],
        problems: Iterable[str],
        jumps: Mapping[TopicPartition, Jump] | None = None,
    ) -> None:
        """The planner planned a batch, or none (`offsets` equal to `finished`, where Spark stands).

        `jumps` are the partitions that do not go on where they were read up to.

        Raises `StaleTokenError`, or `PlanRefusedError` if Spark does not stand where the agent saw it get to.
        """
        with self._changed:
            self._check(token)
            if finished != self._ownership.stands_at:
                raise PlanRefusedError(
                    f"Spark begins at {finished}, but the last batch that was processed ended at "
                    f"{self._ownership.stands_at}; the query has to be restarted"
                )
            self._ownership.planned(asked, offsets, jumps)
            self._losses.note(jumps or {})
            self._ends.update(ends)
            self._rates.seen(ends, time.monotonic())
            self._time_lags.seen(ends, time.monotonic())
            self._note_lag(ends)
            self._set_problem("source", "; ".join(problems) or None)
            self._changed.notify_all()

    def batch_started(self) -> Plan:
        """Spark hands over a batch; returns its plan. Raises `PlanRefusedError` if it was not planned."""
        with self._changed:
            plan = self._ownership.batch()
            self._batch_under_way = True
            self._batch_began = time.monotonic()
            return plan

    def batch_done(self, plan: Plan, processed: bool) -> None:
        """The handler is done with a batch, `processed` if without an exception."""
        with self._changed:
            self._batch_under_way = False
            if processed:
                self._ownership.processed(plan)
                self._note_held()
                self._progress.well(
                    [
                        (topic, partition)
                        for topic, ranges in plan.offsets.items()
                        for partition, (begin, end) in ranges.items()
                        if end > begin
                    ],
                    self.clock(),
                )
                if not plan.empty:
                    self._counters.failures_in_a_row = 0
                self._counters.batches += 1
                self._batches_took.took(time.monotonic() - self._batch_began)
                self._counters.last_batch_at = time.time()
                self._counters.records += sum(
                    end - begin for ranges in plan.offsets.values() for begin, end in ranges.values()
                )
            self._changed.notify_all()

    # -- from Kafka ---------------------------------------------------------------------------------------

    def wait_for_place(self, known: Collection[Place], timeout: float) -> set[Place]:
        """Wait up to `timeout` seconds until there is something to claim or to commit at a place that is not
        `known`; returns the new ones."""

        def unknown() -> set[Place]:
            return (self._ownership.due().keys() | self._ownership.unclaimed().keys()) - set(known)

        with self._changed:
            self._changed.wait_for(unknown, timeout)
            return unknown()

    def wait_for_claims(
        self, place: Place, claims: Mapping[TopicPartition, int], timeout: float
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Wait up to `timeout` seconds until a partition at `place` is to be claimed, or a claim is out of use.

        `claims` are the claims that were begun, with their terms. Returns those to make, and those of them to give
        up.
        """

        def found() -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
            return self._ownership.unclaimed().get(place, {}), self._unused(place, claims)

        with self._changed:
            self._changed.wait_for(lambda: any(found()), timeout)
            return found()

    def wait_for_unused_claims(
        self, place: Place, claims: Mapping[TopicPartition, int], timeout: float
    ) -> bool:
        """Wait up to `timeout` seconds until one of these claims is to be given up; returns whether one is."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self._unused(place, claims), timeout))

    def _unused(self, place: Place, claims: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        used = self._ownership.claims_in_use().get(place, {})
        return {key: term for key, term in claims.items() if used.get(key) != term}

    def begin_claim(self, key: TopicPartition, term: int) -> bool:
        """A claim is about to be made; False if it must not be. See `TopicConsumer.begin_claim`."""
        with self._changed:
            return self._ownership.begin_claim(key, term)

    def claim_ended(self, key: TopicPartition, term: int) -> None:
        """A claim was given up, and nothing of it can take effect any more."""
        with self._changed:
            self._ownership.claim_ended(key, term)
            self._changed.notify_all()

    def claimed(self, terms: Mapping[TopicPartition, int]) -> None:
        """These partitions are claimed for these terms, and can start."""
        with self._changed:
            self._ownership.claimed(terms)
            self._changed.notify_all()

    def wait_for_due(self, place: Place, timeout: float) -> bool:
        """Wait up to `timeout` seconds until offsets are due at `place`; returns whether some are."""
        with self._changed:
            if self._changed.wait_for(lambda: place in self._ownership.due(), timeout):
                return True
            return bool(self._to_renew(place))

    def due(self, place: Place) -> dict[TopicPartition, Due]:
        """The offsets to commit at `place` now, and those to commit again before Kafka forgets them."""
        with self._changed:
            return self._to_renew(place) | self._ownership.due().get(place, {})

    def _to_renew(self, place: Place) -> dict[TopicPartition, Due]:
        places = self._ownership.renewable()
        due = self._renewals.due({key for offsets in places.values() for key in offsets}, self.clock())
        return {key: offset for key, offset in places.get(place, {}).items() if key in due}

    def committed(self, offsets: Mapping[TopicPartition, Due]) -> None:
        """Kafka acknowledged these offsets."""
        with self._changed:
            self._ownership.committed(offsets)
            self._renewals.committed(offsets, self.clock())
            self._counters.commits += 1
            self._changed.notify_all()

    def watched(self, place: Place) -> frozenset[str]:
        """The topics at `place` of which this consumer has partitions, or is assigned some."""
        with self._changed:
            return frozenset(self._ownership.watched().get(place, ()))

    def identified(self, place: Place, ids: Mapping[str, str], gone: Collection[str]) -> None:
        """Kafka has the watched topics of `place` under these ids, and does not have those that are `gone`."""
        with self._changed:
            for name in self._ownership.watched().get(place, ()):
                self._ownership.identify(name, place, ids.get(name, ""), name in gone)
                source = self._ownership.topics[name].source
                if source is None or source.place == place:
                    self._set_problem(_identity(name), self._what_is_wrong_with(name, place))
            self._note_held()
            self._changed.notify_all()

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
                "new id into the assignment; if that takes longer than some ticks, look at the coordinator's last run"
            )
        return None

    def refused(self, key: TopicPartition, term: int, why: str) -> None:
        """The commit of a partition was refused for good: it is closed as it stands. `why` is for people."""
        with self._changed:
            if not self._ownership.refuse(key, term):
                return
            self._counters.refused_commits += 1
            self._refusals.note(key, why, self.clock(), self._want_reading())
            self._set_problem(_fenced(key), why)
            self._changed.notify_all()

    def is_registered(self, asked: float) -> None:
        """Discovery has this very process registered, by a question that began at `asked`, of the agent's clock."""
        with self._changed:
            self._refusals.registered(asked)
            self._allow_ready()

    @property
    def asks_discovery(self) -> bool:
        """Whether partitions that were refused wait for nothing but `is_registered`."""
        with self._changed:
            return self._refusals.wait_for_discovery(self.clock())

    def _allow_ready(self) -> None:
        for key in self._refusals.take_ready(self.clock()):
            self._ownership.allow(key)
            self._set_problem(_fenced(key), None)
            self._changed.notify_all()

    def commit_took(self, seconds: float) -> None:
        """A commit was answered, well or badly, after so long."""
        with self._changed:
            self._commits_took.took(seconds)

    def commit_failed(self) -> None:
        """A commit was not acknowledged and will be tried again."""
        with self._changed:
            self._counters.failed_commits += 1

    # -- for people ---------------------------------------------------------------------------------------

    @property
    def query_failures(self) -> tuple[int, str]:
        """How many times in a row the query failed without a batch coming through, and why the last time."""
        with self._changed:
            return self._counters.failures_in_a_row, self._query_error

    def problem(self, key: str, message: str | None) -> None:
        """Say what is wrong with `key` now; None when all is well again. Changes are logged."""
        with self._changed:
            self._set_problem(key, message)

    def view(self) -> View:
        """Everything at one moment."""
        with self._changed:
            held = self._ownership.held()
            self._ends = {key: end for key, end in self._ends.items() if key in held}
            self._rates.keep_only(held)
            self._time_lags.keep_only(held)
            self._note_held()
            now = time.monotonic()
            behind = {
                key: self._time_lags.seconds(key, report.position, now)
                for key, report in held.items()
                if report.position is not None
            }
            return View(
                topics={} if self._mute else self._ownership.status(),
                sources={
                    name: topic.source
                    for name, topic in self._ownership.topics.items()
                    if topic.source is not None
                },
                held=held,
                ends=dict(self._ends),
                rates=self._rates.rates(),
                seconds_behind={key: seconds for key, seconds in behind.items() if seconds is not None},
                stalled=self._progress.stalled(self.clock()),
                lost={key: dict(lost) for key, lost in self._losses.offsets.items()},
                recreated=self._losses.recreated,
                problems=dict(self._problems),
                refusals=dict(self._refusals.all),
                bars=frozenset(self._ownership.bars),
                query_running=self._token is not None,
                counters=Counters(**{name: getattr(self._counters, name) for name in Counters.__slots__}),
                batches_took=self._batches_took.copy(),
                commits_took=self._commits_took.copy(),
            )

    def _note_held(self) -> None:
        """Take note of what is held and not closing."""
        self._progress.held(
            {
                (name, number)
                for name, topic in self._ownership.topics.items()
                for number, partition in topic.held.items()
                if not partition.closing
            },
            self.clock(),
        )

    def _note_lag(self, ends: Mapping[TopicPartition, int]) -> None:
        """Of what is held, see which has nothing to read, by ends that were just seen."""
        held = self._ownership.held()
        caught_up = {
            key
            for key, end in ends.items()
            if key in held and (position := held[key].position) is not None and position >= end
        }
        self._note_held()
        self._progress.well(caught_up, self.clock())
        if held and caught_up >= held.keys():
            self._counters.failures_in_a_row = 0

    def _check(self, token: str) -> None:
        if self._token is None or not secrets.compare_digest(token.encode(), self._token.encode()):
            raise StaleTokenError("the token is not that of the running query")

    def _set_problem(self, key: str, message: str | None) -> None:
        if message is None:
            if self._problems.pop(key, None) is not None:
                log.info("%s: all is well again", key)
            return
        now = time.monotonic()
        new = key not in self._problems
        if new or (self._problems[key] != message and now - self._logged.get(key, 0.0) > LOG_AGAIN):
            log.warning("%s: %s", key, message)
            self._logged[key] = now
        self._problems[key] = message


def _nobody() -> None:
    """No reader is there yet, so none has to be woken."""


def _restored(topic: str) -> str:
    """Under which the problem of a topic is known whose assignment went back."""
    return f"restored {topic}"


def _identity(topic: str) -> str:
    """Under which the problem of a topic is known that is gone, or another one than was assigned."""
    return f"identity {topic}"


def _fenced(key: TopicPartition) -> str:
    """Under which the problem of a partition whose commit was refused is known."""
    return f"fenced {key[0]} [{key[1]}]"
