"""Publishes the pending files of a sink in time, also those of idle partitions and of writers that are gone."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from muster.sinks.pending_files import PENDING, Due, Join, PendingFolder, pending_place

log = logging.getLogger(__name__)

AT_ONCE = 8
"""Partitions that are published at the same time."""
LOOKS = 10
"""How often idle partitions are looked at within the longest delay."""


class Publisher:
    """Publishes what is pending below `root`: runs of `file_size` bytes at once, smaller ones by their age.

    Files of this process are published within `max_delay` seconds, also those of idle partitions. Files of other
    processes are published within twice that time: their writers did not do it, so they are gone. A thread does both;
    joining comes on top of these times. `close` publishes what this process has stored.

    What cannot be published stays, and is tried again; the log says so. Records are not given again for it, because
    they are stored.
    """

    def __init__(self, root: Path, suffix: str, join: Join, file_size: float, max_delay: float) -> None:
        self._root = root
        self._suffix = suffix
        self._join = join
        self._file_size = file_size
        self._max_delay = max_delay
        self._folders: dict[Path, PendingFolder] = {}
        self._try_at: dict[Path, float] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="muster-sink-publisher", daemon=True)
        self._thread.start()

    def folder(self, published: Path) -> PendingFolder:
        """Return the pending files of the partition folder `published`. Raises `SinkError`, or OSError."""
        if published not in self._folders:
            self._folders[published] = self._open(published)
        return self._folders[published]

    def publish_due(self, published: Path) -> None:
        """Publish what is large or old enough. After a failure, wait before the next try."""
        now = time.time()
        if now < self._try_at.get(published, 0):
            return
        if not self._tried(
            self.folder(published), Due(self._file_size, now - self._max_delay * (1 - 1 / LOOKS))
        ):
            self._try_at[published] = now + self._max_delay / LOOKS

    def publish_left_behind(self) -> None:
        """Publish what other writers have stored and not published in time."""
        limit = time.time() - 1.5 * self._max_delay
        for published in self._left_behind(limit):
            try:
                folder = self._open(published)
            except Exception:
                log.exception(
                    "%s: cannot be opened to publish its pending files; it is tried again", published
                )
            else:
                self._tried(folder, Due(self._file_size, limit, of_all=True))

    def close(self) -> None:
        """Publish all that this process has stored. Raises what kept it from that."""
        self._stopped.set()
        self._thread.join()
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="muster-sink") as pool:
            due = Due(self._file_size, math.inf)
            list(pool.map(lambda folder: folder.publish(due), self._folders.values()))

    def _run(self) -> None:
        looks = 0
        while not self._stopped.wait(self._max_delay / LOOKS):
            looks += 1
            for published in list(self._folders):
                self.publish_due(published)
            if looks % (LOOKS // 2) == 0:
                self.publish_left_behind()

    def _open(self, published: Path) -> PendingFolder:
        return PendingFolder(pending_place(self._root, published), published, self._suffix, self._join)

    def _tried(self, folder: PendingFolder, due: Due) -> bool:
        """Publish; False if that failed."""
        try:
            folder.publish(due)
        except Exception:
            log.exception(
                "%s: its pending files could not be published; they are kept and tried again", folder.path
            )
            return False
        return True

    def _left_behind(self, limit: float) -> Iterator[Path]:
        """Yield the partition folders that have pending files older than `limit`, in seconds since the epoch."""
        pending = self._root / PENDING
        for place, _, names in os.walk(pending):
            if any(_stored_before(limit, Path(place) / name) for name in names):
                yield self._root / Path(place).relative_to(pending)


def _stored_before(limit: float, file: Path) -> bool:
    try:
        return file.stat().st_mtime <= limit
    except FileNotFoundError:
        return False  # published meanwhile
