"""The local store of one shard: a cache of its changelog that knows which of it that is.

It is a folder with an LMDB environment. One process writes (`Store`), the tasks of its batches read (`Reader`); each
sees whole transactions. Nothing is synced to disk: what a crash of the host may tear is known by the host's boot id,
and restored from the changelog.

A key of LMDB has at most 511 bytes. A longer one is stored under its beginning and its hash, and stands in the value.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import lmdb

from muster.consumer.state.errors import StateStoreError, StoreInUseError

FORMAT = 1
"""How a store is laid out; another one is not read."""
MAP_SIZE = 1 << 36
"""Bytes of address space of one store: 64 GiB, of which it takes what it needs. 300 of them fit the address space of
a process."""
LONGEST_KEY = 480
"""Bytes of a key that stands as it is."""
_HEAD = 440
_PLAIN, _HASHED = b"\x00", b"\x01"
_AT_ONCE = 5_000
"""Keys that are put without a moment for other threads."""
_IN_USE = "already open in this process"
"""What LMDB says of a folder that this process has open."""
_META = b"\x00meta"
_DATA = b"\x01"
"""What the keys in LMDB begin with."""

Change = tuple[bytes, bytes | None]
"""A key with its value; None deletes it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Which part of which changelog a store holds.

    `upto` is the next offset of the changelog to read, `last` that of the last record that it has (-1: none), `seq`
    and `history` are those of the last position that it has read, `current` is when it last was known to have
    everything (or began with nothing), in seconds since the epoch.
    """

    identity: str
    boot: str = ""
    upto: int = 0
    last: int = -1
    seq: int = -1
    history: str = ""
    current: float = 0.0
    format: int = FORMAT


class Store:
    """The store of `identity` in `folder`, which is emptied unless it is of that identity, host and boot.

    Raises `StateStoreError`, and `StoreInUseError` if it is open in this process.
    """

    def __init__(self, folder: Path, identity: str, now: float, boot: str = "") -> None:
        self.folder = folder
        self._new = Mark(identity, boot or boot_id(), current=now)
        folder.mkdir(parents=True, exist_ok=True)
        self._environment: Any = None
        with _named(folder):
            try:
                self._open()
                found = self.mark
            except (lmdb.Error, OSError, ValueError, TypeError) as error:
                if _IN_USE in str(error):
                    raise StoreInUseError(f"the state store in {folder} is open in this process") from error
                found = None  # torn, or not ours; a disk that fails fails again
            if found is None or _same(found) != _same(self._new):
                self.clear(now)

    def _open(self) -> None:
        self._environment = _open(self.folder, writable=True)

    @property
    def mark(self) -> Mark:
        """Which part of the changelog it holds."""
        with _named(self.folder), self._environment.begin() as transaction:
            return _mark(transaction.get(_META))

    def clear(self, now: float) -> None:
        """Begin with nothing."""
        with _named(self.folder):
            self.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            self._open()
            with self._environment.begin(write=True) as transaction:
                transaction.put(_META, _text(replace(self._new, current=now)))

    def apply(self, changes: Iterable[Change], before: Mark, after: Mark) -> bool:
        """Make changes, of each key at most one, in one transaction, if the store is at `before`; False, and nothing,
        if it is elsewhere.

        So a process that was frozen changes nothing of what its successor has brought further.
        """
        self._environment.reader_check()  # of tasks that were killed
        with _named(self.folder):
            _check_length(self._environment, self.folder)
        with _named(self.folder), self._environment.begin(write=True) as transaction:
            if _place(_mark(transaction.get(_META))) != _place(before):
                return False
            rest, cursor = iter(changes), transaction.cursor()
            while part := [*islice(rest, _AT_ONCE)]:
                cursor.putmulti(
                    [(_DATA + k, _PLAIN + v) for k, v in part if v is not None and len(k) <= LONGEST_KEY]
                )
                for key, value in part:
                    if value is None:
                        transaction.delete(_stored(key))
                    elif len(key) > LONGEST_KEY:
                        transaction.put(_stored(key), _value(key, value))
            transaction.put(_META, _text(after))
        return True

    def count(self) -> tuple[int, int]:
        """Return how many keys it holds, and how many bytes it takes on disk."""
        with _named(self.folder):
            entries = self._environment.stat()["entries"] - 1
            return entries, (self.folder / "data.mdb").stat().st_blocks * 512

    def reader(self) -> Reader:
        """Return what reads it in this process."""
        return Reader(self._environment, self.folder)

    def close(self) -> None:
        """Let go of it."""
        if self._environment is not None:
            self._environment.close()
            self._environment = None


class Reader:
    """What is stored at one moment. Raises `StateStoreError`."""

    def __init__(self, environment: Any, folder: Path) -> None:
        self._folder = folder
        with _named(folder):
            _check_length(environment, folder)
            self._transaction = environment.begin(buffers=False)

    @property
    def mark(self) -> Mark:
        """Which part of the changelog it holds."""
        with _named(self._folder):
            return _mark(self._transaction.get(_META))

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if there is none."""
        with _named(self._folder):
            found = self._transaction.get(_stored(key))
        return None if found is None else _parts(key, found)[1]

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values of those keys that are there."""
        names = sorted([_DATA + key for key in keys if len(key) <= LONGEST_KEY])
        with _named(self._folder):
            found = {name[1:]: value[1:] for name, value in self._transaction.cursor().getmulti(names)}
        for key in keys:
            if len(key) > LONGEST_KEY and (value := self.get(key)) is not None:
                found[key] = value
        return found

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield all keys that begin with `prefix`, which has at most `LONGEST_KEY` bytes to be in order."""
        head = _DATA + prefix[:_HEAD]
        with _named(self._folder):
            cursor = self._transaction.cursor()
            found = cursor.set_range(head)
            while found and cursor.key().startswith(head):
                key, value = _parts(cursor.key()[1:], cursor.value())
                if key.startswith(prefix):
                    yield key, value
                found = cursor.next()

    def highest(self) -> bytes:
        """Return the first four bytes of the last key, none if there is no key but those that begin with a zero."""
        with _named(self._folder):
            cursor = self._transaction.cursor()
            name: bytes = cursor.key() if cursor.last() else b""
        return name[1:5] if name > _DATA + b"\x01" else b""

    def below(self, first: bytes, most: int) -> list[bytes]:
        """Return the keys below `first`, `most` of them, without those that begin with a zero."""
        keys: list[bytes] = []
        with _named(self._folder):
            cursor = self._transaction.cursor()
            found = cursor.set_range(_DATA + b"\x01")
            while found and cursor.key() < _DATA + first and len(keys) < most:
                keys.append(_parts(cursor.key()[1:], cursor.value())[0])
                found = cursor.next()
        return keys

    def close(self) -> None:
        """End the look at that moment."""
        self._transaction.abort()


class Readers:
    """The stores that a process reads and does not write, opened once each."""

    def __init__(self) -> None:
        self._open: dict[Path, tuple[tuple[int, int], Any]] = {}

    def at(self, folder: Path) -> Reader:
        """Look at what is stored in a folder now."""
        with _named(folder):
            file = (folder / "data.mdb").stat()
            inode, environment = self._open.get(folder, ((0, 0), None))
            if inode != (file.st_dev, file.st_ino):
                if environment is not None:
                    environment.close()
                environment = _open(folder, writable=False)
                self._open[folder] = (file.st_dev, file.st_ino), environment
            for gone in [one for one in self._open if not one.exists()]:
                self._open.pop(gone)[1].close()
        return Reader(environment, folder)


def mark_of(folder: Path) -> Mark | None:
    """Return what a store on the disk has, which no thread of this process has open; None if it is not whole, or of
    another boot or format."""
    try:
        environment = _open(folder, writable=False)
        try:
            with environment.begin() as transaction:
                mark = _mark(transaction.get(_META))
        finally:
            environment.close()
    except (lmdb.Error, OSError, ValueError, TypeError):
        return None
    return mark if (mark.boot, mark.format) == (boot_id(), FORMAT) else None


def boot_id() -> str:
    """Return what is another one after each start of the host."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class _named:  # noqa: N801  used like a function
    """Turns what LMDB and the file system raise into a `StateStoreError` that names the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, lmdb.Error | OSError):
            raise StateStoreError(
                f"the state store in {self._folder} failed: {error}; see that the disk has room. It is restored from "
                "its changelog"
            ) from error


def _open(folder: Path, writable: bool) -> Any:
    environment = lmdb.open(
        str(folder),
        map_size=MAP_SIZE,
        readonly=not writable,
        sync=False,
        metasync=False,
        readahead=False,
        max_readers=512,
        create=writable,
    )
    try:
        _check_length(environment, folder)
        environment.reader_check()
    except BaseException:
        environment.close()
        raise
    return environment


def _check_length(environment: Any, folder: Path) -> None:
    """Raise `OSError` if the file was cut short: to read behind its end would end the process."""
    needs = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    has = (folder / "data.mdb").stat().st_size
    if has < needs:
        raise OSError(f"data.mdb has {has} bytes of {needs}")


def _same(mark: Mark) -> tuple[str, str, int]:
    return mark.identity, mark.boot, mark.format


def _place(mark: Mark) -> tuple[str, int, int, str]:
    return mark.identity, mark.upto, mark.seq, mark.history


def _mark(text: bytes | None) -> Mark:
    if text is None:
        raise ValueError("no mark")
    return Mark(**json.loads(text))


def _text(mark: Mark) -> bytes:
    return json.dumps(asdict(mark)).encode()


def _stored(key: bytes) -> bytes:
    if len(key) <= LONGEST_KEY:
        return _DATA + key
    return _DATA + key[:_HEAD] + hashlib.sha256(key).digest()


def _value(key: bytes, value: bytes) -> bytes:
    if len(key) <= LONGEST_KEY:
        return _PLAIN + value
    return _HASHED + len(key).to_bytes(4, "big") + key + value


def _parts(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return key and value of what is stored, by its name or its key."""
    if value[:1] == _PLAIN:
        return name, value[1:]
    end = 5 + int.from_bytes(value[1:5], "big")
    return value[5:end], value[end:]


def remove(folder: Path) -> None:
    """Delete a store that no process has open any more."""
    with suppress(OSError):
        shutil.rmtree(folder)
