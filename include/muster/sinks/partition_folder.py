"""One partition's folder in a file sink: files that each hold a range of offsets, no two of which overlap.

    topic=flights/partition=3/00000000000000000100-00000000000000000199.parquet    offsets 100 to 199
    topic=flights/partition=3/_incoming/                                           being written
    topic=flights/partition=3/_claims/00000000000000000017                         the 18th file is that one
    topic=flights/partition=3/_topic_id                                            of which topic these files are
    topic=flights/partition=3/id-qpJaokkrTr2QutpwMVdOOw/                           files of another topic of that name

Offsets say nothing without the topic that they are of: one that is deleted and created again begins with offset 0
once more. The folder belongs to the first topic whose id is known when it is written to (`_topic_id`, made once),
with the files that were there before; each later topic of that name has a folder of its own in it. Readers find all
of them.

Several processes may write to it at once, and each may die or be frozen at any moment: a consumer that was
replaced does not know it yet. A file gets its place in three steps:

1. It is written completely under `_incoming`, where no reader looks, and synced.
2. It is claimed: a claim, numbered one higher than the last, says which file holds which offsets. It is made with
   a hard link, which fails if that number is there. A late writer finds it taken, looks at what has been claimed
   meanwhile, leaves out of his file what stands there now, and tries the next number.
3. The file is renamed to its place. If its writer dies before that, the next writer does it.

So claims are made one after the other, each by a writer that knows all earlier ones, and its range is none of
theirs: that is checked again for each claim, because what a caller planned may be older than what was found since. No
file is ever replaced or deleted, which is why nothing that comes late can do harm. The last claim is always kept, and
`KEPT` before it; a claim below one that is there counts for nothing, so a number that was free only because its claim
had been removed does not count either.

This needs hard links that fail if the name is there, renames, and directories that show at once what was made in
them: local disks, and file systems that are the same for all who mount them (CephFS, Lustre, GPFS). Object
stores have none of it.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from muster.core.model import OffsetRange

INCOMING, CLAIMS, TOPIC_ID = "_incoming", "_claims", "_topic_id"
KEPT = 100
"""Claims that are kept before the last one."""
ABANDONED_AFTER = 24 * 3600.0
"""Seconds after which what was never claimed is removed from `_incoming`."""

_NAME = re.compile(r"(\d{20})-(\d{20})\.\w+")


class SinkError(RuntimeError):
    """The sink cannot be written to; the message names the file and the next step."""


def partition_folder(root: Path, topic: str, partition: int) -> Path:
    """Return where a partition's files are below `root`."""
    return root / f"topic={topic}" / f"partition={partition}"


def topic_folder(folder: Path, topic_id: str) -> Path:
    """Return where the files of the topic with this id are that belong into the partition's `folder`. Raises OSError.

    '' is a topic whose id is not known: it is taken for the one that the folder belongs to.
    """
    if not topic_id:
        return folder
    marker = folder / TOPIC_ID
    if not marker.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if _make_once(marker, topic_id):  # else another consumer was there first, and what it wrote counts
            sync(folder)
    return folder if marker.read_text() == topic_id else folder / f"id-{topic_id}"


def _make_once(path: Path, text: str) -> bool:
    """Make a file that holds `text`, on the disk, as one step; False if its name is taken. Raises OSError."""
    draft = path.with_name(f".{uuid.uuid4().hex}")
    draft.write_text(text)
    sync(draft)
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def incoming_file(folder: Path) -> Path:
    """Return a name to write a file under, new for each call. Makes the folder."""
    place = folder / INCOMING
    place.mkdir(parents=True, exist_ok=True)
    return place / uuid.uuid4().hex


def sync(path: Path) -> None:
    """Have a file's content, or a folder's list of names, on the disk. Raises OSError."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


class PartitionFolder:
    """The folder at `path` as one process sees it; not thread-safe. Files get the ending `suffix`.

    Raises `SinkError`, or OSError with the file's name.
    """

    def __init__(self, path: Path, suffix: str) -> None:
        self.path = path
        self._suffix = suffix
        self._claims = path / CLAIMS
        self._claims.mkdir(parents=True, exist_ok=True)
        (path / INCOMING).mkdir(exist_ok=True)
        self._last = -1
        self._coverage = Coverage()
        self.look()
        self._tidy()

    def missing(self, wanted: OffsetRange) -> list[OffsetRange]:
        """Return what of `wanted` does not stand here, as far as this process knows."""
        return self._coverage.missing(*wanted)

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """What stands here, as far as this process knows; ranges that touch are one."""
        return self._coverage.ranges

    def look(self) -> None:
        """See what others have written, and put in its place what they had not time for."""
        while True:
            last = max(self._numbers(), default=-1)
            if last < 0:
                break
            try:
                claim = json.loads((self._claims / f"{last:020d}").read_bytes())
            except FileNotFoundError:
                continue  # so many claims were made since that it was removed
            self._place((claim["from"], claim["to"]), self.path / INCOMING / claim["file"])
            break
        self._last = last
        self._coverage = Coverage(self._files())

    def publish(self, held: OffsetRange, incoming: Path) -> bool:
        """Give `incoming`, which holds the offsets `held`, its place.

        False if others were here: then `missing` knows what stands there now. It may also have been found while an
        earlier file was published, after `held` was planned.
        """
        if self.missing(held) != [held]:
            return False
        incoming.stat()  # Who stood still for so long that it was tidied away is to claim nothing.
        number = self._last + 1
        if not self._claim(number, held, incoming):
            self.look()
            return False
        self._place(held, incoming)
        self._last = number
        self._coverage.add(*held)
        with suppress(FileNotFoundError):
            (self._claims / f"{number - KEPT:020d}").unlink()
        return True

    def _claim(self, number: int, held: OffsetRange, incoming: Path) -> bool:
        claim = self._claims / f"{number:020d}"
        if not _make_once(claim, json.dumps({"from": held[0], "to": held[1], "file": incoming.name})):
            return False
        if max(self._numbers()) > number:
            with suppress(FileNotFoundError):
                claim.unlink()
            return False
        sync(self._claims)
        return True

    def _place(self, held: OffsetRange, incoming: Path) -> None:
        place = self.path / f"{held[0]:020d}-{held[1] - 1:020d}{self._suffix}"
        try:
            if not place.exists():
                incoming.rename(place)
        except FileNotFoundError:
            if not place.exists():  # or another writer did it
                raise SinkError(
                    f"{place}: it was claimed, but neither it nor {incoming} is there; it was deleted. "
                    f"Remove the newest file in {self._claims} to have these offsets written again when they are "
                    "delivered again"
                ) from None
        sync(self.path)

    def _numbers(self) -> list[int]:
        return [int(name) for name in os.listdir(self._claims) if name.isdigit()]  # noqa: PTH208  names are enough

    def _files(self) -> Iterator[OffsetRange]:
        for name in os.listdir(self.path):  # noqa: PTH208
            if found := _NAME.fullmatch(name):
                yield int(found[1]), int(found[2]) + 1

    def _tidy(self) -> None:
        """Remove what writers that died have left."""
        limit = time.time() - ABANDONED_AFTER
        for left in [*(self.path / INCOMING).iterdir(), *self._claims.glob(".*")]:
            with suppress(FileNotFoundError):
                if left.stat().st_mtime < limit:
                    left.unlink()


class Coverage:
    """Offsets that are there, as ranges that neither touch nor overlap, in order."""

    def __init__(self, ranges: Iterable[OffsetRange] = ()) -> None:
        self._ranges: list[OffsetRange] = []
        for covered in sorted(ranges):
            self.add(*covered)

    def add(self, begin: int, end: int) -> None:
        """Take `begin` up to `end` in, whatever of it was there before. Raises ValueError for an empty range."""
        if begin >= end:
            raise ValueError(f"offsets {begin} to {end} are no range")
        first = bisect_left(self._ranges, begin, key=lambda r: r[1])
        last = bisect_right(self._ranges, end, key=lambda r: r[0])
        touched = self._ranges[first:last]
        self._ranges[first:last] = [
            (min([begin, *(r[0] for r in touched)]), max([end, *(r[1] for r in touched)]))
        ]

    def missing(self, begin: int, end: int) -> list[OffsetRange]:
        """Return what of `begin` up to `end` is not there, in order."""
        found: list[OffsetRange] = []
        at = begin
        for index in range(bisect_right(self._ranges, begin, key=lambda r: r[1]), len(self._ranges)):
            covered = self._ranges[index]
            if covered[0] >= end:
                break
            if covered[0] > at:
                found.append((at, covered[0]))
            at = max(at, covered[1])
        if at < end:
            found.append((at, end))
        return found

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """All of it."""
        return tuple(self._ranges)
