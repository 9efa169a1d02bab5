"""A driver to be killed: reads one topic through the Spark source and appends each batch to a file.

Arguments: agent URL, token, checkpoint, file. A line is `batch id, topic, partition, offset, value`, and a
batch's last line is `done, batch id`, written when the batch is complete.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from muster.consumer.source.datasource import MusterDataSource


def main(agent: str, token: str, checkpoint: str, file: str) -> None:
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.dataSource.register(MusterDataSource)

    def process(batch: DataFrame, batch_id: int) -> None:
        rows = batch.select("topic", "partition", "offset", "value").collect()
        with Path(file).open("a", encoding="utf-8") as out:
            for row in rows:
                out.write(
                    f"{batch_id},{row.topic},{row.partition},{row.offset},{bytes(row.value).decode()}\n"
                )
            out.write(f"done,{batch_id}\n")
            out.flush()
            os.fsync(out.fileno())

    stream = session.readStream.format("muster").option("agent", agent).option("token", token).load()
    query = (
        stream.writeStream.foreachBatch(process)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
