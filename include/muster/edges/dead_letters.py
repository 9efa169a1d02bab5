"""Dead letters: records that a handler cannot take, kept in a topic of their own, and written back from there.

A letter has the key, the value and the headers of its record. More headers behind these say which record it was and
why it is here (`HEADERS`). It is written in the transaction that commits an offset after the record
(`muster.edges.kafka_fencing`), so there is one letter a record.

When a letter is written back, a *mark* goes to the dead-letter topic in the same transaction: an empty record whose
header `muster.replay.of` names the letter. So a letter is written back once, unless a person asks for more.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer
from confluent_kafka import KafkaError as KafkaError_
from confluent_kafka import TopicPartition as _TopicPartition

from muster.core.model import TopicPartition
from muster.edges.kafka import TopicLister
from muster.edges.kafka_admin import (
    Admin,
    Failure,
    KafkaError,
    client_config,
    next_step,
    open_client,
    reader_config,
)
from muster.settings.connections import KafkaSettings

OURS = "muster."
"""What the headers of a letter begin with that are not the record's own."""
HEADERS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "error",
    "attempts",
    "cluster",
    "consumer",
    "by",
)
"""The headers of a letter, after `muster.`, as UTF-8 text. `timestamp` is the record's, in milliseconds since the
epoch."""
REPLAY, REPLAY_OF = "muster.replay", "muster.replay.of"
"""Marks a record that was written back, with the letter that it comes from; and what says so in the dead-letter
topic. Both hold `[TOPIC]/[PARTITION]/[OFFSET]` of the letter."""

LONGEST_ERROR = 1_000
"""Characters of an error in a header."""
TOO_LARGE = frozenset({KafkaError_.MSG_SIZE_TOO_LARGE, KafkaError_.RECORD_LIST_TOO_LARGE})
"""What Kafka answers where a record is too large for its topic."""
LARGEST = 1_000_000_000
"""Bytes of the largest record that librdkafka writes; Kafka's brokers take less."""
LONGEST_RECEIVED = 2_147_483_647
TRANSACTION_TIMEOUT = 60.0
"""Seconds that one transaction of a replay may take."""
GIVE_UP_WITHIN = 1.0
"""Seconds that one call to abort a transaction waits."""
AT_A_TIME = 0.1
"""Seconds after which it is seen that a record was refused."""
TOPIC_CONFIG = {"cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": str(LARGEST)}
"""How a dead-letter topic is made: a letter stays until a person removes it, and any record fits."""

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Record:
    """A record in Kafka. `timestamp` is in milliseconds since the epoch, None without one."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @classmethod
    def of(cls, message: Message) -> Record:
        """Take a message of confluent-kafka."""
        kind, moment = message.timestamp()
        return cls(
            str(message.topic()),
            int(message.partition() or 0),
            int(message.offset() or 0),
            moment if kind else None,
            message.key(),
            message.value(),
            tuple(cast("Headers", message.headers() or ())),
        )

    def said(self, name: str) -> str:
        """Return the text of the header `muster.[name]`, '' without one."""
        value = dict(self.headers[self._own :]).get(OURS + name)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""

    @property
    def own_headers(self) -> Headers:
        """The headers before those of a letter, whatever their names are."""
        return self.headers[: self._own]

    @property
    def _own(self) -> int:
        first = OURS + HEADERS[0]
        return max(
            (at for at, (name, _) in enumerate(self.headers) if name == first), default=len(self.headers)
        )

    @property
    def size(self) -> int:
        """The bytes of key, value and own headers."""
        return _size(self.key, self.value, self.own_headers)

    @property
    def mark_of(self) -> str:
        """The place of the letter that was written back, if this is the mark of that, otherwise ''."""
        if self.key is self.value is None and [name for name, _ in self.headers] == [REPLAY_OF]:
            return (self.headers[0][1] or b"").decode("utf-8", "replace")
        return ""

    @property
    def place(self) -> str:
        """`[TOPIC]/[PARTITION]/[OFFSET]`."""
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class ToWrite:
    """A record to be written to `topic`."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None

    @property
    def size(self) -> int:
        """Its bytes."""
        return _size(self.key, self.value, self.headers)


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    parts = (key, value, *(part for name, held in headers for part in (name.encode(), held)))
    return sum(len(part or b"") for part in parts)


def letter(record: Record, topic: str, said: Mapping[str, object]) -> ToWrite:
    """Make the letter of a record for `topic`. `said` has those of `HEADERS` that the record itself does not tell."""
    about = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": "" if record.timestamp is None else record.timestamp,
        **said,
    }
    ours = [(OURS + name, str(about.get(name, ""))[:LONGEST_ERROR].encode()) for name in HEADERS]
    return ToWrite(topic, record.key, record.value, (*_without_replay(record.headers), *ours))


def _without_replay(headers: Headers) -> Headers:
    """Return the headers that a record had before it was written back, if it was."""
    return headers[:-1] if headers and headers[-1][0] == REPLAY else headers


class DeadLetterTopic:
    """The topic `name` at `settings`. Raises `KafkaError` naming the topic and the next step."""

    def __init__(self, settings: KafkaSettings, name: str) -> None:
        self.name = name
        self._settings = settings
        self._there = False

    def ensure(self) -> None:
        """Make the topic, unless it is there."""
        if self._there:
            return
        admin = Admin(self._settings)
        try:
            if self.name in TopicLister(self._settings, admin).identities({self.name}).absent:
                admin.make_topic(self.name, 1, TOPIC_CONFIG, f"the dead-letter topic {self.name!r}")
        finally:
            admin.close()
        self._there = True

    def doubt(self) -> None:
        """Look again whether it is there."""
        self._there = False


def why_not_written(topic: str, code: int | None, why: str) -> str:
    """Say what keeps a letter from `topic`, and what to do."""
    step = "check that the topic exists and takes records of this size"
    if code in TOO_LARGE:
        step = f"raise max.message.bytes of topic {topic!r}"
    elif code == KafkaError_.TOPIC_AUTHORIZATION_FAILED:
        step = f"allow this user to write to topic {topic!r}"
    return f"the dead letter could not be written to topic {topic!r}: {why}; {step}"


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter as it lies in the dead-letter topic, and whether it was `replayed` already."""

    record: Record
    replayed: bool = False

    @property
    def origin(self) -> TopicPartition | None:
        """Where its record came from; None for a record of the dead-letter topic that is no letter."""
        said = self.record.said
        numbers = said("partition"), said("offset")
        return (
            (said("topic"), int(numbers[0])) if said("topic") and all(map(str.isdecimal, numbers)) else None
        )

    @property
    def at(self) -> float:
        """When it was written, in seconds since the epoch; 0 if that is unknown."""
        return (self.record.timestamp or 0) / 1000


def read_letters(settings: KafkaSettings, topic: str, group_id: str) -> Iterator[Letter]:
    """Read all letters of the dead-letter topic, and records that are none, oldest first in each partition, up to
    where it ends now; nothing if there is no such topic.

    Marks of replays are read first, so the topic is read twice. Raises `KafkaError`.
    """
    replayed = {record.mark_of for record in _records(settings, topic, group_id)} - {""}
    for record in _records(settings, topic, group_id):
        if not record.mark_of:
            yield Letter(record, record.place in replayed)


class Replay:
    """Writes letters back. A replay of the cluster that begins later fences this one off. Raises `KafkaError`.

    To be made before the letters are read: what another one had under way is over then.
    """

    def __init__(self, settings: KafkaSettings, cluster: str) -> None:
        self._settings = settings
        config: dict[str, Any] = client_config(settings) | {
            "transactional.id": f"muster/{cluster}/deadletters",
            "transaction.timeout.ms": str(round(TRANSACTION_TIMEOUT * 1000)),
            **large_records(settings),
        }
        config.pop("isolation.level", None)  # of consumers only
        self._producer = open_client(Producer, config)
        self._ask("preparing a replay", self._producer.init_transactions, settings.operation_timeout)

    def write(self, letters: Iterable[Letter], to: str | None = None) -> dict[str, str]:
        """Write letters back in one transaction, with their marks: all of them, or none. Returns why Kafka refuses
        some for good, by their places; the transaction is of the others.

        They go to topic `to`, by their keys, or each to the topic and partition that it came from.
        """
        refused: dict[str, str] = {}
        left = {letter.record.place: _back(letter.record, to) for letter in letters}
        while left:
            try:
                self._write([each for pair in left.values() for each in pair])
            except UndeliveredError as error:
                whys = {id(record): _refusal(record, reason) for record, reason in error.failed}
                found = {place: whys[id(back)] for place, (back, _) in left.items() if whys.get(id(back))}
                if not found:
                    raise self._error("writing letters back", error) from error
                refused |= found
                left = {place: pair for place, pair in left.items() if place not in found}
            except KafkaException as error:
                raise self._error("writing letters back", error) from error
            else:
                break
        return refused

    def _write(self, records: Collection[ToWrite]) -> None:
        try:
            self._producer.begin_transaction()
            write(self._producer, records, TRANSACTION_TIMEOUT)
            self._producer.commit_transaction(TRANSACTION_TIMEOUT)
        except KafkaException as error:
            if not error.args[0].fatal():
                self._give_up()
            raise

    def _give_up(self) -> None:
        """Abort the transaction. A call takes back what is not sent by then, and waits for the rest; what the broker
        refuses meanwhile, because of what it has refused before, only the next call takes back."""
        deadline = time.monotonic() + TRANSACTION_TIMEOUT
        while True:
            try:
                return self._producer.abort_transaction(GIVE_UP_WITHIN)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise self._error("giving up a replay", error) from error

    def _ask(self, what: str, call: Any, timeout: float) -> None:
        try:
            call(timeout)
        except KafkaException as error:
            raise self._error(what, error) from error

    def _error(self, what: str, error: KafkaException) -> KafkaError:
        text = Failure.of(error).text
        return KafkaError(
            f"Kafka at {self._settings.bootstrap_servers}: {what}: {text}; nothing of this transaction was written; "
            f"{next_step(self._settings.config, text)}"
        )


class UndeliveredError(KafkaException):
    """The brokers did not take records: those that `failed`, each with the reason. The error's own is the first that
    a broker gave, if one did."""

    def __init__(self, failed: Sequence[tuple[ToWrite, KafkaError_]]) -> None:
        super().__init__(next((reason for _, reason in failed if reason.code() > 0), failed[0][1]))
        self.failed = failed


def write(producer: Producer, records: Iterable[ToWrite], timeout: float) -> None:
    """Write in the producer's transaction; return when the brokers have all. Raises KafkaException."""
    failed: list[tuple[ToWrite, KafkaError_]] = []

    def delivered(record: ToWrite, error: KafkaError_ | None, _message: object) -> None:
        if error is not None:
            failed.append((record, error))

    for each in records:
        where = {} if each.partition is None else {"partition": each.partition}
        producer.produce(
            each.topic,
            value=each.value,
            key=each.key,
            headers=list(each.headers),
            on_delivery=partial(delivered, each),
            **where,  # type: ignore[arg-type]
        )
    deadline = time.monotonic() + timeout
    try:
        # After a refusal nothing more is sent until the transaction is aborted.
        while (left := producer.flush(AT_A_TIME)) and not failed and time.monotonic() < deadline:
            pass
    except SystemError as error:  # `delivered` was called while a fatal error was raised, of which this comes
        raise error.__cause__ or error from None
    if failed:
        raise UndeliveredError(failed)
    if left:
        raise KafkaException(KafkaError_(KafkaError_._TIMED_OUT, "no answer in time"))


def large_records(settings: KafkaSettings) -> dict[str, str]:
    """Return what lets a producer write whatever record Kafka took before, each in a batch of its own: Kafka's limit
    is one of batches, and its refusal names the record then."""
    return {
        "batch.num.messages": "1",
        "compression.type": settings.config.get("compression.type", "zstd"),
        "message.max.bytes": str(LARGEST),
    }


def _refusal(record: ToWrite, error: KafkaError_) -> str:
    """Say why Kafka refuses a record for good, '' if it may take that later."""
    if error.code() in TOO_LARGE:
        return f"larger than max.message.bytes of topic {record.topic!r} allows"
    if error.code() == KafkaError_.INVALID_RECORD:
        return f"refused by topic {record.topic!r}: {error.str()}"
    return ""


def _back(record: Record, to: str | None) -> tuple[ToWrite, ToWrite]:
    """Return a record as it was, and the mark of its letter."""
    headers = (*record.own_headers, (REPLAY, record.place.encode()))
    topic, partition = (to, None) if to is not None else (record.said("topic"), int(record.said("partition")))
    mark = ToWrite(record.topic, None, None, ((REPLAY_OF, record.place.encode()),))
    return ToWrite(topic, record.key, record.value, headers, partition), mark


@dataclass(frozen=True, slots=True)
class Takes:
    """What a topic takes: batches of records of at most `largest` bytes, and, if it is `compacted`, none without a
    key."""

    largest: int
    compacted: bool


def what_takes(settings: KafkaSettings, topic: str) -> Takes | None:
    """Return what a topic takes; None where this user may not read its configuration. Raises `KafkaError`."""
    with closing(Admin(settings)) as admin:
        config = TopicLister(settings, admin).configuration([topic]).get(topic)
    if config is None:
        return None
    policy = config.get("cleanup.policy") or ""
    return Takes(int(config.get("max.message.bytes") or LARGEST), "compact" in policy)


def list_topics(settings: KafkaSettings) -> dict[str, frozenset[int]]:
    """Return the topics that may be seen, with their partitions. Raises `KafkaError`."""
    with closing(Admin(settings)) as admin:
        return TopicLister(settings, admin).list_partitions()


@contextmanager
def open_reader(
    settings: KafkaSettings, group_id: str, more: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Consumer]:
    """Give a consumer of single partitions with the rights of `group_id`. Raises `KafkaError`."""
    consumer = open_client(
        Consumer,
        reader_config(settings, group_id)
        | {
            "queued.min.messages": "1",
            "receive.message.max.bytes": str(LONGEST_RECEIVED),
            **more,
        },
    )
    try:
        yield consumer
    finally:
        consumer.close()


def _records(settings: KafkaSettings, topic: str, group_id: str) -> Iterator[Record]:
    """Yield all records of a topic up to where each partition ends when it is reached."""
    partitions = list_topics(settings).get(topic, frozenset())
    if not partitions:
        return
    # What follows a record, and the end, is asked for at once, not a second later, and answered at once.
    with open_reader(
        settings, group_id, {"fetch.queue.backoff.ms": "10", "fetch.wait.max.ms": "50"}
    ) as consumer:
        left = set(partitions)
        consumer.assign([_TopicPartition(topic, number, OFFSET_BEGINNING) for number in left])
        heard = time.monotonic()
        while left:
            message = consumer.poll(1.0)
            if message is None:
                if time.monotonic() - heard > settings.operation_timeout:
                    raise KafkaError(
                        f"Kafka at {settings.bootstrap_servers}: reading topic {topic!r}: no answer in time; "
                        f"{next_step(settings.config, '')}"
                    )
                continue
            heard = time.monotonic()
            error = message.error()
            if error is None:
                yield Record.of(message)
            elif error.code() == KafkaError_._PARTITION_EOF:
                left.discard(int(message.partition() or 0))
            else:
                text = Failure.of(error).text
                raise KafkaError(
                    f"Kafka at {settings.bootstrap_servers}: reading topic {topic!r}: {text}; "
                    f"{next_step(settings.config, text)}"
                )
