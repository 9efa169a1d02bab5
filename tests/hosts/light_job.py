"""A whole consumer but for Spark's JVM: `python -m tests.hosts.light_job`, with the settings in `MUSTER_CONSUMER`.

The job is `muster.consumer.main`'s, with its agent, registrar, committer, pages, planner and its way to end. Only
where Spark would run the query with the connector a loop does, which asks the agent for each batch as the connector
does and reads it with a consumer of its own, so that six such consumers and three brokers fit on two cores.
"""

from __future__ import annotations

import math
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import httpx
import pyarrow as pa
import pyspark
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from muster.consumer import main as job
from muster.consumer.lifecycle import Beat
from muster.consumer.query import QuerySupervisor
from muster.consumer.source.protocol import NEXT_PATH, GoneRange, NextBatch, NextQuestion, OffsetsJson

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GONE_AFTER = 10.0
"""Seconds without a record after which Kafka is asked where a partition begins and ends, as in the connector."""
RETRY = 1.0
"""Seconds between two attempts to read where Kafka says that nothing is, as in the connector."""
READ_TIMEOUT = 120.0
READING = {
    "group.id": "unused",
    "enable.auto.commit": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
    "socket.timeout.ms": "10000",
}


class Table:
    """What a handler is given in a DataFrame's place."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self._records = records

    def toArrow(self) -> pa.Table:  # noqa: N802  Spark's name
        """All records."""
        return pa.Table.from_pylist(self._records)


class NoSpark:
    """As much of a Spark session as the job and its supervisor ask for."""

    version = pyspark.__version__

    @property
    def conf(self) -> NoSpark:
        """What takes the settings."""
        return self

    def set(self, *_: object) -> None:
        """Do nothing, where Spark would take the setting."""

    def stop(self) -> None:
        """Do nothing: no JVM runs."""


class LightQuery(QuerySupervisor):
    """Runs the query again and again as with Spark; one run of it is a loop, whose pace the agent sets."""

    def _warm_up(self, frame: DataFrame) -> None:
        """Do nothing: there is no JVM."""

    def _run_once(self, beat: Beat) -> str | None:
        token = self._agent.query_started()
        failed = True
        try:
            with httpx.Client(
                base_url=self._local_api,
                headers={"Authorization": f"Bearer {token}"},
                timeout=60,
                trust_env=False,
            ) as agent:
                self._go_on(agent, beat)
            failed = False
        except Exception as error:
            return self._error or f"{type(error).__name__}: {error}"
        finally:
            self._agent.query_ended(failed)
        return None

    def _go_on(self, agent: httpx.Client, beat: Beat) -> None:
        start: OffsetsJson = {}
        gone: list[GoneRange] = []
        number = 0
        while not self._stopped.is_set():
            beat()
            question = NextQuestion(finished=start, gone=gone)
            answer = agent.post(NEXT_PATH, content=question.model_dump_json(by_alias=True)).raise_for_status()
            batch = NextBatch.model_validate_json(answer.content)
            gone = []
            if batch.offset != start or number == 0:
                self._batch(cast("DataFrame", Table(read(batch, gone))), number)
                start, number = batch.offset, number + 1


def read(batch: NextBatch, gone: list[GoneRange]) -> list[dict[str, Any]]:
    """Return the records of a batch, with the columns that handlers of the tests look at.

    What Kafka does not have any more is added to `gone`.
    """
    found: list[dict[str, Any]] = []
    for task in batch.tasks:
        for servers, topics in task.items():
            ranges = {(topic, int(p)): held for topic, of in topics.items() for p, held in of.items()}
            with closing(Consumer({**READING, "bootstrap.servers": servers})) as consumer:
                for tp, (start, end, _) in ranges.items():
                    records, at = _range(consumer, tp, start, end)
                    found += records
                    if at < end:
                        topic, partition = tp
                        gone.append(
                            GoneRange(topic=topic, partition=partition, begin=at, end=end, deleted=False)
                        )
    return found


def _range(consumer: Consumer, tp: tuple[str, int], start: int, end: int) -> tuple[list[dict[str, Any]], int]:
    """Return the records, and the offset up to which Kafka has any."""
    records = []
    at, began = start, time.monotonic()
    progress = began
    consumer.assign([TopicPartition(*tp, start)])
    while at < end:
        message = consumer.poll(0.2)
        now = time.monotonic()
        error = message.error() if message is not None else None
        if message is None or error is not None:
            if message is not None and error is not None and error.code() == KafkaError._PARTITION_EOF:
                at = max(at, message.offset() or 0)
            elif error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                # The leader of a new topic may know less for a moment; librdkafka stops reading there.
                time.sleep(RETRY)
                consumer.assign([TopicPartition(*tp, at)])
            if now - progress > GONE_AFTER and _end(consumer, tp) < end:
                return records, at
            if now - began > READ_TIMEOUT:
                raise TimeoutError(f"{tp}: nothing at offset {at} of the planned {start} to {end - 1}")
            continue
        offset = cast("int", message.offset())
        if offset < end:
            records.append(
                {
                    "key": message.key(),
                    "value": message.value(),
                    "topic": tp[0],
                    "partition": tp[1],
                    "offset": offset,
                }
            )
        at, progress = offset + 1, now
    return records, at


def _end(consumer: Consumer, tp: tuple[str, int]) -> float:
    """Where the partition ends; infinity while Kafka does not say."""
    try:
        return consumer.get_watermark_offsets(TopicPartition(*tp), timeout=3)[1]
    except KafkaException:
        return math.inf


class LightJob(job.Job):
    """The job without a session."""

    def _start_spark(self) -> SparkSession:
        READING.update(self._settings.kafka.config)
        return cast("SparkSession", NoSpark())


if __name__ == "__main__":
    job.QuerySupervisor = LightQuery  # type: ignore[misc]
    job.Job = LightJob  # type: ignore[misc]
    job.main()
