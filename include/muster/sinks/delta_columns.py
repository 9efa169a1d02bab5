"""The columns of a batch beside those of a Delta Lake table: compared by name, widened, never narrowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from deltalake import Field, Schema
from deltalake.schema import ArrayType, MapType, PrimitiveType, StructType

from muster.sinks.sink_error import SinkError

_WIDER = {
    "byte": {"short", "integer", "long", "float", "double"},
    "short": {"integer", "long", "float", "double"},
    "integer": {"long", "double"},
    "float": {"double"},
}
"""The types that hold each value of a type."""
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
UNSTORED = {"binary"}
"""Types that a partition column cannot have, because the log has its values as text."""


def lacking(path: str, table: Schema, batch: Schema, new_columns: bool) -> list[Field]:
    """Return the columns of a batch that the table lacks, which may be added if `new_columns` allows it.

    Raises `SinkError` with the table, the columns and their types where the batch does not fit: a type that does not
    hold all values of the batch's, a column that the table lacks, or one that the table requires and the batch lacks.
    """
    known = {field.name: field for field in table.fields}
    given = {field.name: field for field in batch.fields}
    faults = [
        f"column {name!r} is {_name(field.type)} in the batch and {_name(known[name].type)} in the table, which does "
        "not hold all of its values; cast it in the handler"
        for name, field in given.items()
        if name in known and not fits(field.type, known[name].type)
    ]
    faults += [
        f"column {name!r} is required by the table and not in the batch; add it in the handler"
        for name, field in known.items()
        if name not in given and not field.nullable
    ]
    alike = {name.casefold(): name for name in known}
    faults += [
        f"column {name!r} differs from {alike[name.casefold()]!r} of the table in capitals only; rename it in the "
        "handler"
        for name in given
        if name not in known and name.casefold() in alike
    ]
    new = [Field(f.name, f.type, True) for name, f in given.items() if name.casefold() not in alike]
    if new and not new_columns:
        names = ", ".join(f"{field.name!r} ({_name(field.type)})" for field in new)
        faults.append(
            f"the table has no column {names}; drop it in the handler, add it to the table, or set 'new_columns' to "
            "true"
        )
    if faults:
        raise SinkError(f"Delta table {path}: {'; '.join(faults)}")
    return new


def created(path: str, batch: Schema, partition_by: Sequence[str]) -> Schema:
    """Return the columns of a new table: the batch's, each of which may be null.

    Raises `SinkError` for a column without a type, and for partition columns that are not there or cannot be any.
    """
    known = {field.name: field.type for field in batch.fields}
    for name in partition_by:
        if name not in known:
            raise SinkError(
                f"Delta table {path}: 'partition_by' names {name!r}, which the batch does not have"
            )
        if not isinstance(known[name], PrimitiveType) or _name(known[name]) in UNSTORED:
            raise SinkError(
                f"Delta table {path}: 'partition_by' names {name!r}, a {_name(known[name])}; choose another"
            )
    if untyped := sorted(name for name, of in known.items() if _name(of) == "void"):
        raise SinkError(
            f"Delta table {path}: the columns {', '.join(untyped)} have no type; cast them in the handler"
        )
    return Schema([Field(field.name, field.type, True) for field in batch.fields])


def fits(source: Any, target: Any) -> bool:
    """Tell whether a column of the type `target` holds each value of the type `source`."""
    if isinstance(source, PrimitiveType) and isinstance(target, PrimitiveType):
        return _fits(source.type, target.type)
    if isinstance(source, ArrayType) and isinstance(target, ArrayType):
        return fits(source.element_type, target.element_type)
    if isinstance(source, MapType) and isinstance(target, MapType):
        return fits(source.key_type, target.key_type) and fits(source.value_type, target.value_type)
    if isinstance(source, StructType) and isinstance(target, StructType):
        pairs = zip(source.fields, target.fields, strict=False)
        same = [f.name for f in source.fields] == [f.name for f in target.fields]
        return same and all(fits(one.type, other.type) for one, other in pairs)
    return isinstance(source, PrimitiveType) and source.type == "void"


def _fits(source: str, target: str) -> bool:
    if source in {target, "void"} or target in _WIDER.get(source, ()):
        return True
    before, after = _DECIMAL.fullmatch(source), _DECIMAL.fullmatch(target)
    if before is None or after is None:
        return False
    (digits, scale), (more, finer) = map(int, before.groups()), map(int, after.groups())
    return finer >= scale and more - finer >= digits - scale


def _name(of: Any) -> str:
    return of.type if isinstance(of, PrimitiveType) else str(of)
