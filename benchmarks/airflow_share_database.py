"""A look into Airflow's SQLite database from outside, which costs Airflow nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Task:
    """A task instance. Times are in seconds since the epoch; `pid` is 0 for one that was skipped."""

    name: str
    state: str
    start: float
    end: float
    pid: int


class Database:
    """The database in the file `path`, read only."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def ended(self, dag: str) -> list[str]:
        """The runs that have succeeded, the oldest first."""
        found = self._select(
            "SELECT run_id FROM dag_run WHERE dag_id = ? AND state = 'success' ORDER BY end_date", dag
        )
        return [str(run) for (run,) in found]

    def newest(self, dag: str) -> str:
        """The run that began last, '' if there is none."""
        found = self._select("SELECT run_id FROM dag_run WHERE dag_id = ? ORDER BY id DESC LIMIT 1", dag)
        return str(found[0][0]) if found else ""

    def tasks(self, dag: str, run: str) -> dict[str, Task]:
        """The task instances of a run, by name."""
        found = self._select(
            "SELECT task_id, coalesce(state, ''), start_date, end_date, coalesce(pid, 0) FROM task_instance "
            "WHERE dag_id = ? AND run_id = ?",
            dag,
            run,
        )
        return {
            name: Task(name, state, _seconds(start), _seconds(end), 0 if state == "skipped" else pid)
            for name, state, start, end, pid in found
        }

    def states(self, task: str) -> list[str]:
        """The states of this task in the runs that are under way, of all DAGs."""
        found = self._select(
            "SELECT coalesce(t.state, '') FROM task_instance AS t JOIN dag_run AS r "
            "ON r.dag_id = t.dag_id AND r.run_id = t.run_id WHERE t.task_id = ? AND r.state = 'running'",
            task,
        )
        return [str(state) for (state,) in found]

    def rows(self) -> dict[str, int]:
        """How many, by table."""
        with self._open() as database:
            tables = [
                row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            ]
            return {
                table: int(database.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])  # noqa: S608
                for table in tables
            }

    def bytes(self) -> dict[str, int]:
        """Bytes of the pages in use, by table with its indexes."""
        found = self._select(
            "SELECT coalesce(m.tbl_name, s.name), sum(s.pgsize) FROM dbstat AS s "
            "LEFT JOIN sqlite_master AS m ON m.name = s.name GROUP BY 1"
        )
        return {str(table): int(size) for table, size in found}

    def _select(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        with self._open() as database:
            return database.execute(query, values).fetchall()

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, timeout=30)) as database:
            yield database


def _seconds(text: str | None) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() if text else 0.0


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """By how much each has grown, without those that have not changed."""
    return {key: value - before.get(key, 0) for key, value in after.items() if value != before.get(key, 0)}
