"""A rolling upgrade, and the way back: two versions of Muster, of which each coordinates consumers of the other.

The version before is built from the commit that was the first that could be installed. Only with
MUSTER_TEST_INSTALL=long.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest

from devstack.airflow import ROOT
from devstack.command import run_to_end
from tests.conftest import Eventually
from tests.install.conftest import LONG, python_of
from tests.install.proof import write
from tests.install.world import (
    Installation,
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

BEFORE = "928abbf"
"""The commit whose version is upgraded."""
PYTHON = "3.12"
"""The one on which `test_install` installs nothing."""


@pytest.fixture
def old_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("before")
    git = shutil.which("git") or "git"
    archive = subprocess.run([git, "-C", ROOT, "archive", BEFORE], capture_output=True, check=False)
    if archive.returncode:
        pytest.fail(f"the history of this checkout has no commit {BEFORE}: git fetch --unshallow brings it")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    environment = os.environ | {"PYTHONPATH": f"{folder}/include:{folder}"}
    run_to_end([sys.executable, "-m", "devstack.wheel"], "no wheel of it", env=environment, cwd=folder)
    return next((folder / "dist").glob("muster-*.whl"))


@pytest.fixture
def world(
    old_wheel: Path, servers: Servers, tmp_path: Path, eventually: Eventually
) -> Iterator[Installation]:
    with (
        environment_of(PYTHON, python_of(PYTHON), old_wheel) as installed,
        airflow_of(installed, "upgraded", servers, tmp_path, eventually) as made,
    ):
        yield made


def test_versions_replace_each_other_one_by_one(
    world: Installation, wheel: Path, old_wheel: Path, servers: Servers
) -> None:
    log = CommitLog(servers.kafka.bootstrap_servers, world.name, world.name)
    log.start()
    try:
        begins(world)
        assert speak(world) == [None, None]
        leave = max(replaces(world, log, [None, None], [None, None]))
        installations = [installs(world, log, wheel)]
        upgraded = replaces(world, log, [None, 2], [2, 2])
        installations.append(installs(world, log, old_wheel))
        back = replaces(world, log, [2, None], [None, None])
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


def replaces(world: Installation, log: CommitLog, *versions: list[int | None]) -> list[float]:
    """Replace both consumers, one by one; after each they speak these versions of the protocol.

    Returns the seconds for which a partition paused at the longest, for each.
    """
    pauses = []
    for number, expected in zip((2, 1), versions, strict=True):
        pauses.append(paused(log, lambda number=number: leaves_and_returns(world, number)))  # type: ignore[misc]
        assert sorted(speak(world), key=str) == sorted(expected, key=str)
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


def speak(world: Installation) -> list[int | None]:
    """The versions of the protocol that the consumers say they speak."""
    return [status.get("protocol") for status in statuses(world)]


def statuses(world: Installation) -> list[dict[str, object]]:
    known = json.loads(world.muster("status", "--cluster", world.name, "--json"))["consumers"]
    return [
        httpx.get(f"http://{each['address']}/status", timeout=5, trust_env=False).json() for each in known
    ]
