"""A stack to be looked at: a cluster of three topics whose records flow, as the dashboard's pictures show it."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from devstack.airflow_api import AirflowApi, wait_for
from devstack.stack import Stack

CLUSTER = "flights"
CONSUMERS = 3
TOPICS: Mapping[str, tuple[int, float]] = {"flights": (12, 60.0), "weather": (6, 15.0), "airports": (4, 4.0)}
"""Topic to its partitions, and to the records a second that flow."""


def settings() -> str:
    """Return the showcase's `clusters.yaml`, as JSON, which is YAML."""
    cluster = {
        "consul_service": f"muster-{CLUSTER}",
        "group_id": f"{CLUSTER}-parquet",
        "topics": list(TOPICS),
        "long_poll_timeout": "5s",
        "consumers": {
            "count": CONSUMERS,
            "startup_timeout": "10m",  # on a machine that is busy
            "handler": "muster.handlers.parquet.ParquetHandler",
            "handler_options": {"path": "${MUSTER_DATA}/" + CLUSTER},
            "spark_conf": {"spark.driver.memory": "512m", "spark.ui.enabled": "false"},
        },
    }
    return json.dumps({"clusters": {CLUSTER: cluster}})


class Showcase:
    """The stack in `folder`, a context manager: up with consumers and records, and everything stopped at its end."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        clusters = folder / "clusters.yaml"
        clusters.write_text(settings(), encoding="utf-8")
        self.stack = Stack(folder / "stack", guarded=True, environment={"MUSTER_CLUSTERS": str(clusters)})
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Showcase:
        """Start all; returns when every consumer runs. Raises `DevstackError`, or TimeoutError naming what lacks."""
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all, consumers first."""
        self._end()

    def password(self, user: str = "admin") -> str:
        """Return a user's password in this stack's Airflow."""
        return self.stack.airflow.passwords()[user]

    def _start(self) -> None:
        self.stack.up()
        self._create_topics()
        with AirflowApi(self.stack.airflow.url, "admin", self.password()) as api:
            for dag in (f"muster_consumers__{CLUSTER}", f"muster_coordinator__{CLUSTER}"):
                wait_for(f"DAG {dag} is parsed", partial(api.has_dag, dag), 180)
                api.set_paused(dag, False)
        for topic, (_, rate) in TOPICS.items():
            thread = threading.Thread(target=self._produce, args=(topic, rate), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _create_topics(self) -> None:
        quiet = logging.getLogger("devstack.showcase.admin")
        admin = AdminClient({"bootstrap.servers": self.stack.kafka.address}, logger=quiet)
        wanted = [NewTopic(t, num_partitions=n, replication_factor=1) for t, (n, _) in TOPICS.items()]
        there = admin.list_topics(timeout=30).topics
        for created in admin.create_topics([new for new in wanted if new.topic not in there]).values():
            created.result(30)

    def _produce(self, topic: str, rate: float) -> None:
        producer = Producer(
            {"bootstrap.servers": self.stack.kafka.address, "linger.ms": 50},
            logger=logging.getLogger("devstack.showcase.producer"),
        )
        number = 0
        while not self._stop.wait(1 / rate):
            producer.produce(topic, json.dumps({"row": number}).encode(), str(number))
            producer.poll(0)
            number += 1
        producer.flush(10)

    def _end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(15)
        self.stack.down()
