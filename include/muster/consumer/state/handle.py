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
from pyspark.sql.types import Row, StructType, _parse_datatype_string

from muster.consumer.state.codec import brief, fitting, pack, reader_of, unpack
from muster.consumer.state.errors import StateError
from muster.consumer.state.position import Variable

LARGEST = 900_000
"""Bytes of the largest entry: its key in the changelog, and its value."""
TIMERS, TIMERS_OF_KEYS, EXPIRIES = 0xFFF0, 0xFFF1, 0xFFF2
"""The numbers of the tables that are no variables."""
MOMENT = 8
"""Bytes of a moment in keys and values."""
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


class TooManyChangesError(Exception):
    """A batch changes more bytes than it may."""


class Overlay:
    """Committed state of one generation below, the changes of a batch above: at most `most` bytes, None for any."""

    def __init__(self, below: Below, generation: int, most: int | None = None) -> None:
        self._below = below
        self._generation = generation.to_bytes(4, "big")
        self._known: dict[bytes, bytes | None] = {}
        self.changes: dict[bytes, bytes | None] = {}
        self.size = 0
        """Bytes of the changes."""
        self.begun = 0
        """Those of the initial state."""
        self.most = most
        self._groups: dict[bytes, set[bytes]] = {}
        """The changed keys that `scan` is asked for, by their prefix."""

    def prefetch(self, keys: Sequence[bytes]) -> None:
        """Read many keys at once, those that are not known."""
        missing = [key for key in keys if key not in self._known]
        full = [self._generation + key for key in missing]
        self._known.update(zip(missing, map(self._below.get_many(full).get, full), strict=True))

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
        large, and `TooManyChangesError`."""
        if len(key) + len(value) > LARGEST:
            raise StateError(
                f"an entry of state has {len(key) + len(value)} bytes, and {LARGEST} is the most that a record of "
                "its changelog takes (max.message.bytes); keep large lists as a map, with an entry for each element"
            )
        self._change(key, value)
        if group:
            self._groups.setdefault(group, set()).add(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of keys, in their order: None where there is none."""
        self.prefetch(keys)
        known, changes = self._known, self.changes
        return [changes.get(key, known[key]) for key in keys] if changes else [known[key] for key in keys]

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Set the values of keys, as `put` does."""
        if len(max(keys, key=len, default=b"")) + len(max(values, key=len, default=b"")) > LARGEST:
            for key, value in zip(keys, values, strict=True):
                self.put(key, value)
            return
        new = dict(zip(keys, values, strict=True))
        for key in new.keys() & self.changes.keys():
            self.size -= len(key) + len(self.changes[key] or b"")
        self.size += sum(map(len, new)) + sum(map(len, new.values()))
        self.changes.update(new)
        if self.most is not None and self.size > self.most:
            raise TooManyChangesError

    def delete(self, key: bytes) -> None:
        """Delete a key."""
        self._change(key, None)

    def _change(self, key: bytes, value: bytes | None) -> None:
        before = self.changes.get(key, _MISSING)
        self.size += len(value or b"") + (len(key) if before is _MISSING else -len(before or b""))
        self.changes[key] = value
        if self.most is not None and self.size > self.most:
            raise TooManyChangesError

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
        for key, _ in self._below.scan(self._generation + table_of(number)):
            self.delete(key[4:])

    def written(self) -> tuple[list[bytes], list[bytes | None]]:
        """Return the changes as the changelog takes them."""
        return [self._generation + key for key in self.changes], list(self.changes.values())


class _Variable:
    def __init__(self, handle: Handle, name: str, of: Variable, schema: StructType, ttl: int) -> None:
        self._handle = handle
        self._name = name
        self._schema = schema
        self._read = reader_of(schema)
        self._fit = fitting(schema)
        self._ttl = ttl
        self.prefix = table_of(of.number)

    @property
    def _key(self) -> bytes:
        return self.prefix + self._handle.key_under_way()

    def _get(self, key: bytes, read: Callable[[bytes], Any]) -> Any:
        data = self._handle.overlay.get(key)
        if data is None:
            return None
        if self._ttl:
            if moment_of(data) <= self._handle.now:
                return None
            data = data[MOMENT:]
        return read(data)

    def _put(self, key: bytes, data: bytes, until: int = 0) -> None:
        if self._ttl:
            at = (until or self._handle.now + self._ttl).to_bytes(8, "big")
            self._forget_expiry(key)
            self._handle.overlay.put(table_of(EXPIRIES) + at + key, b"", table_of(EXPIRIES))
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
            self._handle.overlay.delete(table_of(EXPIRIES) + data[:8] + key)

    def _packed(self, value: Any) -> bytes:
        """Write a value, which has to be what the schema says."""
        return _written(self._name, value, self._schema, self._fit)


def _written(name: str, value: Any, schema: StructType, fit: Callable[[Any], Any]) -> bytes:
    if not isinstance(value, tuple | list):
        raise StateError(
            f"state variable {name!r}: {brief(value)} is no tuple; give one with its {len(schema.fields)} fields"
        )
    if len(value) != len(schema.fields):
        raise StateError(
            f"state variable {name!r}: {brief(value)} has {len(value)} fields, and its schema {len(schema.fields)}"
        )
    try:
        return pack(fit(value))
    except (TypeError, ValueError, OverflowError) as error:
        raise StateError(f"state variable {name!r}: {error}") from error


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
        self._put(self._key, self._packed(newValue))

    def clear(self) -> None:
        """Remove it."""
        self._delete(self._key)


class ListState(_Variable):
    """A list a key, kept as one entry. With a TTL each element has an expiry of its own, and the entry that of the
    last one."""

    def _items(self) -> list[Any]:
        found: list[Any] = self._get(self._key, unpack) or []
        return [item for item in found if item[0] > self._handle.now] if self._ttl else found

    def exists(self) -> bool:
        """Whether it has an element."""
        return bool(self._items())

    def get(self) -> Iterator[tuple[Any, ...]]:
        """Yield its elements."""
        return iter([self._read(item[1] if self._ttl else item) for item in self._items()])

    def put(self, newState: Iterable[tuple[Any, ...]]) -> None:
        """Replace it."""
        self._write([], newState)

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        """Add an element."""
        self._write(self._items(), [newState])

    def appendList(self, newState: Iterable[tuple[Any, ...]]) -> None:
        """Add elements."""
        self._write(self._items(), newState)

    def _write(self, there: list[Any], added: Iterable[tuple[Any, ...]]) -> None:
        new: list[Any] = [self._packed(value) for value in added]
        if not new:
            raise StateError(f"state variable {self._name!r}: an empty list is no value; use clear()")
        if self._ttl:
            new = [[self._handle.now + self._ttl, item] for item in new]
        items = there + new
        self._put(self._key, pack(items), max(item[0] for item in items) if self._ttl else 0)

    def clear(self) -> None:
        """Remove it."""
        self._delete(self._key)


class MapState(_Variable):
    """A map a key, with an entry of its own for each of its keys."""

    def __init__(self, handle: Handle, name: str, of: Variable, schema: StructType, ttl: int) -> None:
        super().__init__(handle, name, of, schema, ttl)
        self._row = Row(*schema.names)
        self._key_schema = StructType.fromJson(json.loads(of.key_schema))
        self._read_key = reader_of(self._key_schema)
        self._fit_key = fitting(self._key_schema)

    def _listed(self) -> bytes:
        return self._key

    def _of(self, key: tuple[Any, ...]) -> bytes:
        return self._key + _written(self._name, key, self._key_schema, self._fit_key)

    def exists(self) -> bool:
        """Whether it has an entry."""
        return next(self.iterator(), None) is not None

    def getValue(self, key: tuple[Any, ...]) -> Row | None:
        """Return the value of one of its keys, None if there is none."""
        found = self._get(self._of(key), self._read)
        return None if found is None else self._row(*found)

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        """Whether it has that key."""
        return self.getValue(key) is not None

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        """Set the value of one of its keys."""
        self._put(self._of(key), self._packed(value))

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Yield its keys with their values."""
        prefix = self._key
        for key, _ in self._handle.overlay.scan(prefix):
            value = self._get(key, self._read)
            if value is not None:
                yield self._read_key(key[len(prefix) :]), value

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

    def key_under_way(self) -> bytes:
        """Return the grouping key under way. Raises `StateError` where there is none."""
        if not self.key:
            raise StateError("init and close have no key: declare variables in init, and use them for rows")
        return self.key

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
        if ttl is not None and ttl < 0:
            raise StateError(f"state variable {name!r}: ttlDurationMs is {ttl}; leave it out for no TTL")
        if self._parsed:
            if name not in self._known:
                raise StateError(f"state variable {name!r} is declared after init; declare it there")
            wanted = self._known[name]
            fields = _fields_of(wanted)
        else:
            fields = _schema(name, schema)
            of_keys = "" if key_schema is None else _schema(name, key_schema).json()
            wanted = Variable(self._number(name), word, fields.json(), of_keys, bool(ttl))
            if (old := self._deleted.get(name)) == replace(wanted, number=old.number if old else 0):
                wanted = old  # it was removed and declared in an earlier batch
            if (was := self._known.get(name)) is not None:
                _check_change(name, was, wanted)
        self.declared[name] = wanted
        made = kind(self, name, wanted, fields, int(ttl or 0))
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
        if expiryTimestampMs < 0:
            raise StateError(f"a timer at {expiryTimestampMs} ms is before 1970")
        at, key = int(expiryTimestampMs).to_bytes(8, "big"), self.key_under_way()
        self.overlay.put(table_of(TIMERS) + at + key, b"", table_of(TIMERS))
        of_key = table_of(TIMERS_OF_KEYS) + key
        self.overlay.put(of_key + at, b"", of_key)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        """Take back a timer of the key under way."""
        self.drop_timer(int(expiryTimestampMs), self.key_under_way())

    def listTimers(self) -> Iterator[int]:
        """Yield the times of the timers of the key under way."""
        prefix = table_of(TIMERS_OF_KEYS) + self.key_under_way()
        return iter([int.from_bytes(key[-8:], "big") for key, _ in self.overlay.scan(prefix)])

    def drop_timer(self, at: int, key: bytes) -> None:
        """Remove a timer of `key`."""
        moment = at.to_bytes(8, "big")
        self.overlay.delete(table_of(TIMERS) + moment + key)
        self.overlay.delete(table_of(TIMERS_OF_KEYS) + key + moment)

    def due_timers(self, until: int) -> list[tuple[int, bytes]]:
        """Return the timers up to a time, with their keys, oldest first."""
        return [(at, key) for at, key in _by_time(self.overlay, TIMERS, until)]

    def expire(self, most: int) -> None:
        """Remove what has expired by now, as long as that changes at most about `most` bytes."""
        for at, key in _by_time(self.overlay, EXPIRIES, self.now):
            if self.overlay.size > most:
                break
            self.overlay.delete(table_of(EXPIRIES) + at.to_bytes(8, "big") + key)
            data = self.overlay.get(key)
            if data is not None and moment_of(data) == at:
                self.overlay.delete(key)


def key_bytes(key: Sequence[Any]) -> bytes:
    """Write a grouping key so that none is the beginning of another."""
    data = pack(tuple(key))
    return len(data).to_bytes(4, "big") + data


def key_of(data: bytes) -> tuple[Any, ...]:
    """Read a grouping key."""
    return tuple(unpack(data[4:]))


def end_of_key(data: bytes) -> int:
    """Return where the grouping key ends that `data` begins with."""
    return 4 + int.from_bytes(data[:4], "big")


def moment_of(data: bytes) -> int:
    """Return the moment that `data` begins with, in milliseconds: of a value with a TTL, when it expires."""
    return int.from_bytes(data[:MOMENT], "big")


def first_due(below: Below, generation: bytes, table: int) -> int | None:
    """Return the time of the first entry of a table by time, None if it is empty."""
    prefix = generation + table_of(table)
    found = next(below.scan(prefix), None)
    return None if found is None else moment_of(found[0][len(prefix) :])


def _by_time(overlay: Overlay, table: int, until: int) -> Iterator[tuple[int, bytes]]:
    prefix = table_of(table)
    for key, _ in overlay.scan(prefix, prefix + (until + 1).to_bytes(8, "big")):
        yield int.from_bytes(key[2:10], "big"), key[10:]


def table_of(number: int) -> bytes:
    """Return what keys of a variable, or of a table by time, begin with behind their generation."""
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
