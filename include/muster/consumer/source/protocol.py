"""The local API between the agent, which knows what this consumer may read, and the planner, which plans it.

The agent serves it on the loopback interface, with a bearer token. Spark runs the planner in a process of its
own beside the driver; before each micro-batch it makes two calls:

- `GET /source/partitions` -> `SourcePartitions`: what the next batch may hold. A partition that is being closed
  is left out, and stays out until it is closed and committed; so one that comes back is always new to the
  planner and starts again from the group's committed offset.
  With `?wait=SECONDS` the answer waits for so long, or until there is something to read.
- `POST /source/planned` with `SourcePlanned` -> 204: what the next batch will hold, sent *before* Spark knows.
  It repeats `asked`, so the agent knows which answer the plan rests on: a partition left out of answer 7 is in
  no batch planned from answer 7 or a later one. A batch that the agent does not know is never planned.

A planning that comes to nothing new is posted as well, with `offsets` equal to `finished`: then Spark runs no
batch, so the agent must not wait for its progress.
"""

from __future__ import annotations

from types import TracebackType
from typing import Annotated, Self

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from muster.core.positions import Why

PARTITIONS_PATH = "/source/partitions"
PLANNED_PATH = "/source/planned"
NEXT_PATH = "/source/next"
"""`POST` with `NextQuestion` -> `NextBatch`: the connector in Spark's JVM asks for the next batch, which the agent
plans itself (`muster.consumer.plannings`)."""
LONGEST_WAIT = 1.0
"""Seconds that an answer may be asked to wait."""

PartitionText = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,9})$")]
Offsets = dict[str, dict[PartitionText, tuple[int, int]]]
"""`{topic: {"3": [from, to]}}`, as Spark stores it: the records from `from` up to, not including, `to`.
Partition numbers are text because Spark keeps offsets as JSON."""

Partition = Annotated[int, Field(ge=0)]

Jumps = dict[str, dict[PartitionText, tuple[int, int, Why]]]
"""`{topic: {"3": [before, after, why]}}`: partitions that go on at another offset than they were read up to."""


class AgentUnreachableError(ConnectionError):
    """The agent does not answer, or answers that it cannot at present; asking again may help."""


class AgentRefusedError(RuntimeError):
    """The agent answered something that asking again does not change (wrong token, not the agent)."""


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class TopicSource(_Message):
    """Where a topic's records are, whose offsets count, which topic it is, and which partitions may be read."""

    bootstrap_servers: Annotated[str, Field(alias="bootstrap.servers", min_length=1)]
    group_id: Annotated[str, Field(alias="group.id", min_length=1)]
    topic_id: Annotated[str, Field(alias="topic.id")] = ""
    partitions: list[Partition]


class SourcePartitions(_Message):
    """What the next batch may hold.

    `asked` grows with every answer. A topic that this agent has given once stays in `topics`, with no partitions
    if need be: a batch that Spark runs again after a failure may still hold it. `kafka` are librdkafka
    properties without `bootstrap.servers`, which each topic names itself. `operation_timeout` (seconds) bounds
    each planning's calls to one Kafka cluster.

    `nearby` is there as long as there is nothing to read: a topic of each Kafka cluster and group, with a partition
    that some consumer has. Who may have to take over soon stays connected to them, and rehearses with them.
    """

    asked: int
    topics: dict[str, TopicSource]
    nearby: dict[str, TopicSource] = Field(default_factory=dict)
    kafka: dict[str, str] = Field(default_factory=dict, repr=False)
    max_records_per_batch: Annotated[int, Field(gt=0)] = 500_000
    operation_timeout: Annotated[float, Field(gt=0)] = 10.0


class SourcePlanned(_Message):
    """What the next batch will hold.

    `asked` is that of the answer it was planned from. `finished` is the end of the last batch that Spark has
    completed (empty before the first): its records up to each `to` are processed, whether or not a progress event
    was seen. `offsets` is the end of the batch to come, equal to `finished` when there is none to come. `ends`
    are the partitions' ends in Kafka at this moment, for the lag. `problems` are sentences for the status page,
    empty when all is well; they replace those of the last planning. `jumps` are the partitions that do not go on
    where they were read up to.
    """

    asked: int
    finished: Offsets
    offsets: Offsets
    ends: dict[str, dict[PartitionText, int]] = Field(default_factory=dict)
    problems: list[str] = Field(default_factory=list)
    jumps: Jumps = Field(default_factory=dict)

    @property
    def plans_batch(self) -> bool:
        """Whether Spark will run a batch for this (perhaps one without records)."""
        return self.offsets != self.finished


class GoneRange(_Message):
    """The records from `begin` up to, not including, `end` were planned, and a task did not find them in Kafka.

    `deleted`: the partition begins behind them; otherwise it ends before them, or is not there.
    """

    topic: str
    partition: Partition
    begin: Annotated[int, Field(alias="from", ge=0)]
    end: Annotated[int, Field(alias="to", ge=0)]
    deleted: bool


class NextQuestion(_Message):
    """What the connector asks: the batch that follows the one that ended with `finished` (empty before the first).

    `parallelism` is how many tasks run at a time. `gone` is what the tasks of that batch did not find.
    """

    finished: Offsets = Field(default_factory=dict)
    parallelism: Annotated[int, Field(gt=0, le=100_000)] = 1
    gone: list[GoneRange] = Field(default_factory=list)


class NextBatch(_Message):
    """The plan of a batch.

    `offset` is its end, equal to `finished` when there is nothing to do. `tasks` are by slot: what each reads of each
    Kafka cluster (its bootstrap servers); a partition stays in its slot from one batch to the next. A range may be
    empty: then its partition is only read ahead. `kafka` are the settings of Kafka's Java consumer by bootstrap
    servers. `metrics` are those of the source in Spark's progress.
    """

    offset: Offsets
    tasks: list[dict[str, Offsets]] = Field(default_factory=list)
    kafka: dict[str, dict[str, str]] = Field(default_factory=dict, repr=False)
    metrics: dict[str, str] = Field(default_factory=dict)


class AgentClient:
    """The planner's end of the local API. `timeout` (seconds) is for one call."""

    def __init__(self, url: str, token: str, timeout: float = 5.0) -> None:
        self._url = url
        # The agent is on this machine: a proxy from the environment would only be in the way.
        self._http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=timeout, trust_env=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def partitions(self, wait: float = 0.0) -> SourcePartitions:
        """Ask what the next batch may hold; while that is nothing, have the answer wait up to `wait` seconds.

        Raises `AgentUnreachableError` when asking again may help, else `AgentRefusedError`.
        """
        answer = self._call("GET", f"{PARTITIONS_PATH}?wait={wait:g}" if wait > 0 else PARTITIONS_PATH)
        try:
            return SourcePartitions.model_validate_json(answer.content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise AgentRefusedError(
                f"agent at {self._url}: answer to {PARTITIONS_PATH}: {where}: {first['msg']}; check that the driver "
                "and this process run the same version of muster"
            ) from error

    def planned(self, plan: SourcePlanned) -> None:
        """Tell what the next batch will hold; raises as `partitions` does, and then no batch may be planned."""
        self._call("POST", PLANNED_PATH, plan.model_dump_json(by_alias=True))

    def _call(self, method: str, path: str, content: str | None = None) -> httpx.Response:
        headers = {"Content-Type": "application/json"} if content is not None else {}
        try:
            answer = self._http.request(method, path, content=content, headers=headers)
        except httpx.TransportError as error:
            raise AgentUnreachableError(
                f"agent at {self._url}: {method} {path}: {error or type(error).__name__}; it runs in the driver "
                "script, whose log says whether it is still there"
            ) from error
        if answer.is_server_error:
            raise AgentUnreachableError(
                f"agent at {self._url}: {method} {path}: {answer.status_code}: {answer.text[:300]}; the driver's log "
                "says why"
            )
        if not answer.is_success:
            refused = "check the source's options 'agent' and 'token', unless its query has ended"
            steps: dict[int, str] = {
                httpx.codes.UNAUTHORIZED: refused,
                httpx.codes.CONFLICT: "the query is started again, from the committed offsets",
            }
            step = steps.get(answer.status_code, "check the source's option 'agent'")
            raise AgentRefusedError(
                f"agent at {self._url}: {method} {path}: {answer.status_code}: {answer.text[:300]}; {step}"
            )
        return answer
