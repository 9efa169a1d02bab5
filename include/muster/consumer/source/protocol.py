"""The local API between the agent, which plans, and the connector in Spark's JVM, which reads.

The agent serves it on the loopback interface, with a bearer token that is new for each query. Before each micro-batch
the connector makes one call: `POST /source/next` with `NextQuestion` -> `NextBatch`. The agent records the plan
before it answers, so a batch that the agent does not know is never run.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from muster.core.lenient import NUMBER

NEXT_PATH = "/source/next"

PartitionText = Annotated[str, Field(pattern=f"^({NUMBER.pattern})$")]
OffsetsJson = dict[str, dict[PartitionText, tuple[int, int]]]
"""`{topic: {"3": [from, to]}}`, as Spark stores it: the records from `from` up to, not including, `to`.
Partition numbers are text because Spark keeps offsets as JSON."""

TaskRangesJson = dict[str, dict[PartitionText, tuple[int, int, int]]]
"""`{topic: {"3": [from, to, then]}}`: the same; `then` is where the next range of the same task probably begins."""

Partition = Annotated[int, Field(ge=0)]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class GoneRange(_Message):
    """The records from `begin` up to, not including, `end` were planned, and a task did not find them in Kafka.

    `deleted`: the partition begins behind them; otherwise it was truncated before them.
    """

    topic: str
    partition: Partition
    begin: Annotated[int, Field(alias="from", ge=0)]
    end: Annotated[int, Field(alias="to", ge=0)]
    deleted: bool


class NextQuestion(_Message):
    """What the connector asks: the batch that follows the one that ended with `finished` (empty before the first).

    `parallelism` is how many tasks run at a time. `gone` is what tasks did not find since the last answer, `read` how
    many bytes of keys, values and headers they have read since the query began, `held` how many bytes the executors
    hold of what they read ahead.
    """

    finished: OffsetsJson = Field(default_factory=dict)
    parallelism: Annotated[int, Field(gt=0, le=100_000)] = 1
    gone: list[GoneRange] = Field(default_factory=list)
    read: Annotated[int, Field(alias="bytes", ge=0)] = 0
    held: Annotated[int, Field(ge=0)] = 0


class NextBatch(_Message):
    """The plan of a batch.

    `offset` is its end, equal to `finished` when there is nothing to do. `tasks` are by slot: what each reads of each
    Kafka cluster (its bootstrap servers); a partition stays in its slot from one batch to the next. A range may be
    empty: then its partition is only read ahead. Slots may each have a part of one partition's range, no slot more
    than one. `kafka` are the settings of Kafka's Java consumer by bootstrap servers. `metrics` are those of the
    source in Spark's progress. With `fail_on_data_loss` a task that does not find planned records because they were
    deleted fails, rather than go on behind them. `state` is what tasks on other hosts read changelogs with, as JSON.
    """

    offset: OffsetsJson
    tasks: list[dict[str, TaskRangesJson]] = Field(default_factory=list)
    kafka: dict[str, dict[str, str]] = Field(default_factory=dict, repr=False)
    state: str = Field("", repr=False)
    metrics: dict[str, str] = Field(default_factory=dict)
    fail_on_data_loss: Annotated[bool, Field(alias="failOnDataLoss")] = False
