"""The whole of `make incident`, from nothing to its last line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from devstack.airflow import ROOT
from devstack.guard import guard
from devstack.leftovers import MARKER, processes_of
from tests.support.bare_shell import bare_shell
from tests.support.debian_programs import needed
from tests.support.only_long import only_long

ALL_RIGHT = (
    r"produced=(\d+) arrived=\1 dead_lettered=34 replayed=34 missing=0 duplicates=0 others_paused_ms=\d+ "
    r"good_judged=0 state_counts_wrong=0"
)


@only_long
@pytest.mark.stack
@pytest.mark.spark
@pytest.mark.airflow
@pytest.mark.timeout(3600)
def test_incident_ends_with_each_record_in_both_tables_once(tmp_path: Path) -> None:
    needed("pg_lsclusters")
    folder = tmp_path / "incident"
    guard.watch_marker(MARKER, str(folder))
    path = os.pathsep.join((str(ROOT / "include"), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "devstack.incident", "--no-keep", "--folder", str(folder)],
        env=bare_shell(PYTHONPATH=path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(f"incident: {ALL_RIGHT}", done.stdout.splitlines()[-1]), done.stdout
    assert not processes_of(folder)
