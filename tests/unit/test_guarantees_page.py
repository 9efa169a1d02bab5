"""What `docs/guarantees.md` names has to be there: files, tests in them, and the model's mistakes."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.faults.model.mutations import MUTATIONS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
A_TEST = re.compile(r"`(tests/[\w/.]+?)(?:::(\w+))?`")
NAMED = sorted(set(A_TEST.findall(PAGE)))


@cache
def tree_of(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def test_the_page_names_tests() -> None:
    assert len([test for _, test in NAMED if test]) > 20


@pytest.mark.parametrize(("path", "test"), NAMED, ids=[f"{path}::{test}" for path, test in NAMED])
def test_named_file_and_test_exist(path: str, test: str) -> None:
    assert (ROOT / path).exists()
    if test:
        assert test in {node.name for node in ast.walk(tree_of(path)) if isinstance(node, ast.FunctionDef)}


def test_a_line_whose_tests_need_long_runs_says_so() -> None:
    silent = [
        (path, test)
        for line in PAGE.splitlines()
        for path, test in A_TEST.findall(line)
        if "LONG=1" not in line and path.endswith(".py") and _is_only_long(path, test)
    ]
    assert not silent, "these run with LONG=1 only; say so in their lines"


def _is_only_long(path: str, test: str) -> bool:
    """Whether a test, or all of a file, is left out of the usual runs."""
    tree = tree_of(path)
    for node in tree.body:
        if isinstance(node, ast.Assign) and {"pytestmark", "only_long"} <= _names(node):
            return True
    tests = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    cited = [node for node in tests if test in {"", node.name}]
    return bool(cited) and all("only_long" in _names(*node.decorator_list) for node in cited)


def _names(*nodes: ast.AST) -> set[str]:
    return {found.id for node in nodes for found in ast.walk(node) if isinstance(found, ast.Name)}


def test_every_mistake_of_the_model_shows_a_promise() -> None:
    table_and_text = set(re.findall(r"`(\w+)`", PAGE))
    assert MUTATIONS.keys() <= table_and_text, "each breaks some promise; say which"
