"""Records go on flowing after the demo, and end with its stack."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from devstack.demo.flights import read_flights
from devstack.demo.flow import start_flow
from devstack.guard import guard
from devstack.leftovers import MARKER, end_all
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually


@pytest.mark.stack
def test_flow_goes_on_until_the_stack_is_stopped(
    tmp_path: Path, cluster: str, kafka: KafkaSettings, eventually: Eventually
) -> None:
    stack = tmp_path.resolve()
    guard.watch_marker(MARKER, str(stack))
    admin = AdminClient(kafka.config)
    admin.create_topics([NewTopic(cluster, num_partitions=1, replication_factor=1)])[cluster].result(30)
    flow = start_flow(stack, kafka.bootstrap_servers, cluster)
    consumer = Consumer(
        {**kafka.config, "group.id": cluster, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    found: list[bytes] = []
    try:
        consumer.subscribe([cluster])

        def three_came() -> bool:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append(message.value())
            return len(found) >= 3

        eventually(three_came, 60, "three flights")
    finally:
        consumer.close()
        ended = end_all(stack)
    assert found == [flight.value for flight in islice(read_flights(), 3)]
    assert json.loads(found[0])["row"] == 0
    assert ended == 1 and not flow.alive()
