"""A certificate authority in a folder, for servers and clients that are to be trusted for a few hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_VALID = timedelta(hours=12)


class Authority:
    """Issues certificates that are valid for `valid`. `ca` is the file with its own."""

    def __init__(self, folder: Path, valid: timedelta = _VALID) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._valid = valid
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"authority of {folder.name}")
        certificate = (
            self._builder(self._name, self._key, _VALID)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, *hosts: str) -> Path:
        """Write key and certificate for `hosts` (names or addresses) into one file, in the place of earlier ones, and
        return it."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            self._builder(_name(hosts[0]), key, self._valid)
            .add_extension(
                x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        path = self.folder / f"{hosts[0]}.pem"
        partial = path.with_suffix(".partial")
        partial.touch(0o600)
        partial.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        return partial.replace(path)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, valid: timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _VALID)
            .not_valid_after(now + valid)
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
