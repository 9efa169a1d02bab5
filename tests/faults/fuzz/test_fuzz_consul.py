"""Whatever stands in Consul: keys, registrations, and answers that are none of Consul's.

A key or a registration that is rotten costs itself, and is named; the others count, and topics become Stable.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from muster.airflow.submission import Submission
from muster.consumer.agent import Agent
from muster.consumer.lifecycle import Ending
from muster.consumer.registration import STOP_REQUEST, Registrar
from muster.core.wire import WireError
from muster.edges.consul import ConsulError, UnreadableKeyError
from muster.edges.consul_api import read_answer
from muster.edges.consul_members import parse_agent_registration, parse_registrations
from muster.edges.status import StatusFailure
from muster.settings.connections import ConsulSettings
from tests.faults.fuzz.cluster import Cluster
from tests.faults.fuzz.error_text import explains
from tests.faults.fuzz.malformed import mangled, mangled_values, odd_texts, odd_values
from tests.faults.fuzz.tally import count, examples
from tests.faults.model.process import SETTINGS

WORD = {"who": "ann", "when": "2026-01-01T00:00:00.000+00:00", "why": "has the cache"}
PIN = {"consumer": "a", **WORD}
ASSIGNOR = {"name": "range", "options": {"by_zone": True}, **WORD}
PATTERN = {"pattern": "m.*", **WORD}
STOP = {"incarnation": "one", **WORD}
SUBMITTED = {
    "incarnation": "one",
    "host": "h",
    "at": 1.5,
    "log": "/l",
    "pid": 4,
    "started": 1.0,
    "watch": {"dag": "d", "run": "r", "task": "t", "map_index": 0},
}
ENTRY: dict[str, Any] = {
    "Node": {"Address": "127.0.0.1"},
    "Service": {
        "ID": "x",
        "Address": "127.0.0.1",
        "Port": 80,
        "Meta": {
            "priority": "1",
            "weight": "2.5",
            "zone": "z",
            "topics": "good,other",
            "incarnation": "one",
            "replaces": "i@h:1,j@[::1]:2",
        },
        "ModifyIndex": 7,
    },
    "Checks": [{"CheckID": "c", "Status": "passing", "Output": "", "Notes": ""}],
}

EPOCHS: dict[str, Any] = {"good": 1800000000, "gone": 7}


def others(keys: Mapping[str, tuple[bytes, int]]) -> dict[str, tuple[bytes, int]]:
    """All keys but that of epochs, which the coordinator writes."""
    return {name: key for name, key in keys.items() if name != "muster/c/coordination/epochs"}


parts = st.one_of(
    st.sampled_from(("a", "b", "good", "0", "1", "good-1")),
    odd_texts.filter(lambda t: "\x00" not in t and len(t) <= 300),
)
decisions = st.tuples(
    st.sampled_from(("pinned", "excluded", "isolated", "stop", "submitted", "whatever")),
    st.lists(parts, min_size=1, max_size=3).map("/".join),
    st.one_of(mangled(PIN), mangled(STOP), st.just(json.dumps(PIN).encode())),
)


@examples(150)
@given(st.lists(decisions, min_size=3, max_size=8), st.sampled_from(("sticky", "range", "co-partitioned")))
def test_rotten_keys_cost_themselves(keys: list[tuple[str, str, bytes]], assignor: str) -> None:
    # Consumer a carries "keep" whatever the keys say of the other topics: nobody isolates or excludes "a" and "b".
    cluster = Cluster({"good": 3, "keep": 2}, good=("good", "keep"), assignor=assignor)
    cluster.key("pinned/keep/0", json.dumps({**PIN, "consumer": "b"}).encode())
    for kind, rest, value in keys:
        harms = (kind in {"isolated", "excluded"} and rest.startswith(("a", "b"))) or rest.startswith("keep")
        cluster.key(f"{kind}/{'nobody-' if harms else ''}{rest}", value)
        count("Consul key")
    before = others(cluster.servers.keys)
    cluster.settles()
    assert others(cluster.servers.keys) == before, "a run writes no key but that of epochs"
    assert cluster.snapshot("keep").assignment.owners[0] == "b", "the good pin is obeyed"
    read = cluster.discovery.overrides.read()
    understood = {f"muster/c/pinned/{t}/{p}" for t, p in read.pins} | {
        f"muster/c/excluded/{c}/{t}" for c, t in read.exclusions
    }
    for name in before:
        kind, _, rest = name.removeprefix("muster/c/").partition("/")
        if kind in {"pinned", "excluded"} and name not in understood and rest and not rest.endswith("/"):
            assert any(name in error for error in read.errors), f"{name} is not named"
            assert any(name in warning for warning in cluster.warnings)
    for error in read.errors:
        explains(error, "Consul key muster/c/")


whole = st.tuples(
    st.sampled_from(("rebalance", "assignor", "assignor", "epochs", "deployment", "whatever")),
    st.one_of(mangled(ASSIGNOR), mangled(ASSIGNOR), mangled(WORD), mangled(EPOCHS)),
)


@examples(250)
@given(st.lists(whole, min_size=1, max_size=3), st.none() | mangled(WORD))
def test_malformed_coordination_keys_cost_themselves(
    keys: list[tuple[str, bytes]], paused: bytes | None
) -> None:
    """A pause is one whatever it holds; what is not understood moves nothing; taken back, all goes on."""
    cluster = Cluster({"good": 3}, good=("good",))
    cluster.settles()
    for name, value in [*keys, *([] if paused is None else [("paused", paused)])]:
        cluster.key(f"coordination/{name}", value)
        count("Consul key")
    asked = cluster.servers.keys.get("muster/c/coordination/rebalance")
    before = cluster.zookeeper.data()
    cluster.join("c")
    cluster.run()
    read = cluster.discovery.overrides.read()
    assert (read.paused is not None) == (paused is not None)
    for error in read.errors:
        explains(error, "Consul key muster/c/coordination/")
        assert error in cluster.warnings
    assert cluster.plan is not None
    if read.paused is not None:
        assert "resume the cluster" in cluster.plan.held
    elif read.assignor_error:
        explains(cluster.plan.planning_error, "Consul key muster/c/coordination/assignor")
    elif cluster.plan.planning_error:
        explains(cluster.plan.planning_error, "chosen instead of that in the settings")
    if cluster.plan.held or cluster.plan.planning_error:
        assert cluster.zookeeper.data() == before, "nothing is written"
    assert cluster.discovery.overrides.resume() == (paused is not None)
    assert cluster.discovery.overrides.clear_assignor() == any(name == "assignor" for name, _ in keys)
    cluster.settles()
    cluster.run()
    left = cluster.servers.keys.get("muster/c/coordination/rebalance")
    not_understood = any("coordination/rebalance" in error for error in read.errors)
    assert left == (asked if not_understood else None), (
        "carried out if it was understood, and else left alone"
    )


topic_keys = st.tuples(
    st.sampled_from(("subscribed", "subscribed", "unsubscribed", "unsubscribed", "whatever")),
    st.sampled_from(("names", "names", "patterns", "patterns", "whatever")),
    st.one_of(st.sampled_from(("good", "more", "m.*")), parts),
    st.one_of(mangled(PATTERN), st.just(json.dumps(PATTERN).encode())),
)


@examples(250)
@given(st.lists(topic_keys, min_size=1, max_size=4))
def test_malformed_topic_keys_cost_themselves(keys: list[tuple[str, str, str, bytes]]) -> None:
    """What is understood counts; while something is not, no topic is taken up or let go but by its name."""
    cluster = Cluster({"good": 3, "keep": 2}, good=("good", "keep"))
    cluster.settles()
    cluster.topics |= {"more": 2, "other": 1}
    for how, kind, name, value in keys:
        cluster.key(f"topics/{how}/{kind}/{name}", value)
        count("Consul key")
    before = others(cluster.servers.keys)
    read = cluster.discovery.overrides.read()
    reads = cluster.settings.topics.read_with(read.subscriptions, read.topics_in_doubt)
    new = {topic for topic in ("more", "other") if reads.takes_up(topic)}
    kept = {topic for topic in ("good", "keep") if not reads.lets_go(topic)}
    cluster.good = (*new, *kept)
    for _ in range(3):  # what is let go of is closed first
        cluster.settles()
    assert others(cluster.servers.keys) == before, "a run writes no key but that of epochs"
    assert {topic for topic in cluster.topics if cluster.snapshot(topic) is not None} == new | kept
    folders = {name for name in before if name.endswith("/")}
    assert len(read.subscriptions) + len(read.errors) == len(before) - len(folders)
    assert read.topics_in_doubt == bool(read.errors)
    for error in read.errors:
        explains(error, "Consul key muster/c/topics/")
        assert error in cluster.warnings


@examples(300)
@given(mangled(STOP), mangled(SUBMITTED), mangled(WORD), mangled(WORD))
def test_rotten_requests_and_notes(stop: bytes, submitted: bytes, isolated: bytes, excluded: bytes) -> None:
    cluster = Cluster({}, good=())
    names = {"stop/a": stop, "submitted/a": submitted, "isolated/a": isolated, "excluded/b/t": excluded}
    for name, value in names.items():
        cluster.key(name, value)
        count("Consul key")
    cluster.key("stop/b", json.dumps(STOP).encode())
    cluster.key("submitted/b", json.dumps(SUBMITTED).encode())
    keys = cluster.discovery
    assert keys.overrides.isolated().keys() == {"a"}, "a malformed key still isolates"
    assert keys.jobs.stop_requests()["b"].incarnation == "one"
    assert keys.jobs.submissions()["b"] == SUBMITTED
    Submission.from_dict(keys.jobs.submission("a"))
    Submission.from_dict(keys.jobs.submissions().get("a"))
    try:
        request = keys.jobs.stop_request("a")
    except UnreadableKeyError as error:
        explains(str(error), "muster/c/stop/a")
    else:
        assert request is not None
        # A consumer that leaves writes it again, for those who watch.
        keys.jobs.request_stop("a", "i", request.by, request.why, request.at)
        assert keys.jobs.stop_request("a").at == pytest.approx(request.at, abs=0.001)
    assert keys.overrides.restore("a")
    assert keys.jobs.clear_stop("a")
    assert keys.overrides.include("b", "t")


@examples(400)
@given(mangled(STOP))
@example(json.dumps({**STOP, "incarnation": ""}).encode())
def test_malformed_stop_request_blocks_neither_registration_nor_isolation(stop: bytes) -> None:
    cluster = Cluster({}, good=(), consumers=())
    cluster.key("stop/x", stop)
    cluster.key("isolated/x", b"{}")
    count("Consul key")
    agent, ending = Agent("x"), Ending()
    registrar = Registrar(
        SETTINGS,
        cluster.discovery,
        agent,
        ending,
        80,
        ask=lambda _: StatusFailure("i", "no answer"),
        clock=lambda: 0.0,
    )
    registrar.open()
    registrar.look()
    request = cluster.discovery.jobs.stop_requests().get("x")
    meant = request is not None and request.incarnation in {"", SETTINGS.incarnation}
    assert ending.asked == meant
    assert ("x" in cluster.servers.services) == (not meant), "a process that is to end does not register"
    assert "isolated" in agent.view().blocks
    if problem := agent.view().problems.get(STOP_REQUEST):
        explains(problem, "muster/c/stop/x")
    assert (request is None) == (problem is not None)
    registrar.leave()
    assert "x" not in cluster.servers.services


@examples(300)
@given(
    st.lists(
        mangled_values(ENTRY["Service"])
        | st.tuples(st.sampled_from(sorted(ENTRY["Service"]["Meta"])), odd_values).map(
            lambda odd: {**ENTRY["Service"], "Meta": {**ENTRY["Service"]["Meta"], odd[0]: odd[1]}}
        ),
        min_size=1,
        max_size=3,
    )
)
def test_a_rotten_registration_costs_itself(services: list[Any]) -> None:
    cluster = Cluster({"good": 3}, good=("good",))
    entries = [service.entry() for service in cluster.servers.services.values()]
    rotten = []
    for service in services:
        count("Consul entry")
        meta = service.get("Meta") if isinstance(service, dict) else None
        of_text = {"Meta": {str(k): str(v) for k, v in meta.items()}} if isinstance(meta, dict) else {}
        rotten.append({**ENTRY, "Service": {**service, **of_text} if of_text else service, "Checks": []})
    api: Any = cluster.discovery.api
    answer = api.read_health

    def read(*arguments: Any, **keywords: Any) -> Any:
        return replace(answer(*arguments, **keywords), data=[*entries, *rotten])

    api.read_health = api.read_catalog = read
    try:
        members = cluster.discovery.catalog.members()
    except ConsulError as error:
        explains(str(error), "Consul at http")
        return
    assert {"a", "b"} <= members.registered.keys()
    for consumer in set(members.membership.live) - {"a", "b"}:
        assert consumer in {s["ID"] for s in services if isinstance(s, dict)}
        cluster.join(consumer)
        cluster.incarnations[consumer] = members.membership.live[consumer].incarnation or "any"
    cluster.settles()


@examples(1000)
@given(mangled([ENTRY]), mangled(ENTRY))
def test_answers_that_are_not_consuls(health: bytes, own: bytes) -> None:
    settings = ConsulSettings()
    for text, parse in ((health, parse_registrations), (own, parse_agent_registration)):
        count("Consul answer")
        try:
            answer = read_answer(
                settings, "GET /v1/x", 200, {"X-Consul-Index": "3"}, text.decode("utf-8", "replace")
            )
        except ConsulError as error:
            explains(str(error), "GET /v1/x", "127.0.0.1:8500")
            continue
        try:
            parse(answer.data)
        except ValueError as error:
            assert not isinstance(error, UnicodeError | WireError)


@examples(300)
@given(
    st.integers(100, 599),
    st.dictionaries(
        st.sampled_from(("X-Consul-Index", "X-Consul-KnownLeader", "X-Consul-Results-Filtered-By-ACLs")),
        odd_texts,
    ),
    st.one_of(odd_texts, st.sampled_from(("[]", "null", "[{}]"))),
)
def test_answers_with_any_status_and_headers(status: int, headers: dict[str, str], text: str) -> None:
    count("Consul answer")
    try:
        answer = read_answer(ConsulSettings(), "GET /v1/x", status, headers, text)
    except ConsulError as error:
        explains(str(error), "GET /v1/x", "127.0.0.1:8500")
    else:
        assert status in {200, 404}
        assert answer.index == int(headers["X-Consul-Index"])


_KEY = [{"Key": "muster/c/isolated/a", "Value": "e30=", "ModifyIndex": 3}]


@examples(800)
@given(mangled(_KEY))
def test_key_lists_that_are_not_consuls(answer: bytes) -> None:
    count("Consul answer")
    cluster = Cluster({}, good=())
    api: Any = cluster.discovery.api

    def read(path: str, *_: Any, **__: Any) -> Any:
        return read_answer(
            api.settings,
            f"GET /v1/kv/{path}",
            200,
            {"X-Consul-Index": "3"},
            answer.decode("utf-8", "replace"),
        )

    api.read_keys = read
    for ask in (
        cluster.discovery.overrides.isolated,
        cluster.discovery.overrides.read,
        cluster.discovery.jobs.stop_requests,
    ):
        try:
            ask()
        except ConsulError as error:
            explains(str(error), "/v1/kv/muster/c/")
