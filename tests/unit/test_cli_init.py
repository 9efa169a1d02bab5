"""`muster init` writes what this checkout's own Airflow has, and overwrites nothing."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner, Result

from muster.cli.main import main
from muster.monitoring import FILES
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import load_clusters

ROOT = Path(__file__).parents[2]


def init(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["init", *arguments])


def test_init_writes_the_dag_files_of_this_checkout_and_settings_that_are_right(tmp_path: Path) -> None:
    result = init(str(tmp_path))
    assert result.exit_code == 0, result.output
    written = {path.name: path.read_text() for path in (tmp_path / "dags").iterdir()}
    assert written == {path.name: path.read_text() for path in (ROOT / "dags").glob("*.py")}
    found = load_clusters(tmp_path / "clusters.d" / "example.yaml")
    assert (list(found.clusters), found.errors) == (["example"], {})
    assert "muster doctor" in result.stdout
    assert not (tmp_path / "monitoring").exists()


def test_keys_that_are_commented_out_are_right_too(tmp_path: Path) -> None:
    init(str(tmp_path))
    file = tmp_path / "clusters.d" / "example.yaml"
    text = re.sub(r"^( {4,6})# ( *-? ?[a-z_]+:.*)$", r"\1\2", file.read_text(), flags=re.MULTILINE)
    file.write_text(text)
    found = load_clusters(file)
    assert found.errors == {}
    cluster = found.clusters["example"]
    assert cluster.consumers.spark_conf == {"spark.ui.enabled": "false"}
    assert cluster.consumers.handler_options == {"path": "/data/example"}
    assert [each.options["to"] for each in cluster.on_stuck] == [["oncall@example.com"]]
    default = ClusterSettings.model_validate(
        cluster.model_dump(exclude={"kafka", "zookeeper", "consul", "assignor"})
    )
    assert cluster == default, "what is said to be the default is"


def test_init_overwrites_nothing_and_writes_nothing_beside_what_is_there(tmp_path: Path) -> None:
    mine = tmp_path / "clusters.d" / "example.yaml"
    mine.parent.mkdir()
    mine.write_text("mine")
    result = init(str(tmp_path))
    assert result.exit_code == 2
    assert f"{mine}: exists already; move it away" in result.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]
    assert mine.read_text() == "mine"


def test_init_writes_the_files_for_prometheus_and_grafana_if_asked(tmp_path: Path) -> None:
    assert init(str(tmp_path), "--monitoring").exit_code == 0
    for path in FILES.rglob("*.*"):
        assert (tmp_path / "monitoring" / path.relative_to(FILES)).read_text() == path.read_text()


def test_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "dags").write_text("a file")
    result = init(str(tmp_path))
    assert result.exit_code == 2
    assert "muster_dags.py: cannot be written" in result.stderr
