"""`DatabaseSink` on PostgreSQL, MariaDB and SQLite, which differ in names, quotes, types and errors."""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from devstack.postgresql import PostgreSQL
from muster.sinks import DatabaseSink, SinkError
from tests.support.database_writer import OFFSETS_TABLE, PARTITIONS, batch_of
from tests.support.mariadb import running_mariadb

DRIVERS = {"PostgreSQL": "psycopg", "MariaDB": "pymysql", "SQLite": "sqlite3"}
BYTES = {"PostgreSQL": "bytea", "MariaDB": "blob", "SQLite": "blob"}
QUOTES = {"PostgreSQL": '"', "MariaDB": "`", "SQLite": '"'}
SCHEMAS = {"PostgreSQL": "public", "SQLite": "main"}
"""MariaDB's is the database."""
ALONE = {
    "PostgreSQL": {"autocommit": True},
    "MariaDB": {"autocommit": True},
    "SQLite": {"isolation_level": None},
}
"""By which arguments each driver commits each statement by itself."""


@dataclass(frozen=True)
class Database:
    """An empty database, but for the offsets' table."""

    kind: str
    connect: dict[str, Any]
    schema: str

    @property
    def driver(self) -> str:
        return DRIVERS[self.kind]

    def quoted(self, name: str) -> str:
        quote = QUOTES[self.kind]
        return quote + name.replace(quote, 2 * quote) + quote

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Execute statements and commit; returns the rows of the last one."""
        with closing(import_module(self.driver).connect(**self.connect)) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            rows = list(cursor.fetchall()) if cursor.description else []
            connection.commit()
        return rows

    def make(self, more: str = "", name: str = "numbers") -> None:
        """Make a table for the columns of `batch_of`, and `more`."""
        places = f"topic varchar(249), {self.quoted('partition')} int, {self.quoted('offset')} bigint"
        self.run(f"CREATE TABLE {name} ({places}, value {BYTES[self.kind]}{more})")

    def sink(self, table: str = "numbers", **connect: Any) -> DatabaseSink:
        return DatabaseSink(self.driver, self.connect | connect, table)

    def found(self, table: str = "numbers") -> Counter[tuple[Any, ...]]:
        columns = ", ".join(map(self.quoted, ("partition", "offset", "value")))
        return Counter(self.run(f"SELECT {columns} FROM {table}"))  # noqa: S608


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with running_mariadb(tmp_path_factory.mktemp("mariadb")) as connect:
        yield connect


@pytest.fixture(params=DRIVERS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    name = f"d{uuid.uuid4().hex[:8]}"
    if request.param == "SQLite":
        found = Database("SQLite", {"database": str(tmp_path / name)}, "main")
    elif request.param == "MariaDB":
        connect = request.getfixturevalue("mariadb")
        Database("MariaDB", connect, "").run(f"CREATE DATABASE {name}")
        found = Database("MariaDB", connect | {"database": name}, name)
    else:
        server: PostgreSQL = request.getfixturevalue("postgresql_server")
        url = server.url("postgresql")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        found = Database("PostgreSQL", {"conninfo": f"{url.rpartition('/')[0]}/{name}"}, "public")
    found.run(OFFSETS_TABLE)
    yield found
    if request.param == "PostgreSQL":
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def once(begin: int, end: int) -> dict[tuple[Any, ...], int]:
    return {(p, n, b"%d/%d" % (p, n)): 1 for p in PARTITIONS for n in range(begin, end)}


def test_names_of_one_table_are_one_target(database: Database) -> None:
    database.make()
    names = ["numbers", f"{database.schema}.numbers", database.quoted("numbers")]
    names.append(f"{database.quoted(database.schema)}.{database.quoted('numbers')}")
    for number, name in enumerate(names):
        database.sink(name).store(*batch_of(0, 10 + number))
    assert database.found() == once(0, 13)
    assert database.run("SELECT DISTINCT target FROM muster_offsets") == [(f"{database.schema}.numbers",)]
    with pytest.raises(SinkError, match="table no_such_table: it is not there"):
        database.sink("no_such_table").store(*batch_of(0, 10))


def test_renamed_table_keeps_its_offsets_with_the_target(database: Database) -> None:
    database.make()
    database.sink().store(*batch_of(0, 10))
    database.run(
        "ALTER TABLE numbers RENAME TO renamed",
        f"UPDATE muster_offsets SET target = '{database.schema}.renamed'",  # noqa: S608
    )
    database.sink("renamed").store(*batch_of(5, 20))
    assert database.found("renamed") == once(0, 20)


def test_driver_that_commits_each_statement_is_refused(database: Database) -> None:
    database.make()
    sink = database.sink(**ALONE[database.kind])
    for _ in range(2):
        with pytest.raises(SinkError, match="commits each statement by itself"):
            sink.store(*batch_of(0, 10))
    assert database.found() == {}
    assert database.run("SELECT * FROM muster_offsets") == [], "the probe is gone"


def test_columns_are_quoted_as_the_database_does(database: Database) -> None:
    names = ["select", "a b", 'of "one"', "of `two`", "per%cent"]
    database.make(more="".join(f", {database.quoted(name)} int" for name in names))
    rows, batch = batch_of(0, 10)
    for number, name in enumerate(names):
        rows = rows.append_column(name, pa.array([number] * rows.num_rows))
    database.sink().store(rows, batch)
    stored = database.run(f"SELECT {', '.join(map(database.quoted, names))} FROM numbers")  # noqa: S608
    assert Counter(stored) == {tuple(range(5)): 20}


def test_headers_become_json(database: Database) -> None:
    database.make(more=", headers json")
    rows, batch = batch_of(0, 1, (0,))
    headers = pa.array([[{"key": "k", "value": b"v"}, {"key": "n", "value": None}]])
    database.sink().store(rows.append_column("headers", headers), batch)
    [(stored,)] = database.run("SELECT headers FROM numbers")
    found = json.loads(stored) if isinstance(stored, str) else stored
    assert found == [{"key": "k", "value": "dg=="}, {"key": "n", "value": None}]


@pytest.mark.parametrize("more", [", UNIQUE (value)", ", CHECK (topic <> 't')", ", n int NOT NULL"])
def test_row_that_breaks_a_constraint_is_the_records_fault(database: Database, more: str) -> None:
    database.make(more=more.replace("(value)", "(value(20))") if database.kind == "MariaDB" else more)
    rows, batch = batch_of(10, 20)
    bad = rows.set_column(3, "value", pa.array([b"same"] * rows.num_rows))
    if "NOT NULL" in more:
        bad = bad.append_column("n", pa.nulls(rows.num_rows, pa.int32()))
    driver = import_module(database.driver)
    # PyMySQL has a check that fails for an OperationalError.
    checked = (
        driver.OperationalError
        if (database.kind, more[:7]) == ("MariaDB", ", CHECK")
        else driver.IntegrityError
    )
    with pytest.raises(checked):
        database.sink().store(bad, batch)
    assert database.found() == {}, "nothing of the batch"
    assert database.run("SELECT * FROM muster_offsets") == []


def test_offsets_table_that_cannot_take_a_row_is_the_sinks_fault(database: Database) -> None:
    database.make()
    narrow = OFFSETS_TABLE.replace("PRIMARY KEY", "CHECK (first_offset < 7), PRIMARY KEY")
    database.run("DROP TABLE muster_offsets", narrow)
    with pytest.raises(SinkError, match=r"table muster_offsets: \w+(Violation|Error): "):
        database.sink().store(*batch_of(10, 20))
    assert database.found() == {}


def test_writers_at_the_same_time_write_each_record_once(database: Database) -> None:
    database.make()

    def write(begin: int) -> None:
        sink = database.sink()
        while True:
            try:
                return sink.store(*batch_of(begin, begin + 40))
            except SinkError:  # a deadlock, say: the batch comes again
                continue

    writers = [threading.Thread(target=write, args=(begin,)) for begin in (0, 10, 0, 25)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert database.found() == once(0, 65)


def test_engine_without_transactions_is_refused(mariadb: dict[str, Any]) -> None:
    name = f"d{uuid.uuid4().hex[:8]}"
    Database("MariaDB", mariadb, "").run(f"CREATE DATABASE {name}")
    database = Database("MariaDB", mariadb | {"database": name}, name)
    database.run(OFFSETS_TABLE)
    database.make()
    database.run("ALTER TABLE numbers ENGINE = MyISAM")
    with pytest.raises(SinkError, match="table numbers: its engine MyISAM has no transactions"):
        database.sink().store(*batch_of(0, 10))
    database.run("ALTER TABLE numbers ENGINE = InnoDB", "ALTER TABLE muster_offsets ENGINE = MyISAM")
    with pytest.raises(SinkError, match="or the table's engine has no transactions"):
        database.sink().store(*batch_of(0, 10))
    assert database.found() == {}
    assert database.run("SELECT * FROM muster_offsets") == []
