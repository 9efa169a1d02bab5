"""Other work on the machine that never waits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_LOOP = "while True: pass"


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Run `loops` busy loops, a process each, at this process's priority."""
    with ExitStack() as stack:
        for _ in range(loops):
            process = subprocess.Popen([sys.executable, "-c", _LOOP])  # noqa: S603  our own command line
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield
