"""All offsets of a cluster's topics at one moment: where partitions begin and end, what groups have committed, which
record is the first that is not committed, and for how long Kafka keeps it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from muster.core.model import TopicPartition
from muster.core.offsets import Retention, TopicOffsets
from muster.edges.kafka import KafkaError, PartitionError, TopicGroups
from muster.edges.kafka_readable import FirstRecords
from muster.settings.connections import KafkaSettings

T = TypeVar("T")

RETENTION_LASTS = 60.0
"""Seconds for which the retention of a topic is used again."""


class OffsetReader:
    """Reads the offsets of one cluster's topics. Connected from the first reading on; not thread-safe."""

    def __init__(
        self, settings: KafkaSettings, group_id: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._group_id = group_id
        self._clock = clock
        self._groups: TopicGroups | None = None
        self._records = FirstRecords(settings, group_id)
        self._retention: dict[str, tuple[float, Retention]] = {}

    def read_of(self, reads: Callable[[str], bool], groups: Mapping[str, str]) -> TopicOffsets:
        """Read the topics in Kafka that `reads` accepts; see `read`."""

        def listed(of: TopicGroups) -> Mapping[str, frozenset[int]]:
            there = of.default.topics.list_partitions()
            return {topic: partitions for topic, partitions in there.items() if reads(topic)}

        return self._read(listed, groups)

    def read(self, partitions: Mapping[str, frozenset[int]], groups: Mapping[str, str]) -> TopicOffsets:
        """Read these partitions; where one begins only if that decides whether it has lag.

        `groups` maps topics to the group that their assignment names, if that is not the one in the settings. Raises
        `KafkaError` if Kafka is out of reach; what else it cannot tell is in `errors`.
        """
        return self._read(lambda _: partitions, groups, beginnings=False)

    def close(self) -> None:
        """Let go of the connections."""
        self._records.close()
        groups, self._groups = self._groups, None
        if groups is not None:
            groups.close()

    def _read(
        self,
        partitions: Callable[[TopicGroups], Mapping[str, frozenset[int]]],
        groups: Mapping[str, str],
        *,
        beginnings: bool = True,
    ) -> TopicOffsets:
        if self._groups is None:
            self._groups = TopicGroups(self._settings, self._group_id)
        try:
            found = _offsets(self._groups, partitions(self._groups), groups, beginnings=beginnings)
            return self._with_records(self._groups, replace(found, at=self._clock()))
        except KafkaError:
            # librdkafka's admin client goes on asking with the leaders that it knows, and would fail for minutes.
            self.close()
            raise

    def _with_records(self, groups: TopicGroups, offsets: TopicOffsets) -> TopicOffsets:
        behind = {tp: (offsets.position(tp), end) for tp, end in offsets.ends.items() if offsets.lag(tp)}
        first, unread = self._records.read(behind)
        topics = {topic for (topic, _), record in first.items() if record is not None}
        now = self._clock()
        known = {t: each for t, each in self._retention.items() if 0 <= now - each[0] < RETENTION_LASTS}
        if asked := topics - known.keys():
            known |= {t: (now, each) for t, each in groups.default.topics.retention(asked).items()}
        self._retention = known
        retention = {topic: known[topic][1] for topic in topics & known.keys()}
        return replace(offsets, first=first, unread=unread, retention=retention)


def _offsets(
    groups: TopicGroups,
    found: Mapping[str, frozenset[int]],
    named: Mapping[str, str],
    *,
    beginnings: bool,
) -> TopicOffsets:
    tps = [(topic, partition) for topic in sorted(found) for partition in sorted(found[topic])]
    errors: list[str] = []

    def partly(
        ask: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, T]], of: list[TopicPartition]
    ) -> Mapping[TopicPartition, T]:
        """Return what `ask` can tell; what it says of the others goes to `errors`."""
        try:
            return ask(of) if of else {}
        except PartitionError as error:
            errors.append(str(error))
            return error.offsets

    # The ends last: read first, a group that is quick could be ahead of them.
    committed: dict[TopicPartition, int | None] = {}
    others: dict[str, str] = {}
    for group, of_group in groups.each(tps, named):
        committed |= partly(group.committed, of_group)
        if group is not groups.default:
            others |= {topic: group.group_id for topic, _ in of_group}
    begin = {} if not beginnings else partly(groups.default.beginning_offsets, tps)
    ends = partly(groups.default.end_offsets, tps)
    if not beginnings:
        behind = [tp for tp in tps if tp in committed and (committed[tp] or 0) < ends.get(tp, 0)]
        begin = partly(groups.default.beginning_offsets, behind)
    return TopicOffsets(found, ends, begin, committed, others, tuple(errors))
