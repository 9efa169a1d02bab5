"""Kafka for those who do not consume: which partitions there are, where they begin and end, what a group committed.

Offsets are committed for a group without being a member of it, which Kafka allows as long as the group has none;
Muster's groups never have any. Kafka forgets a committed offset that was not written for the broker's
`offsets.retention.minutes` (7 days), also of a partition that is idle and assigned: consumers commit what they hold
once a day (`muster.core.ownership`).
"""

from __future__ import annotations

import base64
import concurrent.futures
import logging
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, Uuid
from confluent_kafka import KafkaError as KafkaError_
from confluent_kafka import TopicPartition as _TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, though not by name
    ConfigResource,
    OffsetSpec,
)

from muster.core.model import TopicPartition
from muster.core.offsets import Retention
from muster.core.positions import Committed, parse_stamp
from muster.core.seeking import Bounds
from muster.edges.kafka_admin import (
    GRACE,
    SILENCE,
    UNREACHABLE,
    Admin,
    Failure,
    KafkaError,
    PartitionError,
    librdkafka_logger,
    name_partitions,
)
from muster.edges.kafka_group import GroupClient
from muster.settings.connections import KafkaSettings

__all__ = [
    "GroupMember",
    "GroupOffsets",
    "Identities",
    "KafkaError",
    "PartitionError",
    "TopicGroups",
    "TopicLister",
    "TopicListing",
    "librdkafka_logger",
]

NO_OFFSET = -1
"""Kafka's answer where no record is of the moment asked for, or later."""
NO_METADATA: Mapping[TopicPartition, str] = MappingProxyType({})

T = TypeVar("T")
_Found = dict[TopicPartition, T | Failure]

NO_LEADERS = KafkaError_._NOENT
"""librdkafka's code for partitions that no broker leads: the topic is new, or unknown, or no broker answers."""
STALE = frozenset(
    {
        NO_LEADERS,
        KafkaError_.NOT_LEADER_FOR_PARTITION,
        KafkaError_.FENCED_LEADER_EPOCH,
        KafkaError_.UNKNOWN_LEADER_EPOCH,
        KafkaError_._UNKNOWN_PARTITION,
    }
)
"""Errors after which the leaders must be asked for again. librdkafka (2.16) does not do so by itself for an admin
client: after a broker's restart it would go on asking with the old leader epoch, and be refused, without end; and a
partition that was added, asked for together with one that it knows, would be unknown to it for minutes."""
PASSING = STALE | frozenset(
    {
        KafkaError_.LEADER_NOT_AVAILABLE,
        KafkaError_.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError_.COORDINATOR_NOT_AVAILABLE,
        KafkaError_.NOT_COORDINATOR,
        KafkaError_.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Errors of a partition that pass by themselves."""
DENIED = frozenset({KafkaError_.GROUP_AUTHORIZATION_FAILED, KafkaError_.TOPIC_AUTHORIZATION_FAILED})
NOT_SEEN = frozenset(
    {
        KafkaError_.TOPIC_AUTHORIZATION_FAILED,
        KafkaError_.LEADER_NOT_AVAILABLE,
        KafkaError_.TOPIC_EXCEPTION,
    }
)
"""Answers about one topic, after which other topics can still be answered."""
PATIENCE = 1.0
"""Seconds for which what passes is asked for again. Not longer: others wait for the same answer."""
HALVE_WITHIN = 8.0
"""Seconds to find the partitions whose committed offsets a transaction holds."""
HELD = Failure(KafkaError_.UNSTABLE_OFFSET_COMMIT, "a transaction that has not ended holds its offset")
FIRST_PAUSE = 0.05
LEADER_WITHIN = 3.0
"""Seconds that the leaders of partitions have to say where they begin and end. One that is dead or cut off keeps the
answers of all others waiting."""

log = logging.getLogger(__name__)


def topic_id_text(topic_id: Uuid) -> str:
    """Return a topic's id as Kafka's own tools print it, '' for the id of no topic.

    librdkafka's text (2.16) is in the alphabet of base64 that has '+' and '/', Kafka's in the one for URLs.
    """
    bits = struct.pack(
        ">qq",
        topic_id.get_most_significant_bits(),  # type: ignore[attr-defined]  # missing in the package's stubs
        topic_id.get_least_significant_bits(),  # type: ignore[attr-defined]  # the same
    )
    return base64.urlsafe_b64encode(bits).decode().rstrip("=") if any(bits) else ""


@dataclass(frozen=True)
class TopicListing:
    """The partitions of every topic, and what Kafka said of topics whose partitions it could not tell."""

    partitions: dict[str, frozenset[int]]
    errors: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Identities:
    """The ids of topics, and those that Kafka says it does not have; a topic in neither it does not tell of."""

    ids: dict[str, str] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()


class TopicLister:
    """Lists the topics of a Kafka cluster. Calls end within `operation_timeout` seconds or raise `KafkaError`.

    With `admin` it uses that client's connections.
    """

    def __init__(self, settings: KafkaSettings, admin: Admin | None = None) -> None:
        self._admin = admin or Admin(settings)

    def list_partitions(self) -> dict[str, frozenset[int]]:
        """List every topic that may be seen, with its partitions, from one metadata request.

        A topic whose partitions Kafka cannot tell now is left out, with a warning; its absence does not mean that
        it was deleted. `list_topics` tells the two apart.
        """
        listing = self.list_topics()
        for topic, why in listing.errors.items():
            log.warning("topic %s is left out for now: Kafka at %s says: %s", topic, self._admin.servers, why)
        return listing.partitions

    def list_topics(self) -> TopicListing:
        """List as `list_partitions` does, with the topics in error beside the others."""
        try:
            found = self._admin.client.list_topics(timeout=self._admin.timeout).topics
        except KafkaException as error:
            raise self._admin.error("listing topics", Failure.of(error)) from error
        return TopicListing(
            {name: frozenset(topic.partitions) for name, topic in found.items() if topic.error is None},
            {name: topic.error.str() for name, topic in found.items() if topic.error is not None},
        )

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return Kafka's id of each of `topics`, as its own tools print it.

        A topic that is not in Kafka, may not be seen or has no id (brokers before 2.8) is left out. Costs some 20 us
        of CPU for each partition of these topics, seven times as much as listing them (confluent-kafka 2.16): with
        many partitions, ask for some at a time.
        """
        return self.identities(topics).ids

    def identities(self, topics: Collection[str]) -> Identities:
        """Return what `topic_ids` does, with the topics that are not in Kafka beside the others."""
        what = "asking for the ids of topics"
        names = sorted(set(topics))
        if not names:
            return Identities()
        ids: dict[str, str] = {}
        absent: set[str] = set()
        try:
            asked = self._admin.client.describe_topics(
                TopicCollection(names), request_timeout=self._admin.timeout
            )
            for topic, future in asked.items():
                try:
                    ids[topic] = topic_id_text(future.result(self._admin.timeout + GRACE).topic_id)
                except KafkaException as error:
                    failure = Failure.of(error)
                    if failure.code == KafkaError_.UNKNOWN_TOPIC_OR_PART:
                        absent.add(topic)
                    elif failure.code not in NOT_SEEN:
                        raise self._admin.error(what, failure) from error
        except (KafkaException, concurrent.futures.TimeoutError) as error:
            raise self._admin.error(what, Failure.of(error)) from error
        return Identities({topic: text for topic, text in ids.items() if text}, frozenset(absent))

    def leader_racks(self) -> dict[str, dict[int, str]]:
        """Return the rack (`broker.rack`) of each partition's leader, by topic.

        Partitions without a leader now, or whose leader says no rack, are left out. Where no broker says one, that is
        known from one small request; else the metadata of all topics is asked for.
        """
        what = "asking for the brokers' racks"
        try:
            racks = self._admin.racks(self._admin.timeout)
            topics = self._admin.client.list_topics(timeout=self._admin.timeout).topics if racks else {}
        except (KafkaException, concurrent.futures.TimeoutError) as error:
            raise self._admin.error(what, Failure.of(error)) from error
        return {
            name: found
            for name, topic in topics.items()
            if (found := {p.id: racks[p.leader] for p in topic.partitions.values() if p.leader in racks})
        }

    def retention(self, topics: Collection[str]) -> dict[str, Retention]:
        """Return when Kafka deletes records of `topics`, as far as `configuration` tells."""
        return {topic: _retention(config) for topic, config in self.configuration(topics).items()}

    def configuration(self, topics: Collection[str]) -> dict[str, dict[str, str | None]]:
        """Return the configuration of `topics`, without those that this user may not read (`DescribeConfigs`), or of
        which there is no answer."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in sorted(topics)]
        found: dict[str, dict[str, str | None]] = {}
        within = min(self._admin.timeout, LEADER_WITHIN)
        try:
            asked = self._admin.client.describe_configs(resources, request_timeout=within)
        except KafkaException as error:
            raise self._admin.error("reading topic configurations", Failure.of(error)) from error
        for resource, future in asked.items():
            with suppress(KafkaException, concurrent.futures.TimeoutError):
                entries = future.result(within + GRACE)
                found[resource.name] = {name: entry.value for name, entry in entries.items()}
        return found

    def close(self) -> None:
        """Let go of the connections."""
        self._admin.close()


def _retention(config: Mapping[str, str | None]) -> Retention:
    segment = int(config.get("segment.bytes") or Retention().segment)
    if "delete" not in (config.get("cleanup.policy") or "delete"):
        return Retention(segment=segment)
    seconds, most = int(config.get("retention.ms") or -1), int(config.get("retention.bytes") or -1)
    return Retention(seconds / 1000 if seconds >= 0 else None, most if most >= 0 else None, segment)


def _plain(found: Mapping[TopicPartition, Committed | None]) -> dict[TopicPartition, int | None]:
    return {tp: None if there is None else there.offset for tp, there in found.items()}


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a consumer group, as Kafka describes it; `host` is its address."""

    client_id: str
    host: str


class GroupOffsets:
    """The offsets of one consumer group and of the partitions it reads. Thread-safe.

    Calls end within `operation_timeout` seconds, or a second later if a broker does not answer. They raise
    `PartitionError` if some partitions are unavailable, and `KafkaError` if all are because Kafka is out of
    reach. What passes by itself within a second (a leader or a coordinator that is being elected) is waited for.
    """

    def __init__(self, settings: KafkaSettings, group_id: str) -> None:
        self.group_id = group_id
        self._admin = Admin(settings)
        self.topics = TopicLister(settings, self._admin)
        self._group = GroupClient(settings, group_id)
        # The reader's own isolation level (librdkafka's default): an end it cannot read up to would stall a batch.
        committed_only = settings.config.get("isolation.level", "read_committed") == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the next offset to read of each partition; None where the group has committed none.

        An offset whose commit is part of a transaction under way is not known yet: the call waits for it, and
        ends in an error if that takes too long.
        """
        try:
            found = self.positions(partitions)
        except PartitionError as error:
            raise PartitionError(str(error), _plain(error.offsets), error.errors) from error
        return _plain(found)

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        """Return what `committed` does, with the metadata that was committed with each offset."""
        what = f"reading the committed offsets of group {self.group_id}"
        return self._all(what, set(partitions), self._committed)

    def _committed(self, asked: Collection[TopicPartition], timeout: float) -> _Found[Committed | None]:
        """Ask for all, and where that takes too long in halves: librdkafka gives no answer at all while the offset of
        one is held by a transaction."""
        try:
            return self._group.committed(asked, timeout)
        except KafkaException as error:
            heard = Failure.of(error).code != KafkaError_._TIMED_OUT or self._group.trouble
            if heard or not self.answers():  # a right that is missing is heard, and not answered
                raise
        found: _Found[Committed | None] = {}
        end, left = time.monotonic() + HALVE_WITHIN, [sorted(asked)]
        while left:
            some = left.pop()
            if time.monotonic() > end:
                found |= dict.fromkeys(some, SILENCE)
                continue
            try:
                found |= self._group.committed(some, PATIENCE)
            except KafkaException as error:
                failure = Failure.of(error)
                if failure.code == KafkaError_._TIMED_OUT and len(some) > 1:
                    left += [some[: len(some) // 2], some[len(some) // 2 :]]
                else:
                    found |= dict.fromkeys(some, HELD if failure.code == KafkaError_._TIMED_OUT else failure)
        return found

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """See `TopicLister.topic_ids`."""
        return self.topics.topic_ids(topics)

    def commit(
        self, offsets: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str] = NO_METADATA
    ) -> None:
        """Commit the next offset to read of each partition, and return when Kafka has acknowledged all of them.

        After an error some may be committed; committing again does no harm.
        """
        what = f"committing offsets of group {self.group_id}"

        def write(asked: Collection[TopicPartition], timeout: float) -> _Found[int]:
            return self._group.commit({tp: offsets[tp] for tp in asked}, metadata, timeout)

        self._all(what, offsets.keys(), write)

    def members(self) -> list[GroupMember]:
        """Return the group's members; none of a group that Kafka does not know. Raises `KafkaError`."""
        what = f"asking for the members of group {self.group_id}"
        try:
            asked = self._admin.client.describe_consumer_groups(
                [self.group_id], request_timeout=self._admin.timeout
            )
            found = asked[self.group_id].result(self._admin.timeout + GRACE).members
        except (KafkaException, concurrent.futures.TimeoutError) as error:
            failure = Failure.of(error)
            if failure.code == KafkaError_.GROUP_ID_NOT_FOUND:
                return []
            raise self._admin.error(what, failure) from error
        return [GroupMember(member.client_id, member.host.removeprefix("/")) for member in found]

    def answers(self) -> bool:
        """Tell whether a broker answers within a second."""
        return self._admin.answers(PATIENCE)

    def metadata(self) -> object:
        """Return what a transaction names the group by. Raises `KafkaError` once this is closed."""
        return self._group.metadata()

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset that each partition still holds."""
        return self._offsets("reading beginning offsets", partitions, OffsetSpec.earliest)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last one that can be read of each partition.

        With `isolation.level` `read_committed`, which is librdkafka's default, that is where the first transaction
        under way begins.
        """
        return self._offsets("reading end offsets", partitions, OffsetSpec.latest)

    def offsets_at(
        self, partitions: Iterable[TopicPartition], moment: float
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset of each partition whose record is of `moment` (seconds since the epoch) or later;
        None where there is no such record."""
        milliseconds = round(moment * 1000)
        found = self._offsets(
            "reading offsets by time", partitions, lambda: OffsetSpec.for_timestamp(milliseconds), NO_OFFSET
        )
        return {tp: None if offset == NO_OFFSET else offset for tp, offset in found.items()}

    def bounds(
        self, partitions: Iterable[TopicPartition], moment: float | None = None
    ) -> dict[TopicPartition, Bounds]:
        """Read where each partition begins and ends, what the group has committed, and `moment`'s first offset."""
        asked = set(partitions)
        ends, earliest, committed = (
            self.end_offsets(asked),
            self.beginning_offsets(asked),
            self.positions(asked),
        )
        at_time = {} if moment is None else self.offsets_at(asked, moment)
        found: dict[TopicPartition, Bounds] = {}
        for tp, there in committed.items():
            offset, stamp = (None, None) if there is None else (there.offset, parse_stamp(there.metadata))
            sought, end = stamp.note.sought if stamp else "", max(ends[tp], earliest[tp])
            found[tp] = Bounds(earliest[tp], end, offset, at_time.get(tp), sought=sought)
        return found

    def close(self) -> None:
        """Let go of the connections."""
        self._group.close()
        self._admin.close()

    def _offsets(
        self,
        what: str,
        partitions: Iterable[TopicPartition],
        spec: Callable[[], OffsetSpec],
        least: int = 0,
    ) -> dict[TopicPartition, int]:
        def read(asked: Collection[TopicPartition], timeout: float) -> _Found[int]:
            timeout = min(timeout, LEADER_WITHIN)
            self._admin.connect(timeout)
            futures = self._admin.client.list_offsets(
                {_TopicPartition(*tp): spec() for tp in asked},
                isolation_level=self._isolation,
                request_timeout=timeout,
            )
            found: _Found[int] = {}
            for item, future in futures.items():
                try:
                    offset = future.result(timeout=timeout + GRACE).offset
                except (KafkaException, concurrent.futures.TimeoutError) as error:
                    found[item.topic, item.partition] = Failure.of(error)
                else:
                    # librdkafka 2.16 answers -1001, and no error, for a broker that did not answer in time.
                    found[item.topic, item.partition] = offset if offset >= least else SILENCE
            return found

        return self._all(what, set(partitions), read)

    def _all(
        self,
        what: str,
        partitions: Collection[TopicPartition],
        attempt: Callable[[Collection[TopicPartition], float], _Found[T]],
    ) -> dict[TopicPartition, T]:
        """Ask for all partitions, and for a second again for those whose trouble passes."""
        began = time.monotonic()
        offsets: dict[TopicPartition, T] = {}
        failures: dict[TopicPartition, Failure] = {}
        asked: Collection[TopicPartition] = partitions
        pause = FIRST_PAUSE
        passing, answers = PASSING, True
        while asked:
            found = self._attempt(attempt, asked, max(0.1, self._admin.timeout - (time.monotonic() - began)))
            for tp in asked:
                value = found.get(tp, SILENCE)
                if isinstance(value, Failure):
                    failures[tp] = value
                else:
                    offsets[tp] = value
                    failures.pop(tp, None)
            asked = [tp for tp, failure in failures.items() if failure.code in passing]
            if asked and time.monotonic() - began + pause > PATIENCE:
                break
            if asked:
                time.sleep(pause)
                pause *= 2
                if any(failures[tp].code in STALE for tp in asked):
                    answers = self._admin.refresh(PATIENCE)
                    # A partition that Kafka's newest answer does not have either is not there.
                    passing = PASSING - {KafkaError_._UNKNOWN_PARTITION}
        if not failures:
            return offsets
        if any(failure.code in UNREACHABLE for failure in failures.values()):
            # Others lead its partitions soon, which librdkafka would not ask for by itself for minutes.
            answers = self._admin.refresh(PATIENCE)
            if answers:
                self._group.revive(PATIENCE)
        raise self._error(what, offsets, failures, answers)

    def _error(
        self,
        what: str,
        offsets: dict[TopicPartition, T],
        failures: dict[TopicPartition, Failure],
        answers: bool,
    ) -> KafkaError:
        """Make the error that says what failed; `answers` is whether Kafka named its leaders when last asked."""
        first = next(iter(failures.values()))
        out_of_reach = all(f.code in UNREACHABLE for f in failures.values())
        if not offsets and first.code == NO_LEADERS:
            first = first if answers else SILENCE
            out_of_reach = not answers or bool(self._admin.trouble or self._group.trouble)
        if not offsets and out_of_reach:
            return self._admin.error(what, first, self._group.trouble)
        errors = {tp: failure.text for tp, failure in failures.items()}
        step = (
            "check that the topic exists and may be read by this user, or try again if its leader is changing"
        )
        if first.code in DENIED:
            step = self._admin.next_step(first.text)
        if first is HELD:
            step = (
                "it is known when that ends, by its time-out at the latest; Kafka's kafka-transactions.sh finds and "
                "aborts one that hangs"
            )
        return PartitionError(
            f"Kafka at {self._admin.servers}: {what}: {name_partitions(errors)}; {step}",
            offsets,
            errors,
        )

    def _attempt(
        self,
        attempt: Callable[[Collection[TopicPartition], float], _Found[T]],
        asked: Collection[TopicPartition],
        timeout: float,
    ) -> _Found[T]:
        """Make a request; one that fails as a whole is a failure of each partition."""
        try:
            found = attempt(asked, timeout)
        except (KafkaException, concurrent.futures.TimeoutError) as error:
            failure = Failure.of(error)
            return dict.fromkeys(asked, failure)
        if not all(isinstance(value, Failure) for value in found.values()):
            self._admin.heard()
        return found


class TopicGroups:
    """A `GroupOffsets` for each group that topics name, kept open while some topic names it. Not thread-safe.

    A group that was changed in the settings counts for a topic only when a person has moved the topic. Until then it
    is read and committed by the group that its assignment names.

    >>> for group, of_group in groups.each(partitions, {"flights": "flights-2023"}):
    ...     committed |= group.committed(of_group)
    """

    def __init__(self, settings: KafkaSettings, group_id: str) -> None:
        self._settings = settings
        self.default = GroupOffsets(settings, group_id)
        self._others: dict[str, GroupOffsets] = {}

    def each(
        self, partitions: Iterable[TopicPartition], groups: Mapping[str, str]
    ) -> list[tuple[GroupOffsets, list[TopicPartition]]]:
        """Return each group with those of `partitions` that it reads. `groups` maps topics to group ids; a topic that
        is not in it is read by the default group. Raises `KafkaError` for settings that librdkafka refuses."""
        found: defaultdict[str, list[TopicPartition]] = defaultdict(list)
        for tp in partitions:
            found[groups.get(tp[0], self.default.group_id)].append(tp)
        for group_id in self._others.keys() - found.keys():
            self._others.pop(group_id).close()
        return [(self._of(group_id), of_group) for group_id, of_group in sorted(found.items())]

    def close(self) -> None:
        """Let go of the connections."""
        for group in (self.default, *self._others.values()):
            group.close()
        self._others.clear()

    def _of(self, group_id: str) -> GroupOffsets:
        if group_id == self.default.group_id:
            return self.default
        if group_id not in self._others:
            self._others[group_id] = GroupOffsets(self._settings, group_id)
        return self._others[group_id]
