"""The recipe for state beside a handler, as it stands in docs/handlers.md, with a real Spark and PostgreSQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

from devstack.postgresql import PostgreSQL
from muster.sinks import Batch
from tests.support.recipes import Recipe

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

CODE = Recipe("handlers.md", "State beside a handler").code
TP = ("t", 0)
HERE = frozenset({TP})
KEYS = 20
Partition = tuple[str, int]
State = tuple[int, dict[str, int]]


class ReplacedError(Exception):
    """Another consumer has written meanwhile."""


class Store:
    """What the recipe leaves to its reader. `read` counts the totals that were read."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.read = 0
        self.before_save: Callable[[], None] = lambda: None
        self.after_save: Callable[[], None] = lambda: None

    def newest(self, partition: Partition, known: State | None) -> State:
        since, totals = known or (0, {})
        with psycopg.connect(self._url) as connection:
            stored = self._offset(connection, partition)
            changed = connection.execute(
                "SELECT key, total FROM totals WHERE topic = %s AND partition = %s AND at > %s",
                (*partition, since),
            ).fetchall()
        self.read += len(changed)
        return stored, totals | dict(changed)

    def save(self, changes: Mapping[Partition, tuple[int, int, dict[str, int]]]) -> None:
        self.before_save()
        with psycopg.connect(self._url) as connection:
            for partition, (since, end, totals) in sorted(changes.items()):
                connection.execute("INSERT INTO ends VALUES (%s, %s, 0) ON CONFLICT DO NOTHING", partition)
                if self._offset(connection, partition, "FOR UPDATE") != since:
                    raise ReplacedError
                for key, total in totals.items():
                    connection.execute(
                        "INSERT INTO totals VALUES (%s, %s, %s, %s, %s) "
                        "ON CONFLICT (topic, partition, key) DO UPDATE SET total = excluded.total, at = excluded.at",
                        (*partition, key, total, end),
                    )
                connection.execute(
                    "UPDATE ends SET at = %s WHERE topic = %s AND partition = %s", (end, *partition)
                )
        self.after_save()

    def _offset(
        self, connection: psycopg.Connection[Any], partition: Partition, lock: str = "FOR SHARE"
    ) -> int:
        statement = f"SELECT at FROM ends WHERE topic = %s AND partition = %s {lock}"  # noqa: S608
        row = connection.execute(statement, partition).fetchone()  # type: ignore[arg-type]
        return 0 if row is None else int(row[0])


@pytest.fixture
def url(postgresql_server: PostgreSQL) -> Iterator[str]:
    found = postgresql_server.url("postgresql")
    with psycopg.connect(found) as connection:
        connection.execute(
            "CREATE TABLE totals (topic text, partition int, key text, total bigint, at bigint,"
            " PRIMARY KEY (topic, partition, key))"
        )
        connection.execute(
            "CREATE TABLE ends (topic text, partition int, at bigint, PRIMARY KEY (topic, partition))"
        )
    yield found
    with psycopg.connect(found) as connection:
        connection.execute("DROP TABLE totals, ends")


def handler(url: str) -> Any:
    """The page's `Totals`, made as a consumer makes it."""
    module: dict[str, Any] = {"Store": Store}
    exec(CODE, module)  # noqa: S102
    return module["Totals"](url)


def batch(spark: SparkSession, begin: int, end: int) -> tuple[DataFrame, Batch]:
    """Records as Kafka has them: the key of offset n is n modulo `KEYS`, the value n."""
    rows = [(*TP, n, str(n % KEYS).encode(), str(n).encode()) for n in range(begin, end)]
    frame = spark.createDataFrame(rows, "topic string, partition int, offset long, key binary, value binary")
    return frame, Batch({TP: (begin, end)}, {"t": "an-id"})


def expected(end: int) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for n in range(end):
        totals[str(n % KEYS)] += n
    return dict(totals)


def stored(url: str) -> dict[str, int]:
    return Store(url).newest(TP, None)[1]


def test_state_recipe_counts_each_record_once_in_whatever_batches_it_comes(
    spark: SparkSession, url: str
) -> None:
    for begin, end in ((0, 50), (30, 70), (0, 60), (70, 90)):
        totals = handler(url)  # each of them is another process
        totals.assigned(HERE)
        totals(*batch(spark, begin, end))
        totals(*batch(spark, begin, end))
    assert stored(url) == expected(90)


def test_state_recipe_counts_a_batch_once_that_was_stored_though_it_failed(
    spark: SparkSession, url: str
) -> None:
    totals = handler(url)
    totals.assigned(HERE)
    totals(*batch(spark, 0, 30))

    def lost() -> None:
        raise ConnectionError

    totals.store.after_save = lost
    with pytest.raises(ConnectionError):
        totals(*batch(spark, 30, 60))
    totals.store.after_save = lambda: None
    totals(*batch(spark, 30, 60))
    totals(*batch(spark, 60, 80))
    assert stored(url) == expected(80)


def test_state_recipe_takes_up_with_the_copy_that_its_standby_has_kept_warm(
    spark: SparkSession, url: str
) -> None:
    owner, standby = handler(url), handler(url)
    owner.assigned(HERE)
    owner(*batch(spark, 0, 100))
    standby.standby(HERE)
    assert standby.store.read == KEYS
    owner(*batch(spark, 100, 103))
    owner.revoked(HERE)
    assert owner.of == {}, "what it has no more takes no memory"
    standby.assigned(HERE)
    assert standby.store.read == KEYS + 3, "it reads only what was changed since"
    assert standby.of == {TP: (103, expected(103))}
    standby.standby(frozenset())
    assert standby.warm == {}
    standby(*batch(spark, 103, 120))
    assert stored(url) == expected(120)


def test_state_recipe_has_a_replaced_consumer_change_nothing(spark: SparkSession, url: str) -> None:
    replaced, successor = handler(url), handler(url)
    replaced.assigned(HERE)
    replaced(*batch(spark, 0, 30))

    def meanwhile() -> None:
        successor.assigned(HERE)
        successor(*batch(spark, 30, 70))

    replaced.store.before_save = meanwhile  # it is frozen here
    with pytest.raises(ReplacedError):
        replaced(*batch(spark, 30, 50))
    assert stored(url) == expected(70)
    replaced.store.before_save = lambda: None
    replaced(*batch(spark, 30, 50))
    assert stored(url) == expected(70)
