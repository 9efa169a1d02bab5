"""A whole consumer but for Spark's JVM: `python -m tests.hosts.light_job`, with the settings in `MUSTER_CONSUMER`.

The job is `muster.consumer.main`'s, with its agent, registrar, committer, pages, planner, reader and its way to end;
what a batch holds is read from Kafka and handed to the handler. Only where Spark would run the query a loop does, so
that six such consumers and three brokers fit on two cores.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from muster.consumer import main as job
from muster.consumer.agent import Agent
from muster.consumer.lifecycle import Beat
from muster.consumer.query import QuerySupervisor
from muster.consumer.source.planner import Planner
from muster.consumer.source.protocol import AgentClient
from muster.consumer.source.reader import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_LIMIT = 2**31 - 1


class Table:
    """What a handler is given in a DataFrame's place."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = [batch for batch in batches if batch.num_rows]

    def toArrow(self) -> pa.Table:  # noqa: N802  Spark's name
        """All records."""
        return pa.Table.from_batches(self._batches) if self._batches else pa.table({})


class NoSpark:
    """What the job stops in the place of a Spark session."""

    def stop(self) -> None:
        """Nothing runs."""


class LightQuery(QuerySupervisor):
    """Runs the query again and again as with Spark; one run of it is a loop."""

    def __init__(
        self,
        spark: SparkSession,
        agent: Agent,
        handler: job.Handler,
        local_api: str,
        trigger_interval: float,
        name: str,
        **more: Any,
    ) -> None:
        unused = cast("SparkSession", _Registry())
        super().__init__(unused, agent, handler, local_api, trigger_interval, name, **more)
        self._rehearsed = True

    def _run_once(self, beat: Beat) -> str | None:
        token = self._agent.query_started()
        planner = Planner(AgentClient(self._local_api, token), idle_wait=self._interval)
        failed = True
        try:
            self._go_on(planner, beat)
            failed = False
        except Exception as error:
            return self._error or f"{type(error).__name__}: {error}"
        finally:
            self._agent.query_ended(failed)
            planner.close()
        return None

    def _go_on(self, planner: Planner, beat: Beat) -> None:
        start: dict[str, Any] = {}
        number = 0
        while not self._stopped.is_set():
            began = time.monotonic()
            beat()
            end = planner.latest(start, NO_LIMIT)
            if end != start or number == 0:
                tasks = [] if end == start else planner.tasks(end)
                frame = Table([batch for task in tasks for batch in read(task)])
                self._batch(cast("DataFrame", frame), number)
                start, number = end, number + 1
            self._stopped.wait(max(0.0, self._interval - (time.monotonic() - began)))


class _Registry:
    """As much of a session as a supervisor asks for when it is made."""

    @property
    def dataSource(self) -> _Registry:  # noqa: N802  Spark's name
        return self

    @property
    def conf(self) -> _Registry:
        return self

    def register(self, *_: object) -> None:
        """Spark would take the source."""

    def set(self, *_: object) -> None:
        """Spark would take the setting."""


class LightJob(job.Job):
    """The job without a session."""

    def _start_spark(self) -> SparkSession:
        return cast("SparkSession", NoSpark())


if __name__ == "__main__":
    job.QuerySupervisor = LightQuery  # type: ignore[misc]
    job.Job = LightJob  # type: ignore[misc]
    job.main()
