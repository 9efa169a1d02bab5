"""What is installed, and the servers that it uses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devstack.wheel import build_wheel, find_python
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.install.proof import FILE
from tests.install.world import Servers

LONG = os.environ.get("MUSTER_TEST_INSTALL") == "long"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    FILE.unlink(missing_ok=True)
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def servers(
    airflow_database: Path, zookeeper: ZooKeeperSettings, consul: ConsulSettings, kafka: KafkaSettings
) -> Servers:
    return Servers(zookeeper, consul, kafka, airflow_database)


def python_of(version: str) -> Path:
    """A Python of this version; without one the test is skipped, or fails where all have to be there."""
    python = find_python(version)
    if python is None:
        reason = f"Python {version} is not on this machine"
        (pytest.fail if LONG else pytest.skip)(reason)
    return python
