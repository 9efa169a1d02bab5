"""TLS to a real ZooKeeper: the certificate and its host name are checked, which kazoo by default would not do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.certificates import Authority
from devstack.secured import SecureZooKeeper
from muster.edges.zookeeper import TopicStore, ZooKeeperError
from muster.settings.connections import ZooKeeperSettings


@pytest.fixture(scope="module")
def client(authority: Authority) -> Path:
    return authority.issue("client")


@pytest.fixture(scope="module", params=["127.0.0.1", "elsewhere.example"])
def secure(
    request: pytest.FixtureRequest, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, SecureZooKeeper]]:
    """A server with a certificate for its address, and one with a certificate for another host."""
    name = str(request.param)
    folder = tmp_path_factory.mktemp(name) / "zookeeper"
    server = SecureZooKeeper(folder, {}, authority.issue(name), authority.ca, client_certificates=True)
    server.start()
    yield name, server
    server.stop()


def settings(server: SecureZooKeeper, ca: Path, client: Path | None, **more: object) -> ZooKeeperSettings:
    return ZooKeeperSettings.model_validate(
        {
            "hosts": server.secure_address,
            "operation_timeout": 5.0,
            "use_ssl": True,
            "ca": str(ca),
            "certfile": str(client) if client else None,
            "keyfile": str(client) if client else None,
        }
        | more
    )


def connects(wanted: ZooKeeperSettings) -> bool:
    with TopicStore(wanted, "c") as store:
        return store.topics() == []


def test_the_host_name_in_the_certificate_counts(
    secure: tuple[str, SecureZooKeeper], authority: Authority, client: Path
) -> None:
    name, server = secure
    if name == "127.0.0.1":
        assert connects(settings(server, authority.ca, client))
    else:
        with pytest.raises(ZooKeeperError, match="certificate"):
            connects(settings(server, authority.ca, client))
    assert connects(settings(server, authority.ca, client, check_hostname=False))


def test_foreign_certificate_is_refused(
    secure: tuple[str, SecureZooKeeper], client: Path, tmp_path: Path
) -> None:
    _, server = secure
    stranger = Authority(tmp_path / "stranger")
    with pytest.raises(ZooKeeperError, match="certificate"):
        connects(settings(server, stranger.ca, client, check_hostname=False))
    assert connects(settings(server, stranger.ca, client, verify_certs=False))


def test_a_client_without_a_certificate_is_refused_by_a_server_that_needs_one(
    secure: tuple[str, SecureZooKeeper], authority: Authority
) -> None:
    _, server = secure
    with pytest.raises(ZooKeeperError, match="no connection"):
        connects(settings(server, authority.ca, None, check_hostname=False, operation_timeout=2.0))
