"""Since when each partition with unread records stands at its committed offset: what all that is named follows from.

The coordinator looks at Kafka's offsets once a minute and keeps a `Look` in ZooKeeper. A partition has a
mark in it while it has records that are not committed, or while its lag is unknown. The mark begins at the first look
that finds it so, and again when the committed offset is another one. It is no other one when what was read from is
committed, or when what was committed is deleted or becomes known. Nothing that a consumer or a node says counts
for that, so a partition without any reader has a mark as well. One has none where nothing but markers of transactions
and the like is left. Pure; times are seconds since the epoch.

The marks also keep where the partition was read up to, and ended, at the last two *points*: looks that are half a
minute apart or more. Later readings of the offsets are compared with these (`muster.core.time_lag`).

The marks are in `NODES` nodes, each topic always in the same one, so that each fits into a request. A node holds
`{"topic": {"1764338400": {"0": [120, 120, 250, 90, 240], "7": [null]}}}`: since when, partition, committed offset,
and position and end at each point, the newest first. The parent holds `{"at": 1764338460, "points": [1764338460]}`,
the times of the look and of the points. A look writes what has changed and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from zlib import crc32

from muster.core.model import TopicPartition
from muster.core.offsets import TopicOffsets
from muster.core.wire import check_id, to_json

NODES = 16
LONGEST_NODE = 900_000
"""Bytes; ZooKeeper takes a million. Where more is marked, the newest marks are left out."""
UNKNOWN = "?"
"""Stands behind the time of marks whose lag is unknown."""
SHOWN_ERRORS, LONGEST_ERROR = 3, 300
POINT_EVERY, POINTS = 30.0, 2
"""Seconds between two points at least, and how many are kept."""
LOOK_EVERY = 60.0
"""Seconds between two looks; a fifth of `stuck_after` where that is less."""
SHARE = 20.0
"""Looks come at least so many times as far apart as one takes."""


Point = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a partition stands: its committed offset, or where it is read from while there is none (None: that is
    unknown), and since when it is seen there with records to read, or with an unknown lag."""

    offset: int | None
    since: int
    known: bool = True
    """Whether the lag is known: Kafka said what is committed, and where the partition ends."""
    points: tuple[Point, ...] = ()
    """Where it was read up to, and ended, at the look's points, as far back as it has had the mark."""


@dataclass(frozen=True)
class Look:
    """The marks that the last look at Kafka's offsets left, and when it was; `at` is 0 before the first. `errors` is
    what Kafka said of partitions whose lag is unknown."""

    at: float = 0.0
    marks: Mapping[TopicPartition, Mark] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    took: float = 0.0
    """Seconds that reading the offsets took."""
    points: tuple[int, ...] = ()
    """When the marks' points were, the newest first."""

    def standing(self, now: float, seconds: float) -> dict[str, dict[int, Mark]]:
        """Return the partitions that have not moved for more than `seconds`, by topic."""
        found: dict[str, dict[int, Mark]] = {}
        for (topic, partition), mark in sorted(self.marks.items()):
            if now - mark.since > seconds:
                found.setdefault(topic, {})[partition] = mark
        return found

    def pause(self, stuck_after: float) -> float:
        """Return the seconds until the next look. It is later where a look takes long, so that looks take a twentieth
        of a machine at most, but not later than `stuck_after`."""
        return min(max(min(LOOK_EVERY, stuck_after / 5), SHARE * self.took), stuck_after)


def look(
    before: Look, partitions: Iterable[TopicPartition], offsets: TopicOffsets, now: float, took: float = 0.0
) -> Look:
    """Return the look that follows `before`, by the `offsets` that were read `now`, which `took` so many seconds."""
    marks: dict[TopicPartition, Mark] = {}
    points = _points(before, now)
    for tp in partitions:
        lag = offsets.lag(tp)
        if lag == 0:
            continue
        known = before.marks.get(tp)
        offset = offsets.committed.get(tp)
        if offset is None:
            offset = offsets.beginnings.get(tp) if known is None or known.offset is None else known.offset
        stays = known is not None and known.offset in {offset, None}
        since = known.since if stays and known is not None else int(now)
        kept = () if known is None else known.points
        if points != before.points:
            there = ((offsets.position(tp), offsets.ends[tp]),) if lag is not None else ()
            kept = (*there, *kept)[: len(points)] if there else ()
        marks[tp] = Mark(offset, since, lag is not None, kept)
    errors = tuple(error[:LONGEST_ERROR] for error in offsets.errors[:SHOWN_ERRORS])
    return Look(now, marks, errors, round(took, 1), points)


def _points(before: Look, now: float) -> tuple[int, ...]:
    """Return the points after a look `now`; none of before where the clock was set back."""
    newest = before.points[0] if before.points else None
    if newest is None or now < newest:
        return (int(now),)
    return before.points if now - newest < POINT_EVERY else (int(now), *before.points)[:POINTS]


def progress_path(cluster: str) -> str:
    """Return the path of the parent of a cluster's marks."""
    return f"/consumers/{check_id(cluster, 'cluster name')}/progress"


def format_parent(look: Look) -> bytes:
    """Write the parent node."""
    return to_json(
        {
            "at": int(look.at),
            "took": look.took,
            "points": look.points,
            **({"errors": look.errors} if look.errors else {}),
        }
    )


def format_marks(marks: Mapping[TopicPartition, Mark]) -> dict[str, bytes]:
    """Write the nodes that are needed, by name; equal marks give equal bytes."""
    nodes: dict[str, dict[str, dict[str, dict[str, list[int | None]]]]] = {}
    sizes: dict[str, int] = {}
    for (topic, partition), mark in sorted(marks.items(), key=lambda item: (item[1].since, item[0])):
        name = str(crc32(topic.encode()) % NODES)
        of_topic = nodes.setdefault(name, {}).setdefault(topic, {})
        since = f"{mark.since}{'' if mark.known else UNKNOWN}"
        written = [mark.offset, *chain.from_iterable(mark.points)]
        group = len(topic) + 20 if since not in of_topic else 0
        sizes[name] = sizes.get(name, 0) + len(f'"{partition}":{written},') + group
        if sizes[name] <= LONGEST_NODE:
            of_topic.setdefault(since, {})[str(partition)] = written
    return {name: to_json(node) for name, node in sorted(nodes.items())}


def parse_look(parent: bytes, nodes: Iterable[bytes]) -> Look:
    """Read what `format_parent` and `format_marks` wrote. If it is malformed, there was no look: the next one writes
    it again."""
    try:
        found = json.loads(parent)
        at, took = float(found["at"]), float(found.get("took", 0.0))
        errors = tuple(map(str, found.get("errors", ())))
        points = tuple(map(int, found.get("points", ())))
        marks = {
            (topic, int(partition)): Mark(
                written[0],
                int(since.rstrip(UNKNOWN)),
                not since.endswith(UNKNOWN),
                tuple(zip(written[1::2], written[2::2], strict=True)),
            )
            for node in nodes
            for topic, of_topic in json.loads(node).items()
            for since, partitions in of_topic.items()
            for partition, written in partitions.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return Look()
    return Look(at, marks, errors, took, points)
