"""`ParquetSink` with a real Spark: as a handler's helper, on frames of all kinds, and read back."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

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


def parquet_files(path: Path) -> list[str]:
    """What any reader takes for a Parquet file, also one that looks everywhere."""
    return sorted(file.name for file in path.rglob("*.parquet"))


def test_small_batches_are_joined_and_stay_hidden_until_then(spark: SparkSession, tmp_path: Path) -> None:
    killed, newer = (ParquetSink(str(tmp_path), file_size="1GB", max_delay="1h") for _ in range(2))
    write(spark, killed, {("t", 0): (0, 10), ("t", 1): (5, 9)})
    write(spark, killed, {("t", 0): (10, 20)})
    killed(frame(spark, {("t", 0): (20, 30)}).where("offset < 0"), Batch({("t", 0): (20, 30)}))
    assert parquet_files(tmp_path) == []
    made = frame(spark, {("t", 0): (30, 40)}).repartition(3)
    newer(made, Batch({("t", 0): (30, 40)}))
    write(spark, newer, {("t", 0): (15, 50)})
    write(spark, newer, {("t", 1): (7, 12)})
    assert parquet_files(tmp_path) == []
    newer.close()
    assert parquet_files(tmp_path) == [
        "00000000000000000000-00000000000000000049.parquet",
        "00000000000000000005-00000000000000000011.parquet",
    ]
    whole = expected({("t", 0): (0, 20)}) | expected({("t", 0): (30, 50), ("t", 1): (5, 12)})
    assert dict(rows(tmp_path)) == whole
    assert spark.read.parquet(str(tmp_path)).count() == len(whole)
    write(spark, killed, {("t", 0): (0, 60)})  # it was frozen only
    killed.close()
    assert dict(rows(tmp_path)) == whole | expected({("t", 0): (50, 60)})
    assert not [file for file in (tmp_path / "_pending").rglob("*") if file.is_file()]


def test_file_is_published_when_it_is_large_enough_and_ends_where_columns_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = ParquetSink(str(tmp_path), file_size=1, max_delay="1h")
    write(spark, sink, {("t", 0): (0, 10)})
    assert dict(rows(tmp_path)) == expected({("t", 0): (0, 10)})
    sink.close()
    sink = ParquetSink(str(tmp_path), file_size="1GB", max_delay="1h")
    write(spark, sink, {("t", 0): (10, 20)})
    write(spark, sink, {("t", 0): (20, 30)})
    wider = frame(spark, {("t", 0): (30, 40)}).selectExpr("*", "1 AS more")
    sink(wider, Batch({("t", 0): (30, 40)}))
    sink.close()
    assert [name[15:20] for name in parquet_files(tmp_path)] == ["00000", "00010", "00030"]
    assert dict(rows(tmp_path)) == expected({("t", 0): (0, 40)})


def test_idle_partition_is_published_in_time(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(str(tmp_path), file_size="1GB", max_delay="1s")
    for topic_id in ("A", "B"):
        sink(frame(spark, {("t", 0): (0, 10)}), Batch({("t", 0): (0, 10)}, {"t": topic_id}))
    deadline = time.monotonic() + 120
    while len(parquet_files(tmp_path)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert dict(rows(tmp_path)) == dict.fromkeys(expected({("t", 0): (0, 10)}), 2), "each topic has it once"
    sink.close()


def test_option_that_is_taken_away_leaves_nothing_pending_once_a_batch_comes(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(spark, ParquetSink(str(tmp_path), file_size="1GB"), {("t", 0): (0, 10)})  # killed
    write(spark, ParquetSink(str(tmp_path)), {("t", 0): (5, 20)})
    assert dict(rows(tmp_path)) == expected({("t", 0): (0, 20)})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"file_size": "big"}, "'file_size' 'big' is not a number of bytes"),
        ({"file_size": 0}, "'file_size' 0 is not"),
        ({"file_size": "1GB", "max_delay": "soon"}, "a duration is a number of seconds"),
        ({"file_size": "1GB", "max_delay": 0}, "'max_delay' is longer than 0"),
    ],
)
def test_options_of_no_use_are_refused(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ParquetSink(str(tmp_path), **options)
