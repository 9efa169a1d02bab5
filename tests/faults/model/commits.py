"""How a process claims and commits: the real committer, fences and guards, over simulated producers and brokers.

The two threads of a place take turns. The threads that call a producer are simulated (`threads`): a claim takes time
while the process's claims are slow, and lands when they no longer are, whatever became of the partition meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from confluent_kafka import KafkaError as Reason
from confluent_kafka import KafkaException, Producer

from muster.consumer.commits import GuardedCommits
from muster.core.model import TopicPartition
from muster.core.ownership import Place
from muster.core.positions import Committed, noted, parse_stamp
from muster.edges.commit_outcome import Begin, Claims, CommitOutcome
from muster.edges.kafka import NO_METADATA, Identities, KafkaError, TopicListing
from muster.edges.kafka_admin import PartitionError
from muster.settings.connections import KafkaSettings
from tests.faults.model.kafka import Brokers
from tests.faults.model.state import Message
from tests.faults.model.threads import CONCURRENT, THREADING, TIME, at_work, copy_of, wait_until

if TYPE_CHECKING:
    from tests.faults.model.process import Process
    from tests.faults.model.seeks import Seeking

    Committing: TypeAlias = Process | Seeking

KAFKA = KafkaSettings(config={"bootstrap.servers": "k:9092"})
fencing = copy_of(
    "muster.edges.kafka_fencing", threading=THREADING, time=TIME, concurrent=CONCURRENT, PARALLEL=2
)
"""Two claims of a process are under way at a time, the others are queued."""
committer = copy_of("muster.consumer.committer", time=TIME, FencedCommits=fencing.FencedCommits)


class Transactions:
    """`confluent_kafka.Producer`, as far as transactions of offsets need it.

    Every call that reaches the broker may fail in a way that trying again mends. While a producer is `stuck` its
    commits wait in librdkafka and reach no broker. Where the broker has forgotten a producer that aborts, librdkafka
    initialises its id again."""

    def __init__(self, process: Committing, key: TopicPartition, group: str, name: str) -> None:
        self.process = process
        self.key = key
        self.group = group
        self.name = name
        self.known = (0, -1)
        self.item: Any = None
        self.queued: list[tuple[tuple[Any, ...], Any]] = []
        """What is to be written to a changelog, with who is told of it."""
        self.written: list[tuple[bytes, bytes | None]] = []
        """What the transaction has written to it."""
        self.stuck = False
        self.unheard = False
        """The broker has committed, but its answer was lost."""

    def list_topics(self, _topic: str, timeout: float) -> None:
        self._reach()

    def init_transactions(self, timeout: float) -> None:
        process = self.process
        brokers, began = self._reach(), process.world.now
        refusal = process.refusal(self.key)
        wait_until(lambda: not process.faults.slow_claims)
        self.known = brokers.initialise(self.name)
        process.claims(self.key, refusal)
        if process.world.now - began > timeout:
            raise KafkaException(Reason(Reason._TIMED_OUT, "no answer", retriable=True))

    def begin_transaction(self) -> None:
        self.item = None
        self.queued, self.written = [], []

    def produce(self, *record: Any, on_delivery: Any = None) -> None:
        self.queued.append((record, on_delivery))

    def flush(self, timeout: float) -> int:
        if self.process.cut_off_from_kafka:
            return len(self.queued)
        self._reach_as_owner()
        for (topic, value, key, partition), told in self.queued:
            at = self._reach().changelog(topic, partition).write(self.name, key, value)
            self.written.append((key, value))
            if told is not None:
                told(None, Message(at))
        self.queued = []
        return 0

    def send_offsets_to_transaction(self, items: list[Any], metadata: object, timeout: float) -> None:
        wait_until(lambda: not self.stuck)
        self._reach_as_owner()
        if self.key[0] not in self.process.world.kafka.topics:
            raise KafkaException(Reason(Reason.UNKNOWN_TOPIC_OR_PART, "unknown topic", retriable=True))
        if self.process.faults.commits_fail:
            raise KafkaException(Reason(Reason.GROUP_AUTHORIZATION_FAILED, "not allowed"))
        self.item = items[0]

    def commit_transaction(self, timeout: float) -> None:
        if self.unheard and self.name in self._reach().producers:
            self.unheard = False
            return
        self._reach_as_owner()
        committed = Committed(self.item.offset, self.item.metadata or "")
        self.process.world.commit(self.process, self.key, self.group, committed, self.written)
        self._reach().end_transaction(self.name, lands=True)
        if self.process.faults.unheard_commits:
            self.unheard = True
            raise KafkaException(Reason(Reason._TIMED_OUT, "no answer", retriable=True))

    def abort_transaction(self, timeout: float) -> None:
        if self.name not in self._reach().producers:
            self.init_transactions(timeout)
        self._reach_as_owner()
        self._reach().end_transaction(self.name, lands=False)
        self.item = None

    def _reach(self) -> Brokers:
        if self.process.cut_off_from_kafka:
            raise KafkaException(Reason(Reason._TRANSPORT, "no broker", retriable=True))
        return self.process.world.kafka

    def _reach_as_owner(self) -> None:
        known = self._reach().producers.get(self.name, (0, -1))
        if known[0] != self.known[0]:
            forgotten = Reason.INVALID_PRODUCER_ID_MAPPING
            raise KafkaException(Reason(forgotten, "unknown", txn_requires_abort=True))
        if known != self.known:
            raise KafkaException(Reason(Reason._FENCED, "fenced", fatal=True))


class Group:
    """`muster.edges.kafka.GroupOffsets`, and its lister of topics."""

    def __init__(self, process: Committing, group_id: str) -> None:
        self.process = process
        self.group_id = group_id
        self.topics = self

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        self._reach()
        kafka, held = self.process.world.kafka, self.process.agent._ownership.held
        found = {key: kafka.committed.get(kafka.record(key, self.group_id)) for key in partitions}
        if self.process.faults.old_offsets and self.process.agent.fencing:
            for key in found.keys() & held.keys():
                if held[key].claimed:
                    found[key] = self.process.own_commits.get(key)
        return found

    def commit(
        self, offsets: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str] = NO_METADATA
    ) -> None:
        self._reach()
        done: dict[TopicPartition, int] = {}
        for key, offset in offsets.items():
            if key[0] in self.process.world.kafka.topics and not self.process.faults.commits_fail:
                committed = Committed(offset, metadata.get(key, ""))
                self.process.world.commit(self.process, key, self.group_id, committed)
                done[key] = offset
        if failed := offsets.keys() - done.keys():
            raise PartitionError("not committed", done, dict.fromkeys(failed, "unknown, or not allowed"))

    def identities(self, topics: Collection[str]) -> Identities:
        self._reach()
        ids = self.process.world.kafka.ids
        return Identities({t: ids[t] for t in topics if t in ids}, frozenset(topics) - ids.keys())

    def list_topics(self) -> TopicListing:
        self._reach()
        return TopicListing(dict(self.process.world.kafka.topics), {})

    def metadata(self) -> object:
        return None

    def _reach(self) -> None:
        if self.process.cut_off_from_kafka:
            raise KafkaError("Kafka does not answer")


class Fenced(fencing.FencedCommits):  # type: ignore[misc]  # a copy of the module
    """The real one, over simulated producers, which tells the watchman of calls and refusals."""

    def __init__(self, process: Committing, group: Group) -> None:
        super().__init__(KAFKA, "c", group, process.agent.states.topics)
        self.process = process
        self.opened: list[Transactions] = []

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        metadata: Mapping[TopicPartition, str] = NO_METADATA,
        *further: Any,
        **named: Any,
    ) -> CommitOutcome:
        before = {key: (fence, fence.ended_at) for key, fence in self._fences.items()}
        for key in offsets:
            fence = self._fences.get(key)
            if fence is not None and fence.call is None and not (fence.claims_again or fence.lost):
                self.process.calls(key)
        own = {key for key in offsets if (fence := self._fences.get(key)) and self._is_taken_up_again(fence)}
        outcome: CommitOutcome = super().commit(offsets, metadata, *further, **named)
        for key in outcome.failed:
            fence = self._fences.get(key)
            replaced = fence is not None and (fence.claims_again or fence.lost)
            if replaced and before.get(key) != (fence, fence.ended_at):
                # A claim has failed, or the producer is lost: what was known before its end counts no more.
                self.process.calls(key)
        for key in outcome.refused:
            back = self._seeks_back(key, Committed(offsets[key], metadata.get(key, "")))
            self.process.refused(key, back or key in own)
        return outcome

    @staticmethod
    def _is_taken_up_again(fence: Any) -> bool:
        """Whether the producer of a shard is lost, or may be stuck: then it is refused."""
        return fence.has_state and bool(fence.lost or (fence.call is not None and not fence.call.done()))

    def _seeks_back(self, key: TopicPartition, ours: Committed) -> bool:
        """Whether a producer was replaced that was to carry a seek out to before what the group has."""
        fence, stamp, kafka = self._fences.get(key), parse_stamp(ours.metadata), self.process.world.kafka
        present = kafka.committed.get(kafka.record(key, self._group.group_id))
        if fence is None or not fence.replaces or stamp is None or present is None:
            return False
        return present.offset > ours.offset and not noted(present, stamp.topic_id).has(stamp.note.sought)

    def stick(self) -> None:
        """The producers that are in use get stuck in their next commits."""
        for fence in self._fences.values():
            fence.producer.stuck = True

    def stuck(self) -> set[TopicPartition]:
        """The partitions whose producers are stuck or lost, or replace one that was and have not committed yet."""
        fences = self._fences.items()
        return {key for key, fence in fences if fence.producer.stuck or fence.lost or fence.replaces}

    def free(self) -> None:
        """Producers that are stuck go on, those that were replaced as well."""
        for producer in self.opened:
            producer.stuck = False

    def _open(self, key: TopicPartition) -> Producer:
        name = fencing.transactional_id("c", self._group.group_id, *key)
        self.opened.append(Transactions(self.process, key, self._group.group_id, name))
        producer: Any = self.opened[-1]
        return producer


class Guarded(GuardedCommits):
    """The real one, which tells the watchman of claims and refusals."""

    def __init__(self, process: Process, group: Group) -> None:
        super().__init__(group)  # type: ignore[arg-type]
        self.process = process

    def claim(self, partitions: Collection[TopicPartition], begin: Begin = lambda _: True) -> Claims:
        claims = super().claim(partitions, begin)
        for key in claims.done:
            self.process.claims(key, self.process.refusal(key))
        return claims

    def commit(
        self, offsets: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str] = NO_METADATA
    ) -> CommitOutcome:
        outcome = super().commit(offsets, metadata)
        for key in outcome.refused:
            self.process.refused(key)
        return outcome


class SimulatedPlace(committer.PlaceWorker):  # type: ignore[misc]  # a copy of the module
    """The real one without its threads: `go_on` is one round of each."""

    def __init__(self, process: Process, place: Place) -> None:
        group: Any = Group(process, place.group_id)
        commits = Fenced(process, group) if process.agent.fencing else Guarded(process, group)
        self.process = process
        self.fenced = commits if isinstance(commits, Fenced) else None
        states: Any = process.states
        super().__init__(process.agent, "c", place, group, commits, threading.Event(), states=states)

    def go_on(self) -> None:
        with at_work(self.process):
            for work in (self.claim, self.commit, self.look_at_topics):
                try:
                    work()
                except KafkaError:
                    continue  # it is tried again
