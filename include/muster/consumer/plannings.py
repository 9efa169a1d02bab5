"""Plans the batches of the running query, in the agent's own process: what the connector in Spark's JVM reads."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from muster.consumer.agent import Agent
from muster.consumer.source.cluster_offsets import OpenOffsets
from muster.consumer.source.planner import Planner
from muster.consumer.source.protocol import (
    NextBatch,
    NextQuestion,
    Offsets,
    SourcePartitions,
    SourcePlanned,
    TopicSource,
)
from muster.core.ownership import Range, TopicOffer
from muster.core.positions import Jump, Why
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings


class QueryOffers:
    """The agent as the planner of the query with `token` sees it.

    Its calls raise `StaleTokenError` once the query has ended, and `PlanRefusedError`.
    """

    def __init__(self, agent: Agent, token: str, kafka: KafkaSettings, max_records_per_batch: int) -> None:
        self._agent = agent
        self._token = token
        self._kafka = kafka
        self._max_records = max_records_per_batch

    def partitions(self, wait: float = 0.0) -> SourcePartitions:
        """Return what the next batch may hold; while that is nothing, wait up to `wait` seconds."""
        if wait > 0:
            self._agent.check_token(self._token)
            self._agent.wait_for(lambda own: own.has_something_to_offer, wait)
        offer = self._agent.offer(self._token)
        nearby: Mapping[str, TopicOffer] = {}
        if not any(topic.partitions for topic in offer.topics.values()):
            with self._agent.locked() as own:
                nearby = own.nearby()
        return SourcePartitions(
            asked=offer.asked,
            topics=sources(offer.topics),
            nearby=sources(nearby),
            kafka={key: value for key, value in self._kafka.config.items() if key != "bootstrap.servers"},
            max_records_per_batch=self._max_records,
            operation_timeout=self._kafka.operation_timeout,
        )

    def planned(self, plan: SourcePlanned) -> None:
        """Take the next batch."""
        planned_by(self._agent, self._token, plan)

    def close(self) -> None:
        """Nothing is open."""


class Plannings:
    """A planner for each query, one after the other. Thread-safe; one planning at a time.

    A planning with nothing to read waits up to `idle_wait` seconds for something.
    """

    def __init__(
        self,
        agent: Agent,
        kafka: KafkaSettings,
        max_records_per_batch: int,
        idle_wait: float = 0.0,
        open_offsets: OpenOffsets = GroupOffsets,
    ) -> None:
        self._agent = agent
        self._kafka = kafka
        self._max_records = max_records_per_batch
        self._idle_wait = idle_wait
        self._open_offsets = open_offsets
        self._lock = threading.Lock()
        self._token = ""
        self._planner: Planner | None = None

    def next(self, token: str, question: NextQuestion) -> NextBatch:
        """Plan the next batch of the query with `token`.

        What its tasks did not find because it was deleted counts as lost; a partition that ends before it was read to
        goes on where the planner decides. Raises `StaleTokenError`, `PlanRefusedError`, or `KafkaSettingError`.
        """
        with self._lock:
            planner = self._planner_of(token)
            for gone in question.gone:
                tp = (gone.topic, gone.partition)
                if gone.deleted:
                    self._agent.lost(token, {tp: Jump(gone.begin, gone.end, Why.RETENTION)})
                else:
                    planner.stopped_short(tp, gone.begin)
            return planner.next(question.finished, question.parallelism)

    def close(self) -> None:
        """Leave Kafka."""
        with self._lock:
            self._leave()

    def _planner_of(self, token: str) -> Planner:
        self._agent.check_token(token)
        if self._planner is None or token != self._token:
            self._leave()
            self._token = token
            self._planner = Planner(
                QueryOffers(self._agent, token, self._kafka, self._max_records),
                idle_wait=self._idle_wait,
                open_offsets=self._open_offsets,
            )
        return self._planner

    def _leave(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None


def planned_by(agent: Agent, token: str, plan: SourcePlanned) -> None:
    """Tell `agent` what the planner planned. Raises `StaleTokenError` or `PlanRefusedError`."""
    agent.planned(
        token,
        asked=plan.asked,
        finished=_ranges(plan.finished),
        offsets=_ranges(plan.offsets),
        ends={
            (topic, int(partition)): end
            for topic, ends in plan.ends.items()
            for partition, end in ends.items()
        },
        problems=plan.problems,
        jumps={
            (topic, int(partition)): Jump(before, after, why)
            for topic, of_topic in plan.jumps.items()
            for partition, (before, after, why) in of_topic.items()
        },
    )


def sources(topics: Mapping[str, TopicOffer]) -> dict[str, TopicSource]:
    """Return topics as the planner receives them."""
    return {
        name: TopicSource(
            bootstrap_servers=topic.source.bootstrap_servers,
            group_id=topic.source.group_id,
            topic_id=topic.source.topic_id,
            partitions=sorted(topic.partitions),
        )
        for name, topic in topics.items()
    }


def _ranges(offsets: Offsets) -> Mapping[str, Mapping[int, Range]]:
    return {
        topic: {int(partition): (begin, end) for partition, (begin, end) in ranges.items()}
        for topic, ranges in offsets.items()
        if ranges
    }
