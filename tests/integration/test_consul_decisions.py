"""Pins and exclusions in a real Consul: as they were written, malformed ones too, and which waits they end."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx
import pytest

from muster.core.deployment import Deployment
from muster.core.epochs import Noted
from muster.core.overrides import AssignorChoice, Exclusion, Overrides, Pause, Pin, RebalanceRequest
from muster.core.subscription import TopicOverride
from muster.edges import consul_overrides
from muster.edges.consul import ConsulCluster, ConsulError, ConsulTooLargeError, WaitIndex
from muster.settings.connections import ConsulSettings
from tests.support.http_pages import Page, Pages


@pytest.fixture
def name() -> str:
    return f"c{uuid4().hex[:12]}"


@pytest.fixture
def discovery(consul: ConsulSettings, name: str) -> ConsulCluster:
    return ConsulCluster(consul, name, f"{name}-service")


def put(consul: ConsulSettings, key: str, value: str) -> None:
    httpx.put(
        f"http://{consul.host}:{consul.port}/v1/kv/{key}", content=value, trust_env=False
    ).raise_for_status()


def test_pin_is_read_as_it_was_written(discovery: ConsulCluster) -> None:
    assert discovery.overrides.read().pins == {}
    discovery.overrides.pin("t", 3, "one", by="ann", why="has the cache", at=1700000000.25)
    discovery.overrides.pin("t.with-dots", 0, "two", by="ann", why="", at=1.0)
    found = discovery.overrides.read()
    assert found.errors == ()
    assert found.pins["t", 3] == Pin("t", 3, "one", by="ann", at=1700000000.25, why="has the cache")
    assert found.pinned() == {"t": {3: "one"}, "t.with-dots": {0: "two"}}
    discovery.overrides.pin("t", 3, "two", by="bob", why="moved", at=2.0)
    assert discovery.overrides.read().pins["t", 3].consumer == "two", "the later word counts"
    assert discovery.overrides.unpin("t", 3)
    assert not discovery.overrides.unpin("t", 3)
    assert discovery.overrides.read().pinned() == {"t.with-dots": {0: "two"}}


def test_an_exclusion_there_and_back(discovery: ConsulCluster) -> None:
    assert discovery.overrides.exclude("one", "t", by="ann", why="no GPU", at=5.0)
    assert not discovery.overrides.exclude("one", "t", by="bob", why="other", at=6.0), "the first one stays"
    assert discovery.overrides.exclude("one", "u", by="ann", why="no GPU", at=5.0)
    found = discovery.overrides.read()
    assert found.exclusions["one", "t"] == Exclusion("one", "t", by="ann", at=5.0, why="no GPU")
    assert found.excluded() == {"one": {"t", "u"}}
    assert discovery.overrides.include("one", "t")
    assert not discovery.overrides.include("one", "t")
    assert discovery.overrides.read().excluded() == {"one": {"u"}}


def test_decisions_leave_out_other_keys_and_other_clusters(
    discovery: ConsulCluster, consul: ConsulSettings, name: str
) -> None:
    discovery.overrides.isolate("one", by="ann", why="r", at=1.0)
    discovery.jobs.note_submission("one", {"a": 1})
    ConsulCluster(consul, f"{name}-other", "s").overrides.pin("t", 0, "one", by="ann", why="r", at=1.0)
    put(consul, f"muster/{name}/pinned/", "")
    put(consul, f"muster/{name}/pinned/t/", "")
    put(consul, f"muster/{name}/excluded/one/", "")
    found = discovery.overrides.read()
    assert (found.pins, found.exclusions, found.errors) == ({}, {}, ())
    assert discovery.overrides.isolated().keys() == {"one"}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("pinned/t/1", "rubbish", "holds b'rubbish', expected is a JSON object"),
        ("pinned/t/1", "[]", "expected is a JSON object"),
        ("pinned/t/1", '{"who": "ann"}', "expected is a JSON object with 'consumer'"),
        ("pinned/t/1", '{"consumer": 7}', "expected is a JSON object with 'consumer'"),
        ("pinned/t/1", '{"consumer": "a b"}', "consumer id 'a b'"),
        ("pinned/t/x", '{"consumer": "one"}', "partition 'x': expected a whole number from 0"),
        ("pinned/t/01", '{"consumer": "one"}', "partition '01'"),
        ("pinned/t/99999999999", '{"consumer": "one"}', "partition '99999999999'"),
        ("pinned/t", '{"consumer": "one"}', "its name ends in 't', expected is [TOPIC]/[PARTITION]"),
        ("pinned/t/1/2", '{"consumer": "one"}', "its name ends in 't/1/2'"),
        ("pinned/t$/1", '{"consumer": "one"}', "topic name 't$'"),
        ("excluded/one/t", "rubbish", "holds b'rubbish'"),
        ("excluded/one", "{}", "expected is [CONSUMER]/[TOPIC]"),
        ("excluded/-one/t", "{}", "consumer id '-one'"),
    ],
)
def test_malformed_key_is_named_and_leaves_the_others(
    discovery: ConsulCluster, consul: ConsulSettings, name: str, key: str, value: str, said: str
) -> None:
    discovery.overrides.pin("good", 0, "one", by="ann", why="r", at=1.0)
    discovery.overrides.exclude("two", "good", by="ann", why="r", at=1.0)
    put(consul, f"muster/{name}/{key}", value)
    found = discovery.overrides.read()
    [error] = found.errors
    assert error.startswith(f"Consul key muster/{name}/{key}: ")
    assert said in error
    assert error.endswith("Correct it, or delete the key")
    assert found.pinned() == {"good": {0: "one"}}
    assert found.excluded() == {"two": {"good"}}


def test_decision_with_missing_details_stands(
    discovery: ConsulCluster, consul: ConsulSettings, name: str
) -> None:
    put(consul, f"muster/{name}/pinned/t/0", json.dumps({"consumer": "one", "more": True}))
    put(consul, f"muster/{name}/excluded/one/u", "{}")
    found = discovery.overrides.read()
    assert found.errors == ()
    assert found.pins["t", 0] == Pin("t", 0, "one", by="unknown", at=0.0, why="")
    assert found.exclusions["one", "u"].by == "unknown"


def test_coordination_decisions_survive_a_round_trip(discovery: ConsulCluster) -> None:
    said: dict[str, Any] = {"by": "ann", "at": 1700000000.25, "why": "release"}
    assert discovery.overrides.pause(**said)
    assert not discovery.overrides.pause(by="bob", at=2.0, why="other"), "the first one stays"
    discovery.overrides.ask_for_rebalance(**said)
    discovery.overrides.choose_assignor("load-aware", {"budget": 3}, **said)
    found = discovery.overrides.read()
    assert found.errors == ()
    assert found.paused == Pause(**said)
    assert found.assignor == AssignorChoice(**said, name="load-aware", options={"budget": 3})
    first = found.rebalance
    assert first is not None
    assert first == RebalanceRequest(**said, modified=first.modified)
    discovery.overrides.ask_for_rebalance(by="bob", at=3.0, why="again")
    assert not discovery.overrides.end_rebalance(first), "another request has taken its place"
    second = discovery.overrides.read().rebalance
    assert second is not None
    assert second.by == "bob"
    assert discovery.overrides.end_rebalance(second)
    assert discovery.overrides.read().rebalance is None
    assert discovery.overrides.resume()
    assert not discovery.overrides.resume()
    assert discovery.overrides.clear_assignor()
    assert not discovery.overrides.clear_assignor()
    assert discovery.overrides.read() == Overrides()


def test_epochs_that_are_noted_never_fall(
    discovery: ConsulCluster, consul: ConsulSettings, name: str
) -> None:
    assert discovery.overrides.epochs() == {}
    noted = [{"t": Noted(epoch), f"u-{epoch}": Noted(1)} for epoch in range(40, 0, -5)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(discovery.overrides.note_epochs, noted))
    wanted = {"t": 40} | {f"u-{epoch}": 1 for epoch in range(40, 0, -5)}
    assert discovery.overrides.epochs() == wanted
    assert discovery.overrides.read().epochs == {topic: Noted(epoch) for topic, epoch in wanted.items()}
    put(consul, f"muster/{name}/coordination/epochs", '{"t": "rubbish"}')
    [error] = discovery.overrides.read().errors
    assert "coordination/epochs: holds" in error and "topics to whole numbers" in error
    assert discovery.overrides.epochs() == {}, (
        "then only what consumers report shows that ZooKeeper went back"
    )
    discovery.overrides.note_epochs({"t": Noted(41)})
    assert discovery.overrides.read() == Overrides(epochs={"t": Noted(41)})


def test_pending_write_is_noted_with_those_that_gain(
    discovery: ConsulCluster, consul: ConsulSettings, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for gains in ("a", "b"):
        discovery.overrides.note_epochs({"t": Noted(8, 7, frozenset(gains)), "u": Noted(3)})
    assert discovery.overrides.read().epochs == {"t": Noted(8, 7, frozenset("ab")), "u": Noted(3)}
    assert discovery.overrides.epochs() == {"t": 8, "u": 3}
    discovery.overrides.note_epochs({"t": Noted(8)})
    assert discovery.overrides.read().epochs["t"] == Noted(8), "it was written"
    key = f"muster/{name}/coordination/epochs"
    for pending in ('{"t": 9}', '{"t": {"over": "7", "gaining": []}}', '{"t": {"over": 7, "gaining": "a"}}'):
        put(consul, key, f'{{"t": 8, "/pending": {pending}}}')
        assert discovery.overrides.read().epochs == {"t": Noted(8)}, "then all have to answer"
    monkeypatch.setattr(consul_overrides, "PENDING_BYTES", 40)
    discovery.overrides.note_epochs({"t": Noted(9, 8, frozenset({"a-long-name-of-a-consumer"}))})
    assert discovery.overrides.read().epochs == {"t": Noted(9)}, "so the key stays within Consul's limit"


def test_deployment_is_noted_against_what_was_read(
    discovery: ConsulCluster, consul: ConsulSettings, name: str
) -> None:
    assert discovery.overrides.read().deployment is None
    this, other = (replace(Deployment.of(f"{host}:2181/x", name), at=1_700_000_000.25) for host in "ab")
    assert discovery.overrides.note_deployment(this, None)
    assert not discovery.overrides.note_deployment(other, None), "another one was faster"
    noted = discovery.overrides.read().deployment
    assert noted == replace(this, modified=noted.modified if noted else 0)
    assert other.clash(noted, this.at + 12).startswith(
        "another deployment coordinates a cluster of this name with the same keys in Consul: ZooKeeper a:2181, "
        f"/x/consumers/{name}, noted 12 s ago, and this one is at ZooKeeper b:2181, /x/consumers/{name}. "
    )
    assert discovery.overrides.note_deployment(other, noted)
    assert not discovery.overrides.note_deployment(this, noted)
    put(consul, f"muster/{name}/coordination/deployment", '{"zookeeper": 1}')
    found = discovery.overrides.read()
    assert found.deployment is None
    assert "coordination/deployment: holds" in found.errors[0]


def test_topic_overrides_are_read_as_they_were_written(discovery: ConsulCluster) -> None:
    said: dict[str, Any] = {"by": "ann", "at": 5.0, "why": "r"}
    strange = r"fl[io]ghts/%41?\.(a|b)+ é"
    for selector, pattern in (("t.x", False), (strange, True)):
        assert discovery.overrides.decide_topic(selector, pattern=pattern, subscribed=True, **said)
        assert not discovery.overrides.decide_topic(selector, pattern=pattern, subscribed=True, **said)
    assert discovery.overrides.decide_topic("t.x", pattern=False, subscribed=False, **said)
    found = discovery.overrides.read()
    assert (found.errors, found.topics_in_doubt) == ((), False)
    assert set(found.subscriptions) == {
        TopicOverride(**said, selector="t.x", pattern=False, subscribed=True),
        TopicOverride(**said, selector="t.x", pattern=False, subscribed=False),
        TopicOverride(**said, selector=strange, pattern=True, subscribed=True),
    }
    assert discovery.overrides.undo_topic(strange, pattern=True, subscribed=True)
    assert discovery.overrides.undo_topic("t.x", pattern=False, subscribed=True)
    assert discovery.overrides.undo_topic("t.x", pattern=False, subscribed=False)
    assert not discovery.overrides.undo_topic("t.x", pattern=False, subscribed=False)
    assert discovery.overrides.read() == Overrides()


def test_malformed_coordination_decisions_mean_the_status_quo(
    discovery: ConsulCluster, consul: ConsulSettings, name: str
) -> None:
    put(consul, f"muster/{name}/coordination/paused", "rubbish")
    put(consul, f"muster/{name}/coordination/rebalance", "rubbish")
    put(consul, f"muster/{name}/coordination/assignor", '{"name": "range", "options": 3}')
    put(consul, f"muster/{name}/topics/unsubscribed/names/t", "rubbish")
    found = discovery.overrides.read()
    assert found.paused is not None, "a malformed key still pauses"
    assert "holds no JSON object" in found.paused.why
    assert found.rebalance is None
    assert found.assignor is None
    assert "so the assignor is unknown" in found.assignor_error
    [error] = found.errors
    assert "coordination/rebalance: holds b'rubbish'" in error
    [unsubscribed] = found.subscriptions
    assert (unsubscribed.selector, unsubscribed.subscribed) == ("t", False)
    assert not found.topics_in_doubt
    assert discovery.overrides.resume()
    assert discovery.overrides.clear_assignor()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("topics/subscribed/patterns/x", "rubbish", "expected is a JSON object with 'pattern'"),
        ("topics/subscribed/patterns/x", '{"pattern": "("}', "pattern '(' is not a regular expression"),
        ("topics/subscribed/names/t$", "{}", "topic name 't$'"),
        ("topics/else/names/t", "{}", "its name ends in 'else/names/t'"),
    ],
)
def test_a_decision_on_topics_that_cannot_be_read_puts_them_in_doubt(
    discovery: ConsulCluster, consul: ConsulSettings, name: str, key: str, value: str, said: str
) -> None:
    put(consul, f"muster/{name}/{key}", value)
    found = discovery.overrides.read()
    assert found.topics_in_doubt
    [error] = found.errors
    assert said in error
    assert "until it is corrected or deleted" in error


def test_wait_wakes_at_once_for_each_kind_of_change(discovery: ConsulCluster) -> None:
    changes = [
        lambda: discovery.overrides.pin("t", 0, "one", by="ann", why="r", at=1.0),
        lambda: discovery.overrides.pin("t", 0, "two", by="ann", why="r", at=1.0),
        lambda: discovery.overrides.unpin("t", 0),
        lambda: discovery.overrides.exclude("one", "t", by="ann", why="r", at=1.0),
        lambda: discovery.overrides.include("one", "t"),
        lambda: discovery.overrides.pause(by="ann", why="r", at=1.0),
        discovery.overrides.resume,
        lambda: discovery.overrides.ask_for_rebalance(by="ann", why="r", at=1.0),
        lambda: discovery.overrides.choose_assignor("range", {}, by="ann", why="r", at=1.0),
        lambda: discovery.overrides.decide_topic(
            "x", pattern=False, subscribed=True, by="ann", why="r", at=1.0
        ),
    ]
    for number, change in enumerate(changes):
        index = discovery.catalog.wait(WaitIndex(), 0)
        began = time.monotonic()
        timer = threading.Timer(0.3, change)
        timer.start()
        after = discovery.catalog.wait(index, 20.0)
        took = time.monotonic() - began
        timer.join()
        assert after != index, f"change {number} was not seen"
        assert took < 10, f"change {number} was seen after {took:.1f} s"


def test_an_answer_that_may_leave_keys_out_is_not_believed(name: str) -> None:
    """Without this a pin that a token may not read would count as taken back."""
    headers = {"X-Consul-Index": "7", "X-Consul-Results-Filtered-By-ACLs": "true"}
    with Pages(lambda _: Page(b"[]", headers=headers)) as pages:
        discovery = ConsulCluster(ConsulSettings(host="127.0.0.1", port=pages.port), name, "s")
        with pytest.raises(ConsulError, match="may not read all of it"):
            discovery.overrides.read()


def test_a_silent_consul_is_given_up_on(name: str) -> None:
    silent = threading.Event()
    with Pages(lambda _: (silent.wait(10), Page(b"[]"))[1]) as pages:
        discovery = ConsulCluster(ConsulSettings(host="127.0.0.1", port=pages.port, timeout=0.3), name, "s")
        began = time.monotonic()
        with pytest.raises(ConsulError, match="no answer in time"):
            discovery.overrides.read()
        assert time.monotonic() - began < 5
        silent.set()


def many(count: int) -> dict[str, Noted]:
    return {f"tenant-{n:06d}.orders.created.v1.xxxxxxxxxxxx": Noted(1_764_000_000) for n in range(count)}


def test_epochs_are_forgotten_unless_a_higher_one_came(discovery: ConsulCluster) -> None:
    overrides = discovery.overrides
    overrides.forget_epochs({"t": 1})
    overrides.note_epochs({"t": Noted(5, 4), "u": Noted(7, 6), "v": Noted(9)})
    overrides.forget_epochs({"t": 5, "u": 6, "gone": 1})
    assert overrides.read().epochs == {"u": Noted(7, 6), "v": Noted(9)}


def test_key_over_half_the_limit_is_named(discovery: ConsulCluster) -> None:
    overrides = discovery.overrides
    overrides.note_epochs(many(4_000))
    assert overrides.read().large == ()
    overrides.note_epochs(many(6_000))
    (said,) = overrides.read().large
    for part in (
        "coordination/epochs holds 3",
        "over half of the 524,288",
        "unsubscribe topics",
        "kv_max_value_size",
    ):
        assert part in said
    overrides.forget_epochs({topic: note.epoch for topic, note in many(5_000).items()})
    assert overrides.read().large == ()


def test_refused_value_says_size_key_and_step(discovery: ConsulCluster) -> None:
    overrides = discovery.overrides
    overrides.note_epochs({"t": Noted(5)})
    with pytest.raises(ConsulTooLargeError) as refusal:
        overrides.note_epochs(many(12_000))
    for part in ("answered 413", "coordination/epochs was to hold 6", "kv_max_value_size", "is as it was"):
        assert part in str(refusal.value)
    assert "check that a Consul agent listens" not in str(refusal.value)
    assert overrides.epochs() == {"t": 5}
    overrides.note_epochs({"t": Noted(6)})
