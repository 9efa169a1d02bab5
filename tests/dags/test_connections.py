"""Airflow connections to settings, and the message when one is wrong."""

from __future__ import annotations

import asyncio

import pytest
from airflow.sdk import Connection

from muster.airflow import connections as module
from muster.airflow.connections import CONNECTIONS, aconsul_settings
from muster.settings.connection_lookup import CONNECTIONS as COMMAND_LINE
from muster.settings.connection_parsing import ConnectionSettingsError
from tests.dags.conftest import connection

SECRET = "tell-nobody"  # noqa: S105


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch):
    def give(**values: object) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_C", connection(**values))

    return give


def test_zookeeper_takes_several_hosts_a_chroot_and_the_settings_keys(given):
    given(conn_type="generic", host="a:1,b:2/root", extra={"use_ssl": True, "ca": "/ca.pem"})
    settings = CONNECTIONS.zookeeper("c")
    assert settings.hosts == "a:1,b:2/root"
    assert settings.use_ssl
    assert settings.ca == "/ca.pem"


def test_zookeeper_takes_a_port_for_every_host_that_has_none(given):
    given(conn_type="generic", host="a,b:2/root", port=2181)
    assert CONNECTIONS.zookeeper("c").hosts == "a:2181,b:2/root"


@pytest.mark.parametrize("uri", ["zookeeper://a,b:2/root", "zookeeper://a:1/root/of/it"])
def test_path_of_a_zookeeper_uri_is_its_chroot(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_C", uri)
    for connections in (CONNECTIONS, COMMAND_LINE):
        assert connections.zookeeper("c").hosts.endswith(uri[uri.index("/root") :])


def test_two_chroots_are_refused(given):
    given(conn_type="generic", host="a:1/root", schema="other")
    with pytest.raises(ConnectionSettingsError, match=r"'c', key 'schema'.*'/root'; give one of them"):
        CONNECTIONS.zookeeper("c")


def test_zookeeper_credentials_are_read(given):
    given(
        conn_type="generic", host="a:1", login="me", password=SECRET, extra={"sasl_mechanism": "DIGEST-MD5"}
    )
    settings = CONNECTIONS.zookeeper("c")
    assert settings.username == "me"
    assert settings.password is not None
    assert settings.password.get_secret_value() == SECRET
    assert SECRET not in repr(settings)


def test_zookeeper_credentials_must_say_how_they_are_meant(given):
    given(conn_type="generic", host="a:1", login="me", password=SECRET)
    with pytest.raises(ConnectionSettingsError, match=r"'c', key 'login'.*auth_scheme.*sasl_mechanism"):
        CONNECTIONS.zookeeper("c")


def test_consul_connection_is_read(given):
    given(
        conn_type="http",
        host="h",
        port=8501,
        schema="https",
        password=SECRET,
        extra={"datacenter": "dc2", "verify": False},
    )
    settings = CONNECTIONS.consul("c")
    assert (settings.host, settings.port, settings.scheme) == ("h", 8501, "https")
    assert settings.token is not None
    assert settings.token.get_secret_value() == SECRET
    assert settings.datacenter == "dc2"
    assert not settings.verify
    assert settings == asyncio.run(aconsul_settings("c"))


def test_triggerer_reads_connections_with_older_airflow(given, monkeypatch):
    given(conn_type="http", host="h", extra={"datacenter": "dc2"})
    monkeypatch.setattr(module, "READS_ASYNC", False)
    monkeypatch.delattr(Connection, "aextra_dejson", raising=False)
    assert asyncio.run(aconsul_settings("c")) == CONNECTIONS.consul("c")


def test_kafka_extra_is_librdkafka_configuration(given):
    given(
        conn_type="kafka",
        extra={
            "bootstrap.servers": "h:9092",
            "enable.ssl.certificate.verification": True,
            "operation_timeout": 3,
        },
    )
    settings = CONNECTIONS.kafka("c")
    assert settings.config == {"bootstrap.servers": "h:9092", "enable.ssl.certificate.verification": "true"}
    assert settings.operation_timeout == 3


@pytest.mark.parametrize(
    ("read", "values", "expected"),
    [
        (CONNECTIONS.zookeeper, {"conn_type": "generic"}, "key 'host': is empty"),
        (
            CONNECTIONS.zookeeper,
            {"host": "a", "extra": {"tls": SECRET}},
            r"key 'extra.tls': unknown key; .*use_ssl",
        ),
        (
            CONNECTIONS.zookeeper,
            {"host": "a", "extra": {"use_ssl": SECRET}},
            r"key 'extra.use_ssl': .*boolean",
        ),
        (CONNECTIONS.consul, {"host": "a", "schema": SECRET}, "key 'schema': .*'http' or 'https'"),
        (CONNECTIONS.consul, {"host": "a", "port": 70000}, "key 'port': .*less than 65536"),
        (CONNECTIONS.consul, {"host": "a", "extra": {"token": SECRET}}, "key 'extra.token': unknown key"),
        (CONNECTIONS.kafka, {"host": "a", "port": 9092}, "key 'extra': needs 'bootstrap.servers'"),
        (CONNECTIONS.kafka, {"extra": "{" + SECRET}, "key 'extra': is not JSON"),
        (CONNECTIONS.kafka, {"extra": f'["{SECRET}"]'}, "key 'extra': is not a JSON object"),
    ],
)
def test_a_mistake_names_connection_and_key_and_shows_no_value(given, read, values, expected):
    given(**({"conn_type": "generic"} | values))
    with pytest.raises(ConnectionSettingsError, match=expected) as caught:
        read("c")
    assert "Airflow connection 'c'" in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_missing_connection_is_named_with_the_next_step():
    with pytest.raises(ConnectionSettingsError, match="no Airflow connection 'nowhere'; create it"):
        CONNECTIONS.consul("nowhere")
    with pytest.raises(ConnectionSettingsError, match="no Airflow connection 'nowhere'; create it"):
        asyncio.run(aconsul_settings("nowhere"))


def test_the_status_pages_token_is_the_password(given):
    given(conn_type="generic", password=SECRET)
    pages = CONNECTIONS.status_pages("c")
    assert pages.token is not None
    assert pages.token.get_secret_value() == SECRET
    assert SECRET not in repr(pages)
    assert (pages.scheme, CONNECTIONS.status_pages(None).token) == ("http", None)


def test_status_pages_have_tls_with_certificate_and_ca(given):
    given(conn_type="generic", password=SECRET, extra={"certfile": "c.pem", "ca": "ca.pem", "keyfile": ""})
    pages = CONNECTIONS.status_pages("c")
    assert pages.tls is not None
    assert (pages.scheme, pages.tls.certfile, pages.tls.ca, pages.tls.keyfile) == (
        "https",
        "c.pem",
        "ca.pem",
        None,
    )
    for half, missing in (({"certfile": "c.pem"}, "ca"), ({"ca": "ca.pem"}, "certfile")):
        given(conn_type="generic", password=SECRET, extra=half)
        with pytest.raises(
            ConnectionSettingsError, match=rf"'c', key 'extra\.{missing}': is missing; add it"
        ):
            CONNECTIONS.status_pages("c")
    given(conn_type="generic", password=SECRET, extra={"cafile": "ca.pem"})
    with pytest.raises(ConnectionSettingsError, match=r"'extra\.cafile': unknown key; did you mean"):
        CONNECTIONS.status_pages("c")


def test_airflows_api_is_used_with_a_login_or_with_a_bearer_token(given):
    given(conn_type="http", host="h", port=443, schema="https", password=SECRET, extra={"ca": "ca.pem"})
    found = CONNECTIONS.airflow_api("c")
    assert (found.address, found.ca, found.username, found.password) == (
        "https://h:443",
        "ca.pem",
        None,
        None,
    )
    assert found.token is not None and found.token.get_secret_value() == SECRET
    given(conn_type="http", host="h/team", login="ann", password=SECRET)
    found = CONNECTIONS.airflow_api("c")
    assert (found.address, found.username, found.token) == ("http://h/team", "ann", None)
    assert SECRET not in repr(found)
    for wrong, key in (({"host": "h"}, "password"), ({"password": SECRET}, "host")):
        given(conn_type="http", **wrong)
        with pytest.raises(ConnectionSettingsError, match=f"'c', key '{key}'"):
            CONNECTIONS.airflow_api("c")


def test_consul_has_namespace_and_partition(given):
    given(conn_type="consul", host="h", extra={"namespace": "team", "partition": "part"})
    found = CONNECTIONS.consul("c")
    assert (found.namespace, found.partition) == ("team", "part")


@pytest.mark.parametrize("read", [CONNECTIONS.token, CONNECTIONS.status_pages, CONNECTIONS.consul])
@pytest.mark.parametrize("password", [f"{SECRET}\n", f"two {SECRET}", f"{SECRET}\xe9"])
def test_a_token_that_no_header_can_hold_is_refused_and_not_shown(given, read, password):
    given(conn_type="http", host="h", port=1, password=password)
    with pytest.raises(
        ConnectionSettingsError, match=r"'c', key 'password'.*no HTTP header can hold"
    ) as refused:
        read("c")
    assert SECRET not in str(refused.value)


def test_a_status_connection_without_a_token_is_refused(given):
    given(conn_type="generic")
    with pytest.raises(ConnectionSettingsError, match=r"'c', key 'password': .*is empty"):
        CONNECTIONS.status_pages("c")


def test_zookeepers_acl_is_checked_when_it_is_read(given):
    given(conn_type="generic", host="a:1", extra={"acl": "sasl:me:x"})
    with pytest.raises(ConnectionSettingsError, match=r"'c', key 'extra.acl'.*'cdrwa'"):
        CONNECTIONS.zookeeper("c")


def test_kafka_connection_of_others_with_a_group_is_taken_with_a_warning(given, caplog):
    given(
        conn_type="kafka", extra={"bootstrap.servers": "a", "group.id": SECRET, "auto.offset.reset": "latest"}
    )
    assert CONNECTIONS.kafka("c").config == {"bootstrap.servers": "a"}
    assert "Airflow connection 'c': auto.offset.reset, group.id: ignored" in caplog.text
    assert SECRET not in caplog.text
