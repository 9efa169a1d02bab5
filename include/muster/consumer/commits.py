"""The two ways to commit: fenced by the broker (`muster.edges.kafka_fencing`), or guarded by what the group has.

Both have the same three steps: a partition is *claimed* when it is taken up, before the committed offset is read that
it begins from; then come commits; then it is released. Both may refuse a commit for good, because another has
the partition now.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from muster.core.model import TopicPartition
from muster.core.positions import Committed, passed_by
from muster.edges.commit_outcome import Begin, Claims, CommitOutcome
from muster.edges.kafka import NO_METADATA, GroupOffsets, PartitionError
from muster.edges.kafka_fencing import FencedCommits


class GuardedCommits:
    """Plain commits that do not go below what another consumer has committed.

    Before each commit the group is asked what it has. If that is beyond the offset to commit, and is not what this
    consumer knows from its own take-up or last commit, another consumer has read on since, and the commit is refused.
    Between question and commit a moment remains, which only fencing closes.

    An offset beyond ours that was there already is no obstacle: the topic was made again, or records were deleted.
    """

    def __init__(self, group: GroupOffsets) -> None:
        self._group = group
        self._known: dict[TopicPartition, Committed | None] = {}
        self._lock = threading.Lock()

    def claim(self, partitions: Collection[TopicPartition], begin: Begin = lambda _: True) -> Claims:
        """Remember what the group has now."""
        failures: dict[TopicPartition, str] = {}
        wanted = [key for key in partitions if begin(key)]
        try:
            found: Mapping[TopicPartition, Committed | None] = self._group.positions(wanted)
        except PartitionError as error:
            found, failures = error.offsets, error.errors
        with self._lock:
            self._known.update(found)
        return Claims(frozenset(found), failures)

    def commit(
        self, offsets: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str] = NO_METADATA
    ) -> CommitOutcome:
        """Commit what the group is not ahead of."""
        outcome = CommitOutcome()
        try:
            found: Mapping[TopicPartition, Committed | None] = self._group.positions(offsets)
        except PartitionError as error:
            found = error.offsets
            outcome.failed.update(error.errors)
        with self._lock:
            known = dict(self._known)
        wanted: dict[TopicPartition, int] = {}
        for key, present in found.items():
            if present != known.get(key) and (
                why := passed_by(present, Committed(offsets[key], metadata.get(key, "")))
            ):
                outcome.refused[key] = why
            else:
                wanted[key] = offsets[key]
        try:
            self._group.commit(wanted, metadata)
            outcome.done.update(wanted)
        except PartitionError as error:
            outcome.done.update(error.offsets)
            outcome.failed.update(error.errors)
        with self._lock:
            self._known.update(
                {
                    key: Committed(at, metadata.get(key, ""))
                    for key, at in outcome.done.items()
                    if key in self._known
                }
            )
        return outcome

    def release(
        self, partitions: Collection[TopicPartition], ended: Callable[[TopicPartition], None] = lambda _: None
    ) -> None:
        """Forget them. `ended` is called for each, because nothing of its commits can take effect any more."""
        with self._lock:
            for key in partitions:
                self._known.pop(key, None)
        for key in partitions:
            ended(key)

    def close(self) -> None:
        """Do nothing: there is nothing of its own to let go of."""


Commits = FencedCommits | GuardedCommits
"""The commits of one group. Calls raise `KafkaError` if Kafka is out of reach for all partitions."""
