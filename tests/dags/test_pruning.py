"""Log files that are not needed any more; deleting runs takes a running Airflow (`test_running_airflow.py`)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import yaml

from muster.airflow import pruning
from muster.settings.clusters import SettingsError
from muster.settings.connection_parsing import MissingConnectionError


def test_old_logs_of_ours_go_and_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = tmp_path / "clusters.yaml"
    monkeypatch.setenv("MUSTER_CLUSTERS", str(clusters))
    kept = {"quiet_runs": "1h", "failures": "2h", "rebalances": "3h"}
    clusters.write_text(yaml.safe_dump({"clusters": {}, "retention": kept}))

    def log(dag: str, run: str, hours: float) -> Path:
        file = tmp_path / "logs" / f"dag_id={dag}" / f"run_id={run}" / "task_id=t" / "attempt=1.log"
        file.parent.mkdir(parents=True)
        file.write_text("a line")
        written = time.time() - hours * 3600
        for path in (file, *list(file.parents)[:2]):
            os.utime(path, (written, written))
        return file

    old, new = log("muster_coordinator__c", "old", 4), log("muster_coordinator__c", "new", 2.5)
    foreign = log("somebody_elses", "old", 400)
    assert pruning.prune_logs(tmp_path / "logs") == 1
    assert (old.exists(), new.exists(), foreign.exists()) == (False, True, True)

    clusters.write_text(yaml.safe_dump({"clusters": {}, "retention": {"quiet_runs": "soon"}}))
    with pytest.raises(SettingsError, match="nothing is deleted until"):
        pruning.prune_logs(tmp_path / "logs")


def test_pruning_without_its_connection_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clusters.yaml").write_text("clusters: {}")
    monkeypatch.setenv("MUSTER_CLUSTERS", str(tmp_path / "clusters.yaml"))
    with pytest.raises(MissingConnectionError, match="'muster_airflow'"):
        pruning.prune_runs(tmp_path / "logs")
