"""Rows in a Delta Lake table, each record once: rows and ranges are one commit of the table's log."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

try:
    import deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
except ImportError:  # the extra `delta`
    deltalake = None

from muster.core.model import OffsetRange, TopicPartition
from muster.sinks.batch import Batch
from muster.sinks.parquet import expand
from muster.sinks.partition_folder import Coverage, SinkError
from muster.sinks.rows import collected, log_left_out, missing_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

TRIES = 10

Versions = dict[str, int]
"""Delta Lake's transaction identifiers: version by application id."""


class DeltaSink:
    """Appends the rows of each batch to the Delta Lake table at `path`, in one commit with their offsets.

    As a handler it appends every batch as it is. Within a handler it takes what was made of the batch, as long as
    `topic`, `partition` and `offset` are still there; a record may have become no row, or several. A table that is
    not there is created with the columns of the first batch, partitioned by `partition_by`.

    The driver writes, with the package `deltalake` (the extra `delta`); no jar is needed, and the rows of a batch are
    in its memory. `storage_options` are those of `deltalake` for object stores; `${VAR}` in them and in `path` is
    taken from the environment of the driver.

    **Invariant.** The table's log holds for each partition which offsets stand in the table, as transaction
    identifiers (`txn`, see `_changed`). A commit

    1. begins at a version of the table, at which it knows what is stored of the partitions of the batch;
    2. appends the rows with the other offsets, and sets the identifiers of these partitions.

    Delta Lake refuses it if a commit after that version has set one of the identifiers. So each offset is in one
    commit, whichever writer makes it, and however late. Commits for other partitions do not meet.

    What is known is kept for the next batch. A commit therefore sets the identifiers of all partitions that are
    known, so that it is refused if another writer has had one of them since; then all is read again.
    """

    def __init__(
        self,
        path: str,
        storage_options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
    ) -> None:
        if deltalake is None:
            raise ValueError("DeltaSink needs the package 'deltalake': install Muster's extra 'delta'")
        self.path = expand(path)
        self.partition_by = list(partition_by)
        self._options = {
            name: expand(value, f"storage_options.{name}") for name, value in (storage_options or {}).items()
        }
        self._table: Any = None
        self._known: dict[str, Coverage] = {}

    def __call__(self, frame: DataFrame, batch: Batch) -> None:
        """Write `frame`, which is `batch`, or was made of it.

        Raises `SinkError` if it cannot be written, what `deltalake` raises, and what Spark raises if `frame` cannot
        be computed; nothing of the batch is written then, or all of it.
        """
        self.store(collected(frame, batch), batch)

    def store(self, rows: pa.Table, batch: Batch) -> None:
        """Write the rows of `batch`. Raises as `__call__` does."""
        rows = _as_stored(rows)
        for _ in range(TRIES):
            try:
                return self._commit(rows, batch)
            except CommitFailedError as error:
                log.warning("%s: %s; the table is read again", self.path, error)
                self._forget()
            except BaseException:
                self._forget()
                raise
        raise SinkError(f"{self.path}: {TRIES} commits were refused; see which other writers the table has")

    def _forget(self) -> None:
        self._table = None
        self._known = {}

    def _commit(self, rows: pa.Table, batch: Batch) -> None:
        if self._table is None:
            self._table = self._open(rows.schema)
        before: dict[str, Coverage] = {}
        pieces: dict[TopicPartition, list[OffsetRange]] = {}
        for tp, held in batch.ranges.items():
            app_id = _app_id(tp, batch.topic_ids.get(tp[0], ""))
            before[app_id] = stored = self._known.get(app_id) or self._read(app_id)
            missing = stored.missing(*held)
            log_left_out(tp, held, missing)
            if missing:
                pieces[tp] = missing
        if not pieces:
            return
        after = {**self._known, **before}
        versions: Versions = {
            app_id: stored.ranges[-1][1] for app_id, stored in after.items() if stored.ranges
        }
        for tp in pieces:
            app_id = _app_id(tp, batch.topic_ids.get(tp[0], ""))
            after[app_id] = Coverage([*before[app_id].ranges, batch.ranges[tp]])
            versions |= _changed(app_id, before[app_id], after[app_id])
        now = int(time.time() * 1000)
        deltalake.write_deltalake(
            self._table,
            missing_rows(rows, pieces),
            mode="append",
            commit_properties=deltalake.CommitProperties(
                custom_metadata={"muster": json.dumps({"batch": batch.id, "ranges": _shown(batch)})},
                app_transactions=[deltalake.Transaction(*each, now) for each in sorted(versions.items())],
            ),
        )
        self._known = after

    def _open(self, schema: pa.Schema) -> Any:
        try:
            return deltalake.DeltaTable(self.path, storage_options=self._options)
        except TableNotFoundError:
            log.info("%s: the table is created", self.path)
        try:
            return deltalake.DeltaTable.create(
                self.path,
                schema,
                mode="error",
                partition_by=self.partition_by,
                storage_options=self._options,
            )
        except DeltaError:
            # Another consumer creates it at the same time; else this raises what is wrong.
            return deltalake.DeltaTable(self.path, storage_options=self._options)

    def _read(self, app_id: str) -> Coverage:
        """Read what the table's log says of a partition."""

        def version(name: str) -> int:
            found = self._table.transaction_version(app_id + name)
            if found is None:
                raise SinkError(f"{self.path}: the log has lost the transaction identifier {app_id}{name}")
            return int(found)

        end = self._table.transaction_version(app_id)
        if end is None:
            return Coverage()
        runs = [(version(f":{n}:from"), version(f":{n}:to")) for n in range(version(":earlier"))]
        return Coverage([*runs, (version(":from"), int(end))])


def _app_id(tp: TopicPartition, topic_id: str) -> str:
    return f"muster:{tp[0]}:{topic_id}:{tp[1]}"


def _changed(app_id: str, before: Coverage, after: Coverage) -> Versions:
    """Return the identifiers that say of a partition that `after` is stored, as far as `before` did not.

    `APP` is the end of the last range, so it changes with every batch, and the others only where a batch does not
    begin where the one before ended; `APP:from` is its beginning. The ranges before it, which a seek has left,
    are `APP:0:from`, `APP:0:to` and so on; `APP:earlier` is their number.
    """
    *earlier, (begin, end) = after.ranges
    found = {app_id: end}
    if before.ranges and [*earlier, begin] == [*before.ranges[:-1], before.ranges[-1][0]]:
        return found
    found |= {f"{app_id}:from": begin, f"{app_id}:earlier": len(earlier)}
    for number, (first, last) in enumerate(earlier):
        found |= {f"{app_id}:{number}:from": first, f"{app_id}:{number}:to": last}
    return found


def _shown(batch: Batch) -> dict[str, dict[int, OffsetRange]]:
    found: dict[str, dict[int, OffsetRange]] = {}
    for (topic, partition), held in sorted(batch.ranges.items()):
        found.setdefault(topic, {})[partition] = held
    return found


def _as_stored(rows: pa.Table) -> pa.Table:
    """Return `rows` with moments in UTC and columns that may be null.

    Delta Lake keeps moments in UTC, and Spark gives them in the session's time zone. The first batch makes the table,
    and a column that has no null there, as Spark may know, may have some later.
    """
    fields = [
        field.with_nullable(True).with_type(
            pa.timestamp("us", "UTC")
            if pa.types.is_timestamp(field.type) and field.type.tz is not None
            else field.type
        )
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))
