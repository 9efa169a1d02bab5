"""What runs in processes of their own while owners of state are killed: the handler, the coordinator with its
assignors, and Spark's own query.

All count and sum by key the same records, which have no key of their own: see `touched`.
"""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks.state_driver import OUTPUT, SparkItself
from muster.coordinator.opening import open_coordinator
from muster.core.assignors.api import Standbys
from muster.core.model import Assignment, Consumer
from muster.settings.cluster_settings import ClusterSettings
from muster.sinks import Batch
from tests.spark.consumer_job import Servers
from tests.spark.state_processors import totals_in_arrow

AT_ONCE = 2500
"""Keys that one of a partition's first records changes."""
STEP = 7919
"""From the key of one record to that of the next, which is in another part of the store; a prime number."""


def touched(frame: DataFrame, keys: int) -> DataFrame:
    """Return a row for each key that a record changes.

    The first records of a partition change `AT_ONCE` keys each, until all of its `keys` are there; each later one
    changes one.
    """
    first = f"sequence(offset * {AT_ONCE}, offset * {AT_ONCE} + {AT_ONCE - 1})"
    found = f"explode(IF(offset < {keys // AT_ONCE}, {first}, array(offset * {STEP} % {keys}))) AS number"
    rows = frame.selectExpr("topic", "partition", "offset", found)
    return rows.selectExpr(
        "topic", "partition", "offset", "concat(partition, '-', number) AS key", "offset AS amount"
    )


class Keeping:
    """The handler of a topic whose partitions have so many `keys`; 0: it keeps no state. The output is discarded."""

    def __init__(self, keys: int, **_: str) -> None:
        self._keys = keys

    def __call__(self, frame: DataFrame, batch: Batch) -> None:
        out: DataFrame | None = frame
        if self._keys:
            variables = {"totals": "n long, total long"}
            rows = touched(frame, self._keys)
            out = batch.state.transformWithStateInArrow(rows, totals_in_arrow, variables, OUTPUT)
        if out is not None:
            out.write.format("noop").mode("overwrite").save()


class WithSpare:
    """All to one consumer as long as it lives, and no consumer stands by."""

    name = "with-spare"

    def assign(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        previous: Assignment,
        /,
    ) -> dict[str, dict[int, str]]:
        if not consumers:
            return {}
        first = min(consumers)
        found: dict[str, dict[int, str]] = {}
        for topic, partitions in topics.items():
            before = previous.get(topic, {})
            found[topic] = {p: before[p] if before.get(p) in consumers else first for p in sorted(partitions)}
        return found


class WithStandby(WithSpare):
    """All to one consumer as long as it lives, and the other one stands by."""

    name = "with-standby"

    def standbys(
        self,
        _topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        assignment: Assignment,
        _previous: Standbys,
        /,
    ) -> Standbys:
        return {
            topic: {p: tuple(c for c in sorted(consumers) if c != owner) for p, owner in owners.items()}
            for topic, owners in assignment.items()
        }


class Coordination:
    """The coordinator of a cluster, without Airflow, as long as its process lives."""

    def __init__(self, cluster: ClusterSettings, servers: Servers) -> None:
        self._cluster, self._servers = cluster, servers
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        to = self._servers
        while True:
            try:
                with open_coordinator(self._cluster, to.zookeeper, to.consul, to.kafka) as one:
                    while True:
                        one.fetch_partitions()
                        if one.compute_assignment(self._cluster.long_poll_timeout).needed:
                            one.advance(self._cluster.advance_budget)
            except Exception:
                traceback.print_exc()  # as in Airflow the next run begins with new connections
                time.sleep(1)


class SparkCounting(SparkItself):
    """Spark's own count and sum by key, its built-in aggregation in the JVM. It goes on from its checkpoint."""

    def tuning(self) -> dict[str, str]:
        """As in the cells, and a snapshot of the state stands soon."""
        return {**super().tuning(), "spark.sql.streaming.stateStore.maintenanceInterval": "10s"}

    def begin(self, servers: str, topic: str, folder: Path, keys: int) -> None:
        """Start the query on a topic whose partitions have so many `keys`."""
        frame = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        counted = touched(frame, keys).groupBy("key").agg({"*": "count", "amount": "sum"})
        self._query = (
            counted.writeStream.format("noop").outputMode("update")
            .option("checkpointLocation", str(folder / "checkpoint")).start()
        )  # fmt: skip

    def ends(self) -> dict[int, int]:
        """Return where the last batch that is committed ends in each partition; nothing before the first one."""
        if failure := self._query.exception():
            raise failure
        progress = self._query.lastProgress
        if progress is None:
            return {}
        found = json.loads(progress["sources"][0]["endOffset"]) or {}
        return {int(partition): end for of in found.values() for partition, end in of.items()}
