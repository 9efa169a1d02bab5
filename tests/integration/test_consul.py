"""`ConsulCluster` against a real Consul: membership, isolation, maintenance, keys, and waiting for changes."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import psutil
import pytest

from devstack.consul import Consul
from muster.coordinator.reports import ConsumersReport
from muster.core.starting import Stage, Starting
from muster.doctor.consul import check_consul
from muster.doctor.findings import Check, CheckOutcome, Part
from muster.edges.consul import ConsulCluster, ConsulError, IsolationEntry, Registration, WaitIndex
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import ConsulSettings
from tests.conftest import Eventually
from tests.support.http_pages import Page, Pages


class StatusPage(Pages):
    """What Consul checks; `status` is what it answers."""

    def __init__(self) -> None:
        self.status = 200
        super().__init__(lambda _: Page(b"all is well" if self.status == 200 else b"not well", self.status))


@pytest.fixture
def page() -> Iterator[StatusPage]:
    with StatusPage() as served:
        yield served


@pytest.fixture
def name() -> str:
    return f"c{uuid4().hex[:12]}"


@pytest.fixture
def discovery(consul: ConsulSettings, name: str) -> Iterator[ConsulCluster]:
    found = ConsulCluster(consul, name, f"{name}-service")
    yield found
    for consumer in found.catalog.members().registered:
        found.catalog.deregister(consumer)


def test_connections_end_with_their_cluster(consul: ConsulSettings, name: str) -> None:
    """Also where garbage is collected rarely, as while a coordinator runs."""

    def connections() -> int:
        return sum(
            bool(each.raddr) and each.raddr.port == consul.port for each in psutil.Process().net_connections()
        )

    before = connections()
    gc.disable()
    try:
        for _ in range(3):
            found = ConsulCluster(consul, name, f"{name}-service")
            found.catalog.members()
            found.overrides.read()
            found.catalog.wait(WaitIndex(), 0)
            assert connections() > before
            del found
        assert connections() == before
    finally:
        gc.enable()


def register(discovery: ConsulCluster, page: StatusPage, consumer: str = "one", **meta: str) -> None:
    url = f"http://127.0.0.1:{page.port}/status"
    discovery.catalog.register(consumer, "127.0.0.1", page.port, meta, url, 0.2, 60.0)


def live(discovery: ConsulCluster) -> set[str]:
    members = discovery.catalog.members()
    assert members.membership is not None, members.doubt
    return set(members.membership.live)


def tell_agent(consul: ConsulSettings, path: str) -> None:
    httpx.put(f"http://{consul.host}:{consul.port}{path}", trust_env=False).raise_for_status()


def test_a_consumer_is_live_once_its_check_passes_and_gone_once_it_deregisters(
    discovery: ConsulCluster, page: StatusPage, eventually: Eventually
) -> None:
    page.status = 500
    register(discovery, page, incarnation="i-1", zone="z", priority="3", weight="2.5", topics="a, b")
    eventually(lambda: "one" in discovery.catalog.members().registered)
    assert live(discovery) == set()
    page.status = 200
    eventually(lambda: live(discovery) == {"one"})

    members = discovery.catalog.members()
    assert members.membership is not None
    consumer = members.membership.live["one"]
    assert (consumer.address, consumer.port, consumer.zone) == ("127.0.0.1", page.port, "z")
    assert (consumer.priority, consumer.weight, consumer.topics) == (3, 2.5, {"a", "b"})
    assert consumer.incarnation == members.registered["one"].incarnation == "i-1"
    assert members.registered["one"].output == ""

    assert discovery.catalog.deregister("one")
    eventually(lambda: live(discovery) == set())
    assert not discovery.catalog.deregister("one")


def test_a_failing_check_is_seen_with_its_output(
    discovery: ConsulCluster, page: StatusPage, eventually: Eventually
) -> None:
    register(discovery, page)
    eventually(lambda: live(discovery) == {"one"})
    page.status = 503
    eventually(lambda: live(discovery) == set())
    found = discovery.catalog.members().registered["one"]
    assert not found.passing
    assert not found.maintenance
    eventually(lambda: "not well" in discovery.catalog.members().registered["one"].output)


def test_a_warning_is_not_passing(discovery: ConsulCluster, page: StatusPage, eventually: Eventually) -> None:
    register(discovery, page)
    eventually(lambda: live(discovery) == {"one"})
    page.status = 429
    eventually(lambda: live(discovery) == set())


def test_registering_again_replaces_metadata_and_keeps_the_consumer_live(
    discovery: ConsulCluster, page: StatusPage, eventually: Eventually
) -> None:
    register(discovery, page, incarnation="old")
    eventually(lambda: live(discovery) == {"one"})
    register(discovery, page, incarnation="new")
    eventually(lambda: discovery.catalog.members().registered["one"].incarnation == "new")
    eventually(lambda: live(discovery) == {"one"})


def test_deregister_keeps_newer_incarnation(
    discovery: ConsulCluster, page: StatusPage, eventually: Eventually
) -> None:
    register(discovery, page, incarnation="new")
    assert not discovery.catalog.deregister("one", incarnation="old")
    own = discovery.catalog.own_registration("one")
    assert own is not None
    assert own.incarnation == "new"
    assert discovery.catalog.deregister("one", incarnation="new")
    assert discovery.catalog.own_registration("one") is None


@pytest.mark.parametrize("status", [200, 429, 503])
def test_the_local_agent_knows_a_registration_however_it_fares(
    discovery: ConsulCluster, page: StatusPage, eventually: Eventually, status: int
) -> None:
    page.status = status
    register(discovery, page, incarnation="i")

    def own() -> Registration | None:
        return discovery.catalog.own_registration("one")

    eventually(lambda: (found := own()) is not None and found.passing == (status == 200))
    eventually(lambda: len(page.requests) > 0)
    found = own()
    assert found is not None
    assert (found.id, found.address, found.port, found.incarnation) == ("one", "127.0.0.1", page.port, "i")


def test_bad_metadata_counts_as_not_given(
    discovery: ConsulCluster, page: StatusPage, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    register(discovery, page, "odd", weight="abc", priority="1.5", topics="good,no good!", zone="")
    register(discovery, page, "nan", weight="nan")
    register(discovery, page, "fine", weight="2")
    eventually(lambda: live(discovery) == {"odd", "nan", "fine"})
    membership = discovery.catalog.members().membership
    assert membership is not None
    odd = membership.live["odd"]
    assert (odd.weight, odd.priority, odd.topics, odd.zone) == (1.0, 0, {"good"}, None)
    assert membership.live["nan"].weight == 1.0
    assert membership.live["fine"].weight == 2.0
    warnings = [record.getMessage() for record in caplog.records if "odd" in record.getMessage()]
    assert any("weight='abc'" in text for text in warnings)
    assert len([text for text in warnings if "weight" in text]) == 1, "once, not with every reading"


def test_an_id_that_cannot_stand_in_zookeeper_is_left_out(
    discovery: ConsulCluster, consul: ConsulSettings, page: StatusPage, eventually: Eventually
) -> None:
    register(discovery, page)
    service = {"ID": "no/good", "Name": discovery.catalog.service, "Address": "127.0.0.1", "Port": 1}
    url = f"http://{consul.host}:{consul.port}/v1/agent/service"
    httpx.put(f"{url}/register", json=service, trust_env=False).raise_for_status()
    try:
        eventually(lambda: live(discovery) == {"one"})
    finally:
        httpx.put(f"{url}/deregister/no/good", trust_env=False)


def test_isolation_says_who_when_and_why_and_ends(
    discovery: ConsulCluster, page: StatusPage, eventually: Eventually
) -> None:
    register(discovery, page, "one")
    register(discovery, page, "two")
    eventually(lambda: live(discovery) == {"one", "two"})
    assert discovery.overrides.isolate("one", "anna", "disk full", 1_700_000_000.5)
    assert not discovery.overrides.isolate("one", "ben", "me too", 1_800_000_000.0)
    assert discovery.overrides.isolate("never-seen", "anna", "precaution", 1.0)
    assert live(discovery) == {"two"}
    membership = discovery.catalog.members().membership
    assert membership is not None
    assert membership.isolated == {"one", "never-seen"}
    assert discovery.overrides.isolated()["one"] == IsolationEntry(
        consumer="one", by="anna", at=1_700_000_000.5, why="disk full"
    )

    assert discovery.overrides.restore("one")
    assert not discovery.overrides.restore("one")
    assert live(discovery) == {"one", "two"}


def test_malformed_isolation_still_isolates(
    discovery: ConsulCluster, consul: ConsulSettings, name: str
) -> None:
    base = f"http://{consul.host}:{consul.port}/v1/kv/muster/{name}/isolated"
    httpx.put(f"{base}/one", content=b"\xff{", trust_env=False).raise_for_status()
    httpx.put(f"{base}/", content=b"", trust_env=False).raise_for_status()
    found = discovery.overrides.isolated()
    assert found.keys() == {"one"}
    assert found["one"].by == "unknown"
    assert "no JSON" in found["one"].why


@pytest.mark.parametrize("what", ["service", "node"])
def test_maintenance_counts_as_isolation(
    tmp_path: Path, page: StatusPage, eventually: Eventually, what: str
) -> None:
    """A server of its own: maintenance of the node would disturb the other tests."""
    server = Consul(tmp_path / "consul", guarded=True)
    server.start()
    try:
        settings = ConsulSettings(port=server.port)
        discovery = ConsulCluster(settings, "c", "s")
        register(discovery, page)
        eventually(lambda: live(discovery) == {"one"})
        path = "/v1/agent/service/maintenance/one" if what == "service" else "/v1/agent/maintenance"
        tell_agent(settings, f"{path}?enable=true&reason=disk")
        eventually(lambda: live(discovery) == set())
        members = discovery.catalog.members()
        assert members.membership is not None
        assert members.membership.isolated == {"one"}
        assert members.registered["one"].maintenance
        assert "disk" in members.registered["one"].output
        tell_agent(settings, f"{path}?enable=false")
        eventually(lambda: live(discovery) == {"one"})
    finally:
        server.stop()


def test_a_service_without_consumers_is_empty_for_a_fact_after_three_reads(
    consul: ConsulSettings, name: str
) -> None:
    pauses: list[float] = []
    members = ConsulCluster(consul, name, f"{name}-service", pause=pauses.append).catalog.members()
    assert members.membership is not None
    assert members.membership.live == {}
    assert len(pauses) == 2
    assert all(0.3 <= pause <= 0.45 for pause in pauses)


def test_requests_to_stop_are_meant_for_an_incarnation(discovery: ConsulCluster) -> None:
    assert discovery.jobs.stop_request("one") is None
    assert not discovery.jobs.clear_stop("one")
    discovery.jobs.request_stop("one", "i-1", "anna", "new version", at=1_700_000_000.0)
    found = discovery.jobs.stop_request("one")
    assert found is not None
    assert (found.incarnation, found.by, found.why, found.at) == (
        "i-1",
        "anna",
        "new version",
        1_700_000_000.0,
    )
    discovery.jobs.request_stop("one", "i-2", "ben", "again")
    assert discovery.jobs.clear_stop("one")
    assert discovery.jobs.stop_request("one") is None


def test_consumer_starts_from_its_submission_until_it_is_live(discovery: ConsulCluster) -> None:
    jobs = discovery.jobs
    note = {"incarnation": "i-2", "at": 100.0, "tries": 2, "pid": None}
    jobs.note_submission("one", note)
    jobs.note_stage("one", "i-1", Stage.SESSION, 90.0)
    assert jobs.all_starting() == {"one": Starting("i-2", Stage.SUBMITTED, 100.0, 2)}, "that was another one"
    jobs.note_submission("one", {**note, "pid": 7})
    assert jobs.starting("one", jobs.submission("one")) == Starting("i-2", Stage.PROCESS, 100.0, 2)
    for stage, at in ((Stage.JVM, 103.0), (Stage.SESSION, 108.0), (Stage.REGISTERED, 115.0)):
        jobs.note_stage("one", "i-2", stage, at)
        assert jobs.all_starting() == {"one": Starting("i-2", stage, at, 2)}
    jobs.note_submission("one", {**note, "failed": "it has ended"})
    assert jobs.all_starting()["one"].failed == "it has ended"
    jobs.note_stage("one", "i-2", Stage.LIVE, 116.0)
    assert jobs.all_starting() == {}
    jobs.note_stage("one", "i-2", Stage.REGISTERED, 115.0)
    jobs.note_submission("one", {**note, "tries": 0})
    assert jobs.all_starting() == {}
    assert jobs.starting("one", None) is None


@pytest.mark.parametrize("stage", ["", "a stage of another version", None, 7])
def test_malformed_stage_is_none(discovery: ConsulCluster, stage: object) -> None:
    discovery.jobs.note_submission("one", {"incarnation": "i", "at": 100.0, "tries": 1, "pid": 7})
    value = json.dumps({"incarnation": "i", "stage": stage, "since": "soon" if stage is None else 105.0})
    discovery.jobs._keys.write("starting/one", value)
    assert discovery.jobs.all_starting() == {"one": Starting("i", Stage.PROCESS, 100.0)}


def test_submission_is_given_to_one_of_two(discovery: ConsulCluster) -> None:
    assert discovery.jobs.submission("one") is None
    first = {"incarnation": "i-1", "host": "h", "pid": 1}
    assert discovery.jobs.claim_submission("one", first, over=None)
    assert not discovery.jobs.claim_submission("one", {"incarnation": "i-2"}, over=None)
    assert discovery.jobs.submission("one") == first
    assert discovery.jobs.claim_submission("one", {"incarnation": "i-3"}, over=first)
    discovery.jobs.note_submission("one", first)
    assert discovery.jobs.submission("one") == first
    discovery.jobs.clear_submission("one")
    assert discovery.jobs.submission("one") is None


class Waiter:
    """A `wait` in a thread, and when it came back."""

    def __init__(self, discovery: ConsulCluster, index: WaitIndex, timeout: float) -> None:
        self.result: WaitIndex | None = None
        self.took = 0.0
        began = time.monotonic()

        def run() -> None:
            self.result = discovery.catalog.wait(index, timeout)
            self.took = time.monotonic() - began

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()


@pytest.mark.parametrize("change", ["dies", "leaves", "joins", "isolated", "stop", "metadata", "maintenance"])
def test_wait_returns_within_a_second_of_any_change(
    discovery: ConsulCluster, consul: ConsulSettings, page: StatusPage, eventually: Eventually, change: str
) -> None:
    register(discovery, page)
    eventually(lambda: live(discovery) == {"one"})
    changes: dict[str, Callable[[], object]] = {
        "dies": lambda: setattr(page, "status", 500),
        "leaves": lambda: discovery.catalog.deregister("one"),
        "joins": lambda: register(discovery, page, "two"),
        "isolated": lambda: discovery.overrides.isolate("one", "anna", "why", 1.0),
        "stop": lambda: discovery.jobs.request_stop("one", "i", "anna", "why"),
        "metadata": lambda: register(discovery, page, "one", zone="elsewhere"),
        "maintenance": lambda: tell_agent(consul, "/v1/agent/service/maintenance/one?enable=true"),
    }
    index = discovery.catalog.wait(WaitIndex(), 0)
    waiter = Waiter(discovery, index, 20.0)
    waiter.thread.join(0.5)
    assert waiter.thread.is_alive(), "nothing has changed yet"
    changed = time.monotonic()
    changes[change]()
    waiter.thread.join(20.0)
    assert waiter.result is not None
    # The check itself runs every 0.2 s.
    assert time.monotonic() - changed < 6.0
    assert waiter.result != index


def test_a_change_between_index_and_wait_is_not_missed(
    discovery: ConsulCluster, page: StatusPage, eventually: Eventually
) -> None:
    index = discovery.catalog.wait(WaitIndex(), 0)
    discovery.overrides.isolate("one", "anna", "why", 1.0)
    began = time.monotonic()
    later = discovery.catalog.wait(index, 10.0)
    assert time.monotonic() - began < 5.0
    assert later.keys > index.keys


def test_wait_ends_in_time_and_is_not_woken_by_what_does_not_matter(
    discovery: ConsulCluster, consul: ConsulSettings, page: StatusPage, eventually: Eventually
) -> None:
    register(discovery, page)
    eventually(lambda: live(discovery) == {"one"})
    other = ConsulCluster(consul, f"{discovery.catalog.service}-other", f"{discovery.catalog.service}-other")
    index = discovery.catalog.wait(WaitIndex(), 0)
    waiter = Waiter(discovery, index, 5.0)
    for n in range(5):
        # Neighbours in both trees, and output of our own check that changes while it goes on passing.
        other.overrides.isolate(f"x{n}", "anna", "why", 1.0)
        register(other, page, f"x{n}")
        page.answer = lambda _, n=n: Page(f"well, {n}".encode())  # type: ignore[misc]
        waiter.thread.join(0.3)
    assert waiter.thread.is_alive()
    waiter.thread.join(15.0)
    assert waiter.result is not None
    assert 4.9 <= waiter.took < 10.0
    assert (waiter.result.seen_health, waiter.result.seen_keys) == (index.seen_health, index.seen_keys)
    for n in range(5):
        other.catalog.deregister(f"x{n}")
        other.overrides.restore(f"x{n}")


def test_wait_ends_in_time_though_consul_is_frozen_and_calls_end_in_errors(
    tmp_path: Path, eventually: Eventually
) -> None:
    server = Consul(tmp_path / "consul", guarded=True)
    server.start()
    try:
        settings = ConsulSettings(port=server.port, timeout=0.5)
        discovery = ConsulCluster(settings, "c", "s")
        index = discovery.catalog.wait(WaitIndex(), 0)
        server.pause()
        eventually(lambda: not server.healthy())
        began = time.monotonic()
        assert discovery.catalog.wait(index, 1.0) == index
        assert time.monotonic() - began < 6.0
        calls: dict[str, Callable[[], object]] = {
            "wait": lambda: discovery.catalog.wait(WaitIndex(), 0),
            "members": discovery.catalog.members,
            "isolate": lambda: discovery.overrides.isolate("one", "anna", "why", 1.0),
            "restore": lambda: discovery.overrides.restore("one"),
            "stop_request": lambda: discovery.jobs.stop_request("one"),
            "register": lambda: discovery.catalog.register("one", "h", 1, {}, "http://h", 1.0, 60.0),
            "deregister": lambda: discovery.catalog.deregister("one"),
            "own_registration": lambda: discovery.catalog.own_registration("one"),
            "note_submission": lambda: discovery.jobs.note_submission("one", {}),
        }
        for what, call in calls.items():
            began = time.monotonic()
            with pytest.raises(ConsulError, match=f"127.0.0.1:{server.port}.*no answer in time"):
                call()
            assert time.monotonic() - began < 6.0, what
        server.resume()
        eventually(lambda: _works(discovery))
        server.kill()
        for call in calls.values():
            with pytest.raises(ConsulError, match=r"cannot be reached.*check that the agent runs"):
                call()
        with pytest.raises(ConsulError, match="cannot be reached"):
            discovery.catalog.wait(index, 5.0)
        server.start()
        eventually(lambda: _works(discovery))
    finally:
        server.resume()
        server.stop()


def _works(discovery: ConsulCluster) -> bool:
    try:
        discovery.catalog.members()
    except ConsulError:
        return False
    return True


def test_cluster_with_a_prefix_has_all_its_keys_below_it(
    consul: ConsulSettings, name: str, page: StatusPage, eventually: Eventually
) -> None:
    cluster = ClusterSettings.model_validate(
        {
            "name": name,
            "consul_service": f"{name}-service",
            "consul_prefix": "dev/muster",
            "group_id": "g",
            "topics": ["t"],
            "consumers": {"handler": "a.b"},
        }
    )
    below = ConsulCluster.of(consul, cluster)
    register(below, page)
    eventually(lambda: live(below) == {"one"})
    index = below.catalog.wait(WaitIndex(), 0)
    below.overrides.isolate("one", "ann", "why", 1.0)
    assert below.catalog.wait(index, 10) != index
    below.jobs.request_stop("one", "i", "ann", "why")
    assert below.jobs.take_generation("one", "i") == 1
    assert below.jobs.claim_submission("one", {"incarnation": "i"}, None)
    assert below.overrides.isolated().keys() == below.jobs.stop_requests().keys() == {"one"}
    assert below.jobs.submission("one") == {"incarnation": "i"}
    members = below.catalog.members().membership
    assert members is not None
    assert members.isolated == {"one"}
    other = ConsulCluster(consul, name, f"{name}-service")
    assert (other.overrides.isolated(), other.jobs.stop_requests(), other.jobs.submissions()) == ({}, {}, {})
    url = f"http://{consul.host}:{consul.port}/v1/kv/?keys"
    keys = [key for key in httpx.get(url, trust_env=False).json() if name in key]
    assert {key.partition(name)[0] for key in keys} == {"dev/muster/"}
    below.catalog.deregister("one")


def test_consumer_of_another_cluster_is_left_out(
    discovery: ConsulCluster, page: StatusPage, name: str, eventually: Eventually
) -> None:
    register(discovery, page, "mine", cluster=name)
    register(discovery, page, "foreign")
    register(discovery, page, "renamed", cluster="running")
    eventually(lambda: live(discovery) == {"mine", "foreign"}, what="the others are live")
    members = discovery.catalog.members()
    assert members.registered.keys() == {"mine", "foreign"}
    (problem,) = members.strangers.values()
    for part in ("consumer renamed", f"{name}-service", "'running'", f"not '{name}'", "stop it", "Renaming"):
        assert part in problem
    assert ConsumersReport.of(members).strangers == [problem]
    for consumer in ("mine", "foreign"):
        discovery.catalog.deregister(consumer)
    members = discovery.catalog.members()
    assert members.membership is not None, "strangers alone are no reason for a doubt"
    assert not members.membership.live
    assert not discovery.catalog.others_stay("mine"), "a stranger does not take over"
    discovery.catalog.deregister("renamed")


def test_doctor_names_consumers_of_another_cluster(
    consul: ConsulSettings, discovery: ConsulCluster, page: StatusPage, name: str, eventually: Eventually
) -> None:
    register(discovery, page, "renamed", cluster="running")
    settings = ClusterSettings.model_validate(
        {"name": name, "consul_service": f"{name}-service", "group_id": "g", "topics": ["t"]}
        | {"consumers": {"handler": "a.b"}}
    )
    (services,) = (
        check for check in check_consul(Part("consul"), consul, settings, (), ()) if check.name == "services"
    )
    assert services.outcome is CheckOutcome.FAILED
    assert "consumer renamed" in services.found
    discovery.catalog.deregister("renamed")


def test_doctor_names_consumers_of_clusters_without_settings(
    consul: ConsulSettings,
    discovery: ConsulCluster,
    page: StatusPage,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {
        "consul_service": f"{name}-service",
        "group_id": "g",
        "topics": ["t"],
        "consumers": {"handler": "a.b"},
    }
    file = tmp_path / "clusters.yaml"
    file.write_text(json.dumps({"clusters": {name: settings}}))
    monkeypatch.setenv("MUSTER_CLUSTERS", str(file))
    gone = ConsulCluster(consul, f"{name}-gone", f"{name}-gone-service")
    for catalog, consumer in ((discovery, f"{name}-1"), (gone, f"{name}-gone-1")):
        more = {"cluster": consumer.removesuffix("-1"), "incarnation": "i", "generation": "1"}
        register(catalog, page, consumer, **more)
    cluster = ClusterSettings.model_validate({"name": name, **settings})

    def check() -> Check:
        made = check_consul(Part("consul"), consul, cluster, (), ())
        return next(each for each in made if each.name == "clusters")

    found = check()
    assert found.outcome is CheckOutcome.WARNING
    assert f"{name}-gone-1 of {name}-gone" in found.details
    assert not [each for each in found.details if each.endswith(f" of {name}")]
    gone.catalog.deregister(f"{name}-gone-1")
    assert f"{name}-gone-1 of {name}-gone" not in check().details
