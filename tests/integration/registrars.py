"""Registrars of consumers that have nothing else: neither Spark nor Kafka nor ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from uuid import uuid4

from muster.consumer import predecessor
from muster.consumer.agent import Agent
from muster.consumer.lifecycle import Ending
from muster.consumer.registration import Registrar
from muster.core.starting import Stage
from muster.edges.consul import ConsulCluster
from muster.settings.connections import ConsulSettings
from tests.support.consumer_settings import consumer_settings

CHECK_INTERVAL = 0.3


class Process:
    """One process of a consumer, as far as Consul sees it: `port` is that of its status page."""

    def __init__(
        self,
        consul: ConsulSettings,
        cluster: str,
        consumer: str,
        port: int,
        metadata: Mapping[str, str] | None = None,
        ask: predecessor.Ask | None = None,
    ) -> None:
        settings = consumer_settings(
            cluster=cluster,
            consumer=consumer,
            incarnation=str(uuid4()),
            consul_service=f"{cluster}-service",
            consul=consul,
            bind="127.0.0.1",
            advertise="127.0.0.1",
            check_interval=CHECK_INTERVAL,
            metadata=dict(metadata or {}),
        )
        self.settings = settings
        self.incarnation = settings.incarnation
        self.discovery = ConsulCluster(consul, cluster, settings.consul_service)
        self.agent = Agent(consumer)
        self.ending = Ending()
        self.stages: list[Stage] = []
        self.registrar = Registrar(
            settings, self.discovery, self.agent, self.ending, port, self.stages.append, ask
        )
        self.registrar.open()

    @contextmanager
    def running(self) -> Iterator[None]:
        """The registrar's loop runs within."""
        loop = Thread(target=self.registrar.run, args=(lambda: None,), daemon=True)
        loop.start()
        try:
            yield
        finally:
            self.registrar.leave()
            loop.join(10.0)
