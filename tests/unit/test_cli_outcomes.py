"""Every command of `muster`: its `--help`, its `--json`, and how it ends where it cannot do what was asked."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from muster.cli.main import main
from muster.commands.table import COMMANDS

ARGUMENTS = {
    **dict.fromkeys(("plan", "status", "history", "deadletters list", "state list", "doctor"), ""),
    "state show": "t key",
    "state export": "t 0 state.json",
    "deadletters replay": "--reason r",
    **dict.fromkeys(("isolate", "restore", "drain", "undrain"), "a --reason r"),
    "pin": "t 0 a --reason r",
    "unpin": "t 0 --reason r",
    **dict.fromkeys(("exclude", "include"), "a t --reason r"),
    **dict.fromkeys(("subscribe", "unsubscribe"), "t --reason r"),
    "assignor": "range --reason r",
    "seek": "--to latest --reason r",
    "import-offsets": "--group old --reason r",
    **dict.fromkeys(("retry-record", "skip-record", "dead-letter-record"), "t 0 1 --reason r"),
    "standing-answer": "t --error ValueError --answer skip --reason r",
    "end-standing-answer": "t --error ValueError --reason r",
    **dict.fromkeys(("pause", "resume", "rebalance"), "--reason r"),
    **dict.fromkeys(("pause-consumption", "resume-consumption", "cancel-seek"), "--reason r"),
    "replay-deadletters": "--reason r",
}
"""What each command needs, besides a cluster; `init`, which has none, is looked at by itself."""

SHORT = {"extra": {"operation_timeout": 0.3}}
AWAY = {
    "ZOOKEEPER": {"host": "127.0.0.1:9", **SHORT},
    "CONSUL": {"host": "127.0.0.1", "port": 9},
    "KAFKA": {"extra": {"bootstrap.servers": "127.0.0.1:9", "operation_timeout": 0.3}},
}

ENDS = {
    "unknown cluster": (2, 2, "no cluster 'x'; there are: c"),
    "broken file": (2, 5, "clusters.yaml:1: not YAML"),
    "broken file, no --cluster": (2, 5, "1: not YAML"),
    "no connection": (2, 5, "AIRFLOW_CONN_MUSTER_"),
    "servers away": (3, 5, "127.0.0.1:9"),
}
"""What is wrong; the exit codes of all commands and of `doctor`, whose report names it; and what is said of it."""


def commands(group: click.Command, path: str = "") -> dict[str, click.Command]:
    """All commands by their names, as they are typed."""
    if not isinstance(group, click.Group):
        return {path: group}
    return {
        k: v
        for name, each in group.commands.items()
        for k, v in commands(each, f"{path} {name}".strip()).items()
    }


EVERY = commands(main)


def test_table_has_every_command() -> None:
    assert EVERY.keys() == {*ARGUMENTS, "init"}


@pytest.mark.parametrize("command", EVERY)
def test_help_names_summary_options_and_exit_codes(command: str) -> None:
    shown = CliRunner().invoke(main, [*command.split(), "--help"])
    text = " ".join(shown.stdout.split())
    assert shown.exit_code == 0
    assert " ".join((EVERY[command].help or "").split()[:5]) in text
    wanted = ["--json", "Exit codes: 0"] + ["--cluster"] * (command != "init")
    wanted += ["--reason", "--by"] * (command in COMMANDS)
    assert [each for each in wanted if each not in text] == []


@pytest.fixture
def end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Gives a command where something is wrong."""
    for name in ("AIRFLOW_HOME", "AIRFLOW_CONFIG", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "clusters.yaml"
    entry = {"consul_service": "c", "group_id": "g", "topics": ["t"], "consumers": {"handler": "json.dumps"}}

    def give(wrong: str, typed: str) -> Result:
        path.write_text(
            "clusters: [" if wrong.startswith("broken file") else yaml.safe_dump({"clusters": {"c": entry}})
        )
        cluster = "x" if wrong == "unknown cluster" else "c"
        environment = {"MUSTER_CLUSTERS": str(path), "HOME": str(tmp_path)}
        for server, connection in AWAY.items():
            environment[f"AIRFLOW_CONN_MUSTER_{server}"] = (
                json.dumps(connection) if wrong == "servers away" else ""
            )
        named = [] if wrong.endswith("no --cluster") else ["--cluster", cluster]
        return CliRunner().invoke(main, [*shlex.split(typed), *named, "--json"], env=environment)

    return give


@pytest.mark.parametrize("wrong", ENDS)
@pytest.mark.parametrize("command", ARGUMENTS)
def test_command_that_cannot_ends_with_its_code(command: str, wrong: str, end) -> None:
    code, of_doctor, said = ENDS[wrong]
    if wrong.endswith("no --cluster") and any(
        each.required for each in EVERY[command].params if each.name == "cluster"
    ):
        said = "Missing option '--cluster'"
    done = end(wrong, f"{command} {ARGUMENTS[command]}")
    assert "Traceback" not in done.output
    if command == "doctor" and wrong != "unknown cluster":
        assert done.exit_code == of_doctor
        assert json.loads(done.stdout)["well"] is False
        assert said in done.stdout
    else:
        assert (done.exit_code, done.stdout) == (code, "")
        assert said in done.stderr[done.stderr.index("Error: ") :]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("seek --to latest '' --reason r", "topic is empty text; leave it out to mean all"),
        (
            "import-offsets --group '' --checkpoint /x --reason r",
            "group is empty text; leave it out, or name one",
        ),
        ("replay-deadletters --error '' --reason r", "error is empty text; leave it out to mean all"),
        ("doctor --all-clusters", "exclude each other"),
        ("isolate a", "Missing option '--reason'"),
        ("isolate --reason r", "Missing argument"),
        ("status --no-such-option", "No such option"),
        ("state export t 0 state.csv", "ends in neither .json nor .parquet"),
        ("state show t '[1' --columns --partition 0", "is not JSON"),
        ("state show t '[]' --columns --partition 0", "is no list of columns"),
        ("state show t '[1]' --columns", "--columns needs --partition"),
        ("assignor --reason r", "give either the NAME of an assignor"),
        ("assignor range --clear --reason r", "give either the NAME of an assignor"),
    ],
)
def test_wrong_question_ends_with_2(typed: str, said: str, end) -> None:
    done = end("servers away", typed)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_init_writes_once_then_ends_with_2(tmp_path: Path) -> None:
    first, again = (CliRunner().invoke(main, ["init", str(tmp_path / "home"), "--json"]) for _ in range(2))
    assert first.exit_code == 0
    assert sorted(json.loads(first.stdout)) == sorted(
        str(path) for path in (tmp_path / "home").rglob("*") if path.is_file()
    )
    assert (again.exit_code, again.stdout) == (2, "")
    assert "exists already; move it away" in again.stderr
