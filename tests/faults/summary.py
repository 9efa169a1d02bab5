"""What was played and injected, told when all tests have run: hooks of pytest, which `tests/conftest.py` takes over.

With several processes each sends what it did to the one that tells it.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from tests.faults.fuzz import tally as fuzz
from tests.faults.model import tally as model
from tests.faults.real import matrix
from tests.hosts import score

OURS = "faults"


def pytest_report_header() -> str:
    """Told first, too: a run that is broken off has no summary."""
    return f"seed of the model's histories: {model.VARIABLE}={model.SEED}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[OURS] = {
            "fuzz": dict(fuzz.PLAYED),
            "model": dict(model.PLAYED),
            "rows": [asdict(row) for row in matrix.ROWS],
            "hosts": [asdict(one) for one in score.SCORES],
        }


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A process has ended; without `workeroutput` it died."""
    did = getattr(node, "workeroutput", {}).get(OURS, {})
    fuzz.PLAYED.update(did.get("fuzz", {}))
    model.PLAYED.update(did.get("model", {}))
    matrix.ROWS.extend(matrix.Row(**row) for row in did.get("rows", ()))
    score.SCORES.extend(map(score.from_dict, did.get("hosts", ())))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for label, played in (("fuzz: inputs", fuzz.PLAYED), ("model: histories", model.PLAYED)):
        if played:
            kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(played.items()))
            terminalreporter.write_line(f"{label}={played.total()} ({kinds})")
    if model.PLAYED:
        terminalreporter.write_line(f"the model's histories can be played again: {model.REPLAY}")
    if matrix.ROWS:
        terminalreporter.write_line(matrix.text(matrix.ROWS))
        terminalreporter.write_line(matrix.last_line(matrix.ROWS))
    for one in score.SCORES:
        terminalreporter.write_line(one.table())
        terminalreporter.write_line(one.last_line())
