"""What differs from database to database: how names are quoted, and what a table is really called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Ask = Callable[..., Any]
"""Executes a statement with its values and returns the first value of its answer, None if there is none."""


@dataclass(frozen=True)
class Kind:
    """One kind of database. `asked` is a query that only this kind answers with a text that contains `answer`.

    `identity` is a query for the full name of the table that `?` names, None if there is no such table; `engine` one
    for the engine of the table with this full name, if that engine has no transactions. `of_rows` are the numbers of
    errors that drivers take for the server's, though a row is at fault: constraints that are checks.
    """

    asked: str
    answer: str
    quote: str = '"'
    identity: str = ""
    engine: str = ""
    of_rows: frozenset[int] = frozenset()

    def quoted(self, name: str) -> str:
        """Return the name of a column as it stands in a statement."""
        return self.quote + name.replace(self.quote, 2 * self.quote) + self.quote


POSTGRESQL = Kind(
    "SELECT version()",
    "PostgreSQL",
    identity="SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.oid = to_regclass(CAST(? AS text))",
)
MYSQL = Kind(
    "SELECT @@version_comment",
    "",
    quote="`",
    identity="SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables WHERE table_name = "
    "REPLACE(SUBSTRING_INDEX(?, '.', -1), '`', '') AND table_schema = REPLACE(IF(? LIKE '%.%', "
    "SUBSTRING_INDEX(?, '.', 1), DATABASE()), '`', '')",
    engine="SELECT t.engine FROM information_schema.tables t JOIN information_schema.engines e "
    "ON e.engine = t.engine WHERE CONCAT(t.table_schema, '.', t.table_name) = ? AND e.transactions <> 'YES'",
    of_rows=frozenset({3819, 4025}),
)
SQLITE = Kind(
    "SELECT sqlite_version()",
    "",
    identity="SELECT 'main.' || name FROM sqlite_master WHERE type IN ('table', 'view') AND lower(name) = "
    "lower(replace(replace(?, '\"', ''), 'main.', ''))",
)
OTHER = Kind("", "")


def kind_of(ask: Ask, errors: type[Exception], recover: Callable[[], None]) -> Kind:
    """Return the kind of the database behind `ask`; `recover` ends what a query that raised has left."""
    for kind in (POSTGRESQL, MYSQL, SQLITE):
        try:
            if kind.answer in str(ask(kind.asked)):
                return kind
        except errors:
            recover()
    return OTHER


def identity_of(kind: Kind, table: str, ask: Ask) -> str | None:
    """Return the full name of `table`, whichever way it is written; as it is written where the kind is not known."""
    if not kind.identity:
        return table
    found = ask(kind.identity, *[table] * kind.identity.count("?"))
    return None if found is None else str(found)
