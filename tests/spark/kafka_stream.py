"""A query of Spark's own Kafka source, with a checkpoint, that reads what there is and ends: a process of its own.

    python kafka_stream.py JARS SERVERS TOPIC CHECKPOINT FAIL

With FAIL=1 its last batch is begun and not finished.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession


def main() -> None:
    jars, servers, topic, checkpoint, fail = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(str(jar) for jar in Path(jars).glob("*.jar")))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.warehouse.dir", f"{checkpoint}-warehouse")
        .getOrCreate()
    )

    def process(frame: DataFrame, _: int) -> None:
        if fail == "1":
            raise RuntimeError("the last batch fails")
        frame.count()

    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.foreachBatch(process)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except Exception:
        if fail != "1":
            raise
    spark.stop()


if __name__ == "__main__":
    main()
