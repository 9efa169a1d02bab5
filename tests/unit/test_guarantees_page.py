"""What `docs/guarantees.md` names has to be there: files, tests in them, and the model's mistakes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.faults.model.mutations import MUTATIONS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/.]+?)(?:::(\w+))?`", PAGE)))


def test_the_page_names_tests() -> None:
    assert len([test for _, test in NAMED if test]) > 20


@pytest.mark.parametrize(("path", "test"), NAMED, ids=[f"{path}::{test}" for path, test in NAMED])
def test_named_file_and_test_exist(path: str, test: str) -> None:
    assert (ROOT / path).exists()
    if test:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_mistake_of_the_model_shows_a_promise() -> None:
    table_and_text = set(re.findall(r"`(\w+)`", PAGE))
    assert MUTATIONS.keys() <= table_and_text, "each breaks some promise; say which"
