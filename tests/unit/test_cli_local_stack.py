"""The command line finds the local stack that runs, from the folder where it is given."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from muster.cli.local_stack import FILE, FOLDER, local_stack
from muster.cli.main import main
from muster.settings.clusters import SettingsError, load_clusters


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tuple(os.environ):
        if name.startswith(("AIRFLOW", "MUSTER")):
            monkeypatch.delenv(name)


def stack(folder: Path, **variables: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(variables))
    return folder


def test_stack_is_found_from_a_folder_below_the_checkout(tmp_path: Path) -> None:
    demo = stack(
        tmp_path / FOLDER / "demo", AIRFLOW_HOME="/home", MUSTER_CLUSTERS="", PATH="/x", PYTHONPATH="/y"
    )
    below = tmp_path / "docs" / "images"
    below.mkdir(parents=True)
    before = dict(os.environ)
    with local_stack(below) as found:
        assert found == demo
        assert dict(os.environ) == before | {"AIRFLOW_HOME": "/home"}
    assert dict(os.environ) == before


def test_newest_of_two_stacks_is_taken(tmp_path: Path) -> None:
    older = stack(tmp_path / FOLDER, AIRFLOW_HOME="/older")
    newer = stack(older / "demo", AIRFLOW_HOME="/newer")
    os.utime(older / FILE, (1, 1))
    with local_stack(tmp_path) as found:
        assert found == newer


@pytest.mark.parametrize("name", ["AIRFLOW_HOME", "MUSTER_CLUSTERS", "AIRFLOW_CONN_MUSTER_CONSUL"])
def test_variable_of_the_shell_keeps_the_stack_away(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack(tmp_path / FOLDER, AIRFLOW_CONN_MUSTER_ZOOKEEPER="{}")
    monkeypatch.setenv(name, "/mine")
    with local_stack(tmp_path) as found:
        assert found is None
        assert "AIRFLOW_CONN_MUSTER_ZOOKEEPER" not in os.environ


def test_file_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack(tmp_path / FOLDER, AIRFLOW_HOME="/theirs")
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    with local_stack(tmp_path) as found:
        assert found is None


def test_command_names_the_stack_that_it_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stack(tmp_path / FOLDER, AIRFLOW_HOME=str(tmp_path))
    (tmp_path / "clusters.d").mkdir()
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["status"])
    assert result.exit_code == 2
    assert f"Local stack in {folder}" in result.stderr
    assert f"{tmp_path / 'clusters.d'}: name a cluster with --cluster; there are: none" in result.stderr
    assert result.stdout == ""


def test_only_cluster_need_not_be_named(tmp_path: Path) -> None:
    one = {"consul_service": "a", "group_id": "a", "topics": ["t"], "consumers": {"handler": "a.b"}}
    two = one | {"consul_service": "b", "group_id": "b"}
    path = tmp_path / "clusters.yaml"
    path.write_text(yaml.safe_dump({"clusters": {"a": one}}))
    assert load_clusters(path).chosen(None).name == "a"
    path.write_text(yaml.safe_dump({"clusters": {"a": one, "b": two}}))
    assert load_clusters(path).chosen("b").name == "b"
    with pytest.raises(SettingsError, match=r"name a cluster with --cluster; there are: a, b"):
        load_clusters(path).chosen(None)
    path.write_text(yaml.safe_dump({"clusters": {"a": one, "b": {"topics": []}}}))
    with pytest.raises(SettingsError, match=r"there are: a, b"):
        load_clusters(path).chosen(None)
