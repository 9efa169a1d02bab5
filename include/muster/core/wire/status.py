"""The answer of a consumer's status page. What is beside the protocol has its schema in `muster.core.model`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, StrictStr, ValidationError

from muster.core.copies import read_copies
from muster.core.lenient import fields_of, measure, of_partitions, read, text, write
from muster.core.model import ConsumerDetails, ConsumerStatus, PartitionLoad, TopicStatus
from muster.core.wire.names import Epoch, Id, Node, Partition, Protocol, check_topic, mistake


class _TopicStatus(Node):
    model_config = ConfigDict(extra="allow")
    running: list[Partition] = Field(default_factory=list)
    starting: list[Partition] = Field(default_factory=list)
    closing: list[Partition] = Field(default_factory=list)
    standby: list[Partition] = Field(default_factory=list)
    epoch: Epoch | None = None


class _Status(Node):
    model_config = ConfigDict(extra="allow")
    consumer: Id
    incarnation: Annotated[StrictStr, Field(min_length=1, max_length=128)]
    epochs: bool = False
    leaving: bool = False
    topics: dict[Annotated[str, AfterValidator(check_topic)], _TopicStatus]
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
    beside = node.model_extra or {}
    return ConsumerStatus(
        consumer=node.consumer,
        incarnation=node.incarnation,
        epochs=node.epochs,
        leaving=node.leaving,
        max_batch_time=measure(beside.get("max_batch_time")),
        batch_seconds=measure(beside.get("batch")),
        cluster=text(beside.get("cluster")),
        topics={topic: _topic(status) for topic, status in node.topics.items()},
        copies=read_copies(beside.get("stores")),
        details=read(ConsumerDetails, beside) or ConsumerDetails(),
    )


def _topic(node: _TopicStatus) -> TopicStatus:
    beside = node.model_extra or {}
    offsets = of_partitions(beside.get("offsets"), lambda entry: entry if isinstance(entry, dict) else None)
    loads = {partition: read(PartitionLoad, entry) for partition, entry in offsets.items()}
    seconds = {partition: measure(entry.get("batch")) for partition, entry in offsets.items()}
    return TopicStatus(
        running=frozenset(node.running),
        starting=frozenset(node.starting),
        closing=frozenset(node.closing),
        epoch=node.epoch,
        standby=frozenset(node.standby),
        loads={p: load for p, load in loads.items() if load is not None and load != PartitionLoad()},
        batch_seconds={p: found for p, found in seconds.items() if found},
        **fields_of(TopicStatus, beside),
    )


def format_topic(status: TopicStatus) -> dict[str, Any]:
    """Return what a status says of a topic, without what is measured of its offsets."""
    return {
        "running": sorted(status.running),
        "starting": sorted(status.starting),
        "closing": sorted(status.closing),
        "standby": sorted(status.standby),
        "epoch": status.epoch,
        **{key: value for key, value in write(status).items() if value is not None},
    }
