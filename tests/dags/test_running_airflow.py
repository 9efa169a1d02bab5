"""What only a running Airflow shows: deferral, what ending a deferred task does, restarts, a changed consumer count.

The consumers are light ones; what happens to records in all this is the end-to-end test's business.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from devstack.airflow import Airflow
from devstack.airflow_api import AirflowApi, wait_for
from muster.airflow.processes import Life
from muster.airflow.submission import Submission
from muster.edges.consul import Discovery
from muster.settings.connections import ConsulSettings
from tests.dags.conftest import LIGHT_CONSUMER, connection

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

CLUSTER = "running"
DAG = f"muster_consumers__{CLUSTER}"
SLOW = 120.0


@dataclass
class World:
    airflow: Airflow
    api: AirflowApi
    discovery: Discovery
    clusters: Path

    def eventually(self, condition: Callable[[], Any], what: str) -> Any:
        return wait_for(what, condition, SLOW, interval=0.5)

    def write(self, count: int) -> None:
        self.clusters.write_text(
            yaml.safe_dump(
                {
                    "clusters": {
                        CLUSTER: {
                            "consul_service": f"{CLUSTER}-service",
                            "group_id": "g",
                            "topics": ["t"],
                            "consumers": {
                                "count": count,
                                "handler": "muster.handlers.nothing",
                                "graceful_timeout": "20s",
                                "spark_conf": {"spark.ui.enabled": False},
                            },
                        }
                    }
                }
            )
        )

    @property
    def run(self) -> str:
        return str(self.api.runs(DAG)[0]["dag_run_id"])

    def task(self, number: int) -> dict[str, Any]:
        return next(ti for ti in self.api.task_instances(DAG, self.run) if ti["map_index"] == number - 1)

    def mark(self, number: int, state: str) -> None:
        self.api.mark(DAG, self.run, "consumer", number - 1, state)

    def clear(self, number: int) -> None:
        self.api.clear(DAG, self.run, "consumer", number - 1)

    def submission(self, number: int) -> Submission:
        found = Submission.from_dict(self.discovery.submission(f"{CLUSTER}-{number}"))
        assert found is not None
        return found

    def incarnation(self, number: int) -> str | None:
        registration = self.discovery.members().registered.get(f"{CLUSTER}-{number}")
        return registration.incarnation if registration and registration.passing else None

    def live(self, number: int, other_than: str | None = None) -> str:
        """Wait until a consumer is live and its task's trigger watches it; return its incarnation."""

        def watched() -> str | None:
            now = self.incarnation(number)
            task = self.task(number)
            if now is None or now == other_than or task["state"] != "deferred":
                return None
            log = self.api.log(DAG, self.run, "consumer", number - 1, task["try_number"])
            return now if f"watching consumer {CLUSTER}-{number}, incarnation {now}" in log else None

        return str(self.eventually(watched, f"consumer {number} is live and watched"))

    def stopped_in_order(self, submission: Submission) -> None:
        process = submission.process
        assert process is not None
        self.eventually(lambda: process.life() is Life.ENDED, "the job has ended")
        assert "leaves in order" in Path(submission.log).read_text()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, consul: ConsulSettings) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("running-airflow")
    clusters = folder / "clusters.yaml"
    environment = {
        "MUSTER_CLUSTERS": str(clusters),
        "MUSTER_APPLICATION": str(LIGHT_CONSUMER),
        "AIRFLOW_CONN_MUSTER_CONSUL": connection(conn_type="http", host=consul.host, port=consul.port),
        "AIRFLOW_CONN_MUSTER_SPARK": connection(conn_type="spark", host="local[1]"),
        "AIRFLOW_CONN_MUSTER_ZOOKEEPER": connection(conn_type="generic", host="127.0.0.1:9"),
        "AIRFLOW_CONN_MUSTER_KAFKA": connection(
            conn_type="kafka", extra={"bootstrap.servers": "127.0.0.1:9"}
        ),
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3",
    }
    airflow = Airflow(folder / "airflow", extra_environment=environment, guarded=True)
    discovery = Discovery(consul, CLUSTER, f"{CLUSTER}-service")
    before = dict(os.environ)
    try:
        World(airflow, None, discovery, clusters).write(2)  # type: ignore[arg-type]
        airflow.start()
        with AirflowApi(airflow.url, "admin", airflow.passwords()["admin"]) as api:
            world = World(airflow, api, discovery, clusters)
            world.eventually(lambda: api.has_dag(DAG), "the DAG is parsed")
            api.set_paused(DAG, False)
            world.eventually(lambda: api.runs(DAG), "a run began")
            yield world
    finally:
        airflow.stop()
        for number in (1, 2, 3):
            submission = Submission.from_dict(discovery.submission(f"{CLUSTER}-{number}"))
            if submission is not None and submission.process is not None:
                submission.process.kill()
        os.environ.clear()
        os.environ.update(before)


def test_a_live_consumers_task_is_deferred_named_after_it_and_shows_its_log(world: World):
    world.live(1)
    world.live(2)
    task = world.task(1)
    assert task["rendered_map_index"] == f"{CLUSTER}-1"
    log = world.api.log(DAG, world.run, "consumer", 0, task["try_number"])
    assert f"light consumer {CLUSTER}-1 begins" in log


@pytest.mark.parametrize("state", ["failed", "success"])
def test_marking_a_deferred_task_stops_its_job_in_order_and_clearing_brings_it_back(world: World, state: str):
    other = world.live(2)
    before = world.live(1)
    submission = world.submission(1)
    world.mark(1, state)
    world.stopped_in_order(submission)
    assert world.task(1)["state"] == state
    world.clear(1)
    assert world.live(1, other_than=before) != before
    assert world.live(2) == other


def test_clearing_a_deferred_task_restarts_its_job_in_order(world: World):
    before = world.live(1)
    submission = world.submission(1)
    world.clear(1)
    world.live(1, other_than=before)
    world.stopped_in_order(submission)


def test_a_consumer_that_dies_is_submitted_anew_by_a_retry(world: World):
    before = world.live(1)
    tries = world.task(1)["try_number"]
    process = world.submission(1).process
    assert process is not None
    process.kill()
    world.live(1, other_than=before)
    assert world.task(1)["try_number"] == tries + 1
    log = world.api.log(DAG, world.run, "consumer", 0, tries)
    assert "its driver process has ended" in log


def test_a_restart_of_airflow_touches_no_consumer(world: World):
    before = [world.live(number) for number in (1, 2)]
    tries = [world.task(number)["try_number"] for number in (1, 2)]
    world.airflow.restart()
    assert [world.live(number) for number in (1, 2)] == before
    assert [world.task(number)["try_number"] for number in (1, 2)] == tries
    # And the new triggerer watches: what ends a task still stops the job.
    submission = world.submission(2)
    world.mark(2, "failed")
    world.stopped_in_order(submission)
    world.clear(2)
    world.live(2, other_than=before[1])


def test_a_changed_number_of_consumers_takes_effect_in_the_run_that_is_under_way(world: World):
    before = [world.live(number) for number in (1, 2)]
    run = world.run
    world.write(3)
    world.eventually(lambda: world.incarnation(3), "the third consumer is live")
    world.live(3)
    submission = world.submission(3)
    world.write(2)
    world.stopped_in_order(submission)
    assert world.run == run
    assert [world.live(number) for number in (1, 2)] == before


def test_pausing_and_failing_the_run_stops_all_consumers_in_order(world: World):
    submissions = []
    for number in (1, 2):
        world.live(number)
        submissions.append(world.submission(number))
    world.api.set_paused(DAG, True)
    run = world.run
    world.api.request("PATCH", f"/dags/{DAG}/dagRuns/{run}", json={"state": "failed"})
    for submission in submissions:
        world.stopped_in_order(submission)
    assert world.run == run
