"""A consumer that is to stop tells Consul before it closes anything, if somebody is there to take over."""

from __future__ import annotations

from uuid import uuid4

from muster.consumer.agent import Agent
from muster.consumer.lifecycle import Ending
from muster.consumer.registration import Registrar
from muster.edges.consul import Discovery
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from muster.settings.consumer import ConsumerSettings
from tests.conftest import Eventually
from tests.integration.http_pages import Page, Pages


def registrar(
    consul: ConsulSettings, discovery: Discovery, cluster: str, consumer: str, port: int
) -> Registrar:
    settings = ConsumerSettings(
        cluster=cluster,
        consumer=consumer,
        incarnation=str(uuid4()),
        consul_service=discovery.service,
        zookeeper=ZooKeeperSettings(hosts="none"),
        consul=consul,
        kafka=KafkaSettings(config={"bootstrap.servers": "none"}),
        handler="none.none",
        bind="127.0.0.1",
        advertise="127.0.0.1",
    )
    made = Registrar(settings, discovery, Agent(consumer), Ending(), port)
    made.open()
    return made


def test_it_says_so_while_it_stays_live(consul: ConsulSettings, eventually: Eventually) -> None:
    cluster = f"c{uuid4().hex[:12]}"
    discovery = Discovery(consul, cluster, f"{cluster}-service")

    def leaving() -> dict[str, bool]:
        membership = discovery.members().membership
        return {} if membership is None else {c.id: c.leaving for c in membership.live.values()}

    with Pages(lambda _: Page(b"ok")) as page:
        one, two = (registrar(consul, discovery, cluster, c, page.port) for c in ("one", "two"))
        try:
            assert not one.announce_leaving(), "it is not even registered"
            one.look()
            eventually(lambda: leaving() == {"one": False}, what="one is live")
            one.look()
            assert not one.announce_leaving(), "nobody is there to take over"
            two.look()
            eventually(lambda: leaving() == {"one": False, "two": False}, what="two is live")
            two.look()
            assert one.announce_leaving()
            eventually(lambda: leaving() == {"one": True, "two": False}, what="one leaves")
            one.look()
            assert leaving() == {"one": True, "two": False}, "it still says so, and is live"
            assert not two.announce_leaving(), "who leaves takes nothing over"
        finally:
            one.leave()
            two.leave()
