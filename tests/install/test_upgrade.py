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
PYTHON = "3.13"


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
        leave = paused(log, lambda: leaves_and_returns(world))

        before = processes(world)
        pauses = [paused(log, lambda: installs(world, wheel))]
        assert processes(world) == before, "an upgrade of Airflow starts no consumer again"
        replaces(world, log, pauses, [None, 2], [2, 2])

        before = processes(world)
        pauses.append(paused(log, lambda: installs(world, old_wheel)))
        assert processes(world) == before, "nor does the way back"
        replaces(world, log, pauses, [2, None], [None, None])
        proof = all_arrived(world)
    finally:
        log.stop()
    print(f"upgrade: a leave paused a partition for {leave:.2f} s, the steps for {pauses}")
    write(upgrade=[proof])
    assert not log.steps_back
    assert proof.duplicates == 0
    assert max(pauses) <= 2 * leave


def replaces(world: Installation, log: CommitLog, pauses: list[float], *versions: list[int | None]) -> None:
    """Replace both consumers, one by one; after each they speak these versions of the protocol."""
    for number, expected in zip((2, 1), versions, strict=True):
        pauses.append(paused(log, lambda number=number: leaves_and_returns(world, number)))  # type: ignore[misc]
        assert sorted(speak(world), key=str) == sorted(expected, key=str)


def installs(world: Installation, wheel: Path) -> None:
    """Install another version over the one that is there, as people do, while the consumers go on."""
    world.airflow.stop()
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--reinstall"]
    run_to_end([*install, "--python", world.installed.python, wheel], "it cannot be installed")
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


def speak(world: Installation) -> list[int | None]:
    """The versions of the protocol that the consumers say they speak."""
    return [status.get("protocol") for status in statuses(world)]


def statuses(world: Installation) -> list[dict[str, object]]:
    known = json.loads(world.muster("status", "--cluster", world.name, "--json"))["consumers"]
    return [
        httpx.get(f"http://{each['address']}/status", timeout=5, trust_env=False).json() for each in known
    ]
