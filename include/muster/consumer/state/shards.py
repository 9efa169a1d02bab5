"""The shards that this consumer has: one for each partition of a topic with state by key, or for the partitions with
one number of topics that share it. A shard is known by its partition of the first of these topics.

A shard is taken up once its partitions are claimed: its changelog is read to the end, and what that says is compared
with the group. A batch is computed from the shard's position; what it changes waits until the commit of its end
carries it (`carry`), and reaches the local store when Kafka has acknowledged that (`landed`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from muster.consumer.source.portable import portable
from muster.consumer.state.errors import FailedTimer, StateStoreError
from muster.consumer.state.executor import Brought, Planned
from muster.consumer.state.handle import EXPIRIES, PROCESSING_TIME, TIMERS, first_due
from muster.consumer.state.position import ANYWHERE, FIRST, KEY, Position, TakenUp, moved, take_up
from muster.consumer.state.restores import Restores
from muster.consumer.state.store import Change, Mark, Reader, Store
from muster.consumer.state.stores import Stores, bring_on, follows
from muster.consumer.stateless import Stateless
from muster.core.copies import ShardCopy
from muster.core.model import OffsetRange, ShardState, TopicPartition
from muster.core.ownership import Due, Source, ToRestore
from muster.core.state_topics import NO_STATE, StateTopics
from muster.edges.dead_letters import ToWrite
from muster.edges.state_changelog import (
    Carried,
    ChangelogReader,
    ChangelogTopic,
    Landed,
)
from muster.settings.connections import KafkaSettings

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds until timers that failed are tried again, at first and at most."""
DELETED_AT_ONCE = 10_000
"""Keys from before a rebuild that one commit deletes."""
MOST_CHANGES = 1 << 26
"""Bytes that a batch may change of all its shards, each of which has the same share."""
FILLED = 0.75
"""The part of its share that a batch is planned to fill, as records are not alike."""


@dataclass(frozen=True, slots=True)
class Computed:
    """What a batch made of a shard: its offsets by topic, the position after it but for offsets and `seq`, the
    changes of keys, and the output."""

    ranges: Mapping[str, OffsetRange]
    after: Position
    keys: Sequence[bytes] = ()
    values: Sequence[bytes | None] = ()
    output: Sequence[ToWrite] = ()
    late: int = 0
    """Rows that were dropped because they came too late."""


@dataclass(frozen=True, slots=True)
class View:
    """A shard as its next batch finds it."""

    folder: Path
    identity: str
    """Which store that is."""
    upto: int
    """What its store holds of the changelog."""
    position: Position
    now: int
    """The processing time, in milliseconds since the epoch."""
    partitions: int = 0
    """Those of its topic."""
    dropped: frozenset[tuple[int, str]] = frozenset()
    """The timers that a person dropped, as `ShardTask` has them."""
    planned: Planned | None = None
    """What executors on other hosts bring their stores to."""

    @property
    def fresh(self) -> bool:
        """Whether no batch has been computed of it: it takes the initial state."""
        return not self.position.time_mode


@dataclass(frozen=True, slots=True)
class _OfCommit:
    """What a commit carries: what is due of each partition, the position after it, and what it changes."""

    due: Mapping[TopicPartition, Due]
    position: Position
    computed: Computed | None


@dataclass(eq=False)
class Shard:
    """One shard that runs. `end` is where its changelog ends, `chosen` the seek that has to be its next commit."""

    claim_epoch: int
    changelog: str
    store: Store
    mark: Mark
    position: Position
    partitions: int
    chosen: str = ""
    computed: Computed | None = None
    broker: tuple[int, float] | None = None
    """A broker's time, in milliseconds, and when that was, on the monotonic clock."""
    due: int | None = None
    """When its first timer or expiry is due, in milliseconds; None without one."""
    not_before: float = 0.0
    """Until when, on the monotonic clock, what is due waits because it failed."""
    pause: float = FIRST_PAUSE
    failed: tuple[int, str] | None = None
    """The timer in which the processor raised last, by its moment and the digest of its key."""
    dropped: frozenset[tuple[int, str]] = frozenset()
    """Those that a person dropped, until a batch without them is committed."""
    size: tuple[int, int] = (0, 0)
    """Keys, and bytes on disk."""
    each: float = 0.0
    """Bytes of changes a record, about."""
    late: int = 0
    """Rows that were dropped in its batches since it was taken up."""
    source: Source | None = None
    """Where its changelog is."""
    executor: str = ""
    """The one on another host that computed it last."""

    def planned(self, wall: float) -> Planned | None:
        """Return what executors on other hosts bring their stores to now."""
        if self.source is None:
            return None
        mark = replace(self.mark, boot="", current=wall)
        return Planned(self.source.bootstrap_servers, self.source.group_id, self.changelog, mark)

    def look(self) -> None:
        """See what is due next, and how large the store is."""
        tables = [EXPIRIES, *([TIMERS] if self.position.time_mode == PROCESSING_TIME else [])]
        with closing(self.store.reader()) as reader:
            found = [first_due(reader, self.position.prefix, table) for table in tables]
        self.due = min((at for at in found if at is not None), default=None)
        entries, taken = self.store.count()
        self.size = max(0, entries - 1), taken  # one is the position

    def of_lower_rebuilds(self, position: Position) -> list[bytes]:
        """Return keys of lower rebuilds than that of `position`, as many as are deleted at once."""
        if not position.rebuild:
            return []
        try:
            with closing(self.store.reader()) as reader:
                return reader.below(position.prefix, DELETED_AT_ONCE)
        except StateStoreError:
            return []  # the next batch, or the write after this commit, fails with it

    def now(self, clock: Callable[[], float], wall: Callable[[], float]) -> int:
        """Return the processing time of a batch that begins now: by the brokers' clock, and never before an earlier
        batch."""
        if self.broker is None:
            return max(self.position.time, round(1000 * wall()))
        at, since = self.broker
        return max(self.position.time, at + round(1000 * (clock() - since)))


@dataclass
class States(Stateless):
    """The state of `topics`, of `cluster`'s consumer `consumer`.

    Local stores are below `folder`. Thread-safe; `clock` is monotonic, `wall` in seconds since the epoch.
    """

    cluster: str
    consumer: str
    kafka: KafkaSettings
    topics: StateTopics = NO_STATE
    folder: Path | None = None
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    most_changes: int = MOST_CHANGES
    restores: Restores = field(init=False)
    stores: Stores = field(init=False)
    _shards: dict[TopicPartition, Shard] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        def clock() -> float:  # tests set the clocks later
            return self.clock()

        self.restores = Restores(clock)
        self.stores = Stores(self.cluster, self.consumer, self.folder, clock, lambda: self.wall())  # noqa: PLW0108

    def changelog(self, topic: str, source: Source) -> ChangelogTopic:
        """Return the changelog of a topic whose records are at `source`."""
        settings = self.kafka.at(source.bootstrap_servers)
        return ChangelogTopic(settings, self.cluster, self.topics.together(topic))

    # -- taking up ----------------------------------------------------------------------------------------

    def take_up(self, tp: TopicPartition, asked: ToRestore, wanted: Callable[[], bool]) -> TakenUp | None:
        """Bring a shard's store to the end of its changelog and compare that with the group; None if it is not
        `wanted` any more. Raises `KafkaError` and `StateStoreError`."""
        with self.stores.opening(tp):
            self._close(tp)
            self.stores.stand_down(tp)
            changelog = self.changelog(tp[0], asked.source)
            ids = changelog.ensure(), *asked.topic_ids.values()
            settings = self.kafka.at(asked.source.bootstrap_servers)
            reader = ChangelogReader(settings, asked.source.group_id, changelog.name, tp[1])
            try:
                found = self._restore(tp, asked, reader, ids, changelog.partitions, wanted)
            finally:
                reader.close()
            self.restores.ended(tp, asked.claim_epoch, found.differs if found is not None else "")
            return found

    def _restore(
        self,
        tp: TopicPartition,
        asked: ToRestore,
        reader: ChangelogReader,
        ids: Iterable[str],
        partitions: int,
        wanted: Callable[[], bool],
    ) -> TakenUp | None:
        store, position = self.stores.open(tp, ids, reader.end)
        running = False
        try:
            before = store.mark
            first = before.upto
            mark, read = self._read(tp, asked, store, before, reader, wanted)
            position = read or position
            found = _compared(store, position, asked, reader.end)
            if mark.upto >= reader.end and _is_outdated(found, read, before):
                store.clear(self.wall())
                first = 0
                mark, position = self._read(tp, asked, store, store.mark, reader, wanted)
                found = _compared(store, position, asked, reader.end)
            if mark.upto < reader.end:
                return None
            if found.position is None:
                return found
            place = asked.claim_epoch, reader.topic, store, mark
            shard = Shard(*place, found.position, partitions, found.chosen, source=asked.source)
            shard.look()
            self.stores.copies.came(tp, mark.upto, mark.upto, shard.size[1])
            with self._lock:
                self._shards[tp] = shard
            running = True
            log.info(
                "topic %r, partition %d: its state is taken up after %d of %d offsets of its changelog",
                *(*tp, mark.upto - first, mark.upto),
            )
            return found
        finally:
            if not running:
                self.stores.close(tp, store)

    def _read(
        self,
        tp: TopicPartition,
        asked: ToRestore,
        store: Store,
        mark: Mark,
        reader: ChangelogReader,
        wanted: Callable[[], bool],
    ) -> tuple[Mark, Position | None]:
        """Bring a store from `mark` to the end of its changelog, or as far as that is `wanted`; return where it is
        then, and the last position that was read. The last record that the store has is read again."""
        first, fresh, position = mark.upto, mark.upto == 0, None
        self.restores.came(tp, asked.claim_epoch, 0, reader.end - first)
        for read in reader.read(max(0, mark.last), wanted):
            read = replace(read, upto=max(read.upto, mark.upto))  # noqa: PLW2901  what is read again is known
            current = self.wall() if read.upto >= reader.end else mark.current
            mark, found = bring_on(store, mark, read, fresh, current, reader.where)
            position = found or position
            if mark.upto > first:
                self.restores.came(tp, asked.claim_epoch, mark.upto - first, reader.end - first)
            self.stores.copies.came(tp, mark.upto, reader.end)
        return mark, position

    # -- batches ------------------------------------------------------------------------------------------

    def view(self, tp: TopicPartition, begins: Mapping[str, int]) -> View:
        """Return a shard as a batch finds it that begins at these offsets, by topic. Raises `StateStoreError`."""
        with self._lock:
            shard = self._running(tp)
            if any(shard.position.places[topic].offset not in {ANYWHERE, at} for topic, at in begins.items()):
                raise _elsewhere(tp)
            now = shard.now(self.clock, self.wall)
            mark = shard.mark
            return View(
                shard.store.folder,
                mark.identity,
                mark.upto,
                shard.position,
                now,
                shard.partitions,
                shard.dropped,
                shard.planned(self.wall()),
            )

    def brought(self, tp: TopicPartition, found: Brought) -> None:
        """Take note of the executor on another host that has computed a shard, and of what that has cost."""
        with self._lock:
            shard = self._shards.get(tp)
            moved_to = shard is not None and shard.executor != found.executor
            if shard is not None:
                shard.executor = found.executor
        if moved_to or found.restored:
            log.info(
                "topic %r, partition %d: executor %s computes its state, after %d offsets of its changelog",
                *(*tp, found.executor, found.offsets),
            )

    def for_tasks(self) -> str:
        """Return what tasks on other hosts read changelogs with, as JSON that holds secrets."""
        return portable(self.kafka).model_dump_json()

    def changed(self, tp: TopicPartition, records: int, size: int) -> None:
        """Take note of how many bytes a batch with so many records of a shard has changed, or more than it may."""
        with self._lock:
            if (shard := self._shards.get(tp)) is not None:
                each = size / records
                shard.each = max(each, (shard.each + each) / 2)

    def most(self, tp: TopicPartition) -> int | None:
        """Return the most records of a partition in the next batch of its shard, so that the changes of that are
        within its share; None for any number."""
        with self._lock:
            shard = self._shards.get(self.topics.lead(tp))
            if shard is None or not shard.each:
                return None
            share = FILLED * self.most_changes / len(self._shards) / len(shard.position.places)
            return max(1, int(share / shard.each))

    def reader(self, tp: TopicPartition) -> Reader:
        """Return what reads a shard's store in this process. Raises `StateStoreError`."""
        with self._lock:
            return self._running(tp).store.reader()

    def _running(self, tp: TopicPartition) -> Shard:
        shard = self._shards.get(tp)
        if shard is None or shard.chosen or shard.computed is not None:
            raise _elsewhere(tp)
        return shard

    def computed(self, batches: Mapping[TopicPartition, Computed]) -> None:
        """Take what a batch has made of shards, whose handler has returned: the commit of its end carries it."""
        with self._lock:
            for tp, one in batches.items():
                if (shard := self._shards.get(tp)) is not None:
                    shard.computed = one

    def due(self) -> frozenset[TopicPartition]:
        """Return the shards of which a timer or an expiry is due."""
        with self._lock:
            now = self.clock()
            return frozenset(
                tp
                for tp, shard in self._shards.items()
                if shard.due is not None
                and not (shard.chosen or shard.computed)
                and shard.not_before <= now
                and shard.due <= shard.now(self.clock, self.wall)
            )

    def due_done(self, partitions: Collection[TopicPartition], failed: bool) -> None:
        """Take note whether what was due of shards was computed; what failed is tried again after a pause."""
        with self._lock:
            for tp in self._shards.keys() & set(partitions):
                shard = self._shards[tp]
                shard.not_before = self.clock() + shard.pause if failed else 0.0
                shard.pause = min(LONGEST_PAUSE, 2 * shard.pause) if failed else FIRST_PAUSE

    def timer_failed(self, failed: FailedTimer) -> None:
        """Take note of the timer in which the processor raised."""
        with self._lock:
            if (shard := self._shards.get(failed.tp)) is not None:
                shard.failed = failed.moment, failed.digest

    def drop_timer(self, tp: TopicPartition) -> None:
        """Leave out the timer in which the processor raised last, as a person has decided: it goes with the next
        batch, and the processor is not called for it."""
        with self._lock:
            if (shard := self._shards.get(tp)) is not None and shard.failed is not None:
                shard.dropped |= {shard.failed}
                shard.failed = None

    # -- commits ------------------------------------------------------------------------------------------

    def carry_all(self, due: Mapping[TopicPartition, Due]) -> dict[TopicPartition, Carried]:
        """Return what the commits of shards carry that may be made now: those of all their partitions are due."""
        of_shards: dict[TopicPartition, dict[TopicPartition, Due]] = {}
        for tp, one in due.items():
            if self.topics.has(tp[0]):
                of_shards.setdefault(self.topics.lead(tp), {})[tp] = one
        carried = {tp: self.carry(tp, of_shard) for tp, of_shard in of_shards.items()}
        return {tp: one for tp, one in carried.items() if one is not None}

    def carry(self, tp: TopicPartition, due: Mapping[TopicPartition, Due]) -> Carried | None:
        """Return what the commit of `due`, of a shard's partitions, carries; None if the shard is not to be committed
        now."""
        with self._lock:
            shard, known_by = self._shards.get(tp), due.get(tp)
            if shard is None or known_by is None or shard.claim_epoch != known_by.claim_epoch:
                return None
            of = {topic: one for (topic, _), one in due.items()}
            places = shard.position.places
            if any(of.get(topic) is None and place.offset != ANYWHERE for topic, place in places.items()):
                return None
            sought = {t: one.note.sought for t, one in of.items() if one.note.sought != places[t].move}
            if sought and not _of_all(sought, shard.position):
                return None
            if shard.chosen and known_by.note.sought != shard.chosen:
                return None
            computed = shard.computed if not sought else None  # a seek has come before it
            if computed is not None and not _fits(computed, shard.position, of):
                return None
            after = shard.position if computed is None else replace(computed.after, seq=shard.position.seq)
            position = moved(
                after,
                {topic: one.offset for topic, one in of.items()},
                {topic: one.note for topic, one in of.items()},
                known_by.seek,
            )
            keys: Sequence[bytes] = () if computed is None else computed.keys
            values: Sequence[bytes | None] = () if computed is None else computed.values
            if old := shard.of_lower_rebuilds(position):
                keys, values = [*old, *keys], [*([None] * len(old)), *values]
            return Carried(
                shard.changelog,
                tp[1],
                shard.mark.upto,
                position.seq,
                position.rebuild,
                (KEY, position.text()),
                keys,
                values,
                computed.output if computed is not None else (),
                _OfCommit(due, position, computed),
            )

    @staticmethod
    def due_of(landed: Landed) -> dict[TopicPartition, Due]:
        """Return what was due of a commit that landed, with the number of the rebuild that was written."""
        of: _OfCommit = landed.carried.of
        rebuild = landed.carried.rebuild
        return {tp: replace(one, note=replace(one.note, rebuild=rebuild)) for tp, one in of.due.items()}

    def landed(self, tp: TopicPartition, landed: Landed) -> None:
        """Bring a shard's store to where Kafka has acknowledged it. Raises `StateStoreError`."""
        of: _OfCommit = landed.carried.of
        with self._lock:
            shard = self._shards.get(tp)
            if shard is None or shard.position.seq >= of.position.seq:
                return
        changes: list[Change] = list(zip(landed.carried.keys, landed.carried.values, strict=True))
        after = replace(
            shard.mark,
            upto=landed.end,
            last=landed.end - 2,  # the position, before the transaction's marker
            seq=of.position.seq,
            history=of.position.history,
            current=self.wall(),
        )
        done = shard.store.apply([*changes, landed.carried.position], shard.mark, after)
        with self._lock:
            shard.mark, shard.position, shard.computed, shard.chosen = after, of.position, None, ""
            if of.computed is not None:
                shard.dropped = frozenset()
                shard.late += of.computed.late
            shard.broker = landed.at, self.clock()
            shard.look()
        self.stores.copies.came(tp, after.upto, after.upto, shard.size[1])
        if not done:
            raise StateStoreError(f"the state store in {shard.store.folder} was changed by another process")

    # -- the end ------------------------------------------------------------------------------------------

    def keep(self, claim_epochs: Mapping[TopicPartition, int]) -> None:
        """Let go of shards that are not held under these claim epochs any more; their stores stay, for a while."""
        with self._lock:
            gone = {tp: one for tp, one in self._shards.items() if claim_epochs.get(tp) != one.claim_epoch}
        self.restores.keep(claim_epochs)
        for tp, shard in gone.items():
            if not (lock := self.stores.opening(tp)).acquire(blocking=False):
                continue  # who takes it up closes it, else the next call does
            try:
                self._close(tp, shard)
            finally:
                lock.release()

    def _close(self, tp: TopicPartition, only: Shard | None = None) -> None:
        """Let go of a shard, if it is that one, and close its store. The caller holds the shard's lock."""
        with self._lock:
            if only is not None and self._shards.get(tp) is not only:
                return
            shard = self._shards.pop(tp, None)
        if shard is not None:
            self.stores.close(tp, shard.store)

    def status(self) -> dict[TopicPartition, ShardState]:
        """Return how each shard stands that runs, is restored or waits for a person, by its partitions. The keys of a
        shard of several are counted for the first."""
        found = {
            each: state for tp, state in self.restores.status().items() for each in self.topics.shard(tp)
        }
        with self._lock:
            for tp, one in self._shards.items():
                for topic, place in one.position.places.items():
                    offset = None if place.offset == ANYWHERE else place.offset
                    first = topic == tp[0]
                    found[topic, tp[1]] = ShardState(
                        *(one.size if first else (0, 0)),
                        offset,
                        one.position.seq,
                        late=one.late if first else 0,
                        executor=one.executor,
                    )
        return found

    def copies(self) -> dict[TopicPartition, ShardCopy]:
        """Return the local stores that are on the disk, by the partitions of their shards."""
        found = self.stores.copies.view().items()
        return {each: copy for tp, copy in found for each in self.topics.shard(tp)}


def _elsewhere(tp: TopicPartition) -> StateStoreError:
    return StateStoreError(
        f"the state of topic {tp[0]!r}, partition {tp[1]} is not where the batch begins; it is tried again"
    )


def _fits(computed: Computed, position: Position, due: Mapping[str, Due]) -> bool:
    """Tell whether a commit may carry what was computed; it may go on behind records that were lost after that."""
    return all(
        position.places[topic].offset in {ANYWHERE, begin} and topic in due and end <= due[topic].offset
        for topic, (begin, end) in computed.ranges.items()
    )


def _of_all(sought: Mapping[str, str], position: Position) -> bool:
    """Tell whether seeks, by topic, are one of all partitions of the shard, as a seek has to be."""
    return sought.keys() == position.places.keys() and len({*sought.values()}) == 1


def _compared(store: Store, position: Position | None, asked: ToRestore, end: int) -> TakenUp:
    highest, reader = b"", store.reader()
    try:
        highest = reader.highest()
    finally:
        reader.close()
    rebuild = int.from_bytes(highest, "big") - FIRST if highest else -1
    return take_up(position, asked.committed, asked.topic_ids, asked.seek, end, rebuild)


def _is_outdated(found: TakenUp, read: Position | None, before: Mark) -> bool:
    """Tell whether a store that had `before` is to be restored from the beginning: it was filled under another
    history, or has a commit that the changelog has lost; or a person has chosen, who gets what the changelog has, on
    whichever host. `read` is the last position that the changelog has from the store's last record on.

    Each transaction ends with a position. So one is there, unless the end with that record is gone; transactions that
    were aborted since may have filled its offsets.
    """
    if not before.upto:
        return False
    return bool(found.chosen) or read is None or not follows(read, before)
