"""A consumer's processes on two hosts, each with a Consul agent of its own, and one server between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devstack.consul import Consul
from devstack.consul_agent import ConsulAgent
from muster.consumer.predecessor import Predecessor
from muster.core.model import ConsumerStatus, Membership, TopicStatus
from muster.edges.consul import ConsulCluster
from muster.edges.status import StatusFailure
from muster.settings.connections import ConsulSettings
from tests.conftest import Eventually
from tests.integration.registrars import Process
from tests.support.http_pages import Pages

Hosts = tuple[ConsulSettings, ConsulSettings, ConsulSettings]
"""Where host A's agent, host B's agent and the server are."""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("consul")
    server = Consul(folder / "server", guarded=True)
    server.start()
    agents = [ConsulAgent(folder / node, [server], node, guarded=True) for node in ("host-a", "host-b")]
    try:
        for agent in agents:
            agent.start()
        a, b, at_server = (ConsulSettings(port=each.port) for each in (*agents, server))
        yield a, b, at_server
    finally:
        for each in (*agents, server):
            each.stop()


def seen(consul: ConsulSettings, cluster: str) -> Membership:
    """What the coordinator sees."""
    members = ConsulCluster(consul, cluster, f"{cluster}-service").catalog.members()
    assert members.membership is not None, members.doubt
    return members.membership


def is_live(consul: ConsulSettings, cluster: str, process: Process) -> bool:
    consumer = seen(consul, cluster).live.get(process.settings.consumer)
    return consumer is not None and consumer.incarnation == process.incarnation


def still_reading(older: Process) -> ConsumerStatus:
    return ConsumerStatus(
        older.settings.consumer, older.incarnation, {"t": TopicStatus(running=frozenset({0}))}
    )


def replaced(
    hosts: Hosts, cluster: str, page: Pages, eventually: Eventually
) -> tuple[Process, Process, Process]:
    """Consumer x is live on host A, then by a newer process on host B, which waits for the older one; y is live."""
    a, b, server = hosts
    x_on_a, y = Process(a, cluster, "x", page.port), Process(b, cluster, "y", page.port)
    x_on_b = Process(b, cluster, "x", page.port, ask=lambda _: still_reading(x_on_a))
    for process in (x_on_a, y):
        process.registrar.look()
    for process in (x_on_a, y):
        eventually(lambda process=process: is_live(server, cluster, process), what="it is live")  # type: ignore[misc]
        process.registrar.look()
    x_on_b.registrar.look()
    eventually(lambda: is_live(server, cluster, x_on_b), what="the process on host B is live")
    x_on_b.registrar.look()
    return x_on_a, x_on_b, y


def test_replaced_process_hears_at_once_and_announces_nothing(
    hosts: Hosts, cluster: str, page: Pages, eventually: Eventually
) -> None:
    server = hosts[2]
    older, newer, y = replaced(hosts, cluster, page, eventually)
    older.registrar.look()
    assert older.ending.replaced, "at its first look"
    assert newer.incarnation in older.ending.reason
    assert not older.registrar.announce_leaving()
    older.registrar.look()
    membership = seen(server, cluster)
    assert membership.live["x"].incarnation == newer.incarnation
    assert not membership.live["x"].leaving
    assert [older.incarnation for older in membership.older["x"]] == [older.incarnation]
    newer.registrar.look()
    assert not newer.ending.asked, newer.ending.reason
    for process in (older, newer, y):
        process.registrar.leave()


def test_replaced_process_announces_nothing_though_it_has_not_heard_yet(
    hosts: Hosts, cluster: str, page: Pages, eventually: Eventually
) -> None:
    older, newer, y = replaced(hosts, cluster, page, eventually)
    assert not older.registrar.announce_leaving(), "a signal came before the next look"
    assert is_live(hosts[2], cluster, newer)
    for process in (older, newer, y):
        process.registrar.leave()


def test_replaced_process_takes_only_its_own_registration_away(
    hosts: Hosts, cluster: str, page: Pages, eventually: Eventually
) -> None:
    server = hosts[2]
    older, newer, y = replaced(hosts, cluster, page, eventually)
    older.registrar.leave()
    eventually(lambda: not seen(server, cluster).older, what="the older registration is gone")
    assert is_live(server, cluster, newer)
    for process in (newer, y):
        process.registrar.leave()


def test_older_process_does_not_become_the_consumer_by_registering_again(
    hosts: Hosts, cluster: str, page: Pages, eventually: Eventually
) -> None:
    """Consul's index of a registration says nothing about which process is newer."""
    a, _, server = hosts
    older, newer, y = replaced(hosts, cluster, page, eventually)
    at_a = ConsulCluster(a, cluster, f"{cluster}-service")
    known = at_a.catalog.own_registration("x")
    assert known is not None
    at_a.catalog.deregister("x")
    eventually(lambda: not seen(server, cluster).older, what="host A's registration is gone")
    url = f"http://127.0.0.1:{page.port}/health"
    at_a.catalog.register(
        "x", "127.0.0.1", page.port, {**known.meta, "leaving": "true"}, url, 0.3, 60.0, passing=True
    )
    eventually(lambda: "x" in seen(server, cluster).older, what="host A has registered it again")
    membership = seen(server, cluster)
    assert membership.live["x"].incarnation == newer.incarnation
    assert not membership.live["x"].leaving
    newer.registrar.look()
    assert not newer.ending.asked, newer.ending.reason
    for process in (older, newer, y):
        process.registrar.leave()


def test_newer_process_waits_for_older_ones_with_every_agent(
    hosts: Hosts, cluster: str, page: Pages, eventually: Eventually
) -> None:
    asked: set[str] = set()
    first, second, y = replaced(hosts, cluster, page, eventually)

    def ask(older: Predecessor) -> StatusFailure:
        asked.add(older.incarnation)
        return StatusFailure(older.incarnation, "no answer")

    third = Process(hosts[2], cluster, "x", page.port, ask=ask)
    third.registrar.look()
    assert not third.registrar.look_at_predecessors()
    assert asked == {first.incarnation, second.incarnation}
    assert third.registrar.generation == 3
    for process in (first, second, third, y):
        process.registrar.leave()


def test_process_that_is_to_end_before_it_has_registered_does_not_take_the_place_of_another(
    hosts: Hosts, cluster: str, page: Pages, eventually: Eventually
) -> None:
    a, _, server = hosts
    older, newer = Process(a, cluster, "x", page.port), Process(a, cluster, "x", page.port)
    older.registrar.look()
    eventually(lambda: is_live(server, cluster, older), what="it is live")
    newer.ending.ask("SIGTERM received")
    newer.registrar.look()
    newer.registrar.leave()
    older.registrar.look()
    assert not older.ending.asked, older.ending.reason
    assert is_live(server, cluster, older)
    older.registrar.leave()


def test_process_that_ends_waits_for_the_older_one_whose_registration_it_has_taken(
    hosts: Hosts, cluster: str, page: Pages, eventually: Eventually
) -> None:
    a, _, server = hosts
    older = Process(a, cluster, "x", page.port)
    older.registrar.look()
    eventually(lambda: is_live(server, cluster, older), what="it is live")
    closed = ConsumerStatus("x", older.incarnation, {}, leaving=True)
    answers = [still_reading(older), still_reading(older), closed]
    newer = Process(a, cluster, "x", page.port, ask=lambda _: answers.pop(0))
    newer.registrar.look()
    newer.ending.ask("SIGTERM received")
    assert not newer.registrar.wait_for_predecessors(0.0), "the older one reads on"
    assert newer.registrar.wait_for_predecessors(10.0)
    assert not answers
    newer.registrar.leave()
    eventually(lambda: not seen(server, cluster).live, what="it has deregistered")


def test_deleted_generation_key_makes_no_process_older_than_a_registered_one(
    hosts: Hosts, cluster: str, page: Pages, eventually: Eventually
) -> None:
    older, newer, y = replaced(hosts, cluster, page, eventually)
    key = newer.discovery.catalog.own("x").generation
    assert newer.discovery.catalog._api.delete_key(key.name)
    third = Process(hosts[2], cluster, "x", page.port, ask=lambda _: StatusFailure("i", "no answer"))
    third.registrar.look()
    assert third.registrar.generation == 3
    assert newer.discovery.catalog._api.delete_key(key.name)
    third.registrar.look()
    for process in (older, newer):
        process.registrar.look()
        assert process.ending.replaced
    for process in (older, newer, third, y):
        process.registrar.leave()


def test_replaced_process_hears_within_a_second_or_two_while_nothing_else_happens(
    hosts: Hosts, cluster: str, page: Pages, eventually: Eventually
) -> None:
    a, b, server = hosts
    older = Process(a, cluster, "x", page.port)
    with older.running():
        eventually(lambda: is_live(server, cluster, older), what="it is live")
        newer = Process(b, cluster, "x", page.port, ask=lambda _: still_reading(older))
        newer.registrar.look()
        eventually(lambda: older.ending.replaced, timeout=3.0, what="it hears")
    newer.registrar.leave()
