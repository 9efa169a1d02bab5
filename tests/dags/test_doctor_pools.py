"""Doctor asks a real Airflow for the pools that the settings name, and for its room."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.doctor.airflow import check_pools, check_room
from muster.doctor.findings import CheckOutcome, Part
from muster.settings.clusters import Clusters
from tests.support.only_long import only_long
from tests.support.runs import cluster

pytestmark = pytest.mark.airflow


def test_pool_that_is_not_there_is_named(
    airflow_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in airflow_environment.items():
        monkeypatch.setenv(name, value)
    asked = cluster({"airflow": {"coordinator": {"pool": "default_pool"}, "consumers": {"pool": "nightly"}}})
    there, missing = check_pools(Part("airflow"), asked)
    assert there.outcome is CheckOutcome.OK
    assert missing.outcome is CheckOutcome.FAILED
    assert "there is no pool 'nightly' in Airflow" in missing.found
    assert "airflow pools set nightly" in missing.step


def test_airflow_is_not_asked_without_a_pool() -> None:
    assert list(check_pools(Part("airflow"), cluster({"airflow": {"coordinator": {"queue": "q"}}}))) == []


@pytest.mark.parametrize(
    ("capacity", "parallelism", "failed", "warned"),
    [
        pytest.param("40", "23", "", "", marks=only_long),
        ("39", "23", "[triggerer] capacity", ""),
        ("40", "22", "", "[core] parallelism"),
        pytest.param("40", "8", "", "[core] parallelism", marks=only_long),
        pytest.param("40", "7", "[core] parallelism", "", marks=only_long),
    ],
)
def test_doctor_names_too_little_room_for_clusters(
    capacity: str,
    parallelism: str,
    failed: str,
    warned: str,
    airflow_environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = {"AIRFLOW__TRIGGERER__CAPACITY": capacity, "AIRFLOW__CORE__PARALLELISM": parallelism}
    for name, value in (airflow_environment | room).items():
        monkeypatch.setenv(name, value)
    clusters = Clusters(
        Path("c.yaml"), {f"c{n}": cluster({"consumers": {"handler": "a.b", "count": 2}}) for n in range(20)}
    )
    checks = {check.name: check for check in check_room(Part("airflow"), clusters)}
    assert checks.keys() == {"[triggerer] capacity", "[core] parallelism"}
    for outcome, named in ((CheckOutcome.FAILED, failed), (CheckOutcome.WARNING, warned)):
        assert {name for name, check in checks.items() if check.outcome is outcome} == {named} - {""}
