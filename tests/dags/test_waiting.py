"""Where coordinators wait: in their tasks while there are slots enough, else in triggers that share a watch."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.airflow import watcher
from muster.airflow.waiting import LONGEST, QUIET_RUN, ChangeTrigger, in_task, quiet_wait
from muster.core.model import Membership
from muster.edges.consul import Members, StopRequest, WaitIndex
from muster.settings.clusters import Clusters, load_clusters

ENTRY = (
    "{{consul_service: {0}, group_id: {0}, topics: [t], long_poll_timeout: 20s, consumers: {{handler: a.b}}}}"
)


def clusters(path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> Clusters:
    file = path / "clusters.yaml"
    file.write_text("clusters:\n" + "".join(f"  c{n}: {ENTRY.format(f'c{n}')}\n" for n in range(number)))
    monkeypatch.setenv("MUSTER_CLUSTERS", str(file))
    return load_clusters()


@pytest.mark.parametrize(("number", "waits"), [(1, True), (5, True), (6, False), (100, False)])
def test_clusters_wait_in_their_tasks_while_slots_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, waits: bool
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__PARALLELISM", "8")
    found = clusters(tmp_path, number, monkeypatch)
    assert in_task(found) is waits
    at_most = max(20.0, number * QUIET_RUN)
    waits = [quiet_wait(found, found["c0"]) for _ in range(100)]
    assert at_most / 2 <= min(waits) < 0.6 * at_most < 0.9 * at_most < max(waits) <= at_most
    assert quiet_wait(clusters(tmp_path, 1000, monkeypatch), found["c0"]) <= LONGEST


class Consul:
    """What is seen in Consul changes when `change` is called."""

    def __init__(self) -> None:
        self.seen = 1
        self.waiting = 0
        self._changed = threading.Condition()

    def __call__(self, *_: object, **__: object) -> Consul:
        return self

    def change(self) -> None:
        with self._changed:
            self.seen += 1
            self._changed.notify_all()

    def wait(self, index: WaitIndex, timeout: float) -> WaitIndex:
        with self._changed:
            self.waiting += 1
            self._changed.wait_for(lambda: str(self.seen) != index.seen_health, min(timeout, 5.0))
            return WaitIndex(seen_health=str(self.seen), seen_keys="k")

    @property
    def catalog(self) -> Consul:
        return self

    jobs = catalog

    def stop_requests(self) -> dict[str, StopRequest]:
        return {}

    def members(self) -> Members:
        return Members(Membership(live={}), {})


@pytest.fixture
def consul(monkeypatch: pytest.MonkeyPatch) -> Consul:
    async def no_settings(_: str) -> None:
        return None

    consul = Consul()
    monkeypatch.setattr(watcher, "ConsulCluster", consul)
    monkeypatch.setattr(watcher, "aconsul_settings", no_settings)
    return consul


def trigger(seen: str, seconds: float, due: bool = False) -> ChangeTrigger:
    watched = {"cluster": "c", "service": "s", "connection": "k", "prefix": "muster"}
    made = ChangeTrigger(watched, [seen, "k"], time.time() + seconds, due)
    _, arguments = made.serialize()
    return ChangeTrigger(**arguments)


async def fired(trigger: ChangeTrigger) -> Any:
    async for event in trigger.run():
        return event.task_instance_state
    raise AssertionError("the trigger ended without an event")


def test_triggers_of_a_cluster_fire_at_a_change_and_share_one_watch(consul: Consul) -> None:
    async def scenario() -> list[Any]:
        waiting = [asyncio.create_task(fired(trigger("1", 60))) for _ in range(20)]
        await until(lambda: consul.waiting >= 2)
        assert len(watcher._watches) == 1
        assert not any(task.done() for task in waiting)
        consul.change()
        return await asyncio.wait_for(asyncio.gather(*waiting), 10)

    assert asyncio.run(scenario()) == ["success"] * 20


def test_change_before_the_trigger_begins_is_not_missed(consul: Consul) -> None:
    consul.change()
    assert asyncio.run(asyncio.wait_for(fired(trigger("1", 60)), 10)) == "success"


@pytest.mark.parametrize(("due", "state"), [(True, "success"), (False, "skipped")])
def test_trigger_fires_when_the_time_is_over(consul: Consul, due: bool, state: str) -> None:
    assert asyncio.run(asyncio.wait_for(fired(trigger("1", 0.5, due)), 10)) == state


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
