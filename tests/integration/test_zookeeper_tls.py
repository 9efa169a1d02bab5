"""TLS to a real ZooKeeper: the certificate and its host name are checked, which kazoo by default would not do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from devstack.zookeeper import ZooKeeper
from muster.edges.zookeeper import TopicStore, ZooKeeperError
from muster.settings.connections import ZooKeeperSettings


class Authority:
    """A certificate authority in a folder; `ca` is its own certificate's file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority of {folder.name}")])
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *names: x509.GeneralName) -> Path:
        """Write key and certificate for `names` into one file."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
            .add_extension(x509.SubjectAlternativeName(list(names)), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        path = self.folder / f"{name}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        return path

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
        )


class SecureZooKeeper(ZooKeeper):
    """Speaks TLS on a second port, with `certificate`, and asks clients for one of `ca`."""

    roles = ("client", "secure")

    def __init__(self, data_dir: Path, certificate: Path, ca: Path) -> None:
        super().__init__(data_dir, guarded=True)
        self._certificate, self._ca = certificate, ca

    def prepare(self) -> None:
        super().prepare()
        settings = {
            "secureClientPort": str(self.ports["secure"]),
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(self._certificate),
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": str(self._ca),
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "need",
        }
        with (self.data_dir / "zoo.cfg").open("a", encoding="utf-8") as file:
            file.writelines(f"{key}={value}\n" for key, value in settings.items())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def client(authority: Authority) -> Path:
    return authority.issue("client", x509.DNSName("client"))


@pytest.fixture(scope="module", params=["127.0.0.1", "elsewhere.example"])
def secure(
    request: pytest.FixtureRequest, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, SecureZooKeeper]]:
    """A server with a certificate for its address, and one with a certificate for another host."""
    name = str(request.param)
    alternative = x509.IPAddress(ip_address(name)) if name[0].isdigit() else x509.DNSName(name)
    certificate = authority.issue(name, alternative)
    server = SecureZooKeeper(tmp_path_factory.mktemp(name) / "zookeeper", certificate, authority.ca)
    server.start()
    yield name, server
    server.stop()


def settings(server: SecureZooKeeper, ca: Path, client: Path | None, **more: object) -> ZooKeeperSettings:
    return ZooKeeperSettings.model_validate(
        {
            "hosts": f"127.0.0.1:{server.ports['secure']}",
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


def test_a_certificate_of_somebody_else_is_refused(
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
