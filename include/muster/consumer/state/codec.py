"""How keys and values of state are written: msgpack, with what that does not know as text or numbers.

A value is the tuple that the processor gives, as its schema has it (`fitting`). What it was written with may have
fewer fields than its schema has now: the others are null. A timestamp is written in UTC, and read in the local time
zone without saying so, as Spark does.
"""

from __future__ import annotations

import reprlib
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from inspect import signature
from typing import Any

import msgpack
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    Row,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_DATE, _MOMENT, _DECIMAL, _LENGTH = 1, 2, 3, 4
brief: Callable[[Any], str] = reprlib.repr


def _pack_other(value: Any) -> Any:
    """Write what msgpack does not know. Raises TypeError for what cannot be state."""
    if isinstance(value, datetime):
        moment = value if value.tzinfo is None else value.astimezone(UTC)
        return msgpack.ExtType(_MOMENT, moment.isoformat().encode())
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


def unpack_all(written: Sequence[bytes]) -> list[Any]:
    """Read many, many times quicker than one by one."""
    count = b"\xdd" + len(written).to_bytes(4, "big")  # an array of so many, as msgpack begins it
    found: list[Any] = unpack(count + b"".join(written))
    return found


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return a schema in Arrow, with timestamps in UTC, which PySpark 4.2 does not take for granted."""
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


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
    if isinstance(kind, TimestampType):
        return lambda value: value.astimezone().replace(tzinfo=None)
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


_EXACT: dict[type[DataType], type] = {
    BinaryType: bytes,
    BooleanType: bool,
    DoubleType: float,
    LongType: int,
    StringType: str,
}
"""The types of which any value of this Python type is one."""
_BITS = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}


def fitting(schema: StructType) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return what makes fields be what `schema` says: NumPy's numbers Python's own, moments UTC, and so on. It raises
    TypeError for a field that would have to be another value."""
    kinds = [_EXACT.get(type(field.dataType)) for field in schema.fields]
    fits = [(field.name, field.dataType, _fit(field.dataType)) for field in schema.fields]

    def fit(values: Sequence[Any]) -> Sequence[Any]:
        for value, kind in zip(values, kinds, strict=True):
            if value is not None and type(value) is not kind:
                break
        else:
            return values
        fitted = []
        for value, (name, kind_of, to) in zip(values, fits, strict=True):
            try:
                fitted.append(None if value is None else to(value))
            except (TypeError, ValueError, InvalidOperation, OverflowError, AttributeError) as error:
                said = f"field {name!r} is {kind_of.simpleString()}, and {brief(value)} is none"
                raise TypeError(said) from error
        return fitted

    return fit


def _fit(kind: DataType) -> Callable[[Any], Any]:  # noqa: PLR0911  one for each kind of type
    if isinstance(kind, BooleanType | StringType | BinaryType):
        python = _EXACT[StringType if isinstance(kind, StringType) else type(kind)]
        given = {bytes: (bytes, bytearray), bool: (bool,), str: (str,)}[python]
        return lambda value: python(_is(_plain(value), given))
    if isinstance(kind, ByteType | ShortType | IntegerType | LongType):
        most = 1 << (_BITS[type(kind)] - 1)
        return lambda value: _within(_is(_plain(value), (int,)), most)
    if isinstance(kind, DoubleType):
        return lambda value: float(_is(_plain(value), (float, int)))
    if isinstance(kind, FloatType):
        return lambda value: struct.unpack("f", struct.pack("f", _is(_plain(value), (float, int))))[0]
    if isinstance(kind, DecimalType):
        place, end = Decimal(1).scaleb(-kind.scale), Decimal(10) ** (kind.precision - kind.scale)
        return lambda value: _within(Decimal(_is(value, (Decimal, int))).quantize(place), end)
    if isinstance(kind, DateType):
        return lambda value: value.date() if isinstance(value, datetime) else _is(value, (date,))
    if isinstance(kind, TimestampType):
        return lambda value: _is(_moment(value), (datetime,)).astimezone(UTC)
    if isinstance(kind, TimestampNTZType):
        return lambda value: _is(_moment(value), (datetime,)).replace(tzinfo=None)
    if isinstance(kind, StructType):
        fit, names = fitting(kind), kind.names
        return lambda value: fit([value[n] for n in names] if isinstance(value, dict) else [*value])
    if isinstance(kind, ArrayType):
        element = _fit(kind.elementType)
        return lambda value: [None if one is None else element(one) for one in _is_many(value)]
    if isinstance(kind, MapType):
        key, element = _fit(kind.keyType), _fit(kind.valueType)
        return lambda value: {key(name): None if one is None else element(one) for name, one in value.items()}
    return lambda value: value


def _plain(value: Any) -> Any:
    """Return a number of NumPy as Python's own."""
    return value.item() if hasattr(value, "item") and not hasattr(value, "__len__") else value


def _moment(value: Any) -> Any:
    """Return a moment of pandas as Python's own."""
    return value.to_pydatetime() if hasattr(value, "to_pydatetime") else value


def _is(value: Any, kinds: tuple[type, ...]) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeError
    return value


def _is_many(value: Any) -> Any:
    if isinstance(value, str | bytes | dict):
        raise TypeError
    return value


def _within(value: Any, most: Any) -> Any:
    if not -most <= value < most:
        raise ValueError
    return value
