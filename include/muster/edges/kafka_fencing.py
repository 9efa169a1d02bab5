"""Commits that Kafka accepts only of the newest owner of a partition: one transactional producer a partition.

Kafka knows one holder of a `transactional.id`, the one that called `init_transactions` last, and refuses all
earlier ones. So each partition of a group has an id of its own (`transactional_id`); the consumer that takes it up
initialises it, and commits its offsets in transactions of that id. A former owner that comes to life again can no
longer commit: its producer is *fenced*.

A record that is passed over gets its dead letter in the transaction that commits the offset after it: both are there,
or neither.

`init_transactions` also ends what the former owner had under way. After it nothing of the former owner can land, so
a consumer that reads the group's committed offset then begins where that stays.

The broker forgets a producer that is idle for long (`transactional.id.expiration.ms`), and which ones it had
fenced off. It accepts the next one that initialises the id, and librdkafka does so by itself when it aborts a
transaction of a forgotten producer. So a forgotten producer, which may be a former owner's, is not called again: it
is replaced once the owner is confirmed. A transaction is aborted only where a broker answered that it failed, and
only within `ABORT_WITHIN`; otherwise its producer is replaced in the same way.

A partition with state by key also writes its changes, its position and its output in that transaction (`Carried`).
Partitions that share their state have one producer, whose transactions hold the offsets of all of them. If the
producer of a partition with state is stuck or lost, it is refused rather than replaced: it is taken up again as by a
new owner.

A producer costs about 0.4 MB and a handful of threads (one of them for each broker), and a commit three round trips;
`benchmarks/fencing.py` measures both.
"""

from __future__ import annotations

import concurrent.futures
import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as _TopicPartition

from muster.core.model import TopicPartition
from muster.core.positions import Committed, passed_by
from muster.core.state_topics import NO_STATE, StateTopics
from muster.edges.calls import Calls, make_calls
from muster.edges.commit_outcome import (
    NO_LETTERS,
    NOTHING_CARRIED,
    Begin,
    Claimed,
    Claims,
    CommitOutcome,
    Letters,
    Owned,
)
from muster.edges.dead_letters import (
    TOO_LARGE,
    ToWrite,
    UndeliveredError,
    large_records,
    why_not_written,
    write,
)
from muster.edges.kafka import NO_METADATA, GroupOffsets
from muster.edges.kafka_admin import UNREACHABLE, client_config, open_client
from muster.edges.kafka_group import item_to_commit
from muster.edges.state_changelog import BULK, Carried, Landed, write_carried
from muster.settings.connections import KafkaSettings

log = logging.getLogger(__name__)

PARALLEL = 16
"""Partitions that are initialised, and committed, at the same time."""
TRANSACTION_TIMEOUT = 30.0
"""Seconds after which the broker ends a transaction whose owner fell silent; until then only the next owner
learns the partition's committed offset."""

ANSWER_WITHIN = 3.0
"""Seconds to wait for all of a call's partitions; one that takes longer must not hold up the others, and goes on."""

REQUEST_TIMEOUT = 5.0
"""Seconds that a broker has for one answer, at most; librdkafka's default is a minute."""
STUCK_AFTER = 8.0
"""Seconds after which a call counts as stuck: librdkafka (2.16) can wait endlessly in `send_offsets_to_transaction`
when a broker was restarted meanwhile, whatever time-out it is given."""

ABORT_WITHIN = 5.0
"""Seconds from the begin of a transaction for which it may be aborted: its producer is not forgotten so soon."""

CARRY_WITHIN = 20.0
"""Seconds that the changes of one batch may take to be written, within `TRANSACTION_TIMEOUT`."""
SETTLE_WITHIN = 1.0
"""Seconds to wait for a producer's connection to settle, before it is initialised nevertheless."""

SETTLED_AFTER = 2
"""Answers after which a connection has settled: the first is the bootstrap servers', the second a broker's."""

LOST = frozenset(
    {
        confluent_kafka.KafkaError._FENCED,
        confluent_kafka.KafkaError.PRODUCER_FENCED,
        confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
"""What says that another producer has initialised the id since."""
FORGOTTEN = frozenset(
    {
        confluent_kafka.KafkaError.INVALID_PRODUCER_ID_MAPPING,
        confluent_kafka.KafkaError.UNKNOWN_PRODUCER_ID,
    }
)
"""What says that the broker knows the producer no more, nor whether another one has initialised the id since."""


def transactional_id(cluster: str, group_id: str, topic: str, partition: int) -> str:
    """Return the id that fences `partition`. Neither cluster nor topic can hold a slash, so no two are the same."""
    return f"muster/{cluster}/{topic}/{partition}/{group_id}"


class _UnwantedError(Exception):
    """A call was not begun, because nothing wants it any more."""


class _RefusedError(Exception):
    """The broker refuses this producer for good."""


class _Phase(Enum):
    """What the next call to a producer has to be."""

    INITIALISE = auto()
    BEGIN = auto()
    SEND = auto()
    COMMIT = auto()
    ABORT = auto()


@dataclass(eq=False)
class _Fence:
    """The producer of a partition, or of those that share their state. `call` is the only one under way, or one whose
    end was not seen yet."""

    producer: Producer
    topic: str
    phase: _Phase = _Phase.INITIALISE
    sent: Mapping[TopicPartition, int] | None = None
    begun_at: float = 0.0
    """When its last transaction began."""
    call: Future[Mapping[TopicPartition, int] | None] | None = None
    called_at: float = 0.0
    ended_at: float = 0.0
    """When the end of its last call was seen."""
    settled: bool = False
    initialised_at: float = 0.0
    lost: str = ""
    """Why its producer is of no use any more; '' while it is."""
    replaces: bool = False
    """Whether it stands in for a producer that was stuck, so another consumer may have claimed the partition."""
    has_state: bool = False
    landed: Landed | None = None
    """What its last transaction wrote of the partition's state."""

    def end_call(self) -> None:
        """Take note that its last call is over."""
        self.call, self.ended_at = None, time.monotonic()

    @property
    def claims_again(self) -> bool:
        """Whether it is a replacement whose claim was tried, and is to be tried again."""
        return self.replaces and self.phase is _Phase.INITIALISE and self.call is None

    def initialise(self, timeout: float, landed: Callable[[], None] = lambda: None) -> None:
        """Fence off the former owner of the partition. Raises KafkaException; calling again resumes."""
        if self.phase is _Phase.INITIALISE:
            if not self.settled:
                self._settle(min(timeout, SETTLE_WITHIN))
                self.settled = True
            self.producer.init_transactions(timeout)
            landed()
            self.phase, self.initialised_at = _Phase.BEGIN, time.monotonic()

    def _settle(self, timeout: float) -> None:
        """Wait until the producer is past its bootstrap servers.

        librdkafka (2.16) drops the connection to them once it knows the brokers. Where that meets its question for
        the transaction's coordinator, every fifth time or so, it asks again half a second later.
        """
        with suppress(KafkaException):  # the initialisation will say so
            for _ in range(SETTLED_AFTER):
                self.producer.list_topics(self.topic, timeout=timeout)

    def finds_a_broker(self) -> bool:
        """Tell whether a broker answers the producer within a second."""
        try:
            self.producer.list_topics(self.topic, timeout=SETTLE_WITHIN)
        except KafkaException:
            return False
        return True

    def _fail(self, reason: confluent_kafka.KafkaError, timeout: float) -> None:
        """Take note that a call failed, and abort the transaction if it has to be. Raises `_RefusedError` if another
        producer has initialised the id since."""
        if reason.code() in FORGOTTEN:
            self.lost = f"Kafka has forgotten its producer ({reason.str()})"
            return
        if reason.fatal() or reason.code() in LOST:
            raise _RefusedError(_words(reason))
        if self.phase in {_Phase.SEND, _Phase.COMMIT} and (
            reason.txn_requires_abort() or not reason.retriable()
        ):
            self.phase = _Phase.ABORT
        if self.phase is _Phase.ABORT and _is_answer(reason):
            self._abort(timeout)
        if self.has_state and self.phase is not _Phase.COMMIT:
            self.lost = (
                f"its transaction failed ({reason.str()})"  # an aborted one has moved the changelog's end
            )

    def _write(self, letters: Sequence[ToWrite], carried: Carried | None, timeout: float) -> None:
        """Write what goes with offsets in their transaction."""
        if letters or carried:
            self.phase = _Phase.ABORT  # unless all of it works: none must be written twice
        if letters:
            write(self.producer, letters, timeout)
        if carried:
            self.landed = write_carried(self.producer, carried, CARRY_WITHIN)

    def _abort(self, timeout: float) -> None:
        with suppress(KafkaException):
            self.producer.abort_transaction(timeout)
            if time.monotonic() - self.begun_at < ABORT_WITHIN:
                self.phase = _Phase.BEGIN

    def commit(
        self,
        items: Sequence[_TopicPartition],
        group: GroupOffsets,
        timeout: float,
        owned: Owned,
        begin: Begin,
        landed: Claimed,
        letters: Mapping[TopicPartition, Letters] = NO_LETTERS,
        carried: Carried | None = None,
    ) -> Mapping[TopicPartition, int]:
        """Commit, with dead letters if there are some; returns the offsets that are acknowledged, which are earlier
        ones if their end was not seen before.

        Raises `_RefusedError`, or KafkaException, KafkaError or TimeoutError if trying again may help.
        """
        item = items[0]  # of the only partition, or of one with state, whose producer is never replaced
        tp = (item.topic, item.partition)
        if self.phase is _Phase.INITIALISE and not begin(tp):
            raise _RefusedError("it was given up before its producer was replaced")
        try:
            self.initialise(timeout, lambda: landed(tp))
            if self.replaces:
                # A broker that was cut off with this consumer may not know yet that the group is another one's, and
                # tell of old offsets. So the group alone does not show that this consumer still owns the partition.
                _still_owned(owned, tp, self.initialised_at, "its producer was replaced")
                present = group.positions([tp])[tp]
                if why := passed_by(present, Committed(item.offset, item.metadata or "")):
                    raise _RefusedError(why)
                self.replaces = False
                if (
                    letters.get(tp) and present is not None
                ):  # the one that was stuck has written those before it
                    letters = {tp: {at: each for at, each in letters[tp].items() if at >= present.offset}}
                    if present.offset == item.offset:
                        return {tp: present.offset}
            if self.phase is _Phase.BEGIN:
                self.begun_at = time.monotonic()
                self.producer.begin_transaction()
                self.phase = _Phase.SEND
            if self.phase is _Phase.SEND:
                self._write([each for of in letters.values() for each in of.values()], carried, timeout)
                self.producer.send_offsets_to_transaction([*items], group.metadata(), timeout)
                self.sent = {(each.topic, each.partition): each.offset for each in items}
                self.phase = _Phase.COMMIT
            self.producer.commit_transaction(timeout)
        except KafkaException as error:
            self._fail(error.args[0], timeout)
            raise
        finally:
            if self.phase is _Phase.ABORT:
                self.lost = self.lost or "its transaction failed"
        self.phase = _Phase.BEGIN
        assert self.sent is not None  # noqa: S101  set before the phase that led here
        return self.sent


def _too_large(error: KafkaException, letters: Letters) -> int | None:
    """Return the offset of the first record whose letter is too large for its topic, None if none is."""
    failed = error.failed if isinstance(error, UndeliveredError) else ()
    large = [letter for letter, why in failed if why.code() in TOO_LARGE]
    return min((at for at, letter in letters.items() if letter in large), default=None)


class FencedCommits:
    """Commits for a `group` as the newest owner of each partition. Thread-safe; closing waits for nothing.

    Calls return within `ANSWER_WITHIN` seconds; what is not done by then goes on, and asking again takes its end.
    A producer that is stuck or lost is replaced, once it is known that this consumer still owns the partition, and
    the new one commits once that is known again. A partition that is not owned any more is refused. What is refused
    is to be released: until then its replacement may still take effect.

    Raises `KafkaError` for settings that librdkafka refuses, and once `group` is closed.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        cluster: str,
        group: GroupOffsets,
        state: StateTopics = NO_STATE,
    ) -> None:
        self._timeout = settings.operation_timeout
        self._cluster = cluster
        self._state = state
        self._group = group
        self._fences: dict[TopicPartition, _Fence] = {}
        """By the partition that a shard is known by, of those that share their state."""
        self._lock = threading.Lock()
        self._config: dict[str, Any] = client_config(settings, REQUEST_TIMEOUT) | {
            # To ask about a topic that was deleted would make it again, where the broker allows that.
            "allow.auto.create.topics": "false",
            "transaction.timeout.ms": str(round(TRANSACTION_TIMEOUT * 1000)),
            # By default a client without brokers begins again with the bootstrap servers. After that transactions of
            # librdkafka (2.16) never end, their producer cannot be closed, and a thread wakes 900 times a second.
            "metadata.recovery.strategy": "none",
            **large_records(settings),
        }
        self._config.pop("isolation.level", None)  # of consumers only

    def claim(self, partitions: Collection[TopicPartition], begin: Begin = lambda _: True) -> Claims:
        """Fence off the former owners of these partitions, as far as `begin` still wants them at their turn.

        Asking again for one that failed resumes. Asking for one that is claimed begins again. Only of use before the
        group's committed offset is read. A claim that failed may still take effect until it is released.
        """
        shards = self._shards(partitions)
        fences: dict[TopicPartition, _Fence] = {}
        with self._lock:
            for tp in shards:
                fence = self._fences.get(tp)
                if fence is None or fence.phase is not _Phase.INITIALISE or fence.lost:
                    has_state = self._state.has(tp[0])
                    fence = self._fences[tp] = _Fence(self._open(tp), tp[0], has_state=has_state)
                fences[tp] = fence

        def initialise(tp: TopicPartition, fence: _Fence) -> None:
            if not all(begin(each) for each in shards[tp]):
                raise _UnwantedError
            fence.initialise(self._timeout)

        found = self._call({tp: (fence, initialise, (tp, fence)) for tp, fence in fences.items()})
        ends = {each: end for tp, end in found.items() for each in shards[tp]}
        failures: dict[TopicPartition, str] = {}
        for tp, end in ends.items():
            if end is None:
                continue
            if isinstance(end, _UnwantedError):
                self.release([tp])
                continue
            failures[tp] = _why(end)
            reason = end.args[0] if isinstance(end, KafkaException) else None
            if reason is not None and (reason.fatal() or not reason.retriable()):
                self.release([tp])
        return Claims(frozenset(tp for tp, end in ends.items() if end is None), failures)

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        metadata: Mapping[TopicPartition, str] = NO_METADATA,
        letters: Mapping[TopicPartition, Letters] = NO_LETTERS,
        owned: Owned = lambda *_: True,
        begin: Begin = lambda _: True,
        landed: Claimed = lambda _: None,
        carried: Mapping[TopicPartition, Carried] = NOTHING_CARRIED,
    ) -> CommitOutcome:
        """Commit the next offset to read of each partition, each on its own, with its letters. They must be claimed.

        Letters are written if the offset that is `done` is the one that was given with it. Without `owned` what is
        claimed is taken for owned. `begin` and `landed` are for the claims of replacements.
        """
        outcome = CommitOutcome()
        shards = self._shards(offsets)
        fences: dict[TopicPartition, _Fence] = {}
        with self._lock:
            for tp, of_shard in shards.items():
                fence = self._fences.get(tp)
                if fence is None or (fence.phase is _Phase.INITIALISE and not fence.replaces):
                    outcome.refused.update(dict.fromkeys(of_shard, "its claim was given up"))
                    continue
                fences[tp] = fence
        unowned = self._replace_stuck(fences, owned)
        ends = self._call(
            {
                tp: (
                    fence,
                    fence.commit,
                    (
                        [item_to_commit(each, offsets[each], metadata.get(each, "")) for each in shards[tp]],
                        self._group,
                        self._timeout,
                        owned,
                        begin,
                        landed,
                        {each: letters[each] for each in shards[tp] if each in letters},
                        carried.get(tp),
                    ),
                )
                for tp, fence in fences.items()
                if tp not in unowned
            }
        )
        for of, end in (ends | unowned).items():
            if isinstance(end, Mapping) and (written := fences[of].landed) is not None:
                outcome.landed[of] = written
        for tp, end in ((tp, end) for of, end in (ends | unowned).items() for tp in shards[of]):
            if isinstance(end, Mapping):
                outcome.done.update({tp: end[tp]} if tp in end else {})
            elif isinstance(end, _RefusedError):
                outcome.refused[tp] = str(end)
            elif letters.get(tp) and isinstance(end, KafkaException):
                topic = next(iter(letters[tp].values())).topic
                why = why_not_written(topic, end.args[0].code(), _why(end))
                if (at := _too_large(end, letters[tp])) is None:
                    outcome.failed[tp] = why
                else:
                    outcome.too_large[tp] = at, f"{why}, the letter has {letters[tp][at].size} bytes"
            else:
                outcome.failed[tp] = _why(end)
        return outcome

    def _shards(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[TopicPartition]]:
        """Group partitions by the one that their shard is known by."""
        found: dict[TopicPartition, list[TopicPartition]] = {}
        for tp in sorted(partitions):
            found.setdefault(self._state.lead(tp), []).append(tp)
        return found

    def _replace_stuck(
        self, fences: dict[TopicPartition, _Fence], owned: Owned
    ) -> dict[TopicPartition, Exception]:
        """Replace producers that are stuck or lost, also in `fences`; return why not where no owner is confirmed.

        Nor does a replacement whose claim has failed, and perhaps landed, try again before that.
        """
        unowned: dict[TopicPartition, Exception] = {}
        for tp, fence in fences.items():
            under_way = fence.call is not None and not fence.call.done()
            lost = fence.lost and fence.call is None  # else the end of the call that says so is taken first
            if not (_stuck(fence) if under_way else lost or fence.claims_again):
                continue
            if fence.has_state:
                why = "its producer is stuck" if under_way else fence.lost
                unowned[tp] = _RefusedError(f"{why}, and whether its last commit landed is read again")
                continue
            if fence.call is not None and fence.call.cancel():  # it is queued behind others that are stuck
                fence.end_call()
                continue
            if under_way:
                why, since = "its producer is stuck", fence.called_at
            else:  # what was known when its last call began may be long out of date
                since, why = fence.ended_at, fence.lost or "its claim has failed"
            try:
                _still_owned(owned, tp, since, why)
            except (_RefusedError, TimeoutError) as error:
                unowned[tp] = error
                continue
            if fence.phase is _Phase.INITIALISE and (under_way or not fence.lost):
                continue  # it ends in time, or is tried again; until then it may land, also after one in its place
            log.warning("topic %r, partition %d: %s; it is replaced", *tp, why)
            new = _Fence(self._open(tp), tp[0], replaces=True)
            with self._lock:
                if self._fences.get(tp) is fence:  # else it was released, and perhaps claimed again
                    fences[tp] = self._fences[tp] = new
        return unowned

    def release(
        self, partitions: Collection[TopicPartition], ended: Callable[[TopicPartition], None] = lambda _: None
    ) -> None:
        """Give up the producers of these partitions; the consumer that claims them next is not affected.

        `ended` is called for each of them, from a thread of its own, as soon as its last call has ended and its
        producer is gone: from then on nothing of it can take effect.
        """
        with self._lock:
            gone = {tp: self._fences.pop(self._state.lead(tp), None) for tp in partitions}
        # Ending a producer may take a moment, and must not wait for others to begin.
        for tp, fence in gone.items():
            if fence is None:
                ended(tp)
                continue
            threading.Thread(
                target=_end, args=(fence, tp, ended), name="muster-fence-end", daemon=True
            ).start()

    def close(self) -> None:
        """Give up all producers."""
        self.release(list(self._fences))

    def _call(
        self, calls: Mapping[TopicPartition, tuple[_Fence, Callable[..., Any], tuple[Any, ...]]]
    ) -> dict[TopicPartition, Any]:
        """Make these calls, but none beside one under way; what they, or those, returned or raised."""
        work: Calls = queue.SimpleQueue()
        for fence, function, arguments in calls.values():
            if fence.call is None:
                fence.call, fence.called_at = Future(), time.monotonic()
                work.put((fence.call, self._watched, (fence, function, arguments)))
        # Threads of their own rather than a pool's, because one that is stuck must hold up neither those that come
        # later nor the end of the process.
        for _ in range(min(PARALLEL, work.qsize())):
            threading.Thread(target=make_calls, args=(work,), name="muster-fence", daemon=True).start()
        futures = {fence.call for fence, *_ in calls.values() if fence.call is not None}
        concurrent.futures.wait(futures, timeout=min(self._timeout, ANSWER_WITHIN))
        ends: dict[TopicPartition, Any] = {}
        for tp, (fence, *_) in calls.items():
            call = fence.call
            if call is None or call.cancelled() or not call.done():
                ends[tp] = TimeoutError("no answer in time")
                continue
            fence.end_call()
            ends[tp] = call.exception() or call.result()
        return ends

    def _watched(self, fence: _Fence, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Make a call, and note if it failed because the producer is lost.

        One that finds no broker, where others do, never will again (`kafka_admin.RENEW_AFTER`).
        """
        try:
            return function(*arguments)
        except KafkaException as error:
            unreachable = error.args[0].code() in UNREACHABLE and not fence.lost
            if unreachable and not fence.finds_a_broker() and self._group.answers():
                fence.lost = "its producer finds no broker"
            raise

    def _open(self, tp: TopicPartition) -> Producer:
        config = self._config | {
            "transactional.id": transactional_id(self._cluster, self._group.group_id, *tp),
        }
        if self._state.has(tp[0]):
            config |= BULK
        return open_client(Producer, config)


def _still_owned(owned: Owned, tp: TopicPartition, since: float, why: str) -> None:
    """Raise `_RefusedError` if the partition is not owned any more, and TimeoutError while that is not known.

    `why` says to people why that is asked.
    """
    known = owned(tp, since)
    if known is None:
        raise TimeoutError(f"{why}, and it waits until ZooKeeper and Consul confirm the owner")
    if not known:
        raise _RefusedError(f"{why}, and another consumer has the partition now")


def _is_answer(reason: confluent_kafka.KafkaError) -> bool:
    """Tell whether a broker said so. librdkafka's own codes are negative; one of them stands for each record that it
    drops with its transaction, whatever a broker said of that: that it has forgotten the producer, for example."""
    return (reason.code() or 0) > 0


def _stuck(fence: _Fence) -> bool:
    after = TRANSACTION_TIMEOUT if fence.has_state else STUCK_AFTER  # its changes take time to be written
    return time.monotonic() - fence.called_at > after


def _why(end: Any) -> str:
    return _words(end.args[0]) if isinstance(end, KafkaException) else str(end)


def _words(reason: confluent_kafka.KafkaError) -> str:
    """Say what the broker said, and what to do where that is known."""
    if reason.code() in LOST:
        return "another consumer has claimed it since (fenced)"
    if reason.code() == confluent_kafka.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return (
            f"{reason.str()}; allow this user to write and describe transactional ids that begin with 'muster/', "
            "or set 'fencing: false' for the cluster"
        )
    return str(reason.str())


def _end(fence: _Fence, tp: TopicPartition, ended: Callable[[TopicPartition], None]) -> None:
    """Let go of a producer, once its last call has ended; one that is queued is not made any more."""
    if fence.call is not None and not fence.call.cancel():
        concurrent.futures.wait([fence.call])
    del fence.producer
    ended(tp)
