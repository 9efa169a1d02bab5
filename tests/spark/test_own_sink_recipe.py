"""The recipe for a sink of your own, as it stands in docs/sinks.md, with a real Spark and a real PostgreSQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from pyspark.sql import DataFrame, SparkSession

from devstack.postgresql import PostgreSQL
from muster.sinks import Batch, SinkError
from tests.conftest import Eventually
from tests.support.recipes import Recipe

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

CODE = Recipe("sinks.md", "A sink of your own").code
Process = Callable[[DataFrame, Batch], None]


class KilledError(Exception):
    """In the middle of a transaction."""


class Database:
    """What the recipe leaves to its reader: one transaction of `connection`, which dies at row `dies_after`."""

    def __init__(self, connection: psycopg.Connection[Any], dies_after: int | None) -> None:
        self._connection = connection
        self._dies_after = dies_after

    def stored(self, *place: object) -> tuple[int, list[tuple[int, int]]]:
        insert = "INSERT INTO stored VALUES (%s, %s, %s, 0, '[]') ON CONFLICT DO NOTHING"
        self._connection.execute(insert, place)
        of_place = "FROM stored WHERE topic = %s AND topic_id = %s AND partition = %s"
        row = self._connection.execute(f"SELECT rebuild, ranges {of_place} FOR UPDATE", place).fetchone()
        assert row is not None
        return row[0], [(begin, end) for begin, end in row[1]]

    def insert(self, rows: Iterable[dict[str, Any]]) -> None:
        for number, row in enumerate(rows):
            if number == self._dies_after:
                raise KilledError
            values = (row["partition"], row["offset"], row["value"])
            self._connection.execute("INSERT INTO rows VALUES (%s, %s, %s)", values)

    def set_stored(
        self, topic: str, topic_id: str, partition: int, rebuild: int, ranges: Iterable[object]
    ) -> None:
        row = (rebuild, Jsonb(list(ranges)), topic, topic_id, partition)
        self._connection.execute(
            "UPDATE stored SET rebuild = %s, ranges = %s WHERE topic = %s AND topic_id = %s AND partition = %s",
            row,
        )


@pytest.fixture
def url(postgresql_server: PostgreSQL) -> Iterator[str]:
    found = postgresql_server.url("postgresql")
    with psycopg.connect(found) as connection:
        connection.execute('CREATE TABLE rows (partition int, "offset" bigint, value text)')
        connection.execute(
            "CREATE TABLE stored (topic text, topic_id text, partition int, rebuild bigint, ranges jsonb,"
            " PRIMARY KEY (topic, topic_id, partition))"
        )
    yield found
    with psycopg.connect(found) as connection:
        connection.execute("DROP TABLE rows, stored")


def sink(url: str, dies_after: int | None = None) -> Process:
    """The page's `process`, as a module of its own would have it."""

    @contextmanager
    def connect() -> Iterator[Database]:
        with psycopg.connect(url) as connection:
            yield Database(connection, dies_after)

    module: dict[str, Any] = {"connect": connect}
    exec(CODE, module)  # noqa: S102
    process: Process = module["process"]
    return process


def batch(spark: SparkSession, begin: int, end: int, rebuild: int = 0) -> tuple[DataFrame, Batch]:
    rows = [("t", p, n, f"{p}/{n}") for p in (0, 1) for n in range(begin, end)]
    frame = spark.createDataFrame(rows, "topic string, partition int, offset long, value string")
    ranges = {("t", p): (begin, end) for p in (0, 1)}
    return frame, Batch(ranges, {"t": "an-id"}, rebuilds=dict.fromkeys(ranges, rebuild))


def once(begin: int, end: int) -> dict[tuple[int, int, str], int]:
    return {(p, n, f"{p}/{n}"): 1 for p in (0, 1) for n in range(begin, end)}


def written(url: str) -> Counter[tuple[int, int, str]]:
    with psycopg.connect(url) as connection:
        return Counter(connection.execute('SELECT partition, "offset", value FROM rows').fetchall())


def test_own_sink_recipe_writes_each_record_once_in_whatever_batches_it_comes(
    spark: SparkSession, url: str
) -> None:
    for begin, end in ((0, 10), (20, 30), (5, 25), (0, 40)):
        sink(url)(*batch(spark, begin, end))
    assert written(url) == once(0, 40)


def test_own_sink_recipe_forgets_with_a_rebuild_and_refuses_an_older_one(
    spark: SparkSession, url: str
) -> None:
    sink(url)(*batch(spark, 0, 10))
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM rows")
    sink(url)(*batch(spark, 0, 5, rebuild=7))
    with pytest.raises(SinkError, match="t 0 was rebuilt as number 7 since"):
        sink(url)(*batch(spark, 0, 10))
    sink(url)(*batch(spark, 0, 10, rebuild=7))
    assert written(url) == once(0, 10)


def test_own_sink_recipe_writes_nothing_of_a_batch_in_which_it_dies(spark: SparkSession, url: str) -> None:
    sink(url)(*batch(spark, 0, 5))
    with pytest.raises(KilledError):
        sink(url, dies_after=3)(*batch(spark, 0, 10))
    assert written(url) == once(0, 5)
    sink(url)(*batch(spark, 0, 10))
    assert written(url) == once(0, 10)


def test_own_sink_recipe_has_a_replaced_consumer_wait_for_its_successor_and_write_nothing(
    spark: SparkSession, url: str, eventually: Eventually
) -> None:
    late = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with ThreadPoolExecutor() as pool, psycopg.connect(url) as successor:
        database = Database(successor, None)
        assert database.stored("t", "an-id", 0) == (0, [])
        replaced = pool.submit(sink(url), *batch(spark, 0, 10))
        with psycopg.connect(url, autocommit=True) as looking:
            eventually(lambda: looking.execute(late).fetchone() != (0,), 60, "it waits")
        database.insert([{"partition": 0, "offset": n, "value": f"0/{n}"} for n in range(10)])
        database.set_stored("t", "an-id", 0, 0, [(0, 10)])
        successor.commit()
        replaced.result(60)
    assert written(url) == once(0, 10)
