"""What the fuzz tests share: no log, because thousands of errors are told, and the count of the inputs at the end."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.faults.fuzz.tally import PLAYED


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if PLAYED:
        kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(PLAYED.items()))
        terminalreporter.write_line(f"fuzz: inputs={PLAYED.total()} ({kinds})")
