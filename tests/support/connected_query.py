"""A query on the connector, beside a real agent with its local API and its commits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from muster.consumer.agent import Agent
from muster.consumer.committer import Committer
from muster.consumer.connector import FORMAT
from muster.consumer.http_server import HttpServer
from muster.consumer.local_api import make_local_api
from muster.consumer.query import AT_ONCE, scratch_uri, unread_of, use_scratch
from muster.consumer.source.batch_size import Bounds
from muster.core.model import TopicAssignment
from muster.core.ownership import BatchPlan
from muster.core.turns import Failure
from muster.settings.connections import KafkaSettings
from tests.support.confirming import confirm


class Holder:
    """A consumer's agent that is assigned what the test says, claims that, and commits what is processed."""

    def __init__(
        self,
        kafka: KafkaSettings,
        group: str,
        most: int = 100_000,
        source_options: Mapping[str, str] | None = None,
        fencing: bool = False,
        rates: Mapping[str, float] | None = None,
        interval: float = 0.1,
    ) -> None:
        self.agent = Agent("me", fencing=fencing)
        self._servers = kafka.bootstrap_servers
        self._group = group
        self._zxid = 0
        self._app = make_local_api(
            self.agent, kafka, Bounds(most, rates=rates or {}), interval, source_options
        )
        self._api = HttpServer("local-api", self._app, "127.0.0.1", 0)
        self._committer = Committer(self.agent, kafka, "c", fencing)
        self._thread = threading.Thread(
            target=self._committer.run, args=(partial(confirm, self.agent),), daemon=True
        )

    @property
    def url(self) -> str:
        return self._api.url

    def hold(
        self,
        topic: str,
        partitions: Iterable[int],
        topic_id: str = "",
        servers: str = "",
        others: Iterable[int] = (),
    ) -> None:
        """From now on exactly `partitions` of `topic` are assigned to this consumer, and `others` to another one."""
        self._zxid += 1
        owners = dict.fromkeys(others, "another") | dict.fromkeys(partitions, "me")
        node = TopicAssignment(servers or self._servers, self._group, owners, self._zxid, topic_id=topic_id)
        self.agent.assigned(topic, node, self._zxid)

    def go_away(self) -> None:
        """No longer answer."""
        self._api.stop()

    def come_back(self) -> None:
        """Answer again, at the same address."""
        self._api = HttpServer("local-api", self._app, "127.0.0.1", self._api.port)
        self._api.start()

    def __enter__(self) -> Holder:
        self._api.start()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._committer.stop()
        self._api.stop()
        self._thread.join(10)


@dataclass
class Query:
    """`batches` holds the plan and the rows of each batch that held any, `empty` the rows of those that count for
    nothing."""

    batches: list[tuple[BatchPlan, list[Row]]] = field(default_factory=list)
    empty: list[list[Row]] = field(default_factory=list)
    query: StreamingQuery | None = None

    @property
    def rows(self) -> list[Row]:
        return [row for _, rows in self.batches for row in rows]

    def offsets(self, topic: str, partition: int = 0) -> list[int]:
        """In the order of arrival."""
        return [row.offset for row in self.rows if (row.topic, row.partition) == (topic, partition)]

    def values(self, topic: str, partition: int = 0) -> list[str]:
        return [
            bytes(row.value).decode() for row in self.rows if (row.topic, row.partition) == (topic, partition)
        ]

    def has(self, count: int) -> Callable[[], bool]:
        """Whether `count` records have arrived; an error of the query is raised, not waited for."""

        def enough() -> bool:
            self.check()
            return len(self.rows) >= count

        return enough

    def check(self) -> None:
        assert self.query is not None
        if failure := self.query.exception():
            raise failure

    def metrics(self) -> list[dict[str, str]]:
        """The source's metrics in each progress of the query, the last one its `lastProgress`."""
        assert self.query is not None
        return [dict(progress["sources"][0]["metrics"]) for progress in self.query.recentProgress]


@contextmanager
def reading(
    spark: SparkSession,
    holder: Holder,
    folder: Path,
    collect: Callable[[DataFrame], list[Row]] = lambda frame: frame.collect(),
    **options: bool | float | str,
) -> Iterator[Query]:
    """Run a query as `muster.consumer.query` does."""
    use_scratch(spark)
    found = Query()
    token = holder.agent.query_started()

    def process(frame: DataFrame, _: int) -> None:
        plan = holder.agent.batch_started()
        try:
            if plan.empty:
                found.empty.append(frame.collect())
            else:
                found.batches.append((plan, collect(frame)))
        except Exception as error:
            if unread := unread_of(error):
                holder.agent.batch_unread(plan, unread)
                return
            holder.agent.batch_done(plan, Failure(str(error)))
            raise
        holder.agent.batch_done(plan, None)

    found.query = (
        spark.readStream.format(FORMAT)
        .options(agent=holder.url, token=token, **options)
        .load()
        .writeStream.foreachBatch(process)
        .option("checkpointLocation", scratch_uri(folder))
        .trigger(processingTime=AT_ONCE)
        .start()
    )
    try:
        yield found
    finally:
        found.query.stop()
        holder.agent.query_ended(False)
