"""A consumer from before Muster: it keeps its offsets in ZooKeeper, as consumers of Kafka 0.8 do."""

from __future__ import annotations

import json

import pyarrow as pa

from devstack.incident.kafka_log import records
from devstack.incident.tables import COLUMNS, Tables
from muster.edges.zookeeper import make_client, start_client, stop_client
from muster.settings.connections import ZooKeeperSettings


def read_as_before(
    kafka: str,
    zookeeper: ZooKeeperSettings,
    group: str,
    topic: str,
    partitions: int,
    each: int,
    tables: Tables,
) -> dict[int, int]:
    """Write the first `each` flights of each partition to both tables, and leave the offsets after them in ZooKeeper.

    Returns the offsets. Raises `DevstackError` if they do not come, `ZooKeeperError`, and what the tables raise.
    """
    rows, offsets = [], {}
    for message in records(kafka, topic, partitions, each):
        partition, offset = int(message.partition() or 0), int(message.offset() or 0)
        place = {"topic": topic, "partition": partition, "offset": offset}
        rows.append(json.loads(message.value() or b"{}") | place)
        offsets[partition] = offset + 1
    tables.append(pa.Table.from_pylist(rows, COLUMNS))
    client = make_client(zookeeper)
    start_client(client, zookeeper)
    try:
        for partition, offset in offsets.items():
            node = f"/consumers/{group}/offsets/{topic}/{partition}"
            client.create(node, str(offset).encode(), makepath=True)
    finally:
        stop_client(client, 5.0)
    return offsets
