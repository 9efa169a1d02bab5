"""Muster in another Airflow, by the very lines of the pages: each Python, Spark and Airflow, and the lower bounds.

With LONG=1 alone on the newest Python and at pinned versions, or on the oldest Python where that is not there.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from devstack.airflow import ROOT
from devstack.leftovers import processes_of
from devstack.wheel import find_python
from muster.doctor.versions import TESTED
from tests.conftest import Eventually
from tests.install.conftest import LONG, python_of
from tests.install.proof import Proof, write
from tests.install.world import (
    Installation,
    Kind,
    Servers,
    airflow_of,
    all_arrived,
    begins,
    environment_of,
    is_isolated_and_restored,
    leaves_and_returns,
)
from tests.support.only_long import only_long

pytestmark = [
    *(pytest.mark.stack, pytest.mark.spark, pytest.mark.airflow, pytest.mark.timeout(900)),
    *(() if LONG else (only_long,)),
]

PYTHON = TESTED["Python"]
INSTALLATIONS = (
    [
        *(Kind(python, how="typed") for python in ("3.11", "3.12", "3.13")),
        *(Kind("3.11", spark, "typed") for spark in ("3.5.9", "4.1.4", "4.3.0")),
        Kind("3.13", "4.3.0", "typed"),
        Kind("3.11", how="typed", airflow="3.2"),
        Kind("3.11", how="lowest"),
    ]
    if LONG
    else [Kind(PYTHON.newest if find_python(PYTHON.newest) is not None else PYTHON.oldest)]
)


@pytest.fixture(scope="module")
def proofs() -> Iterator[list[Proof]]:
    made: list[Proof] = []
    yield made
    if len(made) == len(INSTALLATIONS):
        write(installations=made)


@pytest.fixture
def world(
    request: pytest.FixtureRequest, wheel: Path, servers: Servers, tmp_path: Path, eventually: Eventually
) -> Iterator[Installation]:
    kind = request.param
    name = f"numbers{str(kind).replace('.', '')}"
    with (
        environment_of(kind, python_of(kind.python), wheel) as installed,
        airflow_of(installed, name, servers, tmp_path, eventually) as made,
    ):
        yield made


@pytest.mark.parametrize("world", INSTALLATIONS, indirect=True, ids=str)
def test_muster_is_installed_into_an_airflow_and_loses_nothing(
    world: Installation, proofs: list[Proof]
) -> None:
    has_nothing_of_the_checkout(world)
    brings_plugin_and_connection_types(world)
    begins(world)
    has_nothing_of_the_checkout(world)
    answers(world)
    leaves_and_returns(world)
    is_isolated_and_restored(world)
    lacks_no_name(world)
    proof = all_arrived(world)
    proofs.append(proof)
    assert proof.duplicates == 0


def has_nothing_of_the_checkout(world: Installation) -> None:
    """No process of Airflow's, and no job, has a path into the checkout."""
    there = processes_of(world.folder)
    assert there
    for process in there:
        try:
            environment, command = process.environ(), process.cmdline()
        except psutil.NoSuchProcess:
            continue  # a task that has ended
        seen = [*command, *(environment.get(name, "") for name in ("PYTHONPATH", "SPARK_HOME"))]
        assert not [each for each in seen if str(ROOT) in each], seen
    code = "import muster, numbers_store, sys; print(muster.__file__, numbers_store.__file__, *sys.path)"
    done = subprocess.run(
        [world.installed.python, "-c", code],
        env=os.environ | world.airflow.environment(),
        cwd=world.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(ROOT) not in done.stdout
    assert done.stdout.startswith(str(world.installed.python.parents[1]))


def lacks_no_name(world: Installation) -> None:
    """Nothing in Airflow's logs has looked for a name that another version of a package has."""
    lacking = re.compile("AttributeError|ImportError|ModuleNotFoundError")
    logs = [log.read_text(errors="replace") for log in world.airflow.data_dir.rglob("*.log")]
    assert logs
    assert not [line for log in logs for line in log.splitlines() if lacking.search(line)]


def brings_plugin_and_connection_types(world: Installation) -> None:
    plugins = world.api.request("GET", "/plugins")["plugins"]
    assert any(plugin["listeners"] for plugin in plugins if plugin["name"] == "muster")
    assert world.api.request("GET", "/plugins/importErrors")["total_entries"] == 0
    providers = world.api.request("GET", "/providers", params={"limit": 100})["providers"]
    assert "muster-kafka" in {provider["package_name"] for provider in providers}
    types = {each["connection_type"]: each for each in world.page("/ui/connections/hook_meta")}
    assert types["zookeeper"]["extra_fields"].keys() >= {"use_ssl", "acl"}
    assert types["consul"]["standard_fields"]["password"]["title"] == "ACL token"
    for kind, port in (("zookeeper", 9), ("consul", None)):
        value = json.loads(world.airflow.extra_environment[f"AIRFLOW_CONN_MUSTER_{kind.upper()}"])
        asked = {"connection_id": "tried", **value}
        assert world.api.request("POST", "/connections/test", json=asked)["status"] is True
        asked |= {"host": "127.0.0.1:9", "port": port} if kind == "zookeeper" else {"port": 9}
        assert world.api.request("POST", "/connections/test", json=asked)["status"] is False


def answers(world: Installation) -> None:
    """The page and the command line say what there is."""
    [cluster] = world.page("/muster/api/clusters")["clusters"]
    assert cluster["name"] == world.name
    status = json.loads(world.muster("status", "--cluster", world.name, "--check", "--json"))
    assert [each["state"] for each in status["topics"]] == ["Stable"]
    assert "0 failed" in world.muster("doctor")
