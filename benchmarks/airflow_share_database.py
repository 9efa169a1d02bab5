"""A look into Airflow's database from outside, which costs Airflow nothing: SQLite's file, or PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool


@dataclass(frozen=True)
class Task:
    """A task instance. Times are in seconds since the epoch; `pid` is 0 for one that was skipped."""

    name: str
    state: str
    start: float
    end: float
    pid: int


class Database:
    """The database at `url`, as SQLAlchemy writes it. It is only read."""

    def __init__(self, url: str) -> None:
        # A connection a look: none stays open in the way of a server that stops.
        self._engine = create_engine(url, poolclass=NullPool)

    def ended(self, dag: str) -> list[str]:
        """List the runs that have succeeded, the oldest first."""
        found = self._select(
            "SELECT run_id FROM dag_run WHERE dag_id = :dag AND state = 'success' ORDER BY end_date", dag=dag
        )
        return [str(run) for (run,) in found]

    def newest(self, dag: str) -> str:
        """Return the run that began last, '' if there is none."""
        found = self._select(
            "SELECT run_id FROM dag_run WHERE dag_id = :dag ORDER BY id DESC LIMIT 1", dag=dag
        )
        return str(found[0][0]) if found else ""

    def tasks(self, dag: str, run: str) -> dict[str, Task]:
        """Return the task instances of a run, by name."""
        found = self._select(
            "SELECT task_id, coalesce(state, ''), start_date, end_date, coalesce(pid, 0) FROM task_instance "
            "WHERE dag_id = :dag AND run_id = :run",
            dag=dag,
            run=run,
        )
        return {
            name: Task(name, state, _seconds(start), _seconds(end), 0 if state == "skipped" else pid)
            for name, state, start, end, pid in found
        }

    def states(self, task: str) -> list[str]:
        """Return the states of this task in the runs that are under way, of all DAGs."""
        found = self._select(
            "SELECT coalesce(t.state, '') FROM task_instance AS t JOIN dag_run AS r "
            "ON r.dag_id = t.dag_id AND r.run_id = t.run_id WHERE t.task_id = :task AND r.state = 'running'",
            task=task,
        )
        return [str(state) for (state,) in found]

    def rows(self) -> dict[str, int]:
        """Count the rows by table. Only SQLite can say it so."""
        tables = [
            str(name) for (name,) in self._select("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        return {
            table: int(self._select(f'SELECT count(*) FROM "{table}"')[0][0])  # noqa: S608
            for table in tables
        }

    def bytes(self) -> dict[str, int]:
        """Count the bytes of the pages in use, by table with its indexes. Only SQLite can say it so."""
        found = self._select(
            "SELECT coalesce(m.tbl_name, s.name), sum(s.pgsize) FROM dbstat AS s "
            "LEFT JOIN sqlite_master AS m ON m.name = s.name GROUP BY 1"
        )
        return {str(table): int(size) for table, size in found}

    def _select(self, query: str, **values: str) -> list[tuple[Any, ...]]:
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(query), values)]


def _seconds(at: str | datetime | None) -> float:
    """Return seconds since the epoch. SQLite gives text without a zone, which is UTC."""
    if isinstance(at, str):
        at = datetime.fromisoformat(at).replace(tzinfo=UTC)
    return at.timestamp() if at else 0.0


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """Return by how much each has grown, without those that have not changed."""
    return {key: value - before.get(key, 0) for key, value in after.items() if value != before.get(key, 0)}
