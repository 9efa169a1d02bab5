"""Writes the state of a partition to a file: JSON, one entry a line, or Parquet, one variable a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from muster.consumer.state.contents import Contents, Entry, schema_of
from muster.consumer.state.handle import LIST, MAP
from muster.core.moments import to_iso

AT_ONCE = 50_000
"""Entries that are written at once."""


def plain(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON has it: `key` and `timer`, or `key`, `variable`, `value`, `of` (a map), `expires`."""
    if entry.at is not None:
        return {"key": _jsonable(list(entry.key)), "timer": to_iso(entry.at / 1000)}
    found = {"key": entry.key, "variable": entry.variable, "of": entry.of, "value": entry.value}
    found = {name: _jsonable(value) for name, value in found.items() if value is not None}
    return found if entry.expires is None else {**found, "expires": to_iso(entry.expires / 1000)}


def write_json(contents: Contents, path: Path, variable: str | None) -> int:
    """Write all entries, or those of a variable; return how many. Raises OSError."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for entry in contents.entries(variable):
            file.write(json.dumps(plain(entry), ensure_ascii=False) + "\n")
            count += 1
    return count


def write_parquet(contents: Contents, path: Path, variable: str) -> int:
    """Write the entries of a variable; return how many. Raises OSError.

    `key` is the grouping key: its value, or JSON where it has several columns.
    """
    entries = contents.entries(variable)
    chunk = list(islice(entries, AT_ONCE))
    schema = _schema(contents, variable, chunk)
    count = 0
    with pq.ParquetWriter(path, schema) as writer:
        while chunk:
            writer.write_table(pa.Table.from_pylist([_row(entry) for entry in chunk], schema))
            count += len(chunk)
            chunk = list(islice(entries, AT_ONCE))
    return count


def _schema(contents: Contents, variable: str, first: list[Entry]) -> pa.Schema:
    of = contents.variables[variable]
    value = pa.struct(to_arrow_schema(schema_of(of.schema)))
    keys = pa.array([_key(entry) for entry in first]).type
    fields = [("key", pa.string() if pa.types.is_null(keys) else keys)]
    if of.kind == MAP:
        fields.append(("of", pa.struct(to_arrow_schema(schema_of(of.key_schema)))))
    fields.append(("value", pa.list_(value) if of.kind == LIST else value))
    if of.expires:
        fields.append(("expires", pa.timestamp("ms", "UTC")))
    return pa.schema(fields)


def _row(entry: Entry) -> dict[str, Any]:
    expires = None if entry.expires is None else datetime.fromtimestamp(entry.expires / 1000, UTC)
    return {"key": _key(entry), "of": entry.of, "value": entry.value, "expires": expires}


def _key(entry: Entry) -> Any:
    return entry.key[0] if len(entry.key) == 1 else json.dumps(_jsonable(list(entry.key)))


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _jsonable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(each) for each in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def lines(entries: list[Entry]) -> Iterator[str]:
    """Yield entries in words."""
    for entry in entries:
        found = plain(entry)
        if entry.at is not None:
            yield f"timer {found['timer']}"
            continue
        of = "" if entry.of is None else f"[{json.dumps(found['of'], ensure_ascii=False)}]"
        until = f", until {found['expires']}" if "expires" in found else ""
        yield f"{entry.variable}{of}: {json.dumps(found['value'], ensure_ascii=False)}{until}"
