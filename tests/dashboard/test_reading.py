"""What the dashboard tells of a cluster: topics, partitions, consumers, lag, and what is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.core.model import Consumer, FailingRecord
from muster.core.offsets import TopicOffsets
from muster.core.overrides import Exclusion, Overrides, Pin, RebalanceRequest
from tests.support.runs import Topics, run, settle
from tests.support.simulated import Node, SimulatedCluster
from tests.support.simulated_dashboard import Dashboard

KAFKA = Topics(t=7, u=5)


@pytest.fixture
def dashboard() -> Dashboard:
    world = SimulatedCluster()
    world.join("a", "b", "c-1")
    settle(world, KAFKA, "sticky")
    return Dashboard(world)


def test_a_cluster_at_a_glance(dashboard: Dashboard) -> None:
    found = dashboard.get("")
    assert found["user"] == "admin"
    (seen,) = found["clusters"]
    assert (seen["name"], seen["health"], seen["state"], seen["problem_count"]) == ("c", "ok", "Stable", 0)
    assert seen["coordinator_dag"] == "muster_coordinator__c"
    assert (seen["topics"], seen["partitions"], seen["partition_states"]) == ({"Stable": 2}, 12, {"R": 12})
    assert seen["consumers"] == {
        "live": 3,
        "starting": 0,
        "isolated": 0,
        "missing": 0,
        "not_passing": 0,
        "unknown": 0,
    }
    assert seen["since"] == seen["last_rebalance"]["at"] > 0
    assert seen["last_rebalance"]["reason"]
    assert seen["may_edit"] is True
    assert dashboard.get("", user="viewer")["clusters"][0]["may_edit"] is False


def test_lag_is_the_end_less_the_committed_offset_and_all_of_it_where_nothing_is_committed(
    dashboard: Dashboard,
) -> None:
    dashboard.sources.offsets_now = TopicOffsets(
        ends={("t", 0): 100, ("t", 1): 50},
        committed={("t", 0): 90, ("t", 1): None},
        beginnings={("t", 1): 20},
    )
    (seen,) = dashboard.get("")["clusters"]
    assert (seen["lag"], seen["lag_unknown"], seen["rate"]) == (40, 10, None)
    matrix = dashboard.get("/c/topics/t")
    assert matrix["lag"][:3] == [10, 30, None]
    assert (matrix["committed"][0], matrix["end"][0]) == (90, 100)
    owner = matrix["consumers"][matrix["owner"][0]]
    assert dashboard.get(f"/c/consumers/{owner}")["row"]["lag"] >= 10
    # Ten seconds later 40 more have arrived in one partition, and 20 were consumed.
    dashboard.sources.offsets_now = TopicOffsets(
        ends={("t", 0): 140, ("t", 1): 50},
        committed={("t", 0): 110, ("t", 1): None},
        beginnings={("t", 1): 20},
    )
    dashboard.look_again()
    (seen,) = dashboard.get("")["clusters"]
    assert (seen["lag"], seen["rate"], seen["consumed_rate"]) == (60, 4.0, 2.0)
    assert dashboard.get("/c/topics/t")["rate"][:2] == [4.0, 0.0]


def test_report_on_a_deleted_topic_does_not_count(dashboard: Dashboard) -> None:
    world = dashboard.world
    for consumer in world.consumers.values():
        consumer.rates = {("t", p): 2.0 for p in range(7)} | {("gone", 0): 100.0}
        if consumer.id == "a":
            consumer.running.add(("gone", 0))
    (seen,) = dashboard.get("")["clusters"]
    assert seen["rate"] == 14.0
    assert sum(row["rate"] or 0 for row in dashboard.get("/c/consumers")["consumers"]) == 14.0


def test_the_matrix_of_a_topic_in_the_middle_of_a_rebalance(dashboard: Dashboard) -> None:
    world = dashboard.world
    # `d` joins, and its first partitions are closed by nobody yet: everybody is stuck.
    for consumer in world.consumers.values():
        consumer.stuck = True
    world.join("d")
    run(world, KAFKA)
    found = dashboard.get("/c/topics/t")
    states, consumers = found["state"], found["consumers"]
    assert found["row"]["state"] == "Closing"
    assert len(states) == 7
    assert found["partitions"] == [[0, 6]]
    moving = [p for p, state in enumerate(states) if state == "C"]
    assert moving
    for partition in moving:
        assert found["owner"][partition] == -1
        assert consumers[found["target"][partition]] == "d"
        assert consumers[found["source"][partition]] != "d"
    still = [p for p in range(7) if p not in moving]
    assert all(states[p] == "R" and found["owner"][p] >= 0 and found["target"][p] == -1 for p in still)
    assert {w["phase"] for w in found["waiting"]} == {"close"}
    (seen,) = dashboard.get("")["clusters"]
    assert (seen["state"], seen["health"]) == ("Rebalancing", "rebalancing")
    world.now += 1000
    dashboard.look_again()
    (seen,) = dashboard.get("")["clusters"]
    assert seen["health"] == "critical"
    assert "longer than stuck_after" in seen["problems"][0]["what"]
    assert dashboard.get("/c/topics", sort="state")["topics"][0]["stuck"]


def test_malformed_node_is_an_error_of_its_topic_and_the_others_go_on(dashboard: Dashboard) -> None:
    dashboard.world.store.nodes["t"] = Node(b"{", 7)
    rows = {row["topic"]: row for row in dashboard.get("/c/topics", sort="state")["topics"]}
    assert list(rows) == ["t", "u"]
    assert rows["t"]["state"] == "Unreadable"
    assert "is not an assignment" in rows["t"]["error"]
    assert rows["u"]["partition_states"] == {"R": 5}
    assert "is not an assignment" in dashboard.get("/c/topics/t")["row"]["error"]
    seen = dashboard.get("/c")
    assert seen["summary"]["health"] == "critical"
    assert seen["problems"][0]["topic"] == "t"


def test_consumers_with_what_they_say_of_themselves_and_what_they_have(dashboard: Dashboard) -> None:
    dashboard.world.attributes["a"] = Consumer("a", zone="z1", weight=2.0)
    dashboard.look_again()
    rows = dashboard.get("/c/consumers")["consumers"]
    assert [row["consumer"] for row in rows] == ["a", "b", "c-1"]
    first = rows[0]
    assert (first["host"], first["version"], first["incarnation"], first["started_at"], first["doing"]) == (
        "h1",
        "0.1.0",
        "one",
        100.0,
        "running",
    )
    assert (first["zone"], first["weight"], first["state"]) == ("z1", 2.0, "live")
    assert first["partitions"] == first["running"] == 4
    assert first["share"] == pytest.approx(4 / 2 / (12 / 4), abs=0.01)
    assert [row["expected"] for row in rows] == [False, False, True]
    one = dashboard.get("/c/consumers/a")
    assert sum(last - begin + 1 for topic in one["topics"] for begin, last in topic["running"]) == 4
    assert (
        dashboard.get("/c/consumers/nobody", status=404)["detail"] == "cluster 'c' has no consumer 'nobody'"
    )


def test_lists_are_filtered_sorted_and_cut(dashboard: Dashboard) -> None:
    dashboard.world.isolated.add("b")
    found = dashboard.get("/c/consumers", sort="state", limit=1)
    assert (found["total"], [row["consumer"] for row in found["consumers"]]) == (3, ["b"])
    assert found["consumers"][0]["said"] == {"by": "ann", "at": 5.0, "why": "it is slow"}
    assert [r["consumer"] for r in dashboard.get("/c/consumers", state="live")["consumers"]] == ["a", "c-1"]
    assert [r["consumer"] for r in dashboard.get("/c/consumers", search="C-")["consumers"]] == ["c-1"]
    found = dashboard.get("/c/consumers", sort="partitions", order="desc", offset=1, limit=1)
    assert (found["total"], found["offset"], len(found["consumers"])) == (3, 1, 1)
    assert dashboard.get("/c/topics", search="U")["total"] == 1
    assert dashboard.get("/c/topics", sort="partitions", order="desc")["topics"][0]["topic"] == "t"
    # Unknown lag comes last, whichever way it is sorted.
    dashboard.sources.offsets_now = TopicOffsets(ends={("u", 0): 5}, committed={("u", 0): 1})
    dashboard.look_again()
    for order in ("asc", "desc"):
        lags = [row["lag"] for row in dashboard.get("/c/topics", sort="lag", order=order)["topics"]]
        assert lags == [4, None]
    assert "limit" in dashboard.get("/c/topics", limit=100_000, status=422)["detail"]


def test_decisions_of_people_show_with_who_when_and_why(dashboard: Dashboard) -> None:
    word = {"by": "ann", "at": 7.0, "why": "a reason"}
    pins = {("t", p): Pin(topic="t", partition=p, consumer="gone", **word) for p in (0, 1, 5)}  # type: ignore[arg-type]
    exclusion = Exclusion(consumer="a", topic="u", **word)  # type: ignore[arg-type]
    asked = RebalanceRequest(**word)  # type: ignore[arg-type]
    dashboard.world.decided = Overrides(
        pins, {("a", "u"): exclusion}, ("key x holds rubbish",), rebalance=asked
    )
    assert dashboard.get("")["clusters"][0]["rebalance_asked"] == word
    found = dashboard.get("/c")
    assert found["summary"]["rebalance_asked"] == word
    assert found["pins"] == [
        {
            "topic": "t",
            "partitions": [[0, 1], [5, 5]],
            "consumer": "gone",
            "said": word,
            "obstacle": "consumer gone is not live",
        }
    ]
    assert found["exclusions"] == [{"consumer": "a", "topic": "u", "said": word}]
    assert found["summary"]["pinned"] == 3
    assert [problem["what"] for problem in found["problems"]] == ["key x holds rubbish"]
    assert dashboard.get("/c/topics/t")["row"]["pinned"] == 3
    assert dashboard.get("/c/consumers/a")["exclusions"][0]["topic"] == "u"


def test_problems_of_consumers_are_named(dashboard: Dashboard) -> None:
    world = dashboard.world
    world.consumers["a"].answers = False
    world.isolated.add("b")
    world.consumers["c-1"].alive = False
    found = dashboard.get("/c")
    summary = found["summary"]
    assert summary["health"] == "warning" or summary["health"] == "critical"
    words = [problem["what"] for problem in found["problems"]]
    assert "Consumer a: no answer in time" in words
    assert "Consumer b is isolated by ann: it is slow" in words
    assert any(word.startswith("Consumer c-1 is gone; 4 partition(s)") for word in words)
    assert summary["consumers"] == {
        "live": 1,
        "starting": 0,
        "isolated": 1,
        "missing": 1,
        "not_passing": 0,
        "unknown": 0,
    }
    assert summary["partition_states"] == {"?": 12}


def test_settings_that_are_wrong_are_that_clusters_error(dashboard: Dashboard) -> None:
    dashboard.clusters.errors["d"] = "cluster 'd', key 'topics': missing"
    rows = {row["name"]: row for row in dashboard.get("")["clusters"]}
    assert rows["d"]["error"] == rows["d"]["problems"][0]["what"] == "cluster 'd', key 'topics': missing"
    assert rows["c"]["health"] == "ok"
    assert dashboard.get("/d", status=404)["detail"] == "cluster 'd', key 'topics': missing"


def test_an_answer_that_says_the_same_is_not_sent_again(dashboard: Dashboard) -> None:
    for path in ("", "/c", "/c/topics", "/c/topics/t", "/c/consumers", "/c/consumers/a", "/c/timeline"):
        headers = {"X-User": "viewer"}
        first = dashboard.http.get(f"/api/clusters{path}", headers=headers)
        assert first.status_code == 200
        before = float(first.headers["Muster-Read-At"])
        dashboard.look_again()
        headers["If-None-Match"] = first.headers["ETag"]
        again = dashboard.http.get(f"/api/clusters{path}", headers=headers)
        assert (again.status_code, again.content) == (304, b""), path
        # How old it is is told all the same.
        assert float(again.headers["Muster-Read-At"]) == before + 10
    dashboard.world.isolated.add("a")
    dashboard.look_again()
    assert dashboard.http.get("/api/clusters/c/consumers/a", headers=headers).status_code == 200


def test_a_foreign_consumer_tells_nothing_of_itself(dashboard: Dashboard) -> None:
    def poll(consumers, timeout, topics=None):  # type: ignore[no-untyped-def]
        return {c: replace(a, incarnation="x") for c, a in dashboard.world.poll(consumers, timeout).items()}

    dashboard.sources.poll = poll  # type: ignore[method-assign]
    row = dashboard.get("/c/consumers/a")["row"]
    assert (row["host"], row["version"], row["started_at"], row["lag"]) == ("", "", None, None)
    assert (row["running"], row["incarnation"]) == (4, "x")


def test_cluster_that_goes_on_after_a_mistake_shows_state_and_mistake(dashboard: Dashboard) -> None:
    dashboard.clusters.errors["c"] = "clusters.d/c.yaml:7: cluster 'c', key 'topcis': unknown key"
    [summary] = dashboard.get("")["clusters"]
    assert summary["state"] == "Stable"
    assert summary["health"] == "warning"
    assert summary["problems"][0]["what"] == dashboard.clusters.errors["c"]
    assert dashboard.get("/c")["problems"][0] == summary["problems"][0]


def test_file_that_cannot_be_read_is_shown_above_the_clusters_of_the_others(dashboard: Dashboard) -> None:
    wrong = "clusters.d/d.yaml:3: not YAML"
    dashboard.clusters.general["d.yaml"] = wrong
    answer = dashboard.get("")
    assert answer["error"] == wrong
    assert [each["name"] for each in answer["clusters"]] == ["c"]
    answer = dashboard.get("", user="other")
    assert (answer["clusters"], answer["error"]) == ([], ""), "who sees no cluster sees no file of others"


@pytest.mark.parametrize("answer", ["", "skip"])
def test_parked_partition_is_parked_wherever_the_page_names_its_state(
    dashboard: Dashboard, answer: str
) -> None:
    (owner,) = (each for each in dashboard.world.consumers.values() if ("t", 3) in each.running)
    owner.failing["t", 3] = FailingRecord(17, "ValueError: no date", 8, parked=True, answer=answer)
    why = "the record failed 8 times alone: ValueError: no date"
    matrix = dashboard.get("/c/topics/t")
    assert matrix["state"] == "RRRKRRR"
    assert matrix["parked"] == {"3": {"offset": 17, "why": why, "answer": answer}}
    assert matrix["row"]["partition_states"] == {"R": 6, "K": 1}
    assert dashboard.get("")["clusters"][0]["partition_states"] == {"R": 11, "K": 1}
    found = dashboard.get(f"/c/consumers/{owner.id}")
    row = found["row"]
    assert (row["partitions"], row["running"], row["parked"]) == (4, 3, 1)
    (of_topic,) = (each for each in found["topics"] if each["topic"] == "t")
    assert of_topic["parked"] == [[3, 3]]
    assert not any(first <= 3 <= last for first, last in of_topic["running"])
    # Only what is not answered waits for a person.
    assert [each["offset"] for each in matrix["waiting"]] == ([] if answer else [17])
