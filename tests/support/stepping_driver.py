"""psycopg, whose user is killed or stopped by itself before a given step of its work: DB-API for `DatabaseSink`."""

from __future__ import annotations

import os
from typing import Any

import psycopg
from psycopg import (
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    OperationalError,
    ProgrammingError,
)

__all__ = [
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "OperationalError",
    "ProgrammingError",
    "connect",
    "paramstyle",
]
paramstyle = "pyformat"


class Steps:
    """Counts what is asked of the database, and sends `signal` to this process before number `at` (from 1)."""

    def __init__(self, at: int, signal: int) -> None:
        self.done = 0
        self._at = at
        self._signal = signal

    def next(self) -> None:
        self.done += 1
        if self.done == self._at:
            os.kill(os.getpid(), self._signal)


class _Stepping:
    """An object of psycopg's each of whose calls is a step; what it makes is another one."""

    def __init__(self, of: Any, steps: Steps) -> None:
        self._of = of
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            self._steps.next()
            result = found(*args, **options)
            return _Stepping(result, self._steps) if name == "cursor" else result

        return call


def connect(steps: Steps, **options: Any) -> Any:
    """Connect as psycopg does. That is a step, too."""
    steps.next()
    return _Stepping(psycopg.connect(**options), steps)
