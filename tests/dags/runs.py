"""Runs of a DAG with `dag.test()` in a process of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Run:
    """What came of one DAG run: `state`, `note`, `tasks`, `xcoms`, `events` and the whole `log`."""

    def __init__(self, code: int, log: str) -> None:
        self.log = log
        assert code == 0, log
        found = json.loads(next(line for line in reversed(log.splitlines()) if line.startswith("{")))
        self.state: str = found["state"]
        self.note: str | None = found["note"]
        self.tasks: dict[str, str] = found["tasks"]
        self.xcoms: dict[str, Any] = found["xcoms"]
        self.events: list[tuple[str, dict[str, Any]]] = found["events"]
