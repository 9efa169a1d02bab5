"""A consumer that is to stop tells Consul before it closes anything, if another consumer is there to take over."""

from __future__ import annotations

from muster.edges.consul import ConsulCluster
from muster.settings.connections import ConsulSettings
from tests.conftest import Eventually
from tests.integration.registrars import Process
from tests.support.http_pages import Pages


def test_leaving_consumer_says_so_while_it_stays_live(
    consul: ConsulSettings, cluster: str, page: Pages, eventually: Eventually
) -> None:
    discovery = ConsulCluster(consul, cluster, f"{cluster}-service")

    def leaving() -> dict[str, bool]:
        membership = discovery.catalog.members().membership
        return {} if membership is None else {c.id: c.leaving for c in membership.live.values()}

    one, two = (Process(consul, cluster, c, page.port).registrar for c in ("one", "two"))
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
