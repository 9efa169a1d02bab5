"""The workflow, the pages and pre-commit: what they call is in the Makefile and in the environment."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from devstack.debian import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = {
    file.stem: yaml.safe_load(file.read_text(encoding="utf-8"))
    for file in (ROOT / ".github" / "workflows").glob("*.yml")
}
WORKFLOW = WORKFLOWS["ci"]
STEPS = [
    step for each in WORKFLOWS.values() for job in each["jobs"].values() for step in job.get("steps", [])
]
TARGETS = set(re.findall(r"^([a-z-]+):.* ## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def test_workflow_calls_targets_of_the_makefile() -> None:
    assert {"check", "test", "release-check"} == set(WORKFLOW["jobs"]["make"]["strategy"]["matrix"]["target"])
    called = {target for step in STEPS for target in re.findall(r"make ([a-z-]+)", step.get("run", ""))}
    assert called | set(WORKFLOW["jobs"]["make"]["strategy"]["matrix"]["target"]) <= TARGETS
    assert {"release-check", "wheel", "test-python"} <= called


def test_workflow_has_the_right_to_make_hosts() -> None:
    """With `CI` set, tests with hosts of their own fail without it."""
    assert "--privileged" in WORKFLOW["jobs"]["make"]["container"]["options"].split()


def test_workflows_pin_their_actions_by_commit() -> None:
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used
    assert not [action for action in used if not re.search(r"@[0-9a-f]{40}$", action)]


def test_workflow_has_the_versions_that_are_needed() -> None:
    job = WORKFLOW["jobs"]["make"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    image = job["container"]["image"]
    assert f"sys.version_info[:2] != (3, {image.removeprefix('python:3.').split('-')[0]})" in makefile
    go = re.search(r"^go (\d+\.\d+)", (ROOT / "devstack" / "go.mod").read_text(), re.MULTILINE)
    assert go is not None
    assert {step["with"]["go-version"] for step in job["steps"] if "setup-go" in step.get("uses", "")} == {
        go[1]
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_names_targets_of_the_makefile(page: Path) -> None:
    named = set(re.findall(r"(?:^|`)(?:LONG=1 )?make ([a-z][a-z-]*)", page.read_text("utf-8"), re.MULTILINE))
    assert named <= TARGETS


def test_contributing_names_the_packages_that_tests_install() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    known = set(PACKAGES.values()) - {"redis-server"}  # of make test-celery alone
    named = re.search(r"Debian:\s`([^`]*)`", text)
    assert named is not None
    assert set(named[1].split()) == known


def test_pre_commit_calls_tools_that_are_pinned() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert {repository["repo"] for repository in config["repos"]} == {"local"}
    pins = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    for hook in hooks:
        program = hook["entry"].split()[0]
        assert re.search(rf"^{program.removeprefix('.venv/bin/')}==", pins, re.MULTILINE), program
