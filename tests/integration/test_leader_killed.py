"""What a reader of offsets does when a broker dies that leads some of the partitions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from devstack.brokers import Brokers
from devstack.place import HERE
from muster.edges.kafka import GroupOffsets, PartitionError, librdkafka_logger
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually

PARTITIONS = [("t", number) for number in range(6)]
KILLED = 2
"""The number of the broker that dies."""


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    made = Brokers(tmp_path, [HERE] * 3)
    made.start()
    try:
        yield made
    finally:
        for broker in made:
            broker.kill()  # in order, it would wait for the one that is gone


class OwnThreads:
    """The main thread and those that begin from now on: other tests' clients may still be busy in this process."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._earlier = {thread.id for thread in self._process.threads()} - {
            threading.main_thread().native_id
        }

    def cpu(self) -> float:
        """Return the CPU that they have taken so far, in seconds."""
        threads = (each for each in self._process.threads() if each.id not in self._earlier)
        return sum(each.user_time + each.system_time for each in threads)


def test_offsets_of_a_killed_leader_come_from_the_next_one(brokers: Brokers, eventually: Eventually) -> None:
    own = OwnThreads()
    admin = AdminClient({"bootstrap.servers": brokers.servers}, logger=librdkafka_logger())
    admin.create_topics([NewTopic("t", len(PARTITIONS), len(list(brokers)))])["t"].result(30)
    offsets = GroupOffsets(KafkaSettings(config={"bootstrap.servers": brokers.servers}), "g")

    def all_answer() -> bool:
        try:
            return offsets.end_offsets(PARTITIONS) == dict.fromkeys(PARTITIONS, 0)
        except PartitionError:
            return False

    eventually(all_answer, 30, "each broker knows the new topic")
    leaders = {number: p.leader for number, p in admin.list_topics("t").topics["t"].partitions.items()}
    others = {("t", number) for number, leader in leaders.items() if leader != KILLED}
    assert 0 < len(others) < len(PARTITIONS)
    brokers[KILLED].kill()
    began, cpu = time.monotonic(), own.cpu()
    with pytest.raises(PartitionError, match=r"reading end offsets: t \[\d\]") as failure:
        offsets.end_offsets(PARTITIONS)
    assert failure.value.offsets.keys() == others
    eventually(all_answer, 30, "the others lead all partitions")
    waited, spent = time.monotonic() - began, own.cpu() - cpu
    assert spent < waited / 5, f"{spent:.1f} s of CPU in {waited:.1f} s: librdkafka spins"
    offsets.close()
