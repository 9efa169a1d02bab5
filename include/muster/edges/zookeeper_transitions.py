"""Transitions to multis: both nodes of a topic in one, several topics in one as far as they fit.

Each multi also adds its entry of the cluster's history, so that history and state cannot differ.

kazoo's `with client.transaction()` throws the results away; here each is looked at.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from muster.core.history import MOVES_BYTES, Step, Transitions, entry_prefix, format_entry, step_of, step_size
from muster.core.model import Transition
from muster.core.wire import assignment_path, format_assignment, format_state, state_path
from muster.edges.zookeeper_multi_write import OPERATION_OVERHEAD, size_of
from muster.edges.zookeeper_session import Operation, TooLargeError

BYTES_AT_ONCE = 512 * 1024
"""So much is written in one multi, besides the moves in its history (`muster.core.history.MOVES_BYTES`), if it is of
several topics; ZooKeeper refuses requests of a megabyte (`jute.maxbuffer`)."""
TOPICS_NAMED = 3
"""An error names so many topics of a multi."""


@dataclass(frozen=True)
class _Write:
    """One transition as it goes over the wire."""

    transition: Transition
    assignment_path: str
    assignment: bytes
    state_path: str
    state: bytes
    step: Step

    @property
    def size(self) -> int:
        paths = len(self.assignment_path) + len(self.state_path)
        data = len(self.assignment) + len(self.state) + step_size(self.step)
        return data + paths + 2 * OPERATION_OVERHEAD


def write_transitions(
    operation: Operation, cluster: str, transitions: Sequence[Transition], by: str
) -> list[bool]:
    """Write each transition against the versions it was computed from; True for each that was written. The history
    says that they are `by` this writer.

    False means that another writer wrote to that topic first. Raises `ZooKeeperError` when ZooKeeper does not
    answer in time or refuses; then earlier multis of the same call may have been written. Raises `TooLargeError` in
    the end, with all others written, if one is larger than ZooKeeper takes.
    """
    written: list[bool] = []
    oversized: TooLargeError | None = None
    now = time.time()
    make = partial(_transaction, operation, entry_prefix(cluster), by, now)
    room = min(BYTES_AT_ONCE, operation.limit - MOVES_BYTES)
    for batch in _batches((_write(cluster, transition, now) for transition in transitions), room):
        read_in = batch[0].transition.before.session
        try:
            done = operation.commit(_what(batch), make(batch), read_in) is None
        except TooLargeError as error:  # of one topic alone: several are never put together beyond the limit
            oversized = error
            continue
        if done:
            written += [True] * len(batch)
        elif len(batch) == 1:
            written.append(False)
        else:
            # One topic's conflict is not the others' fault: each by itself, all on the way together.
            alone = [(write, make([write])) for write in batch]
            sent = [(write, each, operation.send(_what([write]), each, read_in)) for write, each in alone]
            written += [
                operation.outcome(_what([write]), transaction, result) is None
                for write, transaction, result in sent
            ]
    if oversized is not None:
        raise oversized
    return written


def too_large(
    operation: Operation, cluster: str, transitions: Iterable[Transition], by: str
) -> dict[str, str]:
    """Return the topics whose transition is larger than ZooKeeper takes in one write, with what to do about it."""
    found: dict[str, str] = {}
    now = time.time()
    for transition in transitions:
        write = _write(cluster, transition, now)
        transaction = _transaction(operation, entry_prefix(cluster), by, now, [write])
        try:
            operation.compare(_of_partitions(transition), size_of(transaction.operations))
        except TooLargeError as error:
            found[transition.topic] = str(error)
    return found


def _of_partitions(transition: Transition) -> str:
    return f"topic {transition.topic} with {len(transition.before.partitions)} partitions"


def _write(cluster: str, transition: Transition, now: float) -> _Write:
    before = transition.before
    if before.assignment_version < 0 or (before.state is not None and before.state_version < 0):
        # -1 would mean "whatever the version", and overwrite what others wrote.
        raise ValueError(f"topic {before.topic}: a transition needs the versions that were read")
    return _Write(
        transition,
        assignment_path(cluster, before.topic),
        format_assignment(transition.assignment),
        state_path(cluster, before.topic),
        format_state(transition.state),
        step_of(transition, now),
    )


def _transaction(operation: Operation, entries: str, by: str, now: float, writes: Sequence[_Write]) -> Any:
    transaction = operation.client.transaction()
    for write in writes:
        before = write.transition.before
        if write.transition.assignment == before.assignment:
            # Every consumer of the cluster watches this node: those writes that change nothing would wake them all.
            transaction.check(write.assignment_path, before.assignment_version)
        else:
            transaction.set_data(write.assignment_path, write.assignment, before.assignment_version)
        if before.state is None:
            transaction.create(write.state_path, write.state)
        elif write.transition.state == before.state:
            transaction.check(write.state_path, before.state_version)
        else:
            transaction.set_data(write.state_path, write.state, before.state_version)
    entry = format_entry(Transitions(now, by, tuple(write.step for write in writes)))
    transaction.create(entries, entry, sequence=True)
    return transaction


def _what(batch: Sequence[_Write]) -> str:
    names = ", ".join(write.transition.topic for write in batch[:TOPICS_NAMED])
    more = len(batch) - TOPICS_NAMED
    return f"writing {names}" + (f" and {more} more topics" if more > 0 else "")


def _batches(writes: Iterable[_Write], room: int) -> Iterator[list[_Write]]:
    batch: list[_Write] = []
    size = 0
    for write in writes:
        other = batch and write.transition.before.session != batch[0].transition.before.session
        if other or (batch and size + write.size > room):
            yield batch
            batch, size = [], 0
        batch.append(write)
        size += write.size
    if batch:
        yield batch
