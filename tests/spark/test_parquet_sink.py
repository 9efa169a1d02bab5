"""`ParquetSink` with a real Spark: as a handler's helper, on frames of all kinds, and read back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.dataset
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from muster.sinks import Batch, ParquetSink

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

Ranges = dict[tuple[str, int], tuple[int, int]]


def frame(spark: SparkSession, ranges: Ranges) -> DataFrame:
    rows = [(t, p, n, f"{t}/{p}/{n}") for (t, p), held in ranges.items() for n in range(*held)]
    return spark.createDataFrame(rows, "topic string, partition int, offset long, value string")


def write(spark: SparkSession, sink: ParquetSink, ranges: Ranges) -> None:
    sink(frame(spark, ranges), Batch(ranges))


def rows(path: Path) -> Counter[tuple[str, int, int, str]]:
    table = pyarrow.dataset.dataset(path, format="parquet", partitioning="hive").to_table()
    return Counter(
        zip(*(table.column(n).to_pylist() for n in ("topic", "partition", "offset", "value")), strict=True)
    )


def expected(ranges: Ranges) -> dict[tuple[str, int, int, str], int]:
    return {(t, p, n, f"{t}/{p}/{n}"): 1 for (t, p), held in ranges.items() for n in range(*held)}


def test_batches_that_come_again_with_other_bounds(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(f"file://{tmp_path}")
    write(spark, sink, {("t", 0): (0, 50), ("t", 1): (7, 9), ("u", 0): (0, 5)})
    for again in (sink, ParquetSink(str(tmp_path))):
        write(spark, again, {("t", 0): (40, 80), ("t", 1): (7, 30)})
    whole: Ranges = {("t", 0): (0, 80), ("t", 1): (7, 30), ("u", 0): (0, 5)}
    assert dict(rows(tmp_path)) == expected(whole)
    back = spark.read.parquet(str(tmp_path))
    assert back.count() == sum(end - begin for begin, end in whole.values())
    assert back.where("topic = 't' AND partition = 1").count() == 23


def test_a_recreated_topic_is_written_beside_the_old_one_and_both_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    ranges: Ranges = {("t", 0): (0, 10)}
    write(spark, ParquetSink(str(tmp_path)), ranges)
    for topic_id, begin in (("A", 0), ("B", 0), ("B", 5)):
        batch = Batch({("t", 0): (begin, 20)}, {"t": topic_id})
        ParquetSink(str(tmp_path))(frame(spark, {("t", 0): (begin, 20)}), batch)
    assert dict(rows(tmp_path)) == dict.fromkeys(expected({("t", 0): (0, 20)}), 2), "each topic has it once"
    back = spark.read.parquet(str(tmp_path))
    assert (back.count(), back.where("topic = 't' AND partition = 0").count()) == (40, 40)


def test_late_writer_writes_only_missing_records(spark: SparkSession, tmp_path: Path) -> None:
    late, newer = ParquetSink(str(tmp_path)), ParquetSink(str(tmp_path))
    write(spark, late, {("t", 0): (0, 10)})
    write(spark, newer, {("t", 0): (10, 20)})
    write(spark, newer, {("t", 0): (25, 30)})
    write(spark, late, {("t", 0): (5, 40)})
    assert dict(rows(tmp_path)) == expected({("t", 0): (0, 40)})


def test_frames_that_a_handler_made_of_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(str(tmp_path))
    ranges: Ranges = {("t", 0): (0, 100), ("t", 1): (0, 100)}
    made = frame(spark, ranges).repartition(3).where("offset % 2 = 0")  # mixed up, and not all of it
    for _ in range(2):
        sink(made.union(made.where("offset = 4")), Batch(ranges))  # one record that became two rows
    found = rows(tmp_path)
    assert len(found) == 100
    assert {count for (_, _, offset, _), count in found.items() if offset != 4} == {1}
    assert {count for (_, _, offset, _), count in found.items() if offset == 4} == {2}


def test_records_of_another_batch_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(str(tmp_path))
    ranges: Ranges = {("t", 0): (0, 10)}
    with pytest.raises(PySparkException, match="batch holds 0 to 9"):
        sink(frame(spark, {("t", 0): (5, 15)}), Batch(ranges))
    with pytest.raises(PySparkException, match="no column offset"):
        sink(frame(spark, ranges).drop("offset"), Batch(ranges))
    sink(frame(spark, ranges).where("offset < 0"), Batch(ranges))
    assert not list(tmp_path.rglob("*.parquet")), "nothing is written by halves"
    with pytest.raises(ValueError, match="not on a file system"):
        ParquetSink("s3://bucket/data")
