"""The dashboard on real ZooKeeper, Consul and Kafka: what it reads, what levers do, and that looking is harmless."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from muster.dashboard.answers import Answers
from muster.dashboard.app import create_app
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.kafka_topics import make_topic, produce
from tests.support.obedient_consumers import coordinator, owners
from tests.support.simulated_dashboard import OURS, by_header
from tests.support.site import Site, site

__all__ = ["site"]

NONE_EXPECTED = {"handler": "not.used", "count": 0}
"""The cluster's consumers are the test's own."""


class Looking:
    """A user of the real application."""

    def __init__(self, site: Site) -> None:
        self.site = site
        access = by_header({"ann": ({site.name}, {site.name})})
        self.answers = Answers()
        self.http = TestClient(create_app(self.answers, access))

    def get(self, path: str = "") -> dict[str, Any]:
        """Read again, and answer."""
        self.answers.shared.watched(self.answers.settings()[self.site.name]).expire()
        answer = self.http.get(f"/api/clusters/{self.site.name}{path}", headers={"X-User": "ann"})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def post(self, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
        answer = self.http.post(
            f"/api/clusters/{self.site.name}/{path}", json=body, headers={"X-User": "ann", **OURS}
        )
        assert answer.status_code == status, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def rebalance(self) -> None:
        """What the coordinator's next run does."""
        cluster = self.answers.settings()[self.site.name]
        assert coordinator(cluster, self.site.store, self.site.discovery).advance(20).stable


@pytest.fixture
def looking(site: Site, kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looking]:
    site.write(consumers=NONE_EXPECTED)
    monkeypatch.setenv("MUSTER_CLUSTERS", str(site.clusters))
    monkeypatch.setenv(
        "AIRFLOW_CONN_MUSTER_ZOOKEEPER",
        json.dumps({"conn_type": "generic", "host": site.zookeeper.hosts, "extra": {"operation_timeout": 5}}),
    )
    monkeypatch.setenv("AIRFLOW_CONN_MUSTER_CONSUL", f"http://{site.consul.host}:{site.consul.port}")
    monkeypatch.setenv(
        "AIRFLOW_CONN_MUSTER_KAFKA", json.dumps({"conn_type": "kafka", "extra": dict(kafka.config)})
    )
    found = Looking(site)
    yield found
    found.answers.shared.close()


def test_topics_consumers_and_lag_and_no_trace_of_having_looked(
    looking: Looking, kafka: KafkaSettings, eventually: Eventually
) -> None:
    site = looking.site
    topic = make_topic(kafka, 3)
    site.write(topics=["t", "u", topic], consumers=NONE_EXPECTED)
    site.store.create_topic(topic, kafka.bootstrap_servers, site.name)
    site.store.set_partitions(topic, frozenset(range(3)))
    looking.rebalance()
    produce(kafka, topic, 0, 10)
    produce(kafka, topic, 1, 4)
    group = GroupOffsets(kafka, site.name)
    group.commit({(topic, 0): 7})
    group.close()
    before = site.trace()
    summary = looking.get()["summary"]
    assert summary["topics"] == {"Stable": 3}
    assert summary["partition_states"] == {"R": 15}
    assert summary["consumers"]["live"] == 3
    assert all(
        s["reachable"] and (s["address"] or s["source"] == "consumers")
        for s in summary["freshness"]["sources"]
    )

    def matrix() -> dict[str, Any]:
        found = looking.get(f"/topics/{topic}")
        assert found["lag"] == [3, 4, 0]
        return found

    found = eventually(matrix)
    assert {p: found["consumers"][found["owner"][p]] for p in range(3)} == owners(site.store)[topic]
    # The other two topics are not in Kafka: that is said, and their lag is not known.
    assert any("t" in problem["what"] and "Kafka" in problem["what"] for problem in looking.get()["problems"])
    assert looking.get("/topics/t")["lag"] == []
    rows = {row["consumer"]: row for row in looking.get("/consumers")["consumers"]}
    assert rows["a"]["incarnation"] == "a-1"
    assert (rows["a"]["state"], rows["a"]["zone"], rows["a"]["host"]) == ("live", "z", "")
    assert sum(row["running"] for row in rows.values()) == 15
    looking.post("what-if", without=["a"])
    assert site.trace() == before


def test_lag_is_of_the_group_that_the_assignment_names(
    looking: Looking, kafka: KafkaSettings, eventually: Eventually
) -> None:
    site = looking.site
    changed, other = make_topic(kafka, 1), make_topic(kafka, 1)
    site.write(topics=["t", "u", changed, other], consumers=NONE_EXPECTED, group_id=f"new-{site.name}")
    for topic, group_id in ((changed, f"old-{site.name}"), (other, f"new-{site.name}")):
        site.store.create_topic(topic, kafka.bootstrap_servers, group_id)
        site.store.set_partitions(topic, frozenset({0}))
        produce(kafka, topic, 0, 10)
        group = GroupOffsets(kafka, group_id)
        group.commit({(topic, 0): 7 if topic == changed else 9})
        group.close()
    looking.rebalance()

    def lags() -> bool:
        found = [looking.get(f"/topics/{topic}") for topic in (changed, other)]
        return [(each["lag"], each["committed"]) for each in found] == [([3], [7]), ([1], [9])]

    eventually(lags)


def test_levers_are_obeyed_and_show(looking: Looking) -> None:
    shown = looking.post("what-if", without=["b"])
    assert {move["source"] for move in shown["moves"]} == {"b"}
    looking.post("levers/isolate", consumer="b", reason="it is slow")
    refused = looking.post("levers/isolate", 409, consumer="b", reason="again")
    assert "isolated already by ann: it is slow" in refused["detail"]
    looking.rebalance()
    found = looking.get()
    assert found["isolated"][0]["said"]["why"] == "it is slow"
    assert found["summary"]["consumers"] == {
        "live": 2,
        "starting": 0,
        "isolated": 1,
        "missing": 0,
        "not_passing": 0,
        "unknown": 0,
    }
    expected = {
        (move["topic"], p): move["target"]
        for move in shown["moves"]
        for first, last in move["partitions"]
        for p in range(first, last + 1)
    }
    standing = owners(looking.site.store)
    assert {(topic, p): standing[topic][p] for topic, p in expected} == expected
    looking.post("levers/restore", consumer="b", reason="it is well")
    looking.rebalance()
    looking.post("levers/drain", consumer="b", reason="new kernel")
    looking.rebalance()
    assert all("b" not in found.values() for found in owners(looking.site.store).values())
    row = looking.get("/consumers/b")["row"]
    assert (row["state"], row["partitions"], row["said"]) == ("live", 0, None)
    assert row["commands"] == ["isolate", "undrain", "exclude"]
    [override] = row["overrides"]
    assert (override["command"], override["said"]["why"]) == ("drain", "new kernel")
    assert looking.get()["overrides"] == [override]
    assert not [p for p in looking.get()["problems"] if p["consumer"] == "b"], "nothing is suspected of it"
    looking.post("levers/undrain", consumer="b", reason="it is back")
    looking.rebalance()
    to = min({"a", "b", "c"} - {owners(looking.site.store)["t"][0]})
    looking.post("levers/pin", topic="t", partitions="0", consumer=to, reason="its cache is there")
    looking.rebalance()
    assert owners(looking.site.store)["t"][0] == to
    found = looking.get()
    assert found["summary"]["pinned"] == 1
    for pin in found["pins"]:
        partitions = ",".join(f"{first}-{last}" for first, last in pin["partitions"])
        looking.post("levers/unpin", topic=pin["topic"], partitions=partitions, reason="done")
    assert looking.get()["pins"] == []
    looking.post("levers/exclude", consumer="a", topic="u", reason="not its data")
    assert looking.get("/topics/u")["exclusions"][0]["consumer"] == "a"
    looking.post("levers/include", consumer="a", topic="u", reason="it may")
    refused = looking.post("levers/pin", 409, topic="t", partitions="70", consumer="a", reason="r")
    assert "has no partition(s) 70" in refused["detail"]


def test_coordination_is_paused_resumed_and_planned_by_another_assignor(looking: Looking) -> None:
    def levers() -> dict[str, bool]:
        return {lever["lever"]: lever["available"] for lever in looking.get()["levers"]}

    assert {name for name, available in levers().items() if not available} == {"resume"}
    looking.post("levers/pause", reason="the brokers are moved")
    found = looking.get()
    assert found["summary"]["paused"]["why"] == "the brokers are moved"
    assert found["summary"]["paused"]["by"] == "ann"
    assert {name for name, available in levers().items() if not available} == {"pause", "rebalance"}
    assert "paused" in looking.post("levers/rebalance", 409, reason="now")["detail"]
    looking.post("levers/resume", reason="they are moved")
    assert looking.get()["summary"]["paused"] is None
    looking.post("levers/rebalance", reason="now")
    # A change of assignor that was previewed is brought about, shown, and taken back.
    supposed = {"assignor": {"name": "range"}}
    shown = looking.post("what-if", **supposed)
    assert shown["as_assignor"] == {"possible": True, "why_not": ""}
    looking.post(
        "levers/apply", what_if=supposed, plan=shown["plan"], way="assignor", reason="easier to tell"
    )
    found = looking.get()
    assert (found["summary"]["assignor"], found["assignor"]["from_settings"]) == ("range", False)
    assert (found["assignor"]["said"]["by"], found["assignor"]["configured"]) == ("ann", "sticky")
    # From now on that is what plans are made with.
    assert looking.post("what-if")["plan"] == shown["plan"]
    looking.post("levers/assignor", assignor=None, reason="back")
    assert looking.get()["assignor"]["from_settings"] is True
    refused = looking.post(
        "levers/assignor", 409, assignor={"name": "sticky", "options": {"x": 1}}, reason="r"
    )
    assert "sticky" in refused["detail"]


def test_the_timeline_tells_of_rebalances(looking: Looking) -> None:
    looking.post("levers/isolate", consumer="b", reason="it is slow")
    looking.rebalance()
    found = looking.get("/timeline?topic=t")
    steps = [(entry["before"], entry["after"]) for entry in found["entries"] if entry["kind"] == "transition"]
    assert steps[-1][0] == "Initial"
    assert steps[0][1] == "Stable"
    assert any(move["source"] == "b" for entry in found["entries"] for move in entry["moves"])
    of_b = looking.get("/timeline?consumer=b")["entries"]
    assert {entry["kind"] for entry in of_b} >= {"transition"}
    last = looking.get()["summary"]["last_rebalance"]
    assert last["moved"] > 0
    assert last["lasted"] >= 0
    assert "consumer b is isolated" in last["reason"] or "b" in last["reason"]


def test_the_timeline_tells_who_pulled_which_lever(looking: Looking) -> None:
    looking.post("levers/isolate", consumer="b", reason="it is slow")
    looking.post("levers/pin", topic="t", partitions="0-1", consumer="a", reason="its cache is there")
    pin, isolate = looking.get("/timeline")["entries"][:2]
    told = [(e["kind"], e["lever"], e["who"], e["reason"], e["by"]) for e in (pin, isolate)]
    assert told == [
        ("lever", "pin", "ann", "its cache is there", "dashboard"),
        ("lever", "isolate", "ann", "it is slow", "dashboard"),
    ]
    assert pin["topic"] == "t"
    assert isolate["details"]["consumer"] == "b"
    assert looking.get("/timeline?consumer=b")["entries"][0]["id"] == isolate["id"]


def test_malformed_node_and_unreachable_server_are_reported(
    looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = looking.site
    site.raw.set(f"/consumers/{site.name}/assignments/t", b"rubbish")
    found = looking.get()
    assert found["summary"]["topics"] == {"Stable": 1, "Unreadable": 1}
    assert "is not an assignment" in found["problems"][0]["what"]
    # The connection is corrected to another place, where nothing is: settings are read again after a failure.
    watched = looking.answers.shared.watched(looking.answers.settings()[site.name])
    watched.sources.close()
    monkeypatch.setenv(
        "AIRFLOW_CONN_MUSTER_ZOOKEEPER",
        json.dumps({"conn_type": "generic", "host": "127.0.0.1:9", "extra": {"operation_timeout": 0.5}}),
    )
    found = looking.get()
    sources = {source["source"]: source for source in found["summary"]["freshness"]["sources"]}
    assert not sources["zookeeper"]["reachable"]
    assert sources["zookeeper"]["address"] == "127.0.0.1:9"
    assert sources["zookeeper"]["last_read_at"] < found["summary"]["freshness"]["read_at"]
    assert found["summary"]["topics"] == {"Stable": 1, "Unreadable": 1}, "what was read last"
    assert (
        "no connection within"
        in looking.post("levers/pin", 503, topic="u", partitions="0", consumer="a", reason="r")["detail"]
    )
    # Isolating needs Consul only.
    looking.post("levers/isolate", consumer="a", reason="ZooKeeper is away")
