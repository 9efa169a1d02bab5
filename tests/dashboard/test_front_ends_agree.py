"""Command line, page and metrics say the same of a cluster, because they render the same state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from muster.cli.main import main
from muster.cluster.condition import Condition
from muster.cluster.lag import Offsets
from muster.cluster.sources import Sources
from muster.monitoring.exporter import Exporter
from muster.settings.cluster_settings import ClusterSettings
from tests.support.runs import Topics, settle
from tests.support.simulated import SimulatedCluster
from tests.support.simulated_dashboard import Dashboard

WITHOUT_JOBS = {"handler": "a.b", "count": 0}


@pytest.fixture
def dashboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dashboard:
    cluster = {"consul_service": "c", "group_id": "g", "topics": ["t", "u"], "consumers": WITHOUT_JOBS}
    path = tmp_path / "clusters.yaml"
    path.write_text(yaml.safe_dump({"clusters": {"c": cluster}}))
    monkeypatch.setenv("MUSTER_CLUSTERS", str(path))
    world = SimulatedCluster()
    world.join("a", "b", "c", "d")
    settle(world, Topics(t=8, u=4), "sticky")
    return Dashboard(world, {"consumers": WITHOUT_JOBS})


def status(dashboard: Dashboard) -> dict[str, Any]:
    """What `muster status` prints, with the exit code of `--check` as `code`."""

    @contextmanager
    def opened(_: ClusterSettings) -> Iterator[Sources]:
        yield dashboard.sources

    args = ["status", "--cluster", "c", "--check", "--json"]
    done = CliRunner().invoke(main, args, obj=opened)
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "code": done.exit_code}


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
    dashboard.world.consumers["a"].stalled = {
        tp: 10_000.0 for tp in dashboard.world.consumers["a"].running if tp[0] == "t"
    }
    found = status(dashboard)
    assert found["topics"][0]["state"] == "Stable"
    assert (found["code"], found["well"]) == (5, False)
    (message,) = found["stuck"]
    assert message == dashboard.get("/c/topics/t")["row"]["stuck"]
    assert message in {problem["what"] for problem in dashboard.get("/c")["problems"]}


def test_front_ends_agree_on_lag(dashboard: Dashboard) -> None:
    """Records that Kafka deleted are no lag any more, and what was never committed counts from the beginning."""
    dashboard.sources.offsets_now = Offsets(
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
    dashboard.sources.offsets_now = Offsets(partitions={"t": frozenset(range(6)), "u": frozenset(range(4))})
    (problem,) = dashboard.get("/c")["problems"]
    assert (problem["level"], problem["topic"]) == ("warning", "t")
    assert problem["what"].startswith("Kafka does not list partition(s) 6-7 of topic t")
    assert status(dashboard)["code"] == 0
