"""What people read of an error, from the errors that a real Spark raises."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr, udf

from muster.consumer.cause import cause
from muster.consumer.query import failure_of
from tests.support.only_long import only_long

pytestmark = pytest.mark.timeout(300)

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # tasks cannot import it

Failing = Callable[[SparkSession, Path], object]


def by_task(function: Callable[[int], object]) -> Failing:
    """Call a function with each record, in a task."""

    def fail(spark: SparkSession, _: Path) -> None:
        spark.range(3).select(udf(function)("id")).write.format("noop").mode("append").save()

    return fail


def no_date(record: int) -> None:
    raise ValueError(f"no date in record {min(record, 0)}")


def no_number(_: int) -> None:
    try:
        int("x")
    except ValueError as error:
        raise LookupError("no such number") from error


def no_message(_: int) -> None:
    raise NotImplementedError


def twice(_: int) -> None:
    raise psycopg.errors.UniqueViolation("duplicate key\nDETAIL:  Key (id)=(1) already exists.")


def dead(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def store_twice(path: Path) -> None:
    with sqlite3.connect(path / "numbers.db") as there:
        there.execute("CREATE TABLE IF NOT EXISTS numbers (id INTEGER PRIMARY KEY)")
        there.executemany("INSERT INTO numbers VALUES (?)", [(1,), (1,)])


def stored_twice(_: SparkSession, path: Path) -> None:
    store_twice(path)


def stored_twice_by_task(spark: SparkSession, path: Path) -> None:
    spark.range(1).foreachPartition(lambda _: store_twice(path))


def stored_twice_by_jdbc(spark: SparkSession, path: Path) -> None:
    url = f"jdbc:derby:{path}/derby;create=true"
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", f"{path}/derby.log")  # type: ignore[union-attr]
    there = spark._jvm.java.sql.DriverManager.getConnection(url)  # type: ignore[union-attr]
    there.createStatement().executeUpdate('CREATE TABLE numbers ("id" BIGINT PRIMARY KEY)')
    there.createStatement().executeUpdate("INSERT INTO numbers VALUES 1")
    spark.range(3).write.jdbc(url, "numbers", mode="append")


def by_query(function: Callable[[int], object]) -> Failing:
    """Call a function with each record, in a task of a streaming query."""

    def fail(spark: SparkSession, path: Path) -> None:
        def process(_: DataFrame, __: int) -> None:
            by_task(function)(spark, path)

        rows = spark.readStream.format("rate").load()
        with tempfile.TemporaryDirectory(dir=path) as checkpoint:
            query = rows.writeStream.foreachBatch(process).option("checkpointLocation", checkpoint).start()
            query.awaitTermination(120)

    return fail


@pytest.mark.parametrize(
    ("fail", "kind", "said"),
    [
        (by_task(no_date), "ValueError", "no date in record 0"),
        pytest.param(by_query(no_date), "ValueError", "no date in record 0", marks=only_long),
        pytest.param(by_task(no_number), "LookupError", "no such number", marks=only_long),
        pytest.param(by_task(no_message), "NotImplementedError", "NotImplementedError", marks=only_long),
        (
            by_task(twice),
            "psycopg.errors.UniqueViolation",
            "duplicate key DETAIL: Key (id)=(1) already exists.",
        ),
        pytest.param(stored_twice, "IntegrityError", "UNIQUE constraint failed: numbers.id", marks=only_long),
        (stored_twice_by_task, "sqlite3.IntegrityError", "UNIQUE constraint failed: numbers.id"),
        (
            stored_twice_by_jdbc,
            "org.apache.derby.shared.common.error.DerbySQLIntegrityConstraintViolationException",
            "would have caused a duplicate key value in a unique or primary key constraint",
        ),
        (
            lambda spark, _: spark.range(1).select("nowhere"),
            "UNRESOLVED_COLUMN.WITH_SUGGESTION",
            "with name `nowhere` cannot be resolved",
        ),
        (lambda spark, _: spark.sql("SELECT CAST('x' AS INT)").collect(), "CAST_INVALID_INPUT", "'x'"),
        (
            lambda spark, _: spark.range(1).select(expr("raise_error('no date')")).collect(),
            "USER_RAISED_EXCEPTION",
            "no date",
        ),
        (
            lambda spark, _: spark.range(1).write.parquet("/proc/nowhere"),
            "java.io.IOException",
            "Mkdirs failed to create file:/proc/nowhere",
        ),
        (by_task(dead), "org.apache.spark.SparkException", "Python worker exited unexpectedly (crashed)"),
    ],
)
def test_error_is_that_of_python_or_database(
    fail: Failing, kind: str, said: str, spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(Exception) as raised:
        fail(spark, tmp_path)
    assert said in cause(raised.value)
    assert failure_of(raised.value).kind == kind
    assert "\n" not in cause(raised.value)
