"""Where a consumer beside a local agent of Consul is: at an address that other machines reach."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psutil
import pytest

from devstack.consul import Consul
from muster.consumer.address import own_address, placed
from muster.doctor.cluster import check_addresses
from muster.doctor.findings import CheckOutcome, Part
from muster.settings.connections import ConsulSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.integration.registrars import Process
from tests.support.consumer_settings import consumer_settings
from tests.support.http_pages import Page, Pages

LOCAL = ZooKeeperSettings(hosts="127.0.0.1:2181")
ELSEWHERE = "198.51.100.7"
"""An address that no machine has, kept for documentation."""


def outside() -> str:
    """An address of this machine that others may reach."""
    for addresses in psutil.net_if_addrs().values():
        for each in addresses:
            if each.family == socket.AF_INET and not ip_address(each.address).is_loopback:
                return each.address
    pytest.skip("this machine has no other address than the loopback's")


class LocalAgent(Consul):
    """An agent that programs ask on the loopback address, and that others know under `advertised`."""

    advertised = ""

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"advertise_addr": self.advertised}


@pytest.fixture
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ConsulSettings]:
    server = LocalAgent(tmp_path / "consul", guarded=True)
    server.advertised = request.param or outside()
    server.start()
    yield ConsulSettings(port=server.port)
    server.stop()


@pytest.mark.stack
@pytest.mark.parametrize("agent", [""], indirect=True)
def test_consumer_registers_the_address_of_its_local_agent(
    agent: ConsulSettings, eventually: Eventually
) -> None:
    found = placed(consumer_settings(consul=agent, zookeeper=LOCAL))
    assert found.bind == found.advertise == outside()
    with Pages(lambda _: Page()) as page:
        local = Process(agent, "c", "local", page.port)
        with local.running():
            catalog = local.discovery.catalog
            eventually(lambda: (there := catalog.members().registered.get("local")) and there.passing)
            [registered] = catalog.members().registered.values()
            check = check_addresses(Part("consumers"), [registered])
    assert check.outcome is CheckOutcome.FAILED
    assert f"local: 127.0.0.1, with an agent at {outside()}" in check.found
    assert "'advertise'" in check.step


@pytest.mark.stack
@pytest.mark.parametrize("agent", [ELSEWHERE], indirect=True)
def test_address_of_an_agent_on_another_machine_is_not_taken(agent: ConsulSettings) -> None:
    zookeeper = ZooKeeperSettings(hosts=f"127.0.0.1:2181,{outside()}:2181/chroot")
    assert own_address(consumer_settings(consul=agent, zookeeper=zookeeper)) == outside()


def test_loopback_is_taken_where_everything_is_on_one_machine(consul: ConsulSettings) -> None:
    found = placed(consumer_settings(consul=consul, zookeeper=LOCAL))
    assert (found.bind, found.advertise) == ("127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"bind": "0.0.0.0"}, ("0.0.0.0", "OUTSIDE")),  # noqa: S104
        ({"bind": "127.0.0.1"}, ("127.0.0.1", "127.0.0.1")),
        ({"advertise": "127.0.0.1"}, ("127.0.0.1", "127.0.0.1")),
        ({"advertise": ELSEWHERE}, ("OUTSIDE", ELSEWHERE)),
        ({"bind": "127.0.0.1", "advertise": ELSEWHERE}, ("127.0.0.1", ELSEWHERE)),
    ],
)
def test_address_that_was_given_is_kept(given: dict[str, str], expected: tuple[str, str]) -> None:
    """The agent of Consul does not answer, and the way to ZooKeeper says where this machine is."""
    settings = consumer_settings(
        consul=ConsulSettings(port=9), zookeeper=ZooKeeperSettings(hosts=f"{outside()}:2181"), **given
    )
    found = placed(settings)
    assert (found.bind, found.advertise) == tuple(each.replace("OUTSIDE", outside()) for each in expected)
