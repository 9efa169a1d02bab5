"""The stores of an executor that is on another host than the driver.

The driver keeps the stores of its shards as ever. An executor has copies in a folder of its own, which Spark removes
with it. The task of a shard brings its copy to the position that the batch was planned at: from the changelog, from
where the copy is. So an executor that is lost, or gets a shard for the first time, costs a restore and nothing else.

A task may outlive its batch: a second attempt, or one whose executor was believed dead. What it computes reaches no
commit, and a plan that the changelog has passed is refused. One process at a time brings a copy on; what a batch then
reads of it is a snapshot.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from muster.consumer.state.errors import StateError, StateStoreError
from muster.consumer.state.store import Mark, Reader, Store, remove
from muster.consumer.state.stores import OLDEST, bring_on
from muster.core.model import TopicPartition
from muster.edges.executor_settings import ExecutorSettingsError, ask_executor
from muster.edges.kafka_admin import KafkaError
from muster.edges.state_changelog import Read
from muster.edges.state_tail import AT_ONCE, LISTEN, ChangelogTail
from muster.settings.connections import KafkaSettings

FOLDER = "muster-state"
"""The folder of an executor's stores, in the first of its local ones; the connector knows it, too."""
LONGEST_WAIT = 60.0
"""Seconds for which a task waits until another one has brought the same store on."""
TIDY_AFTER = 3600.0
"""Seconds between two looks at stores that nothing uses."""


@dataclass(frozen=True, slots=True)
class Planned:
    """Where a batch begins in the changelog `changelog`, on the brokers `servers`.

    `mark` is that of the driver's store, with the driver's time as `current`.
    """

    servers: str
    group_id: str
    changelog: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class Brought:
    """How a store came to where a batch begins: in which executor, after how many offsets of its changelog, and
    whether from nothing."""

    executor: str
    offsets: int
    restored: bool


@dataclass(slots=True)
class _Process:
    """What a Python process of an executor keeps from one task to the next."""

    settings: KafkaSettings | None = None
    group_id: str = ""
    tail: ChangelogTail | None = None
    tidied: float = float("-inf")


_process = _Process()


@contextmanager
def planned_reader(tp: TopicPartition, planned: Planned) -> Iterator[tuple[Reader, Brought]]:
    """Bring this executor's store of a shard to where its batch begins, and look at it. Raises `StateStoreError`."""
    base = Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0]) / FOLDER
    folder = base / tp[0] / str(tp[1])
    _tidy(base)
    with _alone(folder, LONGEST_WAIT):
        store = Store(folder, planned.mark.identity, planned.mark.current)
        try:
            brought = _bring(base, store, tp[1], planned)
            reader = store.reader()
        except BaseException as error:
            store.close()
            if isinstance(error, KafkaError | ExecutorSettingsError | StateError):
                raise StateStoreError(
                    f"topic {tp[0]!r}, partition {tp[1]}: the state store in {folder} is not where the batch begins: "
                    f"{error}"
                ) from error
            raise
    try:
        yield reader, brought
    finally:
        reader.close()
        store.close()


def _bring(base: Path, store: Store, partition: int, planned: Planned) -> Brought:
    executor, settings = ask_executor(base)
    where = f"{executor} on {socket.gethostname()}"
    wanted, place, offsets = planned.mark, (planned.changelog, partition), 0
    while (mark := store.mark) != replace(wanted, boot=mark.boot, current=mark.current):
        tail = _tail(settings.at(planned.servers), planned.group_id)
        begin, end = tail.bounds(place)
        if end > wanted.upto:
            raise StateStoreError(
                f"the changelog {place[0]!r}, partition {partition} is at {end}, and the batch begins at "
                f"{wanted.upto}: it was planned before the last commit, so nothing of it counts any more"
            )
        young = 0 <= wanted.current - mark.current <= OLDEST  # else Kafka may have forgotten deletions
        if mark.upto < wanted.upto and (young or not mark.upto):
            after = _read(
                store, mark, place, max(begin, mark.upto), planned, tail, settings.operation_timeout
            )
            offsets += after.upto - mark.upto
            if after.seq == wanted.seq and after.history == wanted.history and after.upto == wanted.upto:
                return Brought(where, offsets, mark.upto == 0)
        if mark.upto == 0:
            raise StateStoreError(
                f"the changelog {place[0]!r}, partition {partition} has no commit {wanted.seq} at {wanted.upto}, "
                "where the batch begins; it is tried again"
            )
        store.clear(wanted.current)  # it is too old, or was filled under another history
    return Brought(where, offsets, False)


def _read(
    store: Store,
    mark: Mark,
    place: TopicPartition,
    begin: int,
    planned: Planned,
    tail: ChangelogTail,
    patience: float,
) -> Mark:
    """Apply what the changelog has from `begin` up to where the batch begins."""
    wanted, fresh, flows = planned.mark, mark.upto == 0, False
    where = f"Kafka at {planned.servers}: changelog {place[0]!r}, partition {place[1]}"
    tail.follow(place, begin)
    try:
        heard = time.monotonic()
        while mark.upto < wanted.upto:
            # librdkafka waits until it has as many as it is asked for.
            reads, failed = tail.read(AT_ONCE, 0.0) if flows else tail.read(1, LISTEN)
            if place in failed:
                raise failed[place]
            read, flows = reads.get(place), place in reads
            if read is None:
                if time.monotonic() - heard > patience:
                    raise StateStoreError(
                        f"{where}: nothing came for {patience:g} s after offset {mark.upto}, and the batch begins at "
                        f"{wanted.upto}; it is tried again"
                    )
                continue
            heard = time.monotonic()
            mark, position = bring_on(
                store, mark, replace(read, upto=max(read.upto, mark.upto)), fresh, mark.current, where
            )
            last = position is not None and position.seq == wanted.seq
            behind = (
                1 if last else 0
            )  # behind the last commit is its transaction's marker, which is no record
            if mark.upto + behind >= wanted.upto:
                end = max(mark.upto, wanted.upto)
                mark, _ = bring_on(store, mark, Read([], end), fresh, wanted.current, where)
    finally:
        tail.drop([place])
    return mark


def _tail(settings: KafkaSettings, group_id: str) -> ChangelogTail:
    """Return this process's client, which is made again for other brokers or settings."""
    if _process.tail is None or (_process.settings, _process.group_id) != (settings, group_id):
        if _process.tail is not None:
            _process.tail.close()
            _process.tail = None
        _process.tail = ChangelogTail(settings, group_id)
        _process.settings, _process.group_id = settings, group_id
    return _process.tail


@contextmanager
def _alone(folder: Path, longest: float) -> Iterator[None]:
    """Keep other processes from a store. Raises `StateStoreError` if one has it for too long."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        held = (folder.parent / f"{folder.name}.lock").open("a")
    except OSError as error:
        raise StateStoreError(f"the state store in {folder} cannot be locked: {error}") from error
    with held:
        until = time.monotonic() + longest
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise StateStoreError(
                        f"another task brings on the state store in {folder}; it is tried again"
                    ) from None
                time.sleep(0.02)
        yield


def _tidy(base: Path) -> None:
    """Remove the stores of shards that other executors have had for so long that they are of no use any more."""
    if time.monotonic() - _process.tidied < TIDY_AFTER:
        return
    _process.tidied = time.monotonic()
    for file in base.glob("*/*/data.mdb"):
        with suppress(OSError, StateStoreError):
            if time.time() - file.stat().st_mtime > OLDEST:
                with _alone(file.parent, 0.0):
                    remove(file.parent)
