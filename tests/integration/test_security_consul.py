"""Consul with ACLs that deny by default, over TLS, with the policies of `docs/security.md`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from devstack.certificates import Authority
from devstack.secured import SecureConsul
from muster.cli.main import main
from muster.coordinator.opening import open_coordinator
from muster.coordinator.reports import ConsumersReport
from muster.core.wire import assignment_path
from muster.doctor.consul import consul_answers
from muster.doctor.findings import Part
from muster.edges.consul import ConsulCluster, ConsulError, WaitIndex
from muster.edges.zookeeper import TopicStore, make_client, start_client, stop_client
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.support.secured import CLUSTER, SERVICE, TOPIC, ConsulTokens, connection, example

ISOLATED = f"muster/{CLUSTER}/isolated/"


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def page() -> Iterator[int]:
    """A page whose check passes; its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Health)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def settings(server: SecureConsul, token: str | None, ca: Path, **more: object) -> ConsulSettings:
    """The settings that the connection of the page comes to."""
    found = connection("consul-connection", HOST="127.0.0.1", TOKEN=token or "", CA=str(ca))
    values = {"host": found["host"], "port": server.port, "scheme": found["schema"], **found["extra"]}
    return ConsulSettings.model_validate(values | {"token": token} | more)


@pytest.fixture
def consul_at(secure_consul: SecureConsul, authority: Authority):
    def make(token: str | None, **more: object) -> ConsulCluster:
        return ConsulCluster(settings(secure_consul, token, authority.ca, **more), CLUSTER, SERVICE)

    return make


@pytest.fixture
def airflow(consul_at, consul_tokens: ConsulTokens) -> ConsulCluster:
    return consul_at(consul_tokens.airflow)


@pytest.fixture
def consumer(consul_at, consul_tokens: ConsulTokens) -> ConsulCluster:
    return consul_at(consul_tokens.consumer)


@pytest.fixture
def registered(
    consumer: ConsulCluster, airflow: ConsulCluster, page: int, eventually: Eventually
) -> Iterator[str]:
    """A consumer that is live."""
    name = f"c-{uuid4().hex[:8]}"
    consumer.catalog.register(
        name, "127.0.0.1", page, {"incarnation": "i-1"}, f"http://127.0.0.1:{page}/health", 0.2, 60.0
    )

    def live() -> bool:
        members = airflow.catalog.members()
        return members.membership is not None and name in members.membership.live

    eventually(live, what=f"{name} is live")
    yield name
    consumer.catalog.deregister(name)


def test_the_consumers_policy_is_enough_for_a_consumer(
    consumer: ConsulCluster, airflow: ConsulCluster, registered: str
):
    own = consumer.catalog.own_registration(registered)
    assert own is not None
    assert own.incarnation == "i-1"
    assert consumer.jobs.take_generation(registered, "i-1") == 1
    seen = consumer.catalog.own(registered)
    airflow.jobs.request_stop(registered, "i-1", "somebody", "a test")
    later = consumer.catalog.wait_own(seen, 10.0, 5.0, lambda: False)
    assert consumer.jobs.read_stop(registered, later.stop.key) is not None
    assert not later.isolated
    assert consumer.catalog.registered_as(registered) is not None
    assert not consumer.catalog.others_stay(registered)
    assert consumer.jobs.clear_stop(registered)
    assert consumer.catalog.deregister(registered, "i-1")
    assert consumer.catalog.own_registration(registered) is None


def test_the_dags_policy_is_enough_for_the_dags(airflow: ConsulCluster, registered: str) -> None:
    assert airflow.jobs.claim_submission(registered, {"incarnation": "i-1"}, None)
    airflow.jobs.note_submission(registered, {"incarnation": "i-1", "host": "h"})
    assert airflow.jobs.submissions()[registered] == airflow.jobs.submission(registered)
    assert airflow.overrides.isolate(registered, "somebody", "a test", time.time())
    members = airflow.catalog.members()
    assert members.membership is not None
    assert registered in members.membership.isolated
    assert airflow.overrides.restore(registered)
    airflow.jobs.request_stop(registered, "i-1", "somebody", "a test")
    assert registered in airflow.jobs.stop_requests()
    assert airflow.jobs.clear_stop(registered)
    airflow.jobs.clear_submission(registered)
    assert airflow.jobs.submission(registered) is None


def test_command_line_acts_on_the_cluster_of_its_token_only(
    secure_consul: SecureConsul,
    authority: Authority,
    consul_tokens: ConsulTokens,
    airflow: ConsulCluster,
    tmp_path: Path,
) -> None:
    entry = {"topics": ["t"], "consumers": {"count": 1, "handler": "a.b"}, "zookeeper": "nowhere"}
    entries = {name: {**entry, "consul_service": name, "group_id": name} for name in (CLUSTER, "other")}
    file = tmp_path / "teams.yaml"
    file.write_text(json.dumps({"clusters": entries}))
    own = connection("consul-connection", HOST="127.0.0.1", TOKEN=consul_tokens.airflow, CA=str(authority.ca))
    environment = {
        "MUSTER_CLUSTERS": str(file),
        "AIRFLOW_CONN_MUSTER_CONSUL": json.dumps(own | {"port": secure_consul.port}),
        "AIRFLOW_CONN_NOWHERE": json.dumps(
            {"conn_type": "zookeeper", "host": "127.0.0.1:9", "extra": {"operation_timeout": 0.5}}
        ),
    }

    def give(command: str, cluster: str) -> Result:
        words = [command, "--cluster", cluster, "--reason", "a test", "--by", "ann"]
        return CliRunner().invoke(main, words, env=environment)

    for command in ("pause", "rebalance"):
        refused = give(command, "other")
        assert refused.exit_code == 3, refused.output
        assert "check the connection's token" in refused.stderr or "key:read" in refused.stderr
    assert give("pause", CLUSTER).exit_code == 0
    standing = airflow.overrides.read().paused
    assert standing is not None and standing.by == "ann"
    assert give("resume", CLUSTER).exit_code == 0


def test_read_only_token_sees_all_and_changes_nothing(
    consul_at, consul_tokens: ConsulTokens, airflow: ConsulCluster, registered: str
) -> None:
    viewer: ConsulCluster = consul_at(consul_tokens.viewer)
    members = viewer.catalog.members()
    assert members.membership == airflow.catalog.members().membership
    assert viewer.overrides.isolated() == {}
    for change in (
        lambda: viewer.overrides.isolate(registered, "me", "why", 0.0),
        lambda: viewer.jobs.request_stop(registered, "i-1", "me", "why"),
        lambda: viewer.jobs.note_submission(registered, {}),
        lambda: viewer.catalog.deregister(registered),
    ):
        with pytest.raises(
            ConsulError, match=r"answered 403 .*check the connection's token .*its policy allows"
        ):
            change()


def test_each_part_is_kept_from_what_it_has_no_business_with(
    airflow: ConsulCluster, consumer: ConsulCluster, registered: str, page: int
) -> None:
    with pytest.raises(ConsulError, match="answered 403"):
        consumer.overrides.isolate(registered, "me", "why", 0.0)
    with pytest.raises(ConsulError, match="answered 403"):
        consumer.jobs.note_submission(registered, {})
    with pytest.raises(ConsulError, match="answered 403"):
        airflow.catalog.register("mine", "127.0.0.1", page, {}, f"http://127.0.0.1:{page}/", 1.0, 60.0)


@pytest.mark.parametrize(
    ("leave_out", "right"), [("node_prefix", "node:read"), ("service", "service:read"), ("key_prefix", "key")]
)
def test_partial_rights_make_answers_unbelievable(
    secure_consul: SecureConsul,
    consul_at,
    registered: str,
    airflow: ConsulCluster,
    leave_out: str,
    right: str,
) -> None:
    """Consul leaves out what may not be read; so no line of the page can be left out."""
    rules = [line for line in example("consul-viewer").splitlines() if not line.startswith(leave_out)]
    token = secure_consul.grant(f"without-{leave_out}-{uuid4().hex[:8]}", "\n".join(rules))
    airflow.overrides.isolate(registered, "somebody", "a test", time.time())
    try:
        doubt = consul_at(token).catalog.members()
        assert doubt.membership is None
        assert right in doubt.doubt
    except ConsulError as error:
        assert right in str(error)
    finally:
        airflow.overrides.restore(registered)


def test_a_token_that_consul_does_not_know_is_refused(consul_at, secure_consul: SecureConsul) -> None:
    token = str(uuid4())
    with pytest.raises(ConsulError) as refused:
        consul_at(token).catalog.members()
    message = str(refused.value)
    assert message.startswith(f"Consul at https://127.0.0.1:{secure_consul.port}: GET /v1/")
    assert "ACL not found" in message
    assert "check the connection's token (its password)" in message
    assert token not in message


def test_empty_answer_without_a_token_is_no_answer(consul_at, registered: str) -> None:
    """Consul does not even say to an anonymous asker that it left something out."""
    with pytest.raises(ConsulError, match="no token: set its password"):
        consul_at(None).catalog.members()


def test_an_anonymous_asker_who_may_see_consumers_but_no_keys_sees_no_isolation(
    secure_consul: SecureConsul, consul_at, registered: str
) -> None:
    """Then an isolated consumer would be taken for live."""
    rules = "\n".join(line for line in example("consul-viewer").splitlines() if "key_prefix" not in line)
    secure_consul.grant_anonymous(f"anonymous-{uuid4().hex[:8]}", rules)
    try:
        with pytest.raises(ConsulError, match="no token: set its password"):
            consul_at(None).catalog.members()
    finally:
        secure_consul.grant_anonymous()


def test_anonymous_user_with_keys_only_does_not_take_hidden_services_for_none(
    secure_consul: SecureConsul, consul_at, registered: str
) -> None:
    rules = "\n".join(line for line in example("consul-viewer").splitlines() if "key_prefix" in line)
    secure_consul.grant_anonymous(f"anonymous-{uuid4().hex[:8]}", rules)
    try:
        members = consul_at(None).catalog.members()
        assert members.membership is None
        assert "the connection has no token" in members.doubt
    finally:
        secure_consul.grant_anonymous()


def test_the_certificate_is_checked(
    secure_consul: SecureConsul, consul_tokens: ConsulTokens, stranger_ca: Path, authority: Authority
) -> None:
    wrong = settings(secure_consul, consul_tokens.airflow, stranger_ca)
    catalog = ConsulCluster(wrong, CLUSTER, SERVICE).catalog
    for call in (catalog.members, lambda: catalog.wait(WaitIndex(), 0)):
        with pytest.raises(ConsulError) as refused:
            call()
        message = str(refused.value)
        assert f"Consul at https://127.0.0.1:{secure_consul.port}" in message
        assert "certificate verify failed" in message
        assert "check the connection's 'ca'" in message
    plain = settings(secure_consul, consul_tokens.airflow, authority.ca, scheme="http")
    with pytest.raises(ConsulError, match=r"answered 400 .*HTTPS"):
        ConsulCluster(plain, CLUSTER, SERVICE).catalog.members()


def test_a_client_certificate_is_sent_where_the_agent_asks_for_one(
    tmp_path: Path, authority: Authority, server_certificate: Path
) -> None:
    token, client = str(uuid4()), authority.issue("client")
    server = SecureConsul(
        tmp_path / "consul", token, server_certificate, authority.ca, client_certificates=True
    )
    server.start()
    try:
        own = settings(server, token, authority.ca, certfile=str(client), keyfile=str(client))
        discovery = ConsulCluster(own, CLUSTER, SERVICE)
        assert discovery.catalog.members().membership is not None
        assert discovery.catalog.wait(WaitIndex(), 0).health > 0
        catalog = ConsulCluster(settings(server, token, authority.ca), CLUSTER, SERVICE).catalog
        for call in (catalog.members, lambda: catalog.wait(WaitIndex(), 0)):
            with pytest.raises(ConsulError, match=r"certificate required.*'certfile' and 'keyfile'"):
                call()
    finally:
        server.stop()


@pytest.mark.parametrize("wrong", ["token", "no token", "ca"])
def test_the_coordinator_keeps_the_status_quo_when_consul_refuses_it(
    wrong: str,
    secure_consul: SecureConsul,
    consul_tokens: ConsulTokens,
    authority: Authority,
    stranger_ca: Path,
    zookeeper: ZooKeeperSettings,
    registered: str,
) -> None:
    name = f"c{uuid4().hex[:8]}"
    cluster = ClusterSettings.model_validate(
        {
            "name": name,
            "consul_service": SERVICE,
            "group_id": "g",
            "topics": [TOPIC],
            "consumers": {"handler": "muster.handlers.nothing"},
        }
    )
    with TopicStore(zookeeper, name) as store:
        store.create_topic(TOPIC, "h:9092", "g")
        store.set_partitions(TOPIC, frozenset({0}))
    client = make_client(zookeeper)
    start_client(client, zookeeper)
    before = client.get(assignment_path(name, TOPIC))
    good = settings(secure_consul, consul_tokens.airflow, authority.ca)
    refused = {
        "token": settings(secure_consul, str(uuid4()), authority.ca),
        "no token": settings(secure_consul, None, authority.ca),
        "ca": settings(secure_consul, consul_tokens.airflow, stranger_ca),
    }[wrong]
    kafka = KafkaSettings(config={"bootstrap.servers": "127.0.0.1:9"}, operation_timeout=1.0)
    try:
        with open_coordinator(cluster, zookeeper, refused, kafka) as coordinator:
            for part in (
                lambda: ConsumersReport.of(coordinator.catalog.members()),
                coordinator.compute_assignment,
                lambda: coordinator.advance(0.0),
            ):
                with pytest.raises(ConsulError, match=r"Consul at https://127\.0\.0\.1"):
                    part()
        assert client.get(assignment_path(name, TOPIC)) == before
        with open_coordinator(cluster, zookeeper, good, kafka) as coordinator:
            assert coordinator.advance(0.0).waiting, "with the right one it asks the consumer what it holds"
    finally:
        stop_client(client, 5.0)


def test_connection_is_fine_with_a_token_that_consul_knows(
    secure_consul: SecureConsul, authority: Authority, consul_tokens: ConsulTokens
) -> None:
    def outcomes(token: str | None) -> list[str]:
        found = settings(secure_consul, token, authority.ca)
        return [str(check.outcome) for check in consul_answers(Part("consul"), found)]

    assert outcomes(consul_tokens.airflow) == ["ok", "ok"]
    assert outcomes(str(uuid4())) == ["ok", "failed"]
    assert outcomes(None) == ["ok", "warning"]
