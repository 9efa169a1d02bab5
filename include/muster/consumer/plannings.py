"""Plans the batches of the running query, in the agent's own process: what the connector in Spark's JVM reads."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from muster.consumer.agent import Agent
from muster.consumer.source.batch_size import Bounds
from muster.consumer.source.cluster_offsets import OpenOffsets
from muster.consumer.source.planner import Planner
from muster.consumer.source.protocol import NextBatch, NextQuestion, OffsetsJson
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from muster.settings.source_options import min_partitions, reader_settings


class Plannings:
    """A planner for each query, one after the other. Thread-safe; one planning at a time.

    Batches are within `bounds`. The next planning is due after `interval` seconds, see `Planner`.
    `source_options` are those of `muster.settings.source_options`.
    """

    def __init__(
        self,
        agent: Agent,
        kafka: KafkaSettings,
        bounds: Bounds,
        interval: float = 0.0,
        source_options: Mapping[str, str] | None = None,
        open_offsets: OpenOffsets = GroupOffsets,
    ) -> None:
        self._agent = agent
        self._kafka = kafka
        self._bounds = bounds
        self._interval = interval
        self._reader = reader_settings(source_options or {})
        self._min_tasks = min_partitions(source_options or {})
        self._open_offsets = open_offsets
        self._lock = threading.Lock()
        self._token = ""
        self._planner: Planner | None = None
        self._answered: tuple[OffsetsJson, NextBatch] | None = None
        """What was asked last, and the answer."""

    def next(self, token: str, question: NextQuestion) -> NextBatch:
        """Plan the next batch of the query with `token`. A question that is asked again, because the planning took
        longer than the connector waits, gets the batch that was planned for it.

        What its tasks did not find because it was deleted counts as lost; a partition that ends before it was read to
        goes on where the planner decides. Raises `StaleTokenError`, `PlanRefusedError`, or `KafkaSettingError`.
        """
        with self._lock:
            planner = self._planner_of(token)
            planner.has_read(question.read)
            self._agent.holds(question.held)
            for gone in sorted(question.gone, key=lambda gone: gone.begin):
                planner.missed(gone)
            if (planned := self._planned_for(question.finished)) is not None:
                return planned
            answer = planner.next(question.finished, question.parallelism)
            self._answered = question.finished, answer
            return answer

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
                self._agent,
                token,
                self._kafka,
                self._bounds,
                self._interval,
                self._reader,
                self._min_tasks,
                self._open_offsets,
            )
        return self._planner

    def _planned_for(self, finished: OffsetsJson) -> NextBatch | None:
        """Return the last plan if it was for the same question and is a batch, which Spark has not run then."""
        asked, answer = self._answered or (None, None)
        return answer if answer is not None and asked == finished and answer.offset != finished else None

    def _leave(self) -> None:
        self._answered = None
        if self._planner is not None:
            self._planner.close()
            self._planner = None
