"""What the changelog of a partition says, for people: its position, and the entries of its state.

It is read with the caller's rights, committed records alone, into a store in a folder for temporary files, so that
a state may be larger than memory.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql.types import Row, StructType

from muster.consumer.state.codec import reader_of, unpack
from muster.consumer.state.errors import StateError
from muster.consumer.state.handle import (
    LIST,
    MAP,
    MOMENT,
    TIMERS_OF_KEYS,
    end_of_key,
    key_bytes,
    key_of,
    moment_of,
    table_of,
)
from muster.consumer.state.position import KEY, Position, Variable
from muster.consumer.state.store import Store
from muster.edges.state_changelog import ChangelogReader, changelog_topic
from muster.settings.connections import KafkaSettings


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: what `variable` holds of the grouping key `key`; of a map, for its own key `of`.

    A timer has `at` instead, in milliseconds. `expires` is when a TTL ends, in milliseconds.
    """

    key: tuple[Any, ...]
    variable: str = ""
    value: Any = None
    of: dict[str, Any] | None = None
    expires: int | None = None
    at: int | None = None


class Contents:
    """The state of one partition, as far as it is committed. To be closed. Raises `KafkaError` and `StateError`."""

    def __init__(
        self, settings: KafkaSettings, group_id: str, cluster: str, topic: str, partition: int
    ) -> None:
        self.topic, self.partition = topic, partition
        self.position: Position | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="muster-state-")
        self._store = Store(Path(self._folder.name) / "store", "contents", time.time())
        try:
            reader = ChangelogReader(settings, group_id, changelog_topic(cluster, topic), partition)
            with closing(reader):
                self._read(reader)
        except BaseException:
            self.close()
            raise

    def _read(self, reader: ChangelogReader) -> None:
        mark = self._store.mark
        for read in reader.read(0):
            changes: dict[bytes, bytes | None] = dict(read.records)
            text = changes.pop(KEY, None)
            if text is not None:
                try:
                    self.position = Position.of(text)
                except ValueError as error:
                    raise StateError(f"{reader.where}: {error}") from error
            after = replace(mark, upto=read.upto)
            self._store.apply(changes.items(), mark, after)
            mark = after

    @property
    def variables(self) -> dict[str, Variable]:
        """The variables by name."""
        return {} if self.position is None else dict(self.position.variables)

    def size(self) -> tuple[int, int]:
        """Return how many entries it has, and how many bytes their keys and values have."""
        if self.position is None:
            return 0, 0
        with closing(self._store.reader()) as reader:
            sizes = [len(key) + len(data) for key, data in reader.scan(self.position.prefix)]
        return len(sizes), sum(sizes)

    def entries(self, variable: str | None = None) -> Iterator[Entry]:
        """Yield the entries of a variable, or of all, in the order of their keys."""
        for name, of in sorted(self.variables.items(), key=lambda item: item[1].number):
            if variable in {None, name}:
                yield from self._of(name, of, b"")
        if variable is None:
            yield from self._timers(b"")

    def of_key(self, key: Sequence[Any]) -> list[Entry]:
        """Return the entries of a grouping key."""
        data = key_bytes(key)
        found = [entry for name, of in self.variables.items() for entry in self._of(name, of, data)]
        return [*found, *self._timers(data)]

    def _of(self, name: str, of: Variable, key: bytes) -> Iterator[Entry]:
        schema, map_names = schema_of(of.schema), schema_of(of.key_schema).names
        read, names = reader_of(schema), schema.names
        for rest, data in self._scan(of.number, key):
            end, expires, body = end_of_key(rest), None, data
            if of.expires:
                expires, body = moment_of(data), data[MOMENT:]
            value = (
                [_named(names, read(item)) for item in unpack(body)]
                if of.kind == LIST
                else _named(names, read(body))
            )
            own = _named(map_names, unpack(rest[end:])) if of.kind == MAP else None
            yield Entry(key_of(rest[:end]), name, value, own, expires)

    def _timers(self, key: bytes) -> Iterator[Entry]:
        for rest, _ in self._scan(TIMERS_OF_KEYS, key):
            yield Entry(key_of(rest[:-MOMENT]), at=moment_of(rest[-MOMENT:]))

    def _scan(self, number: int, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield what stands under a number and begins with a grouping key, without generation and number."""
        if self.position is None:
            return
        begins = self.position.prefix + table_of(number)
        with closing(self._store.reader()) as reader:
            for found, data in reader.scan(begins + key):
                yield found[len(begins) :], data

    def close(self) -> None:
        """Remove the store."""
        self._store.close()
        self._folder.cleanup()


def schema_of(text: str) -> StructType:
    """Read a schema as it stands in the position; '' is none."""
    return StructType.fromJson(json.loads(text)) if text else StructType()


def _named(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in zip(names, values, strict=False)}


def _plain(value: Any) -> Any:
    """Return a value with dictionaries for rows."""
    if isinstance(value, Row):
        return {name: _plain(each) for name, each in zip(value.__fields__, value, strict=True)}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value
