"""A consumer in a zone reads from the replica there, not from the leader."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from devstack.brokers import Broker, Brokers
from devstack.place import HERE
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.connected_query import Holder, reading
from tests.support.consumer_settings import consumer_settings
from tests.support.debian_programs import needed
from tests.support.only_long import only_long
from tests.support.spark_topics import create_topic, leader_of, produce

pytestmark = [pytest.mark.spark, pytest.mark.stack, only_long]

RECORDS, SIZE = 2_000, 10_000
"""Records, and bytes in each."""


def received(process: int, broker: Broker) -> int:
    """The bytes that came to a process from a broker, over the connections that it has now."""
    command = ["ss", "-tnpiOH", "dst", broker.address]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    counts = (re.search(r"bytes_received:(\d+)", line) for line in lines if f"pid={process}," in line)
    return sum(int(count[1]) for count in counts if count)


def test_records_are_read_from_the_replica_in_the_zone_wherever_the_leader_is(
    spark: SparkSession, tmp_path: Path, eventually: Eventually
) -> None:
    needed("ip")  # which comes with ss
    brokers = Brokers(tmp_path / "brokers", [HERE] * 3)
    brokers.start()
    try:
        kafka = KafkaSettings(config={"bootstrap.servers": brokers.servers})
        topic = create_topic(kafka, 1, replication=3)
        leader = leader_of(kafka, topic, 0)
        near = leader % 3 + 1
        produce(kafka, topic, {0: ["x" * SIZE] * RECORDS})
        zoned = consumer_settings(kafka=kafka, metadata={"zone": f"rack-{near}"}).kafka_in_zone
        jvm = spark.sparkContext._jvm.ProcessHandle.current().pid()
        with Holder(zoned, "near") as holder:
            holder.hold(topic, [0])
            with reading(spark, holder, tmp_path / "checkpoint") as query:
                eventually(query.has(RECORDS), 60)
                from_near, from_leader = (received(jvm, brokers[number]) for number in (near, leader))
        assert from_near > RECORDS * SIZE > 10 * from_leader, (from_near, from_leader)
    finally:
        for broker in brokers:
            broker.kill()
