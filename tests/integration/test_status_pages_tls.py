"""TLS of the consumers' status pages: real certificates, a real page, and a real Consul that checks it."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from pydantic import SecretStr

from devstack.certificates import Authority
from muster.consumer import http_server
from muster.consumer.agent import Agent
from muster.consumer.http_server import HttpServer
from muster.consumer.lifecycle import Ending
from muster.consumer.predecessor import Predecessor, ask
from muster.consumer.registration import Registrar
from muster.consumer.status_page import make_status_page
from muster.core.model import Consumer, ConsumerStatus
from muster.edges.consul import ConsulCluster
from muster.edges.status import StatusFailure, poll_statuses
from muster.edges.tls import client_context
from muster.settings.connection_lookup import CONNECTIONS
from muster.settings.connections import OPEN_PAGES, ConsulSettings, StatusPageSettings
from tests.conftest import Eventually
from tests.support.consumer_settings import consumer_settings
from tests.support.secured import connection

TOKEN = SecretStr("a-token-of-pages-with-tls")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("status-authority") / "ours")


def guarded(authority: Authority, certificate: Path) -> StatusPageSettings:
    """What the connection in `docs/security.md` says."""
    files = {"CERTIFICATE": str(certificate), "KEY": str(certificate), "CA": str(authority.ca)}
    found = connection("status-connection-tls", TOKEN=TOKEN.get_secret_value(), **files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_MUSTER_STATUS", json.dumps(found))
        return CONNECTIONS.status_pages("muster_status")


def with_tls(pages: StatusPageSettings, **changed: object) -> StatusPageSettings:
    assert pages.tls is not None
    return StatusPageSettings(token=pages.token, tls=pages.tls.model_copy(update=changed))


def serve(pages: StatusPageSettings, eventually: Eventually) -> HttpServer:
    settings = consumer_settings(status_token=pages.token, status_tls=pages.tls)
    page = make_status_page(Agent("me"), settings, list)
    server = HttpServer("status-page", page, "127.0.0.1", 0, pages.tls)
    server.start()

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((server.host, server.port)) == 0

    eventually(listens, what="the page answers")
    return server


@pytest.fixture(scope="module")
def pages(authority: Authority) -> StatusPageSettings:
    return guarded(authority, authority.issue("127.0.0.1"))


@pytest.fixture
def server(pages: StatusPageSettings, eventually: Eventually) -> Iterator[HttpServer]:
    server = serve(pages, eventually)
    yield server
    server.stop()


def polled(server: HttpServer, pages: StatusPageSettings) -> ConsumerStatus | StatusFailure:
    return poll_statuses([Consumer("me", "127.0.0.1", server.port)], 5.0, pages)["me"]


def test_page_answers_over_tls_those_who_trust_its_ca(server: HttpServer, pages: StatusPageSettings) -> None:
    assert server.url == f"https://127.0.0.1:{server.port}"
    assert isinstance(polled(server, pages), ConsumerStatus)
    assert isinstance(ask(Predecessor("i", "127.0.0.1", server.port), pages), ConsumerStatus)
    assert pages.tls is not None
    context = client_context(pages.tls.ca)
    health = httpx.get(f"{server.url}/health", verify=context, trust_env=False)
    assert health.text == "ok"
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{server.port}/health", trust_env=False)


def test_page_shows_renewed_certificate(
    authority: Authority, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "RENEWAL_LOOK", 1)
    renewed = guarded(authority, authority.issue("127.0.0.1"))
    server = serve(renewed, eventually)
    try:
        before = shown(server)
        assert renewed.tls is not None
        Path(renewed.tls.certfile).write_text("half a certificate")
        assert shown(server) == before
        authority.issue("127.0.0.1")
        eventually(lambda: shown(server) != before, what="the page shows its new certificate")
        assert isinstance(polled(server, renewed), ConsumerStatus)
    finally:
        server.stop()


def shown(server: HttpServer) -> str:
    """The certificate that the page shows."""
    return ssl.get_server_certificate((server.host, server.port))


def test_page_of_another_authority_is_not_believed(
    server: HttpServer, pages: StatusPageSettings, tmp_path: Path
) -> None:
    strange = with_tls(pages, ca=str(Authority(tmp_path / "strange").ca))
    failure = polled(server, strange)
    assert isinstance(failure, StatusFailure)
    assert "check 'ca' of the cluster's 'status' connection" in failure.reason
    assert not failure.refused
    assert not isinstance(ask(Predecessor("i", "127.0.0.1", server.port), strange), ConsumerStatus)


def test_certificate_names_the_registered_address_unless_that_is_not_asked_for(
    authority: Authority, eventually: Eventually
) -> None:
    elsewhere = guarded(authority, authority.issue("elsewhere.example"))
    server = serve(elsewhere, eventually)
    try:
        failure = polled(server, elsewhere)
        assert isinstance(failure, StatusFailure)
        assert "the address that the consumer registers stands in its certificate" in failure.reason
        lenient = with_tls(elsewhere, check_hostname=False)
        assert isinstance(polled(server, lenient), ConsumerStatus)
    finally:
        server.stop()


def test_page_without_tls_is_not_asked_by_those_who_expect_it(
    pages: StatusPageSettings, eventually: Eventually
) -> None:
    """So that a token is never sent to a page that is not the consumer's."""
    server = serve(OPEN_PAGES, eventually)
    try:
        failure = polled(server, pages)
    finally:
        server.stop()
    assert isinstance(failure, StatusFailure)
    assert "restart a consumer that was started before TLS" in failure.reason


def test_files_that_cannot_be_loaded_are_named(pages: StatusPageSettings, tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    with pytest.raises(OSError, match=r"none\.pem or its key cannot be loaded.*check 'certfile'"):
        serve(with_tls(pages, certfile=missing), lambda *_, **__: None)
    failure = poll_statuses([Consumer("me", "127.0.0.1", 1)], 5.0, with_tls(pages, ca=missing))["me"]
    assert isinstance(failure, StatusFailure)
    assert "none.pem cannot be loaded" in failure.reason


def test_consumer_registers_a_check_over_https_that_passes(
    server: HttpServer, pages: StatusPageSettings, consul: ConsulSettings, eventually: Eventually
) -> None:
    name = f"c{uuid4().hex[:8]}"
    settings = consumer_settings(
        cluster=name,
        consul_service=name,
        consul=consul,
        bind="127.0.0.1",
        advertise="127.0.0.1",
        check_interval=0.2,
        status_token=pages.token,
        status_tls=pages.tls,
    )
    discovery = ConsulCluster(consul, name, name)
    registrar = Registrar(settings, discovery, Agent("me"), Ending(), server.port)
    registrar.open()
    registrar.look()
    try:

        def live() -> bool:
            membership = discovery.catalog.members().membership
            return membership is not None and "me" in membership.live

        # The page speaks nothing but TLS: a check over plain HTTP would fail.
        eventually(live, what="Consul's check passes over https")
    finally:
        discovery.catalog.deregister("me")
