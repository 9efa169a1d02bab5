"""One story through a running Airflow, in order: every step begins where the one before it ended.

Records flow all the while. At the end every one of them is accounted for.
"""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from devstack.airflow_api import AirflowApiError
from devstack.demo.arrivals import count_numbers
from devstack.demo.report import rebalances_of
from tests.conftest import Eventually
from tests.e2e.conftest import PARTITIONS, SHARES, TOKEN, TOPIC, RunningStack
from tests.support.only_long import only_long

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.airflow, pytest.mark.timeout(900)]

CONSUMERS = "muster_consumers__numbers"
COORDINATOR = "muster_coordinator__numbers"
ISOLATE = "muster_isolate__numbers"


def consumer_task(world: RunningStack, consumer: str) -> tuple[str, int]:
    """The present run of the consumers DAG and the map index of a consumer's task."""
    run_id = world.api.runs(CONSUMERS, limit=1)[0]["dag_run_id"]
    return run_id, world.cluster.consumer_ids().index(consumer)


def task(world: RunningStack, consumer: str) -> dict[str, Any]:
    run_id, index = consumer_task(world, consumer)
    tasks = world.api.task_instances(CONSUMERS, run_id)
    return next(task for task in tasks if task["map_index"] == index)


def task_state(world: RunningStack, consumer: str) -> str:
    return str(task(world, consumer)["state"])


def tries(world: RunningStack) -> list[int]:
    return [task(world, consumer)["try_number"] for consumer in world.cluster.consumer_ids()]


def flows(world: RunningStack, eventually: Eventually) -> None:
    """Whatever was produced by now arrives."""
    produced = world.producer.produced
    eventually(lambda: world.arrived() >= produced, 60, f"{produced} records arrive; {world.describe()}")


def carried_out(world: RunningStack, eventually: Eventually, form: dict[str, object]) -> None:
    """A person fills a form in, that of a consumer or that of all commands, and its run succeeds."""
    dag = ISOLATE if "consumer" in form else "muster_commands__numbers"
    run = world.api.trigger(dag, form)
    eventually(lambda: world.api.run_state(dag, run) == "success", 60, f"{form['command']} succeeds")


def test_unpausing_starts_consumers_and_assigns(world: RunningStack, eventually: Eventually) -> None:
    for dag in (CONSUMERS, COORDINATOR):
        eventually(lambda dag=dag: world.api.has_dag(dag), 90, f"{dag} is parsed")
        world.api.set_paused(dag, False)
    eventually(lambda: world.shares() == SHARES, 240, "2/4, as the weight in its entry under 'each' says")
    second = world.discovery.catalog.members().membership.live["numbers-2"]
    assert (second.priority, second.zone, second.topics) == (1, "b", {TOPIC})
    assert second.metadata == {"disks": "4"}
    eventually(lambda: task_state(world, "numbers-1") == "deferred", 60, "the task holds no worker slot")
    flows(world, eventually)


def test_status_pages_speak_tls_alone_and_the_coordinator_reads_them(world: RunningStack) -> None:
    """The topic is Stable, which only the pages of all its owners can say."""
    assert world.shares() == SHARES
    for consumer in SHARES:
        with pytest.raises(httpx.HTTPError):
            world.page(consumer, scheme="http")
        assert world.page(consumer, token=f"{TOKEN}x").status_code == httpx.codes.UNAUTHORIZED
        owned = {p for p, owner in world.view.owners(TOPIC).items() if owner == consumer}
        assert set(world.page(consumer).json()["topics"][TOPIC]["running"]) == owned


def test_quiet_runs_skip_advance_state(world: RunningStack, eventually: Eventually) -> None:
    def quiet() -> bool:
        done = [run for run in world.api.runs(COORDINATOR, 5) if run["state"] == "success"]
        tasks = world.api.task_instances(COORDINATOR, done[0]["dag_run_id"]) if done else []
        return any(t["task_id"] == "advance_state" and t["state"] == "skipped" for t in tasks)

    eventually(quiet, 60, "a run with nothing to do skips advance_state")


def test_pausing_the_coordinator_changes_nothing(world: RunningStack, eventually: Eventually) -> None:
    world.api.set_paused(COORDINATOR, True)

    def idle() -> bool:
        """A paused DAG's run stays 'running', but none of its tasks is started any more."""
        tasks = world.api.task_instances(COORDINATOR, world.api.runs(COORDINATOR, 1)[0]["dag_run_id"])
        return all(task["state"] not in {"running", "queued"} for task in tasks)

    eventually(idle, 60, "the tasks under way end")
    before, owners = world.incarnations(), world.view.topic(TOPIC)
    flows(world, eventually)
    assert world.incarnations() == before
    assert world.view.topic(TOPIC) == owners
    world.api.set_paused(COORDINATOR, False)


def test_isolate_and_restore_by_form(world: RunningStack, eventually: Eventually) -> None:
    form = {"command": "isolate", "consumer": "numbers-1", "reason": "disk is failing"}
    carried_out(world, eventually, form)
    eventually(lambda: world.view.shares(TOPIC) == {"numbers-2": PARTITIONS}, 60, "numbers-2 has all")
    entry = world.discovery.overrides.isolated()["numbers-1"]
    assert (entry.by, entry.why) == ("admin", "disk is failing")
    eventually(lambda: world.shares() == {"numbers-2": PARTITIONS}, 60, "Stable")
    flows(world, eventually)
    carried_out(world, eventually, form | {"command": "restore"})
    eventually(lambda: world.shares() == SHARES, 60, "2/4 again")


def test_isolating_an_unknown_consumer_is_refused(world: RunningStack, eventually: Eventually) -> None:
    form = {"command": "isolate", "consumer": "absent", "reason": "typo"}
    run = world.api.trigger(ISOLATE, form)
    eventually(lambda: world.api.run_state(ISOLATE, run) == "failed", 60, "refused")
    assert "has no consumer 'absent'" in world.api.log(ISOLATE, run, "carry_out", -1, 1)
    with pytest.raises(AirflowApiError, match="command"):
        world.api.trigger(ISOLATE, form | {"command": "insolate"})


@only_long
def test_airflow_restarts_while_consumers_go_on(world: RunningStack, eventually: Eventually) -> None:
    eventually(lambda: task_state(world, "numbers-2") == "deferred", 60, "deferred")
    before, tried = world.incarnations(), tries(world)
    under_way = world.api.runs(COORDINATOR, 1)[0]["dag_run_id"]
    world.stack.airflow.stop()
    flows(world, eventually)
    world.stack.airflow.start()
    flows(world, eventually)
    if world.stack.airflow.worker is not None:
        # A Celery worker lets its tasks end in order; the LocalExecutor's end with the scheduler.
        eventually(lambda: world.api.run_state(COORDINATOR, under_way) == "success", 60, "that run goes on")
    eventually(
        lambda: all(task_state(world, c) == "deferred" for c in ("numbers-1", "numbers-2")),
        90,
        "still deferred",
    )
    assert world.incarnations() == before, "nobody was submitted twice"
    assert tries(world) == tried
    assert world.shares() == SHARES


def test_consumer_of_the_higher_priority_has_all_with_failover(
    world: RunningStack, eventually: Eventually
) -> None:
    failover = {"command": "assignor", "assignor": "failover", "reason": "the second host is the good one"}
    carried_out(world, eventually, failover)
    eventually(lambda: world.shares() == {"numbers-2": PARTITIONS}, 60, "numbers-2 has all")
    flows(world, eventually)


def test_consumer_is_stopped_in_order_from_its_task_and_comes_back(
    world: RunningStack, eventually: Eventually
) -> None:
    """By the triggerer that took its task over when Airflow was restarted. Meanwhile the lower priority has all."""
    before = world.incarnations()
    run_id, index = consumer_task(world, "numbers-2")
    world.api.mark(CONSUMERS, run_id, "consumer", index, "failed")
    eventually(
        lambda: "numbers-2" not in world.discovery.catalog.members().registered, 90, "numbers-2 deregisters"
    )
    eventually(lambda: world.shares() == {"numbers-1": PARTITIONS}, 60, "numbers-1 takes over")
    assert world.incarnations() == {"numbers-1": before["numbers-1"]}
    flows(world, eventually)
    world.api.clear(CONSUMERS, run_id, "consumer", index)
    eventually(lambda: world.shares() == {"numbers-2": PARTITIONS}, 180, "numbers-2 gets all back")
    assert world.incarnations()["numbers-2"] != before["numbers-2"]
    assert count_numbers(world.stack.data / "numbers").read_twice == 0, "nothing so far was read twice"


def test_consumer_in_the_zone_of_the_leaders_has_more_as_far_as_that_is_tolerated(
    world: RunningStack, eventually: Eventually
) -> None:
    sticky = {"command": "assignor", "assignor": "sticky", "reason": "traffic between zones is dear"}
    carried_out(world, eventually, sticky | {"options": {"rack_tolerance": 0.5}})
    eventually(
        lambda: world.shares() == {"numbers-1": 1, "numbers-2": 5},
        60,
        "1/5: numbers-1 is in no zone, and keeps half of its two",
    )
    carried_out(world, eventually, {"command": "assignor", "reason": "as in the settings"})
    eventually(lambda: world.shares() == SHARES, 60, "2/4 again, for the weight alone")
    flows(world, eventually)


def test_the_log_of_the_driver_is_in_the_task(world: RunningStack, eventually: Eventually) -> None:
    run_id, index = consumer_task(world, "numbers-2")

    def shown() -> bool:
        attempt = task(world, "numbers-2")["try_number"]
        return "SparkContext" in world.api.log(CONSUMERS, run_id, "consumer", index, attempt)

    eventually(shown, 60, "lines of the driver's log in the task's log")


def test_every_record_is_accounted_for(world: RunningStack, eventually: Eventually) -> None:
    produced = world.producer.stop()
    eventually(lambda: world.view.lag(TOPIC) == 0, 60, "lag 0")
    arrivals = count_numbers(world.stack.data / "numbers")
    assert arrivals.rows == produced
    assert arrivals.produced_twice == 0


def test_the_audit_names_every_rebalance(world: RunningStack, eventually: Eventually) -> None:
    def told() -> list[str]:
        return [r.reason for r in rebalances_of(world.api.asset_events(COORDINATOR), TOPIC)]

    eventually(lambda: len(told()) >= 5, 30, "all events")
    reasons = " | ".join(told())
    # One that is stopped "leaves" if the coordinator's next run comes before it has waited for it for long enough.
    for reason in (
        "first assignment",
        "numbers-1 was isolated",
        "numbers-2 (leaves|left)",
        "numbers-2 joined",
    ):
        assert re.search(reason, reasons), reasons
