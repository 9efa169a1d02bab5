"""Servers with locks on, which tests of access control share, and the examples of `docs/security.md`.

The rights that the users have on these servers are those of the page, read from it: what it says is what is tested.
"""

from __future__ import annotations

import json
import re
import secrets
import shlex
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from devstack.certificates import Authority
from devstack.secured import SecureConsul, SecureKafka, SecureZooKeeper

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
_EXAMPLE = re.compile(r"<!-- example: ([\w-]+) -->\n+```\w*\n(.*?)```", re.DOTALL)

CLUSTER, SERVICE, GROUP, TOPIC = "flights", "flights", "flights", "flights"
"""The names that the page uses."""
COORDINATOR, CONSUMER, VIEWER = "muster-coordinator", "muster-consumer", "muster-viewer"
STRANGER = "stranger"


def example(name: str, **replaced: str) -> str:
    """An example of `docs/security.md`, with what a reader has to fill in filled in."""
    found = dict(_EXAMPLE.findall(PAGE.read_text(encoding="utf-8")))
    text: str = found[name]
    for old, new in replaced.items():
        assert f"[{old}]" in text, f"example {name} has no [{old}]"
        text = text.replace(f"[{old}]", new)
    return text


def connection(name: str, **replaced: str) -> dict[str, Any]:
    """An Airflow connection of the page."""
    found = json.loads(example(name, **replaced))
    assert isinstance(found, dict)
    return found


def kafka_acl_commands(name: str) -> list[list[str]]:
    """The arguments of each `kafka-acls.sh` of an example."""
    lines = example(name).replace("\\\n", " ").strip().splitlines()
    words = [shlex.split(line) for line in lines if line.strip()]
    assert all(word[0] == "kafka-acls.sh" for word in words)
    where = len(["--bootstrap-server", "[SERVERS]", "--command-config", "admin.properties"])
    return [word[1 + where :] for word in words]


@dataclass
class Passwords:
    """Secrets that occur nowhere else, so that it shows where they get to."""

    coordinator: str = field(default_factory=lambda: secrets.token_hex(12))
    consumer: str = field(default_factory=lambda: secrets.token_hex(12))
    viewer: str = field(default_factory=lambda: secrets.token_hex(12))
    stranger: str = field(default_factory=lambda: secrets.token_hex(12))
    admin: str = field(default_factory=lambda: secrets.token_hex(12))
    consul_admin: str = field(default_factory=lambda: str(uuid.uuid4()))

    def users(self) -> dict[str, str]:
        return {
            COORDINATOR: self.coordinator,
            CONSUMER: self.consumer,
            VIEWER: self.viewer,
            STRANGER: self.stranger,
        }


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority") / "ours")


@pytest.fixture(scope="session")
def stranger_ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another CA."""
    return Authority(tmp_path_factory.mktemp("authority") / "theirs").ca


@pytest.fixture(scope="session")
def server_certificate(authority: Authority) -> Path:
    return authority.issue("127.0.0.1", "localhost")


@pytest.fixture(scope="session")
def passwords() -> Passwords:
    return Passwords()


@pytest.fixture(scope="session")
def secure_zookeeper(
    servers_dir: Path, passwords: Passwords, authority: Authority, server_certificate: Path
) -> Iterator[SecureZooKeeper]:
    """SASL and TLS."""
    folder = servers_dir / "secure-zookeeper"
    server = SecureZooKeeper(folder, passwords.users(), server_certificate, authority.ca)
    server.start()
    yield server
    server.stop()


@dataclass
class ConsulTokens:
    """Tokens with the policies of the page."""

    airflow: str
    consumer: str
    viewer: str


@pytest.fixture(scope="session")
def secure_consul(
    servers_dir: Path, passwords: Passwords, authority: Authority, server_certificate: Path
) -> Iterator[SecureConsul]:
    """ACLs that deny by default, and TLS."""
    server = SecureConsul(
        servers_dir / "secure-consul", passwords.consul_admin, server_certificate, authority.ca
    )
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def consul_tokens(secure_consul: SecureConsul) -> ConsulTokens:
    return ConsulTokens(
        **{
            part: secure_consul.grant(f"muster-{part}", example(f"consul-{part}"))
            for part in ("airflow", "consumer", "viewer")
        }
    )


@pytest.fixture(scope="session")
def secure_kafka(
    servers_dir: Path, passwords: Passwords, authority: Authority, server_certificate: Path
) -> Iterator[SecureKafka]:
    """SASL over TLS, with the ACLs of the page."""
    server = SecureKafka(
        servers_dir / "secure-kafka", passwords.admin, passwords.users(), server_certificate, authority.ca
    )
    server.start()
    examples = ("kafka-acls", "kafka-acls-fencing", "kafka-acls-dead-letters", "kafka-acls-state")
    for arguments in [command for each in examples for command in kafka_acl_commands(each)]:
        server.grant(arguments)
    yield server
    server.stop()


def as_environment(connections: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Airflow connections as environment variables."""
    return {f"AIRFLOW_CONN_{name.upper()}": json.dumps(value) for name, value in connections.items()}
