"""What one Kafka cluster says about offsets, asked so that a cluster in trouble holds up no other.

As long as a cluster answers, each planning asks it and waits. After a failure the next plannings do not wait:
they try again in the background, plan without this cluster meanwhile, and ask it as before once it has answered.
Likewise a partition that the cluster cannot answer for is left out of the questions of the next seconds.

The clients stay open all the while: `muster.edges.kafka` asks for the leaders again where that is what is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar, cast

from muster.core.model import TopicPartition
from muster.core.positions import Committed
from muster.edges.kafka import KafkaError, PartitionError
from muster.settings.connections import KafkaSettings


class OffsetsClient(Protocol):
    """What the planner needs to know of a group's offsets; `muster.edges.kafka.GroupOffsets` gives it.

    Calls raise `PartitionError` if they cannot answer for some partitions, `KafkaError` if for none.
    """

    def positions(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Committed | None]:
        """Return the group's committed offsets with their metadata, None where there is none."""

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the first offsets that Kafka still has."""

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the offsets after the last records that may be read."""

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return the ids under which Kafka has these topics now, as far as it tells."""

    def close(self) -> None:
        """Leave Kafka."""


_LEAVE_OUT = 2.0
"""Seconds for which a partition is not asked about after it could not be answered for."""

OpenOffsets = Callable[[KafkaSettings, str], OffsetsClient]
"""Settings and group id to offsets."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a planning wants to know of a cluster.

    `partitions` by group id: their ends are asked for. `unchecked` are those whose committed offset and
    beginning are asked for as well; `behind` those whose beginning is; `doubtful` those whose beginning and topic's
    id are.
    """

    partitions: Mapping[str, Collection[TopicPartition]]
    unchecked: frozenset[TopicPartition] = frozenset()
    doubtful: frozenset[TopicPartition] = frozenset()
    behind: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class OffsetsReply:
    """What the cluster said; `errors` says why it could not answer for a partition at present. `topic_ids` are those
    under which it has the topics now."""

    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    earliest: Mapping[TopicPartition, int] = field(default_factory=dict)
    committed: Mapping[TopicPartition, Committed | None] = field(default_factory=dict)
    errors: Mapping[TopicPartition, str] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)


class ClusterOffsets:
    """One Kafka cluster, for one planner. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        settings: KafkaSettings,
        open_offsets: OpenOffsets,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._open = open_offsets
        self._clock = clock
        self._groups: dict[str, OffsetsClient] = {}
        self._left_out: dict[TopicPartition, tuple[float, str]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="muster-offsets")
        self._probe: Future[OffsetsReply] | None = None
        self.problem = ""
        """Why the last question found no answer; empty if it found one."""

    def ask(self, question: Question) -> Callable[[], OffsetsReply | None]:
        """Begin to ask; the result waits for the answer, or is None at once while the cluster is in trouble.

        So the questions to several clusters are under way at the same time.
        """
        if self._probe is not None:
            if not self._probe.done():
                return lambda: None
            if self._probe.exception() is not None:
                self._note(self._probe.exception())
                self._probe = self._thread.submit(self._answer, question)
                return lambda: None
            # It answers again. What it answered belongs to an earlier question, so it is asked afresh.
            self._probe = None
        future = self._thread.submit(self._answer, question)
        return lambda: self._await(future)

    def close(self) -> None:
        """Leave Kafka; does not wait for a call that is under way."""
        self._thread.submit(self._close_groups)
        self._thread.shutdown(wait=False)

    def _await(self, future: Future[OffsetsReply]) -> OffsetsReply | None:
        if future.exception() is None:
            self.problem = ""
            return future.result()
        self._note(future.exception())
        self._probe = future
        return None

    def _note(self, error: BaseException | None) -> None:
        if not isinstance(error, KafkaError):
            raise error or AssertionError("noted the failure of a call that did not fail")
        self.problem = str(error)

    def _answer(self, question: Question) -> OffsetsReply:
        now = self._clock()
        self._left_out = {tp: (until, why) for tp, (until, why) in self._left_out.items() if until > now}
        errors = {tp: why for tp, (_, why) in self._left_out.items()}
        groups = {
            group: asked
            for group, partitions in question.partitions.items()
            if (asked := [tp for tp in partitions if tp not in errors])
        }
        if not groups:
            return OffsetsReply(errors=errors)
        failed: dict[TopicPartition, str] = {}
        answer = self._answer_for(groups, question, failed)
        if failed:
            until = self._clock() + _LEAVE_OUT  # what takes long to fail is left out no shorter
            self._left_out |= {tp: (until, why) for tp, why in failed.items()}
        return replace(answer, errors=errors | failed)

    def _answer_for(
        self,
        groups: Mapping[str, Collection[TopicPartition]],
        question: Question,
        failed: dict[TopicPartition, str],
    ) -> OffsetsReply:
        ends_of = self._group(next(iter(groups)))
        asked = frozenset(tp for partitions in groups.values() for tp in partitions)
        ends = _partly(ends_of.end_offsets, sorted(asked), failed)
        committed: dict[TopicPartition, Committed | None] = {}
        for group, partitions in groups.items():
            if unchecked := [tp for tp in partitions if tp in question.unchecked and tp not in failed]:
                committed.update(_partly(self._group(group).positions, unchecked, failed))
        doubtful = (question.unchecked | question.doubtful | question.behind) & asked - failed.keys()
        # Last, so that retention between two calls shows as a later beginning rather than as a lost one.
        earliest = _partly(ends_of.beginning_offsets, sorted(doubtful), failed) if doubtful else {}
        topics = {topic for topic, _ in question.doubtful & asked}
        ids: Mapping[str, str] = {}
        if topics:
            with suppress(KafkaError):  # whatever is not known of them waits
                ids = ends_of.topic_ids(sorted(topics))
        return OffsetsReply(ends, earliest, committed, topic_ids=ids)

    def _group(self, group: str) -> OffsetsClient:
        if group not in self._groups:
            self._groups[group] = self._open(self._settings, group)
        return self._groups[group]

    def _close_groups(self) -> None:
        for group in self._groups.values():
            group.close()
        self._groups.clear()


Value = TypeVar("Value", int, Committed | None)


def _partly(
    call: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, Value]],
    partitions: Iterable[TopicPartition],
    errors: dict[TopicPartition, str],
) -> Mapping[TopicPartition, Value]:
    """Return what `call` can answer; why it cannot answer for the others goes to `errors`."""
    try:
        return call(partitions)
    except PartitionError as error:
        errors.update(error.errors)
        return cast("Mapping[TopicPartition, Value]", error.offsets)
