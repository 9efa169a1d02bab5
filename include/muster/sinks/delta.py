"""Rows in a Delta Lake table, each record once: rows and ranges are one commit of the table's log."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

try:
    import deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

    from muster.sinks.delta_columns import created, lacking
    from muster.sinks.delta_files import WRITTEN, FileWriter, added
    from muster.sinks.delta_log import NOTE, TableLog, Versions, app_id, entry
    from muster.sinks.delta_store import probe, refuse_unsafe
    from muster.sinks.delta_upkeep import Upkeep
except ImportError:  # the extra `delta`
    deltalake = None

from muster.core.model import OffsetRange, TopicPartition
from muster.sinks.batch import Batch
from muster.sinks.options import expand, flag, names, text, texts
from muster.sinks.rows import Pieces, note_left_out, topic_id
from muster.sinks.sink_error import SinkError, bookkeeping, from_task, of_rows, plain, superseded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

TRIES = 10
FORGETS = "delta.setTransactionRetentionDuration"
"""The property of a table by which its log would forget which offsets stand there."""

Write = Callable[["FileWriter"], Iterable[Any]]
"""Has the rows of a batch written to files, and returns a row of `WRITTEN` for each."""


class DeltaSink:
    """Appends the rows of each batch to the Delta Lake table at `path`, in one commit with their offsets.

    As a handler it appends every batch as it is. Within a handler it takes what was made of the batch, as long as
    `topic`, `partition` and `offset` are still there; a record may have become no row, or several. A table that is
    not there is created with the columns of the first batch, partitioned by `partition_by`. Later batches may lack
    columns, which are null then; with `new_columns` they may have more, which are added to the table.

    The tasks of the batch write the files and the driver commits them, with the package `deltalake` (the extra
    `delta`), which executors need as well; no jar is needed. `storage_options` are those of `deltalake` for object
    stores; `${VAR}` in them and in `path` is taken from the environment of the driver. With `upkeep` the consumer
    that has the lowest partition of a topic joins small files and removes old ones, see `muster.sinks.delta_upkeep`.

    **Invariant.** The table's log holds for each partition which offsets stand in the table
    (`muster.sinks.delta_log`). A commit

    1. begins at the newest version of the table, by which it knows what is stored of the partitions of the batch;
    2. appends the rows with the other offsets, and sets the identifiers of these partitions.

    Delta Lake refuses it if a commit after that version has set one of the identifiers. So each offset is in one
    commit, whichever writer makes it, and however late. Commits for other partitions do not meet. Nothing is left out
    by what an earlier batch has seen: a table that was deleted, made again or restored is read as it is.

    Raises ValueError for options of no use.
    """

    def __init__(
        self,
        path: str,
        storage_options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        new_columns: bool = False,
        upkeep: bool = True,
    ) -> None:
        if deltalake is None:
            raise ValueError("DeltaSink needs the package 'deltalake': install Muster's extra 'delta'")
        self.path = expand(text("path", path, "/data/flights"))
        self.name = f"Delta table {self.path}"
        self.partition_by = names("partition_by", partition_by)
        self.new_columns = flag("new_columns", new_columns)
        self._options = texts(
            "storage_options",
            {} if storage_options is None else storage_options,
            "{AWS_REGION: eu-central-1}",
        )
        refuse_unsafe(self._options)
        self._upkeep = Upkeep(self.path, self._options) if flag("upkeep", upkeep) else None
        self._probed = False
        self._log: TableLog | None = None
        self._named: frozenset[str] = frozenset()
        self._head = b""
        """The entry of the log at the version that is loaded, which tells this table from another at its path."""

    def __call__(self, frame: DataFrame, batch: Batch) -> None:
        """Write `frame`, which is `batch`, or was made of it.

        Raises `SinkError` if it cannot be written, and what Spark raises if `frame` cannot be computed; nothing of
        the batch is written then, or all of it.
        """

        def write(writer: FileWriter) -> Iterable[Any]:
            try:
                return frame.mapInArrow(writer, WRITTEN).collect()
            except Exception as error:
                if (of_sink := from_task(error)) is not None:
                    raise of_sink from error
                raise

        columns = frame.schema.json()
        self._store(lambda: deltalake.Schema.from_json(columns), write, batch)

    def store(self, rows: pa.Table, batch: Batch) -> None:
        """Write the rows of `batch`, which are in this process. Raises as `__call__` does."""

        def write(writer: FileWriter) -> Iterable[Any]:
            return [row for written in writer(rows.to_batches()) for row in written.to_pylist()]

        self._store(lambda: deltalake.Schema.from_arrow(rows.schema), write, batch)

    def _store(self, columns: Callable[[], Any], write: Write, batch: Batch) -> None:
        if self._upkeep is not None:
            with bookkeeping(self.name):
                self._upkeep.beside(batch)
        for _ in range(TRIES):
            try:
                with bookkeeping(self.name, CommitFailedError, DeltaError, OSError):
                    return self._commit(columns(), write, batch)
            except CommitFailedError as error:
                log.warning("%s: %s; the table is read again", self.path, plain(error))
                self._log = None
            except (DeltaError, OSError) as error:
                self._log = None
                raise SinkError(f"Delta table {self.path}: {plain(error)}") from error
            except BaseException:
                self._log = None
                raise
        raise SinkError(
            f"Delta table {self.path}: {TRIES} commits were refused; see which other writers the table has"
        )

    def _commit(self, columns: Any, write: Write, batch: Batch) -> None:
        apps = {tp: app_id(tp, topic_id(batch, tp[0])) for tp in batch.ranges}
        if not self._probed:
            probe(self.path, self._options)
            self._probed = True
        known = self._look(columns, batch)
        pieces: dict[TopicPartition, list[OffsetRange]] = {}
        begun: list[str] = []
        for tp, held in batch.ranges.items():
            if (newest := known.rebuild(apps[tp])) > batch.rebuilds[tp]:
                raise superseded(self.name, tp, batch.rebuilds[tp], newest)
            if newest < batch.rebuilds[tp]:
                begun.append(apps[tp])
            missing = [held] if apps[tp] in begun else known.stored(apps[tp]).missing(*held)
            note_left_out(batch, tp, missing)
            if missing:
                pieces[tp] = missing
        if pieces:
            self._append(known, apps, pieces, begun, write, batch)
        batch.stored[self.name] = {tp: known.stored(app).ranges for tp, app in apps.items()}

    def _append(
        self,
        known: TableLog,
        apps: Mapping[TopicPartition, str],
        pieces: Pieces,
        begun: Sequence[str],
        write: Write,
        batch: Batch,
    ) -> None:
        stored = {apps[tp]: batch.ranges[tp] for tp in pieces}
        versions: Versions = {}
        for tp in pieces:
            versions |= known.added(apps[tp], batch.ranges[tp], batch.rebuilds[tp])
        table, now = known.table, int(time.time() * 1000)
        writer = FileWriter(
            self.path,
            self._options,
            pa.schema(table.schema().to_arrow()),
            tuple(table.metadata().partition_columns),
            dict(batch.ranges),
            pieces,
        )
        note = {"batch": batch.id, "read": table.version(), "stored": stored, "begun": begun}
        with of_rows():
            written = list(write(writer))
        table.create_write_transaction(
            added(written),
            "append",
            table.schema(),
            list(writer.partition_by),
            commit_properties=deltalake.CommitProperties(
                custom_metadata={NOTE: json.dumps(note)},
                app_transactions=[deltalake.Transaction(*each, now) for each in sorted(versions.items())],
            ),
        )
        known.committed(stored, begun)
        self._head = entry(self.path, self._options, table.version())

    def _look(self, columns: Any, batch: Batch) -> TableLog:
        """Read the newest version of the table, which is made, or gets columns, if it lacks them."""
        if self._log is None or entry(self.path, self._options, self._log.table.version()) != self._head:
            self._log = TableLog(self.path, self._options, self._open(columns))
        else:
            self._log.refresh()
        self._name_removals(self._log.removals, batch)
        table = self._log.table
        self._head = entry(self.path, self._options, table.version())
        self._check(table.metadata())
        if new := lacking(self.path, table.schema(), columns, self.new_columns):
            table.alter.add_columns(new)
            return self._look(columns, batch)
        return self._log

    def _open(self, columns: Any) -> Any:
        try:
            return deltalake.DeltaTable(self.path, storage_options=self._options)
        except TableNotFoundError:
            log.info("%s: the table is created", self.path)
        try:
            return deltalake.DeltaTable.create(
                self.path,
                created(self.path, columns, self.partition_by),
                mode="error",
                partition_by=list(self.partition_by),
                storage_options=self._options,
            )
        except DeltaError:
            # Another consumer creates it at the same time; else this raises what is wrong.
            return deltalake.DeltaTable(self.path, storage_options=self._options)

    def _name_removals(self, removals: Sequence[str], batch: Batch) -> None:
        if new := [each for each in removals if each not in self._named]:
            notice = (
                f"{self.name}: others have changed or removed rows ({', '.join(new)}); records that stood there are "
                "not written again, because the log still says that they are stored. To have them again, delete what "
                "is left of them and seek back to them with --rebuild"
            )
            log.warning(notice)
            batch.notices.append(notice)
        self._named = frozenset(removals)

    def _check(self, metadata: Any) -> None:
        """Raise `SinkError` for a table that is not what the options say, or whose log would forget."""
        by = metadata.partition_columns
        if self.partition_by and list(self.partition_by) != list(by):
            raise SinkError(
                f"Delta table {self.path} is partitioned by {', '.join(by) or 'nothing'}, and 'partition_by' says "
                f"{', '.join(self.partition_by)}; set it to what the table has, or name another table"
            )
        if FORGETS in metadata.configuration:
            raise SinkError(
                f"Delta table {self.path} has the property {FORGETS}, by which its log forgets which offsets stand "
                f"there; take it away (ALTER TABLE ... UNSET TBLPROPERTIES ('{FORGETS}'))"
            )
