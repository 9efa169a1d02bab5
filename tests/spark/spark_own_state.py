"""Spark's own `transformWithState` over a topic, in a process of its own.

Each line of its input is an order, in JSON: a query that reads what the topic has, in batches of `most` records, with
a processor of `tests.spark.stateful_processors`. It answers with the rows of each batch, and with the state.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from devstack.jars import jars
from tests.spark import stateful_processors
from tests.spark.stateful_processors import COLUMNS, OUTPUT

ANSWER = "answer: "


def session(folder: str) -> SparkSession:
    streaming = "org.apache.spark.sql.execution.streaming.state"
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.driver.extraClassPath": f"{jars('spark-kafka')}/*",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.streaming.stateStore.providerClass": f"{streaming}.RocksDBStateStoreProvider",
        # So that what is due of event time is done with the next records, and rows are late by the last watermark.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.statefulOperator.allowMultiple": "false",
    }
    return SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()


def run(spark: SparkSession, order: dict[str, Any]) -> dict[str, Any]:
    batches: dict[int, list[list[str]]] = {}

    def keep(frame: DataFrame, number: int) -> None:
        batches[number] = sorted([repr(row.key), row.said, str(row.at)] for row in frame.collect())

    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", order["servers"])
        .option("subscribe", order["topic"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", order["most"])
        .load()
        .selectExpr(*COLUMNS)
    )
    if order["mode"] == "EventTime":
        rows = rows.withWatermark("at", order["delay"])
    initial = spark.createDataFrame(order["initial"], "key string, n long") if order["initial"] else None
    grouped = rows.groupBy("key")
    call = grouped.transformWithStateInPandas if order["pandas"] else grouped.transformWithState
    processor = getattr(stateful_processors, order["processor"])
    query = (
        call(
            processor(),
            OUTPUT,
            "Update",
            order["mode"],
            None if initial is None else initial.groupBy("key"),
        )
        .writeStream.foreachBatch(keep)
        .outputMode("update")
        .option("checkpointLocation", order["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    state = {name: _state(spark, order, name) for name in order["variables"]}
    return {"batches": [batches[number] for number in sorted(batches)], "state": state}


def _state(spark: SparkSession, order: dict[str, Any], variable: str) -> list[str]:
    frame = (
        spark.read.format("statestore")
        .option("path", order["checkpoint"])
        .option("stateVarName", variable)
        .load()
    )
    found = []
    for row in frame.collect():
        fields = row.asDict()
        value = fields.get("value", fields.get("list_element", fields.get("user_map_value")))
        value = value.value if "ttlExpirationMs" in value else value
        at = fields.get("user_map_key")
        found.append(repr((row.key.key, None if at is None else tuple(at), tuple(value))))
    return sorted(found)


def main() -> None:
    spark = session(sys.argv[1])
    for line in sys.stdin:
        print(ANSWER + json.dumps(run(spark, json.loads(line))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
