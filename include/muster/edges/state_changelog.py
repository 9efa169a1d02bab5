"""The changelog of a topic's state by key: a compacted topic with one partition for each of the topic's own.

The changes of a batch, then the position, then the output are written in the transaction that commits the offset
(`muster.edges.kafka_fencing`). The transaction is given up if the changelog did not end where its owner left it:
then it was truncated, or another program writes to it.

Kafka stamps the records of the changelog with the broker's time, which is what the owners take the processing time
from.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicCollection
from confluent_kafka import KafkaError as KafkaError_
from confluent_kafka import TopicPartition as _TopicPartition
from confluent_kafka.admin import AclOperation, ConfigResource  # type: ignore[attr-defined]  # exported, not by name

from muster.core.model import TopicPartition
from muster.core.state_topics import not_co_partitioned
from muster.edges.dead_letters import ToWrite
from muster.edges.kafka import TopicLister
from muster.edges.kafka_admin import GRACE, Admin, Failure, KafkaError, next_step, open_client, reader_config
from muster.settings.connections import KafkaSettings

KEPT_DELETIONS = 86_400_000
"""Milliseconds for which Kafka keeps what says that a key was deleted, at least."""
LARGEST_BATCH = 1_000_000
"""Bytes of records that are written at once; `max.message.bytes` of the changelog has to allow them."""
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    "delete.retention.ms": str(KEPT_DELETIONS),
    "min.cleanable.dirty.ratio": "0.3",
    "segment.bytes": str(100 * 1024 * 1024),
    "max.message.bytes": "1048588",
}
"""How a changelog is made."""
BULK = {
    "batch.num.messages": "100000",
    "batch.size": str(LARGEST_BATCH),
    "linger.ms": "5",
    "compression.type": "lz4",
    "queue.buffering.max.messages": "2000000",
    "queue.buffering.max.kbytes": "2097151",
}
"""What makes a producer write many small records quickly."""
RIGHTS = {AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS}
"""What an owner does with its changelog, once that is there."""
TAKEN = 2_000
"""Records that are taken from librdkafka at once: as few as the processor's caches hold."""
AT_ONCE, BYTES_AT_ONCE, SECONDS_AT_ONCE = 100_000, 1 << 25, 1.0
"""Records of a changelog that are given at once, about, their bytes, and the seconds until they came."""
LONGEST_NAME = 249


def changelog_topic(cluster: str, topic: str) -> str:
    """Return the name of a topic's changelog. No pattern covers it, as it begins with `__`."""
    return f"__muster.state.{cluster}.{topic}"


@dataclass(frozen=True, eq=False, slots=True)
class Carried:
    """What a partition's transaction holds besides its offset: changes and position for partition `partition` of the
    changelog `topic`, which has to end at `end`, and records for other topics."""

    topic: str
    partition: int
    end: int
    number: int
    """Which of the shard's commits this is."""
    rebuild: int
    """The number of the rebuild that its state belongs to."""
    position: tuple[bytes, bytes]
    keys: Sequence[bytes] = ()
    values: Sequence[bytes | None] = ()
    output: Sequence[ToWrite] = field(default=())
    of: Any = None
    """What the caller knows it by."""


@dataclass(frozen=True, eq=False, slots=True)
class Landed:
    """What a transaction wrote: where the changelog ends now, and the broker's time, in milliseconds."""

    carried: Carried
    end: int
    at: int


class WrongEndError(KafkaException):
    """The changelog did not end where its owner left it."""


def write_carried(producer: Producer, carried: Carried, timeout: float) -> Landed:
    """Write in the producer's transaction; return when the brokers have all. Raises KafkaException."""
    last: list[Message] = []
    failed: list[KafkaError_] = []

    def noted(error: KafkaError_ | None, message: Message) -> None:
        if error is not None:
            failed.append(KafkaError_(error.code(), f"topic {message.topic()!r}: {error.str()}"))

    def delivered(error: KafkaError_ | None, message: Message) -> None:
        noted(error, message)
        last.append(message)

    until = time.monotonic() + timeout
    topic, partition = carried.topic, carried.partition
    for key, value in zip(carried.keys, carried.values, strict=True):
        _produce(producer, until, topic, value, key, partition)  # one that fails fails the transaction
    key, value = carried.position
    _produce(producer, until, topic, value, key, partition, on_delivery=delivered)
    for each in carried.output:
        where = {} if each.partition is None else {"partition": each.partition}
        headers = list(each.headers)
        _produce(
            producer, until, each.topic, each.value, each.key, headers=headers, on_delivery=noted, **where
        )
    try:
        left = producer.flush(timeout)
    except SystemError as error:  # a callback was called while a fatal error was raised, of which this comes
        raise error.__cause__ or error from None
    if failed:
        raise KafkaException(failed[0])
    if left or not last:
        raise KafkaException(KafkaError_(KafkaError_._TIMED_OUT, "no answer in time"))
    at = last[0].offset() or 0
    if at != carried.end + len(carried.keys):
        raise WrongEndError(
            KafkaError_(
                KafkaError_._STATE,
                f"the changelog {topic!r}, partition {partition}, did not end at {carried.end}, but at "
                f"{at - len(carried.keys)}: it was truncated, or another program writes to it",
            )
        )
    return Landed(carried, at + 2, int(last[0].timestamp()[1]))  # one more for the transaction's marker


def _produce(producer: Producer, until: float, *record: Any, **more: Any) -> None:
    """Hand a record to librdkafka, which has room for so many bytes at a time."""
    while True:
        try:
            producer.produce(*record, **more)
        except BufferError:
            if time.monotonic() > until:
                raise KafkaException(KafkaError_(KafkaError_._TIMED_OUT, "no answer in time")) from None
            producer.poll(0.05)
        else:
            return


class ChangelogTopic:
    """The changelog of `topics`, which share their state, at `settings`; it has the name of the first. Raises
    `KafkaError` naming the topic and the next step."""

    def __init__(self, settings: KafkaSettings, cluster: str, topics: Sequence[str]) -> None:
        self.name = changelog_topic(cluster, topics[0])
        self.partitions = 0
        """Those of the topic, once `ensure` has looked."""
        self._settings = settings
        self._topic = topics[0]
        self._topics = topics

    def ensure(self) -> str:
        """Make it unless it is there, check it, and return its id."""
        if len(self.name) > LONGEST_NAME:
            raise self._error(
                f"its name has more than {LONGEST_NAME} characters; give the cluster a shorter one"
            )
        with closing(Admin(self._settings)) as admin:
            lister = TopicLister(self._settings, admin)
            found = lister.identities({self.name, *self._topics})
            there = lister.list_partitions()
            wanted = self._wanted(there)
            if self.name in found.absent:
                admin.make_topic(self.name, wanted, TOPIC_CONFIG, f"changelog {self.name!r}: it")
                found = lister.identities({self.name})
            else:
                self._compare(len(there.get(self.name, ())), wanted)
            self._check(admin)
        self.partitions = wanted
        return found.ids.get(self.name, "")

    def examine(self, listed: Mapping[str, Collection[int]]) -> list[str]:
        """Return what is wrong with it, each with the next step; nothing is made. `listed` are the partitions of the
        topics that this user may see."""
        try:
            wanted = self._wanted(listed)
        except KafkaError as error:
            return [str(error)]
        with closing(Admin(self._settings)) as admin:
            if self.name not in listed:
                try:
                    hidden = not admin.make_topic(
                        self.name, wanted, TOPIC_CONFIG, f"changelog {self.name!r}: it", validate_only=True
                    )
                except KafkaError as error:
                    return [f"{error}; if it is there, allow this user Describe on it"]
                wrong = "it is there, and this user may not see it; allow it Describe on the topic"
                return [str(self._error(wrong))] if hidden else []
            found: list[str] = []
            checks: tuple[Callable[[], None], ...] = (
                lambda: self._compare(len(listed[self.name]), wanted),
                lambda: self._check(admin),
                lambda: self._check_rights(admin),
            )
            for check in checks:
                try:
                    check()
                except KafkaError as error:
                    found.append(str(error))
            return found

    def _wanted(self, listed: Mapping[str, Collection[int]]) -> int:
        """Return how many partitions each of the topics has. Raises `KafkaError` unless they are co-partitioned."""
        counts = {topic: len(listed.get(topic, ())) for topic in self._topics}
        for topic, count in counts.items():
            if not count:
                raise self._error(f"topic {topic!r} is not there")
        if len({*counts.values()}) > 1:
            raise self._error(not_co_partitioned(counts))
        return counts[self._topic]

    def _compare(self, has: int, wanted: int) -> None:
        if has != wanted:
            raise self._error(
                f"it has {has} partitions, and topic {self._topic!r} has {wanted}: records of a key may be "
                "in another partition now than its state. Have the records go to a new topic with as many partitions "
                "as are needed, or delete the changelog and seek all partitions with '--state=rebuild', which begins "
                "with empty state"
            )

    def _check_rights(self, admin: Admin) -> None:
        """Raise `KafkaError` if this user may not do all that an owner does, or if the changelog has fewer replicas
        than its topic."""
        asked = admin.client.describe_topics(
            TopicCollection([self.name, self._topic]),
            request_timeout=admin.timeout,
            include_authorized_operations=True,
        )
        try:
            own, of = (asked[name].result(admin.timeout + GRACE) for name in (self.name, self._topic))
        except (KafkaException, concurrent.futures.TimeoutError) as error:
            raise self._error(f"it cannot be described: {Failure.of(error).text}") from error
        if missing := sorted(each.name for each in RIGHTS - {*(own.authorized_operations or RIGHTS)}):
            raise self._error(
                f"this user lacks the rights {', '.join(missing)}; give them, as docs/security.md has it"
            )
        replicas, of_topic = (min(len(each.replicas) for each in one.partitions) for one in (own, of))
        if replicas < of_topic:
            raise self._error(
                f"it has {replicas} replica(s), and topic {self._topic!r} has {of_topic}, so the state is lost more "
                "easily than its records; add replicas with 'kafka-reassign-partitions.sh'"
            )

    def _check(self, admin: Admin) -> None:
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name)
        try:
            asked = admin.client.describe_configs([resource], request_timeout=admin.timeout)
            found = {
                key: str(entry.value) for key, entry in asked[resource].result(admin.timeout + GRACE).items()
            }
        except (KafkaException, concurrent.futures.TimeoutError) as error:
            raise self._error(
                f"its configuration cannot be read: {Failure.of(error).text}; allow this user to describe "
                "the topic's configuration"
            ) from error
        wrong = {}
        for key in ("cleanup.policy", "message.timestamp.type"):
            if found.get(key) != TOPIC_CONFIG[key]:
                wrong[key] = TOPIC_CONFIG[key]
        for key, least in (("delete.retention.ms", KEPT_DELETIONS), ("max.message.bytes", LARGEST_BATCH)):
            if int(found.get(key, least)) < least:
                wrong[key] = TOPIC_CONFIG[key]
        if wrong:
            config = ",".join(f"{key}={value}" for key, value in wrong.items())
            has = ", ".join(f"{key}={found.get(key)}" for key in wrong)
            raise self._error(
                f"it has {has}; set it with 'kafka-configs.sh --alter --entity-type topics --entity-name {self.name} "
                f"--add-config {config}'"
            )

    def _error(self, what: str) -> KafkaError:
        return KafkaError(f"Kafka at {self._settings.bootstrap_servers}: changelog {self.name!r}: {what}")


def last_value(
    settings: KafkaSettings, group_id: str, topic: str, partition: int, key: bytes
) -> bytes | None:
    """Return the newest value of a key in one partition of a changelog, None without one. Raises `KafkaError`."""
    with closing(ChangelogReader(settings, group_id, topic, partition)) as reader:
        for back in (1_000, 100_000, reader.end):
            reads = reader.read(max(0, reader.end - back))
            values = [value for read in reads for name, value in read.records if name == key]
            if values:
                return values[-1]
    return None


@dataclass(frozen=True, slots=True)
class Read:
    """Records of a changelog in order, the offset after them, and that of the last one, -1 without records."""

    records: list[tuple[bytes, bytes | None]]
    upto: int
    last: int = -1


class ChangelogReader:
    """Reads one partition of a changelog from `begin` to where it ends now (`end`). Raises `KafkaError`.

    To be opened once the partition is claimed: from then on no other transaction can land.
    """

    def __init__(self, settings: KafkaSettings, group_id: str, topic: str, partition: int) -> None:
        self._settings = settings
        self.topic = topic
        self.where = (
            f"Kafka at {settings.bootstrap_servers}: reading changelog {topic!r}, partition {partition}"
        )
        self._place = (topic, partition)
        self._consumer = open_client(
            Consumer,
            reader_config(settings, group_id)
            | {
                "isolation.level": "read_committed",
                "queued.min.messages": "500000",
                "queued.max.messages.kbytes": "131072",
                "fetch.message.max.bytes": "8388608",
                "fetch.wait.max.ms": "50",
            },
        )
        try:
            self.begin, self.end = bounds(self._consumer, self._place, settings.operation_timeout)
        except KafkaException as error:
            self._consumer.close()
            raise self._error(error) from error

    def read(self, begin: int, wanted: Callable[[], bool] = lambda: True) -> Iterator[Read]:
        """Yield all from `begin` on, as long as it is `wanted`."""
        at = max(begin, self.begin)
        if at >= self.end:
            return
        self._consumer.assign([_TopicPartition(*self._place, at)])
        heard = given = time.monotonic()
        records: list[tuple[bytes, bytes | None]] = []
        size, last = 0, -1
        while at < self.end and wanted():
            messages = self._consumer.consume(TAKEN, 0.2)
            now = time.monotonic()
            if messages:
                good = [one for one in messages if one.error() is None]
                taken = [(one.key() or b"", one.value()) for one in good]
                last = (good[-1].offset() or 0) if good else last
                heard, at = now, self._after(messages, len(taken) < len(messages), at)
                size += sum([len(key) + len(value or b"") for key, value in taken])
                records += taken
            enough = len(records) >= AT_ONCE or size >= BYTES_AT_ONCE or now - given > SECONDS_AT_ONCE
            if (records and enough) or at >= self.end:
                yield Read(records, at, last)
                records, size, last = [], 0, -1
                heard = given = time.monotonic()
            elif now - heard > self._settings.operation_timeout:
                raise self._error(KafkaError_(KafkaError_._TIMED_OUT, "no answer in time"))

    def _after(self, messages: Sequence[Message], with_errors: bool, at: int) -> int:
        """Return the offset after `messages`, which follow `at`. Raises `KafkaError` for what failed."""
        for one in messages if with_errors else ():
            if (error := one.error()) is not None and error.code() != KafkaError_._PARTITION_EOF:
                raise self._error(error)
        last = messages[-1]
        return max(at, (last.offset() or 0) + (last.error() is None))

    def close(self) -> None:
        """Let go of the connections."""
        self._consumer.close()

    def _error(self, error: KafkaException | KafkaError_) -> KafkaError:
        return read_error(self._settings, self.where, self.topic, error)


def bounds(consumer: Consumer, place: TopicPartition, timeout: float) -> tuple[int, int]:
    """Return where a partition begins and ends now. Raises `KafkaException`."""
    found = consumer.get_watermark_offsets(_TopicPartition(*place), timeout)
    if found is None:
        raise KafkaException(KafkaError_(KafkaError_._TIMED_OUT, "no answer in time"))
    return found


def read_error(
    settings: KafkaSettings, doing: str, topic: str, error: KafkaException | KafkaError_
) -> KafkaError:
    """Say what failed while `doing` something with a changelog, and what to do."""
    text = Failure.of(error).text
    step = next_step(settings.config, text)
    if "topic authorization failed" in text.lower():
        step = f"allow this user Read and Describe on topic {topic!r}"
    return KafkaError(f"{doing}: {text}; {step}")
