"""What a consumer hears of Consul though it watches nothing of the others, and what it asks for that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import httpx
import pytest

import muster
from benchmarks.counting_proxy import CountingProxy
from devstack.ports import free_port
from muster.consumer.agent import Agent
from muster.consumer.http_server import HttpServer
from muster.consumer.registration import ISOLATED
from muster.consumer.status_page import make_status_page
from muster.core.starting import Stage
from muster.core.wire import PROTOCOL
from muster.edges.consul import ConsulCluster, ConsulError, Own, Registration
from muster.edges.status import StatusFailure, poll_statuses
from muster.settings.connections import ConsulSettings
from muster.settings.consumer import ConsumerSettings
from tests.conftest import Eventually
from tests.integration.registrars import Process
from tests.support.consumer_settings import consumer_settings
from tests.support.http_pages import Page, Pages

AGENT = "/v1/agent/health/service/id/x"
QUIET = 6.0
"""Seconds that a quiet consumer is looked at: more than one question to the agent."""


@pytest.fixture
def process(consul: ConsulSettings, cluster: str, page: Pages, eventually: Eventually) -> Iterator[Process]:
    """A consumer that is live, with its loop."""
    made = Process(consul, cluster, "x", page.port)
    with made.running():
        eventually(lambda: made.registrar.live, what="it is live, and knows it")
        yield made


def key_url(consul: ConsulSettings, cluster: str, key: str) -> str:
    return f"http://{consul.host}:{consul.port}/v1/kv/muster/{cluster}/{key}"


def waiting(discovery: ConsulCluster, own: Own, timeout: float) -> tuple[Thread, list[Own]]:
    found: list[Own] = []
    thread = Thread(
        target=lambda: found.append(discovery.catalog.wait_own(own, timeout, 60.0, lambda: False)),
        daemon=True,
    )
    thread.start()
    return thread, found


@pytest.mark.parametrize("kind", ["stop", "isolated", "generations"])
def test_wait_own_returns_at_once_when_one_of_its_keys_is_made_changed_or_deleted(
    consul: ConsulSettings, cluster: str, kind: str
) -> None:
    discovery = ConsulCluster(consul, cluster, f"{cluster}-service")
    url = key_url(consul, cluster, f"{kind}/x")
    own = discovery.catalog.own("x")
    changes: tuple[Callable[[], httpx.Response], ...] = (
        lambda: httpx.put(url, content="{}", trust_env=False),
        lambda: httpx.put(url, content='{"a": 1}', trust_env=False),
        lambda: httpx.delete(url, trust_env=False),
    )
    for change in changes:
        thread, found = waiting(discovery, own, 20.0)
        thread.join(0.5)
        assert thread.is_alive(), "nothing has changed yet"
        change().raise_for_status()
        thread.join(3.0)
        assert found, "it came back"
        assert found[0] != own
        own = found[0]


def test_wait_own_is_not_woken_by_keys_of_others(consul: ConsulSettings, cluster: str) -> None:
    discovery = ConsulCluster(consul, cluster, f"{cluster}-service")
    began = time.monotonic()
    thread, found = waiting(discovery, discovery.catalog.own("x"), 6.0)
    for n in range(5):
        discovery.overrides.isolate(f"x{n}", "anna", "why", 1.0)
        discovery.jobs.request_stop(f"x{n}", "i", "anna", "why")
        discovery.jobs.take_generation(f"x{n}", "i")
    thread.join(20.0)
    assert time.monotonic() - began >= 6.0
    assert (found[0].stop.key, found[0].isolation.key, found[0].generation.key) == (None, None, None)


def test_wait_own_comes_back_when_interrupted(consul: ConsulSettings, cluster: str) -> None:
    discovery = ConsulCluster(consul, cluster, f"{cluster}-service")
    began = time.monotonic()
    until = began + 1.0
    discovery.catalog.wait_own(discovery.catalog.own("x"), 60.0, 60.0, lambda: time.monotonic() > until)
    assert time.monotonic() - began < 10.0


def test_wait_own_raises_what_consul_refuses(consul: ConsulSettings, cluster: str) -> None:
    discovery = ConsulCluster(consul, cluster, f"{cluster}-service")
    own = discovery.catalog.own("x")
    gone = ConsulCluster(consul.model_copy(update={"port": 1}), cluster, discovery.catalog.service)
    with pytest.raises(ConsulError, match="check that the agent runs"):
        gone.catalog.wait_own(own, 5.0, 5.0, lambda: False)


def test_live_consumer_hears_isolation_and_a_request_to_stop(
    process: Process, eventually: Eventually
) -> None:
    process.discovery.overrides.isolate("x", "anna", "disk full", 1.0)
    eventually(lambda: ISOLATED in process.agent.view().blocks, timeout=3.0, what="it hears its isolation")
    process.discovery.jobs.request_stop("x", process.incarnation, "anna", "new version")
    eventually(lambda: process.ending.asked, timeout=3.0, what="it hears the request")


def test_live_consumer_hears_maintenance_mode(
    process: Process, consul: ConsulSettings, eventually: Eventually
) -> None:
    agent = f"http://{consul.host}:{consul.port}/v1/agent/service"
    httpx.put(f"{agent}/maintenance/x?enable=true", trust_env=False).raise_for_status()
    eventually(lambda: ISOLATED in process.agent.view().blocks, timeout=10.0, what="it hears of it")
    httpx.put(f"{agent}/maintenance/x?enable=false", trust_env=False).raise_for_status()
    eventually(lambda: process.registrar.live, timeout=10.0, what="it is live again")


def test_live_consumer_registers_again_when_its_agent_forgot_it(
    process: Process, eventually: Eventually
) -> None:
    assert process.discovery.catalog.deregister("x")
    eventually(
        lambda: (
            (own := process.discovery.catalog.own_registration("x")) is not None
            and own.incarnation == process.incarnation
        ),
        timeout=10.0,
        what="it is registered again",
    )
    assert process.registrar.generation == 1


def test_consumer_registers_again_with_its_last_health(
    process: Process, page: Pages, eventually: Eventually
) -> None:
    """As when Consul has reaped one whose check failed for an hour."""
    page.answer = lambda _: Page(b"loop 'query' is stuck", 503)
    eventually(lambda: not process.registrar.live, what="it has seen that its check fails")
    assert process.discovery.catalog.deregister("x")
    again = eventually(
        lambda: process.discovery.catalog.own_registration("x"), timeout=10.0, what="it is registered again"
    )
    assert not again.passing, "before its first check"


def test_dead_consumer_stays_dead_when_another_takes_its_port(
    consul: ConsulSettings, cluster: str, eventually: Eventually
) -> None:
    port = free_port()
    first = Process(consul, cluster, "x", port)
    other = consumer_settings(cluster="another", consumer="y", incarnation="its-own")
    catalog = first.discovery.catalog
    with first.running():
        with serving(first.agent, first.settings, port):
            eventually(lambda: first.registrar.live, what="it is live")
        eventually(lambda: not registered_as(first).passing, what="its process has ended")
        with serving(Agent("y"), other, port):
            eventually(
                lambda: "here is consumer y of cluster another" in registered_as(first).output,
                what="Consul has asked the other process",
            )
            members = catalog.members()
            assert members.membership is not None
            assert "x" not in members.membership.live
            asked = members.membership.failing["x"]
            failure = poll_statuses([asked], 5.0)["x"]
            assert isinstance(failure, StatusFailure)
            assert "answers consumer y, not x" in failure.reason


def registered_as(process: Process) -> Registration:
    found = process.discovery.catalog.registered_as("x")
    assert found is not None
    return found


@contextmanager
def serving(agent: Agent, settings: ConsumerSettings, port: int) -> Iterator[None]:
    """The status page of one process, as long as this lasts."""
    server = HttpServer("status-page", make_status_page(agent, settings, list), "127.0.0.1", port)
    server.start()
    try:
        yield
    finally:
        server.stop()


def test_registration_names_the_versions_of_muster_and_of_the_protocol(process: Process) -> None:
    registered = process.discovery.catalog.members().registered["x"]
    assert registered.meta["version"] == muster.__version__
    assert registered.meta["protocol"] == str(PROTOCOL)


def test_consumer_is_registered_before_it_is_live(process: Process) -> None:
    assert process.stages == [Stage.REGISTERED, Stage.LIVE]


def test_quiet_consumer_asks_for_itself_only_however_many_others_there_are(
    consul: ConsulSettings, cluster: str, page: Pages, eventually: Eventually
) -> None:
    discovery = ConsulCluster(consul, cluster, f"{cluster}-service")
    others = [f"other-{n}" for n in range(200)]
    for other in others:
        url = f"http://127.0.0.1:{page.port}/health"
        discovery.catalog.register(other, "127.0.0.1", page.port, {}, url, 60.0, 60.0, passing=True)
    with CountingProxy(consul.host, consul.port) as proxy:
        quiet = Process(consul.model_copy(update={"port": proxy.port}), cluster, "x", page.port)
        with quiet.running():
            eventually(lambda: quiet.registrar.live, what="it is live")
            joined = len(proxy.requests)
            eventually(lambda: AGENT in proxy.requests[joined:], what="it has asked the agent as a live one")
            before, asked = proxy.bytes, len(proxy.requests)
            time.sleep(QUIET)
            received, paths = proxy.bytes - before, proxy.requests[asked:]
    for other in others:
        discovery.catalog.deregister(other)
    assert 1 <= len(paths) <= 2, paths
    assert set(paths) == {AGENT}
    assert received < 5_000
