"""The last line of the installations: what it counts, and when the command fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.install import proof
from tests.install.proof import Proof

GOOD = Proof("3.11", "4.2.0", "3.3.0", 100, 100, 0, 120.0, first_hour=True)
UPGRADE = replace(GOOD, first_hour=False)
INSTALLATIONS = [
    *(
        replace(GOOD, python=python, first_record=seconds)
        for python, seconds in (("3.12", 130.0), ("3.13", 90.0))
    ),
    *(replace(UPGRADE, spark=spark, first_record=900.0) for spark in ("3.5.9", "4.1.4", "4.3.0")),
    replace(UPGRADE, airflow="3.3.2", spark="4.2.1"),
    replace(UPGRADE, airflow="3.2.2"),
    GOOD,
]


@pytest.fixture(autouse=True)
def _file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "FILE", tmp_path / "artifacts" / "install.json")


def test_last_line_counts_minor_versions(capsys: pytest.CaptureFixture[str]) -> None:
    proof.write(installations=INSTALLATIONS, upgrade=[UPGRADE])
    assert proof.main() == 0
    assert capsys.readouterr().out == (
        "install: pythons=3 sparks=4 airflows=2 missing=0 duplicates=0 upgrade_lost=0 upgrade_doubled=0 "
        "first_record_s=130\n"
    )


@pytest.mark.parametrize(
    ("installations", "upgrade", "short"),
    [
        (INSTALLATIONS[1:], UPGRADE, "pythons=2: the goal is 3"),
        ([each for each in INSTALLATIONS if each.spark != "3.5.9"], UPGRADE, "sparks=3: the goal is 4"),
        ([each for each in INSTALLATIONS if each.airflow != "3.2.2"], UPGRADE, "airflows=1: the goal is 2"),
        ([*INSTALLATIONS, replace(GOOD, arrived=99)], UPGRADE, "missing=1: the goal is 0"),
        ([*INSTALLATIONS, replace(GOOD, duplicates=2)], UPGRADE, "duplicates=2: the goal is 0"),
        (INSTALLATIONS, replace(UPGRADE, arrived=97), "upgrade_lost=3: the goal is 0"),
        (INSTALLATIONS, replace(UPGRADE, duplicates=1), "upgrade_doubled=1: the goal is 0"),
        ([*INSTALLATIONS, replace(GOOD, first_record=601.0)], UPGRADE, "first_record_s=601: the goal is 600"),
        ([replace(each, first_hour=False) for each in INSTALLATIONS], UPGRADE, "first_record_s=inf"),
        ([replace(each, produced=0, arrived=0) for each in INSTALLATIONS], UPGRADE, "pythons=0"),
    ],
)
def test_number_short_of_its_goal_fails(
    installations: list[Proof], upgrade: Proof, short: str, capsys: pytest.CaptureFixture[str]
) -> None:
    proof.write(installations=installations, upgrade=[upgrade])
    assert proof.main() == 1
    assert short in capsys.readouterr().out


def test_half_a_run_is_no_proof(capsys: pytest.CaptureFixture[str]) -> None:
    assert proof.main() == 1
    proof.write(installations=INSTALLATIONS)
    assert proof.main() == 1
    assert "no proof" in capsys.readouterr().out
