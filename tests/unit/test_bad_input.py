"""What fuzzing has found (`tests/faults/fuzz`), one test each: what did harm before, and what becomes of it now."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from muster.airflow.submission import Submission
from muster.cli.what_if import PairType
from muster.commands.command import Actor, CommandError
from muster.consumer import predecessor
from muster.core import wire
from muster.core.assignors import BUILT_IN, AssignorError, load_assignor
from muster.core.model import (
    Consumer,
    ConsumerStatus,
    Membership,
    State,
    TopicAssignment,
    TopicSnapshot,
    TopicState,
    TopicStatus,
)
from muster.core.moments import to_iso
from muster.core.overrides import Overrides, Pin
from muster.core.patience import Patience, Policy, Replies
from muster.core.planner import plan
from muster.core.preview import MOST_PARTITIONS, WhatIf, WhatIfError, suppose
from muster.core.state_machine import advance
from muster.core.wire import WireError
from muster.edges.consul_api import ConsulError, read_answer
from muster.edges.consul_keys import read_object, seconds
from muster.edges.consul_members import GREATEST_WEIGHT, LEAST_WEIGHT, Registration, to_consumer
from muster.edges.status import StatusFailure, poll_statuses
from muster.settings.clusters import load_clusters
from muster.settings.connection_lookup import read_variable
from muster.settings.connection_parsing import ConnectionSettingsError
from muster.settings.connections import ConsulSettings

DEEP = "[" * 100_000
STATE = {"state": "Stable", "toStart": {}, "toClose": {}}
ASSIGNMENT = {"bootstrap.servers": "k:1", "group.id": "g", "assignments": {}}


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-14:00"])
def test_moments_that_cannot_be_written_again_end_no_run(moment: str) -> None:
    for key, value in (("since", moment), ("missing", {"a": moment})):
        with pytest.raises(WireError, match=f"/x is not a topic state: {key}.*1970"):
            wire.parse_state(json.dumps({**STATE, key: value}).encode(), "/x")
    assert to_iso(seconds(moment)) == "1970-01-01T00:00:00.000+00:00"


def test_a_reason_that_is_no_unicode_or_huge_is_written_so_that_it_can_be_read() -> None:
    for reason in ("\ud800", "x" * 1_000_000):
        data = wire.format_state(TopicState(State.STABLE, reason=reason))
        assert wire.parse_state(data, "/x").reason
        assert len(data) < 10_000
    pin = Pin("t", 0, "a", by="y" * 500_000, at=0.0, why="\ud800;x")
    assert len(str(pin)) < 500
    assert Overrides(pins={("t", 0): pin}).reasons("t", {0: "b"}, {0: "a"})[0].endswith("?,x")


@pytest.mark.parametrize("key", ["bootstrap.servers", "group.id"])
def test_control_characters_in_an_assignment_do_not_reach_librdkafka(key: str) -> None:
    with pytest.raises(WireError, match=rf"/x is not an assignment: {key}"):
        wire.parse_assignment(json.dumps({**ASSIGNMENT, key: "a\x00b"}).encode(), "/x")


def test_epochs_that_others_could_not_read_are_refused() -> None:
    with pytest.raises(WireError, match="epoch"):
        wire.parse_assignment(json.dumps({**ASSIGNMENT, "epoch": 10**30}).encode(), "/x")


def test_partition_in_two_lists_is_an_error_rather_than_forgotten_in_one() -> None:
    text = json.dumps({**STATE, "state": "Closing", "toClose": {"a": [1], "b": [1]}}).encode()
    with pytest.raises(WireError, match="/x: partition 1 stands in toClose twice, with a and with b"):
        wire.parse_state(text, "/x")


@pytest.mark.parametrize(
    ("to_start", "to_close"),
    [
        ({"b": [0]}, {}),
        ({}, {"a": [0]}),
        ({}, {"b": [0]}),
        ({"b": [0]}, {"b": [0]}),
        ({"b": [0]}, {"a": [0]}),
    ],
)
def test_nodes_that_contradict_each_other_become_stable(
    to_start: dict[str, list[int]], to_close: dict[str, list[int]]
) -> None:
    """Partition 0 is assigned to a, and the state node says something else. It stayed Starting or Closing."""
    as_sets = [{c: frozenset(p) for c, p in lists.items()} for lists in (to_start, to_close)]
    snapshot = TopicSnapshot(
        "t",
        frozenset({0}),
        TopicAssignment("k:1", "g", {0: "a"}, 1),
        1,
        TopicState(State.CLOSING, *as_sets, epoch=1),
        1,
    )
    live = Membership({c: Consumer(c) for c in "ab"})
    statuses = {
        "a": ConsumerStatus("a", "i", {"t": TopicStatus(running=frozenset({0}))}),
        "b": ConsumerStatus("b", "i", {}),
    }
    for _ in range(3):
        step = advance(snapshot, Patience(Policy(), live, Replies(statuses)), {0: "a"}, 100.0)
        if step is None:
            break
        assert step.assignment.owners == {0: "a"}, "what consumers obey is not touched"
        snapshot = TopicSnapshot("t", snapshot.partitions, step.assignment, 1, step.state, 1)
    assert snapshot.state is not None
    assert snapshot.state.state is State.STABLE


def test_json_that_is_too_deep_is_malformed_like_any_other() -> None:
    assert read_object(DEEP.encode()) is None
    with pytest.raises(ConsulError, match="GET /v1/x: the answer is not understood"):
        read_answer(ConsulSettings(), "GET /v1/x", 200, {"X-Consul-Index": "1"}, DEEP)
    with pytest.raises(ConnectionSettingsError, match="AIRFLOW_CONN_X"):
        read_variable("x", "AIRFLOW_CONN_X", '{"extra":' + DEEP)
    with pytest.raises(click.BadParameter):
        PairType("key", "value").convert(f"a={DEEP}", None, None)


def test_a_port_that_is_none_costs_one_answer_and_not_all() -> None:
    asked = [Consumer("a", "127.0.0.1", 99_999), Consumer("b", "u@h/x?y", 80), Consumer("c", "127.0.0.1", -1)]
    for failure in poll_statuses(asked, timeout=5.0).values():
        assert isinstance(failure, StatusFailure)
        assert "correct it where the consumer registers" in failure.reason


def test_a_predecessor_at_an_impossible_address_is_silent_rather_than_the_end_of_the_waiting() -> None:
    for address, port in (("a..b", 80), ("a" * 70 + ".b", 80), ("127.0.0.1", 99_999), ("::1]", 80)):
        asked = predecessor.ask(predecessor.Predecessor("i", address, port))
        assert isinstance(asked, StatusFailure) and not asked.refused


@pytest.mark.parametrize("weight", ["1e308", "5e-324", "0.0001", "inf", "-1"])
def test_implausible_weight_ends_no_planning(weight: str) -> None:
    """Two consumers whose weights add up to infinity had every assignor fail, for all topics."""
    taken = to_consumer(Registration("x", meta={"weight": weight}))
    assert taken.weight == 1.0


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_the_greatest_and_the_least_weight_can_be_planned_with(name: str) -> None:
    consumers = {
        c: Consumer(c, weight=weight)
        for c, weight in (("a", LEAST_WEIGHT), ("b", GREATEST_WEIGHT), ("c", GREATEST_WEIGHT))
    }
    topics = [TopicSnapshot(topic, frozenset(range(7))) for topic in "tu"]
    planned = plan(topics, consumers, load_assignor(name)).owners
    assert {owner for topic in planned.values() for owner in topic.values()} <= {"a", "b", "c"}


def test_a_note_of_a_submission_with_an_impossible_number_is_no_note() -> None:
    assert Submission.from_dict({"incarnation": "i", "host": "h", "pid": float("inf")}) is None


GOOD = "clusters:\n  good: {consul_service: g, group_id: g, topics: [t], consumers: {handler: a.b}}\n"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("long_poll_timeout", "1" + "0" * 400),
        ("long_poll_timeout", ".inf"),
        ("stuck_after", f'"{"9" * 400}s"'),
        ("topics", '{patterns: ["a{99999999999999}"]}'),
        ("topics", f'{{patterns: ["{"(" * 2_000}{")" * 2_000}"]}}'),
        ("zookeeper", '"\\ud800"'),
        ("group_id", '"a\\0b"'),
        ("consumers", "{handler: a.b, spark_conf: {x: {y: z}}}"),
        ("consumers", "{handler: a.b, metadata: {zone: null}}"),
        ("consumers", "{handler: a.b, handler_options: &a {x: *a}}"),
        ("consumers", "{handler: a.b, handler_options: {x: !!binary /w==}}"),
    ],
)
def test_mistake_of_one_cluster_leaves_the_others(key: str, value: str, tmp_path: Path) -> None:
    entry = {
        "consul_service": "b",
        "group_id": "g",
        "topics": "[t]",
        "consumers": "{handler: a.b}",
        key: value,
    }
    path = tmp_path / "clusters.yaml"
    path.write_text(GOOD + "  bad: {" + ", ".join(f"{k}: {v}" for k, v in entry.items()) + "}\n")
    found = load_clusters(path)
    assert list(found.clusters) == ["good"]
    assert f"{path}:3: cluster 'bad'" in found.errors["bad"]
    assert len(found.errors["bad"]) < 1_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD + "  x: {tick: 2001-99-99}\n", "not YAML"),
        (GOOD + f"  x: {DEEP[:3_000]}\n", "not YAML"),
        (GOOD + GOOD.splitlines()[1] + "\n", "'good' stands there twice"),
    ],
)
def test_malformed_yaml_file_is_named(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text(text)
    error = load_clusters(path).general["clusters.yaml"]
    assert error.startswith(f"{path}:")
    assert said in error


def test_number_and_its_text_are_the_same_name(tmp_path: Path) -> None:
    path = tmp_path / "clusters.yaml"
    entry = GOOD.splitlines()[1].partition(": ")[2]
    path.write_text(GOOD + f"  1: {entry.replace('g,', 'h,')}\n  '1': {entry.replace('g,', 'i,')}\n")
    found = load_clusters(path)
    assert list(found.clusters) == ["good"]
    assert "stands there twice" in found.errors["1"]


def test_an_assignor_that_ends_the_process_is_refused() -> None:
    with pytest.raises(AssignorError, match=r"sys\.exit"):
        load_assignor("sys.exit")


def test_a_supposition_of_a_billion_partitions_is_refused_at_once() -> None:
    snapshot = TopicSnapshot("t", frozenset({0}))
    with pytest.raises(WhatIfError, match="topic 't'"):
        suppose(WhatIf(partitions={"t": MOST_PARTITIONS + 1}), [snapshot], Membership({}))


@pytest.mark.parametrize(
    ("who", "why"),
    [("ann", "x" * 2_000), ("y" * 2_000, "because"), ("ann", "\udcff"), ("ann", "a\nb"), ("a\x1b[0m", "b")],
)
def test_words_that_cannot_stand_beside_a_decision_are_refused(who: str, why: str) -> None:
    with pytest.raises(CommandError, match=r"reason|name"):
        Actor(who, why, 0.0)
