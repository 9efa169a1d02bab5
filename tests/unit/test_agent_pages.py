"""The agent's two HTTP faces: the local API for the connector, and the status page for everybody."""

from __future__ import annotations

import json
import time

import pytest
from fastapi.testclient import TestClient

from muster.consumer.agent import Agent
from muster.consumer.local_api import make_local_api
from muster.consumer.source.batch_size import Bounds
from muster.consumer.source.protocol import NEXT_PATH
from muster.consumer.state.restores import Restores
from muster.consumer.status_page import make_status_page
from muster.core.model import Restore, ShardState, TopicAssignment
from muster.core.wire import parse_status
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.support.claiming import ClaimingAgent
from tests.support.consumer_settings import consumer_settings
from tests.support.told_states import ToldStates

SECRET = "do-not-show"  # noqa: S105
KAFKA = KafkaSettings(config={"bootstrap.servers": "k:9092", "sasl.password": SECRET})


@pytest.fixture
def agent() -> Agent:
    made = ClaimingAgent("me")
    made.assigned("t", TopicAssignment("k1:9092", "g", {0: "me", 1: "me", 2: "other"}, epoch=4), zxid=1)
    return made


@pytest.fixture
def local(agent: Agent) -> TestClient:
    return TestClient(make_local_api(agent, KAFKA, Bounds(1000)))


def page(agent: Agent, trouble: list[str] | None = None) -> TestClient:
    settings = consumer_settings(
        zookeeper=ZooKeeperSettings(hosts="z:2181", password=SECRET),
        consul=ConsulSettings(token=SECRET),
        kafka=KAFKA,
        handler_options={"password": SECRET},
    )
    return TestClient(make_status_page(agent, settings, lambda: trouble or []))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def batch(agent: Agent, offsets: dict[int, tuple[int, int]], ends: dict[int, int]) -> None:
    """Plan a batch of the topic, and process it."""
    token = agent.query_started()
    asked = agent.offer(token).asked
    agent.planned(token, asked, {}, {"t": offsets}, {("t", p): end for p, end in ends.items()}, ())
    agent.batch_done(agent.batch_started(), None)


def test_request_without_the_token_of_the_running_query_is_refused(agent: Agent, local: TestClient) -> None:
    assert local.post(NEXT_PATH, json={}).status_code == 401
    old = agent.query_started()
    agent.query_ended(failed=True)
    agent.query_started()
    for token in ("", "wrong", old):
        assert local.post(NEXT_PATH, headers=bearer(token), json={}).status_code == 401


def test_a_batch_from_offer_to_commit(agent: Agent) -> None:
    batch(agent, {0: (3, 8), 1: (0, 0)}, {0: 10, 1: 0})
    (due,) = (agent.due(place) for place in agent.wait_for_place([], 0))
    assert {key: one.offset for key, one in due.items()} == {("t", 0): 8, ("t", 1): 0}
    agent.committed(due)

    status = page(agent).get("/status").json()
    assert status["topics"]["t"]["running"] == [0, 1]
    assert status["topics"]["t"]["offsets"]["0"] == {
        "position": 8,
        "committed": 8,
        "end": 10,
        "lag": 2,
        "rate": None,
    }
    assert status["records"] == 5


def test_a_status_is_about_the_topics_that_are_asked_about(agent: Agent) -> None:
    agent.assigned("u", TopicAssignment("k1:9092", "g", epoch=4), 9)
    answers = page(agent)
    assert set(answers.get("/status").json()["topics"]) == {"t", "u"}
    assert set(answers.get("/status", params={"topic": ["u", "new"]}).json()["topics"]) == {"u"}
    assert set(answers.get("/status", params={"topic": ["t", "u"]}).json()["topics"]) == {"t", "u"}


def test_the_rate_at_which_records_arrive_is_shown_once_it_is_known(agent: Agent) -> None:
    for partition, end in ((0, 0), (1, 5)):
        agent.measures.all["t", partition].seen(end, time.monotonic() - 20)
    batch(agent, {0: (0, 0), 1: (5, 5)}, {0: 200, 1: 5})
    client = page(agent)
    loads = parse_status(client.get("/status").content, "here").on("t").loads
    assert loads[0].rate == pytest.approx(10.0, rel=0.05)
    assert loads[0].lag == 200
    assert (loads[1].rate, loads[1].lag) == (0.0, 0)
    name = 'muster_consumer_arrival_rate{cluster_name="c",consumer_id="me",partition="1",topic="t"} 0.0'
    assert name in client.get("/metrics").text


def test_the_status_page_follows_the_protocol_and_shows_no_secret(agent: Agent) -> None:
    agent.problems.note("zookeeper", "out of reach")
    client = page(agent)
    answer = client.get("/status")
    status = parse_status(answer.content, "here")
    assert (status.consumer, status.incarnation, status.epochs) == ("me", "i", True)
    assert status.on("t").starting == {0, 1}
    assert status.has_seen("t", 4)
    assert not status.has_seen("t", 5)
    assert json.loads(answer.content)["errors"] == ["zookeeper: out of reach"]
    for path in ("/status", "/health", "/metrics", "/docs", "/openapi.json"):
        assert SECRET not in client.get(path).text


def test_state_of_partitions_is_shown_as_it_is_read() -> None:
    shards = {
        ("t", 0): ShardState(12, 40_960, 320, 9, late=3, executor="3 on host-b"),
        ("t", 1): ShardState(restore=Restore(500, 2_000, 120.5, 0.2)),
        ("t", 2): ShardState(differs="the group has none"),
        ("u", 0): ShardState(1, 1, 1, 1),
    }
    agent = ClaimingAgent("me", states=ToldStates(shards=shards))
    agent.assigned("t", TopicAssignment("k1:9092", "g", dict.fromkeys(range(4), "me"), epoch=4), zxid=1)
    client = page(agent)
    read = parse_status(client.get("/status").content, "here").topics["t"].shards
    assert read == {p: shard for (topic, p), shard in shards.items() if topic == "t"}
    scraped = client.get("/metrics").text
    of = '{cluster_name="c",consumer_id="me",partition="%d",topic="t"}'
    for name, partition, value in (
        ("state_keys", 0, 12.0),
        ("state_bytes", 0, 40_960.0),
        ("state_offset", 0, 320.0),
        ("late_rows_total", 0, 3.0),
        ("restore_ratio", 1, 0.25),
        ("restore_rate", 1, 120.5),
        ("restore_still_seconds", 1, 0.2),
        ("state_differs", 0, 0.0),
        ("state_differs", 2, 1.0),
    ):
        assert f"muster_consumer_{name}{of % partition} {value}" in scraped
    assert f"muster_consumer_state_differs{of % 3}" not in scraped


def test_waiting_shards_stand_no_longer_than_restores() -> None:
    """Progress is a restore that comes further than it ever was for its claim."""
    now = [100.0]
    restores = Restores(lambda: now[0])
    for partition in range(2):
        restores.wait_turn(("t", partition), 7)

    def still() -> list[float | None]:
        shards = restores.status()
        return [shard.restore.still if shard.restore else None for _, shard in sorted(shards.items())]

    now[0] = 130.0
    assert still() == [30.0, 30.0]
    restores.came(("t", 0), 7, 0, 500)
    restores.came(("t", 0), 7, 100, 500)
    now[0] = 140.0
    assert still() == [10.0, 10.0]
    assert (
        str(restores.status()["t", 0].restore)
        == "20 % of 500 offsets of its changelog, 10 a second, 40 s left"
    )
    assert "waits for its turn" in str(restores.status()["t", 1].restore)
    restores.wait_turn(("t", 0), 7)
    restores.came(("t", 0), 7, 0, 500)
    restores.came(("t", 0), 7, 100, 500)
    assert still() == [10.0, 10.0], "it has failed, and comes no further than before"
    restores.came(("t", 0), 7, 101, 500)
    assert still() == [0.0, 0.0]
    restores.ended(("t", 0), 7, "the group has none")
    assert restores.status()["t", 0] == ShardState(differs="the group has none")
    restores.keep({("t", 0): 8, ("t", 1): 7})
    assert restores.status().keys() == {("t", 1)}


def test_a_standby_says_what_it_stands_by_for_and_reads_nothing_of_it(agent: Agent) -> None:
    token = agent.query_started()
    standbys = {0: ("other",), 2: ("other-2", "me"), 3: ("me",)}
    owners = {0: "me", 1: "me", 2: "other", 3: "other"}
    agent.assigned("t", TopicAssignment("k1:9092", "g", owners, epoch=5, standbys=standbys), zxid=2)
    answer = page(agent).get("/status")
    topic = answer.json()["topics"]["t"]
    assert (topic["starting"], topic["standby"], topic["epoch"]) == ([0, 1], [2, 3], 5)
    assert parse_status(answer.content, "here").on("t").standby == {2, 3}
    assert agent.offer(token).topics["t"].partitions == {0, 1}
    agent.blocks.block("isolated")
    assert page(agent).get("/status").json()["topics"]["t"]["standby"] == []
    agent.blocks.unblock("isolated")
    agent.assigned("t", TopicAssignment("k1:9092", "g", owners, epoch=5), zxid=3)
    assert page(agent).get("/status").json()["topics"]["t"]["standby"] == []


def test_paused_partition_is_counted_and_listed_until_it_is_resumed(agent: Agent) -> None:
    name = 'muster_consumer_paused_partitions{cluster_name="c",consumer_id="me",topic="t"}'
    batch(agent, {0: (0, 5), 1: (0, 5)}, {0: 9, 1: 9})
    (due,) = (agent.due(place) for place in agent.wait_for_place([], 0))
    agent.committed(due)
    for zxid, (paused, count) in enumerate(((frozenset({1}), 1), (frozenset[int](), 0)), 2):
        node = TopicAssignment("k1:9092", "g", {0: "me", 1: "me", 2: "other"}, epoch=4, paused=paused)
        agent.assigned("t", node, zxid)
        batch(agent, {0: (5, 5)}, {0: 9, 1: 9})
        client = page(agent)
        assert client.get("/status").json()["topics"]["t"]["paused"] == sorted(paused)
        assert f"{name} {count}.0" in client.get("/metrics").text


def test_health_says_what_is_wrong(agent: Agent) -> None:
    assert page(agent).get("/health").status_code == 200
    answer = page(agent, ["loop 'query' has ended"]).get("/health")
    assert (answer.status_code, answer.text) == (503, "loop 'query' has ended")


def test_health_fails_for_another_incarnation(agent: Agent) -> None:
    assert page(agent).get("/health?incarnation=i").status_code == 200
    answer = page(agent).get("/health?incarnation=j")
    assert (answer.status_code, answer.text) == (
        503,
        "here is consumer me of cluster c, incarnation i, not j",
    )


def test_a_barred_consumer_says_why(agent: Agent) -> None:
    agent.blocks.block("isolated")
    assert page(agent).get("/status").json()["state"] == "isolated"
    assert agent.wait_closed(0)
