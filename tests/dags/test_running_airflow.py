"""What only a running Airflow shows: deferral, what ending a deferred task does, a changed consumer count, notes on
runs, a question to a person, pruning.

The consumers are light ones; what happens to records in all this, and what a restart of Airflow does, is the
end-to-end test's business.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from devstack.airflow import ROOT, Airflow
from devstack.airflow_api import AirflowApi, wait_for
from muster.airflow.processes import Life
from muster.airflow.submission import Submission
from muster.core.history import CommandEntry
from muster.edges.consul import ConsulCluster
from muster.edges.zookeeper import TopicStore
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.dags.conftest import LIGHT_CONSUMER, connection
from tests.support.airflow_home import give_database
from tests.support.foreign_consumers import ForeignConsumers
from tests.support.only_long import only_long

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

CLUSTER = "running"
AUDITED = "audited"
"""A cluster with a coordinator, whose consumers know the protocol and share no code with Muster."""
REFUSED = "refused"
"""A cluster whose only consumer cannot start before its settings are corrected."""
TOPIC = "audited-topic"
COORDINATOR = f"muster_coordinator__{AUDITED}"
STUCK = f"muster_stuck__{AUDITED}"
DAG = f"muster_consumers__{CLUSTER}"
SLOW = 120.0


@dataclass
class RunningAirflow:
    airflow: Airflow
    api: AirflowApi
    discovery: ConsulCluster
    clusters: Path

    def eventually(self, condition: Callable[[], Any], what: str, detail: Callable[[], str] = str) -> Any:
        return wait_for(what, condition, SLOW, interval=0.5, detail=detail)

    def task_states(self, dag: str, run: str) -> str:
        """How each task of a run stands."""
        tasks = self.api.task_instances(dag, run)
        return f"{run} is {self.api.run_state(dag, run)}: " + ", ".join(
            f"{task['task_id']} {task['state']}" for task in tasks
        )

    def write(self, count: int) -> None:
        """Write `clusters.yaml`, with so many consumers of the first cluster."""

        def cluster(name: str, consumers: dict[str, Any], **more: Any) -> dict[str, Any]:
            consumers = {"handler": "muster.handlers.nothing", **consumers}
            return {
                "consul_service": f"{name}-service",
                "group_id": f"{name}-group",
                "topics": ["t"],
                "consumers": consumers,
                **more,
            }

        notifying = {"path": str(self.notified_file), "text": "{{ dag.dag_id }}: {{ exception }}"}
        running = {"count": count, "graceful_timeout": "20s", "spark_conf": {"spark.ui.enabled": False}}
        clusters = {
            CLUSTER: cluster(CLUSTER, running),
            REFUSED: cluster(
                REFUSED,
                {"handler_options": {"fail": 2}},
                on_stuck=[{"notifier": "tests.dags.file_notifier.FileNotifier", "options": notifying}],
            ),
            AUDITED: cluster(
                AUDITED,
                {"count": 0},
                topics=[TOPIC],
                kafka="audited_kafka",
                zookeeper="audited_zookeeper",
                long_poll_timeout="2s",
                advance_budget="2s",
                stuck_after="5s",
            ),
        }
        retention = {"quiet_runs": "1s", "failures": "1h", "rebalances": "1h"}
        self.clusters.write_text(yaml.safe_dump({"clusters": clusters, "retention": retention}))

    @property
    def notified_file(self) -> Path:
        """What the notifier of `on_stuck` of the refused cluster wrote."""
        return self.clusters.with_name("notified")

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
        found = Submission.from_dict(self.discovery.jobs.submission(f"{CLUSTER}-{number}"))
        assert found is not None
        return found

    def incarnation(self, number: int) -> str | None:
        registration = self.discovery.catalog.members().registered.get(f"{CLUSTER}-{number}")
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
def world(
    airflow_database: Path,
    tmp_path_factory: pytest.TempPathFactory,
    consul: ConsulSettings,
    zookeeper: ZooKeeperSettings,
    kafka: KafkaSettings,
) -> Iterator[RunningAirflow]:
    folder = tmp_path_factory.mktemp("running-airflow")
    clusters = folder / "clusters.yaml"
    environment = {
        "MUSTER_CLUSTERS": str(clusters),
        "MUSTER_APPLICATION": str(LIGHT_CONSUMER),
        "PYTHONPATH": str(ROOT),  # where the notifier is
        "AIRFLOW_CONN_MUSTER_CONSUL": connection(conn_type="http", host=consul.host, port=consul.port),
        "AIRFLOW_CONN_MUSTER_SPARK": connection(conn_type="spark", host="local[1]"),
        "AIRFLOW_CONN_MUSTER_ZOOKEEPER": connection(conn_type="generic", host="127.0.0.1:9"),
        "AIRFLOW_CONN_MUSTER_KAFKA": connection(
            conn_type="kafka", extra={"bootstrap.servers": "127.0.0.1:9"}
        ),
        "AIRFLOW_CONN_AUDITED_ZOOKEEPER": connection(conn_type="generic", host=zookeeper.hosts),
        "AIRFLOW_CONN_AUDITED_KAFKA": connection(conn_type="kafka", extra=kafka.config),
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3",
    }
    airflow = Airflow(folder / "airflow", extra_environment=environment, guarded=True)
    give_database(airflow, airflow_database)
    discovery = ConsulCluster(consul, CLUSTER, f"{CLUSTER}-service")
    before = dict(os.environ)
    try:
        RunningAirflow(airflow, None, discovery, clusters).write(2)  # type: ignore[arg-type]
        airflow.start()
        with AirflowApi(airflow.url, "admin", airflow.passwords()["admin"]) as api:
            world = RunningAirflow(airflow, api, discovery, clusters)
            world.eventually(lambda: api.has_dag(DAG), "the DAG is parsed")
            api.set_paused(DAG, False)
            world.eventually(lambda: api.runs(DAG), "a run began")
            yield world
    finally:
        airflow.stop()
        for number in (1, 2, 3):
            submission = Submission.from_dict(discovery.jobs.submission(f"{CLUSTER}-{number}"))
            if submission is not None and submission.process is not None:
                submission.process.kill()
        os.environ.clear()
        os.environ.update(before)


def test_a_live_consumers_task_is_deferred_named_after_it_and_shows_its_log(world: RunningAirflow):
    world.live(1)
    world.live(2)
    task = world.task(1)
    assert task["rendered_map_index"] == f"{CLUSTER}-1"
    log = world.api.log(DAG, world.run, "consumer", 0, task["try_number"])
    assert f"light consumer {CLUSTER}-1 begins" in log


@pytest.mark.parametrize("state", ["failed", pytest.param("success", marks=only_long)])
def test_marking_a_deferred_task_stops_its_job_in_order_and_clearing_brings_it_back(
    world: RunningAirflow, state: str
):
    other = world.live(2)
    before = world.live(1)
    submission = world.submission(1)
    world.mark(1, state)
    world.stopped_in_order(submission)
    assert world.task(1)["state"] == state
    world.clear(1)
    assert world.live(1, other_than=before) != before
    assert world.live(2) == other


def test_clearing_a_deferred_task_restarts_its_job_in_order(world: RunningAirflow):
    before = world.live(1)
    submission = world.submission(1)
    world.clear(1)
    world.live(1, other_than=before)
    world.stopped_in_order(submission)


def test_a_consumer_that_dies_is_submitted_again_in_the_same_try(world: RunningAirflow):
    before, other = world.live(1), world.live(2)
    tries = world.task(1)["try_number"]
    process = world.submission(1).process
    assert process is not None
    process.kill()
    world.live(1, other_than=before)
    assert world.live(2) == other
    task = world.task(1)
    assert task["try_number"] == tries
    assert task["max_tries"] <= tries + 20, "nobody reads of a million tries"
    log = world.api.log(DAG, world.run, "consumer", 0, tries)
    assert "its driver process has ended" in log


def test_consumer_that_cannot_start_fails_once_and_calls_on_stuck(world: RunningAirflow):
    dag = f"muster_consumers__{REFUSED}"
    world.api.set_paused(dag, False)

    def paused() -> bool:
        return bool(world.api.request("GET", f"/dags/{dag}")["is_paused"])

    def failed() -> bool:
        return [run["state"] for run in world.api.runs(dag)] == ["failed"]

    world.eventually(failed, "the run has failed")
    world.eventually(paused, "Airflow begins no further run")
    [run] = world.api.runs(dag)
    [task] = world.api.task_instances(dag, run["dag_run_id"])
    assert (task["state"], task["try_number"]) == ("failed", 1)
    assert "this is the reason" in world.api.log(dag, run["dag_run_id"], "consumer", 0, 1)
    world.eventually(
        world.notified_file.exists, "the notifier was called, which is after the task has failed"
    )
    notified = world.notified_file.read_text()
    assert notified.count(f"{dag}: consumer {REFUSED}-1 cannot start: its driver exited with code 2") == 1


@only_long
def test_a_changed_number_of_consumers_takes_effect_in_the_run_that_is_under_way(world: RunningAirflow):
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


def test_pausing_and_failing_the_run_stops_all_consumers_in_order(world: RunningAirflow):
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


@pytest.fixture(scope="module")
def foreign(
    zookeeper: ZooKeeperSettings, consul: ConsulSettings, kafka: KafkaSettings, eventually: Eventually
) -> Iterator[ForeignConsumers]:
    """The consumers of the audited cluster."""
    consumers = ForeignConsumers(AUDITED, f"{AUDITED}-group", zookeeper, consul, kafka, eventually)
    yield consumers
    consumers.close()


def note(world: RunningAirflow, part: str) -> dict[str, Any]:
    """Wait for a run of the coordinator whose note has `part`."""

    def noted() -> dict[str, Any] | None:
        runs = world.api.runs(COORDINATOR, 100)
        return next((run for run in runs if part in (run["note"] or "")), None)

    found: dict[str, Any] = world.eventually(noted, f"a run whose note says {part!r}")
    return found


def question(world: RunningAirflow, consumer: str, other_than: str = "") -> dict[str, Any]:
    """Wait until a run other than that one asks a person about a consumer; the question.

    On a busy machine others are asked about as well: each that takes longer than `stuck_after`.
    """
    subject = f"Isolate {consumer} of cluster {AUDITED}?"

    def asked() -> dict[str, Any] | None:
        found = world.api.request("GET", f"/dags/{STUCK}/dagRuns/~/hitlDetails")["hitl_details"]
        waiting = [each for each in found if each["subject"] == subject and not each["response_received"]]
        return next((w for w in waiting if w["task_instance"]["dag_run_id"] != other_than), None)

    def runs() -> str:
        return "; ".join(world.task_states(STUCK, run["dag_run_id"]) for run in world.api.runs(STUCK))

    found: dict[str, Any] = world.eventually(asked, f"a question about {consumer} is put", runs)
    return found


def choose(world: RunningAirflow, asked: dict[str, Any], option: str) -> None:
    """Answer a question, as a person does on the page."""
    run, index = (asked["task_instance"][key] for key in ("dag_run_id", "map_index"))
    path = f"/dags/{STUCK}/dagRuns/{run}/taskInstances/ask/{index}/hitlDetails"
    world.api.request("PATCH", path, json={"chosen_options": [option], "params_input": {}})


def answer(world: RunningAirflow, asked: dict[str, Any]) -> dict[str, Any]:
    """Wait until the run that asked is over; what came of the question."""
    run, index = (asked["task_instance"][key] for key in ("dag_run_id", "map_index"))
    world.eventually(
        lambda: world.api.run_state(STUCK, run) == "success",
        "the question's run is over",
        lambda: world.task_states(STUCK, run),
    )
    path = f"/dags/{STUCK}/dagRuns/{run}/taskInstances/ask/xcomEntries/return_value"
    entry = world.api.request("GET", path, params={"map_index": index, "deserialize": True})
    found: dict[str, Any] = entry["value"]
    return found


def test_run_notes_its_actions_and_asks_a_person_about_a_stuck_consumer(
    world: RunningAirflow, foreign: ForeignConsumers, zookeeper: ZooKeeperSettings, kafka: KafkaSettings
):
    discovery = foreign.discovery
    admin = AdminClient(dict(kafka.config))
    admin.create_topics([NewTopic(TOPIC, 4, 1)])[TOPIC].result(20)
    frozen = foreign.start("one")
    world.eventually(
        lambda: world.api.has_dag(COORDINATOR) and world.api.has_dag(STUCK), "the DAGs are parsed"
    )
    world.api.set_paused(COORDINATOR, False)
    first = note(world, "first assignment")
    assert first["state"] == "success"

    def quiet() -> bool:
        runs = world.api.runs(COORDINATOR)
        return any(run["state"] == "success" and run["note"] is None for run in runs)

    world.eventually(quiet, "a run that did nothing, and says nothing")
    # A consumer that neither answers nor lets go, with nothing in Consul that says so.
    foreign.unchecked("one")
    frozen.send_signal(signal.SIGSTOP)
    foreign.start("two")
    found = question(world, "one")
    run = found["task_instance"]["dag_run_id"]
    assert found["options"] == ["Isolate one", "Wait"]
    assert f"| {TOPIC} | Closing | close " in found["body"]
    assert "If it were isolated, 2 partition(s) would move:" in found["body"]
    assert note(world, "isolate it")["state"] == "failed"
    asked = f"TaskInstance Finished: dag_id={STUCK}, task_id=ask, run_id={run},"
    world.eventually(
        lambda: asked in world.airflow.scheduler.log.read_text(),
        "Airflow knows that the process that put the question has ended",
    )
    choose(world, found, "Isolate one")
    assert answer(world, found) == {"consumer": "one", "answer": "isolated", "by": "admin"}
    assert discovery.overrides.isolated()["one"].by == "admin"
    note(world, "one was isolated by admin")
    with TopicStore(zookeeper, AUDITED, read_only=True) as store:
        levers = [
            record.entry for record in store.history().records if isinstance(record.entry, CommandEntry)
        ]
    assert [(lever.who, lever.what, lever.details, lever.via) for lever in levers] == [
        ("admin", "isolate", {"consumer": "one"}, f"{STUCK} {run}")
    ]
    [event] = world.api.asset_events(STUCK)
    assert (event["extra"]["who"], event["extra"]["lever"]) == ("admin", "isolate")

    # Back again, it holds up what it is to start; somebody else isolates it, and the question closes by itself.
    discovery.overrides.restore("one")
    later = question(world, "one", other_than=run)
    discovery.overrides.isolate("one", by="ann", why="does not answer", at=time.time())
    assert answer(world, later) == {"consumer": "one", "answer": "obsolete", "by": None}


def test_pruning_deletes_quiet_runs_with_their_logs_and_keeps_what_did_something(world: RunningAirflow):
    kept = {run["dag_run_id"] for run in world.api.runs(COORDINATOR, 100) if run["note"]}
    assert kept
    world.api.set_paused(COORDINATOR, True)
    finished = {"success", "failed"}
    # A run that the pause has caught half-way stays as it is. One that the scheduler was just bringing to its end may
    # end yet: PostgreSQL, unlike SQLite, lets two write at the same time. So all is read at once.
    before = [run for run in world.api.runs(COORDINATOR, 100) if run["state"] in finished]
    last = max(run["end_date"] for run in before)
    quiet = {run["dag_run_id"] for run in before if run["state"] == "success" and not run["note"]}
    assert quiet
    others = {run["dag_run_id"] for dag in (DAG, STUCK) for run in world.api.runs(dag)}
    logs = world.airflow.data_dir / "logs" / f"dag_id={COORDINATOR}"
    assert all((logs / f"run_id={run}").is_dir() for run in quiet)
    world.eventually(
        lambda: time.time() > datetime.fromisoformat(last).timestamp() + 1, "the last of them is old enough"
    )
    run = world.api.trigger("muster_pruning")  # on from the beginning: a run of a paused DAG would not start
    world.eventually(lambda: world.api.run_state("muster_pruning", run) in finished, "pruning is over")
    states = {ti["task_id"]: ti["state"] for ti in world.api.task_instances("muster_pruning", run)}
    assert states == {"prune_runs": "success", "prune_logs": "success"}
    left = {run["dag_run_id"] for run in world.api.runs(COORDINATOR, 100)}
    assert not left & quiet
    assert kept <= left
    assert not any((logs / f"run_id={run}").exists() for run in quiet)
    # More may have come: a consumer that was isolated still holds things up when the coordinator looks next; the run
    # that this starts finds nobody to ask about.
    assert others <= {run["dag_run_id"] for dag in (DAG, STUCK) for run in world.api.runs(dag)}
