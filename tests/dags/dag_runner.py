"""The tests' end of `run_dag.py`: starts it when it is first needed, and again when a run does not end."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 300.0
"""Seconds that a run may take."""


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


class DagRunner:
    """Runs DAGs one after the other. `environment` is what its process is started with."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def run(
        self,
        dag_id: str,
        environment: Mapping[str, str],
        log: Path,
        conf: Mapping[str, Any] | None = None,
    ) -> Run:
        """Run a DAG of the folder `dags`, with its output in `log`. AssertionError if it does not end."""
        arguments = [str(ROOT / "dags" / "muster_dags.py"), dag_id, json.dumps(dict(conf or {}))]
        code = self._order({"arguments": arguments, "environment": dict(environment), "log": str(log)})
        if code is None:
            raise AssertionError(f"the run did not end within {TIMEOUT:g} s: {log.read_text()}")
        return Run(code, log.read_text())

    def _order(self, order: dict[str, Any]) -> int | None:
        """Have `run_dag.py` do one run; its exit code, None if it does not end."""
        with self._lock:
            process = self._process = self._process or self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                answered = selector.select(TIMEOUT)
            if not answered or not (line := process.stdout.readline()):
                self.close()
                return None
            return int(line)

    def close(self) -> None:
        """End it, with a run that may be under way."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("run_dag.py"))],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
