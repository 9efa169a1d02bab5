"""Files of one partition that are stored and not published yet: those of a contiguous range are published as one.

    _pending/topic=flights/partition=3/00000000000000000100-00000000000000000119         rows of offsets 100 to 119
    _pending/topic=flights/partition=3/00000000000000000120-00000000000000000124.empty   these offsets have no rows
    topic=flights/partition=3/00000000000000000100-00000000000000000199.parquet          published

An offset is *stored* if a pending or a published file holds it. A batch is done when its offsets are stored. Readers
look at published files only, and these are what `muster.sinks.partition_folder` says: claimed one after the other,
without overlaps, never replaced, never deleted. Three rules for pending files follow from that:

1. They may overlap, and may be written late or twice. A published file is made of pieces of pending files, each
   offset from one of them, and its claim is refused if one of its offsets is published already. So pending files need
   no claims.
2. One with rows is deleted only if all its offsets are in published files that are on the disk. What is published
   stays so; therefore a writer that was frozen before it deletes a file does no harm later, even if a file of that
   name was written again.
3. A file with rows and one that says that there are none have different names. The latter may go without being
   published, where no rows stand beside it: it stores nothing.

So no offset with rows that is stored is ever without a file, and no reader sees it twice. A writer may be killed or
frozen at any step: before the file has its name, the batch is not done and comes again; after that, any other writer
can join and publish it. A writer that looks at published files before it looks at pending ones may take a stored
offset for missing, and stores it again, which rule 1 allows; it looks in the other order to save that.

A gap in the offsets ends a joined file, because records that a seek passed over may come later.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.core.model import OffsetRange
from muster.sinks.partition_folder import Coverage, PartitionFolder, incoming_file, sync

PENDING = "_pending"
EMPTY = ".empty"
_NAME = re.compile(rf"(\d{{20}})-(\d{{20}})(?:{re.escape(EMPTY)})?")


@dataclass(frozen=True, slots=True)
class PendingFile:
    """The file at `path` that holds the offsets `held`.

    `size` is in bytes, `since` in seconds since the epoch. It is `mine` if this process has written it.
    """

    path: Path
    held: OffsetRange
    size: int
    since: float
    mine: bool = False

    @property
    def empty(self) -> bool:
        """Whether its offsets have no rows."""
        return self.path.suffix == EMPTY


@dataclass(frozen=True, slots=True)
class Piece:
    """Those rows of `file` that were made of the offsets `held`."""

    file: PendingFile
    held: OffsetRange


Join = Callable[[Sequence[Piece], Path], int]
"""Writes the rows of pieces that follow one another into a new file, and has it on the disk. Returns how many of
them, at least one: it stops before the first that does not fit to those before. Raises FileNotFoundError if a file
is gone."""


@dataclass(frozen=True, slots=True)
class Due:
    """Which runs are to be published: those of `file_size` bytes, and those with files stored `before` a time.

    The time is in seconds since the epoch, and counts for files of this process, unless `of_all` writers.
    """

    file_size: float
    before: float
    of_all: bool = False

    def __contains__(self, files: Iterable[PendingFile]) -> bool:
        """Tell whether `files` are large or old enough."""
        size = 0
        for file in files:
            size += file.size
            if size >= self.file_size or (file.since <= self.before and (file.mine or self.of_all)):
                return True
        return False


def pending_place(root: Path, published: Path) -> Path:
    """Return where the pending files of the partition folder `published` below `root` are."""
    return root / PENDING / published.relative_to(root)


def runs(
    files: Iterable[PendingFile], published: Iterable[OffsetRange], file_size: float
) -> list[list[Piece]]:
    """Plan the files to publish: pieces without a gap between them, each offset once, none of it `published`.

    A run ends with the piece that brings it to `file_size` bytes.
    """
    taken = Coverage(published)
    pieces: list[Piece] = []
    for file in sorted(files, key=lambda f: (f.empty, f.held[0], -f.held[1])):
        pieces += [Piece(file, held) for held in taken.missing(*file.held)]
        taken.add(*file.held)
    found: list[list[Piece]] = []
    size = 0
    for piece in sorted(pieces, key=lambda p: p.held):
        if not found or found[-1][-1].held[1] != piece.held[0] or size >= file_size:
            found.append([])
            size = 0
        found[-1].append(piece)
        size += piece.file.size
    return found


class PendingFolder:
    """The pending files at `place` of the partition folder at `published`, as one process sees them; thread-safe.

    Published files get the ending `suffix`. Raises `SinkError`, or OSError with the file's name.
    """

    def __init__(self, place: Path, published: Path, suffix: str, join: Join) -> None:
        self.path = published
        self._place = place
        self._join = join
        self._lock = threading.Lock()
        self._files: dict[str, PendingFile] = {}
        self._stored = Coverage()
        place.mkdir(parents=True, exist_ok=True)
        self._look()
        self._published = PartitionFolder(published, suffix)

    def missing(self, wanted: OffsetRange) -> list[OffsetRange]:
        """Return what of `wanted` is not stored, as far as this process knows."""
        with self._lock:
            return [
                held
                for unpublished in self._published.missing(wanted)
                for held in self._stored.missing(*unpublished)
            ]

    def store(self, held: OffsetRange, incoming: Path | None) -> None:
        """Take `incoming`, which holds the rows of `held`; None if there are none. Then they are on the disk."""
        with self._lock:
            path = self._place / f"{held[0]:020d}-{held[1] - 1:020d}{EMPTY if incoming is None else ''}"
            size = 0
            if incoming is None:
                path.touch()
            else:
                size = incoming.stat().st_size
                incoming.rename(path)
            sync(self._place)
            self._add(PendingFile(path, held, size, time.time(), mine=True))

    def publish(self, due: Due) -> None:
        """Publish the runs that are due, and delete the files that are not needed any more."""
        with self._lock:
            if self._files.values() not in due:
                return
            while run := self._next_run(due):
                self._publish(run)
            self._delete_published()

    def _next_run(self, due: Due) -> list[Piece] | None:
        self._look()
        planned = runs(self._files.values(), self._published.ranges, due.file_size)
        return next((run for run in planned if [piece.file for piece in run] in due), None)

    def _publish(self, run: list[Piece]) -> None:
        """Publish `run`, or the part of it that fits together; if another writer was faster, look what it did."""
        pieces = [piece for piece in run if not piece.file.empty]
        if not pieces:
            self._delete(piece.file for piece in run)
            return
        target = incoming_file(self.path)
        try:
            joined = self._write(pieces, target)
            end = pieces[joined].held[0] if joined < len(pieces) else run[-1].held[1]
            published = self._published.publish((run[0].held[0], end), target)
        except FileNotFoundError:  # a pending file was published and deleted by another writer
            self._published.look()
            published = False
        except Exception:
            target.unlink(missing_ok=True)
            raise
        if not published:
            target.unlink(missing_ok=True)

    def _write(self, pieces: list[Piece], target: Path) -> int:
        if len(pieces) == 1 and pieces[0].held == pieces[0].file.held:
            shutil.copyfile(pieces[0].file.path, target)  # not a link: what is incoming is judged by its age
            sync(target)
            return 1
        return self._join(pieces, target)

    def _delete_published(self) -> None:
        done = [file for file in self._files.values() if not self._published.missing(file.held)]
        if done:
            sync(self.path)  # a file that another writer published has its name on the disk as well
            self._delete(done)

    def _delete(self, files: Iterable[PendingFile]) -> None:
        for file in list(files):
            file.path.unlink(missing_ok=True)
            self._files.pop(file.path.name, None)

    def _look(self) -> None:
        """See which files are there."""
        names = set(os.listdir(self._place))  # noqa: PTH208  names are enough
        for name in self._files.keys() - names:
            del self._files[name]
        for name in sorted(names - self._files.keys()):
            if found := _NAME.fullmatch(name):
                path = self._place / name
                try:
                    stat = path.stat()
                except FileNotFoundError:
                    continue
                self._add(PendingFile(path, (int(found[1]), int(found[2]) + 1), stat.st_size, stat.st_mtime))

    def _add(self, file: PendingFile) -> None:
        self._files[file.path.name] = file
        self._stored.add(*file.held)
