"""What a Delta Lake table needs now and then: small files joined, and files that no reader needs removed."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

import deltalake

from muster.sinks.batch import Batch
from muster.sinks.sink_error import plain

log = logging.getLogger(__name__)

EVERY = 600.0
"""Seconds between two times that a consumer looks after a table."""
VACUUM_EVERY = 24 * 3600
"""Seconds between two vacuums of a table, whichever consumers run them."""
PIECE = 64 << 20
"""Files of fewer bytes are joined, up to about so many bytes a commit."""
ROWS = 64_000
"""Rows in a row group of a joined file."""
KEEPER = "muster.upkeep"
"""The property of a table that has the id of the one sink that joins its files."""
VACUUMED = "muster:vacuum"
"""The identifier that has the time of the last vacuum, in seconds since the epoch."""


class Upkeep:
    """Looks after the table at `path`, in a thread beside the batches of the consumer that has the lowest partition
    of one of their topics.

    Small files are joined in pieces, each of which is one commit that changes no row, so a reader sees each record
    once. Then, once a day, a vacuum removes files that no version of the last week has
    (`delta.deletedFileRetentionDuration`), among them those of attempts that failed.

    A failure is logged, and the next time tries again; no batch fails or waits for it.

    **Invariant.** No two commits join the same file. `deltalake` does not ensure that: commits that change no row
    pass each other, and both would add the rows of the file. But it refuses a commit if the table's metadata has
    changed since the version that the commit was made from. So a sink that joins files

    1. sets the table's property `KEEPER` to an id of its own, unless it has it;
    2. joins the files of a version that has the property with its id.

    The next sink's change of the property ends every join that is under way, however late its commit comes. Batches
    that commit just then are refused as well, and commit again.
    """

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        self._path = path
        self._options = dict(options)
        self._id = uuid.uuid4().hex
        self._due: float | None = None
        self._vacuumed = 0
        """When this process ran the last vacuum; one that finds nothing to remove is not in the table's log."""
        self._thread: threading.Thread | None = None

    def beside(self, batch: Batch) -> None:
        """Begin if it is time: `EVERY` seconds after the first batch, and after the last time."""
        if not any(batch.has_lowest(topic) for topic in {topic for topic, _ in batch.ranges}):
            return
        now = time.monotonic()
        if self._due is None:
            self._due = now + EVERY
        if now < self._due or (self._thread is not None and self._thread.is_alive()):
            return
        self._due = now + EVERY
        self._thread = threading.Thread(target=self.run, name="delta-upkeep", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Join and remove files now."""
        try:
            if not self._keeps(table := self._open()):
                table.alter.set_table_properties({KEEPER: self._id}, raise_if_not_exists=False)
                if not self._keeps(table := self._open()):
                    return  # another consumer has it already
            compact(table)
            if (now := int(time.time())) >= max(self._vacuumed, last_vacuum(table)) + VACUUM_EVERY:
                vacuum(table, now)
                self._vacuumed = now
        except Exception as error:
            log.warning(
                "Delta table %s: its files could not be joined or removed (%s: %s); batches go on, and the next "
                "attempt is in %d s. If that lasts, run OPTIMIZE and VACUUM yourself and set 'upkeep' to false",
                self._path,
                type(error).__name__,
                plain(error),
                EVERY,
            )

    def _open(self) -> Any:
        return deltalake.DeltaTable(self._path, storage_options=self._options)

    def _keeps(self, table: Any) -> bool:
        return bool(table.metadata().configuration.get(KEEPER) == self._id)


def compact(table: Any) -> None:
    """Join the small files of a table, as they are in the version that is loaded.

    Raises deltalake's errors, also if others have removed rows or changed the metadata since that version.
    """
    done = table.optimize.compact(
        target_size=PIECE,
        max_concurrent_tasks=1,
        min_commit_interval=0,
        writer_properties=deltalake.WriterProperties(compression="SNAPPY", max_row_group_size=ROWS),
    )
    if removed := done["numFilesRemoved"]:
        log.info("Delta table %s: %d files joined to %d", table.table_uri, removed, done["numFilesAdded"])


def last_vacuum(table: Any) -> int:
    """Return when a sink's vacuum last removed files of a table, in seconds since the epoch; 0 if none did."""
    return int(table.transaction_version(VACUUMED) or 0)


def vacuum(table: Any, now: int) -> None:
    """Remove the files of a table that no version needs, and note `now` in its log."""
    vacuumed = [deltalake.Transaction(VACUUMED, now, now * 1000)]
    removed = table.vacuum(
        dry_run=False, full=True, commit_properties=deltalake.CommitProperties(app_transactions=vacuumed)
    )
    log.info("Delta table %s: %d files removed that no version needs", table.table_uri, len(removed))
