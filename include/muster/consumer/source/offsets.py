"""The arithmetic of a batch's offsets: from positions and ends to ranges and tasks. Pure; no I/O, no clock.

A *position* is the offset of the next record to read, a *range* `(from, to)` holds the records from `from` up to,
not including, `to`. An offset that Spark stores holds ranges (`muster.consumer.source.protocol.OffsetsJson`), so a
batch that is planned again is the same batch; the `to` of one batch is the `from` of the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.consumer.source.protocol import OffsetsJson
from muster.core.model import OffsetRange, TopicPartition

Ranges = Mapping[TopicPartition, OffsetRange]
Part = tuple[TopicPartition, int]
"""A partition, and which part of its range: 0 for the first, or for all of it."""

_RECORDS_A_TASK = 100
"""With fewer records a task than this, it does not matter who reads them."""
_UNEVEN = 1.25
"""How much larger than the best possible a slot may be for partitions to stay in theirs: one that moves to another
slot loses what was read ahead of it."""


class OffsetError(ValueError):
    """An offset from Spark's checkpoint is not one that this source has written."""


def parse_offsets(offsets: object) -> dict[TopicPartition, OffsetRange]:
    """Read `{topic: {"3": [from, to]}}`. Raises `OffsetError` naming what is wrong."""
    if not isinstance(offsets, Mapping):
        raise OffsetError(f"offset {offsets!r}: expected topics; use a new checkpoint for this source")
    ranges: dict[TopicPartition, OffsetRange] = {}
    for topic, partitions in offsets.items():
        if not isinstance(partitions, Mapping):
            raise OffsetError(
                f"offset of topic {topic!r}: {partitions!r}; use a new checkpoint for this source"
            )
        for partition, pair in partitions.items():
            try:
                start, end = (int(bound) for bound in pair)
                ranges[str(topic), int(partition)] = (start, end)
            except (TypeError, ValueError) as error:
                raise OffsetError(
                    f"offset of topic {topic!r}, partition {partition!r}: {pair!r} is not [from, to]; use a new "
                    "checkpoint for this source"
                ) from error
    return ranges


def format_offsets(ranges: Ranges) -> OffsetsJson:
    """Write ranges as Spark stores them. Spark compares offsets as text, so topics and partitions are sorted."""
    offsets: OffsetsJson = {}
    for topic, partition in sorted(ranges):
        offsets.setdefault(topic, {})[str(partition)] = ranges[topic, partition]
    return offsets


def admit(backlogs: Mapping[TopicPartition, int], limit: int | None) -> dict[TopicPartition, int]:
    """Decide how many records of each partition the next batch takes, `limit` in total (None: all of them).

    Half of the limit is shared equally, so that a partition with little to read is not kept waiting by those with
    much; the rest goes by backlog, so that all get to their ends at about the same time. Every partition that
    has records gets at least one: where the limit is smaller than their number, it is exceeded.
    """
    waiting = {tp: backlog for tp, backlog in backlogs.items() if backlog > 0}
    total = sum(waiting.values())
    if limit is None or total <= limit:
        return waiting
    floor = max(1, limit // (2 * len(waiting)))
    admitted = {tp: min(backlog, floor) for tp, backlog in waiting.items()}
    left = limit - sum(admitted.values())
    if left <= 0:
        return admitted
    rest = {tp: backlog - admitted[tp] for tp, backlog in waiting.items()}
    rest_total = sum(rest.values())
    for tp, backlog in rest.items():
        admitted[tp] += left * backlog // rest_total
    # Rounding down leaves fewer records than there are partitions; the longest backlogs get them.
    left = limit - sum(admitted.values())
    for tp in sorted(rest, key=lambda tp: (admitted[tp] - waiting[tp], tp))[:left]:
        admitted[tp] += 1
    return admitted


def next_ranges(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], limit: int | None
) -> dict[TopicPartition, OffsetRange]:
    """Plan the next batch: a range from each position on; empty where no end is known or nothing is left."""
    admitted = admit({tp: ends.get(tp, at) - at for tp, at in positions.items()}, limit)
    return {tp: (at, at + admitted.get(tp, 0)) for tp, at in positions.items()}


def moves(before: Ranges, after: Ranges) -> bool:
    """Tell whether `after` is a batch of its own: another set of partitions than `before`, or some record to read."""
    return before.keys() != after.keys() or any(
        after[tp][0] != before[tp][1] or after[tp][1] != after[tp][0] for tp in after
    )


def parts(ranges: Ranges, number: int) -> dict[Part, OffsetRange]:
    """Divide ranges until there are `number` parts, each about as large as the others; fewer where records are few.

    As many as there are partitions, or more, stay whole.
    """
    sizes = {tp: end - start for tp, (start, end) in ranges.items()}
    into = dict.fromkeys(ranges, 1)
    while sum(into.values()) < number:
        divisible = [tp for tp in ranges if sizes[tp] >= _RECORDS_A_TASK * (into[tp] + 1)]
        if not divisible:
            break
        into[max(divisible, key=lambda tp: (sizes[tp] / into[tp], tp))] += 1
    return {
        (tp, part): (
            start + sizes[tp] * part // into[tp],
            start + sizes[tp] * (part + 1) // into[tp],
        )
        for tp, (start, _) in ranges.items()
        for part in range(into[tp])
    }


def joined(ranges: Mapping[Part, OffsetRange], of: Mapping[Part, Part]) -> dict[Part, OffsetRange]:
    """Return a range for what is to be read by one task, by `of`, as large as all of that together."""
    found: dict[Part, OffsetRange] = {}
    for part, (start, end) in ranges.items():
        begin, upto = found.get(of[part], (start, start))
        found[of[part]] = (begin, upto + end - start)
    return found


def slots(ranges: Mapping[Part, OffsetRange], number: int, before: Mapping[Part, int]) -> dict[Part, int]:
    """Choose which of `number` tasks reads each part: that which read it `before`, as far as it is about even.

    All have about as many, and about as many records as can be: if not, those with records are distributed again,
    largest first. Few records are left where they are. Where there are no more parts than tasks, each has its own.
    """
    placed = {of: before[of] for of in sorted(ranges) if before.get(of, number) < number}
    counts = [0] * number
    for slot in placed.values():
        counts[slot] += 1
    for of in sorted(ranges.keys() - placed.keys()):
        placed[of] = counts.index(min(counts))
        counts[placed[of]] += 1
    while max(counts) - min(counts) > 1:
        fullest, emptiest = counts.index(max(counts)), counts.index(min(counts))
        placed[max(of for of, slot in placed.items() if slot == fullest)] = emptiest
        counts[fullest] -= 1
        counts[emptiest] += 1
    sizes = [0] * number
    for of, (start, end) in ranges.items():
        sizes[placed[of]] += end - start
    filled = sorted((of, bounds) for of, bounds in ranges.items() if bounds[1] > bounds[0])
    if sum(sizes) < number * _RECORDS_A_TASK:
        return placed
    best = _by_size(filled, min(number, len(filled)))
    if max(sizes) > _UNEVEN * max(map(_size, best)):
        placed |= {of: slot for slot, group in enumerate(best) for of, _ in group}
    return placed


def _by_size(filled: Iterable[tuple[Part, OffsetRange]], number: int) -> list[list[tuple[Part, OffsetRange]]]:
    groups: list[list[tuple[Part, OffsetRange]]] = [[] for _ in range(number)]
    sizes = [0] * number
    for item in sorted(filled, key=lambda item: (item[1][0] - item[1][1], item[0])):
        least = sizes.index(min(sizes))
        groups[least].append(item)
        sizes[least] += item[1][1] - item[1][0]
    return [sorted(group) for group in groups]


def _size(group: Iterable[tuple[Part, OffsetRange]]) -> int:
    return count(bounds for _, bounds in group)


def count(ranges: Iterable[OffsetRange]) -> int:
    """Count the offsets that the ranges span: the number of records, where none is compacted away."""
    return sum(end - start for start, end in ranges)
