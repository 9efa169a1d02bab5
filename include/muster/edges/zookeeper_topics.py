"""Topics from ZooKeeper: both nodes and the list of partitions of each, many in one request.

A second reading in the same process asks for the nodes again, whose stats tell what has changed since: a node's data
is what it was as long as its `mzxid` is, and its children as long as its `pzxid` is. Only what changed is listed and
taken apart again, so looking again costs little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kazoo.exceptions import NoNodeError

from muster.core.lenient import NUMBER
from muster.core.model import TopicSnapshot
from muster.core.wire import (
    MAX_PARTITION,
    WireError,
    assignment_path,
    parse_assignment,
    parse_state,
    state_path,
)
from muster.edges.zookeeper_multi_read import CHILDREN, DATA, Read, multi_read_async
from muster.edges.zookeeper_session import AccessDeniedError, Operation

NODES_AT_ONCE = 200
"""So many nodes are read in one request: an answer of some hundred kB, while the next is on its way."""

_Outcome = TopicSnapshot | WireError


@dataclass(frozen=True, slots=True)
class _Known:
    """What was read last of a topic, and the transactions its nodes stood at; -1 for a state that is not there."""

    changed: int
    children_changed: int
    state_changed: int
    partitions: frozenset[int]
    snapshot: TopicSnapshot


class TopicReader:
    """Reads topics of `cluster`, and remembers what it read."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._known: Mapping[str, _Known] = {}
        self._session = 0

    def read(self, names: Sequence[str], operation: Operation) -> dict[str, _Outcome]:
        """Read the topics `names`; those that vanished meanwhile are left out. One with invalid nodes, or that may
        not be read, maps to the error that says so. Raises `ZooKeeperError`."""
        known: dict[str, _Known] = {}
        found: dict[str, _Outcome] = {}
        before = self._known  # one reference: another thread may read, too
        if operation.session != self._session:
            before = {}  # what another session has read is read again
        paths = {name: assignment_path(self._cluster, name) for name in names}
        states = {name: state_path(self._cluster, name) for name in names}
        nodes = _ask(operation, DATA, [path for name in names for path in (paths[name], states[name])])
        # A first reading need not wait for the nodes.
        new = _ask(operation, CHILDREN, [paths[name] for name in names if name not in before])
        data, children = _answers(operation, nodes), _answers(operation, new)
        changed = [
            paths[name]
            for name in names
            if name in before
            and not isinstance(node := data[paths[name]], Exception)
            and node[1].pzxid != before[name].children_changed
        ]
        children |= _answers(operation, _ask(operation, CHILDREN, changed))
        for name in names:
            path, state = paths[name], states[name]
            try:
                nodes_of = (data[path], data[state], children.get(path))
                read = self._take(name, *nodes_of, before.get(name), operation)
            except NoNodeError:
                continue
            except (WireError, AccessDeniedError) as error:
                found[name] = WireError(str(error))
            else:
                known[name], found[name] = read, read.snapshot
        self._known, self._session = known, operation.session
        return found

    def _take(
        self,
        topic: str,
        assignment: Any,
        state: Any,
        children: Any,
        before: _Known | None,
        operation: Operation,
    ) -> _Known:
        path, state_at = assignment_path(self._cluster, topic), state_path(self._cluster, topic)
        data, stat = _readable(operation, assignment, f"reading {path}")
        try:
            state_data, state_stat = _readable(operation, state, f"reading {state_at}")
        except NoNodeError:
            state_data, state_stat = b"", None
        state_changed = -1 if state_stat is None else state_stat.mzxid
        if children is None and before is not None:
            if (stat.mzxid, state_changed) == (before.changed, before.state_changed):
                return before
            partitions = before.partitions
        else:
            partitions = _partitions(_readable(operation, children, f"listing {path}"), path)
        snapshot = TopicSnapshot(
            topic=topic,
            partitions=partitions,
            assignment=parse_assignment(data, path),
            assignment_version=stat.version,
            state=None if state_stat is None else parse_state(state_data, state_at),
            state_version=-1 if state_stat is None else state_stat.version,
            session=operation.session,
        )
        return _Known(stat.mzxid, stat.pzxid, state_changed, partitions, snapshot)


def _ask(operation: Operation, kind: int, paths: Sequence[str]) -> list[tuple[Sequence[str], Any]]:
    """Send reads of `paths`, many in one request: the paths of each request, and what becomes its answer."""
    chunks = [paths[start : start + NODES_AT_ONCE] for start in range(0, len(paths), NODES_AT_ONCE)]
    return [
        (chunk, multi_read_async(operation.client, [Read(kind, path) for path in chunk])) for chunk in chunks
    ]


def _answers(operation: Operation, asked: Sequence[tuple[Sequence[str], Any]]) -> dict[str, Any]:
    """Return the outcome of each read by its path; an exception where it failed."""
    found: dict[str, Any] = {}
    for paths, result in asked:
        outcomes = operation.wait(f"reading {len(paths)} nodes of topics", result)
        found.update(zip(paths, outcomes, strict=True))
    return found


def _readable(operation: Operation, outcome: Any, what: str) -> Any:
    """Return one part of an answer. Raises `NoNodeError`, or `ZooKeeperError` if it could not be read."""
    if isinstance(outcome, NoNodeError):
        raise outcome
    if isinstance(outcome, Exception):
        raise operation.error(what, outcome) from outcome
    return outcome


@lru_cache(maxsize=65_536)  # the same numbers stand below every topic
def _number(name: str) -> int | None:
    return int(name) if NUMBER.fullmatch(name) and int(name) <= MAX_PARTITION else None


def is_partition(name: str) -> bool:
    """Tell whether a child of a topic's node is a partition."""
    return _number(name) is not None


def _partitions(names: Iterable[str], path: str) -> frozenset[int]:
    numbers = [_number(name) for name in names]
    if None in numbers:
        wrong = next(name for name in names if not is_partition(name))
        raise WireError(f"ZooKeeper node {path}/{wrong} is not a partition number; delete it")
    return frozenset(number for number in numbers if number is not None)
