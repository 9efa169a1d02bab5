"""The answer of a consumer's status page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictStr, ValidationError

from muster.core.model import (
    ConsumerDetails,
    ConsumerStatus,
    FailingRecord,
    Loss,
    OffsetRange,
    PartitionLoad,
    PastFailure,
    Restore,
    ShardState,
    Stored,
    TopicStatus,
)
from muster.core.wire.names import (
    LAST_MOMENT,
    NUMBER,
    Epoch,
    Id,
    Node,
    Partition,
    Protocol,
    check_topic,
    mistake,
    to_seconds,
)

LONGEST_TEXT = 500
"""Characters of what a consumer says of itself that are kept."""
MOST_ERRORS = 20
MOST_FAILURES = 1_000
MOST_LOSSES = 200


class _TopicStatus(Node):
    running: list[Partition] = Field(default_factory=list)
    starting: list[Partition] = Field(default_factory=list)
    closing: list[Partition] = Field(default_factory=list)
    standby: list[Partition] = Field(default_factory=list)
    epoch: Epoch | None = None
    offsets: Any = None
    paused: Any = None
    failing: Any = None
    losses: Any = None
    left_out: Any = None
    stored: Any = None
    state: Any = None
    failures: Any = None


class _Status(Node):
    consumer: Id
    incarnation: Annotated[StrictStr, Field(min_length=1, max_length=128)]
    epochs: bool = False
    leaving: bool = False
    max_batch_time: Any = None
    batch: Any = None
    topics: dict[Annotated[str, AfterValidator(check_topic)], _TopicStatus]
    cluster: Any = None
    host: Any = None
    version: Any = None
    state: Any = None
    started: Any = None
    errors: Any = None
    records: Any = None
    batches: Any = None
    last_batch: Any = None
    protocol: Protocol = None


def parse_status(data: bytes, source: str) -> ConsumerStatus:
    """Read a status answer. Raises `WireError` naming `source` (the URL) and the key at fault."""
    try:
        node = _Status.model_validate_json(data)
    except ValidationError as error:
        raise mistake(
            f"status answer of {source}",
            error,
            "is not understood: {}; check what listens there",
        ) from error
    return ConsumerStatus(
        consumer=node.consumer,
        incarnation=node.incarnation,
        epochs=node.epochs,
        leaving=node.leaving,
        max_batch_time=_measure(node.max_batch_time),
        batch_seconds=_measure(node.batch),
        cluster=_text(node.cluster),
        topics={
            topic: TopicStatus(
                running=frozenset(status.running),
                starting=frozenset(status.starting),
                closing=frozenset(status.closing),
                epoch=status.epoch,
                standby=frozenset(status.standby),
                loads=_loads(status.offsets),
                paused=_numbers(status.paused),
                failing=_failing(status.failing),
                batch_seconds=_seconds(status.offsets, "batch"),
                losses=_losses(status.losses),
                left_out=_losses(status.left_out),
                stored=_stored(status.stored),
                shards=_shards(status.state),
                failures=_failures(status.failures),
            )
            for topic, status in node.topics.items()
        },
        details=_details(node),
    )


def _details(node: _Status) -> ConsumerDetails:
    """Read what the status says for people. Anything else counts as not said: it never spoils a status."""
    errors = node.errors if isinstance(node.errors, list) else []
    return ConsumerDetails(
        host=_text(node.host),
        version=_text(node.version),
        doing=_text(node.state),
        started_at=_since_epoch(node.started),
        errors=tuple(_text(error) for error in errors[:MOST_ERRORS] if _text(error)),
        records=_count(node.records),
        batches=_count(node.batches),
        last_batch_at=_since_epoch(node.last_batch),
    )


def _text(value: object) -> str:
    return value[:LONGEST_TEXT] if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _since_epoch(value: object) -> float | None:
    """Read ISO 8601 as seconds since the epoch, None for anything else."""
    try:
        return to_seconds(datetime.fromisoformat(value)) if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None


def _loads(offsets: object) -> dict[int, PartitionLoad]:
    """Read what `offsets` says of loads. Anything else counts as unknown: a measurement never spoils a status."""
    loads = {}
    for partition, entry in _offsets(offsets):
        load = PartitionLoad(_measure(entry.get("lag")), _measure(entry.get("rate")))
        if load != PartitionLoad():
            loads[partition] = load
    return loads


def _seconds(offsets: object, key: str) -> dict[int, float]:
    """Read the seconds that stand under `key`, of each partition that has some, as lenient as `_loads`."""
    return {
        partition: seconds for partition, entry in _offsets(offsets) if (seconds := _measure(entry.get(key)))
    }


def _numbers(value: object) -> frozenset[int]:
    """Read the partitions in a list; anything else is left out."""
    return (
        frozenset(n for n in value if type(n) is int and n >= 0) if isinstance(value, list) else frozenset()
    )


def _failing(failing: object) -> dict[int, FailingRecord]:
    """Read the record that holds each partition up, as lenient as `_loads`."""
    found = {}
    for partition, entry in _offsets(failing):
        if (offset := _count(entry.get("offset"))) is not None:
            found[partition] = FailingRecord(
                offset,
                error=_text(entry.get("error")),
                attempts=_count(entry.get("attempts")) or 0,
                parked=entry.get("parked") is True,
                answer=_text(entry.get("answer")),
                lost=_count(entry.get("lost")) or 0,
                timer=entry.get("timer") is True,
                decided_for=_measure(entry.get("decided_for")) or 0.0,
            )
    return found


def _losses(losses: object) -> dict[int, tuple[Loss, ...]]:
    """Read what was lost of each partition, as lenient as `_loads`."""
    found: dict[int, tuple[Loss, ...]] = {}
    for key, entries in losses.items() if isinstance(losses, dict) else ():
        if isinstance(key, str) and NUMBER.fullmatch(key) and isinstance(entries, list):
            read = [_loss(entry) for entry in entries[:MOST_LOSSES]]
            if some := tuple(loss for loss in read if loss is not None):
                found[int(key)] = some
    return found


def _loss(entry: object) -> Loss | None:
    if not isinstance(entry, dict):
        return None
    begin, end, records = (_count(entry.get(key)) for key in ("from", "to", "records"))
    at = _since_epoch(entry.get("at"))
    if begin is None or end is None or records is None or at is None or not 0 <= at < LAST_MOMENT:
        return None
    return Loss(begin, end, records, _text(entry.get("reason")), at)


def _failures(failures: object) -> tuple[PastFailure, ...] | None:
    """Read what failed within the last hour, as lenient as `_loads`; None if it is not said."""
    if not isinstance(failures, list):
        return None
    return tuple(
        PastFailure(partition, offset, _text(entry.get("error")), _since_epoch(entry.get("at")) or 0.0)
        for entry in failures[:MOST_FAILURES]
        if isinstance(entry, dict)
        and (partition := _count(entry.get("partition"))) is not None
        and (offset := _count(entry.get("offset"))) is not None
    )


def _stored(stored: object) -> dict[int, dict[str, Stored]]:
    """Read what sinks have of each partition, as lenient as `_loads`. A sink that cannot be read leaves it unknown
    what there is of its partition."""
    found = {}
    for partition, sinks in _offsets(stored):
        read = {_text(name): _stored_in(entry) for name, entry in list(sinks.items())[:MOST_ERRORS]}
        if all(entry is not None for entry in read.values()):
            found[partition] = {name: entry for name, entry in read.items() if entry is not None}
    return found


def _stored_in(entry: object) -> Stored | None:
    if not isinstance(entry, dict) or not isinstance(listed := entry.get("ranges"), list):
        return None
    ranges = tuple(found for each in listed[:MOST_LOSSES] if (found := _range(each)) is not None)
    at, more = _since_epoch(entry.get("at")), _count(entry.get("more"))
    if len(ranges) < len(listed) or at is None or more is None or not 0 <= at < LAST_MOMENT:
        return None
    return Stored(ranges, more, at)


def _shards(state: object) -> dict[int, ShardState]:
    """Read how the state of each partition stands, as lenient as `_loads`."""
    return {partition: _shard(entry) for partition, entry in _offsets(state)}


def _shard(entry: dict[object, object]) -> ShardState:
    keys, size, commit, restored, late = (
        _count(entry.get(key)) or 0 for key in ("keys", "bytes", "commit", "restored", "late")
    )
    rate, still = (_measure(entry.get(key)) for key in ("rate", "still"))
    restore = None if still is None else Restore(restored, _count(entry.get("total")), rate or 0.0, still)
    offset, differs = _count(entry.get("offset")), _text(entry.get("differs"))
    return ShardState(keys, size, offset, commit, restore, differs, late)


def _range(value: object) -> OffsetRange | None:
    if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004
        return None
    begin, end = map(_count, value)
    return None if begin is None or end is None or begin >= end else (begin, end)


def _offsets(offsets: object) -> Iterator[tuple[int, dict[object, object]]]:
    """Yield the entries of a mapping that are about a partition."""
    for key, entry in offsets.items() if isinstance(offsets, dict) else ():
        if isinstance(key, str) and NUMBER.fullmatch(key) and isinstance(entry, dict):
            yield int(key), entry


def _measure(value: object) -> float | None:
    """Read a finite number from 0, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
