"""Keeps the consumer's one streaming query running.

Each run of the query begins with nothing: a new token for the connector, and a scratch checkpoint that is removed
afterwards. Kafka's committed offsets say where to begin. A query that fails is started again within the job, after
a pause that doubles from one failure to the next.

A batch's offsets count as processed when the handler has returned. That is exact: the agent planned the batch
before Spark knew of it, Spark runs one batch at a time, and each planning says where Spark stands, which
the agent compares. Spark's progress events come later, through a queue that may drop them, and not at all for the
last batch before a stop.
"""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.streaming.query import StreamingQuery

from muster.consumer.agent import Agent
from muster.consumer.cause import DEATH, cause
from muster.consumer.connector import FORMAT, SCRATCH, SCRATCH_CLASS
from muster.consumer.handler import Handler
from muster.consumer.lifecycle import Beat
from muster.consumer.state.errors import (
    FailedTimer,
    LargeBatchError,
    NoState,
    StateError,
    StateStoreError,
    failed_timer,
)
from muster.core.model import TopicPartition
from muster.core.ownership import BatchPlan
from muster.core.turns import Failure
from muster.core.unread import ReadFailure, read_failures
from muster.sinks.batch import Batch, Rejected, RejectedRecordsError, RejectionRefusedError
from muster.sinks.sink_error import SinkError

log = logging.getLogger(__name__)

PROBLEM = "query"
ENDED = "it ended without an error"
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a failed query is started again, at first and at most."""
HEALTHY_AFTER = 60.0
"""A query that ran this many seconds begins with `FIRST_PAUSE` again when it fails."""
AT_ONCE = "0 seconds"
"""Spark's trigger: the agent is asked for the next batch at once, and answers when that is due."""
WARM_UPS = 3
"""How often the first batch is gone through to warm up; each time is faster than the one before."""
MOVED = (4, 1)
"""The version of Spark since which what manages the files of checkpoints, which has no public name, is in a package
of its own."""
_OF_SOURCE = re.compile(r"^\s*at muster\.connector\.", re.MULTILINE)
"""What Spark says where its source could not be read."""
_OF_DEATH = re.compile(rf"{DEATH}|ExecutorLostFailure|java\.lang\.OutOfMemoryError")
"""What Spark says where a process died."""


class QuerySupervisor:
    """Runs the query of `spark` that gives batches to `handler`. `run` is the loop, until `stop`.

    `local_api` is the URL that the connector finds the agent at; `max_read_ahead` is that of `ConsumerSettings`.
    `before_rejects` is called before the agent is asked whether the handler may reject records.
    """

    def __init__(
        self,
        spark: SparkSession,
        agent: Agent,
        handler: Handler,
        local_api: str,
        name: str,
        max_read_ahead: int | None = None,
        states: Any = None,
        before_rejects: Callable[[], None] = lambda: None,
    ) -> None:
        self._states = states
        self._before_rejects = before_rejects
        self._spark = spark
        self._agent = agent
        self._handler = handler
        self._local_api = local_api
        self._name = name
        self._max_read_ahead = max_read_ahead
        self._stopped = threading.Event()
        self._error: str | None = None
        self._tried: dict[tuple[TopicPartition, str], tuple[int, int]] = {}
        """By partition and topic id: up to where the handler has raised, and how many times."""
        use_scratch(spark)

    def stop(self) -> None:
        """End the loop and the query, as soon as the batch under way is done."""
        self._stopped.set()

    def run(self, beat: Beat) -> None:
        """Run the query, again and again."""
        pause = FIRST_PAUSE
        while not self._stopped.is_set():
            began = time.monotonic()
            error = self._run_once(beat)
            if error is None:
                continue
            if time.monotonic() - began > HEALTHY_AFTER:
                pause = FIRST_PAUSE
            self._agent.problems.note(
                PROBLEM, f"the query failed and is started again in {pause:g} s: {error}"
            )
            until = time.monotonic() + pause
            while time.monotonic() < until and not self._stopped.wait(min(1.0, until - time.monotonic())):
                beat()
            pause = min(LONGEST_PAUSE, pause * 2)

    def _run_once(self, beat: Beat) -> str | None:
        """Run the query until it ends; returns why it failed, None if it was stopped."""
        token = self._agent.query_started()
        scratch = Path(tempfile.mkdtemp(prefix="muster-query-"))
        self._error = None
        failure: str | None = ENDED
        try:
            query = self._start(token, scratch)
            while not query.awaitTermination(0.5):  # type: ignore[arg-type]  # seconds, fractions are fine
                beat()
                if self._stopped.is_set():
                    query.stop()
        except (PySparkException, Py4JError) as error:
            failure = self._error or cause(error)
        else:
            failure = None if self._stopped.is_set() else ENDED
        finally:
            self._agent.query_ended(failure is not None, failure or "")
            shutil.rmtree(scratch, ignore_errors=True)
        return failure

    def _start(self, token: str, scratch: Path) -> StreamingQuery:
        return (
            self._spark.readStream.format(FORMAT)
            .option("agent", self._local_api)
            .option("token", token)
            .option("max_read_ahead", self._max_read_ahead or 0)
            .load()
            .writeStream.foreachBatch(self._batch)
            .option("checkpointLocation", scratch_uri(scratch / "checkpoint"))
            .trigger(processingTime=AT_ONCE)
            .queryName(self._name)
            .start()
        )

    def _warm_up(self, frame: DataFrame) -> None:
        """Do with a batch what most handlers do, and discard the result, so that the first records that count need
        not wait until Spark has loaded and compiled what it takes. What is in it `Planner` says.
        """
        began = time.monotonic()
        try:
            for _ in range(WARM_UPS):
                read = frame.selectExpr("topic", "partition", "offset", "CAST(value AS STRING)")
                read.toArrow() if hasattr(read, "toArrow") else read.collect()  # Spark 3.5 has no `toArrow`
                frame.write.format("noop").mode("append").save()
        except (PySparkException, Py4JError) as error:
            log.warning("the first batch will take longer, because warming up failed: %s", cause(error))
        else:
            log.info("warmed up in %.1f s", time.monotonic() - began)

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        """Hand one batch to the handler. Spark calls this in a thread of its own.

        That the handler raises fails the batch and not the query, which goes on with other partitions.
        """
        plan = self._agent.batch_started()
        if plan.empty and not plan.due:
            if batch_id == 0:
                self._warm_up(frame)
            self._agent.batch_done(plan, None)
            return
        batch = self._batch_of(plan)
        try:
            self._call(frame, batch)
            if self._states is not None:
                self._states.computed(batch.state.computed)
                self._due_done(plan, None, batch.state.computed)
        except (Exception, SystemExit) as error:
            if any(isinstance(each, LargeBatchError) for each in _chain(error)):
                log.info("%s; it is planned again, with fewer records", error)
                self._agent.batch_again(plan)
                return
            if unread := unread_of(error):
                log.warning("%s; of the batch %s nothing counts", "; ".join(map(str, unread)), plan.offsets)
                self._agent.batch_unread(plan, unread)
                return
            if (timer := _failed_timer(error)) is not None and self._states is not None:
                log.exception("a timer failed with %s", plan.offsets)
                self._states.timer_failed(timer)
                self._agent.timer_failed(plan, timer.tp, timer.why)
                return
            log.exception("the handler failed with %s", plan.offsets)
            self._due_done(plan, error)
            self._note_failure(batch)
            refused = batch.rejected if isinstance(error, RejectionRefusedError) else {}
            if self._agent.batch_done(plan, failure_of(error), refused, batch.report):
                self._error = f"the handler failed time and again: {cause(error)}"
                raise
        except BaseException:
            self._agent.batch_done(plan, Failure("interrupted", of_record=False))
            raise
        else:
            self._agent.batch_done(plan, None, batch.rejected, batch.report)
            self._agent.problems.note(PROBLEM, None)
        finally:
            if self._states is not None:
                batch.state.close()

    def _batch_of(self, plan: BatchPlan) -> Batch:
        batch = Batch(plan.filled, plan.topic_ids, rebuilds=plan.rebuilds, due=plan.due)
        return replace(
            batch,
            attempt=1 + self._failures(batch),
            may_reject=lambda rejected: self._may_reject(plan, rejected),
            has_lowest=self._has_lowest,
            state=self._state_of(plan),
        )

    def _may_reject(self, plan: BatchPlan, rejected: Rejected) -> str:
        self._before_rejects()
        return self._agent.may_reject(plan, rejected)

    def _has_lowest(self, topic: str) -> bool:
        with self._agent.shared.locked() as own:
            return topic in own.topics and own.topics[topic].has_lowest

    def _state_of(self, plan: BatchPlan) -> Any:
        if self._states is None:
            return NoState()
        from muster.consumer.state.session import BatchState  # noqa: PLC0415  needs PySpark 4 and the extra `state`

        return BatchState(self._states, plan.filled, {tp: plan.ranges[tp][0] for tp in plan.due})

    def _due_done(
        self, plan: BatchPlan, error: BaseException | None, computed: Collection[TopicPartition] = ()
    ) -> None:
        """Say whether what was due of shards without records failed, or was not asked for."""
        if self._states is None or not plan.due:
            return
        self._states.due_done(plan.due & set(computed), failed=False)
        self._states.due_done(plan.due - set(computed), failed=True)
        shards = ", ".join(f"{topic} [{partition}]" for topic, partition in sorted(plan.due))
        why = None if error is None else f"what is due of the state of {shards} failed: {cause(error)}"
        self._agent.problems.note("timers", why)

    def _call(self, frame: DataFrame, batch: Batch) -> None:
        """Call the handler, again without the records that its exceptions name, and without those named before."""
        known = -1
        while True:
            try:
                self._handler(frame if known < 0 else without(frame, batch.rejected), batch)
                break
            except RejectedRecordsError as error:
                batch.reject(error.offsets, error)
                named = sum(map(len, batch.rejected.values()))
                if named == known:
                    raise  # nothing new: it fails with something else
                known, batch = named, replace(batch, attempt=batch.attempt + 1)
                if self._states is not None:
                    batch.state.again()
        if why := batch.may_reject(batch.rejected) if batch.rejected else "":
            raise RejectionRefusedError(why)  # the handler has caught it

    def _failures(self, batch: Batch) -> int:
        """Count how many times the handler has raised with records of a batch, or with some just before them."""
        found = 0
        for tp, (begin, _) in batch.ranges.items():
            end, failures = self._tried.get((tp, batch.topic_ids.get(tp[0], "")), (0, 0))
            found = max(found, failures if begin < end else 0)
        return found

    def _note_failure(self, batch: Batch) -> None:
        for tp, (begin, end) in batch.ranges.items():
            place = (tp, batch.topic_ids.get(tp[0], ""))
            until, failures = self._tried.get(place, (0, 0))
            self._tried[place] = (max(until, end), failures + 1) if begin < until else (end, 1)


def unread_of(error: BaseException) -> list[ReadFailure]:
    """Find what the connector could not read, in an error or in what that was raised for."""
    return next(filter(None, (read_failures(str(each)) for each in _chain(error))), [])


def _failed_timer(error: BaseException) -> FailedTimer | None:
    """Find the timer in which a processor raised, in the same way."""
    texts = (f"{type(each).__name__}: {each}" for each in _chain(error))
    return next(filter(None, map(failed_timer, texts)), None)


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error and what it was raised for, each once: a handler may raise an error from itself."""
    chain = [error]
    while (reason := chain[-1].__cause__ or chain[-1].__context__) is not None and reason not in chain:
        chain.append(reason)
    return chain


def scratch_settings(spark_version: str) -> dict[str, str]:
    """Return the settings of a session whose checkpoints are at a `scratch_uri`.

    Their files have no checksum, and get to their places by a plain rename, which needs no process either.
    """
    streaming = "org.apache.spark.sql.execution.streaming"
    major, minor = map(int, spark_version.split(".")[:2])
    package = f"{streaming}.checkpointing" if (major, minor) >= MOVED else streaming
    return {
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.sql.streaming.checkpointFileManagerClass": f"{package}.FileSystemBasedCheckpointFileManager",
        f"fs.{SCRATCH}.impl": SCRATCH_CLASS,
    }


def use_scratch(spark: SparkSession) -> None:
    """Have a session's checkpoints at a `scratch_uri`."""
    for name, value in scratch_settings(spark.version).items():
        spark.conf.set(name, value)


def scratch_uri(folder: Path) -> str:
    """Return the address in Spark of a local folder for what is not read after a crash."""
    return f"{SCRATCH}://{folder}"


def without(frame: DataFrame, rejected: Rejected) -> DataFrame:
    """Leave records out of a batch."""
    for (topic, partition), offsets in rejected.items():
        of_partition = (col("topic") == topic) & (col("partition") == partition)
        frame = frame.where(~(of_partition & col("offset").isin(list(offsets))))
    return frame


def failure_of(error: BaseException) -> Failure:
    """Say what a handler failed with, and whether a record can be at fault: not for a `SinkError`, also as the cause
    of another error or in a task of Spark's, nor where reading failed or a process died."""
    text = cause(error)
    not_a_records = SinkError | RejectionRefusedError | StateStoreError | StateError
    of_sink = any(isinstance(each, not_a_records) for each in _chain(error)) or Failure(text).kind.endswith(
        ("SinkError", "StateStoreError")
    )
    death, of_source = bool(_OF_DEATH.search(str(error))), bool(_OF_SOURCE.search(str(error)))
    return Failure(text, not (of_sink or death or of_source), death and not (of_sink or of_source))
