"""What was played and injected, told when all tests have run; these may be a part of many."""

from __future__ import annotations

import pytest

from tests.faults.model.tally import PLAYED
from tests.faults.real import matrix


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if PLAYED:
        kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(PLAYED.items()))
        terminalreporter.write_line(f"model: histories={PLAYED.total()} ({kinds})")
    if matrix.ROWS:
        terminalreporter.write_line(matrix.text(matrix.ROWS))
        terminalreporter.write_line(matrix.last_line(matrix.ROWS))
