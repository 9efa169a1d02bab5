"""Writes one batch of records of 1 kB with a sink, in a driver with 512 MB of heap; prints the heap's bound.

python tests/spark/large_batch.py SINK OPTIONS RECORDS
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

import muster.sinks


def main() -> None:
    name, options, records = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's workers take another one otherwise
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "512m")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    rows = spark.range(records).selectExpr(
        "'t' AS topic", "0 AS partition", "id AS offset", "randstr(1000, 7) AS value"
    )
    batch = muster.sinks.Batch({("t", 0): (0, records)}, {"t": "an-id"})
    getattr(muster.sinks, name)(**options)(rows, batch)
    runtime = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    print(*(each for each in runtime.getInputArguments() if each.startswith("-Xmx")))


if __name__ == "__main__":
    main()
