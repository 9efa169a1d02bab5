"""Reads a Delta Lake table with Delta Lake for Spark, and looks after it as its owner would: a process of its own.

    python delta_lake.py JARS TABLE TIME

Restores the table to TIME, in the zone of the process, before `OPTIMIZE`. Prints one line of JSON: `rows` before the
RESTORE (partition, offset and value of each), and `files` before it and after `OPTIMIZE`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main() -> None:
    jars, table, time = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(str(jar) for jar in Path(jars).glob("*.jar")))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.sources.parallelPartitionDiscovery.parallelism", "1")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", f"{table}-warehouse")
        .getOrCreate()
    )
    files = [spark.read.format("delta").load(table).inputFiles()]
    rows = spark.read.format("delta").load(table).selectExpr("partition", "offset", "value").collect()
    spark.sql(f"RESTORE TABLE delta.`{table}` TO TIMESTAMP AS OF '{time}'")
    spark.sql(f"OPTIMIZE delta.`{table}`")
    spark.sql(f"VACUUM delta.`{table}` RETAIN 0 HOURS")
    files.append(spark.read.format("delta").load(table).inputFiles())
    print(json.dumps({"rows": [list(row) for row in rows], "files": [len(each) for each in files]}))
    spark.stop()


if __name__ == "__main__":
    main()
