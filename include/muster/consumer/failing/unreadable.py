"""The partitions of a consumer that cannot be read, with those that fail for the same reason."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from muster.consumer.problems import SHOWN, UNREAD
from muster.consumer.shared import Shared
from muster.core.model import TopicPartition
from muster.core.unread import RETRY, Kind, ReadFailure, Unread


class Unreadable:
    """Leaves partitions out of batches, and says why. Is called under the lock."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._unread = Unread()

    @property
    def all(self) -> dict[TopicPartition, ReadFailure]:
        """All of them, with the reasons."""
        return self._unread.all

    def due(self, ready: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those of `ready` that are to be tried now."""
        return self._unread.due(ready, self._shared.clock())

    def leave_out(self, failure: ReadFailure) -> None:
        """Leave out a partition, and what is held and cannot be read for the same reason: a right is a whole topic's,
        say."""
        with self._shared.locked() as own:
            held = own.held
        failed = {failure.tp} & held.keys()
        if failure.kind is Kind.RIGHT:
            failed |= {tp for tp in held if tp[0] == failure.tp[0]}
        if failure.kind is Kind.KAFKA and failed:
            place = held[failure.tp].source.place
            failed |= {tp for tp, of in held.items() if of.source.place == place}
        at = {failure.tp: failure.offset}
        failures = {
            tp: replace(failure, tp=tp, offset=at.get(tp, held[tp].planned or failure.offset))
            for tp in failed
        }
        self._unread.note(failures, self._shared.clock())
        self._say()

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Have partitions read as usual."""
        if self._unread.forget(partitions):
            self._say()

    def _say(self) -> None:
        """Note what cannot be read: one problem for each topic and reason."""
        reasons: dict[str, list[ReadFailure]] = {}
        for (topic, _), failure in sorted(self.all.items()):
            reasons.setdefault(f"{UNREAD}{topic} ({failure.kind.lower()})", []).append(failure)
        again = f"Tried again every {RETRY:g} s, and the other partitions go on"
        self._shared.problems.note_all(
            UNREAD, {key: f"{_words(failures)}. {again}" for key, failures in reasons.items()}
        )


def _words(failures: list[ReadFailure]) -> str:
    """Name the partitions of a topic that cannot be read for one reason."""
    first, shown = failures[0], [failure.tp[1] for failure in failures[:SHOWN]]
    if len(failures) == 1:
        return str(first)
    more = f" and {len(failures) - SHOWN} more" if len(failures) > SHOWN else ""
    return (
        f"topic {first.tp[0]!r}, partitions {shown}{more}: they cannot be read, the first at offset {first.offset}: "
        f"{first.why}"
    )
