"""`ConsulCluster` and answers that the real Consul cannot be made to give: a small server plays Consul."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from muster.edges.consul import ConsulCluster, ConsulError, WaitIndex
from muster.settings.connections import ConsulSettings
from tests.support.http_pages import Page, Pages, Request

TOKEN = "a-very-secret-token"  # noqa: S105

Answers = dict[str, Callable[[int], Page]]
"""Path (without parameters) to the answer to the first, second, ... request for it."""


def page(data: Any, index: int | None = 7, status: int = 200, **headers: str) -> Page:
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    with_index = {} if index is None else {"X-Consul-Index": str(index)}
    return Page(body, status, with_index | headers)


def entry(
    consumer: str = "one", status: str = "passing", node: str = "n", modified: int = 5, **meta: str
) -> dict[str, Any]:
    return {
        "Node": {"Node": node, "Address": "10.0.0.1"},
        "Service": {
            "ID": consumer,
            "Address": "",
            "Port": 80,
            "Meta": {"zone": node, **meta},
            "ModifyIndex": modified,
        },
        "Checks": [{"CheckID": f"service:{consumer}", "Status": status, "Output": "says so"}],
    }


HEALTH = "/v1/health/service/s"
CATALOG = "/v1/catalog/service/s"
ISOLATED = "/v1/kv/muster/c/isolated/"
PREFIX = "/v1/kv/muster/c/"
WHOAMI = "/v1/acl/token/self"
NO_ACLS: Callable[[int], Page] = lambda _: page(b"ACL support disabled", status=401)  # noqa: E731
NO_KEYS: Callable[[int], Page] = lambda _: page([], status=404)  # noqa: E731


@contextmanager
def playing(answers: Answers, **settings: Any) -> Iterator[tuple[ConsulCluster, Pages]]:
    counts: dict[str, int] = {}
    known = {WHOAMI: NO_ACLS, ISOLATED: NO_KEYS, PREFIX: NO_KEYS, CATALOG: lambda _: page([]), **answers}

    def answer(request: Request) -> Page:
        path = request.path.partition("?")[0]
        counts[path] = counts.get(path, 0) + 1
        return known[path](counts[path]) if path in known else page(True, index=None)

    with Pages(answer) as pages:
        connection = ConsulSettings(port=pages.port, **({"timeout": 1.0} | settings))
        yield ConsulCluster(connection, "c", "s", pause=lambda _: None), pages


def asked(pages: Pages, path: str) -> list[str]:
    return [r.path for r in pages.requests if r.path.partition("?")[0] == path]


def test_an_empty_list_out_of_the_blue_is_read_again() -> None:
    with playing({HEALTH: lambda n: page([] if n == 1 else [entry()])}) as (discovery, pages):
        members = discovery.catalog.members()
        assert members.membership is not None
        assert set(members.membership.live) == {"one"}
        assert len(asked(pages, HEALTH)) == 2
        assert "consistent" not in asked(pages, HEALTH)[0]
        assert "consistent=1" in asked(pages, HEALTH)[1]
        assert "consistent=1" in asked(pages, CATALOG)[0]


def test_an_empty_list_that_the_catalog_denies_is_not_believed() -> None:
    with playing({HEALTH: lambda _: page([]), CATALOG: lambda _: page([{"ServiceID": "one"}])}) as (found, _):
        members = found.catalog.members()
        assert members.membership is None
        assert "catalog does not agree" in members.doubt


def test_an_empty_list_that_all_agree_on_is_a_fact() -> None:
    with playing({HEALTH: lambda _: page([])}) as (discovery, pages):
        members = discovery.catalog.members()
        assert members.membership is not None
        assert members.membership.live == {}
        assert (len(asked(pages, HEALTH)), len(asked(pages, CATALOG))) == (2, 1)


def test_an_empty_list_that_cannot_be_confirmed_is_not_believed() -> None:
    def broken(n: int) -> Page:
        return page([]) if n == 1 else page(b"No cluster leader", status=500)

    with playing({HEALTH: broken}) as (discovery, _):
        members = discovery.catalog.members()
        assert members.membership is None
        assert "No cluster leader" in members.doubt


@pytest.mark.parametrize("data", [[], [entry()]])
def test_an_answer_that_the_acl_has_thinned_out_is_not_believed(data: list[Any]) -> None:
    headers = {"X-Consul-Results-Filtered-By-ACLs": "true"}
    with playing({HEALTH: lambda _: page(data, **headers)}) as (discovery, _):
        members = discovery.catalog.members()
        assert members.membership is None
        assert "token" in members.doubt
        assert set(members.registered) == ({"one"} if data else set())


def test_isolations_that_may_not_be_read_are_not_taken_for_none() -> None:
    headers = {"X-Consul-Results-Filtered-By-ACLs": "true"}
    answers: Answers = {
        HEALTH: lambda _: page([entry()]),
        ISOLATED: lambda _: page([], status=404, **headers),
    }
    with playing(answers) as (discovery, _), pytest.raises(ConsulError, match="key:read"):
        discovery.catalog.members()


def test_an_answer_without_a_leader_is_not_believed() -> None:
    with playing({HEALTH: lambda _: page([entry()], **{"X-Consul-KnownLeader": "false"})}) as (discovery, _):
        members = discovery.catalog.members()
        assert members.membership is None
        assert "leader" in members.doubt


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (page(b"No cluster leader", status=500), r"answered 500 \(No cluster leader\).*leader"),
        (page(b"ACL not found", status=403), "answered 403.*token"),
        (page(b"<html>It works!</html>"), "not understood.*check that a Consul agent listens there"),
        (page(b""), "not understood"),
        (page([entry()], index=None), "not understood"),
        (page({"one": "two"}), "not understood"),
        (page([{"Service": None}]), "not understood"),
        (page(b"nothing here", status=404, index=None), "not understood"),
        (page(b"", status=302, Location="http://example.invalid/"), "answered 302"),
    ],
)
def test_an_answer_that_is_none_is_an_error_naming_agent_and_next_step(answer: Page, problem: str) -> None:
    with playing({HEALTH: lambda _: answer}) as (discovery, pages):
        for call in (discovery.catalog.members, lambda: discovery.catalog.wait(WaitIndex(), 0)):
            with pytest.raises(ConsulError, match=rf"http://127.0.0.1:{pages.port}.*{problem}"):
                call()


def test_an_answer_that_does_not_come_is_an_error_in_time() -> None:
    slow = Page(b"[]", headers={"X-Consul-Index": "1"}, drip=5.0)
    with playing({HEALTH: lambda _: slow}, timeout=0.3) as (discovery, _):
        began = time.monotonic()
        with pytest.raises(ConsulError, match="no answer in time"):
            discovery.catalog.members()
        assert time.monotonic() - began < 4.5


def test_the_token_is_in_the_header_of_every_request_and_in_no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    # python-consul would take all of these from the environment, and the token into the URL.
    monkeypatch.setenv("CONSUL_HTTP_TOKEN", "from-the-environment")
    monkeypatch.setenv("CONSUL_HTTP_ADDR", "http://example.invalid:1")
    monkeypatch.setenv("CONSUL_HTTP_SSL", "true")
    monkeypatch.setenv("HTTP_PROXY", "http://example.invalid:1")
    key = {"Key": "k", "Value": base64.b64encode(b'{"incarnation": "i"}').decode(), "ModifyIndex": 3}
    health = {"AggregatedStatus": "passing", "Service": {"ID": "one"}, "Checks": []}
    answers: Answers = {
        HEALTH: lambda n: page([] if n == 1 else [entry()]),
        "/v1/kv/muster/c/stop/one": lambda n: page([key] if n < 3 else True),
        "/v1/agent/health/service/id/one": lambda _: page(health, index=None),
    }
    with playing(answers, token=TOKEN, datacenter="dc9", namespace="team", partition="p1") as (
        discovery,
        pages,
    ):
        discovery.catalog.members()
        discovery.catalog.wait(WaitIndex(1, 1), 0.2)
        discovery.catalog.wait(WaitIndex(), 0)
        discovery.jobs.stop_request("one")
        discovery.jobs.clear_stop("one")
        discovery.catalog.own_registration("one")
        discovery.catalog.deregister("one")
        discovery.catalog.register("one", "h", 1, {}, "http://h/status", 1.0, 60.0)
        discovery.overrides.isolate("one", "anna", "why", 1.0)
        discovery.jobs.request_stop("one", "i", "anna", "why")
        discovery.jobs.note_submission("one", {})
        discovery.jobs.clear_submission("one")
        assert len(pages.requests) > 15
        assert {request.headers.get("x-consul-token") for request in pages.requests} == {TOKEN}
        assert not [r.path for r in pages.requests if "token" in r.path or TOKEN in r.path]
        reads = [r.path for r in pages.requests if r.path.startswith(("/v1/health", "/v1/catalog", "/v1/kv"))]
        assert all("dc=dc9" in path for path in reads)
        assert all("ns=team" in r.path and "partition=p1" in r.path for r in pages.requests)


def test_no_error_shows_the_token() -> None:
    settings = ConsulSettings.model_validate({"port": 1, "token": TOKEN, "timeout": 0.5})
    with pytest.raises(ConsulError) as caught:
        ConsulCluster(settings, "c", "s").catalog.members()
    assert TOKEN not in f"{caught.value!r} {caught.value.__cause__!r} {settings!r}"


def test_id_on_two_nodes_is_the_passing_one_and_then_the_newer() -> None:
    def zone(*entries: dict[str, Any]) -> str | None:
        with playing({HEALTH: lambda _: page(list(entries))}) as (discovery, _):
            members = discovery.catalog.members()
            assert members.membership is not None
            return members.membership.live["one"].zone

    old, new = entry(node="old", modified=5), entry(node="new", modified=9)
    dead = entry(node="dead", modified=20, status="critical")
    assert zone(old, new) == zone(new, old) == zone(dead, new, old) == "new"


def test_members_rank_one_id_by_generation_before_check_and_index() -> None:
    first = entry(node="first", modified=30, generation="9")
    second = entry(node="second", modified=20, generation="10", status="critical")
    foreign = entry(node="foreign", modified=40)
    with playing({HEALTH: lambda _: page([foreign, second, first])}) as (discovery, _):
        membership = discovery.catalog.members().membership
    assert membership is not None
    assert not membership.live
    assert membership.failing["one"].zone == "second"
    assert membership.failing["one"].generation == 10
    assert [older.zone for older in membership.older["one"]] == ["first", "foreign"]


def test_members_tell_failing_consumers_from_isolated_ones() -> None:
    entries = [
        entry("one"),
        entry("two", status="critical"),
        entry("three", status="critical"),
        entry("four"),
    ]
    isolated = [{"Key": f"muster/c/isolated/{c}", "Value": None, "ModifyIndex": 1} for c in ("three", "four")]
    answers: Answers = {HEALTH: lambda _: page(entries), ISOLATED: lambda _: page(isolated)}
    with playing(answers) as (discovery, _):
        membership = discovery.catalog.members().membership
    assert membership is not None
    assert (set(membership.live), set(membership.failing)) == ({"one"}, {"two"})
    assert set(membership.outside) == {"three", "four"}
    assert (membership.failing["two"].address, membership.failing["two"].port) == ("10.0.0.1", 80)
    assert not membership.older


@pytest.mark.parametrize("rotten", ["-1", "1.5", "x", "9" * 16, "²"])
def test_members_take_a_rotten_generation_for_none(rotten: str) -> None:
    with playing({HEALTH: lambda _: page([entry(generation=rotten)])}) as (discovery, _):
        membership = discovery.catalog.members().membership
    assert membership is not None
    assert membership.live["one"].generation == 0


def test_wait_is_not_woken_by_an_answer_without_change_and_makes_no_busy_loop() -> None:
    def same(n: int) -> Page:
        changed = {"Checks": [{"CheckID": "c", "Status": "passing", "Output": f"output {n}"}]}
        return page([entry() | changed], index=n)

    with playing({HEALTH: same, PREFIX: lambda n: page([], index=n, status=404)}) as (discovery, pages):
        index = discovery.catalog.wait(WaitIndex(), 0)
        began = time.monotonic()
        later = discovery.catalog.wait(index, 1.0)
        assert 0.9 < time.monotonic() - began < 5.0
        assert later.seen_health == index.seen_health
        assert len(pages.requests) < 30


def test_wait_begins_again_when_the_index_goes_backwards() -> None:
    indexes = [900, 40, 41, 42, 43]

    def restored(n: int) -> Page:
        # Nothing new at first; then a consumer dies.
        status = "passing" if n < 4 else "critical"
        return page([entry(status=status)], index=indexes[min(n, len(indexes)) - 1])

    def quiet(n: int) -> Page:
        return Page(b"[]", 404, {"X-Consul-Index": "9"}, drip=0.0 if n == 1 else 5.0)

    with playing({HEALTH: restored, PREFIX: quiet}) as (discovery, pages):
        index = discovery.catalog.wait(WaitIndex(), 0)
        assert index.health == 900
        later = discovery.catalog.wait(index, 5.0)
        assert later.health == 42
        assert later.seen_health != index.seen_health
        paths = asked(pages, HEALTH)
        assert "index=900" in paths[1]
        assert "index" not in paths[2], "after a step back the next read does not block"
        assert "index=41" in paths[3]


def test_a_blocking_query_is_given_its_wait_and_a_margin() -> None:
    """Consul may take a sixteenth longer than the wait it was asked for, and that is no time-out."""

    def late(n: int) -> Page:
        return Page(
            json.dumps([entry()]).encode(), 200, {"X-Consul-Index": "5"}, drip=0.0 if n == 1 else 0.55
        )

    quiet = lambda n: Page(b"[]", 404, {"X-Consul-Index": "9"}, drip=0.0 if n == 1 else 5.0)  # noqa: E731
    with playing({HEALTH: late, PREFIX: quiet}, timeout=0.3) as (discovery, _):
        index = discovery.catalog.wait(WaitIndex(), 0)
        assert discovery.catalog.wait(index, 1.0).seen_health == index.seen_health
