"""Other work on the machine: how much there is before a benchmark begins, and some that never waits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil

from devstack.guard import guard

LOOK = 2.0
"""Seconds for which other work on the machine is looked for."""


def load() -> float:
    """Return how many cores other work takes now: the load average would still show the benchmark before."""
    return sum(psutil.cpu_percent(LOOK, percpu=True)) / 100


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Run `loops` busy loops, a process each, at this process's priority."""
    with ExitStack() as stack:
        for _ in range(loops):
            command = [sys.executable, "-c", "while True: pass"]
            process = subprocess.Popen(command, start_new_session=True)  # noqa: S603  our own command line
            guard.watch(process.pid, psutil.Process(process.pid).create_time())
            for end in (lambda pid=process.pid: guard.forget(pid), process.wait, process.kill):
                stack.callback(end)
        yield
