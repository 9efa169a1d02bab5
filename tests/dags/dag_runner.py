"""The tests' end of `run_dag.py`: starts it when it is first needed, and anew when a run does not end."""

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

TIMEOUT = 180.0
"""Seconds that a run may take."""


class DagRunner:
    """Runs DAGs one after the other. `environment` is what its process is started with."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, arguments: list[str], environment: Mapping[str, str], log: Path) -> int:
        """Exit code of one run, whose output goes to `log`. AssertionError if it does not end."""
        order = {"arguments": arguments, "environment": dict(environment), "log": str(log)}
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
                raise AssertionError(f"the run did not end within {TIMEOUT:g} s: {log.read_text()}")
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
