"""The client for a group's offsets, where no broker answers."""

from __future__ import annotations

from muster.edges.kafka_group import GroupClient
from muster.settings.connections import KafkaSettings

NOWHERE = KafkaSettings(config={"bootstrap.servers": "127.0.0.1:1"}, operation_timeout=1.0)


def test_client_that_was_replaced_can_still_be_used_by_the_threads_that_have_it() -> None:
    group = GroupClient(NOWHERE, "g")
    used = group._consumer
    assert used is not None
    group.revive(0.2)
    assert group._consumer is not used
    used.poll(0.1)
    group.close()
