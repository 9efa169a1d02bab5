"""The history of a cluster in ZooKeeper: append to it, read it newest first, prune it.

Entries (`muster.core.history`) are never changed. Transitions bring theirs in the multi that writes them
(`muster.edges.zookeeper_transitions`); commands append one by themselves. Ages are by ZooKeeper's own clock, so
writers whose clocks differ do no harm.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

from kazoo.exceptions import NoNodeError

from muster.core.history import (
    Entry,
    HistoryPage,
    Record,
    Unreadable,
    entry_name,
    entry_number,
    entry_prefix,
    format_entry,
    history_path,
    parse_entry,
)
from muster.edges.zookeeper_session import AccessDeniedError, Operation

READ_AT_ONCE = 100
"""So many entries are asked for together, about 100 kB each at most."""
PRUNED_AT_ONCE = 500
"""So many entries are looked at, or deleted, together."""
PRUNED_AT_MOST = 2_000
"""Entries that one call deletes, the oldest; the next call goes on."""


def append_entry(operation: Operation, cluster: str, entry: Entry) -> int:
    """Append an entry by itself and return its number. Raises `ZooKeeperError`; then it may or may not be there."""
    parent = history_path(cluster)
    what = f"writing to {parent}"
    data = format_entry(entry)
    create = partial(operation.client.create_async, entry_prefix(cluster), data, sequence=True)
    try:
        made = operation.call(what, create)
    except NoNodeError:
        operation.call(what, operation.client.ensure_path_async, parent)
        made = operation.call(what, create)
    return int(str(made)[-10:])


def read_history(
    operation: Operation, cluster: str, limit: int, before: int | None, since: float
) -> HistoryPage:
    """Read the newest entries, at most `limit`, of those numbered below `before` and written at or after `since`
    (seconds since the epoch, by ZooKeeper's clock). Without a history there are none. Raises `ZooKeeperError`."""
    if before is None:
        # A follower may lag behind; what was written just now has to be seen.
        operation.call(f"syncing {history_path(cluster)}", operation.client.sync_async, "/")
    numbers = [n for n in _numbers(operation, cluster) if before is None or n < before]
    records: list[Record] = []
    looked_at = 0
    while looked_at < len(numbers) and len(records) < limit:
        chunk = numbers[looked_at : looked_at + min(READ_AT_ONCE, limit - len(records))]
        looked_at += len(chunk)
        for record in _read(operation, cluster, chunk):
            if record.written < since:
                return HistoryPage(tuple(records))
            records.append(record)
    return HistoryPage(tuple(records), before=numbers[looked_at - 1] if looked_at < len(numbers) else None)


def prune_history(
    operation: Operation,
    cluster: str,
    keep_seconds: float,
    keep_entries: int,
    keep_bytes: int,
    now: float | None = None,
) -> int:
    """Delete what is older than `keep_seconds`, and the oldest beyond `keep_entries` entries or `keep_bytes` bytes.

    Returns how many were deleted, at most `PRUNED_AT_MOST`. Raises `ZooKeeperError`; then some may be deleted, and
    doing it again does no harm.
    """
    oldest = (time.time() if now is None else now) - keep_seconds
    parent = history_path(cluster)
    numbers = _numbers(operation, cluster)
    size = 0
    for start in range(0, len(numbers), PRUNED_AT_ONCE):
        chunk = numbers[start : start + PRUNED_AT_ONCE]
        asked = [operation.client.exists_async(f"{parent}/{entry_name(number)}") for number in chunk]
        for place, result in enumerate(asked, start):
            stat = operation.wait(f"looking at {parent}", result)
            if stat is None:  # another process prunes too
                continue
            size += stat.data_length
            if stat.created < oldest or place >= keep_entries or size > keep_bytes:
                return _delete(operation, parent, numbers[place:][-PRUNED_AT_MOST:])
    return 0


def _delete(operation: Operation, parent: str, numbers: Sequence[int]) -> int:
    """Delete these entries, the oldest first, so that no gap is left if it is cut off."""
    deleted = 0
    oldest_first = sorted(numbers)
    for start in range(0, len(oldest_first), PRUNED_AT_ONCE):
        chunk = oldest_first[start : start + PRUNED_AT_ONCE]
        sent = [operation.client.delete_async(f"{parent}/{entry_name(number)}") for number in chunk]
        for result in sent:
            try:
                operation.wait(f"pruning {parent}", result)
                deleted += 1
            except NoNodeError:
                continue
    return deleted


def _numbers(operation: Operation, cluster: str) -> list[int]:
    """Return the numbers of all entries, newest first; nodes that are no entries are left out."""
    parent = history_path(cluster)
    try:
        children = operation.call(f"listing {parent}", operation.client.get_children_async, parent)
    except NoNodeError:
        return []
    return sorted((n for child in children if (n := entry_number(child)) is not None), reverse=True)


def _read(operation: Operation, cluster: str, numbers: Sequence[int]) -> Iterator[Record]:
    parent = history_path(cluster)
    paths = [(number, f"{parent}/{entry_name(number)}") for number in numbers]
    asked = [(number, path, operation.client.get_async(path)) for number, path in paths]
    for number, path, result in asked:
        try:
            data, stat = operation.wait(f"reading {path}", result)
        except NoNodeError:  # pruned meanwhile
            continue
        except AccessDeniedError as error:
            yield Record(number, time.time(), Unreadable(time.time(), str(error)))
            continue
        yield Record(number, stat.created, parse_entry(data, path, stat.created))
