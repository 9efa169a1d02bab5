"""One consumer's life under the operator and its trigger: real Consul, real processes, a real `spark-submit`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowRuntimeError,
    AirflowSkipException,
    TaskDeferred,
)
from airflow.sdk.execution_time.comms import ErrorResponse

from muster.airflow import trigger as module
from muster.airflow import watcher
from muster.airflow.failures import AGAIN, AGAIN_AFTER_FAILED_START
from muster.airflow.processes import Life, ProcessRef, this_host
from muster.airflow.stopping import BY_AIRFLOW
from muster.airflow.trigger import ConsumerTrigger
from muster.edges.consul import ConsulCluster
from tests.conftest import Eventually
from tests.dags.conftest import WriteClusters
from tests.support.only_long import only_long
from tests.support.operator_task import Task, first_event

pytestmark = [pytest.mark.spark, pytest.mark.airflow]


def runs(pid: int) -> bool:
    """Whether `pid` runs; who has ended and waits to be reaped does not."""
    process = ProcessRef.of(this_host(), pid)
    return process is not None and process.life() is Life.RUNNING


@pytest.fixture
def make(
    light_connections: None,
    write_clusters: WriteClusters,
    discovery: ConsulCluster,
    cluster_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., Task]]:
    """Make a cluster with one light consumer; whatever it started is ended with the test."""
    monkeypatch.setenv("AIRFLOW__LOGGING__BASE_LOG_FOLDER", str(tmp_path / "logs"))
    made: list[Task] = []

    def make_life(
        task_state: str = "running", consumers: dict[str, Any] | None = None, **options: Any
    ) -> Task:
        write_clusters(cluster_name, consumers={"handler_options": options} | (consumers or {}))
        life = Task(cluster_name, discovery, task_state)
        made.append(life)
        return life

    yield make_life
    for log in (tmp_path / "logs").rglob("*.log"):
        for process in psutil.process_iter(["environ"]):
            if log.stem in ((process.info["environ"] or {}).get("MUSTER_CONSUMER") or ""):
                with suppress(psutil.Error):
                    process.kill()
    for life in made:
        discovery.catalog.deregister(life.consumer)


def test_live_consumer_goes_on_whatever_becomes_of_its_trigger_and_is_adopted(
    make, write_clusters, cluster_name, capsys, monkeypatch
):
    life = make(
        consumers={"each": {f"{cluster_name}-1": {"weight": 2.5, "zone": "b", "topics": ["flights"]}}}
    )
    trigger = life.execute()
    assert life.registered()
    live = life.discovery.catalog.members().membership.live[life.consumer]
    assert (live.weight, live.zone, live.topics) == (2.5, "b", {"flights"})
    leader = life.submission.process
    assert leader is not None
    assert leader.life() is Life.RUNNING
    assert os.getsid(leader.pid) == leader.pid != os.getsid(0), "it has a session of its own"
    assert os.getpgid(life.driver) == leader.pid
    assert f"light consumer {life.consumer} begins" in capsys.readouterr().out, "its log is in the task's log"
    assert "MUSTER_CONSUMER" not in " ".join(psutil.Process(leader.pid).cmdline())

    lost = ConsumerTrigger(**trigger.serialize()[1])
    with monkeypatch.context() as patched:
        with_task(lost, life, patched, "deferred")
        asyncio.run(lost.on_kill())
    assert life.registered(), "a triggerer that lost its trigger to another stops nothing"
    assert life.discovery.jobs.stop_request(life.consumer) is None

    monkeypatch.setattr(module, "RECOUNT", 0.5)
    assert trigger.instances == 1
    write_clusters(life.operator.cluster, count=2)
    event = asyncio.run(asyncio.wait_for(first_event(trigger), 30))
    assert event == {"more": 2}, "more consumers in the settings have the task scheduled again"
    with pytest.raises(AirflowRescheduleException):
        life.operator.execute_complete(life.context, event)
    assert life.execute().incarnation == trigger.incarnation

    first = life.submission
    life.context = {"ti": life.task_instance("try-2")}
    adopting = life.execute()
    assert life.submission.incarnation == first.incarnation == adopting.incarnation, "the next try adopts it"
    assert life.submission.pid == first.pid
    assert life.submission.watch.id == "try-2"


def test_sigterm_to_the_whole_group_reaches_the_driver_only(make, eventually: Eventually):
    life = make()
    life.execute()
    leader = life.submission.process
    assert leader is not None
    os.killpg(leader.pid, signal.SIGTERM)
    eventually(lambda: leader.life() is Life.ENDED, 20)
    assert not life.registered()
    assert "leaves in order" in Path(life.submission.log).read_text()


def test_starting_consumer_is_waited_for_and_not_submitted_twice(make, eventually: Eventually):
    life = make()
    other = Task(life.operator.cluster, life.discovery)
    starting = threading.Thread(target=life.execute, daemon=True)
    starting.start()
    eventually(lambda: life.discovery.jobs.submission(life.consumer), 20)
    assert not life.registered()
    trigger = other.execute()
    starting.join(30)
    assert trigger.incarnation == life.submission.incarnation
    assert len(list(Path(life.submission.log).parent.iterdir())) == 1


@contextmanager
def scheduled_again(after: timedelta, reason: str) -> Iterator[None]:
    """Expect the task to be scheduled again after that time, in the same try, for a reason that is logged."""
    now = datetime.now(UTC)
    with pytest.raises(AirflowRescheduleException) as raised:
        yield
    assert now + after <= raised.value.reschedule_date < datetime.now(UTC) + after + timedelta(seconds=1)
    assert re.search(reason, str(raised.value.__cause__))


def test_failed_start_is_scheduled_again_early_with_the_end_of_its_log(make):
    life = make(fail=1)
    began = time.monotonic()
    with scheduled_again(AGAIN_AFTER_FAILED_START, r"did not come up: .* has ended(.|\n)*this is the reason"):
        life.operator.execute(life.context)
    assert time.monotonic() - began < 40, "that is startup_timeout"


def test_consumer_whose_settings_are_refused_fails_for_good(make):
    life = make(fail=2)
    with pytest.raises(AirflowFailException, match=r"exited with code 2(.|\n)*this is the reason"):
        life.operator.execute(life.context)


@pytest.mark.parametrize(
    ("connection", "spark_conf", "complaint"),
    [
        ({"host": "local[1]"}, {"spark.driver.memory": "nonsense"}, "Invalid maximum heap size"),
        pytest.param({"host": "bogus"}, {}, "Master must either be yarn", marks=only_long),
        pytest.param(
            {"host": "local[1]", "extra": {"deploy-mode": "bogus"}},
            {},
            "--deploy-mode must be either",
            marks=only_long,
        ),
    ],
)
def test_submission_that_spark_submit_refuses_fails_for_good(
    make, monkeypatch, connection, spark_conf, complaint
):
    life = make(consumers={"spark_conf": spark_conf})
    monkeypatch.setenv("AIRFLOW_CONN_MUSTER_SPARK", json.dumps({"conn_type": "spark", **connection}))
    with pytest.raises(AirflowFailException, match=complaint):
        life.operator.execute(life.context)


def test_consumer_without_its_application_fails_for_good(make, monkeypatch):
    life = make()
    monkeypatch.setenv("MUSTER_APPLICATION", "/none/consume.py")
    with pytest.raises(AirflowFailException, match=r"there is no application /none/consume\.py; correct"):
        life.operator.execute(life.context)


def test_consumer_whose_cluster_is_gone_from_the_settings_fails_for_good(make, write_clusters):
    life = make()
    write_clusters("other")
    with pytest.raises(AirflowFailException, match=r"no cluster '.*'; there are: other"):
        life.operator.execute(life.context)


@only_long
def test_consumer_that_never_registers_is_ended_after_its_startup_timeout(
    make, eventually: Eventually, tmp_path, monkeypatch
):
    silent = tmp_path / "silent.py"
    silent.write_text("import time\nprint('waiting for nothing', flush=True)\ntime.sleep(600)\n")
    monkeypatch.setenv("MUSTER_APPLICATION", str(silent))
    life = make(consumers={"startup_timeout": "6s"})
    with scheduled_again(AGAIN_AFTER_FAILED_START, r"is not in Consul(.|\n)*waiting for nothing"):
        life.operator.execute(life.context)
    leader = life.submission.process
    assert leader is not None
    eventually(lambda: leader.life() is Life.ENDED, 10)


def test_a_missing_spark_connection_fails_for_good_and_is_named(make, monkeypatch):
    life = make()
    monkeypatch.delenv("AIRFLOW_CONN_MUSTER_SPARK")
    with pytest.raises(AirflowFailException, match="no Airflow connection 'muster_spark'"):
        life.operator.execute(life.context)


def test_the_trigger_fires_when_the_driver_dies_and_the_consumer_is_submitted_again_at_once(
    make, capsys: pytest.CaptureFixture[str]
):
    life = make(exit_after=3)
    trigger = life.execute()
    event = asyncio.run(asyncio.wait_for(first_event(trigger), 30))
    assert event["why"] == "its driver process has ended"
    assert event["stopped_by"] is None
    with pytest.raises(TaskDeferred) as deferred:
        life.operator.execute_complete(life.context, event)
    assert deferred.value.trigger.incarnation != trigger.incarnation
    assert re.search(
        r"driver process has ended(.|\n)*light consumer dies, as it was told", capsys.readouterr().out
    )


def test_consumer_that_a_person_stopped_ends_as_skipped(make):
    life = make()
    trigger = life.execute()
    event = asyncio.run(event_after_stop(trigger, life, "anna", "new hardware"))
    with pytest.raises(AirflowSkipException, match=r"stopped by anna: new hardware\. Clear this task"):
        life.operator.execute_complete(life.context, event)


def test_consumer_that_a_person_stops_while_it_starts_ends_as_skipped(make, eventually: Eventually):
    life = make()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            life.operator.execute(life.context)
        except BaseException as error:
            raised.append(error)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    note = eventually(lambda: life.discovery.jobs.submission(life.consumer), 20)
    life.discovery.jobs.request_stop(life.consumer, note["incarnation"], "anna", "a mistake")
    running.join(40)
    assert isinstance(raised[0], AirflowSkipException)
    assert "stopped by anna: a mistake" in str(raised[0])


@only_long
def test_consumer_that_another_try_stopped_is_submitted_again_at_once(make):
    life = make()
    trigger = life.execute()
    event = asyncio.run(event_after_stop(trigger, life, f"{BY_AIRFLOW}d, run", "cleared"))
    with pytest.raises(TaskDeferred) as deferred:
        life.operator.execute_complete(life.context, event)
    assert deferred.value.trigger.incarnation != trigger.incarnation
    assert life.registered()


def test_stopping_consumer_is_waited_for_before_the_next_is_submitted(make):
    life = make()
    first = life.execute()
    life.discovery.jobs.request_stop(life.consumer, first.incarnation, f"{BY_AIRFLOW}d, run", "cleared")
    second = life.execute()
    assert second.incarnation != first.incarnation
    logs = {path.stem: path.read_text() for path in Path(first.log_file).parent.iterdir()}
    assert "leaves in order" in logs[first.incarnation]


@only_long
def test_a_frozen_one_is_lost_after_its_time_and_replaced(make, capsys):
    life = make()
    trigger = life.execute()
    frozen = psutil.Process(life.driver)
    frozen.suspend()
    event = asyncio.run(asyncio.wait_for(first_event(trigger), 60))
    assert "its check has failed for" in event["why"]
    with pytest.raises(TaskDeferred) as deferred:
        life.operator.execute_complete(life.context, event)
    assert deferred.value.trigger.incarnation != trigger.incarnation
    assert "its check fails" not in capsys.readouterr().out, "it is not waited for once more"
    assert not runs(frozen.pid)


def test_watch_serves_all_triggers_of_a_cluster(make):
    life = make()
    trigger = life.execute()

    async def scenario() -> int:
        triggers = [ConsumerTrigger(**trigger.serialize()[1]) for _ in range(50)]
        waiting = [asyncio.create_task(first_event(t)) for t in triggers]
        [watch] = await until(lambda: list(watcher._watches.values()))
        assert watch.subscribers == 50
        threads = sum(thread.name == "muster-watch" for thread in threading.enumerate())
        life.discovery.jobs.request_stop(life.consumer, trigger.incarnation, "anna", "test")
        events = await asyncio.wait_for(asyncio.gather(*waiting), 30)
        assert len({event["why"] for event in events}) == 1
        assert not watcher._watches
        return threads

    assert asyncio.run(scenario()) <= 1


async def event_after_stop(trigger: ConsumerTrigger, life: Task, who: str, why: str) -> dict[str, Any]:
    """What the trigger tells when its consumer is asked to stop."""
    waiting = asyncio.create_task(first_event(trigger))
    await until(lambda: [w for w in watcher._watches.values() if w.members])
    await asyncio.to_thread(life.discovery.jobs.request_stop, life.consumer, trigger.incarnation, who, why)
    return await asyncio.wait_for(waiting, 30)


async def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 20
    while not (value := condition()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    return value


async def killed(trigger: ConsumerTrigger, turns: int = 3) -> None:
    """What Airflow 3.3 does when a person ends the task: on_kill, cancelled again about once a second."""
    kill = asyncio.create_task(trigger.on_kill())
    for _ in range(turns):
        await asyncio.sleep(0.3)
        kill.cancel()
    with suppress(asyncio.CancelledError):
        await kill


@pytest.mark.parametrize(
    "state", ["failed", *(pytest.param(state, marks=only_long) for state in ("success", None))]
)
def test_ending_the_task_stops_the_job_in_order(make, monkeypatch, state):
    life = make()
    trigger = life.execute()
    pid = life.driver
    with_task(trigger, life, monkeypatch, state)

    async def scenario() -> None:
        await killed(trigger)
        await asyncio.wait_for(asyncio.gather(*module._stops), 60)

    asyncio.run(scenario())
    assert not runs(pid)
    assert not life.registered()
    assert "leaves in order" in Path(trigger.log_file).read_text()
    assert f"asked to stop by {BY_AIRFLOW}" in Path(trigger.log_file).read_text()


def with_task(
    trigger: ConsumerTrigger, life: Task, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    trigger._task_instance = life.task_instance("try-1")
    monkeypatch.setattr(
        module.RuntimeTaskInstance, "get_task_states", lambda **_: {"run": {"consumer_0": state}}
    )


def test_clearing_stops_even_if_the_next_try_is_deferred_already(make, monkeypatch):
    life = make()
    trigger = life.execute()
    life.context = {"ti": life.task_instance("try-2")}
    life.execute()
    with_task(trigger, life, monkeypatch, "deferred")
    asyncio.run(trigger.on_kill())
    assert not life.registered()


def test_a_triggerer_is_asked_once_before_a_person_waits_for_the_answer(make, monkeypatch):
    """Its first answer takes Airflow seconds, on a busy machine most of a minute."""
    monkeypatch.setattr(module, "_first_questions", [])
    life = make()
    trigger = life.execute()
    others = [ConsumerTrigger(**trigger.serialize()[1]) for _ in range(3)]
    asked: list[list[str]] = []

    def answer(*, run_ids: list[str], **_: Any) -> dict[str, Any]:
        asked.append(run_ids)
        raise AirflowRuntimeError(ErrorResponse())

    for each in (trigger, *others):
        each._task_instance = life.task_instance("try-1")
    monkeypatch.setattr(module.RuntimeTaskInstance, "get_task_states", answer)

    async def scenario() -> None:
        waiting = [asyncio.create_task(first_event(each)) for each in (trigger, *others)]
        await until(lambda: asked)
        life.discovery.jobs.request_stop(life.consumer, trigger.incarnation, "anna", "test")
        await asyncio.wait_for(asyncio.gather(*waiting, *module._first_questions), 30)

    asyncio.run(scenario())
    assert asked == [["run"]]


@only_long
def test_consumer_that_ignores_a_stop_request_gets_signals(make, monkeypatch):
    monkeypatch.setattr("muster.airflow.stopping.TERM_PATIENCE", 1.0)
    life = make(deaf=True, stubborn=True, consumers={"graceful_timeout": "1s"})
    trigger = life.execute()
    pid = life.driver
    asyncio.run(trigger.on_kill())
    assert not runs(pid)
    assert ProcessRef(*trigger.leader).life() is Life.ENDED


def test_a_shut_down_worker_leaves_a_starting_consumer_alone(make):
    life = make(task_state="running")
    life.operator.on_kill()
    with pytest.raises(AirflowRescheduleException):
        life.operator.execute(life.context)
    assert life.discovery.jobs.stop_request(life.consumer) is None


def test_ending_a_task_while_its_consumer_starts_stops_the_job(make, eventually: Eventually):
    life = make(task_state="failed")
    raised: list[BaseException] = []

    def run() -> None:
        try:
            life.operator.execute(life.context)
        except BaseException as error:
            raised.append(error)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    eventually(lambda: life.discovery.jobs.submission(life.consumer), 20)
    began = time.monotonic()
    life.operator.on_kill()
    running.join(20)
    assert time.monotonic() - began < 5, "Airflow kills the task's process after 5 s"
    assert "became failed" in str(raised[0])
    leader = life.submission.process
    assert leader is not None
    eventually(lambda: leader.life() is Life.ENDED, 10)


def test_consumer_is_not_submitted_while_consul_cannot_be_asked(make, monkeypatch, tmp_path):
    life = make()
    monkeypatch.setenv("AIRFLOW_CONN_MUSTER_CONSUL", '{"conn_type": "http", "host": "127.0.0.1", "port": 9}')
    with scheduled_again(AGAIN, r"Consul at http://127\.0\.0\.1:9"):
        life.operator.execute(life.context)
    assert not list((tmp_path / "logs").rglob("*.log"))


def test_a_pid_that_was_given_to_another_process_is_not_taken_for_it():
    mine = ProcessRef.of(this_host(), os.getpid())
    assert mine is not None
    assert mine.life() is Life.RUNNING
    assert ProcessRef(mine.host, mine.pid, mine.started - 60).life() is Life.ENDED
    assert ProcessRef("elsewhere", mine.pid, mine.started).life() is Life.UNKNOWN
