"""`make up`, `make status`, `make down`: commands that end while the servers go on. `muster` finds the stack."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from devstack.guard import guard
from devstack.leftovers import MARKER, processes_of
from devstack.ports import is_free
from devstack.stack import Stack
from muster.cli.local_stack import FILE, FOLDER
from muster.settings.consumer import VARIABLE as CONSUMER
from tests.conftest import Eventually
from tests.support.bare_shell import bare_shell
from tests.support.only_long import only_long

ROOT = Path(__file__).parents[2]
PYTHONPATH = os.pathsep.join((str(ROOT / "include"), str(ROOT)))

DOWN = r"\bdown\b"
# Stands for a consumer job: at SIGTERM it writes whether ZooKeeper still answers, and ends.
CONSUMER_JOB = """
import signal, socket, sys, time
def close(*_):
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5).close()
    open(sys.argv[2], "w").write("closed")
    sys.exit()
signal.signal(signal.SIGTERM, close)
print("ready", flush=True)
time.sleep(600)
"""


@dataclass
class Commands:
    """Runs `python -m devstack` on a folder of its own."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": PYTHONPATH, "MUSTER_DEVSTACK_DIR": str(self.folder)}

    def begin(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "devstack", command],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str, code: int = 0) -> str:
        with self.begin(command) as process:
            output, _ = process.communicate(timeout=540)
        assert process.returncode == code, output
        return output

    def healthy(self) -> str:
        """Return what `make status` prints if all servers are healthy: a busy one may not answer at once."""
        with self.begin("status") as process:
            output, _ = process.communicate(timeout=540)
        return output if process.returncode == 0 else ""

    def down(self) -> int:
        """How many servers `make status` shows as down."""
        return len(re.findall(DOWN, self.run("status", code=1)))

    def muster(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Give `muster` in the folder that has `.devstack`, with nothing of an Airflow in the environment."""
        return subprocess.run(
            [sys.executable, "-m", "muster.cli", *arguments],
            env=bare_shell(PYTHONPATH=PYTHONPATH),
            cwd=self.folder.parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def servers(self) -> dict[str, dict[str, object]]:
        return dict(json.loads((self.folder / "state.json").read_text())["servers"])

    def airflow_port(self) -> object:
        return dict(self.servers()["airflow-api-server"]["ports"])["http"]  # type: ignore[call-overload]

    def pids(self) -> dict[str, int]:
        return {key: int(str(entry["pid"])) for key, entry in self.servers().items() if entry["pid"]}

    def ports(self) -> list[int]:
        return [port for entry in self.servers().values() for port in dict(entry["ports"]).values()]  # type: ignore[call-overload]


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    folder = (tmp_path / FOLDER).resolve()
    guard.watch_marker(MARKER, str(folder))
    commands = Commands(folder)
    yield commands
    commands.run("down")


@pytest.mark.stack
@pytest.mark.airflow
@only_long
def test_up_heals_and_down_leaves_nothing(commands: Commands, tmp_path: Path, eventually: Eventually) -> None:
    commands.run("up")
    pids, ports = commands.pids(), commands.ports()
    assert len(pids) == 7
    status = eventually(commands.healthy, 120, "all servers are healthy")
    assert status.count(" healthy") == 7 and "admin / " in status
    assert f"Dashboard: http://127.0.0.1:{commands.airflow_port()}/plugin/muster" in status

    found = commands.muster("status")
    assert found.returncode == 0, found.stderr
    assert f"Local stack in {commands.folder}" in found.stderr
    assert found.stdout.splitlines()[-1].startswith("status: cluster flights, 0 of 0 topics Stable, 0 live")

    assert "starting" not in commands.run("up"), "a second 'up' starts nothing"
    assert commands.pids() == pids

    for key in ("consul", "airflow-scheduler"):
        os.kill(pids[key], signal.SIGKILL)
    eventually(lambda: commands.down() == 2, 10)
    commands.run("up")
    healed = commands.pids()
    assert {key for key in pids if pids[key] != healed[key]} == {"consul", "airflow-scheduler"}
    assert commands.ports() == ports
    assert eventually(commands.healthy, 120, "all servers are healthy").count(" healthy") == 7

    zookeeper = dict(commands.servers()["zookeeper"]["ports"])["client"]  # type: ignore[call-overload]
    closed = tmp_path / "closed"
    job = subprocess.Popen(
        [sys.executable, "-c", CONSUMER_JOB, str(zookeeper), str(closed)],
        env={**os.environ, MARKER: str(commands.folder), CONSUMER: "{}"},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with job:
        assert job.stdout is not None and job.stdout.readline() == b"ready\n"
        output = commands.run("down")
    assert "1 stopped" in output and closed.read_text() == "closed", "a consumer closes while servers are up"
    assert processes_of(commands.folder) == []
    assert not any(psutil.pid_exists(pid) and _alive(pid) for pid in {*pids.values(), *healed.values()})
    assert all(is_free(port) for port in ports)
    assert commands.down() == 7
    assert not (commands.folder / FILE).exists(), "'muster' finds no stack any more"


@pytest.mark.stack
def test_status_shows_the_stack_that_runs(commands: Commands, eventually: Eventually) -> None:
    assert commands.down() == 7
    demo = Stack(commands.folder / "demo", guarded=True)
    demo.zookeeper.start()
    demo._save()
    shown = commands.run("status", code=1)
    assert shown.startswith(f"Stack in {demo.folder}:") and shown.count("Stack in") == 1
    assert shown.count("healthy") == 1 and len(re.findall(DOWN, shown)) == 6


@only_long
@pytest.mark.stack
def test_down_after_an_interrupted_up_leaves_nothing(commands: Commands, eventually: Eventually) -> None:
    with commands.begin("up") as up:
        eventually(lambda: len(processes_of(commands.folder)) >= 2, 60, "servers are being started")
        up.kill()
    assert processes_of(commands.folder)
    start = time.monotonic()
    commands.run("down")
    assert processes_of(commands.folder) == []
    assert time.monotonic() - start < 30


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
