"""What stands in ZooKeeper on the topics of a cluster: read all at once, write against the versions read.

The paths and keys are those of `muster.core.wire`. Every operation ends within `operation_timeout` seconds, or in
`ZooKeeperError`; after one from a write, read again (`muster.edges.zookeeper_session` says why).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from kazoo.exceptions import NodeExistsError, NoNodeError, NotEmptyError

from muster.core.history import (
    Entry,
    HistoryPage,
    Transitions,
    entry_prefix,
    format_entry,
    history_path,
    removal_of,
)
from muster.core.model import TopicAssignment, TopicSnapshot, Transition
from muster.core.progress import Look
from muster.core.wire import (
    Racks,
    WireError,
    assignment_path,
    assignments_path,
    check_topic,
    format_assignment,
    format_racks,
    parse_racks,
    partition_path,
    racks_parent,
    racks_path,
    state_path,
    states_path,
)
from muster.edges.zookeeper_history import append_entry, prune_history, read_history
from muster.edges.zookeeper_progress import read_look, write_look
from muster.edges.zookeeper_session import (
    AccessDeniedError,
    Operation,
    Session,
    TooLargeError,
    ZooKeeperError,
    make_client,
    start_client,
    stop_client,
)
from muster.edges.zookeeper_topics import TopicReader, is_partition
from muster.edges.zookeeper_transitions import too_large, write_transitions
from muster.settings.connections import ZooKeeperSettings

__all__ = ["TooLargeError", "TopicStore", "ZooKeeperError", "make_client", "start_client", "stop_client"]

OPERATIONS_AT_ONCE = 500
"""So many children at most are created or deleted in one multi."""
LARGEST_OPERATION = 1024
"""Bytes that one of them takes at most."""

T = TypeVar("T")


class TopicStore:
    """The nodes of one cluster's topics. A context manager: connected inside, thread-safe.

    Raises `ZooKeeperError` on entering when ZooKeeper is out of reach, and whenever an operation does not
    succeed within its deadline. With `read_only` the cluster's own nodes are not made if they are not there yet: it
    just has no topics then. `by` is who writes, for the history: a DAG and its run, a host, ...
    """

    def __init__(
        self, settings: ZooKeeperSettings, cluster: str, *, read_only: bool = False, by: str = ""
    ) -> None:
        self.cluster = cluster
        self._by = by
        self._read_only = read_only
        self._session = Session(settings)
        self._client = self._session.client
        self._assignments = assignments_path(cluster)
        self._states = states_path(cluster)
        self._reader = TopicReader(cluster)
        self._waiting: set[threading.Event] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> TopicStore:
        self._session.open()
        if self._read_only:
            return self
        try:
            self._ensure_parents(self._session.begin())
        except ZooKeeperError:
            self._session.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    # Reading

    def topics(self) -> list[str]:
        """Return the names of the topic nodes, in order."""
        operation = self._session.begin()
        if self._read_only and self._missing(self._assignments, operation):
            return []
        return sorted(self._children(self._assignments, operation))

    def snapshots(self) -> dict[str, TopicSnapshot | WireError]:
        """Read all topics, hundreds of them in one request.

        A topic with invalid nodes, or that may not be read, maps to the error that says so. The nodes of a topic
        are read one after the other; if another writes in between, `apply` finds out by the versions. What has not
        changed since it was read before is not listed and taken apart again.
        """
        operation = self._session.begin()
        # A follower may lag behind; what a run before this one wrote has to be seen.
        operation.call(f"syncing {self._assignments}", self._client.sync_async, "/")
        if self._read_only and self._missing(self._assignments, operation):
            return {}
        found: dict[str, TopicSnapshot | WireError] = {}
        names = []
        for name in sorted(self._children(self._assignments, operation)):
            try:
                names.append(check_topic(name))
            except WireError as error:
                found[name] = WireError(
                    f"ZooKeeper node {self._assignments}/{name}: {error}; delete the node"
                )
        found.update(self._reader.read(names, operation))
        return found

    # Topics and partitions

    def create_topic(
        self, topic: str, bootstrap_servers: str, group_id: str, epoch: int = 0, topic_id: str = ""
    ) -> bool:
        """Make `topic` known from `epoch` on, without owners. False if it is known already.

        A node that is there without data gets it; a state that an earlier topic of that name left is deleted.
        """
        path, state = assignment_path(self.cluster, topic), state_path(self.cluster, topic)
        what = f"creating topic {topic}"
        operation = self._session.begin()
        data = format_assignment(TopicAssignment(bootstrap_servers, group_id, epoch=epoch, topic_id=topic_id))
        present = self._client.get_async(path)
        old_state = self._client.exists_async(state)
        transaction = self._client.transaction()
        try:
            found, stat = operation.wait(what, present)
            if found:
                return False
            transaction.set_data(path, data, stat.version)
        except NoNodeError:
            transaction.create(path, data)
        if (old := operation.wait(what, old_state)) is not None:
            transaction.delete(state, old.version)
        refusal = operation.commit(what, transaction)
        if isinstance(refusal, NoNodeError):
            self._ensure_parents(operation)
            raise ZooKeeperError(f"{what}: {path} or its parents were deleted in between; try again")
        return refusal is None

    def set_partitions(
        self, topic: str, partitions: frozenset[int], known: frozenset[int] | None = None
    ) -> None:
        """Create the missing partition children and delete those that vanished; others stay as they are.

        Vanished are those of `known` (None: of all there are) that are not in `partitions`.

        Children that are no partition numbers are left alone. Raises `ZooKeeperError` if the topic is unknown.
        """
        path = assignment_path(self.cluster, topic)
        what = f"writing the partitions of {topic}"
        operation = self._session.begin()
        while True:
            present = {int(child) for child in self._children(path, operation) if is_partition(child)}
            changes = [(p, True) for p in sorted(partitions - present)]
            vanished = present - partitions if known is None else (present & known) - partitions
            changes += [(p, False) for p in sorted(vanished)]
            refusal = None
            for chunk in _chunks(changes, _at_once(operation)):
                transaction = self._client.transaction()
                for partition, create in chunk:
                    child = partition_path(self.cluster, topic, partition)
                    if create:
                        transaction.create(child)
                    else:
                        transaction.delete(child)
                if (refusal := operation.commit(what, transaction)) is not None:
                    break
            if refusal is None:
                return
            if isinstance(refusal, NotEmptyError):
                raise ZooKeeperError(f"{what}: a partition below {path} has children; delete them")
            # Another writer created or deleted one of them in between: look again, as long as there is time.
            if operation.left() <= 0:
                raise ZooKeeperError(
                    f"{what}: {path} keeps changing while it is written; see who else writes it"
                )

    # Racks

    def racks(self, topics: Iterable[str]) -> dict[str, Racks | WireError]:
        """Return the racks of the leaders of those of `topics` where they are known, all asked for at once.

        A node with invalid data, or that may not be read, gives the error that says so.
        """
        operation = self._session.begin()
        parent = racks_parent(self.cluster)
        try:
            present = operation.call(f"listing {parent}", self._client.get_children_async, parent)
        except NoNodeError:
            return {}
        paths = {topic: racks_path(self.cluster, topic) for topic in sorted(set(topics) & set(present))}
        asked = {topic: self._client.get_async(path) for topic, path in paths.items()}
        found: dict[str, Racks | WireError] = {}
        for topic, path in paths.items():
            try:
                data, _ = operation.wait(f"reading {path}", asked[topic])
                found[topic] = parse_racks(data, path)
            except NoNodeError:
                continue
            except (WireError, AccessDeniedError) as error:
                found[topic] = WireError(str(error))
        return found

    def set_racks(self, topic: str, racks: Racks) -> None:
        """Note the racks of a topic's leaders in place of what was noted; without any, forget them.

        They only say what a plan would rather have, so they are written whatever their version.
        """
        operation = self._session.begin()
        path = racks_path(self.cluster, topic)
        what = f"writing {path}"
        if not racks:
            with suppress(NoNodeError):
                operation.call(what, self._client.delete_async, path)
            return
        data = format_racks(racks)
        try:
            operation.call(what, self._client.set_async, path, data)
        except NoNodeError:
            operation.call(what, self._client.ensure_path_async, racks_parent(self.cluster))
            with suppress(NodeExistsError):  # another writer was faster; the next run looks again
                operation.call(what, self._client.create_async, path, data)

    def remove_topic(self, topic: str, snapshot: TopicSnapshot, reason: str = "") -> bool:
        """Delete all that stands on `topic`; the history of the cluster says `reason`. False, and nothing is lost
        but partition children, if another wrote to it since `snapshot` was read."""
        path, state = assignment_path(self.cluster, topic), state_path(self.cluster, topic)
        racks = racks_path(self.cluster, topic)
        what = f"removing topic {topic}"
        operation = self._session.begin()
        with_racks = self._client.exists_async(racks)
        try:
            children = self._children(path, operation)
        except ZooKeeperError:
            if self._missing(path, operation):
                return False
            raise
        chunks = list(_chunks(children, _at_once(operation))) or [[]]
        for number, chunk in enumerate(chunks, start=1):
            transaction = self._client.transaction()
            transaction.check(path, snapshot.assignment_version)
            if snapshot.state is not None:
                transaction.check(state, snapshot.state_version)
            for child in chunk:
                transaction.delete(f"{path}/{child}")
            if number == len(chunks):
                transaction.delete(path, snapshot.assignment_version)
                if snapshot.state is not None:
                    transaction.delete(state, snapshot.state_version)
                if operation.wait(what, with_racks) is not None:
                    transaction.delete(racks)
                now = time.time()
                entry = format_entry(Transitions(now, self._by, (removal_of(snapshot, reason),)))
                transaction.create(entry_prefix(self.cluster), entry, sequence=True)
            if operation.commit(what, transaction, snapshot.session) is not None:
                # A history's node that was deleted looks like a conflict, and would always look so.
                self._ensure_parents(operation)
                return False
        return True

    # Transitions

    def apply(self, transitions: Sequence[Transition]) -> list[bool]:
        """Write transitions, both nodes of each against the versions that were read; say which were written.

        As many as fit go into one multi, so a step of many topics is written as a whole where it can be. If
        another writer wrote to one of the topics, only that one is left out (False); so is one that is too large, for
        which `TooLargeError` is raised once the others are written. The history of the cluster tells
        of each that was written, and of no other.
        """
        operation = self._session.begin()
        written = write_transitions(operation, self.cluster, transitions, self._by)
        if not all(written):
            # A state node's parent that was deleted looks like a conflict, and would always look so.
            self._ensure_parents(operation)
        return written

    def too_large(self, transitions: Iterable[Transition]) -> dict[str, str]:
        """Return the topics whose transition ZooKeeper would not take, each with its size, the limit and what to do;
        sends nothing."""
        return too_large(self._session.begin(), self.cluster, transitions, self._by)

    # History

    def append_history(self, entry: Entry) -> int:
        """Append an entry by itself, such as a command; return its number. Transitions bring theirs with `apply`."""
        return append_entry(self._session.begin(), self.cluster, entry)

    def history(self, *, limit: int = 100, before: int | None = None, since: float = 0.0) -> HistoryPage:
        """Return the newest entries, at most `limit`, of those numbered below `before` and written at or after
        `since` (seconds since the epoch); for the next page pass on the `before` of the last one."""
        return read_history(self._session.begin(), self.cluster, limit, before, since)

    def prune_history(self, *, keep_seconds: float, keep_entries: int, keep_bytes: int) -> int:
        """Delete entries that are older, and the oldest beyond so many entries or bytes; say how many."""
        return prune_history(self._session.begin(), self.cluster, keep_seconds, keep_entries, keep_bytes)

    # Progress

    def look(self) -> Look:
        """Return the last look at Kafka's offsets."""
        return read_look(self._session.begin(), self.cluster)

    def note_look(self, before: Look, after: Look) -> None:
        """Write the look `after`, which followed `before`."""
        write_look(self._session.begin(), self.cluster, before, after)

    # Waking

    def touch(self) -> None:
        """Wake every caller of `watch_changes`: the parent node is written again, with nothing in it."""
        operation = self._session.begin()
        operation.call(f"touching {self._assignments}", self._client.set_async, self._assignments, b"")

    def now(self) -> float:
        """Read the clock of ZooKeeper's leader, in seconds since the epoch: the same for all that coordinate.

        A write tells it; the node has nothing in it and no watches.
        """
        operation = self._session.begin()
        stat = operation.call("asking for the time", self._client.set_async, self._states, b"")
        return float(stat.mtime / 1000)

    def watch_changes(self, event: threading.Event) -> None:
        """Set `event` at the next `touch`, or when the connection is lost. Once: call it again for the next.

        Call it before reading what is to be watched, so that no change falls in between.
        """
        with self._lock:
            self._waiting.add(event)
        # kazoo keeps watches in a set, and the same bound method counts once however often it is registered.
        what = f"watching {self._assignments}"
        self._session.begin().call(what, self._client.get_async, self._assignments, self._woken)

    def _woken(self, _: object) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for event in waiting:
            event.set()

    # Plumbing

    def _ensure_parents(self, operation: Operation) -> None:
        for path in (self._assignments, self._states, history_path(self.cluster)):
            operation.call(f"creating {path}", self._client.ensure_path_async, path)

    def _missing(self, path: str, operation: Operation) -> bool:
        return operation.call(f"looking for {path}", self._client.exists_async, path) is None

    def _children(self, path: str, operation: Operation) -> list[str]:
        try:
            children: list[str] = operation.call(f"listing {path}", self._client.get_children_async, path)
        except NoNodeError as error:
            raise ZooKeeperError(
                f"ZooKeeper at {self._session.settings.hosts}: node {path} is not there; create the topic first"
            ) from error
        return children


def _at_once(operation: Operation) -> int:
    return max(1, min(OPERATIONS_AT_ONCE, operation.limit // LARGEST_OPERATION))


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
