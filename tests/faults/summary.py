"""What was played and injected, printed after all tests: hooks of pytest, which `tests/conftest.py` takes over.

With several processes each sends what it did to the one that tells it.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from tests.faults.fuzz import tally as fuzz
from tests.faults.model import tally as model
from tests.support import fault_score
from tests.support.fault_score import Score

OURS = "faults"


def pytest_report_header() -> str:
    """Printed first, too: a run that is broken off has no summary."""
    return f"seed of the model's histories: {model.VARIABLE}={model.SEED}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[OURS] = {
            "fuzz": dict(fuzz.PLAYED),
            "model": dict(model.PLAYED),
            "model_saw": dict(model.SAW),
            "scores": [asdict(score) for score in fault_score.SCORES],
        }


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A process has ended; without `workeroutput` it died."""
    did = getattr(node, "workeroutput", {}).get(OURS, {})
    fuzz.PLAYED.update(did.get("fuzz", {}))
    model.PLAYED.update(did.get("model", {}))
    model.SAW.update(did.get("model_saw", {}))
    fault_score.SCORES.extend(map(Score.from_dict, did.get("scores", ())))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for label, played, saw in (
        ("fuzz: inputs", fuzz.PLAYED, {}),
        ("model: histories", model.PLAYED, model.SAW),
    ):
        if played:
            kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(played.items()))
            with_these = "".join(f", with {what} {number}" for what, number in sorted(saw.items()))
            terminalreporter.write_line(f"{label}={played.total()} ({kinds}{with_these})")
    if model.PLAYED:
        terminalreporter.write_line(f"the model's histories can be played again: {model.REPLAY}")
    for score in fault_score.SCORES:
        terminalreporter.write_line(score.table())
        terminalreporter.write_line(score.last_line())
