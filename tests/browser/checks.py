"""Asking the page itself, by the functions of `checks.js`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from devstack.chromium import Browser

_CHECKS = Path(__file__).with_name("checks.js").read_text(encoding="utf-8")


def ask(browser: Browser, name: str) -> Any:
    """What the function `name` says; fails if it throws."""
    answer = browser.js(f"{_CHECKS}\nreturn {name}();")
    assert not str(answer).startswith("failed: "), answer
    return answer
