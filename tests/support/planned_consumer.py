"""A consumer's agent with its planner, a simulated Kafka and the test's own handler; time goes by as it plans."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from fastapi.testclient import TestClient

from muster.consumer.source.batch_size import Bounds
from muster.consumer.source.planner import Planner
from muster.consumer.status_page import make_status_page
from muster.core.model import FailingRecord, Seek, TopicAssignment, TopicPartition
from muster.core.ownership import Due, Place
from muster.core.positions import Committed, format_stamp
from muster.core.wire import parse_status
from muster.edges.kafka import KafkaError
from muster.settings.connections import KafkaSettings
from tests.support.claiming import ClaimingAgent
from tests.support.consumer_settings import consumer_settings

PLACE = Place("k:9092", "g")


class PlannedKafka:
    """`GroupOffsets`: topic "t" with so many `partitions`, with 100 records each."""

    def __init__(self, partitions: int) -> None:
        self.begins = {("t", p): 0 for p in range(partitions)}
        self.ends = {("t", p): 100 for p in range(partitions)}
        self.committed: dict[TopicPartition, int] = {}
        self.stamps: dict[TopicPartition, str] = {}
        """The metadata of what is committed."""
        self.away = False

    def positions(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        return {
            key: Committed(self.committed[key], self.stamps[key]) if key in self.committed else None
            for key in keys
        }

    def beginning_offsets(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {key: self.begins[key] for key in keys}

    def end_offsets(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if self.away:
            raise KafkaError("Kafka does not answer")
        return {key: self.ends[key] for key in keys}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "A")

    def close(self) -> None:
        """Nothing to let go of."""


class PlannedConsumer:
    """Has all partitions from the start. `agent_settings` are the agent's; batches are within `bounds`."""

    def __init__(self, kafka: PlannedKafka, bounds: Bounds, **agent_settings: Any) -> None:
        self.kafka = kafka
        self.bounds = bounds
        self.now, self.step = 0.0, 0.2
        self.agent = ClaimingAgent("me", fencing=True, clock=lambda: self.now, **agent_settings)
        if self.agent.holder:
            self.agent.group = kafka.positions
        self.page = TestClient(make_status_page(self.agent, consumer_settings(), list))
        self.assign({p for _, p in kafka.ends}, 1)
        self.start()

    def assign(self, partitions: set[int], epoch: int, seeks: dict[int, Seek] | None = None) -> None:
        owners = {p: "me" if p in partitions else "other" for _, p in self.kafka.ends}
        node = TopicAssignment("k:9092", "g", owners, epoch, topic_id="A", seeks=seeks or {})
        self.agent.assigned("t", node, epoch)

    def start(self) -> None:
        """Start a query."""

        def open_offsets(*_: object) -> Any:
            return self.kafka

        self.planner = Planner(
            self.agent,
            self.agent.query_started(),
            KafkaSettings(config={"bootstrap.servers": "k:9092"}),
            self.bounds,
            open_offsets=open_offsets,
            clock=lambda: self.now,
        )
        self.stands: dict[str, Any] = {}

    def restart(self) -> None:
        """The query fails, and another one is started."""
        self.agent.query_ended(failed=True, error="gone")
        self.start()

    def plan(self) -> bool:
        """Plan once; whether there is a batch to process."""
        self.now += self.step
        before = self.stands
        self.stands = self.planner.next(self.stands, 2).offset
        return self.stands != before

    def process(self) -> None:
        """Process the batch that was planned."""
        raise NotImplementedError

    def arrive(self) -> None:
        """What is written to Kafka between two plannings: nothing."""

    def go(self, seconds: float = 5.0, commits: bool = True) -> None:
        until = self.now + seconds
        while self.now < until:
            if self.plan():
                self.process()
            if commits:
                self.commit()
            self.arrive()

    def pass_time(self, seconds: float) -> None:
        """Go on with few batches."""
        self.step = 1.0
        self.go(seconds)
        self.step = 0.2

    def commit(self) -> None:
        self.acknowledge(self.agent.due(PLACE))

    def acknowledge(self, due: dict[TopicPartition, Due]) -> None:
        """Kafka has committed this."""
        self.kafka.committed.update({tp: one.offset for tp, one in due.items()})
        self.kafka.stamps.update({tp: format_stamp("c", "A", one.note) for tp, one in due.items()})
        if due:
            self.agent.committed(due)

    @property
    def failing(self) -> FailingRecord | None:
        """What the status page says of partition 1."""
        return parse_status(self.page.get("/status").content, "u").on("t").failing.get(1)
