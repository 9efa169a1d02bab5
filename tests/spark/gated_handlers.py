"""A sink that stops where the test wants it to, so that a kill or a freeze hits that very place."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from muster.sinks import ParquetSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LONGEST = 300.0


class GatedSink(ParquetSink):
    """While the file `gate` is there, a batch waits at the point that it names, and says so by `[gate].waiting`.

    Points: `before` anything is written, in the `middle` (one partition has its place, the others have not), and
    `after` everything is written, before the handler returns.
    """

    def __init__(self, path: str, gate: str) -> None:
        super().__init__(path)
        self._gate = Path(gate)
        self._turn = threading.Lock()
        self._published = 0

    def write(self, frame: DataFrame) -> None:
        self._published = 0
        self._pass("before")
        super().write(frame)
        self._pass("after")

    def _publish(self, key, pieces) -> None:  # type: ignore[no-untyped-def]
        with self._turn:
            if self._published:
                self._pass("middle")
            super()._publish(key, pieces)
            self._published += 1

    def _pass(self, point: str) -> None:
        deadline = time.monotonic() + LONGEST
        while self._gate.exists() and self._gate.read_text() == point:
            self._gate.with_suffix(".waiting").touch()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._gate} was not opened")
            time.sleep(0.02)
