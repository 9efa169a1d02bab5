"""Parquet files in which every record stands once, however often its batch is delivered."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from muster.core.model import OffsetRange, TopicPartition
from muster.sinks.batch import Batch
from muster.sinks.partition_folder import (
    PartitionFolder,
    incoming_file,
    partition_folder,
    sync,
    topic_folder,
)
from muster.sinks.pending_files import Due, PendingFolder, Piece, pending_place
from muster.sinks.publisher import AT_ONCE, Publisher
from muster.sinks.rows import Pieces, by_partition, check, log_left_out, within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

SUFFIX = ".parquet"
GROUP_ROWS = 64_000
"""Rows after which a file's next row group begins."""
_WRITTEN = "topic string, partition long, begin long, end long, file string"

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(kB|MB|GB)")
_BYTES = {"kB": 1e3, "MB": 1e6, "GB": 1e9}

Written = dict[tuple[TopicPartition, OffsetRange], list[Path]]
Folder = PartitionFolder | PendingFolder


class ParquetSink:
    """Writes each batch below `path`, `topic=[TOPIC]/partition=[N]/[FIRST]-[LAST].parquet`; offsets are inclusive.

    As a handler it writes every batch as it is. Within a handler it takes what was made of the batch, as long as
    `topic`, `partition` and `offset` are still there; a record may have become no row, or several.

    A batch that comes again is left out as far as it stands there, by its offsets, from any writer and wherever
    that batch began and ended. For what that takes of the file system see `muster.sinks.partition_folder`. A topic
    that is deleted and created again begins with offset 0 once more; where Kafka tells the ids of topics its files
    are kept apart, in `topic=[TOPIC]/partition=[N]/id-[ID]/`, else it needs another `path`.

    Each batch makes a file for each partition, which is visible when the batch is done. With `file_size` ("128MB", or
    bytes) it is pending at first, where readers do not look, and the pending files of a partition are published as
    one when they have that size or the first of them is `max_delay` old ("10m", or seconds):
    see `muster.sinks.publisher.Publisher` for this bound, and `muster.sinks.pending_files` for what keeps each record
    once. `close` publishes what is pending.

    `${VAR}` in `path` is taken from the environment of the driver. Raises ValueError for options of no use.
    """

    def __init__(
        self,
        path: str,
        compression: str = "snappy",
        file_size: str | int | None = None,
        max_delay: str | float = "10m",
    ) -> None:
        self.path = _local_folder(path)
        self.compression = compression
        self._folders: dict[tuple[TopicPartition, str], Folder] = {}
        self._join = partial(join, compression=compression)
        self._publisher: Publisher | None = None
        if file_size is not None:
            # Executors import this module, and do without the settings.
            from muster.settings.cluster_settings import parse_duration  # noqa: PLC0415

            size, delay = parse_size(file_size), parse_duration(max_delay)
            if delay == 0:
                raise ValueError(
                    "'max_delay' is longer than 0; leave 'file_size' out to publish each batch at once"
                )
            self._publisher = Publisher(self.path, SUFFIX, self._join, size, delay)

    def __call__(self, frame: DataFrame, batch: Batch) -> None:
        """Write `frame`, which is `batch`, or was made of it.

        Raises `SinkError` if it cannot be written, and what Spark raises if `frame` cannot be computed.
        """
        pieces: dict[TopicPartition, list[OffsetRange]] = {}
        ranges = dict(batch.ranges)
        folders = {tp: self._folder(tp, batch.topic_ids.get(tp[0], "")) for tp in ranges}
        for tp, held in ranges.items():
            missing = folders[tp].missing(held)
            log_left_out(tp, held, missing)
            if missing:
                pieces[tp] = missing
        if not pieces:
            return
        task = partial(
            _write_task,
            folders={tp: str(folders[tp].path) for tp in pieces},
            ranges=ranges,
            pieces=pieces,
            compression=self.compression,
        )
        written: Written = {}
        for row in frame.mapInArrow(task, _WRITTEN).collect():
            tp, piece = (row.topic, row.partition), (row.begin, row.end)
            written.setdefault((tp, piece), []).append(Path(row.file))
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="muster-sink") as pool:
            # The partitions at the same time, the pieces of each one after the other.
            of_partition = {
                tp: [(piece, written.get((tp, piece), [])) for piece in planned]
                for tp, planned in pieces.items()
            }
            list(pool.map(lambda item: self._take(folders[item[0]], item[1]), of_partition.items()))

    def close(self) -> None:
        """Publish what is pending. Raises what kept it from that; another consumer with this sink then does it."""
        if self._publisher is not None:
            self._publisher.close()

    def _folder(self, tp: TopicPartition, topic_id: str) -> Folder:
        if (tp, topic_id) not in self._folders:
            path = topic_folder(partition_folder(self.path, *tp), topic_id)
            self._folders[tp, topic_id] = self._open(path)
        return self._folders[tp, topic_id]

    def _open(self, path: Path) -> Folder:
        if self._publisher is not None:
            return self._publisher.folder(path)
        if (place := pending_place(self.path, path)).exists():  # the option was taken away
            PendingFolder(place, path, SUFFIX, self._join).publish(Due(math.inf, math.inf, of_all=True))
        return PartitionFolder(path, SUFFIX)

    def _take(self, folder: Folder, pieces: list[tuple[OffsetRange, list[Path]]]) -> None:
        """Store the files of each piece as one; a piece may have none."""
        for piece, files in pieces:
            file = self._rewrite(files, piece, folder) if len(files) > 1 else next(iter(files), None)
            if isinstance(folder, PendingFolder):
                folder.store(piece, file)
            elif file is not None:
                self._place(folder, piece, file)
        if self._publisher is not None:
            self._publisher.publish_due(folder.path)

    def _place(self, folder: PartitionFolder, piece: OffsetRange, file: Path) -> None:
        """Give a file its place; if others were quicker, give what is missing of it a file of its own."""
        while not folder.publish(piece, file):
            missing = folder.missing(piece)
            if missing == [piece]:
                continue
            log.warning(
                "%s: others have written there; of offsets %d to %d, %s are", folder.path, *piece, missing
            )
            for rest in missing:
                self._place(folder, rest, self._rewrite([file], rest, folder))
            file.unlink(missing_ok=True)
            return

    def _rewrite(self, files: list[Path], piece: OffsetRange, folder: Folder) -> Path:
        """Write one file of the rows that have offsets of `piece`, in order."""
        table = pa.concat_tables([pq.read_table(file, partitioning=None) for file in files])
        offsets = table.column("offset").to_numpy()
        table = table.filter(pa.array((offsets >= piece[0]) & (offsets < piece[1]))).sort_by("offset")
        target = incoming_file(folder.path)
        pq.write_table(table, target, compression=self.compression)
        sync(target)
        if len(files) > 1:
            for file in files:
                file.unlink(missing_ok=True)
        return target


def join(pieces: Sequence[Piece], target: Path, compression: str) -> int:
    """Write the rows of `pieces`, in their order, to the new file `target`, a row group at a time.

    Returns how many pieces that are: it stops before the first one with other columns. Raises FileNotFoundError if
    the file of a piece is gone, and pyarrow's errors.
    """
    schema: pa.Schema | None = None
    writer = _Writer(target, compression)
    joined = 0
    for piece in pieces:
        with pq.ParquetFile(piece.file.path) as source:
            if schema is None:
                schema = source.schema_arrow
                writer.add(pa.RecordBatch.from_pylist([], schema))  # a piece may have no rows
            elif not schema.equals(source.schema_arrow):
                break
            for rows in source.iter_batches(GROUP_ROWS):
                if held := within(rows, piece.held):
                    writer.add(held)
        joined += 1
    writer.close()
    return joined


def expand(text: str, option: str = "path") -> str:
    """Fill in each `${VAR}` of an option from the environment. Raises ValueError for a variable that is not set."""

    def value(match: re.Match[str]) -> str:
        if found := os.environ.get(match[1]):
            return found
        raise ValueError(f"{option!r} needs the environment variable {match[1]}, which is not set")

    return re.sub(r"\$\{(\w+)\}", value, text)


def parse_size(value: str | int) -> int:
    """Return `value` in bytes. Raises ValueError for anything that is not a size above 0."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, str) and (found := _SIZE.fullmatch(value.strip())):
        size = int(float(found[1]) * _BYTES[found[2]])
        if size > 0:
            return size
    raise ValueError(
        f"'file_size' {value!r} is not a number of bytes above 0, or text such as '500kB', '128MB', '1GB'"
    )


def _local_folder(path: str) -> Path:
    """Return the absolute path that `path`, with or without `file://`, names. Raises ValueError for other schemes."""
    expanded = expand(path).removeprefix("file://")
    if "://" in expanded:
        raise ValueError(
            f"'path' {path!r} is not on a file system that is mounted here; use a mounted one, or a table format "
            "with commits of its own"
        )
    return Path(expanded).absolute()


def _write_task(
    batches: Iterable[pa.RecordBatch],
    folders: Mapping[TopicPartition, str],
    ranges: Mapping[TopicPartition, OffsetRange],
    pieces: Pieces,
    compression: str,
) -> Iterator[pa.RecordBatch]:
    """Write the rows of one Spark task, a file for each piece of a partition that has some; tells which."""
    writers: dict[tuple[TopicPartition, OffsetRange], _Writer] = {}
    try:
        for batch in batches:
            for tp, rows in by_partition(batch):
                check(tp, rows, ranges)
                for piece in pieces.get(tp, []):
                    if held := within(rows, piece):
                        if (tp, piece) not in writers:
                            writers[tp, piece] = _Writer(incoming_file(Path(folders[tp])), compression)
                        writers[tp, piece].add(held)
        for writer in writers.values():
            writer.close()
    except BaseException:
        for writer in writers.values():
            writer.drop()
        raise
    for ((topic, partition), (begin, end)), writer in writers.items():
        row = {"topic": topic, "partition": partition, "begin": begin, "end": end, "file": str(writer.path)}
        yield pa.RecordBatch.from_pylist([row])


class _Writer:
    """One file that is being written; rows are kept until they make a row group."""

    def __init__(self, path: Path, compression: str) -> None:
        self.path = path
        self._compression = compression
        self._writer: pq.ParquetWriter | None = None
        self._kept: list[pa.RecordBatch] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Take more rows."""
        self._kept.append(rows)
        if sum(kept.num_rows for kept in self._kept) >= GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        """Write all that is left, and have it on the disk."""
        self._flush()
        if self._writer is not None:
            self._writer.close()
        sync(self.path)

    def drop(self) -> None:
        """Leave nothing behind."""
        self.path.unlink(missing_ok=True)

    def _flush(self) -> None:
        if not self._kept:
            return
        table = pa.Table.from_batches(self._kept)
        self._kept = []
        if self._writer is None:
            self._writer = pq.ParquetWriter(self.path, table.schema, compression=self._compression)
        self._writer.write_table(table)
