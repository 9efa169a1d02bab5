"""Names of tests say subject, behaviour and condition, in plain words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
WITHOUT_SUBJECT = re.compile(
    r"test_(it|one_that|one_whose|one_without|what|whatever|who|whoever|nobody|when|with|without"
    r"|is|are|was|has|asks|asked|gives|goes|closes|takes|reads|waits|writes|keeps|says|finds"
    r"|after|as|at|before|between|by|in|of|on|where|within|why|until|there|none|not|nothing|those|same|too|both"
    r"|everything|all_(is|are|was|of))(_|$)"
)
LITERARY = re.compile(r"_(nobody|somebody|anybody|whoever|rubbish|told|anew|lest|upon|for_ever)(_|$)")


def test_names_have_a_subject_and_plain_words() -> None:
    files = list(TESTS.rglob("test_*.py"))
    assert files
    names = {
        node.name
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    assert not {name for name in names if WITHOUT_SUBJECT.match(name) or LITERARY.search(name)}
