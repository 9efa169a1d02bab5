"""The bearer token of the consumers' status pages, over real HTTP, and what the coordinator makes of a refusal."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest
from pydantic import SecretStr

from muster.consumer.agent import Agent
from muster.consumer.http_server import HttpServer
from muster.consumer.predecessor import Predecessor, ask
from muster.consumer.status_page import make_status_page
from muster.coordinator.opening import open_coordinator
from muster.core.model import Consumer, ConsumerStatus
from muster.edges.consul import ConsulCluster
from muster.edges.status import StatusFailure, poll_statuses
from muster.edges.zookeeper import TopicStore
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import (
    ConsulSettings,
    KafkaSettings,
    StatusPageSettings,
    ZooKeeperSettings,
)
from tests.conftest import Eventually
from tests.support.consumer_settings import consumer_settings

TOKEN = SecretStr("a-token-that-stands-nowhere-else")
WRONG = SecretStr("an-older-token")
GUARDED = StatusPageSettings(token=TOKEN)


def listens(server: HttpServer) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((server.host, server.port)) == 0


CLUSTER = f"c{uuid4().hex[:8]}"


def serve(token: SecretStr | None, eventually: Eventually) -> Iterator[HttpServer]:
    settings = consumer_settings(cluster=CLUSTER, status_token=token)
    server = HttpServer("status-page", make_status_page(Agent("me"), settings, list), "127.0.0.1", 0)
    server.start()
    eventually(lambda: listens(server), what="the page answers")
    yield server
    server.stop()


@pytest.fixture
def guarded(eventually: Eventually) -> Iterator[HttpServer]:
    yield from serve(TOKEN, eventually)


@pytest.fixture
def open_page(eventually: Eventually) -> Iterator[HttpServer]:
    yield from serve(None, eventually)


def get(server: HttpServer, path: str, authorization: str | None = None) -> httpx.Response:
    headers = {} if authorization is None else {b"Authorization": authorization.encode("latin-1")}
    return httpx.get(server.url + path, headers=headers, trust_env=False)


@pytest.mark.parametrize("path", ["/status", "/metrics"])
def test_only_requests_with_the_token_are_answered(guarded: HttpServer, path: str) -> None:
    secret = TOKEN.get_secret_value()
    assert get(guarded, path, f"Bearer {secret}").status_code == 200
    for wrong in (None, "", "Bearer", f"Bearer {secret}x", f"Basic {secret}", secret, "Bearer \xe4"):
        refused = get(guarded, path, wrong)
        assert refused.status_code == 401, wrong
        assert refused.headers["WWW-Authenticate"] == "Bearer"
        assert "needs the bearer token" in refused.text
        assert secret not in refused.text


def test_health_is_open_to_consuls_check(guarded: HttpServer) -> None:
    assert get(guarded, "/health").text == "ok"


def test_pages_are_open_without_a_token(open_page: HttpServer) -> None:
    for path in ("/status", "/metrics", "/health"):
        assert get(open_page, path).status_code == 200
    # A coordinator that has a token already does no harm to a consumer that was started before.
    assert get(open_page, "/status", f"Bearer {TOKEN.get_secret_value()}").status_code == 200


@pytest.mark.parametrize(
    ("token", "said"), [(None, "and none was sent"), (WRONG, "another one than was sent")]
)
def test_the_poll_says_what_is_wrong_with_the_token(
    guarded: HttpServer, token: SecretStr | None, said: str
) -> None:
    me = Consumer("me", "127.0.0.1", guarded.port)
    assert isinstance(poll_statuses([me], 5.0, GUARDED)["me"], ConsumerStatus)
    failure = poll_statuses([me], 5.0, StatusPageSettings(token=token))["me"]
    assert isinstance(failure, StatusFailure)
    assert (
        f"http://127.0.0.1:{guarded.port}/status answered 401: it asks for a bearer token, {said}"
        in failure.reason
    )
    assert "check the cluster's 'status' connection" in failure.reason
    assert TOKEN.get_secret_value() not in failure.reason
    assert WRONG.get_secret_value() not in failure.reason


def test_a_successor_looks_at_its_predecessor_with_the_token(guarded: HttpServer) -> None:
    older = Predecessor("i", "127.0.0.1", guarded.port)
    answer = ask(older, GUARDED)
    assert isinstance(answer, ConsumerStatus)
    assert answer.consumer == "me"
    assert not isinstance(ask(older), ConsumerStatus)


def test_refusal_is_an_unavailable_status_for_the_coordinator(
    guarded: HttpServer, zookeeper: ZooKeeperSettings, consul: ConsulSettings, eventually: Eventually
) -> None:
    name = CLUSTER
    cluster = ClusterSettings.model_validate(
        {
            "name": name,
            "consul_service": name,
            "group_id": "g",
            "topics": ["flights"],
            "consumers": {"handler": "muster.handlers.parquet.ParquetHandler"},
        }
    )
    kafka = KafkaSettings(config={"bootstrap.servers": "127.0.0.1:9"}, operation_timeout=1.0)
    with TopicStore(zookeeper, name) as store:
        store.create_topic("flights", "h:9092", "g")
        store.set_partitions("flights", frozenset({0}))
    discovery = ConsulCluster(consul, name, name)
    discovery.catalog.register("me", "127.0.0.1", guarded.port, {}, f"{guarded.url}/health", 0.2, 60.0)
    try:

        def live() -> bool:
            membership = discovery.catalog.members().membership
            return membership is not None and "me" in membership.live

        eventually(live, what="Consul's check needs no token")
        with open_coordinator(
            cluster, zookeeper, consul, kafka, StatusPageSettings(token=WRONG)
        ) as coordinator:
            refused = coordinator.advance(0.0)
        with open_coordinator(cluster, zookeeper, consul, kafka, GUARDED) as coordinator:
            answered = coordinator.advance(0.0)
    finally:
        discovery.catalog.deregister("me")
    [waiting] = refused.waiting
    assert "waiting for me to say what it holds (its status is unavailable: its status page" in waiting
    assert "answered 401" in waiting
    assert not refused.stable
    [waiting] = answered.waiting
    assert "it has not read the topic's assignment yet" in waiting
