"""Runs the drivers of both sources, one process each, and gives them their orders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.throughput_driver import READY, Order, Reading

_ROOT = Path(__file__).resolve().parents[1]


class Driver:
    """A driver with `source`, with its JVM and Python workers. It works on nothing between two orders."""

    def __init__(self, source: str, cores: int, log: Path) -> None:
        self.source = source
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(  # noqa: S603  our own command line
                [sys.executable, "-m", "benchmarks.throughput_driver", source, str(cores)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=_ROOT,
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONPATH": f"{_ROOT / 'include'}{os.pathsep}{_ROOT}",
                },
            )
        self._line_of(READY)

    def read(self, order: Order) -> Reading:
        """Have it carry out `order`. Raises RuntimeError with the end of its log when it cannot."""
        if self._process.stdin is None:
            raise RuntimeError("the driver has no standard input")
        self._process.stdin.write(f"{order.text()}\n")
        self._process.stdin.flush()
        return Reading(**json.loads(self._line_of("{")))

    def close(self) -> None:
        """End it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _line_of(self, start: str) -> str:
        for line in self._process.stdout or ():
            if line.startswith(start):
                return line
        end = "\n".join(self._log.read_text(encoding="utf-8").splitlines()[-25:])
        raise RuntimeError(f"the driver with {self.source} ended; its log ends with:\n{end}")


@contextmanager
def driver(source: str, cores: int, log: Path) -> Iterator[Driver]:
    """A driver for the time of the block."""
    made = Driver(source, cores, log)
    try:
        yield made
    finally:
        made.close()
