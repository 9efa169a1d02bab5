"""Command line, page and metrics say the same of a cluster, because they render the same state."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from prometheus_client.parser import text_string_to_metric_families

from muster.cli.main import main
from muster.cli.status import NOT_WELL
from muster.cluster.condition import Condition
from muster.cluster.sources import Sources
from muster.core.copies import ShardCopy
from muster.core.model import Loss, Restore, ShardState
from muster.core.offsets import FirstRecord, Retention, TopicOffsets
from muster.core.overrides import ConsumptionPause
from muster.core.progress import Look, Mark
from muster.core.starting import Stage, Starting
from muster.monitoring.exporter import Exporter
from muster.settings.cluster_settings import ClusterSettings
from tests.support.runs import Topics, run, settle
from tests.support.simulated import SimulatedCluster
from tests.support.simulated_dashboard import Dashboard

WITHOUT_JOBS = {"handler": "a.b", "count": 0}
KAFKA = Topics(t=8, u=4)
PAUSED = "muster_topic_paused_partitions"


def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **settings: object) -> Dashboard:
    """A settled cluster, whose settings the command line and the page share."""
    cluster = {"consul_service": "c", "group_id": "g", "topics": ["t", "u"], "consumers": WITHOUT_JOBS}
    path = tmp_path / "clusters.yaml"
    path.write_text(yaml.safe_dump({"clusters": {"c": cluster | settings}}))
    monkeypatch.setenv("MUSTER_CLUSTERS", str(path))
    world = SimulatedCluster()
    world.join("a", "b", "c", "d")
    settle(world, KAFKA, "sticky")
    return Dashboard(world, {"consumers": WITHOUT_JOBS, **settings})


@pytest.fixture
def dashboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dashboard:
    return made(tmp_path, monkeypatch)


@pytest.fixture
def promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dashboard:
    return made(tmp_path, monkeypatch, max_lag={"t": "5m"})


def invoke(dashboard: Dashboard, *options: str) -> Result:
    """Run `muster status`."""

    @contextmanager
    def opened(_: ClusterSettings) -> Iterator[Sources]:
        yield dashboard.sources

    return CliRunner().invoke(main, ["status", "--cluster", "c", *options], obj=opened)


def status(dashboard: Dashboard) -> dict[str, Any]:
    """What `muster status` prints as JSON, with the exit code of `--check` as `code`."""
    done = invoke(dashboard, "--check", "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "code": done.exit_code}


def printed(dashboard: Dashboard) -> str:
    """What `muster status` prints for people."""
    return invoke(dashboard).stdout


def metrics(dashboard: Dashboard) -> list[tuple[str, dict[str, str], float]]:
    exporter = Exporter(dashboard.answers.shared, settings=lambda: dashboard.clusters)
    text = exporter.text((), partitions=True, within=30).decode()
    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


COUNTED = {
    Condition.LIVE: "live",
    Condition.ISOLATED: "isolated",
    Condition.FAILING: "missing",  # partitions are assigned to it
    Condition.ABSENT: "missing",
    Condition.STARTING: "starting",
    Condition.UNKNOWN: "unknown",
}


def stand(world: SimulatedCluster, condition: Condition) -> None:
    """Bring consumer `a` into a condition."""
    if condition is Condition.ISOLATED:
        world.isolated.add("a")
    elif condition is Condition.FAILING:
        world.failing.add("a")
    elif condition is Condition.ABSENT:
        world.consumers["a"].alive = False
    elif condition is Condition.STARTING:
        world.consumers["a"].alive = False
        world.starting["a"] = Starting("one", Stage.SESSION, time.time())
    elif condition is Condition.UNKNOWN:
        world.doubt = "its catalog does not agree"


@pytest.mark.parametrize("condition", Condition)
def test_front_ends_agree_on_a_consumer_in_each_condition(dashboard: Dashboard, condition: Condition) -> None:
    stand(dashboard.world, condition)
    of_command = {each["consumer"]: each for each in status(dashboard)["consumers"]}
    of_page = {each["consumer"]: each for each in dashboard.get("/c/consumers")["consumers"]}
    scraped = metrics(dashboard)
    of_metrics = {
        labels["consumer_id"]: labels["state"]
        for name, labels, value in scraped
        if name == "muster_consumer_state" and value
    }
    assert of_command["a"]["state"] == of_page["a"]["state"] == condition.value
    assert of_metrics["a"] == COUNTED[condition]
    assert of_command.keys() == of_page.keys() == of_metrics.keys()
    for consumer in of_command:
        assert of_command[consumer]["state"] == of_page[consumer]["state"], consumer
        assert COUNTED[Condition(of_page[consumer]["state"])] == of_metrics[consumer], consumer
        assert of_command[consumer]["partitions"] == of_page[consumer]["partitions"], consumer
        assigned = [
            value
            for name, labels, value in scraped
            if name == "muster_consumer_assigned_partitions" and labels["consumer_id"] == consumer
        ]
        assert assigned == [of_page[consumer]["partitions"]], consumer
    (summary,) = dashboard.get("")["clusters"]
    counts = {labels["state"]: value for name, labels, value in scraped if name == "muster_consumers"}
    assert summary["consumers"] == counts


@pytest.mark.parametrize("condition", Condition)
def test_check_of_status_fails_where_the_page_has_a_problem(
    dashboard: Dashboard, condition: Condition
) -> None:
    stand(dashboard.world, condition)
    found = status(dashboard)
    problems = dashboard.get("/c")["problems"]
    assert (found["code"], found["well"]) == ((0, True) if condition is Condition.LIVE else (5, False))
    assert bool(problems) == (condition is not Condition.LIVE)


def test_check_of_status_fails_for_an_owner_without_progress(dashboard: Dashboard) -> None:
    for tp in [tp for tp in dashboard.world.consumers["a"].running if tp[0] == "t"]:
        dashboard.world.stands(tp, 10_000.0)
    found = status(dashboard)
    assert found["topics"][0]["state"] == "Stable"
    assert (found["code"], found["well"]) == (5, False)
    (message,) = found["stuck"]
    assert message == dashboard.get("/c/topics/t")["row"]["stuck"]
    assert message in {problem["what"] for problem in dashboard.get("/c")["problems"]}


def test_batch_beyond_max_batch_time_shows_in_status_and_on_the_page(dashboard: Dashboard) -> None:
    tp = next(tp for tp in dashboard.world.consumers["a"].running if tp[0] == "t")
    dashboard.world.consumers["a"].batch_seconds[tp] = 421.0
    dashboard.world.consumers["a"].max_batch_time = 300.0
    found = status(dashboard)
    [waiting] = dashboard.get("/c/topics/t")["waiting"]
    assert (waiting["consumer"], waiting["phase"], waiting["partitions"]) == ("a", "finish", [[tp[1], tp[1]]])
    assert [each["why"] for each in found["waiting"]] == [waiting["why"]]
    assert found["code"] == 5
    assert found["stuck"][0] in {problem["what"] for problem in dashboard.get("/c")["problems"]}


def test_pause_of_a_partition_is_visible_everywhere_until_it_is_taken_back(dashboard: Dashboard) -> None:
    """The consumer's own metric is in test_agent_pages.py."""
    world = dashboard.world

    def paused() -> float:
        values = {labels["topic"]: v for name, labels, v in metrics(dashboard) if name == PAUSED}
        assert values["u"] == 0
        return values["t"]

    assert (status(dashboard)["code"], paused()) == (0, 0)
    pause = ConsumptionPause(by="ann", at=1_700_000_000.0, why="a release", topic="t", partition=3)
    world.decided = replace(world.decided, consumption=(pause,))
    run(world, KAFKA)
    for consumer in world.consumers.values():
        consumer.obey(world.store)
    dashboard.look_again()
    found = status(dashboard)
    assert (found["code"], found["well"]) == (5, False)
    assert [(each["topic"], each["paused"]) for each in found["topics"]] == [("t", 1), ("u", 0)]
    assert (found["stuck"], found["consumption_paused"]) == ([], [str(pause)])
    assert "consumption paused: partition(s) 3 of topic t by ann" in printed(dashboard)
    [problem] = dashboard.get("/c")["problems"]
    assert (problem["topic"], problem["what"].split(";")[0]) == ("t", f"C{str(pause)[1:]}")
    assert dashboard.get("/c/topics/t")["state"] == "RRRHRRRR"
    assert paused() == 1
    world.decided = replace(world.decided, consumption=())
    run(world, KAFKA)
    for consumer in world.consumers.values():
        consumer.obey(world.store)
    dashboard.look_again()
    assert (status(dashboard)["code"], dashboard.get("/c")["problems"], paused()) == (0, [], 0)


def test_lost_records_show_in_status_and_on_the_page_and_check_does_not_fail(dashboard: Dashboard) -> None:
    owners = {tp: c for c in dashboard.world.consumers.values() for tp in c.running}
    for partition, loss in (
        (0, Loss(30, 70, 40, "retention", 999_000.0)),
        (2, Loss(5, 7, 2, "truncation", 999_001.0)),
    ):
        owners["t", partition].losses["t", partition] = (loss,)
    found = status(dashboard)
    assert [(each["partition"], each["records"], each["reason"]) for each in found["lost"]] == [
        (0, 40, "retention"),
        (2, 2, "truncation"),
    ]
    assert (found["code"], found["well"]) == (0, True)
    [problem] = dashboard.get("/c")["problems"]
    assert (problem["level"], problem["topic"]) == ("warning", "t")
    assert problem["what"].startswith(
        "42 record(s) of topic t are lost, of partition(s) 0,2: Kafka had them no more when they were to be read "
        "(retention, truncation); 'muster history --topic t'"
    )
    assert f"lost: {problem['what']}" in printed(dashboard)
    owners["t", 0].left_out["t", 0] = (Loss(1, 9, 8, "after a seek", 999_002.0),)
    assert [each["what"] for each in status(dashboard)["lost"]] == [*["lost-records"] * 2, "left-out-records"]
    dashboard.look_again()
    [problem] = dashboard.get("/c")["problems"]
    assert (
        "; 8 record(s) of topic t were left out by a sink, of partition(s) 0: by its own record they are stored "
        "(after a seek); 'muster history --topic t' has their offsets"
    ) in problem["what"]


def test_front_ends_agree_on_lag(dashboard: Dashboard) -> None:
    """Records that Kafka deleted are no lag any more, and what was never committed counts from the beginning."""
    dashboard.sources.offsets_now = TopicOffsets(
        ends={("t", 0): 100, ("t", 1): 50, ("t", 2): 30},
        beginnings={("t", 0): 0, ("t", 1): 20, ("t", 2): 10},
        committed={("t", 0): 90, ("t", 1): None, ("t", 2): 4},
    )
    lags = dashboard.get("/c/topics/t")["lag"][:3]
    scraped = {
        labels["partition"]: value
        for name, labels, value in metrics(dashboard)
        if name == "kafka_consumergroup_group_lag"
    }
    assert lags == [10, 30, 20]
    assert [scraped[str(partition)] for partition in range(3)] == lags


def test_page_and_metrics_share_what_is_read(dashboard: Dashboard) -> None:
    dashboard.get("/c")
    metrics(dashboard)
    dashboard.get("/c/consumers")
    reads = dashboard.sources.reads
    assert (reads["snapshots"], reads["members"], reads["offsets"]) == (1, 1, 1)


def test_partition_that_kafka_does_not_list_is_a_problem_of_the_page_alone(dashboard: Dashboard) -> None:
    dashboard.sources.offsets_now = TopicOffsets(
        partitions={"t": frozenset(range(6)), "u": frozenset(range(4))}
    )
    (problem,) = dashboard.get("/c")["problems"]
    assert (problem["level"], problem["topic"]) == ("warning", "t")
    assert problem["what"].startswith("Kafka does not list partition(s) 6-7 of topic t")
    assert status(dashboard)["code"] == 0


def test_front_ends_agree_on_lag_in_time(promised: Dashboard) -> None:
    """Topic t has a partition that is never read, one that catches up, and six without lag."""
    world = promised.world
    now = time.time()
    tps = [("t", p) for p in range(8)] + [("u", p) for p in range(4)]
    ends = dict.fromkeys(tps, 600)
    marks = {("t", 0): Mark(0, 0, points=((0, 540),)), ("t", 1): Mark(300, 0, points=((300, 600),))}
    world.store.note_look(Look(), Look(now - 60, marks, points=(round(now) - 60,)))
    promised.sources.offsets_now = TopicOffsets(
        ends=ends,
        beginnings=dict.fromkeys(tps, 0),
        committed={**ends, ("t", 0): 0, ("t", 1): 540},
        first={("t", 0): FirstRecord(0, now - 400, 100), ("t", 1): FirstRecord(540, now - 100, 100)},
        retention={"t": Retention(seconds=480)},
        at=now,
    )
    command = status(promised)
    assert command["code"] == NOT_WELL
    of_command = {each["topic"]: each for each in command["topics"]}
    of_page = {each["topic"]: each for each in promised.get("/c/topics?sort=age&descending=true")["topics"]}
    assert list(of_page) == ["t", "u"]
    for topic, (age, never, kept, most) in {"t": (400, True, 80, 300), "u": (0, False, None, None)}.items():
        assert {k: of_command[topic][k] for k in ("age", "never", "kept")} == {
            "age": pytest.approx(age),
            "never": never,
            "kept": kept if kept is None else pytest.approx(kept),
        }
        assert of_page[topic]["behind"] == {
            "age": age,
            "catch_up": of_command[topic]["catch_up"],
            "never": never,
            "kept": kept,
            "near": topic == "t",
        }
        assert of_page[topic]["max_lag"] == of_command[topic]["max_lag"] == most
    matrix = promised.get("/c/topics/t")
    assert matrix["age"] == [400.0, 100.0, *[0.0] * 6]
    summary = promised.get("/c")["summary"]
    assert summary["behind"] == of_page["t"]["behind"]
    assert summary["health"] == "critical"
    late, near = command["behind"]
    assert late.startswith(
        "Topic t is 6 min 40 s behind, and max_lag is 5 min: partition(s) 0; at the present"
    )
    assert near.startswith("Kafka may delete records of topic t in 1 min 20 s that are not committed")
    assert {late, near} <= {each["what"] for each in summary["problems"]}
    assert f"behind: {late}" in printed(promised)
    scraped = {
        (name, labels.get("topic"), labels.get("partition")): value
        for name, labels, value in metrics(promised)
        if name.endswith(("_seconds", "_near_deletion"))
    }
    of = {
        name: scraped.get((f"muster_topic_{name}_seconds", "t", None)) for name in ("lag", "kept", "max_lag")
    }
    assert of == {"lag": pytest.approx(400), "kept": pytest.approx(80), "max_lag": 300}
    assert scraped["muster_topic_catch_up_seconds", "t", None] == math.inf
    assert scraped["muster_topic_near_deletion", "t", None] == 1
    assert scraped["muster_topic_near_deletion", "u", None] == 0
    assert scraped["muster_topic_lag_seconds", "u", None] == 0
    assert ("muster_topic_max_lag_seconds", "u", None) not in scraped
    assert scraped["kafka_consumergroup_group_lag_seconds", "t", "1"] == pytest.approx(100)


def test_front_ends_agree_that_a_promise_cannot_be_checked(promised: Dashboard) -> None:
    promised.sources.offsets_now = TopicOffsets(
        ends={("t", p): 9 for p in range(8)},
        committed={("t", p): 9 - (p == 3) for p in range(8)},
        unread="t [3]: Topic authorization failed",
    )
    command = status(promised)
    assert command["code"] == NOT_WELL
    [unknown] = command["behind"]
    assert unknown.startswith(
        "Whether topic t keeps its max_lag of partition(s) 3 is unknown: t [3]: Topic auth"
    )
    assert unknown in {each["what"] for each in promised.get("/c")["summary"]["problems"]}
    assert promised.get("/c/topics/t")["age"][3] is None
    promised.sources.down.add("kafka")
    [away] = status(promised)["behind"]
    assert "is unknown: kafka is out of reach" in away


def test_front_ends_agree_on_state_and_its_restore(dashboard: Dashboard) -> None:
    """Of topic t partition 0 has its state, 1 is restored, 2 waits for a person; topic u has none."""
    shards = {
        0: ShardState(1_200, 4_000_000, 52_000, 9, executor="3 on host-b"),
        1: ShardState(restore=Restore(500, 2_000, 100.0, 0.5)),
        2: ShardState(differs="its changelog (end 9) has no position; the group is at offset 5, commit 3"),
    }
    for each in dashboard.world.consumers.values():
        each.shards = {("t", p): shards[p] for topic, p in each.running if topic == "t" and p in shards}
    command, words = status(dashboard), printed(dashboard)
    assert command["code"] == NOT_WELL
    of_command = {each["topic"]: each["states"] for each in command["topics"]}
    assert of_command["u"] == {}
    assert of_command["t"] == {str(p): json.loads(json.dumps(asdict(shard))) for p, shard in shards.items()}
    line = "state: topic t: 1,200 keys, 4.0 MB in 1 of 8 partitions; 1 restoring; 1 waiting for a person"
    assert line in words
    [stuck] = command["stuck"]
    assert "its changelog (end 9) has no position" in stuck
    matrix = dashboard.get("/c/topics/t")
    assert matrix["state"] == "RTKRRRRR"
    nothing = {"keys": 0, "bytes": 0, "offset": None, "restoring": "", "differs": "", "executor": ""}
    assert matrix["shards"] == {
        "0": nothing | {"keys": 1_200, "bytes": 4_000_000, "offset": 52_000, "executor": "3 on host-b"},
        "1": nothing | {"restoring": "25 % of 2,000 offsets of its changelog, 100 a second, 15 s left"},
        "2": nothing | {"differs": shards[2].differs},
    }
    assert matrix["row"]["stuck"] == stuck
    (owner,) = (c.id for c in dashboard.world.consumers.values() if ("t", 1) in c.shards)
    assert dashboard.get(f"/c/consumers/{owner}")["row"]["restoring"] == 1


def test_front_ends_agree_on_copies_of_state(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a partition's owner are no copies to go to."""
    consumers = dashboard.world.consumers
    owner = next(c for c, each in consumers.items() if ("t", 0) in each.running)
    one, two, three = sorted(consumers.keys() - {owner})
    told = {
        owner: ShardCopy(500_000, 500_000),
        one: ShardCopy(499_000, 500_000, followed=True),
        two: ShardCopy(300_000, 500_000, 4_096, True, 1_000.0),
        three: ShardCopy(1_000, 500_000),
    }
    for consumer, copy in told.items():
        answer = replace(consumers[consumer].status(), copies={"t": {0: copy}})
        monkeypatch.setattr(consumers[consumer], "status", lambda answer=answer: answer)
    of_command = {each["topic"]: each["copies"] for each in status(dashboard)["topics"]}
    assert of_command["u"] == {}
    assert {c: (copy["is"], copy["lag"]) for c, copy in of_command["t"]["0"].items()} == {
        one: ("warm", 1_000),
        two: ("warming", 200_000),
        three: ("cold", 499_000),
    }
    words = printed(dashboard)
    assert "copies of state: topic t: 1 warm, 1 warming, 1 cold" in words
    warming = "warming: it lacks 200,000 offsets of the changelog, and reads 1,000 a second, 200 s left"
    assert f"copies of state: topic t, partition 0: {two} is {warming}" in words
    assert dashboard.get("/c/topics/t")["copies"] == {
        "0": {one: "warm", two: warming, three: "cold: it lacks 499,000 offsets of the changelog"}
    }
