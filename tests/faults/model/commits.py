"""How a process claims and commits: the real committer, fences and guards, over simulated producers and brokers.

Only threads are left out: what a place's two threads would do is done in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError as Reason
from confluent_kafka import KafkaException, Producer

from muster.consumer.commits import Commits, GuardedCommits
from muster.consumer.committer import _Place
from muster.core.ownership import Source
from muster.edges import kafka_fencing
from muster.edges.kafka import KafkaError
from muster.edges.kafka_fencing import FencedCommits, Outcome
from muster.settings.connections import KafkaSettings
from tests.faults.model.kafka import Brokers, TopicPartition

if TYPE_CHECKING:
    from tests.faults.model.process import Process

KAFKA = KafkaSettings(config={"bootstrap.servers": "k:9092"})


class Transactions:
    """`confluent_kafka.Producer`, as far as transactions of offsets need it.

    Every call that reaches the broker may fail in a way that trying again mends."""

    def __init__(self, process: Process, key: TopicPartition, name: str) -> None:
        self.process = process
        self.key = key
        self.name = name
        self.epoch = -1
        self.offset: int | None = None
        self.unheard = False
        """The broker has committed, but its answer was lost."""

    def list_topics(self, _topic: str, timeout: float) -> None:
        self._reach()

    def init_transactions(self, timeout: float) -> None:
        brokers = self._reach()
        self.epoch = brokers.producers.get(self.name, 0) + 1
        brokers.producers[self.name] = self.epoch
        self.process.world.watchman.claims(self.process, self.key)

    def begin_transaction(self) -> None:
        self.offset = None

    def send_offsets_to_transaction(self, items: list[Any], metadata: object, timeout: float) -> None:
        self._reach_as_owner()
        self.offset = items[0].offset

    def commit_transaction(self, timeout: float) -> None:
        if self.unheard:
            self.unheard = False
            return
        self._reach_as_owner()
        assert self.offset is not None
        self.process.world.commit(self.process, self.key, self.offset)
        if self.process.faults.unheard_commits:
            self.unheard = True
            raise KafkaException(Reason(Reason._TIMED_OUT, "no answer", retriable=True))

    def abort_transaction(self, timeout: float) -> None:
        self._reach_as_owner()
        self.offset = None

    def _reach(self) -> Brokers:
        if self.process.cut_off_from_kafka:
            raise KafkaException(Reason(Reason._TRANSPORT, "no broker", retriable=True))
        return self.process.world.kafka

    def _reach_as_owner(self) -> None:
        if self._reach().producers[self.name] != self.epoch:
            raise KafkaException(Reason(Reason._FENCED, "fenced", fatal=True))


class Group:
    """`muster.edges.kafka.GroupOffsets`."""

    def __init__(self, process: Process, group_id: str) -> None:
        self.process = process
        self.group_id = group_id

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        self._reach()
        return {key: self.process.world.kafka.committed.get(key) for key in partitions}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._reach()
        for key, offset in offsets.items():
            self.process.world.commit(self.process, key, offset)

    def metadata(self) -> object:
        return None

    def _reach(self) -> None:
        if self.process.cut_off_from_kafka:
            raise KafkaError("Kafka does not answer")


class Fenced(FencedCommits):
    """The real one, one call after the other."""

    def __init__(self, process: Process, group: Group) -> None:
        super().__init__(KAFKA, "c", group)  # type: ignore[arg-type]
        self.process = process

    def release(self, partitions: Collection[TopicPartition]) -> None:
        for key in partitions:
            self._fences.pop(key, None)

    def _call(
        self, calls: Mapping[TopicPartition, tuple[Any, Callable[..., Any], tuple[Any, ...]]]
    ) -> dict[Any, Any]:
        ends: dict[TopicPartition, Any] = {}
        for key, (_, function, arguments) in calls.items():
            try:
                ends[key] = function(*arguments)
            except Exception as error:  # as a future would have it
                ends[key] = error
        return ends

    def _open(self, key: TopicPartition) -> Producer:
        name = kafka_fencing.transactional_id("c", self._group.group_id, *key)
        producer: Any = Transactions(self.process, key, name)
        return producer


class Guarded(GuardedCommits):
    """The real one, which tells the watchman of claims."""

    def __init__(self, process: Process, group: Group) -> None:
        super().__init__(group)  # type: ignore[arg-type]
        self.process = process

    def claim(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        failures = super().claim(partitions)
        for key in partitions:
            if key not in failures:
                self.process.world.watchman.claims(self.process, key)
        return failures


class _Told:
    """Passes everything on, and refusals to the watchman as well."""

    def __init__(self, process: Process, commits: Commits) -> None:
        self.process = process
        self.commits = commits
        self.claim, self.release, self.close = commits.claim, commits.release, commits.close

    def commit(self, offsets: Mapping[TopicPartition, int]) -> Outcome:
        outcome = self.commits.commit(offsets)
        for key in outcome.refused:
            self.process.world.watchman.refused(self.process, key)
        return outcome


class Place(_Place):
    """The real one without its threads: `go_on` is one round of both."""

    def __init__(self, process: Process, source: Source) -> None:
        group = Group(process, source.group_id)
        self._agent = process.agent
        self._source = source
        commits = Fenced(process, group) if process.agent.fencing else Guarded(process, group)
        self._commits = _Told(process, commits)
        self._claimed = {}

    def go_on(self) -> None:
        for work in (self._claim, self._commit):
            try:
                work()
            except KafkaError:
                continue  # it is tried again
