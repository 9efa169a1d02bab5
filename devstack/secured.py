"""The same servers with locks on: TLS, users with passwords or tokens, and rights that are denied unless given.

`certificate` files hold a server's key and certificate, `ca` what it trusts (`devstack.certificates` makes both).
Each server has one administrator, who may do everything.
"""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, though not by name
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from devstack.consul import Consul
from devstack.errors import DevstackError
from devstack.jars import jars, java
from devstack.kafka import Kafka
from devstack.silence import silent_logger
from devstack.zookeeper import ZooKeeper

ADMIN = "admin"
_SCRAM_ITERATIONS = 4096
_ANONYMOUS = "00000000-0000-0000-0000-000000000002"


class SecureZooKeeper(ZooKeeper):
    """A ZooKeeper that accepts only `users` (name to password, SASL DIGEST-MD5), if there are any.

    With a `certificate` it speaks TLS on the port `secure`, and with `client_certificates` asks for theirs.
    """

    roles = ("client", "secure")

    def __init__(
        self,
        data_dir: Path,
        users: Mapping[str, str] | None = None,
        certificate: Path | None = None,
        ca: Path | None = None,
        client_certificates: bool = False,
    ) -> None:
        super().__init__(data_dir, guarded=True)
        self.users = dict(users or {})
        self._certificate, self._ca = certificate, ca
        self._client_certificates = client_certificates

    @property
    def secure_address(self) -> str:
        """Where it speaks TLS."""
        return f"127.0.0.1:{self.ports['secure']}"

    def settings(self) -> dict[str, str]:
        """Add SASL and TLS."""
        settings = super().settings()
        if self.users:
            settings |= {
                "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
                "enforce.auth.enabled": "true",
                "enforce.auth.schemes": "sasl",
            }
        if self._certificate:
            settings |= {
                "secureClientPort": str(self.ports["secure"]),
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.location": str(self._certificate),
                "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": str(self._ca),
                "ssl.trustStore.type": "PEM",
                "ssl.clientAuth": "need" if self._client_certificates else "none",
            }
        return settings

    def prepare(self) -> None:
        """Write the users' file, too."""
        super().prepare()
        users = " ".join(f'user_{name}="{password}"' for name, password in self.users.items())
        login = "org.apache.zookeeper.server.auth.DigestLoginModule"
        self._jaas.write_text(f"Server {{ {login} required {users}; }};", encoding="utf-8")

    def command(self) -> Sequence[str | Path]:
        """Add to Java's options the file of the users."""
        program, *rest = super().command()
        users = [f"-Djava.security.auth.login.config={self._jaas}"] if self.users else []
        return [program, *users, *rest]

    @property
    def _jaas(self) -> Path:
        return self.data_dir / "jaas.conf"


class SecureConsul(Consul):
    """A Consul that speaks only HTTPS and denies what no policy grants. `token` is the administrator's.

    It logs every request with its URL, so that tests can see what stands there.
    """

    def __init__(
        self, data_dir: Path, token: str, certificate: Path, ca: Path, client_certificates: bool = False
    ) -> None:
        super().__init__(data_dir, guarded=True)
        self._token = token
        self._certificate, self._ca = certificate, ca
        self._client_certificates = client_certificates

    def settings(self) -> dict[str, Any]:
        """Add ACLs and TLS."""
        settings = super().settings()
        ports = settings["ports"] | {"http": -1, "https": self.ports["http"]}
        return settings | {
            "ports": ports,
            "log_level": "DEBUG",
            "acl": {
                "enabled": True,
                "default_policy": "deny",
                "tokens": {"initial_management": self._token, "agent": self._token},
            },
            "tls": {
                "defaults": {
                    "ca_file": str(self._ca),
                    "cert_file": str(self._certificate),
                    "key_file": str(self._certificate),
                },
                "https": {"verify_incoming": self._client_certificates},
                "internal_rpc": {"verify_server_hostname": False},
            },
        }

    def get(self, path: str) -> httpx.Response:
        """Ask as the administrator."""
        return self._request("GET", path)

    def grant(self, name: str, rules: str) -> str:
        """Make the policy `name` with HCL `rules`, and a token that has it; returns the token."""
        policy = self._request("PUT", "/v1/acl/policy", {"Name": name, "Rules": rules})
        policy.raise_for_status()
        token = self._request("PUT", "/v1/acl/token", {"Policies": [{"Name": name}]})
        token.raise_for_status()
        return str(token.json()["SecretID"])

    def grant_anonymous(self, name: str = "", rules: str = "") -> None:
        """Let those without a token do what HCL `rules` say; without them nothing."""
        if name:
            self._request("PUT", "/v1/acl/policy", {"Name": name, "Rules": rules}).raise_for_status()
        policies = [{"Name": name}] if name else []
        body = {"AccessorID": _ANONYMOUS, "Policies": policies}
        self._request("PUT", f"/v1/acl/token/{_ANONYMOUS}", body).raise_for_status()

    def _request(self, method: str, path: str, data: object = None) -> httpx.Response:
        context = ssl.create_default_context(cafile=str(self._ca))
        if self._client_certificates:
            context.load_cert_chain(self._certificate)
        with httpx.Client(verify=context, trust_env=False, timeout=5) as client:
            headers = {"X-Consul-Token": self._token}
            return client.request(method, f"https://{self.address}{path}", headers=headers, json=data)


class SecureKafka(Kafka):
    """A Kafka that speaks only SASL over TLS and denies what no ACL grants.

    `users` (name to password) log in with SCRAM-SHA-512; the administrator with PLAIN, also to make the others.
    """

    def __init__(
        self, data_dir: Path, admin_password: str, users: Mapping[str, str], certificate: Path, ca: Path
    ) -> None:
        super().__init__(data_dir, guarded=True)
        self._password = admin_password
        self._users = dict(users)
        self._certificate, self._ca = certificate, ca

    def settings(self) -> dict[str, str]:
        """Replace the plain listeners, and add users and ACLs."""
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        login = f'{plain} username="{ADMIN}" password="{self._password}" user_{ADMIN}="{self._password}";'
        return super().settings() | {
            "listeners": f"SASL_SSL://{self.address},CONTROLLER://127.0.0.1:{self.ports['controller']}",
            "advertised.listeners": f"SASL_SSL://{self.address}",
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SASL_SSL",
            "inter.broker.listener.name": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": login,
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scram,
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": login,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._certificate),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._ca),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": f"User:{ADMIN}",
        }

    def client_settings(self) -> dict[str, str]:
        """Return the administrator's."""
        return self.settings_of(ADMIN, self._password, "PLAIN")

    def settings_of(self, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """Return what librdkafka needs to log in as `user`."""
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._ca),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    def start(self, timeout: float | None = None) -> None:
        """Start, and make the users."""
        super().start(timeout)
        admin = AdminClient({**self.client_settings()}, logger=silent_logger())
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _SCRAM_ITERATIONS)
        wanted: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, credential, password.encode())
            for user, password in self._users.items()
        ]
        for future in admin.alter_user_scram_credentials(wanted).values():
            future.result(20)

    def grant(self, arguments: Sequence[str]) -> None:
        """Run Kafka's own `kafka-acls.sh` with `arguments`, as the administrator. Raises `DevstackError`."""
        config = self.data_dir / "admin.properties"
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        config.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={self._ca}\n"
            f'sasl.jaas.config={module} required username="{ADMIN}" password="{self._password}";\n',
            encoding="utf-8",
        )
        command = [java(), "-XX:TieredStopAtLevel=1", "-cp", f"{jars('kafka')}/*"]
        command += ["org.apache.kafka.tools.AclCommand", "--bootstrap-server", self.address]
        command += ["--command-config", str(config), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own command
        if done.returncode != 0:
            raise DevstackError(f"kafka-acls {' '.join(arguments)}: {done.stdout}{done.stderr}")


class CertifiedKafka(Kafka):
    """A Kafka that speaks only TLS, and only with clients that show a certificate of its authority."""

    def __init__(self, data_dir: Path, certificate: Path, ca: Path) -> None:
        super().__init__(data_dir, guarded=True)
        self._certificate, self._ca = certificate, ca

    def settings(self) -> dict[str, str]:
        """Replace the plain listener for clients."""
        return super().settings() | {
            "listeners": f"SSL://{self.address},CONTROLLER://127.0.0.1:{self.ports['controller']}",
            "advertised.listeners": f"SSL://{self.address}",
            "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "SSL",
            "ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._certificate),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._ca),
        }

    def client_settings(self) -> dict[str, str]:
        """Return those of a client that shows the server's own certificate."""
        return self.settings_without_certificate() | {
            "ssl.certificate.location": str(self._certificate),
            "ssl.key.location": str(self._certificate),
        }

    def settings_without_certificate(self) -> dict[str, str]:
        """Return what a client needs besides a certificate of its own."""
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "ssl",
            "ssl.ca.location": str(self._ca),
        }
