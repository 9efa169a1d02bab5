"""One Spark driver for all tests that need one in their own process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from devstack.connector import connector_jar
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from tests.support.state_query import Make, StateQuery

INCLUDE = Path(__file__).resolve().parents[2] / "include"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    place = tmp_path_factory.mktemp("spark")
    # Spark's Python processes are started by the JVM: they find the interpreter and `muster` by these.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(INCLUDE), os.environ.get("PYTHONPATH")]))
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", str(connector_jar()))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", str(place / "warehouse"))
        .config("spark.local.dir", str(place / "local"))
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def state_query(spark: SparkSession, kafka: KafkaSettings, group: GroupOffsets) -> Make:
    """Makes queries with state by key, all of one group."""
    return partial(StateQuery, spark, kafka, group)
