"""The folder of this consumer's local stores: which of them is open, what the others have, and when they go.

A store is open once in a process. Who opens, brings on, or closes that of a shard holds the shard's lock (`opening`).
"""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from muster.consumer.state.copies import CopyNotes
from muster.consumer.state.errors import StateError, StateStoreError, StoreInUseError
from muster.consumer.state.position import KEY, Position
from muster.consumer.state.store import Mark, Reader, Store, mark_of, remove
from muster.core.model import TopicPartition
from muster.edges.state_changelog import KEPT_DELETIONS, Read

log = logging.getLogger(__name__)

OLDEST = KEPT_DELETIONS / 1000 / 2
"""Seconds after which a store that was not current since is not trusted: Kafka may have forgotten deletions."""
KEPT = 7 * 86_400.0
"""Seconds after which files of shards that went are removed."""


@dataclass
class Stores:
    """The local stores of `cluster`'s consumer `consumer`, below `base`. Thread-safe.

    `clock` is monotonic, `wall` in seconds since the epoch.
    """

    cluster: str
    consumer: str
    base: Path | None
    clock: Callable[[], float]
    wall: Callable[[], float]
    copies: CopyNotes = field(init=False)
    _standing: dict[TopicPartition, Store] = field(default_factory=dict, init=False)
    """The stores of shards that this consumer stands by for."""
    _opening: dict[TopicPartition, threading.Lock] = field(default_factory=dict, init=False)
    _open: set[TopicPartition] = field(default_factory=set, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _own: Path | None = field(default=None, init=False)
    _held: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.copies = CopyNotes(self.clock)

    def place(self) -> Path:
        """Return the folder, which no other process uses until `release`."""
        with self._lock:
            if self._own is None:
                of_cluster = self._of_cluster
                of_cluster.mkdir(parents=True, exist_ok=True)
                self._own, self._held = _take(of_cluster, self.consumer)
            return self._own

    @property
    def _of_cluster(self) -> Path:
        base = self.base or Path(tempfile.gettempdir()) / f"muster-state-{os.getuid()}"
        return base / self.cluster

    def release(self) -> None:
        """Let another process have the folder. To be called when no store is open."""
        with self._lock:
            held, self._held, self._own = self._held, None, None
        if held is not None:
            held.close()

    def opening(self, tp: TopicPartition) -> threading.Lock:
        """Return the lock of a shard's store."""
        with self._lock:
            return self._opening.setdefault(tp, threading.Lock())

    def open(self, tp: TopicPartition, ids: Iterable[str], end: int) -> tuple[Store, Position | None]:
        """Open a shard's store and return it with its position. It is emptied if it cannot be part of a changelog of
        these `ids` that ends at `end`. Raises `StateStoreError`."""
        identity = "/".join([self.cluster, tp[0], str(tp[1]), *ids])
        with self._lock:
            if tp in self._open:
                raise StoreInUseError(f"the store of topic {tp[0]!r}, partition {tp[1]} is not closed yet")
            self._open.add(tp)
        try:
            store = Store(self.folder(tp), identity, self.wall())
        except BaseException:
            with self._lock:
                self._open.discard(tp)
            raise
        try:
            mark, position = store.mark, position_in(store.reader())
            unknown = mark.upto > 0 > mark.last  # it has nothing, or was written before this was kept
            if unknown or not self._is_young(mark) or mark.upto > end or not _whole(mark, position):
                store.clear(self.wall())
                position = None
        except BaseException:
            self.close(tp, store)
            raise
        self.copies.begin(tp, store.mark.upto, end)
        return store, position

    def close(self, tp: TopicPartition, store: Store) -> None:
        """Let go of a shard's store, which stays for a while."""
        store.close()
        self.copies.rest(tp)
        with self._lock:
            self._open.discard(tp)

    def stand_by(self, tp: TopicPartition, store: Store) -> None:
        """Keep a shard's store open to be brought on by who stands by for it."""
        with self._lock:
            self._standing[tp] = store

    def stands_by(self, tp: TopicPartition, store: Store) -> bool:
        """Tell whether this is the store that is brought on."""
        with self._lock:
            return self._standing.get(tp) is store

    def stand_down(self, tp: TopicPartition) -> None:
        """Close a shard's store if it is kept open to be brought on."""
        with self._lock:
            store = self._standing.pop(tp, None)
        if store is not None:
            self.close(tp, store)

    def is_open(self, tp: TopicPartition) -> bool:
        """Tell whether a shard's store is open in this process."""
        with self._lock:
            return tp in self._open

    def folder(self, tp: TopicPartition) -> Path:
        """Return the folder of a shard's store."""
        return self.place() / tp[0] / str(tp[1])

    def tidy(self) -> dict[TopicPartition, tuple[Mark, int]]:
        """Remove stores that were not used for long, and return what the others have that are not open, with the
        bytes that they take.

        As long as this process has no folder, nothing is removed: its predecessor may still have that.
        """
        own = self._own
        found: dict[TopicPartition, tuple[Mark, int]] = {}
        for file in (own or self._of_cluster / self.consumer).glob("*/*/data.mdb"):
            folder = file.parent
            if not folder.name.isdecimal():
                continue
            tp = folder.parent.name, int(folder.name)
            lock = self.opening(tp)
            if not lock.acquire(blocking=False):
                continue
            try:
                about = file.stat()
                if self.is_open(tp):
                    continue
                if own is not None and about.st_mtime < self.wall() - KEPT:
                    log.info("the state store in %s is removed: it was not used for long", folder)
                    remove(folder)
                    self.copies.gone(tp)
                elif (mark := mark_of(folder)) is not None and self._is_young(mark):
                    found[tp] = mark, about.st_blocks * 512
            finally:
                lock.release()
        return found

    def _is_young(self, mark: Mark) -> bool:
        return 0 <= self.wall() - mark.current <= OLDEST


def bring_on(
    store: Store, mark: Mark, read: Read, fresh: bool, current: float, where: str
) -> tuple[Mark, Position | None]:
    """Apply what was `read` of its changelog to a store that is at `mark`; return where it is then, and the position
    that was read.

    `fresh`: it began with nothing. `current`: when it last had everything. Raises `StateStoreError`.
    """
    changes: dict[bytes, bytes | None] = dict(read.records)
    position = parsed(text, where) if (text := changes.get(KEY)) else None
    after = replace(
        mark,
        upto=read.upto,
        last=max(read.last, mark.last),
        seq=mark.seq if position is None else position.seq,
        history=position.history if fresh and position is not None else mark.history,
        current=current,
    )
    if not store.apply(changes.items(), mark, after):
        raise StateStoreError(f"the state store in {store.folder} was changed by another process")
    return after, position


def follows(position: Position, before: Mark) -> bool:
    """Tell whether what a store had before the changelog was read on is part of what that says: else it was filled
    under another history."""
    return not before.upto or (position.history == before.history and position.seq >= before.seq)


def position_in(reader: Reader) -> Position | None:
    """Return the position that a store has, and close its reader."""
    try:
        text = reader.get(KEY)
    finally:
        reader.close()
    return None if text is None else parsed(text, "the local store")


def parsed(text: bytes, where: str) -> Position:
    """Read a position. Raises `StateError` naming `where` it stands if it is of a newer format."""
    try:
        return Position.of(text)
    except ValueError as error:
        raise StateError(f"{where}: {error}") from error


def _whole(mark: Mark, position: Position | None) -> bool:
    """Tell whether a store's mark says of its position what that itself says."""
    return mark.seq == (-1 if position is None else position.seq)


def _take(folder: Path, consumer: str) -> tuple[Path, Any]:
    """Return a folder for a consumer's stores and a lock that is held on it: its own, unless another process that is
    not gone has that, which may be frozen."""
    number = 0
    while True:
        name = consumer if not number else f"{consumer}~{number}"
        held = (folder / f"{name}.lock").open("a")
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.close()
            number += 1
        else:
            (folder / name).mkdir(exist_ok=True)
            return folder / name, held
