"""What sinks have of the records that a seek has read, as their consumers report it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from muster.core.model import Stored, TopicPartition
from muster.core.moments import to_iso
from muster.core.partition_list import format_partitions

NO_SINK = "no sink known"
UNKNOWN = "what sinks have is unknown"

Known = Mapping[str, Stored] | str
"""What sinks have of a partition, by their names; or why that is not known."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a seek of partitions to the offsets that `begins` has means for their sinks, by what is `known` of them.

    A sink leaves out what it has; with a `rebuild` it writes that again.
    """

    begins: Mapping[TopicPartition, int]
    known: Mapping[TopicPartition, Known]
    rebuild: bool = False

    def of(self, tp: TopicPartition) -> str:
        """Say it of one partition, to follow a statement; '' where nothing is known."""
        known = self.known[tp]
        does = "has {} of them and writes them again" if self.rebuild else "leaves out {} of them"
        sinks = {} if isinstance(known, str) else known
        return "".join(
            f"; {sink} {does.format(self._records(tp, stored))}" for sink, stored in sorted(sinks.items())
        )

    def summary(self) -> Iterator[str]:
        """Say it of all partitions: a line for each sink, and for what is not known."""
        sinks: defaultdict[str, list[TopicPartition]] = defaultdict(list)
        others: defaultdict[str, list[TopicPartition]] = defaultdict(list)
        for tp, known in sorted(self.known.items()):
            for sink in {} if isinstance(known, str) else known:
                sinks[sink].append(tp)
            if not known or isinstance(known, str):
                others[f"{UNKNOWN}: {known}" if known else NO_SINK].append(tp)
        for sink, partitions in sorted(sinks.items()):
            yield self._of_sink(sink, partitions)
        for why, partitions in others.items():
            yield f"{_named(partitions)}: {why}"

    def _of_sink(self, sink: str, partitions: list[TopicPartition]) -> str:
        stored = {tp: known[sink] for tp in partitions if not isinstance(known := self.known[tp], str)}
        records = sum(_within(of, self.begins[tp]) for tp, of in stored.items())
        least = "at least " if any(_is_cut(of, self.begins[tp]) for tp, of in stored.items()) else ""
        seen = f"by what it had at {to_iso(min(of.at for of in stored.values()))}"
        if not self.rebuild:
            return f"{sink} leaves out {least}{records} record(s), {seen}"
        first = "; delete them there first, or they stand twice" if records else ""
        return f"{sink} has {least}{records} of these record(s) and writes them again, {seen}{first}"

    def _records(self, tp: TopicPartition, stored: Stored) -> str:
        least = "at least " if _is_cut(stored, self.begins[tp]) else ""
        return f"{least}{_within(stored, self.begins[tp])}"


def _within(stored: Stored, begin: int) -> int:
    return sum(end - max(first, begin) for first, end in stored.ranges if end > begin)


def _is_cut(stored: Stored, begin: int) -> bool:
    """Tell whether ranges that are not named may hold records from `begin` on."""
    return stored.more > 0 and begin < stored.ranges[0][0]


def _named(partitions: list[TopicPartition]) -> str:
    topics: defaultdict[str, set[int]] = defaultdict(set)
    for topic, partition in partitions:
        topics[topic].add(partition)
    return "; ".join(f"topic {topic}, partition(s) {format_partitions(of)}" for topic, of in topics.items())
