"""Two real jobs and a real coordinator: one joins by way of warm-ups, and takes over when the other one is killed."""

from __future__ import annotations

import os
import re
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from muster.coordinator.opening import open_coordinator
from muster.core.copies import WARM_LAG
from muster.core.model import TopicAssignment
from muster.core.wire import assignment_path, parse_assignment
from muster.edges.kafka import GroupOffsets
from muster.edges.zookeeper import make_client, start_client, stop_client
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.spark.consumer_job import SERVICE, ConsumerJob, Servers
from tests.support.key_counts import KeyCounts
from tests.support.only_long import only_long
from tests.support.state_query import begin_at_the_first_record

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS = 3
KEYS = 45_000
"""Enough for each partition's changelog to be longer than what a warm store may lack."""
_TAKEN_UP = re.compile(r"partition (\d+): its state is taken up after (\d+) of (\d+) offsets")


class Stand(KeyCounts):
    """A topic, the counts of its keys, and the coordinator that runs until `stop`."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.cluster = f"warm-{uuid.uuid4().hex[:8]}"
        self.group = GroupOffsets(servers.kafka, f"{self.cluster}-group")
        super().__init__(servers.kafka, PARTITIONS, KEYS)
        self.stop = threading.Event()
        self.client = make_client(servers.zookeeper)
        start_client(self.client, servers.zookeeper)
        begin_at_the_first_record(self.group, self.topic, PARTITIONS, self.cluster)

    def settings(self) -> ClusterSettings:
        return ClusterSettings.model_validate(
            {
                "name": self.cluster,
                "consul_service": SERVICE,
                "group_id": f"{self.cluster}-group",
                "topics": [self.topic],
                "consumers": {"handler": "a.b", "state": [".*"], "count": 2},
                "assignor": {"name": "sticky", "options": {"standbys": 1}},
            }
        )

    def coordinate(self) -> None:
        servers = self.servers
        with open_coordinator(self.settings(), servers.zookeeper, servers.consul, servers.kafka) as one:
            while not self.stop.is_set():
                one.fetch_partitions()
                if one.compute_assignment(1.0).needed:
                    one.advance(5.0)

    def node(self) -> TopicAssignment:
        path = assignment_path(self.cluster, self.topic)
        found = parse_assignment(self.client.get(path)[0], path) if self.client.exists(path) else None
        return found or TopicAssignment("", "")

    def job(self, name: str, folder: Path) -> ConsumerJob:
        return ConsumerJob(
            self.servers,
            self.cluster,
            name,
            folder,
            handler="state_counting.Counting",
            options={"topic": self.counts},
            more={"state": [".*"], "state_folder": str(folder / "state")},
        )


@pytest.fixture
def stand(zookeeper: ZooKeeperSettings, consul: ConsulSettings, kafka: KafkaSettings) -> Iterator[Stand]:
    made = Stand(Servers(zookeeper, consul, kafka))
    thread = threading.Thread(target=made.coordinate, daemon=True)
    thread.start()
    yield made
    made.stop.set()
    thread.join(30)
    stop_client(made.client, 5)


@only_long
def test_warm_standby_goes_on_when_the_owner_is_killed(
    stand: Stand, tmp_path: Path, eventually: Eventually
) -> None:
    with ExitStack() as stack:
        jobs = {}
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            jobs[name] = stand.job(name, tmp_path / name)
        one, two = stack.enter_context(jobs["one"]), jobs["two"]
        eventually(one.registered, 240, "registered")
        stand.send(2 * KEYS)
        eventually(stand.counted, 240, "counted")
        stack.enter_context(two)
        eventually(two.registered, 240, "registered")
        eventually(lambda: "two" in stand.node().owners.values(), 120, "it has a part, by way of warm-ups")
        eventually(lambda: len(warm(two, stand.topic)) == PARTITIONS, 120, "all that it has or stands by for")
        stand.send(KEYS)
        eventually(stand.counted, 240, "counted")
        assert stand.node().warm_ups == {}
        lost = {p for p, owner in stand.node().owners.items() if owner == "one"}
        assert lost
        assert one.process is not None
        os.killpg(one.process.pid, signal.SIGKILL)
        eventually(lambda: two.lists(stand.topic) == ([0, 1, 2], [], []), 120, "all of it")
        stand.send(KEYS)
        eventually(stand.counted, 240, "counted, each record once")
        taken = {int(p): (int(read), int(end)) for p, read, end in _TAKEN_UP.findall(two.log.read_text())}
        print(f"taken up, by partition: {taken}")
        assert taken.keys() == {0, 1, 2}
        assert all(read <= end / 20 for read, end in taken.values()), "the tail alone"
        assert min(end for _, end in taken.values()) > WARM_LAG


def warm(job: ConsumerJob, topic: str) -> list[str]:
    stores = job.status()["stores"].get(topic, {})
    return [partition for partition, store in stores.items() if store["is"] == "warm" and store["followed"]]
