"""Offsets that come from elsewhere into a group: what was found, and what importing it changes. Pure.

Definitions
-----------

- *found*: the next offset to read of a partition, as the old consumer left it.
- *now*: what the group has committed, None for nothing. *earliest*, *end*: the first offset that Kafka still has of
  the partition, and the one after the last.
- An offset beyond *end* is of another topic: of one that was created again since, or of another Kafka. It is left
  out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from muster.core.model import TopicPartition

_KAFKA_08 = re.compile(r"\d{1,19}")
"""A consumer of Kafka 0.8 writes the next offset as decimal text."""
_CHECKPOINT = "v1"
_NO_OFFSETS = "-"


class ForeignOffsetsError(ValueError):
    """What was found is not what the old consumer writes; the message names the place and what was expected, and not
    what is there: a person may have named a place that they may not read."""


@dataclass(frozen=True, slots=True)
class Import:
    """What importing the offset `to` of one partition means."""

    topic: str
    partition: int
    to: int
    now: int | None
    earliest: int
    end: int

    @property
    def again(self) -> int:
        """Offsets that the group has read and reads again."""
        return 0 if self.now is None else max(0, self.now - self.to)

    @property
    def passed_over(self) -> int:
        """Offsets that the group has not read and leaves out."""
        return 0 if self.now is None else max(0, self.to - max(self.now, self.earliest))

    @property
    def lost(self) -> int:
        """Offsets that Kafka has no more."""
        return max(0, self.earliest - self.to)

    @property
    def left(self) -> int:
        return self.end - max(self.to, self.earliest)


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """What is imported, in order; `left_out` says why some was found and is not; `without` has no offset there."""

    imports: tuple[Import, ...]
    left_out: Mapping[TopicPartition, str]
    without: tuple[TopicPartition, ...]


def plan_import(
    found: Mapping[TopicPartition, int],
    now: Mapping[TopicPartition, int | None],
    earliest: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
) -> ImportPlan:
    """Plan what to import of `found`, where `now` has the partitions of the cluster."""
    imports: list[Import] = []
    left_out: dict[TopicPartition, str] = {}
    for tp, to in sorted(found.items()):
        if tp not in now:
            left_out[tp] = "the cluster does not read it, or Kafka does not have it"
        elif to > end[tp]:
            left_out[tp] = (
                f"offset {to} is beyond its end {end[tp]}: it is of an older topic or another Kafka"
            )
        else:
            imports.append(Import(*tp, to, now[tp], earliest[tp], end[tp]))
    return ImportPlan(tuple(imports), left_out, tuple(sorted(now.keys() - found.keys())))


def parse_zookeeper_offset(text: bytes, path: str) -> int:
    """Parse the offset in a node `/consumers/[group]/offsets/[topic]/[partition]`. Raises `ForeignOffsetsError`."""
    decoded = text.decode("ascii", "replace").strip()
    if not _KAFKA_08.fullmatch(decoded):
        raise ForeignOffsetsError(
            f"ZooKeeper node {path}: expected an offset as decimal text, found {len(text)} bytes of another form; "
            "correct or delete it"
        )
    return int(decoded)


def parse_checkpoint_offsets(text: str, path: str) -> dict[TopicPartition, int]:
    """Parse the ends of a batch in a file of a checkpoint's folder `offsets`.

    After the version and the batch's metadata there is a line for each source: `-`, or JSON of which Kafka's is
    `{"topic": {"partition": offset}}`. Raises `ForeignOffsetsError`, also if two sources read one topic.
    """
    version, *lines = text.splitlines() or [""]
    if version != _CHECKPOINT or not lines:
        raise ForeignOffsetsError(
            f"{path}: expected Spark's offset log of version {_CHECKPOINT}, and it is of another form; give the "
            "offsets to another group with Kafka's own tools, and import them from there"
        )
    found: dict[TopicPartition, int] = {}
    for line in lines[1:]:
        for tp, offset in _of_kafka(line):
            if tp in found:
                raise ForeignOffsetsError(f"{path}: two sources of the query read topic {tp[0]!r}")
            found[tp] = offset
    return found


def _of_kafka(line: str) -> Iterator[tuple[TopicPartition, int]]:
    """Yield the offsets in the line of a source; none if it is not Kafka's."""
    try:
        read = None if line == _NO_OFFSETS else json.loads(line)
    except ValueError:
        return
    if not isinstance(read, dict) or not all(isinstance(each, dict) for each in read.values()):
        return
    for topic, partitions in read.items():
        for partition, offset in partitions.items():
            if str(partition).isdecimal() and isinstance(offset, int) and offset >= 0:
                yield (topic, int(partition)), offset
