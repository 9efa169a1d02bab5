"""The connector and a whole job with the versions of Spark that Muster does not pin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fetched_packages import fetched
from tests.support.only_long import only_long

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
TESTS = (
    "test_connector.py::test_rows_have_keys_values_headers_and_timestamps",
    "test_connector.py::test_partitions_come_and_go_without_a_restart",
    "test_connector.py::test_records_deleted_between_planning_and_reading_are_counted",
    "test_consumer_job.py::test_consumer_reads_what_is_assigned_and_commits_it",
    "test_consumer_job.py::test_a_partition_taken_away_is_closed_and_committed_while_the_others_go_on",
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    only_long,
]


@pytest.mark.parametrize("lock", sorted(_HERE.glob("pyspark-*.txt")), ids=lambda lock: lock.stem)
def test_connector_reads_and_a_job_hands_over_with(lock: Path) -> None:
    tests = [f"{_HERE}/{name}" for name in TESTS]
    paths = [str(fetched(lock)), str(_ROOT / "include"), str(_ROOT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment.pop("SPARK_HOME", None)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *tests],
        cwd=_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-5000:]
    assert f"{len(TESTS)} passed" in result.stdout
