"""A rolling upgrade to a wheel of a higher version, and the way back. Only with MUSTER_TEST_INSTALL=long."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import muster
from devstack.command import run_to_end
from devstack.wheel import build_wheel
from tests.conftest import Eventually
from tests.install.conftest import LONG, python_of
from tests.install.proof import write
from tests.install.world import (
    Installation,
    Kind,
    Servers,
    airflow_of,
    all_arrived,
    begins,
    environment_of,
    leaves_and_returns,
)
from tests.support.commit_log import CommitLog

pytestmark = [
    *(pytest.mark.stack, pytest.mark.spark, pytest.mark.airflow, pytest.mark.timeout(1500)),
    pytest.mark.skipif(not LONG, reason="long: make test-install"),
]

PYTHON = "3.12"


HIGHER = "1.0.1"


@pytest.fixture
def higher_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("higher"), HIGHER)


@pytest.fixture
def world(wheel: Path, servers: Servers, tmp_path: Path, eventually: Eventually) -> Iterator[Installation]:
    with (
        environment_of(Kind(PYTHON), python_of(PYTHON), wheel) as installed,
        airflow_of(installed, "upgraded", servers, tmp_path, eventually) as made,
    ):
        yield made


def test_versions_replace_each_other_one_by_one(
    world: Installation, wheel: Path, higher_wheel: Path, servers: Servers
) -> None:
    log = CommitLog(servers.kafka.bootstrap_servers, world.name, world.name)
    log.start()
    try:
        begins(world)
        here, higher = muster.__version__, HIGHER
        assert versions(world) == [here, here]
        leave = max(replaces(world, log, [here, here], [here, here]))
        installations = [installs(world, log, higher_wheel)]
        upgraded = replaces(world, log, [here, higher], [higher, higher])
        installations.append(installs(world, log, wheel))
        back = replaces(world, log, [here, higher], [here, here])
        proof = all_arrived(world)
    finally:
        log.stop()
    print(f"upgrade: a leave paused a partition for {leave:.2f} s, {installations=}, {upgraded=}, {back=}")
    write(upgrade=[proof])
    assert not log.steps_back
    assert proof.duplicates == 0
    assert max(installations + upgraded) <= leave
    # On the way back each is a leave of the old version, so the longest of two is as often longer as it is shorter.
    assert max(back) <= 2 * leave


def replaces(world: Installation, log: CommitLog, *after: list[str]) -> list[float]:
    """Replace both consumers, one by one; after each they have these versions.

    Returns the seconds for which a partition paused at the longest, for each.
    """
    pauses = []
    for number, expected in zip((2, 1), after, strict=True):
        pauses.append(paused(log, lambda number=number: leaves_and_returns(world, number)))  # type: ignore[misc]
        assert sorted(versions(world)) == expected
    return pauses


def installs(world: Installation, log: CommitLog, wheel: Path) -> float:
    """Install another version, which ends no consumer and no deferred task; return the longest pause."""
    before = processes(world), deferred(world)
    pause = paused(log, lambda: install(world, wheel))
    assert (processes(world), deferred(world)) == before
    return pause


def install(world: Installation, wheel: Path) -> None:
    """Install another version over the one that is there, as people do, while the consumers go on."""
    world.airflow.stop()
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--reinstall"]
    run_to_end([*command, "--python", world.installed.python, wheel], "it cannot be installed")
    world.flows()
    world.airflow.start()
    run = world.api.runs(world.coordinator, limit=1)[0]["dag_run_id"]
    world.until(
        lambda: world.api.runs(world.coordinator, limit=1)[0]["dag_run_id"] != run,
        120,
        "the coordinator runs",
    )
    world.until(lambda: world.shared(3, 3), 60, "all is as it was")
    world.flows()
    world.muster("status", "--cluster", world.name, "--check")


def paused(log: CommitLog, act: Callable[[], None]) -> float:
    """The seconds for which a partition made no progress at the longest, while `act` went on."""
    began = time.time()
    act()
    return log.longest_pause(began, time.time())


def processes(world: Installation) -> dict[str, str]:
    """The incarnation of each consumer."""
    return {status["consumer"]: status["incarnation"] for status in statuses(world)}


def deferred(world: Installation) -> list[tuple[str, int]]:
    """The run and the try of each consumer's task, once both wait in the triggerer."""

    def tasks() -> list[tuple[str, dict[str, Any]]]:
        return [world.task(number) for number in (1, 2)]

    world.until(lambda: {task["state"] for _, task in tasks()} == {"deferred"}, 90, "both tasks are deferred")
    return [(run, task["try_number"]) for run, task in tasks()]


def versions(world: Installation) -> list[str]:
    """The versions that the consumers say they have."""
    return [str(status["version"]) for status in statuses(world)]


def statuses(world: Installation) -> list[dict[str, object]]:
    known = json.loads(world.muster("status", "--cluster", world.name, "--json"))["consumers"]
    return [
        httpx.get(f"http://{each['address']}/status", timeout=5, trust_env=False).json() for each in known
    ]
