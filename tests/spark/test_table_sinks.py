"""`DatabaseSink` and `DeltaSink` with a real Spark: frames of all kinds, and readers of their own."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

from devstack.jars import jars
from devstack.postgresql import PostgreSQL
from muster.sinks import Batch, DatabaseSink, DeltaSink, SinkError
from tests.support.database_writer import OFFSETS_TABLE
from tests.support.only_long import only_long
from tests.support.recipes import Recipe

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Ranges = dict[tuple[str, int], tuple[int, int]]
IDS = {"t": "an-id", "u": "another"}
AT = dt.datetime(2026, 3, 29, 1, 30, tzinfo=dt.UTC)
"""A moment that Berlin does not have twice, but nearly."""


def frame(spark: SparkSession, ranges: Ranges) -> DataFrame:
    rows = [(t, p, n, f"{t}/{p}/{n}", AT) for (t, p), held in ranges.items() for n in range(*held)]
    schema = "topic string, partition int, offset long, value string, timestamp timestamp"
    return spark.createDataFrame(rows, schema)


def expected(ranges: Ranges) -> dict[tuple[Any, ...], int]:
    return {(p, n, f"{t}/{p}/{n}"): 1 for (t, p), held in ranges.items() for n in range(*held)}


def read_by_spark(table: Path, restored: int) -> tuple[Counter[tuple[Any, ...]], list[int]]:
    """Read the table, and restore it to this version by a time between its commit and the next one."""
    made = [(table / "_delta_log" / f"{each:020}.json").stat().st_mtime for each in (restored, restored + 1)]
    time = str(dt.datetime.fromtimestamp(sum(made) / 2))  # noqa: DTZ006
    script = str(Path(__file__).with_name("delta_lake.py"))
    command = [sys.executable, script, str(jars("delta")), str(table), time]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-5000:]
    answer = json.loads(result.stdout.splitlines()[-1])
    return Counter(tuple(row) for row in answer["rows"]), answer["files"]


@only_long
def test_delta_table_is_restored_by_spark_and_written_on(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = DeltaSink(str(table))
    for begin, end in ((0, 10), (5, 20), (20, 30)):
        ranges: Ranges = {("t", 0): (begin, end), ("t", 1): (begin, end)}
        sink(frame(spark, ranges).repartition(3), Batch(ranges, IDS))
    found, files = read_by_spark(table, restored=2)
    assert found == expected({("t", 0): (0, 30), ("t", 1): (0, 30)})
    assert files[0] == 9, "a file a task"
    assert files[1] == 1, "OPTIMIZE has joined them"
    ranges = {("t", 0): (0, 40), ("t", 1): (15, 35)}
    for again in (sink, DeltaSink(str(table))):
        again(frame(spark, ranges), Batch(ranges, IDS))
    rows = deltalake.DeltaTable(str(table)).to_pyarrow_table()
    columns = [rows.column(name).to_pylist() for name in ("partition", "offset", "value")]
    assert Counter(zip(*columns, strict=True)) == expected({("t", 0): (0, 40), ("t", 1): (0, 35)})


@only_long
def test_delta_table_has_moments_in_utc(spark: SparkSession, tmp_path: Path) -> None:
    ranges: Ranges = {("t", 0): (0, 1)}
    made = frame(spark, ranges)
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        DeltaSink(str(tmp_path))(made, Batch(ranges, IDS))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    table = deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table()
    assert table.column("timestamp").to_pylist() == [AT]


def test_database_has_each_row_once_and_as_it_was(spark: SparkSession, postgresql_server: PostgreSQL) -> None:
    url = postgresql_server.url("postgresql")
    columns = 'topic text, partition int, "offset" bigint, value text, "timestamp" timestamptz, headers jsonb'
    headers = "array(named_struct('key', 'k', 'value', CAST('v' AS binary))) AS headers"
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE TABLE frames ({columns})")
        connection.execute(OFFSETS_TABLE)
    try:
        sink = DatabaseSink("psycopg", {"conninfo": url}, "frames")
        for begin, end in ((0, 400), (100, 700), (0, 1000)):
            ranges: Ranges = {("t", 0): (begin, end), ("t", 1): (begin, end)}
            sink(frame(spark, ranges).selectExpr("*", headers).repartition(3), Batch(ranges, IDS))
        with psycopg.connect(url) as connection:
            rows = connection.execute('SELECT partition, "offset", value FROM frames').fetchall()
            moments = connection.execute('SELECT DISTINCT "timestamp", headers FROM frames').fetchall()
        assert Counter(rows) == expected({("t", 0): (0, 1000), ("t", 1): (0, 1000)})
        assert moments == [(AT, [{"key": "k", "value": "dg=="}])]
    finally:
        with psycopg.connect(url) as connection:
            connection.execute("DROP TABLE frames, muster_offsets")


def test_delta_table_takes_frames_of_all_kinds(spark: SparkSession, tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path), partition_by=["topic", "partition"])
    ranges: Ranges = {("t", 0): (0, 100), ("t", 1): (0, 100), ("u", 0): (5, 10)}
    made = frame(spark, ranges).repartition(3).where("offset % 2 = 0")  # mixed up, and not all of it
    for _ in range(2):
        sink(made.union(made.where("offset = 4")), Batch(ranges, IDS))  # one record that became two rows
    sink(frame(spark, ranges).where("offset < 0"), Batch({("t", 0): (100, 110)}, IDS))
    rows = deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table()
    columns = [rows.column(name).to_pylist() for name in ("topic", "partition", "offset")]
    found = Counter(zip(*columns, strict=True))
    places = {(t, p, n) for (t, p), held in ranges.items() for n in range(*held) if n % 2 == 0}
    assert found == {place: 2 if place[2] == 4 else 1 for place in places}


def test_parquet_recipe_holds_each_record_at_least_once(spark: SparkSession, tmp_path: Path) -> None:
    scope: dict[str, Any] = {}
    exec(Recipe("sinks.md", "Parquet files").code.replace("/data/flights", str(tmp_path)), scope)  # noqa: S102
    ranges: Ranges = {("t", 0): (0, 10)}
    for times in (1, 2):
        scope["process"](frame(spark, ranges), Batch(ranges, IDS))
        rows = spark.read.parquet(str(tmp_path)).select("partition", "offset", "value").collect()
        assert Counter(map(tuple, rows)) == dict.fromkeys(expected(ranges), times)


def write_large_batch(sink: str, options: dict[str, Any], records: int = 1_000_000) -> None:
    script = Path(__file__).with_name("large_batch.py")
    command = [sys.executable, str(script), sink, json.dumps(options), str(records)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-5000:]
    assert result.stdout.split() == ["-Xmx512m"]


@only_long
def test_delta_takes_a_gigabyte_in_a_small_driver(tmp_path: Path) -> None:
    write_large_batch("DeltaSink", {"path": str(tmp_path)})
    assert deltalake.DeltaTable(str(tmp_path)).to_pyarrow_dataset().count_rows() == 1_000_000


@only_long
def test_database_takes_a_gigabyte_in_a_small_driver(postgresql_server: PostgreSQL) -> None:
    url = postgresql_server.url("postgresql")
    with psycopg.connect(url) as connection:
        connection.execute('CREATE TABLE large (topic text, partition int, "offset" bigint, value text)')
        connection.execute(OFFSETS_TABLE)
    try:
        write_large_batch(
            "DatabaseSink", {"driver": "psycopg", "connect": {"conninfo": url}, "table": "large"}
        )
        with psycopg.connect(url) as connection:
            counted = connection.execute('SELECT count(*), count(DISTINCT "offset") FROM large').fetchone()
        assert counted == (1_000_000, 1_000_000)
    finally:
        with psycopg.connect(url) as connection:
            connection.execute("DROP TABLE large, muster_offsets")


def test_rows_that_are_none_of_the_batch_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path))
    ranges: Ranges = {("t", 0): (0, 10)}
    with pytest.raises(SinkError, match="batch holds 0 to 9"):
        sink(frame(spark, {("t", 0): (5, 15)}), Batch(ranges, IDS))
    with pytest.raises(SinkError, match="no column offset"):
        sink(frame(spark, ranges).drop("offset"), Batch(ranges, IDS))
    assert deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().num_rows == 0
