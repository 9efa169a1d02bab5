"""The wire format: what is fixed by the protocol, byte for byte, and clear errors for what is not it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from muster.core import wire
from muster.core.model import FailingRecord, PartitionLoad, Return, State, TopicAssignment, TopicState


def test_paths() -> None:
    assert wire.assignment_path("c", "flights") == "/consumers/c/assignments/flights"
    assert wire.partition_path("c", "flights", 45) == "/consumers/c/assignments/flights/45"
    assert wire.state_path("c", "flights") == "/consumers/c/state/flights"


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", "../x", "x" * 250, "\x00"])
def test_names_that_would_leave_their_folder_are_refused(name: str) -> None:
    with pytest.raises(wire.WireError, match="topic name"):
        wire.assignment_path("c", name)
    with pytest.raises(wire.WireError, match="cluster name"):
        wire.assignment_path(name, "t")


def test_assignment_as_the_protocol_says() -> None:
    text = json.loads(wire.format_assignment(TopicAssignment("h:9092", "g", {45: "consumer-id"}, 2)))
    assert text == {
        "protocol": wire.PROTOCOL,
        "bootstrap.servers": "h:9092",
        "group.id": "g",
        "assignments": {"45": "consumer-id"},
        "epoch": 2,
    }


def test_standbys_stand_beside_the_owners_in_the_order_of_their_promotion() -> None:
    assignment = TopicAssignment(
        "h:9092", "g", {45: "id-1", 3: "id-2"}, 2, standbys={45: ("id-3", "id-2"), 3: ("id-1",)}
    )
    node = wire.format_assignment(assignment)
    assert json.loads(node)["standbys"] == {"3": ["id-1"], "45": ["id-3", "id-2"]}
    assert wire.parse_assignment(node, "/p") == assignment


def test_a_node_without_standbys_has_no_such_key() -> None:
    assert b"standbys" not in wire.format_assignment(TopicAssignment("h:1", "g", {0: "a"}, standbys={}))
    empty = b'{"bootstrap.servers":"h:1","group.id":"g","assignments":{"0":"a"},"standbys":{"0":[]}}'
    assert wire.parse_assignment(empty, "/p") == TopicAssignment("h:1", "g", {0: "a"})


def test_a_standby_named_twice_counts_once() -> None:
    node = b'{"bootstrap.servers":"h:1","group.id":"g","assignments":{},"standbys":{"0":["b","c","b"]}}'
    found = wire.parse_assignment(node, "/p")
    assert found is not None
    assert found.standbys == {0: ("b", "c")}


@pytest.mark.parametrize(
    "standbys", ['["a"]', '{"x":["a"]}', '{"0":"a"}', '{"0":["a/b"]}', '{"0":[3]}', "null"]
)
def test_standbys_that_are_none_are_named(standbys: str) -> None:
    node = f'{{"bootstrap.servers":"h:1","group.id":"g","assignments":{{}},"standbys":{standbys}}}'
    with pytest.raises(wire.WireError, match="/p is not an assignment: standbys"):
        wire.parse_assignment(node.encode(), "/p")


def test_status_with_and_without_standby() -> None:
    lists = '"running":[0],"starting":[],"closing":[]'
    for more, found in (("", set()), (',"standby":[4,2]', {2, 4})):
        text = f'{{"consumer":"a","incarnation":"1","topics":{{"t":{{{lists}{more}}}}}}}'
        status = wire.parse_status(text.encode(), "u").on("t")
        assert status.standby == found
        assert status.held == {0}, "what it stands by for it does not hold"


def test_topic_id_is_written_beside_the_owners_and_left_out_where_unknown() -> None:
    assignment = TopicAssignment("h:1", "g", {0: "a"}, 1, topic_id="qpJaokkrTr2QutpwMVdO-_")
    node = wire.format_assignment(assignment)
    assert json.loads(node)["topic.id"] == "qpJaokkrTr2QutpwMVdO-_"
    assert wire.parse_assignment(node, "/p") == assignment
    assert b"topic" not in wire.format_assignment(replace(assignment, topic_id=""))


@pytest.mark.parametrize("topic_id", ["3", '"a/b"', '"a b"', "null", '"' + "x" * 65 + '"'])
def test_topic_id_that_is_none_is_named(topic_id: str) -> None:
    node = f'{{"bootstrap.servers":"h:1","group.id":"g","assignments":{{}},"topic.id":{topic_id}}}'
    with pytest.raises(wire.WireError, match=r"/p is not an assignment: topic\.id"):
        wire.parse_assignment(node.encode(), "/p")


def test_lost_records_of_a_parked_partition_are_read_leniently() -> None:
    failing = '{"0":{"offset":30,"lost":40,"parked":true},"1":{"offset":30,"lost":-1,"timer":true}}'
    topic = f'{{"running":[0],"starting":[],"closing":[],"failing":{failing}}}'
    answer = wire.parse_status(f'{{"consumer":"a","incarnation":"1","topics":{{"t":{topic}}}}}'.encode(), "u")
    assert answer.on("t").failing == {
        0: FailingRecord(30, parked=True, lost=40),
        1: FailingRecord(30, timer=True),
    }


def test_seconds_of_a_batch_are_read_leniently() -> None:
    offsets = '{"0":{"batch":400.5},"1":{"batch":[1]},"2":{"lag":7}}'
    topic = f'{{"running":[0],"starting":[],"closing":[],"offsets":{offsets}}}'
    answer = wire.parse_status(f'{{"consumer":"a","incarnation":"1","topics":{{"t":{topic}}}}}'.encode(), "u")
    assert answer.on("t").batch_seconds == {0: 400.5}


def test_state_as_the_protocol_says() -> None:
    state = TopicState(
        State.CLOSING,
        {"consumer-id": frozenset({3, 1})},
        {"other-id": frozenset({1, 3})},
        4,
        since=1.5,
        reason="why",
        missing={"x": 2.0},
        returned={"a": Return(3.0, 1.5)},
    )
    text = json.loads(wire.format_state(state))
    assert {key: text[key] for key in ("state", "toStart", "toClose")} == {
        "state": "Closing",
        "toStart": {"consumer-id": [1, 3]},
        "toClose": {"other-id": [1, 3]},
    }
    assert text["since"] == "1970-01-01T00:00:01.500+00:00"
    assert wire.parse_state(wire.format_state(state), "/p") == state


def test_only_the_fixed_keys_are_needed_and_unknown_ones_are_ignored() -> None:
    node = b'{"bootstrap.servers":"h:1","group.id":"g","assignments":{"0":"a"},"color":"red"}'
    assert wire.parse_assignment(node, "/p") == TopicAssignment("h:1", "g", {0: "a"})
    state = wire.parse_state(b'{"state":"Stable","toStart":{},"toClose":{},"mood":1}', "/p")
    assert state == TopicState(State.STABLE)
    answer = wire.parse_status(
        b'{"consumer":"a","incarnation":"1","topics":{"t":{"running":[0],"starting":[],"closing":[2]}}}', "u"
    )
    assert answer.on("t").held == {0, 2}
    assert answer.has_seen("t", 99)


def measured(offsets: str) -> Mapping[int, PartitionLoad]:
    topic = f'{{"running":[0,1],"starting":[],"closing":[],"offsets":{offsets}}}'
    answer = wire.parse_status(f'{{"consumer":"a","incarnation":"1","topics":{{"t":{topic}}}}}'.encode(), "u")
    assert answer.on("t").held == {0, 1}
    return answer.on("t").loads


def test_loads_stand_beside_the_three_lists() -> None:
    loads = measured('{"0":{"lag":2,"rate":1.5,"position":8},"1":{"lag":0,"rate":null}}')
    assert loads == {0: PartitionLoad(2.0, 1.5), 1: PartitionLoad(0.0, None)}


@pytest.mark.parametrize(
    "offsets",
    [
        "null",
        "[]",
        "7",
        '{"0":7}',
        '{"x":{"lag":1}}',
        '{"01":{"lag":1}}',
        '{"0":{"lag":"1"}}',
        '{"0":{"lag":-1,"rate":true}}',
        '{"0":{"rate":NaN,"lag":Infinity}}',
        '{"0":{"lag":1' + "0" * 400 + "}}",
        '{"0":{"lag":null,"rate":null}}',
    ],
)
def test_malformed_measurement_is_unknown_and_spoils_no_status(offsets: str) -> None:
    assert measured(offsets) == {}


def test_node_without_data_is_no_assignment() -> None:
    assert wire.parse_assignment(b"", "/p") is None


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b"\xff\xfe", "whole text"),
        (b"[]", "whole text"),
        (b"null", "whole text"),
        (b'{"group.id":"g","assignments":{}}', "bootstrap.servers"),
        (b'{"bootstrap.servers":"h","group.id":5,"assignments":{}}', "group.id"),
        (b'{"bootstrap.servers":"h","group.id":"g","assignments":[]}', "assignments"),
        (b'{"bootstrap.servers":"h","group.id":"g","assignments":{"-1":"a"}}', "assignments"),
        (b'{"bootstrap.servers":"h","group.id":"g","assignments":{"01":"a"}}', "assignments"),
        (b'{"bootstrap.servers":"h","group.id":"g","assignments":{"99999999999":"a"}}', "assignments"),
        (b'{"bootstrap.servers":"h","group.id":"g","assignments":{"0":"../x"}}', "assignments"),
        (b'{"bootstrap.servers":"h","group.id":"g","assignments":{"0":7}}', "assignments"),
    ],
)
def test_malformed_assignment_names_node_and_key(data: bytes, key: str) -> None:
    with pytest.raises(wire.WireError, match=f"/consumers/c/assignments/t is not an assignment: .*{key}"):
        wire.parse_assignment(data, "/consumers/c/assignments/t")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"state":"Sleeping","toStart":{},"toClose":{}}',
        b'{"state":"Initial","toStart":{},"toClose":{}}',
        b'{"state":"Stable","toStart":{"a":["1"]},"toClose":{}}',
        b'{"state":"Stable","toStart":{"a":[true]},"toClose":{}}',
        b'{"state":"Stable","toStart":{"a":[-1]},"toClose":{}}',
        b'{"state":"Stable","toStart":{"a":[1.5]},"toClose":{}}',
    ],
)
def test_malformed_state_names_the_node(data: bytes) -> None:
    with pytest.raises(wire.WireError, match="/consumers/c/state/t"):
        wire.parse_state(data, "/consumers/c/state/t")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>",
        b"{}",
        b'{"consumer":"a","incarnation":"","topics":{}}',
        b'{"consumer":"a","incarnation":"1"}',
    ],
)
def test_malformed_status_names_the_source(data: bytes) -> None:
    with pytest.raises(wire.WireError, match=r"http://h:1/status"):
        wire.parse_status(data, "http://h:1/status")
