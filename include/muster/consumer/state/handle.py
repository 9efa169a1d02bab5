"""PySpark's handle of a `StatefulProcessor`, over the committed state of one shard and the changes of one batch.

A key of state is generation (4 bytes), number of the variable (2), length of the grouping key (4), grouping key, and
for a map its own key. What the processor reads and writes is the overlay's; nothing reaches the store before the
commit.

Two more tables lie beside the variables: timers by time, and expiries by time, so that what is due is found without
looking at every key. Timers by key are a third.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import StructType, _parse_datatype_string

from muster.consumer.state.codec import pack, reader_of, unpack
from muster.consumer.state.errors import StateError
from muster.consumer.state.position import Variable

LARGEST = 900_000
"""Bytes of the largest entry: its key in the changelog, and its value."""
TIMERS, TIMERS_OF_KEYS, EXPIRIES = 0xFFF0, 0xFFF1, 0xFFF2
"""The numbers of the tables that are no variables."""
NO_TIME, PROCESSING_TIME, EVENT_TIME = "None", "ProcessingTime", "EventTime"
VALUE, LIST, MAP = "value", "list", "map"
_MISSING: Any = object()


class Below(Protocol):
    """The committed state: a `Reader`."""

    def get(self, key: bytes) -> bytes | None:
        """Return a value."""

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values that are there."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield what begins with `prefix`."""


class Overlay:
    """Committed state of one generation below, the changes of a batch above."""

    def __init__(self, below: Below, generation: int) -> None:
        self._below = below
        self._generation = generation.to_bytes(4, "big")
        self._known: dict[bytes, bytes | None] = {}
        self.changes: dict[bytes, bytes | None] = {}
        self._groups: dict[bytes, set[bytes]] = {}
        """The changed keys that `scan` is asked for, by their prefix."""

    def prefetch(self, keys: Sequence[bytes]) -> None:
        """Read many keys at once, those that are not known."""
        full = [self._generation + key for key in keys if key not in self._known]
        found = self._below.get_many(full)
        for key in full:
            self._known[key[4:]] = found.get(key)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if there is none."""
        value = self.changes.get(key, _MISSING)
        if value is _MISSING:
            value = self._known.get(key, _MISSING)
            if value is _MISSING:
                value = self._known[key] = self._below.get(self._generation + key)
        return None if value is None else bytes(value)

    def put(self, key: bytes, value: bytes, group: bytes = b"") -> None:
        """Set the value of a key, which `scan` finds under the prefix `group`. Raises `StateError` if it is too
        large."""
        if len(key) + len(value) > LARGEST:
            raise StateError(
                f"an entry of state has {len(key) + len(value)} bytes, and {LARGEST} is the most that its changelog "
                "takes; keep large lists as a map, with an entry for each element"
            )
        self.changes[key] = value
        if group:
            self._groups.setdefault(group, set()).add(key)

    def delete(self, key: bytes) -> None:
        """Delete a key."""
        self.changes[key] = None

    def scan(self, prefix: bytes, end: bytes = b"") -> list[tuple[bytes, bytes]]:
        """Return what begins with `prefix`, a group, in order, up to the key `end`."""
        found: dict[bytes, bytes] = {}
        for key, value in self._below.scan(self._generation + prefix):
            if end and key[4:] >= end:
                break
            if key[4:] not in self.changes:
                found[key[4:]] = value
        for key in self._groups.get(prefix, ()):
            value_now = self.changes[key]
            if value_now is not None and not (end and key >= end):
                found[key] = value_now
        return sorted(found.items())

    def clear(self, number: int) -> None:
        """Delete all of a variable that is stored."""
        for key, _ in self._below.scan(self._generation + struct.pack(">H", number)):
            self.changes[key[4:]] = None

    def written(self) -> tuple[list[bytes], list[bytes | None]]:
        """Return the changes as the changelog takes them."""
        return [self._generation + key for key in self.changes], list(self.changes.values())


class _Variable:
    def __init__(self, handle: Handle, name: str, of: Variable, schema: StructType, ttl: int) -> None:
        self._handle = handle
        self._name = name
        self._count = len(schema.fields)
        self._read = reader_of(schema)
        self._ttl = ttl
        self.prefix = struct.pack(">H", of.number)

    @property
    def _key(self) -> bytes:
        return self.prefix + self._handle.key

    def _get(self, key: bytes, read: Callable[[bytes], Any]) -> Any:
        data = self._handle.overlay.get(key)
        if data is None:
            return None
        if self._ttl:
            if int.from_bytes(data[:8], "big") <= self._handle.now:
                return None
            data = data[8:]
        return read(data)

    def _put(self, key: bytes, value: Any) -> None:
        data = self._packed(value)
        if self._ttl:
            at = (self._handle.now + self._ttl).to_bytes(8, "big")
            self._forget_expiry(key)
            self._handle.overlay.put(_table(EXPIRIES) + at + key, b"", _table(EXPIRIES))
            data = at + data
        self._handle.overlay.put(key, data, self._listed())

    def _delete(self, key: bytes) -> None:
        if self._handle.overlay.get(key) is not None:
            self._forget_expiry(key)
            self._handle.overlay.delete(key)

    def _listed(self) -> bytes:
        """Return the prefix under which its entries of the key under way are found, b'' if none is asked for."""
        return b""

    def _forget_expiry(self, key: bytes) -> None:
        if self._ttl and (data := self._handle.overlay.get(key)) is not None:
            self._handle.overlay.delete(_table(EXPIRIES) + data[:8] + key)

    def _packed(self, value: Any) -> bytes:
        try:
            return pack(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise StateError(f"state variable {self._name!r}: {error}") from error

    def _fields(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple):
            raise StateError(
                f"state variable {self._name!r}: {value!r} is no tuple; give one with its {self._count} fields"
            )
        if len(value) != self._count:
            raise StateError(
                f"state variable {self._name!r}: {value!r} has {len(value)} fields, and its schema {self._count}"
            )
        return value


class ValueState(_Variable):
    """One value a key."""

    def exists(self) -> bool:
        """Whether there is one."""
        return self.get() is not None

    def get(self) -> tuple[Any, ...] | None:
        """Return it, None if there is none."""
        found: tuple[Any, ...] | None = self._get(self._key, self._read)
        return found

    def update(self, newValue: tuple[Any, ...]) -> None:
        """Set it."""
        self._put(self._key, self._fields(newValue))

    def clear(self) -> None:
        """Remove it."""
        self._delete(self._key)


class ListState(_Variable):
    """A list a key, kept as one entry."""

    def _items(self) -> list[tuple[Any, ...]]:
        found = self._get(self._key, lambda data: [self._read(item) for item in unpack(data)])
        return found or []

    def exists(self) -> bool:
        """Whether it has an element."""
        return bool(self._items())

    def get(self) -> Iterator[tuple[Any, ...]]:
        """Yield its elements."""
        return iter(self._items())

    def put(self, newState: Iterable[tuple[Any, ...]]) -> None:
        """Replace it."""
        self._put(self._key, [self._packed(self._fields(item)) for item in newState])

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        """Add an element."""
        self.appendList([newState])

    def appendList(self, newState: Iterable[tuple[Any, ...]]) -> None:
        """Add elements."""
        there = self._get(self._key, unpack) or []
        self._put(self._key, [*there, *(self._packed(self._fields(item)) for item in newState)])

    def clear(self) -> None:
        """Remove it."""
        self._delete(self._key)


class MapState(_Variable):
    """A map a key, with an entry of its own for each of its keys."""

    def _listed(self) -> bytes:
        return self._key

    def _of(self, key: tuple[Any, ...]) -> bytes:
        return self._key + self._packed(tuple(key))

    def exists(self) -> bool:
        """Whether it has an entry."""
        return next(self.iterator(), None) is not None

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the value of one of its keys, None if there is none."""
        found: tuple[Any, ...] | None = self._get(self._of(key), self._read)
        return found

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        """Whether it has that key."""
        return self.getValue(key) is not None

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        """Set the value of one of its keys."""
        self._put(self._of(key), self._fields(value))

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Yield its keys with their values."""
        prefix = self._key
        for key, _ in self._handle.overlay.scan(prefix):
            value = self._get(key, self._read)
            if value is not None:
                yield tuple(unpack(key[len(prefix) :])), value

    def keys(self) -> Iterator[tuple[Any, ...]]:
        """Yield its keys."""
        return (key for key, _ in self.iterator())

    def values(self) -> Iterator[tuple[Any, ...]]:
        """Yield its values."""
        return (value for _, value in self.iterator())

    def removeKey(self, key: tuple[Any, ...]) -> None:
        """Remove one of its keys."""
        self._delete(self._of(key))

    def clear(self) -> None:
        """Remove all of it."""
        for key, _ in self._handle.overlay.scan(self._key):
            self._delete(key)


class Handle(StatefulProcessorHandle):
    """What a processor's `init` gets. `key` is the grouping key under way, `now` the processing time.

    `known` are the variables as they were written; those that `init` asks for become `declared`. `timers` tells
    whether there are timers, by the time mode. `parsed`: what is known is what the same processor has declared in the
    driver, where its schemas were read and compared.
    """

    def __init__(
        self,
        overlay: Overlay,
        known: Mapping[str, Variable],
        now: int,
        timers: bool = True,
        parsed: bool = False,
    ) -> None:
        self._parsed = parsed
        self.overlay = overlay
        self.now = now
        self.key = b""
        self.declared: dict[str, Variable] = {}
        self.single: list[bytes] = []
        """The prefixes of the variables with one entry a key."""
        self._deleted: dict[str, Variable] = {}
        self._numbers = {one.number for one in known.values()}
        self._known = dict(known)
        self._timers = timers

    # -- variables ----------------------------------------------------------------------------------------

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
        """Declare a value."""
        return self._declare(ValueState, VALUE, stateName, schema, ttlDurationMs)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
        """Declare a list."""
        return self._declare(ListState, LIST, stateName, schema, ttlDurationMs)

    def getMapState(
        self,
        stateName: str,
        userKeySchema: Any,
        valueSchema: Any,
        ttlDurationMs: int | None = None,
    ) -> Any:
        """Declare a map."""
        return self._declare(MapState, MAP, stateName, valueSchema, ttlDurationMs, userKeySchema)

    def deleteIfExists(self, stateName: str) -> None:
        """Remove a variable with all that it holds."""
        if not self._parsed and (of := self._known.pop(stateName, None)) is not None:
            self._deleted[stateName] = of

    def _declare(
        self,
        kind: type[_Variable],
        word: str,
        name: str,
        schema: Any,
        ttl: int | None,
        key_schema: Any = None,
    ) -> _Variable:
        if name in self.declared:
            raise StateError(f"state variable {name!r} is declared twice; give each a name of its own")
        if self._parsed:
            wanted = self._known[name]
            fields = _fields_of(wanted)
        else:
            fields = _schema(name, schema)
            of_keys = "" if key_schema is None else _schema(name, key_schema).json()
            wanted = Variable(self._number(name), word, fields.json(), of_keys, bool(ttl and ttl > 0))
            if (old := self._deleted.get(name)) == replace(wanted, number=old.number if old else 0):
                wanted = old  # it was removed and declared in an earlier batch
            if (was := self._known.get(name)) is not None:
                _check_change(name, was, wanted)
        self.declared[name] = wanted
        made = kind(self, name, wanted, fields, int(ttl) if ttl and ttl > 0 else 0)
        if word != MAP:
            self.single.append(made.prefix)
        return made

    def _number(self, name: str) -> int:
        if (was := self._known.get(name)) is not None:
            return was.number
        used = self._numbers | {one.number for one in self.declared.values()}
        return max(used, default=0) + 1

    def variables(self) -> dict[str, Variable]:
        """Return all variables there are after `init`. Raises `StateError` if one is there that nothing declares."""
        for name in self._known.keys() - self.declared.keys():
            raise StateError(
                f"state variable {name!r} is in the state, and the processor does not declare it; declare it, or "
                f"remove it with handle.deleteIfExists({name!r})"
            )
        return dict(self.declared)

    # -- timers -------------------------------------------------------------------------------------------

    def registerTimer(self, expiryTimestampMs: int) -> None:
        """Have `handleExpiredTimer` called for the key under way at that time."""
        if not self._timers:
            raise StateError("timers need timeMode 'ProcessingTime' or 'EventTime'")
        at = int(expiryTimestampMs).to_bytes(8, "big")
        self.overlay.put(_table(TIMERS) + at + self.key, b"", _table(TIMERS))
        of_key = _table(TIMERS_OF_KEYS) + self.key
        self.overlay.put(of_key + at, b"", of_key)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        """Take back a timer of the key under way."""
        self.drop_timer(int(expiryTimestampMs), self.key)

    def listTimers(self) -> Iterator[int]:
        """Yield the times of the timers of the key under way."""
        prefix = _table(TIMERS_OF_KEYS) + self.key
        return iter([int.from_bytes(key[-8:], "big") for key, _ in self.overlay.scan(prefix)])

    def drop_timer(self, at: int, key: bytes) -> None:
        """Remove a timer of `key`."""
        moment = at.to_bytes(8, "big")
        self.overlay.delete(_table(TIMERS) + moment + key)
        self.overlay.delete(_table(TIMERS_OF_KEYS) + key + moment)

    def due_timers(self, until: int) -> list[tuple[int, bytes]]:
        """Return the timers up to a time, with their keys, oldest first."""
        return [(at, key) for at, key in _by_time(self.overlay, TIMERS, until)]

    def expire(self) -> None:
        """Remove what has expired by now."""
        for at, key in _by_time(self.overlay, EXPIRIES, self.now):
            self.overlay.delete(_table(EXPIRIES) + at.to_bytes(8, "big") + key)
            data = self.overlay.get(key)
            if data is not None and int.from_bytes(data[:8], "big") == at:
                self.overlay.delete(key)


def key_bytes(key: Sequence[Any]) -> bytes:
    """Write a grouping key so that none is the beginning of another."""
    data = pack(list(key))
    return len(data).to_bytes(4, "big") + data


def key_of(data: bytes) -> tuple[Any, ...]:
    """Read a grouping key."""
    return tuple(unpack(data[4:]))


def first_due(below: Below, generation: int, table: int) -> int | None:
    """Return the time of the first entry of a table by time, None if it is empty."""
    prefix = generation.to_bytes(4, "big") + _table(table)
    found = next(below.scan(prefix), None)
    return None if found is None else int.from_bytes(found[0][len(prefix) : len(prefix) + 8], "big")


def _by_time(overlay: Overlay, table: int, until: int) -> Iterator[tuple[int, bytes]]:
    prefix = _table(table)
    for key, _ in overlay.scan(prefix, prefix + (until + 1).to_bytes(8, "big")):
        yield int.from_bytes(key[2:10], "big"), key[10:]


def _table(number: int) -> bytes:
    return struct.pack(">H", number)


def _schema(name: str, schema: Any) -> StructType:
    if isinstance(schema, str):
        schema = _parse_datatype_string(schema)
    if not isinstance(schema, StructType):
        raise StateError(f"state variable {name!r}: {schema!r} is no schema; give a StructType or DDL text")
    return schema


def _fields_of(variable: Variable) -> StructType:
    return StructType.fromJson(json.loads(variable.schema))


def _check_change(name: str, was: Variable, wanted: Variable) -> None:
    """Raise `StateError` unless `wanted` reads what was written: only nullable fields at the end may be added."""
    if was.kind != wanted.kind:
        raise StateError(
            f"state variable {name!r} is a {was.kind} in the state, and a {wanted.kind} in the processor"
        )
    if was.expires != wanted.expires:
        raise StateError(
            f"state variable {name!r} was written {'with' if was.expires else 'without'} a TTL; give the changed one "
            f"another name, and remove this one with handle.deleteIfExists({name!r})"
        )
    if was.key_schema != wanted.key_schema:
        raise StateError(f"state variable {name!r}: the schema of its keys has changed; give it another name")
    before, after = _fields_of(was).fields, _fields_of(wanted).fields
    for old, new in zip(before, after, strict=False):
        if (old.name, old.dataType) != (new.name, new.dataType):
            raise StateError(
                f"state variable {name!r}: field {old.name!r} is {old.dataType.simpleString()} in the state, and the "
                f"processor has {new.name!r} {new.dataType.simpleString()} there; only nullable fields may be added, "
                "at the end"
            )
    if len(after) < len(before):
        raise StateError(
            f"state variable {name!r}: field {before[len(after)].name!r} is in the state, and the processor lacks it"
        )
    for new in after[len(before) :]:
        if not new.nullable:
            raise StateError(
                f"state variable {name!r}: field {new.name!r} was added and is not nullable; make it nullable"
            )
