"""ACLs on the nodes that Muster creates, with SASL over TLS, as `docs/security.md` has it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE
from pydantic import ValidationError

from devstack.certificates import Authority
from devstack.secured import SecureZooKeeper
from muster.consumer.agent import Agent
from muster.consumer.assignment_watch import PROBLEM, AssignmentWatch
from muster.core.model import State, TopicAssignment, TopicSnapshot, TopicState, Transition
from muster.core.wire import assignment_path, assignments_path, partition_path, state_path
from muster.edges.zookeeper import TopicStore, ZooKeeperError, make_client, start_client, stop_client
from muster.settings.connections import AclEntry, ZooKeeperSettings, parse_acl
from tests.conftest import Eventually
from tests.support.secured import CONSUMER, STRANGER, VIEWER, Passwords, connection

OWNED = TopicAssignment("h:9092", "g", {0: "c-1"}, epoch=8)


def of_page(part: str, server: SecureZooKeeper, password: str, ca: Path) -> dict[str, Any]:
    """The settings that a connection of the page comes to."""
    found = connection(f"zookeeper-{part}", HOSTS=server.secure_address, PASSWORD=password, CA=str(ca))
    return {
        "hosts": found["host"],
        "username": found["login"],
        "password": found["password"],
        **found["extra"],
    }


@pytest.fixture
def as_coordinator(
    secure_zookeeper: SecureZooKeeper, passwords: Passwords, authority: Authority
) -> dict[str, Any]:
    return of_page("coordinator", secure_zookeeper, passwords.coordinator, authority.ca)


@pytest.fixture
def as_consumer(
    secure_zookeeper: SecureZooKeeper, passwords: Passwords, authority: Authority
) -> dict[str, Any]:
    return of_page("consumer", secure_zookeeper, passwords.consumer, authority.ca)


@pytest.fixture
def as_viewer(as_consumer: dict[str, Any], passwords: Passwords) -> dict[str, Any]:
    return as_consumer | {"username": VIEWER, "password": passwords.viewer}


@pytest.fixture
def as_stranger(as_consumer: dict[str, Any], passwords: Passwords) -> dict[str, Any]:
    """A user who may log in, and has no rights to Muster's nodes."""
    return as_consumer | {"username": STRANGER, "password": passwords.stranger}


def read(values: dict[str, Any], **more: object) -> ZooKeeperSettings:
    return ZooKeeperSettings.model_validate(values | {"operation_timeout": 5.0} | more)


@pytest.fixture
def stored(as_coordinator: dict[str, Any], cluster: str) -> TopicSnapshot:
    """A topic with everything that there can be of one."""
    with TopicStore(read(as_coordinator), cluster) as store:
        store.create_topic("flights", "h:9092", "g", epoch=7)
        store.set_partitions("flights", frozenset({0, 1}))
        before = store.snapshots()["flights"]
        assert isinstance(before, TopicSnapshot)
        transition = Transition(before, OWNED, TopicState(State.STARTING, epoch=8), ())
        assert store.apply([transition]) == [True]
        found = store.snapshots()["flights"]
    assert isinstance(found, TopicSnapshot)
    return found


@pytest.fixture
def stranger(as_stranger: dict[str, Any]) -> Iterator[KazooClient]:
    settings = read(as_stranger)
    client = make_client(settings)
    start_client(client, settings)
    yield client
    stop_client(client, 5.0)


def test_coordinator_alone_writes_nodes(stored: TopicSnapshot, stranger: KazooClient, cluster: str) -> None:
    nodes = [assignment_path(cluster, "flights"), state_path(cluster, "flights"), assignments_path(cluster)]
    nodes += [partition_path(cluster, "flights", 1), f"/consumers/{cluster}"]
    for node in nodes:
        with pytest.raises(NoAuthError):
            stranger.set(node, b"{}")
        with pytest.raises(NoAuthError):
            stranger.create(f"{node}/mine", b"")
        with pytest.raises(NoAuthError):
            stranger.get(node)
    for node in nodes[:2]:
        with pytest.raises(NoAuthError):
            stranger.delete(node)
        with pytest.raises(NoAuthError):
            stranger.set_acls(node, OPEN_ACL_UNSAFE)


def test_the_consumer_reads_and_does_not_write(
    stored: TopicSnapshot, as_consumer: dict[str, Any], cluster: str, eventually: Eventually
) -> None:
    agent = Agent("c-1")
    watch = AssignmentWatch(read(as_consumer), cluster, agent, 1.0)
    thread = threading.Thread(target=watch.run, args=(lambda: None,), daemon=True)
    thread.start()
    try:
        eventually(lambda: agent.view().topics.get("flights"), what="the consumer reads its assignment")
        assert PROBLEM not in agent.view().problems
    finally:
        watch.stop()
        thread.join(10)
    settings = read(as_consumer)
    client = make_client(settings)
    start_client(client, settings)
    try:
        with pytest.raises(NoAuthError):
            client.set(assignment_path(cluster, "flights"), b"{}")
    finally:
        stop_client(client, 5.0)


def test_read_only_user_sees_everything(
    stored: TopicSnapshot, as_viewer: dict[str, Any], cluster: str
) -> None:
    with TopicStore(read(as_viewer), cluster) as store:
        assert store.snapshots() == {"flights": stored}
        with pytest.raises(ZooKeeperError, match=f"refused as user '{VIEWER}'"):
            store.touch()


def test_refusal_names_server_user_and_next_step(
    stored: TopicSnapshot, as_consumer: dict[str, Any], cluster: str
) -> None:
    settings = read(as_consumer)
    with (
        TopicStore(settings, cluster) as store,
        pytest.raises(ZooKeeperError) as refused,
    ):
        read_here = store.snapshots()[stored.topic]
        store.apply(
            [Transition(read_here, stored.assignment or OWNED, TopicState(State.STABLE, epoch=9), ())]
        )
    message = str(refused.value)
    assert f"ZooKeeper at {settings.hosts}: writing flights: refused as user '{CONSUMER}'" in message
    assert "the node's ACL does not allow it; check username and password" in message


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("wrong", [{"password": "pa55word"}, {"username": "nobody"}])
def test_a_wrong_credential_is_refused_soon_and_not_shown(
    as_coordinator: dict[str, Any], wrong: dict[str, str]
) -> None:
    settings = read(as_coordinator, operation_timeout=20.0, **wrong)
    began = time.monotonic()
    with pytest.raises(ZooKeeperError) as refused, TopicStore(settings, "c"):
        pass
    message = str(refused.value)
    assert f"ZooKeeper at {settings.hosts}" in message
    assert f"refused as user '{settings.username}'" in message
    assert "check username and password in the connection, and that ZooKeeper knows this user" in message
    assert time.monotonic() - began < settings.operation_timeout / 2
    assert settings.password is not None
    assert settings.password.get_secret_value() not in message


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_refused_consumer_retries_until_it_is_let_in(tmp_path: Path, eventually: Eventually) -> None:
    """kazoo gives up for good when a connection drops during SASL, as it does when a server restarts."""
    server = SecureZooKeeper(tmp_path / "zookeeper", {CONSUMER: "old"})
    server.start()
    values = {
        "hosts": server.address,
        "sasl_mechanism": "DIGEST-MD5",
        "username": CONSUMER,
        "password": "new",
    }
    agent = Agent("c-1")
    watch = AssignmentWatch(read(values), "c", agent, 1.0)
    thread = threading.Thread(target=watch.run, args=(lambda: None,), daemon=True)
    thread.start()
    try:
        eventually(
            lambda: "refused" in agent.view().problems.get(PROBLEM, ""), what="it says that it is refused"
        )
        problem = agent.view().problems[PROBLEM]
        assert f"ZooKeeper at {server.address}: " in problem
        assert f"refused as user '{CONSUMER}'" in problem
        assert "check username and password" in problem
        assert "consuming goes on" in problem
        server.stop()
        server.users = {CONSUMER: "new"}
        server.start()
        eventually(lambda: PROBLEM not in agent.view().problems, what="the consumer is let in")
    finally:
        watch.stop()
        thread.join(10)
        server.stop()


def test_acls_are_read_as_zookeepers_own_tool_reads_them() -> None:
    assert parse_acl("auth::cdrwa, digest:me:hash=:r,ip:10.0.0.0/8:r") == (
        AclEntry("auth", "", "cdrwa"),
        AclEntry("digest", "me:hash=", "r"),
        AclEntry("ip", "10.0.0.0/8", "r"),
    )


@pytest.mark.parametrize(
    ("acl", "problem"),
    [
        ("", "no ACL entry"),
        ("sasl:me", "no ACL entry"),
        ("kerberos:me:r", "scheme 'kerberos' is unknown"),
        ("sasl:me:rx", "expected letters of 'cdrwa'"),
        ("sasl:me:", "expected letters of 'cdrwa'"),
        ("sasl::r", "needs an id"),
        ("auth:me:r", "takes no id"),
        ("world:me:r", "'anyone'"),
    ],
)
def test_an_acl_that_says_nothing_is_refused(acl: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ZooKeeperSettings(hosts="h:1", acl=acl)


def test_acl_for_authenticated_users_needs_authentication() -> None:
    with pytest.raises(ZooKeeperError, match="there is none; set sasl_mechanism or auth_scheme"):
        make_client(ZooKeeperSettings(hosts="h:1", acl="auth::cdrwa"))
