"""How keys and values of state are written: msgpack, with what that does not know as text or numbers.

A value is the tuple that the processor gives. What it was written with may have fewer fields than its schema has now:
the others are null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgpack
from pyspark.sql.types import ArrayType, DataType, MapType, Row, StructType

_DATE, _MOMENT, _DECIMAL, _LENGTH = 1, 2, 3, 4


def _pack_other(value: Any) -> Any:
    """Write what msgpack does not know. Raises TypeError for what cannot be state."""
    if isinstance(value, datetime):
        return msgpack.ExtType(_MOMENT, value.isoformat().encode())
    if isinstance(value, date):
        return msgpack.ExtType(_DATE, value.isoformat().encode())
    if isinstance(value, Decimal):
        return msgpack.ExtType(_DECIMAL, str(value).encode())
    if isinstance(value, timedelta):
        return msgpack.ExtType(_LENGTH, str(value // timedelta(microseconds=1)).encode())
    if hasattr(value, "item") and not hasattr(value, "__len__"):
        return value.item()  # of NumPy
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} cannot be kept as state: {value!r}")


def _unpack_other(code: int, data: bytes) -> Any:
    text = data.decode()
    if code == _MOMENT:
        return datetime.fromisoformat(text)
    if code == _DATE:
        return date.fromisoformat(text)
    if code == _DECIMAL:
        return Decimal(text)
    return timedelta(microseconds=int(text))


pack: Callable[[Any], bytes] = msgpack.Packer(use_bin_type=True, default=_pack_other).pack


def unpack(data: bytes) -> Any:
    """Read what `pack` has written: tuples as lists."""
    return msgpack.unpackb(data, use_list=True, ext_hook=_unpack_other, strict_map_key=False)


def reader_of(schema: StructType) -> Callable[[bytes], tuple[Any, ...]]:
    """Return what reads values of `schema`: with rows for structs, and null for fields that were added since."""
    count = len(schema.fields)
    nested = [_converter(field.dataType) for field in schema.fields]
    if not any(nested):

        def plain(data: bytes) -> tuple[Any, ...]:
            found = unpack(data)
            return tuple(found) if len(found) == count else (*found, *[None] * (count - len(found)))

        return plain

    def convert(data: bytes) -> tuple[Any, ...]:
        found = [*unpack(data)]
        found += [None] * (count - len(found))
        return tuple(
            value if value is None or to is None else to(value)
            for value, to in zip(found, nested, strict=True)
        )

    return convert


def _converter(kind: DataType) -> Callable[[Any], Any] | None:
    if isinstance(kind, StructType):
        make, parts = Row(*kind.names), [_converter(field.dataType) for field in kind.fields]
        return lambda value: make(*_each(parts, [*value, *[None] * (len(parts) - len(value))]))
    if isinstance(kind, ArrayType):
        elements = _converter(kind.elementType)
        return elements and (lambda value: _each([elements] * len(value), value))
    if isinstance(kind, MapType):
        values = _converter(kind.valueType)
        return values and (
            lambda value: dict(zip(value, _each([values] * len(value), [*value.values()]), strict=True))
        )
    return None


def _each(parts: Sequence[Callable[[Any], Any] | None], values: Sequence[Any]) -> list[Any]:
    return [
        value if to is None or value is None else to(value) for to, value in zip(parts, values, strict=True)
    ]
