"""What a status answer says beside the protocol: each class has its own schema, for both sides, in its annotations.

What is read is never in the way of the rest: where it is not what was expected it counts as not said, or its entry is
left out if a field is `required`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Annotated, Any, TypeVar, get_type_hints

from muster.core.moments import LAST_MOMENT, to_iso, to_seconds

LONGEST_TEXT = 500
"""Characters of what a consumer says of itself that are kept."""
MOST_ERRORS = 20
MOST_ENTRIES = 1_000
MOST_RANGES = 200
"""Entries that are kept of a list."""
NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
"""A partition's number as text."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Wire:
    """How a field stands in JSON: `read` takes anything and returns None for what is not understood, `write` gives
    what `read` takes. `name` is its key there, if that is another one."""

    read: Callable[[object], Any]
    write: Callable[[Any], object] = lambda value: value
    name: str = ""
    required: bool = False


def read(cls: type[_T], entry: object) -> _T | None:
    """Read an object; None for what is none, or lacks something required."""
    if not isinstance(entry, dict):
        return None
    found = fields_of(cls, entry)
    lacks = any(found[field] is None for field, wire in _schema(cls).items() if wire.required)
    return None if lacks else cls(**found)


def fields_of(cls: type, entry: Mapping[str, object]) -> dict[str, Any]:
    """Read the fields of `cls` that have a schema."""
    return {field: wire.read(entry.get(wire.name)) for field, wire in _schema(cls).items()}


def write(value: object) -> dict[str, object]:
    """Return the object that `read` reads as `value`."""
    return {wire.name: wire.write(getattr(value, field)) for field, wire in _schema(type(value)).items()}


_SCHEMAS: dict[type, dict[str, Wire]] = {}


def _schema(cls: type[Any]) -> dict[str, Wire]:
    if cls not in _SCHEMAS:
        hints = get_type_hints(cls, include_extras=True)
        _SCHEMAS[cls] = {
            field.name: replace(wire, name=wire.name or field.name)
            for field in fields(cls)
            for wire in getattr(hints[field.name], "__metadata__", ())
            if isinstance(wire, Wire)
        }
    return _SCHEMAS[cls]


def text(value: object) -> str:
    """Read a text, '' for anything else."""
    return value[:LONGEST_TEXT] if isinstance(value, str) else ""


def texts(value: object) -> tuple[str, ...]:
    return tuple(filter(None, map(text, value[:MOST_ERRORS]))) if isinstance(value, list) else ()


def count(value: object) -> int | None:
    """Read a whole number from 0, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def measure(value: object) -> float | None:
    """Read a finite number from 0, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def moment(value: object) -> float | None:
    """Read ISO 8601 as seconds since the epoch, None for anything else."""
    try:
        return to_seconds(datetime.fromisoformat(value)) if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None


def numbers(value: object) -> frozenset[int]:
    """Read the partitions in a list; anything else is left out."""
    found = value if isinstance(value, list) else []
    return frozenset(n for n in found if type(n) is int and n >= 0)


def offset_ranges(value: object) -> tuple[tuple[int, int], ...] | None:
    """Read ranges of offsets, each `[begin, end]`; None if one cannot be read."""
    if not isinstance(value, list):
        return None
    found = tuple(found_range for entry in value[:MOST_RANGES] if (found_range := _range(entry)) is not None)
    return found if len(found) == len(value) else None


def _range(value: object) -> tuple[int, int] | None:
    if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004
        return None
    begin, end = map(count, value)
    return None if begin is None or end is None or begin >= end else (begin, end)


def of_partitions(value: object, one: Callable[[object], _T | None]) -> dict[int, _T]:
    """Read a mapping of partitions; what `one` reads as None is left out."""
    return {
        int(key): found
        for key, entry in (value.items() if isinstance(value, dict) else ())
        if isinstance(key, str) and NUMBER.fullmatch(key) and (found := one(entry)) is not None
    }


def listed(cls: type[_T], value: object, most: int) -> tuple[_T, ...] | None:
    """Read the objects in a list, None without a list."""
    if not isinstance(value, list):
        return None
    return tuple(found for entry in value[:most] if (found := read(cls, entry)) is not None)


def write_partitions(values: Mapping[int, Any], one: Callable[[Any], object]) -> dict[str, object]:
    return {str(partition): one(values[partition]) for partition in sorted(values)}


def each(cls: type) -> Wire:
    """Return how an object a partition stands in JSON."""
    return Wire(
        lambda value: of_partitions(value, lambda entry: read(cls, entry)),
        lambda values: write_partitions(values, write),
    )


def list_of(cls: type, most: int = MOST_ENTRIES) -> Wire:
    """Return how a list of objects stands in JSON, None where there is none."""
    return Wire(
        lambda value: listed(cls, value, most),
        lambda values: None if values is None else [write(one) for one in values],
    )


def lists(cls: type) -> Wire:
    """Return how a list of objects a partition stands in JSON; empty ones are left out."""
    one = list_of(cls, MOST_RANGES)
    return Wire(
        lambda value: of_partitions(value, lambda entry: one.read(entry) or None),
        lambda values: write_partitions(values, one.write),
    )


def _dated(value: object) -> float | None:
    at = moment(value)
    return at if at is not None and 0 <= at < LAST_MOMENT else None


def _iso(at: float | None) -> str | None:
    return None if at is None else to_iso(at)


def named(name: str, wire: Any) -> Wire:
    """Return how a field of that annotation stands in JSON under another key."""
    found: Wire = wire.__metadata__[0]
    return replace(found, name=name)


Text = Annotated[str, Wire(text)]
Texts = Annotated[tuple[str, ...], Wire(texts, list)]
Count = Annotated[int, Wire(lambda value: count(value) or 0)]
MaybeCount = Annotated[int | None, Wire(count)]
Required = Annotated[int, Wire(count, required=True)]
"""A whole number without which the object is left out."""
Measure = Annotated[float | None, Wire(measure)]
Duration = Annotated[float, Wire(lambda value: measure(value) or 0.0, lambda seconds: round(seconds, 1))]
Flag = Annotated[bool, Wire(lambda value: value is True)]
MaybeMoment = Annotated[float | None, Wire(moment, _iso)]
AnyMoment = Annotated[float, Wire(lambda value: moment(value) or 0.0, _iso)]
Dated = Annotated[float, Wire(_dated, _iso, required=True)]
"""A moment without which the object is left out; it can be shown in any time zone."""
OffsetRanges = Annotated[tuple[tuple[int, int], ...], Wire(offset_ranges, list, required=True)]
