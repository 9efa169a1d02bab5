"""A real Kafka that says of 100,000 partitions where they are, on a machine that could not hold them.

One broker opens a file for each partition and gives up at the limit of open files. So the partitions belong to a
second broker, which is frozen once it is registered: the first one answers for all of them, with leaders and all, as
it would if the second one worked, and no log is ever made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.cimpl import NewTopic

from benchmarks.harness.servers import admin
from devstack.airflow_api import wait_for
from devstack.kafka import Kafka

FROZEN = 2
TOPICS_AT_ONCE = 20


class _Answering(Kafka):
    """Controller and broker; a frozen broker counts as there for an hour."""

    def settings(self) -> dict[str, str]:
        return super().settings() | {"broker.session.timeout.ms": "3600000"}


class _Holding(Kafka):
    """A broker of the cluster of `first`."""

    def __init__(self, first: Kafka, data_dir: Path) -> None:
        super().__init__(data_dir, guarded=True)
        self._first = first

    def settings(self) -> dict[str, str]:
        return super().settings() | {
            "process.roles": "broker",
            "node.id": str(FROZEN),
            "controller.quorum.voters": f"1@127.0.0.1:{self._first.ports['controller']}",
            "listeners": f"PLAINTEXT://{self.address}",
            # Who is sent to this one asks the other, which knows as much.
            "advertised.listeners": f"PLAINTEXT://{self._first.address}",
        }

    def healthy(self) -> bool:
        try:
            return FROZEN in admin(self._first.address).list_topics(timeout=2).brokers
        except KafkaException:  # no answer in time
            return False

    def cluster_id(self) -> str:
        text = (self._first.data_dir / "logs" / "meta.properties").read_text(encoding="utf-8")
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)["cluster.id"]


def create_topics(servers: str, names: list[str], partitions: int) -> None:
    """Create topics of the frozen broker, and return when the other one tells of them."""
    client = admin(servers)
    for start in range(0, len(names), TOPICS_AT_ONCE):
        made = client.create_topics(
            [
                NewTopic(name, partitions, replica_assignment=[[FROZEN]] * partitions)
                for name in names[start : start + TOPICS_AT_ONCE]
            ],
            operation_timeout=30,
            request_timeout=60,
        )
        for future in made.values():
            future.result(60)
    wait_for(f"topic {names[-1]}", lambda: names[-1] in client.list_topics(timeout=30).topics, 60)


@contextmanager
def kafka(folder: Path) -> Iterator[str]:
    first = _Answering(folder / "answering", guarded=True, heap="1g")
    second = _Holding(first, folder / "holding")
    try:
        first.start(240)
        second.start(240)
        second.pause()
        yield first.address
    finally:
        second.kill()
        first.kill()
