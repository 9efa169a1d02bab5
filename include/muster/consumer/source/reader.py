"""The executor's side of the source: records of planned ranges as Arrow record batches.

Fetchers are kept in the Python worker between batches, one a Kafka cluster, so a batch begins with records that
are already there. A fetcher that no batch has asked for a while stops fetching, and later leaves Kafka: its
partitions may be another consumer's by then, or another worker's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from muster.consumer.source import offsets
from muster.consumer.source.cycle_search import CycleSearch
from muster.consumer.source.fetcher import RangeFetcher
from muster.consumer.source.offsets import Range, TopicPartition
from muster.consumer.source.records import ARROW_SCHEMA, Segment, to_record_batch
from muster.consumer.source.shares import Choice

LOG = logging.getLogger(__name__)

_BATCH_ROWS = 2_000
_NOTHING = pa.RecordBatch.from_pylist([], ARROW_SCHEMA)
"""What a task yields that reads nothing, so that Spark goes through all that it does with records."""


@dataclass(frozen=True)
class ClusterRanges:
    """Ranges of one Kafka cluster. `config` (librdkafka properties) holds secrets and is never shown."""

    servers: str
    config: Mapping[str, str] = field(repr=False)
    ranges: Mapping[TopicPartition, Range]


Share = tuple[ClusterRanges, ...]
"""A part of a batch: any number of ranges, of any number of Kafka clusters."""


@dataclass(frozen=True)
class Task(InputPartition):
    """What one Spark task reads: `shares[number]`, or with a `choice` the share that it chooses, for good.

    `read_timeout` (seconds) is how long a partition may give nothing before the task fails.
    """

    shares: tuple[Share, ...]
    read_timeout: float = 120.0
    choice: Choice | None = None

    @property
    def number(self) -> int:
        """Which of the shares is the task's own, if it has no other."""
        return 0 if self.choice is None else self.choice.number

    @property
    def records(self) -> int:
        """How many offsets that share spans."""
        return sum(offsets.count(cluster.ranges.values()) for cluster in self.shares[self.number])

    def share(self, ahead: Callable[[Share], int]) -> Share:
        """What to read, where `ahead` says how much of a share is fetched already. Raises `ShareError`."""
        if self.choice is None:
            return self.shares[self.number]
        known = [ahead(share) for share in self.shares]
        wishes = sorted(range(len(known)), key=lambda n: (-known[n], n != self.number, n))
        return self.shares[self.choice.make(wishes)]


def read(task: Task) -> Iterator[pa.RecordBatch]:
    """Every record of `task`'s share, each partition's in order. Raises `KafkaReadError` and `ShareError`."""
    share = task.share(FETCHERS.ahead)
    if not share:
        yield _NOTHING
    try:
        yield from _read(share, task.read_timeout)
    finally:
        CYCLES.task_ended()


def _read(share: Share, read_timeout: float) -> Iterator[pa.RecordBatch]:
    for cluster in share:
        fetcher = FETCHERS.take(cluster.config, read_timeout)
        try:
            chunks = _by_rows(fetcher.fetch(cluster.ranges))
            while (batch := _next_batch(chunks, fetcher)) is not None:
                yield batch
        except GeneratorExit:
            # Spark had enough (a LIMIT): the fetcher knows where it stopped, the next range tells where to go on.
            FETCHERS.put_back(cluster.config, fetcher)
            raise
        except BaseException:
            fetcher.close()
            raise
        FETCHERS.put_back(cluster.config, fetcher)


def _next_batch(chunks: Iterator[Sequence[Segment]], fetcher: RangeFetcher) -> pa.RecordBatch | None:
    with CYCLES.paused():
        segments = next(chunks, None)
        if segments is None:
            return None
        batch = to_record_batch(segments)
        fetcher.tune(batch.num_rows, batch.nbytes)
        return batch


def _by_rows(chunks: Iterator[list[Segment]]) -> Iterator[Sequence[Segment]]:
    """Join small chunks: with many partitions of a few records each, single ones would cost more than they carry."""
    joined: list[Segment] = []
    rows = 0
    for chunk in chunks:
        joined += chunk
        rows += sum(len(messages) for _, messages in chunk)
        if rows >= _BATCH_ROWS:
            yield joined
            joined, rows = [], 0
    if joined:
        yield joined


@dataclass
class _Idle:
    fetcher: RangeFetcher
    since: float
    parked: bool = False


class FetcherCache:
    """Fetchers between two uses. Each is in one pair of hands at a time, so a worker that reads two ranges in
    turns (a join of a batch with itself) gets two.

    After `park_after` seconds without use a fetcher stops fetching, after `close_after` it is closed. A thread
    sees to that; it lives only while there is an idle fetcher.
    """

    def __init__(self, park_after: float = 10.0, close_after: float = 60.0) -> None:
        self._park_after = park_after
        self._close_after = close_after
        self._idle: dict[tuple[tuple[str, str], ...], list[_Idle]] = {}
        self._lock = threading.Lock()
        self._watcher: threading.Thread | None = None

    def take(self, config: Mapping[str, str], read_timeout: float) -> RangeFetcher:
        """A fetcher for this configuration: the one used last, or a new one."""
        with self._lock:
            if idle := self._idle.get(_key(config)):
                fetcher = idle.pop().fetcher
                fetcher.read_timeout = read_timeout
                return fetcher
        return RangeFetcher(config, read_timeout)

    def put_back(self, config: Mapping[str, str], fetcher: RangeFetcher) -> None:
        """Keep `fetcher` for the next batch."""
        with self._lock:
            self._idle.setdefault(_key(config), []).append(_Idle(fetcher, time.monotonic()))
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="muster-fetchers", daemon=True)
                self._watcher.start()

    def ahead(self, share: Share) -> int:
        """Of how many of the share's partitions the fetchers that would be taken can go on where they stand."""
        with self._lock:
            return sum(
                idle[-1].fetcher.continues(cluster.ranges)
                for cluster in share
                if (idle := self._idle.get(_key(cluster.config)))
            )

    @property
    def idle(self) -> int:
        """How many fetchers wait for their next use."""
        with self._lock:
            return sum(len(entries) for entries in self._idle.values())

    def _watch(self) -> None:
        while True:
            time.sleep(min(1.0, self._park_after))
            with self._lock:
                closing = self._tidy(time.monotonic())
                done = not self._idle
                if done:
                    self._watcher = None
            for fetcher in closing:
                fetcher.close()
            if done:
                return

    def _tidy(self, now: float) -> list[RangeFetcher]:
        """Park what is idle; take out and return what is to be closed. Called with the lock held."""
        closing = []
        for key, entries in list(self._idle.items()):
            for entry in list(entries):
                if now - entry.since > self._close_after:
                    entries.remove(entry)
                    closing.append(entry.fetcher)
                elif now - entry.since > self._park_after and not entry.parked:
                    entry.fetcher.park()
                    entry.parked = True
            if not entries:
                del self._idle[key]
        return closing


def _key(config: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(config.items()))


FETCHERS = FetcherCache()
"""The worker's own: module-level, because Spark keeps the worker, not the reader, between batches."""
CYCLES = CycleSearch()
"""The worker's own, too."""
