"""A folder of settings, a file a team: each team's mistake is its own, and changes nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from muster.settings.cluster_settings import (
    AirflowSettings,
    ClusterSettings,
    ConsumersSettings,
    EachConsumer,
    RetentionSettings,
    TaskSettings,
)
from muster.settings.clusters import SettingsError, clusters_path, load_clusters
from muster.settings.mistakes import allowed_keys


def entry(name: str, more: str = "", service: str = "") -> str:
    return (
        f"  {name}:\n    consul_service: {service or name}\n    group_id: {name}\n    topics: [t]\n"
        f"    consumers: {{handler: a.b}}\n{more}"
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An Airflow's home with `clusters.d`, of two teams."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    for name in ("MUSTER_CLUSTERS", "AIRFLOW__LOGGING__BASE_LOG_FOLDER"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "clusters.d"
    path.mkdir()
    (path / "a.yaml").write_text("clusters:\n" + entry("ann"))
    (path / "b.yml").write_text("clusters:\n" + entry("bob"))
    (path / ".c.yaml.swp").write_text("[")
    (path / "README.md").write_text("[")
    return path


def test_clusters_of_all_files_are_read_from_the_home_of_airflow(folder: Path) -> None:
    found = load_clusters()
    assert clusters_path() == folder
    assert (sorted(found.clusters), found.errors) == (["ann", "bob"], {})
    assert found.files == {"ann": folder / "a.yaml", "bob": folder / "b.yml"}


def test_missing_folder_says_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_CLUSTERS", str(folder / "none"))
    with pytest.raises(
        SettingsError, match=r"none: cannot be read .*create it, or set AIRFLOW_HOME, or MUSTER_CLUSTERS"
    ):
        load_clusters()


@pytest.mark.parametrize("text", ["clusters: [", "clusters:\n  ann: {gruop_id: g}\n", "", b"\xff"])
def test_broken_file_leaves_the_others_and_changes_nothing_of_its_own(
    folder: Path, text: str | bytes
) -> None:
    file = folder / "a.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    fresh = load_clusters()
    assert list(fresh.clusters) == ["bob"], "this machine never had other settings of it"
    assert str(file) in str(fresh.mistakes)
    file.write_text("clusters:\n" + entry("ann", "    stuck_after: 7s\n"))
    load_clusters().keep()
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    for _ in range(2):
        found = load_clusters()
        assert found["ann"].stuck_after == 7
        assert "cluster 'ann' goes on with the settings it had before" in found.errors["ann"]
        found.keep()
    file.write_text("clusters: {}\n")
    assert load_clusters().errors == {}
    assert list(load_clusters().clusters) == ["bob"], "taken out on purpose"


def test_file_of_comments_has_no_clusters(folder: Path) -> None:
    (folder / "c.yaml").write_text("# clusters:\n#   example: ...\n")
    assert load_clusters().errors == {}


def test_cluster_named_in_two_files_is_an_error_that_names_both(folder: Path) -> None:
    load_clusters().keep()
    (folder / "b.yml").write_text("clusters:\n" + entry("bob") + entry("ann", service="other"))
    found = load_clusters()
    first, _ = found.errors["ann"].splitlines()
    assert first == (
        f"{folder}/a.yaml:2: cluster 'ann' stands in {folder}/b.yml:7 as well; give one of them another name"
    )
    assert found["ann"].consul_service == "ann"
    assert list(found.errors) == ["ann"]


def test_newcomer_with_the_service_of_another_cluster_is_the_one_that_is_refused(folder: Path) -> None:
    load_clusters().keep()
    (folder / "a.yaml").write_text("clusters:\n" + entry("ann") + entry("new", service="bob"))
    found = load_clusters()
    assert sorted(found.clusters) == ["ann", "bob"]
    assert "'bob' is already that of cluster 'bob'" in found.errors["new"]


def test_retention_stands_in_one_file_and_nothing_is_deleted_while_it_is_unknown(folder: Path) -> None:
    assert load_clusters().retention is not None
    (folder / "r.yaml").write_text("retention: {ticks: 2h}\nclusters: {}\n")
    found = load_clusters().retention
    assert found is not None and found.quiet_runs == 7200
    (folder / "s.yaml").write_text("clusters: {}\nretention: {quiet_runs: 3h}\n")
    found = load_clusters()
    assert found.retention is None
    assert f"{folder}/r.yaml:1, {folder}/s.yaml:2: 'retention' stands in each" in found.general["retention"]
    (folder / "s.yaml").write_text("retention: [\n")
    assert load_clusters().retention is not None, "it is in another file"
    (folder / "r.yaml").unlink()
    assert load_clusters().retention is None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("    topics: a\n", ":5: cluster 'x', key 'topics': expected a list of names, such as [a]"),
        (
            "    topics: {name: [a]}\n",
            ":5: cluster 'x', key 'topics.name': unknown key; did you mean 'names'?",
        ),
        ("    topcis: [a]\n", "key 'topics': is missing; add it"),
        ("    topcis: [a]\n", ":5: cluster 'x', key 'topcis': unknown key; did you mean 'topics'?"),
        ("    topics: [a]\n    handler: m.h\n", "key 'handler': unknown key; it belongs under 'consumers'"),
        ("    topics: [a]\n    group.id: g\n", "key 'group.id': unknown key; use 'group_id'"),
        ("    subscribe: a\n", "key 'subscribe': unknown key; use 'topics', a list of names"),
        (
            "    topics: [a]\n    bootstrap.servers: k\n",
            "unknown key; the brokers belong into the Airflow connection",
        ),
        ("    topics: [a]\n    name: y\n", "key 'name': unknown key; the name is the key of the entry"),
        (
            "    topics:\n      - a\n      - b/c\n",
            ":7: cluster 'x', key 'topics.names.1': ",
        ),
        ("    topics: [a]\n    on_stuck: [{notifier: a.B, option: {}}]\n", "did you mean 'options'?"),
    ],
)
def test_error_has_the_line_and_what_was_perhaps_meant(tmp_path: Path, lines: str, expected: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "clusters:\n  x:\n    consul_service: x\n    group_id: x\n"
        + lines
        + "    consumers: {handler: a.b}\n"
    )
    assert expected in load_clusters(path).errors["x"]


def test_line_of_what_is_no_yaml(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("clusters:\n  x:\n    topics: [a\n    group_id: x\n")
    assert f"{path}:4: not YAML: while parsing a flow sequence" in load_clusters(path).general["c.yaml"]


@pytest.mark.parametrize(
    "model",
    [ClusterSettings, ConsumersSettings, EachConsumer, TaskSettings, AirflowSettings, RetentionSettings],
)
def test_page_has_every_key(model: type[BaseModel]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
    assert not [key for key in allowed_keys(model) if not re.search(rf"`([a-z.]*\.)?{key}`", page)]


def test_handlers_keep_their_order_over_a_mistake(folder: Path) -> None:
    file = folder / "a.yaml"
    handlers = "handlers: {t-special: {handler: a.c}, t-.*: {handler: a.d}, a-.*: {handler: a.e}}"
    right = entry("ann").replace("handler: a.b", f"handler: a.b, {handlers}")
    file.write_text("clusters:\n" + right)
    load_clusters().keep()
    file.write_text("clusters:\n" + right.replace("group_id", "gruop_id"))
    assert list(load_clusters()["ann"].consumers.handlers) == ["t-special", "t-.*", "a-.*"], (
        "the first counts"
    )


def test_error_shows_no_whole_entry_which_may_hold_secrets(folder: Path) -> None:
    wrong = entry("ann").replace(
        "handler: a.b", "handler: a.b, handler_options: {password: hunter2}, each: {bob-1: {weight: 2}}"
    )
    (folder / "a.yaml").write_text("clusters:\n" + wrong)
    message = load_clusters().errors["ann"]
    assert "bob-1" in message
    assert "hunter2" not in message
