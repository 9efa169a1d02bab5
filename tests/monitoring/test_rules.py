"""The alert rules and the example configuration, by promtool; and that each rule is tested and says what to do."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from muster.monitoring import FILES
from tests.support.debian_programs import needed

TESTS = Path(__file__).with_name("rules_test.yml")


@pytest.fixture(scope="module")
def promtool() -> Path:
    return needed("promtool")[0]


def checked(promtool: Path, *arguments: str, folder: Path = FILES) -> str:
    run = subprocess.run(
        [promtool, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def rules() -> list[dict[str, object]]:
    (group,) = yaml.safe_load((FILES / "rules.yml").read_text())["groups"]
    return list(group["rules"])


def test_the_rules_are_rules(promtool: Path) -> None:
    assert f"{len(rules())} rules found" in checked(promtool, "check", "rules", "rules.yml")


def test_each_alert_fires_when_it_should_and_not_when_it_should_not(promtool: Path, tmp_path: Path) -> None:
    for file in (TESTS, FILES / "rules.yml"):
        (tmp_path / file.name).write_text(file.read_text())
    assert "SUCCESS" in checked(promtool, "test", "rules", TESTS.name, folder=tmp_path)


def test_the_example_is_a_configuration(promtool: Path, tmp_path: Path) -> None:
    for file in ("prometheus.yml", "rules.yml"):
        (tmp_path / file).write_text((FILES / file).read_text())
    for token in ("muster.token", "muster-status.token"):
        (tmp_path / token).write_text("x")
    checked(promtool, "check", "config", "prometheus.yml", folder=tmp_path)


def test_no_alert_is_without_a_test() -> None:
    tested = set(re.findall(r'alertname="(\w+)"', TESTS.read_text()))
    assert {str(rule["alert"]) for rule in rules()} == tested


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_each_alert_says_what_it_means_and_what_to_do(rule: dict[str, object]) -> None:
    annotations = rule["annotations"]
    assert isinstance(annotations, dict)
    assert annotations.keys() == {"summary", "description", "runbook"}
    assert annotations["runbook"].startswith("1. ")
    steps = re.findall(r"^(\d)\. ", annotations["runbook"], re.MULTILINE)
    assert steps == [str(n + 1) for n in range(len(steps))]
    assert not re.search(r"\{\{[^}]*\n", str(annotations)), "a template that a line end cuts in two"
    labels = rule["labels"]
    assert isinstance(labels, dict)
    assert labels["severity"] in {"critical", "warning"}
