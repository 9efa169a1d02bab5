"""A Kafka consumer that is kept between batches and asked for ranges of offsets.

librdkafka fetches ahead, so while Spark is busy with one batch the records of the next arrive. A fetcher
therefore stays assigned to the partitions of the last batch, remembers up to where it handed records out, and
assigns a partition again only if the next range begins elsewhere (a batch that is run again) or the partition is
new. A range may be empty: then its partition is only kept. Records that came beyond the end of a range are kept for
the next one, up to a bound for all partitions.

A range is complete when a record at or beyond its end is seen, or Kafka says that the partition ends there: the
last offsets of a range may hold no record, because of compaction or a transaction's control records.

Records that Kafka no longer has do not hold up a range without end. What retention deleted between planning and
reading, or what went with a topic that was deleted or truncated, is left out with a warning that says how many
offsets; the planner sees the same and begins the partition where Kafka has it.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from muster.consumer.source import offsets
from muster.consumer.source.fetch_ahead import fetch_ahead
from muster.consumer.source.offsets import Range
from muster.consumer.source.records import Segment, offset_of, partition_of, topic_of
from muster.edges.kafka import librdkafka_logger
from muster.edges.kafka_admin import next_step

LOG = logging.getLogger(__name__)

_CHUNK_RECORDS = 4_000
_CHUNK_BYTES = 8 * 1024 * 1024
_PASS_OVER = 1_000
"""How many records are rather dropped as they come than a partition reassigned: two workers that Spark gives small
batches in turns both stay with all partitions, and each passes over what the other has read."""
_KEEP_RECORDS = 320_000
_KEEP_BYTES = 256 * 1024 * 1024
"""How much of what comes beyond a range is kept at most, for all partitions together: about what one fetch of 50
partitions brings when producers send batches of 1 MB. Less would have to be fetched again, most of it."""
_KEEP_UNTUNED = 3_200
"""The records of it as long as it is not known how large they are."""
_SHORT_WAIT, _LONG_WAIT = 0.01, 0.1
_LOOKUP_TIMEOUT = 10.0
_GONE_AFTER = 10.0
"""Seconds for which a topic must be missing, or end before a range does, until its records count as lost: a
leader that has just changed may for a moment know less."""

_MISSING = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
_REFUSED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
    }
)
_REFUSED_AFTER = 5.0
"""Seconds without a record after which a refused connection counts: one that has just been let in may be refused."""

_PREFERENCES = {
    # A partition whose queue is full is left alone for this long, a second by default: with it, reading is
    # ten times slower than what the broker gives.
    "fetch.queue.backoff.ms": "5",
    # The end of a partition is reported at the latest after this long, half a second by default.
    "fetch.wait.max.ms": "100",
    "reconnect.backoff.max.ms": "1000",
    # A broker that is cut off is given up about after this long, a minute by default; then its successor is asked.
    "socket.timeout.ms": "30000",
}
_FIXED = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    # An offset that Kafka no longer has must be reported, not passed over.
    "auto.offset.reset": "error",
}


class KafkaReadError(RuntimeError):
    """Records that were planned cannot be read; the message names topic, partition, offsets and Kafka."""


@dataclass(slots=True)
class _Partition:
    """`start`: the first offset not handed out yet; `next`: the one that the consumer brings next; `kept`: the
    records in between."""

    start: int
    next: int
    kept: list[Message] = field(default_factory=list)
    assigned: bool = True
    progress: float = 0.0
    gone_since: float | None = None

    def pass_over(self, start: int) -> None:
        """What another fetcher has handed out up to `start` is not wanted of this one any more."""
        del self.kept[: bisect_left(self.kept, start, key=offset_of)]
        self.start, self.next = start, max(start, self.next)


class RangeFetcher:
    """One consumer of one Kafka cluster; for one thread at a time.

    `config` are librdkafka properties with `bootstrap.servers` and `group.id`; the group is named for Kafka's
    access control only, nothing is committed or joined. `read_timeout` (seconds) is how long a partition may give
    nothing before `fetch` raises `KafkaReadError`.
    """

    def __init__(self, config: Mapping[str, str], read_timeout: float = 120.0) -> None:
        self._config = dict(config)
        self._servers = config.get("bootstrap.servers", "")
        self.read_timeout = read_timeout
        self._partitions: dict[offsets.TopicPartition, _Partition] = {}
        self._last_error = ""
        self._refused = False
        self._chunk = 100
        self._keep = _KEEP_UNTUNED
        self._one_topic = True
        try:
            self._consumer = Consumer(
                {**_PREFERENCES, **fetch_ahead(1), **config, **_FIXED, "error_cb": self._on_error},
                logger=librdkafka_logger(),
            )
        except (KafkaException, ValueError, TypeError) as error:
            raise KafkaReadError(
                f"Kafka at {self._servers}: librdkafka refuses its settings ({error}); correct the connection; files "
                "that it names must be there on the executors"
            ) from error

    def close(self) -> None:
        """Leave Kafka; the fetcher cannot be used again."""
        self._partitions.clear()
        self._consumer.close()

    def park(self) -> None:
        """Fetch nothing until the next `fetch`, and forget what was fetched ahead."""
        self._unassign(list(self._partitions))
        self._partitions.clear()

    def held(self) -> frozenset[offsets.TopicPartition]:
        """The partitions that it fetches ahead at present."""
        return frozenset(tp for tp, partition in self._partitions.items() if partition.assigned)

    def continues(self, ranges: Mapping[offsets.TopicPartition, Range]) -> int:
        """How many of `ranges` begin where it stands, so that nothing fetched for them would be thrown away."""
        return sum(
            (known := self._partitions.get(tp)) is not None and known.start == start
            for tp, (start, _) in ranges.items()
        )

    def tune(self, rows: int, size: int) -> None:
        """Tell that `rows` records took `size` bytes, so that chunks stay within a few megabytes."""
        size = max(size, 1)
        self._chunk = max(1, min(_CHUNK_RECORDS, _CHUNK_BYTES * rows // size))
        self._keep = min(_KEEP_RECORDS, _KEEP_BYTES * rows // size)

    def fetch(self, ranges: Mapping[offsets.TopicPartition, Range]) -> Iterator[list[Segment]]:
        """Hand out every record of `ranges`, each partition's in order, chunk by chunk.

        Raises `KafkaReadError` if a partition gives nothing for `read_timeout`, or Kafka refuses it.
        """
        pending = self._prepare(ranges)
        if kept := [segment for tp in ranges if (segment := self._take_kept(tp, ranges[tp][1]))[1]]:
            yield kept
        pending = {tp: end for tp, end in pending.items() if not self._complete(tp, end)}
        wait = _SHORT_WAIT
        while pending:
            wanted = offsets.count((self._partitions[tp].next, end) for tp, end in pending.items())
            messages = self._consumer.consume(min(self._chunk, wanted), wait)
            # The call returns when all that is wanted is there, or after `wait`: a long one would delay a
            # range whose last offsets hold no record.
            wait = _SHORT_WAIT if messages else min(2 * wait, _LONG_WAIT)
            chunk: list[Segment] = []
            for run in _runs(messages, self._one_topic) if messages else ():
                error = run[0].error()
                if error is None:
                    self._on_records((topic_of(run[0]), partition_of(run[0])), run, pending, chunk)
                else:
                    self._on_event(run[0], error, pending)
            if chunk:
                yield chunk
            elif not messages:
                self._check_progress(pending)
            self._let_go(pending)

    def _prepare(self, ranges: Mapping[offsets.TopicPartition, Range]) -> dict[offsets.TopicPartition, int]:
        """Have the consumer assigned to exactly what `ranges` needs; return each range's end."""
        now = time.monotonic()
        dropped = [tp for tp in self._partitions if tp not in ranges]
        added: dict[offsets.TopicPartition, int] = {}
        for tp, (start, end) in ranges.items():
            known = self._partitions.get(tp)
            if known is not None and known.start < start <= known.next + _PASS_OVER:
                known.pass_over(start)
            if known is not None and known.start != start:
                dropped.append(tp)
                known = None
            if known is None:
                added[tp] = start
            else:
                known.progress, known.gone_since = now, None
                if not known.assigned and known.next < end:
                    added[tp] = known.next
        self._unassign(dropped)
        for tp in dropped:
            del self._partitions[tp]
        for tp, at in added.items():
            partition = self._partitions.setdefault(tp, _Partition(at, at))
            partition.assigned, partition.progress = True, now
        if added:
            self._consumer.incremental_assign([TopicPartition(*tp, at) for tp, at in added.items()])
        self._one_topic = len({topic for topic, _ in self._partitions}) == 1
        return {tp: end for tp, (_, end) in ranges.items()}

    def _unassign(self, partitions: Sequence[offsets.TopicPartition]) -> None:
        assigned = [tp for tp in partitions if self._partitions[tp].assigned]
        for tp in assigned:
            self._partitions[tp].assigned = False
        if assigned:
            self._consumer.incremental_unassign([TopicPartition(*tp) for tp in assigned])

    def _take_kept(self, tp: offsets.TopicPartition, end: int) -> Segment:
        partition = self._partitions[tp]
        cut = bisect_left(partition.kept, end, key=offset_of)
        taken, partition.kept = partition.kept[:cut], partition.kept[cut:]
        partition.start = min(end, partition.next)
        return tp, taken

    def _complete(self, tp: offsets.TopicPartition, end: int) -> bool:
        partition = self._partitions[tp]
        if partition.next < end:
            return False
        partition.start = end
        return True

    def _on_records(
        self,
        tp: offsets.TopicPartition,
        run: Sequence[Message],
        pending: dict[offsets.TopicPartition, int],
        chunk: list[Segment],
    ) -> None:
        partition = self._partitions.get(tp)
        if partition is None or not partition.assigned:
            return
        if offset_of(run[0]) < partition.next:
            run = run[bisect_left(run, partition.next, key=offset_of) :]
            if not run:
                return
        partition.next = offset_of(run[-1]) + 1
        self._refused = False
        partition.progress, partition.gone_since = time.monotonic(), None
        end = pending.get(tp)
        if end is None:
            partition.kept.extend(run)
            return
        cut = len(run) if partition.next <= end else bisect_left(run, end, key=offset_of)
        if cut:
            chunk.append((tp, run[:cut]))
        partition.kept.extend(run[cut:])
        if self._complete(tp, end):
            del pending[tp]
        else:
            partition.start = partition.next

    def _on_event(
        self, message: Message, error: KafkaError, pending: dict[offsets.TopicPartition, int]
    ) -> None:
        """An error or the end of a partition, which librdkafka hands out between the records."""
        topic, number = message.topic(), message.partition()
        if topic is None or number is None or number < 0:
            self._on_error(error)
            self._on_topic_error(topic, error, pending)
            return
        tp = (topic, number)
        partition = self._partitions.get(tp)
        if partition is None or not partition.assigned:
            return
        end = pending.get(tp)
        if error.code() == KafkaError._PARTITION_EOF:
            partition.next = max(partition.next, offset_of(message))
            if end is None:
                return
            partition.start = partition.next
            if self._complete(tp, end):
                del pending[tp]
            elif partition.gone_since is None:
                partition.gone_since = time.monotonic()
            return
        self._on_error(error)
        if end is None:
            # No task waits for it; the next range begins with a fresh assignment and meets the error itself.
            self._unassign([tp])
        elif error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
            self._out_of_range(tp, pending)
        else:
            self._on_topic_error(tp[0], error, pending)

    def _on_topic_error(
        self, topic: str | None, error: KafkaError, pending: dict[offsets.TopicPartition, int]
    ) -> None:
        if topic is None:
            return
        if error.code() in _REFUSED and any(tp[0] == topic for tp in pending):
            step = next_step(self._config, error.str())
            raise KafkaReadError(f"Kafka at {self._servers}: topic {topic!r}: {error.str()}; {step}")
        if error.code() in _MISSING:
            for tp in pending:
                if tp[0] == topic and self._partitions[tp].gone_since is None:
                    self._partitions[tp].gone_since = time.monotonic()

    def _out_of_range(self, tp: offsets.TopicPartition, pending: dict[offsets.TopicPartition, int]) -> None:
        """Kafka does not have the offset that is asked for: before the beginning, or beyond the end."""
        partition, end = self._partitions[tp], pending[tp]
        bounds = self._bounds(tp)
        if bounds is None or partition.next > bounds[1]:
            # Perhaps only a leader that has just changed; `_check_progress` decides later.
            partition.gone_since = partition.gone_since or time.monotonic()
            return
        resume = max(partition.next, min(bounds[0], end))
        if resume > partition.next:
            LOG.warning(
                "Kafka at %s: topic '%s', partition %d: offsets %d to %d were deleted by retention before they "
                "were read: %d skipped; lengthen the topic's retention, or add consumers",
                self._servers, *tp, partition.next, resume - 1, resume - partition.next,
            )  # fmt: skip
        partition.next = partition.start = resume
        if self._complete(tp, end):
            self._unassign([tp])
            del pending[tp]
        else:
            self._assign_again(tp)

    def _assign_again(self, tp: offsets.TopicPartition) -> None:
        self._unassign([tp])
        partition = self._partitions[tp]
        partition.assigned = True
        self._consumer.incremental_assign([TopicPartition(*tp, partition.next)])

    def _give_up(
        self, tp: offsets.TopicPartition, pending: dict[offsets.TopicPartition, int], why: str
    ) -> None:
        partition, end = self._partitions[tp], pending.pop(tp)
        LOG.error(
            "Kafka at %s: topic '%s', partition %d: %s, so offsets %d to %d are gone: was the topic deleted, "
            "truncated or created again? They are skipped; the next plan begins where Kafka has the partition",
            self._servers, *tp, why, partition.next, end - 1,
        )  # fmt: skip
        self._unassign([tp])
        del self._partitions[tp]

    def _bounds(self, tp: offsets.TopicPartition) -> tuple[int, int] | None:
        """The partition's first and end offset, None if they are unavailable now.

        Asked by a consumer of its own, because this one may take an unfinished transaction for the end.
        """
        try:
            with closing(self._lookup_consumer()) as consumer:
                bounds = consumer.get_watermark_offsets(TopicPartition(*tp), timeout=_LOOKUP_TIMEOUT)
        except KafkaException as error:
            self._on_error(error.args[0])
            return None
        return None if bounds is None else (bounds[0], bounds[1])

    def _lookup_consumer(self) -> Consumer:
        return Consumer(
            {**self._config, **_FIXED, "isolation.level": "read_uncommitted", "error_cb": self._on_error},
            logger=librdkafka_logger(),
        )

    def _is_missing(self, tp: offsets.TopicPartition) -> bool:
        try:
            topic = self._consumer.list_topics(tp[0], timeout=_LOOKUP_TIMEOUT).topics.get(tp[0])
        except KafkaException as error:
            self._on_error(error.args[0])
            return False
        return (
            topic is None
            or (tp[1] not in topic.partitions and topic.error is None)
            or (topic.error is not None and topic.error.code() in _MISSING)
        )

    def _check_progress(self, pending: dict[offsets.TopicPartition, int]) -> None:
        now = time.monotonic()
        for tp in list(pending):
            partition = self._partitions[tp]
            if partition.gone_since is not None and now - partition.gone_since > _GONE_AFTER:
                partition.gone_since = now
                bounds = self._bounds(tp)
                if bounds is not None and bounds[1] < pending[tp]:
                    self._give_up(tp, pending, f"the partition ends at {bounds[1]}")
                    continue
                if bounds is None and self._is_missing(tp):
                    self._give_up(tp, pending, "there is no such partition")
                    continue
                self._assign_again(tp)
            patience = min(_REFUSED_AFTER, self.read_timeout) if self._refused else self.read_timeout
            if now - partition.progress > patience:
                raise KafkaReadError(
                    f"Kafka at {self._servers}: topic {tp[0]!r}, partition {tp[1]}: nothing at offset "
                    f"{partition.next} (of the planned {partition.start} to {pending[tp] - 1}) for "
                    f"{patience:g} s; last error: {self._last_error or 'none'}; from the executors, "
                    f"{next_step(self._config, self._last_error)}"
                )

    def _let_go(self, pending: Mapping[offsets.TopicPartition, int]) -> None:
        """Stop fetching what was fetched far beyond its range while other ranges are still under way."""
        bound = self._keep
        if sum(len(partition.kept) for partition in self._partitions.values()) <= bound:
            return
        bound //= len(self._partitions)
        self._unassign(
            [
                tp
                for tp, partition in self._partitions.items()
                if tp not in pending and len(partition.kept) > bound and partition.assigned
            ]
        )

    def _on_error(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self._last_error:
            self._last_error = error.str()
            self._refused = error.code() in _REFUSED


def _runs(messages: Sequence[Message], one_topic: bool) -> Iterator[Sequence[Message]]:
    """Cut what was consumed into runs of one partition; an event (an error, a partition's end) stands alone."""
    count = len(messages)
    numbers = np.fromiter(map(partition_of, messages), np.int64, count)
    cuts = {0, count, *(np.flatnonzero(np.diff(numbers)) + 1).tolist()}
    if any(map(Message.error, messages)):
        for at, message in enumerate(messages):
            if message.error() is not None:
                cuts |= {at, at + 1}
    if not one_topic:
        topics = list(map(topic_of, messages))
        cuts.update(at for at in range(1, count) if topics[at] != topics[at - 1])
    for start, stop in pairwise(sorted(cuts)):
        yield messages[start:stop]
