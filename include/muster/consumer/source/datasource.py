"""`spark.readStream.format("muster")`: the partitions that the agent holds, as a stream.

Options: `agent` (URL of the local API), `token` (its bearer token), `parallelism` (tasks a batch at most; as
many as Spark has cores), `read_timeout` (seconds for which a partition may give nothing before a task fails),
`idle_wait` (seconds that a planning waits for something to read while there is nothing), `shares` (a folder of the
query's own on the one machine that driver and executors run on; leave it out where they run on several).
How to reach Kafka is no option, because Spark shows options in plans; the agent tells it.

Register with `spark.dataSource.register(MusterDataSource)`. Executors and the planner's process must be able to
import `muster`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from muster.consumer.source import reader
from muster.consumer.source.planner import Planner
from muster.consumer.source.protocol import AgentClient

FORMAT = "muster"
_NO_LIMIT = 2**31 - 1

SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField(
            "headers",
            ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
        ),
    ]
)
"""The columns of Spark's own Kafka source, headers included."""


class MusterDataSource(DataSource):
    """The source's entry point; Spark makes one from the options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Always `SCHEMA`."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> MusterStreamReader:  # noqa: N802  Spark's name
        """A reader for one query. Raises ValueError for options that are missing or wrong."""
        if schema != SCHEMA:
            raise ValueError(f"format {FORMAT!r} has a schema of its own; leave out .schema(...)")
        return MusterStreamReader(self.options)


class MusterStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What Spark asks: the planner's part in the process beside the driver, `read` in the executors.

    Spark pickles it for the executors, so connections are made on first use and never before.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._url = _option(options, "agent")
        self._token = _option(options, "token")
        self._parallelism = max(1, int(_number(options, "parallelism", 1)))
        self._read_timeout = _number(options, "read_timeout", 120.0)
        self._idle_wait = _number(options, "idle_wait", 0.0)
        self._shares = options.get("shares", "")
        self._made: Planner | None = None

    @property
    def _planner(self) -> Planner:
        if self._made is None:
            self._made = Planner(
                AgentClient(self._url, self._token),
                self._parallelism,
                self._read_timeout,
                idle_wait=self._idle_wait,
                shares=self._shares,
            )
        return self._made

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Nothing: each partition begins at the group's committed offset when it is first planned."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """A limit, so that Spark asks for limited batches; the agent says how much in each planning."""
        return ReadMaxRows(_NO_LIMIT)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """See `Planner.latest`."""
        if isinstance(limit, ReadMaxRows):
            return self._planner.latest(start, limit.max_rows)
        if isinstance(limit, ReadAllAvailable):
            return self._planner.latest(start, None)
        raise ValueError(f"format {FORMAT!r} cannot limit a batch by {type(limit).__name__}")

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """See `Planner.newest`."""
        return self._planner.newest()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """See `Planner.stop_at_present_end`."""
        self._planner.stop_at_present_end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch. `end` alone says what they hold, so a batch planned again is the same.

        The first batch is empty as long as nothing may be taken up; it is a rehearsal, see `Planner.rehearsal`.
        """
        return self._planner.rehearsal() if start == end else self._planner.tasks(end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task, in an executor."""
        if not isinstance(partition, reader.Task):
            raise TypeError(f"format {FORMAT!r} cannot read {partition!r}")
        return reader.read(partition)

    def stop(self) -> None:
        """End the planner's connections."""
        if self._made is not None:
            self._made.close()


def _option(options: Mapping[str, str], name: str) -> str:
    value = options.get(name)
    if not value:
        raise ValueError(f'format {FORMAT!r}: option {name!r} is missing; set .option("{name}", ...)')
    return value


def _number(options: Mapping[str, str], name: str, default: float) -> float:
    value = options.get(name, default)
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"format {FORMAT!r}: option {name!r} is {value!r}, expected a number") from None
