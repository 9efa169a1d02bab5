"""Which offsets stand in a Delta Lake table, by the table's own log.

Quantities
----------

- `APP` is a partition of a topic (by the topic's id). The log has its stored ranges as transaction identifiers, of
  which the last entry counts: `APP` is the end of the last range, `APP:from` its beginning; the ranges before it,
  which a seek has left, are `APP:0:from`, `APP:0:to` and so on; `APP:earlier` is their number.
- `APP:rebuild` is the number of the partition's last rebuild. The first commit under it forgets the ranges before.
- Each commit of a sink *notes* the version that it was made from (`read`), the ranges that it added, and which
  partitions it is the first commit of a rebuild of (`begun`). A commit by others is *accounted for* once a sink's
  commit was made from its version or a later one.
- A RESTORE at version `R` to version `V` removes rows and leaves all identifiers. `RESTORED` is the last `R` that is
  accounted for, `RESTORED:to` its `V`, `APP:restored` the last `R` that the ranges of `APP` allow for.

Rule
----

The stored ranges of `APP` are those of its identifiers, if they allow for the last RESTORE. Else they are the ranges
that stood at `V`, and those that sinks have added since `R`, by their notes; if a rebuild began since `R`, only the
ranges since then.

Every commit for a partition sets `APP`, whatever its number is. So the first commit of a rebuild ends what a writer
under a lower number has under way: Delta Lake refuses that, and when it looks again it finds the higher number.

A DELETE, an overwrite or an update by others removes rows and says of no record whether it is among them. So it
changes no range: it is named (`removals`), and a person decides.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from muster.core.model import OffsetRange, TopicPartition
from muster.sinks.coverage import Coverage
from muster.sinks.sink_error import SinkError

log = logging.getLogger(__name__)

NOTE = "muster"
"""The entry of a commit's information that has a sink's note."""
RESTORED = "muster:restored"
REMOVING = {"DELETE", "UPDATE", "MERGE", "TRUNCATE", "CREATE OR REPLACE TABLE", "REPLACE TABLE"}
"""Operations that remove or change rows, beside a WRITE that overwrites; the last two also end in AS SELECT."""
UNKNOWN = -1
"""The version that a RESTORE went to, if the log does not say."""
MOST = 1 << 40
"""Bytes that no entry of a log has."""
Versions = dict[str, int]
"""Delta Lake's transaction identifiers: version by application id."""
Commit = Mapping[str, Any]
"""A commit's information (`commitInfo`), with its `version`."""


def entry(path: str, options: Mapping[str, str], version: int) -> bytes:
    """Return the log's entry at a version, b'' if it is not there."""
    name = f"_delta_log/{version:020}.json"
    try:
        # Without a size the store is asked for it first, and no other thread of the process runs until it answers.
        store = DeltaStorageHandler(path, dict(options), {name: MOST})
        return bytes(store._handler.open_input_file(name).read())
    except (FileNotFoundError, TableNotFoundError):
        return b""


def app_id(tp: TopicPartition, topic_id: str) -> str:
    """Return the identifier of a partition of the topic that has this id."""
    return f"muster:{tp[0]}:{topic_id}:{tp[1]}"


class TableLog:
    """What the log of `table` says at the version that is loaded.

    Raises `SinkError` where the log does not reach back far enough.
    """

    def __init__(self, path: str, options: Mapping[str, str], table: Any) -> None:
        self.table = table
        self._path = path
        self._options = dict(options)
        self.foreign = list(self._unaccounted(-1))
        """The commits by others that no sink's commit accounts for, the newest first."""
        self._restored: tuple[int, int] | None = self._last_restore()
        self._known: dict[str, Coverage] = {}

    @property
    def removals(self) -> list[str]:
        """The commits by others since the last one of a sink that removed rows, in words."""
        return [f"{c['operation']} at version {c['version']}" for c in self.foreign if _removes(c)]

    def refresh(self) -> bool:
        """Load the newest version; False if that is loaded already."""
        before = self.table.version()
        self.table.update_incremental()
        if self.table.version() == before:
            return False
        self.foreign = [*self._unaccounted(before), *self.foreign]
        self._restored = self._last_restore()
        self._known = {}
        return True

    def stored(self, app: str) -> Coverage:
        """Return what stands of `APP`."""
        if app not in self._known:
            self._known[app] = self._read(app)
        return self._known[app]

    def rebuild(self, app: str) -> int:
        """Return the number of the last rebuild of `APP`, 0 if there was none."""
        return self._number(f"{app}:rebuild") or 0

    def added(self, app: str, held: OffsetRange, rebuild: int) -> Versions:
        """Return the identifiers that a commit under this number sets: they say that `held` stands as well."""
        begun = self.rebuild(app) != rebuild
        before = Coverage() if begun else self.stored(app)
        after = Coverage([*before.ranges, held])
        versions = _changed(app, before, after) | ({f"{app}:rebuild": rebuild} if begun else {})
        if self._restored is not None:
            if self._number(f"{app}:restored") != self._restored[0]:
                versions |= _changed(app, Coverage(), after) | {f"{app}:restored": self._restored[0]}
            if self._number(RESTORED) != self._restored[0]:
                versions |= {RESTORED: self._restored[0], f"{RESTORED}:to": self._restored[1]}
        return versions

    def committed(self, ranges: Mapping[str, OffsetRange], begun: Collection[str]) -> None:
        """Take note that a commit of this process, made from the version that is loaded, has added these ranges, and
        that it is the first one of a rebuild of those that it has `begun`."""
        known = self._known | {
            app: Coverage([*(() if app in begun else self.stored(app).ranges), held])
            for app, held in ranges.items()
        }
        next_version = self.table.version() + 1
        self.foreign = []
        if self.refresh() and self.table.version() == next_version:
            self._known = known

    def _read(self, app: str) -> Coverage:
        if self._restored is None or self._number(f"{app}:restored") == self._restored[0]:
            return self._identified(app)
        at, to = self._restored
        found = list(self._at(at, to).stored(app).ranges)
        for version in range(at + 1, self.table.version() + 1):
            note = note_of(self._commit(version))
            if app in note.get("begun", ()):
                found.clear()
            if held := note.get("stored", {}).get(app):
                found.append((held[0], held[1]))
        return Coverage(found)

    def _identified(self, app: str) -> Coverage:
        """Return what the identifiers of `APP` say."""

        def number(name: str) -> int:
            if (found := self._number(app + name)) is None:
                raise SinkError(f"Delta table {self._path}: its log has lost the identifier {app}{name}")
            return found

        if (end := self._number(app)) is None:
            return Coverage()
        runs = [(number(f":{n}:from"), number(f":{n}:to")) for n in range(number(":earlier"))]
        return Coverage([*runs, (number(":from"), end)])

    def _unaccounted(self, since: int) -> Iterator[Commit]:
        """Yield the commits by others after the version `since` that no sink's commit accounts for, newest first."""
        read = since
        for version in range(self.table.version(), since, -1):
            if version <= read or not (commit := self._commit(version)):
                return  # accounted for, or older than the log
            if note := note_of(commit):
                read = max(read, int(note.get("read", -1)))
            else:
                yield commit

    def _commit(self, version: int) -> Commit:
        """Return the commit at a version, empty if the log does not have it any more."""
        for line in entry(self._path, self._options, version).splitlines():
            if (found := json.loads(line)) and "commitInfo" in found:
                return {**found["commitInfo"], "version": version}
        return {}

    def _last_restore(self) -> tuple[int, int] | None:
        for commit in self.foreign:
            if commit.get("operation") == "RESTORE":
                return commit["version"], self._target(commit)
        at = self._number(RESTORED)
        return None if at is None else (at, self._number(f"{RESTORED}:to") or 0)

    def _target(self, commit: Commit) -> int:
        """Return the version that a RESTORE went to, `UNKNOWN` if the log does not say."""
        restored, noted = int(commit["version"]), commit.get("operationParameters", {})
        try:
            if (version := noted.get("version")) not in {None, "null", ""}:
                target = int(version)
            else:
                table = self._open(restored)
                table.load_as_version(_moment(noted.get("datetime") or noted.get("timestamp")))
                target = int(table.version())
                if {*table.file_uris()} != {*self._open(restored).file_uris()}:
                    return UNKNOWN  # Spark's zone was another one, say
        except (ValueError, OverflowError, DeltaError):
            return UNKNOWN
        return target if target < restored else UNKNOWN

    def _at(self, restored: int, version: int) -> TableLog:
        """Return what the log says at the version that a RESTORE went to."""
        error: Exception | None = None
        if version != UNKNOWN:
            try:
                return TableLog(self._path, self._options, self._open(version))
            except DeltaError as gone:
                error = gone
        raise SinkError(
            f"Delta table {self._path}: its RESTORE at version {restored} went to a version that its log does not "
            "name or no longer has, so the sink cannot know which records stand there; run RESTORE ... TO VERSION AS "
            "OF with a version that the log has, or delete the rows and seek back with 'muster seek ... --rebuild'"
        ) from error

    def _open(self, version: int | None) -> Any:
        return deltalake.DeltaTable(self._path, version=version, storage_options=self._options)

    def _number(self, name: str) -> int | None:
        found = self.table.transaction_version(name)
        return None if found is None else int(found)


def note_of(commit: Commit) -> Mapping[str, Any]:
    """Return a sink's note in a commit, empty for a commit by others."""
    try:
        note = json.loads(commit.get(NOTE, "{}"))
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}


def _moment(noted: object) -> dt.datetime:
    """Return the time that a RESTORE notes: milliseconds (by deltalake), or a text (by Spark). A text without a zone
    is a time of Spark's zone, which is taken to be that of this process. Raises ValueError for anything else."""
    text = str(noted).strip('"')
    if text.isdecimal():
        return dt.datetime.fromtimestamp(int(text) / 1000, dt.UTC)
    return dt.datetime.fromisoformat(text).astimezone(dt.UTC)


def _removes(commit: Commit) -> bool:
    operation, parameters = str(commit.get("operation", "")), commit.get("operationParameters", {})
    return (
        operation.removesuffix(" AS SELECT") in REMOVING
        or str(parameters.get("mode", "")).lower() == "overwrite"
    )


def _changed(app: str, before: Coverage, after: Coverage) -> Versions:
    """Return the identifiers that say that `after` is stored, as far as `before` did not: `APP` always, the others
    where a batch does not begin where the one before ended."""
    *earlier, (begin, end) = after.ranges
    found = {app: end}
    if before.ranges and [*earlier, begin] == [*before.ranges[:-1], before.ranges[-1][0]]:
        return found
    found |= {f"{app}:from": begin, f"{app}:earlier": len(earlier)}
    for number, (first, last) in enumerate(earlier):
        found |= {f"{app}:{number}:from": first, f"{app}:{number}:to": last}
    return found
