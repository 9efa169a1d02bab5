"""The wire format of leaders' racks: `/consumers/[CLUSTER]/racks/[TOPIC]`, `{"racks": {"a": [0, 3], "b": [1]}}`.

Which rack the leader of each partition stands in, as Kafka's `broker.rack` says. The node is optional: it is there
only where Kafka has racks, a partition that is in none of the lists has an unknown one, and consumers have no use for
it. `fetch_partitions` writes it, planning reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from muster.core.wire import MAX_PARTITION, WireError, check_id, check_topic

Racks = Mapping[int, str]
"""Partition to the rack of its leader, of one topic; a partition whose rack is unknown is absent."""


class _RacksNode(BaseModel):
    model_config = ConfigDict(extra="ignore")

    racks: dict[
        Annotated[StrictStr, Field(min_length=1)], list[Annotated[StrictInt, Field(ge=0, le=MAX_PARTITION)]]
    ]


def racks_parent(cluster: str) -> str:
    """The parent of a cluster's racks nodes."""
    return f"/consumers/{check_id(cluster, 'cluster name')}/racks"


def racks_path(cluster: str, topic: str) -> str:
    """The racks node of a topic."""
    return f"{racks_parent(cluster)}/{check_topic(topic)}"


def parse_racks(data: bytes, path: str) -> dict[int, str]:
    """Read a racks node. Raises `WireError` naming `path` and what is wrong."""
    try:
        node = _RacksNode.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part)[:100] for part in first["loc"]) or "the whole text"
        raise _wrong(path, f"{where}: {first['msg']}") from error
    racks: dict[int, str] = {}
    for rack, partitions in node.racks.items():
        for partition in partitions:
            if partition in racks and racks[partition] != rack:
                raise _wrong(
                    path, f"partition {partition} is in {racks[partition][:100]!r} and in {rack[:100]!r}"
                )
            racks[partition] = rack
    return racks


def format_racks(racks: Racks) -> bytes:
    """Write a racks node, racks and partitions in ascending order, so that equal racks give equal bytes."""
    lists: dict[str, list[int]] = {}
    for partition in sorted(racks):
        lists.setdefault(racks[partition], []).append(partition)
    return json.dumps(
        {"racks": {rack: lists[rack] for rack in sorted(lists)}}, separators=(",", ":")
    ).encode()


def _wrong(path: str, problem: str) -> WireError:
    return WireError(
        f"ZooKeeper node {path} does not tell racks: {problem}; the racks of this topic count as unknown. Delete "
        "the node, the next run writes it again"
    )
