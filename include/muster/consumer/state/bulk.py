"""The vectorised form: a function gets all rows of a shard at once, and gets and puts the state of many keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from muster.consumer.state.codec import arrow_schema, pack, unpack_all
from muster.consumer.state.errors import StateError
from muster.consumer.state.handle import Overlay, key_bytes, table_of
from muster.consumer.state.position import Variable

_ARROW = pa.Table, pa.ChunkedArray, pa.Array


class BulkState:
    """The variables of one shard: one row a key, with the columns of the variable's schema."""

    def __init__(self, overlay: Overlay, variables: Mapping[str, Variable]) -> None:
        self._overlay = overlay
        self._variables = variables
        self._schemas: dict[str, pa.Schema] = {}
        self._last: tuple[Any, list[bytes]] = None, []

    def get(self, name: str, keys: Any) -> pa.Table:
        """Return a table with a row for each of `keys`, in their order: nulls where there is no state.

        `keys` are an Arrow array or a list of the grouping key, or a table of its columns.
        """
        schema, places = self._schema(name), self._places(name, keys)
        nothing = pack([None] * len(schema))
        written = [nothing if data is None else data for data in self._overlay.get_many(places)]
        rows = unpack_all(written)
        if rows and {*map(len, rows)} != {len(schema)}:  # fields were added
            rows = [[*row, *[None] * (len(schema) - len(row))] for row in rows]
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
        self._overlay.put_many(places, [*map(pack, zip(*columns, strict=True))])

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
        return [prefix + key for key in self._written(keys)]

    def _written(self, keys: Any) -> list[bytes]:
        """Return keys as they are written, once for those that are got and then put."""
        before, written = self._last
        if type(keys) is type(before) and isinstance(keys, _ARROW) and keys.equals(before):
            return written
        if isinstance(keys, pa.Table):
            rows = zip(*(column.to_pylist() for column in keys.columns), strict=True)
        else:
            rows = zip(keys.to_pylist() if hasattr(keys, "to_pylist") else keys)
        written = [key_bytes(row) for row in rows]
        if isinstance(keys, _ARROW):  # what cannot change
            self._last = keys, written
        return written
