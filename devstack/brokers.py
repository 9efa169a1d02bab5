"""Several Kafka nodes that are one cluster, each broker and controller in one (KRaft)."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from devstack.errors import DevstackError
from devstack.jars import jars, java
from devstack.kafka import Kafka
from devstack.place import Place
from devstack.silence import silent_logger


class Broker(Kafka):
    """One node. `number` is its id, from 1, and its rack is `rack-[number]`."""

    def __init__(self, data_dir: Path, number: int, cluster: Brokers, place: Place) -> None:
        super().__init__(data_dir, guarded=True, heap="384m", place=place)
        self.number = number
        self._cluster = cluster

    def settings(self) -> dict[str, str]:
        """Return those of one alone, with the others as voters and all that Kafka keeps of its own on all of them."""
        size = len(list(self._cluster))
        voters = [f"{b.number}@{b.place.address}:{b.ports['controller']}" for b in self._cluster]
        topics = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        return {
            **super().settings(),
            "node.id": str(self.number),
            "broker.rack": f"rack-{self.number}",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "controller.quorum.voters": ",".join(voters),
            "min.insync.replicas": str(size - 1),
            "default.replication.factor": str(size),
            **{f"{topic}.replication.factor": str(size) for topic in topics},
            "transaction.state.log.min.isr": str(size - 1),
            "share.coordinator.state.topic.min.isr": str(size - 1),
            # A topic that is deleted is gone at once, not only renamed for a minute.
            "file.delete.delay.ms": "0",
            # Longer than one node's, so that a busy machine does not take a broker for dead.
            "broker.session.timeout.ms": "6000",
        }

    def healthy(self) -> bool:
        """Tell whether this node is one of the cluster's brokers, by its own word."""
        client = AdminClient({"bootstrap.servers": self.address}, logger=silent_logger())
        try:
            return self.number in client.list_topics(timeout=2).brokers
        except KafkaException:
            return False

    def cluster_id(self) -> str:
        """Return that of the cluster."""
        return self._cluster.id


class Brokers:
    """A node at each of `places`, below `folder`."""

    def __init__(self, folder: Path, places: Sequence[Place]) -> None:
        self.id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "a")
        self._all: list[Broker] = []
        for number, place in enumerate(places, 1):
            self._all.append(Broker(folder / str(number), number, self, place))
        for broker in self._all:
            broker.choose_ports()

    def __iter__(self) -> Iterator[Broker]:
        return iter(self._all)

    def __getitem__(self, number: int) -> Broker:
        return self._all[number - 1]

    @property
    def servers(self) -> str:
        """Clients' `bootstrap.servers`."""
        return ",".join(broker.address for broker in self)

    def start(self) -> None:
        """Start those that do not run; a quorum needs most of them, so all at once."""
        with ThreadPoolExecutor(len(self._all)) as pool:
            list(pool.map(lambda broker: broker.start(), self._all))

    def consumer_groups(self, *arguments: str, timeout: float = 60.0) -> str:
        """Return what Kafka's own tool `kafka-consumer-groups` prints. Raises `DevstackError` if it fails."""
        command = [
            *(java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars('kafka')}/*"),
            *("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server"),
            *(self.servers, *arguments),
        ]
        try:
            done = subprocess.run(  # noqa: S603  our own command line
                command, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise DevstackError(
                f"kafka-consumer-groups {' '.join(arguments)} took over {timeout:g} s"
            ) from error
        if done.returncode != 0:
            raise DevstackError(
                f"kafka-consumer-groups {' '.join(arguments)} failed: {done.stdout}{done.stderr}"
            )
        return done.stdout
