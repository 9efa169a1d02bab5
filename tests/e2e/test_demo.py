"""The whole of `make demo` in a terminal, and what stays up when it has come to its last line."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from devstack.airflow import ROOT
from devstack.guard import guard
from devstack.leftovers import MARKER, processes_of
from devstack.stack import Stack
from muster.cli.local_stack import FILE, FOLDER
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.bare_shell import bare_shell
from tests.support.only_long import only_long

ALL_RIGHT = r"demo: produced=(\d+) arrived=\1 missing=0 duplicates=0 rebalances=\d+\s*\Z"
PARTITIONS = [("flights", partition) for partition in range(12)]


@only_long
@pytest.mark.stack
@pytest.mark.spark
@pytest.mark.airflow
@pytest.mark.timeout(3600)
def test_demo_in_a_terminal_stays_up_with_flights_that_flow_until_it_is_taken_down(
    tmp_path: Path, eventually: Eventually
) -> None:
    demo = tmp_path.resolve() / FOLDER / "demo"
    below = tmp_path / "docs" / "images"
    below.mkdir(parents=True)
    guard.watch_marker(MARKER, str(demo))
    try:
        # The terminal is closed when the demo has ended.
        command = shlex.join([sys.executable, "-m", "devstack.demo", "--folder", str(demo)])
        shown = run(below, "script", "--quiet", "--return", "--command", command, os.devnull)
        proof = re.search(ALL_RIGHT, shown)
        assert proof is not None, shown

        address, password = re.findall(r"Dashboard: (\S+)  login: admin / (\S+)", shown)[-1]
        assert clusters(address, password) == ["flights"]
        assert f"Stack in {demo}:" in devstack(demo, "status")
        assert "1 of 1 topics Stable, 3 live" in run(below, sys.executable, "-m", "muster.cli", "status")
        offsets = GroupOffsets(
            KafkaSettings(config={"bootstrap.servers": Stack(demo).kafka.address}), "flights-parquet"
        )
        produced = int(proof[1])
        eventually(
            lambda: sum(offset or 0 for offset in offsets.committed(PARTITIONS).values()) > produced,
            60,
            "more flights are read than those of the proof",
        )
        offsets.close()
    finally:
        devstack(demo, "down")
    assert not processes_of(demo)
    assert not (demo / FILE).exists(), "'muster' finds no stack any more"


def devstack(demo: Path, command: str) -> str:
    """Run `make status` or `make down`, as in the checkout that has the demo's stack."""
    return run(demo, sys.executable, "-m", "devstack", command, MUSTER_DEVSTACK_DIR=str(demo.parent))


def run(cwd: Path, *command: str, **variables: str) -> str:
    """Run a command in a shell that knows nothing of the stack; return all that it shows."""
    path = os.pathsep.join((str(ROOT / "include"), str(ROOT)))
    done = subprocess.run(
        command,
        env=bare_shell(PYTHONPATH=path, **variables),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def clusters(address: str, password: str) -> list[str]:
    """The clusters on the dashboard at `address`, for the login that the demo shows."""
    assert address.endswith("/plugin/muster")
    login = {"username": "admin", "password": password}
    with httpx.Client(base_url=address.removesuffix("/plugin/muster"), timeout=60, trust_env=False) as client:
        token = client.post("/auth/token", json=login).json()["access_token"]
        answer = client.get("/muster/api/clusters", headers={"Authorization": f"Bearer {token}"})
    return [cluster["name"] for cluster in answer.json()["clusters"]]
