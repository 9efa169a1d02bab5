"""Writes one batch of random records to a Delta Lake table in a driver with 512 MB of heap.

python -m tests.spark.large_batch PATH RECORDS BYTES
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from muster.sinks import Batch, DeltaSink


def main() -> None:
    path, records, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "512m")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    rows = spark.range(records).selectExpr(
        "'t' AS topic", "0 AS partition", "id AS offset", f"randstr({size}, 7) AS value"
    )
    DeltaSink(path)(rows, Batch({("t", 0): (0, records)}, {"t": "an-id"}))
    runtime = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    print(*(each for each in runtime.getInputArguments() if each.startswith("-Xmx")))


if __name__ == "__main__":
    main()
