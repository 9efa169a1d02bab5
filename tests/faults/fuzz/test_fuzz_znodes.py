"""Whatever stands in ZooKeeper: each topic is taken as it says, or left alone with an error that names its node.

The coordinator is the real one, with its real store, over nodes in memory; beside the rotten topics stand good ones.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muster.consumer.agent import Agent
from muster.consumer.assignment_watch import AssignmentWatch
from muster.core import wire
from muster.core.model import TopicAssignment, TopicSnapshot
from muster.core.wire import WireError, check_id
from tests.faults.fuzz.cluster import CLUSTER, Cluster
from tests.faults.fuzz.error_text import explains
from tests.faults.fuzz.malformed import mangled, odd_texts
from tests.faults.fuzz.tally import count, examples
from tests.faults.fuzz.znodes import ASSIGNMENT, STATE
from tests.support.memory_zookeeper import SETTINGS, MemoryClient, MemoryZooKeeper

ROOT, STATES = wire.assignments_path(CLUSTER), wire.states_path(CLUSTER)
RACKS = f"/consumers/{CLUSTER}/racks"

RACK = {"racks": {"r1": [0], "r2": [1]}}

nodes = st.tuples(
    mangled(ASSIGNMENT) | st.just(json.dumps(ASSIGNMENT).encode()),
    mangled(STATE) | st.none(),
    mangled(RACK) | st.none(),
)
names = odd_texts.filter(
    lambda name: 0 < len(name) <= 300 and "/" not in name and name not in {".", ".."} and "\x00" not in name
)


@examples(200)
@given(st.lists(nodes, min_size=3, max_size=8))
def test_rotten_topics_are_left_alone_and_the_others_go_on(
    rotten: list[tuple[bytes, bytes | None, bytes | None]],
) -> None:
    topics = {"good-1": 3, "good-2": 2} | {f"rotten-{number}": 2 for number in range(len(rotten))}
    cluster = Cluster(topics, good=("good-1", "good-2"))
    zookeeper = cluster.zookeeper
    for number, (assignment, state, racks) in enumerate(rotten):
        topic = f"rotten-{number}"
        zookeeper.put(f"{ROOT}/{topic}", assignment)
        zookeeper.put(f"{ROOT}/{topic}/0")
        if state is not None:
            zookeeper.put(f"{STATES}/{topic}", state)
            count("znode, coordinator")
        if racks is not None:
            zookeeper.put(f"{RACKS}/{topic}", racks)
            count("racks node")
        count("znode, coordinator")
    before = zookeeper.data()
    read = cluster.store.snapshots()
    refused = {topic: found for topic, found in read.items() if isinstance(found, WireError)}
    elsewhere = {
        topic
        for topic, found in read.items()
        if isinstance(found, TopicSnapshot) and found.assignment is not None and not at_home(found.assignment)
    }
    cluster.good = tuple(topic for topic in topics if topic not in refused and topic not in elsewhere)
    for found in read.values():
        if isinstance(found, TopicSnapshot):
            means_what_it_says(found)
    cluster.settles()
    for topic, error in refused.items():
        explains(str(error), f"/{topic}")
        explains(cluster.errors[topic], f"/{topic}")
        for path in (f"{ROOT}/{topic}", f"{ROOT}/{topic}/0", f"{STATES}/{topic}"):
            assert zookeeper.data().get(path) == before.get(path), f"{path} was written over"
    for topic in elsewhere:
        explains(cluster.errors[topic], f"topic {topic} is read at")


def at_home(assignment: TopicAssignment) -> bool:
    """Whether it is read where the settings say."""
    return (assignment.bootstrap_servers, assignment.group_id) == ("k:9092", "g")


def means_what_it_says(found: TopicSnapshot) -> None:
    """What was understood is written as it was understood."""
    if found.assignment is not None:
        assert wire.parse_assignment(wire.format_assignment(found.assignment), "x") == found.assignment
    if found.state is not None:
        assert wire.parse_state(wire.format_state(found.state), "x").to_close == found.state.to_close


@examples(150)
@given(
    st.lists(names, min_size=1, max_size=3, unique=True), st.lists(names, min_size=1, max_size=3, unique=True)
)
def test_topics_and_partitions_with_impossible_names(children: list[str], topics: list[str]) -> None:
    cluster = Cluster({"good": 3, "t": 2}, good=("good",))
    cluster.zookeeper.put(f"{ROOT}/t", json.dumps(ASSIGNMENT).encode())
    for child in children:
        cluster.zookeeper.put(f"{ROOT}/t/{child}", b"something")
        count("partition child")
    for topic in topics:
        cluster.zookeeper.put(f"{ROOT}/{topic}", b"")
        count("partition child")
    before = cluster.zookeeper.data()
    read = cluster.store.snapshots()
    cluster.settles()
    after = cluster.zookeeper.data()
    for topic in {*topics, "t"}:
        if isinstance(found := read[topic], WireError):
            explains(str(found), f"{ROOT}/{topic}")
            assert topic in cluster.errors
            assert below(f"{ROOT}/{topic}", before) == below(f"{ROOT}/{topic}", after)
    if isinstance(read["t"], TopicSnapshot):
        assert {f"{p}" for p in read["t"].partitions} == set(children)


def below(path: str, nodes: dict[str, bytes]) -> dict[str, bytes]:
    """The node and its children."""
    return {p: data for p, data in nodes.items() if p == path or p.startswith(f"{path}/")}


@examples(1000)
@given(st.lists(st.tuples(mangled(ASSIGNMENT), mangled(ASSIGNMENT)), min_size=1, max_size=2))
def test_a_consumer_keeps_what_it_has_of_a_rotten_topic(rotten: list[tuple[bytes, bytes]]) -> None:
    zookeeper = MemoryZooKeeper()
    client = MemoryClient(zookeeper)
    good: dict[str, Any] = {**ASSIGNMENT, "assignments": {"0": "a", "1": "a"}}
    for topic in ("good", *(f"rotten-{number}" for number in range(len(rotten)))):
        zookeeper.put(f"{ROOT}/{topic}", json.dumps(good).encode())
    agent = Agent("a")
    watch = AssignmentWatch(SETTINGS, CLUSTER, agent, 5.0)
    watch.look(client, full=True)
    for turn in range(2):
        before = agent.view()
        known = dict(agent._ownership.topics)
        for number, texts in enumerate(rotten):
            zookeeper.put(f"{ROOT}/rotten-{number}", texts[turn])
            count("znode, consumer")
        watch.look(client, full=True)
        view = agent.view()
        assert view.topics["good"] == before.topics["good"]
        for number, texts in enumerate(rotten):
            topic = f"rotten-{number}"
            try:
                taken = wire.parse_assignment(texts[turn], f"{ROOT}/{topic}")
            except WireError:
                explains(view.problems[f"topic {topic}"], f"{ROOT}/{topic}", "keeps what it has")
                assert view.topics[topic] == before.topics[topic]
                continue
            assert f"topic {topic}" not in view.problems
            if taken is not None:
                assigned = agent._ownership.topics[topic].assigned
                if taken.epoch >= known[topic].least:
                    assert assigned == {p for p, owner in taken.owners.items() if owner == "a"}
                else:  # of an epoch that was obeyed, or of a lower one
                    assert assigned == known[topic].assigned
                assert all(check_id(owner) for owner in taken.owners.values())
