"""The vectorised form: a function gets all rows of a shard at once, and gets and puts the state of many keys."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from muster.consumer.state.codec import arrow_schema, pack, unpack
from muster.consumer.state.errors import StateError
from muster.consumer.state.handle import Overlay, key_bytes, table_of
from muster.consumer.state.position import Variable


class BulkState:
    """The variables of one shard: one row a key, with the columns of the variable's schema."""

    def __init__(self, overlay: Overlay, variables: Mapping[str, Variable]) -> None:
        self._overlay = overlay
        self._variables = variables
        self._schemas: dict[str, pa.Schema] = {}

    def get(self, name: str, keys: Any) -> pa.Table:
        """Return a table with a row for each of `keys`, in their order: nulls where there is no state.

        `keys` are an Arrow array or a list of the grouping key, or a table of its columns.
        """
        schema, places = self._schema(name), self._places(name, keys)
        self._overlay.prefetch(places)
        nothing = [None] * len(schema)
        rows = [
            nothing if (data := self._overlay.get(place)) is None else _fields(unpack(data), len(schema))
            for place in places
        ]
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        return pa.table(
            {field.name: pa.array(values, field.type) for field, values in zip(schema, columns, strict=True)}
        )

    def put(self, name: str, keys: Any, values: pa.Table) -> None:
        """Set the state of `keys` to the rows of `values`, which has the columns of the variable."""
        schema, places = self._schema(name), self._places(name, keys)
        if missing := [one for one in schema.names if one not in values.column_names]:
            raise StateError(f"state variable {name!r}: the table lacks the columns {missing}")
        if values.num_rows != len(places):
            raise StateError(
                f"state variable {name!r}: {len(places)} keys and {values.num_rows} rows; give as many"
            )
        columns = [values.column(one).cast(schema.field(one).type).to_pylist() for one in schema.names]
        put = self._overlay.put
        for place, row in zip(places, zip(*columns, strict=True), strict=True):
            put(place, pack(row))

    def delete(self, name: str, keys: Any) -> None:
        """Remove the state of `keys`."""
        self._schema(name)
        for place in self._places(name, keys):
            self._overlay.delete(place)

    def _schema(self, name: str) -> pa.Schema:
        if name not in self._variables:
            raise StateError(
                f"there is no state variable {name!r}; declare it: variables={{{name!r}: 'column type, ...'}}"
            )
        if name not in self._schemas:
            schema = StructType.fromJson(json.loads(self._variables[name].schema))
            self._schemas[name] = arrow_schema(schema)
        return self._schemas[name]

    def _places(self, name: str, keys: Any) -> list[bytes]:
        prefix = table_of(self._variables[name].number)
        if isinstance(keys, pa.Table):
            rows = zip(*(column.to_pylist() for column in keys.columns), strict=True)
            return [prefix + key_bytes(row) for row in rows]
        found = keys.to_pylist() if hasattr(keys, "to_pylist") else list(keys)
        return [prefix + key_bytes((one,)) for one in found]


def _fields(found: Sequence[Any], count: int) -> list[Any]:
    return [*found, *[None] * (count - len(found))]
