"""An object in a process of its own, whose methods are called from here, one call at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, TypeVar

import psutil

from devstack.guard import guard

ROOT = Path(__file__).parents[2]
P = ParamSpec("P")
R = TypeVar("R")


class Worker:
    """Makes `kind(*arguments)` in a new process with what that imports, and nothing else. Its output goes to `log`.

    A call fails when the process has ended: with one of `errors` if the log holds its text, else with RuntimeError.
    """

    def __init__(
        self,
        kind: type,
        *arguments: Any,
        log: Path | None = None,
        errors: Mapping[str, type[Exception]] = MappingProxyType({}),
    ) -> None:
        self._log, self._errors = log, errors
        self._pipe, theirs = Pipe()
        with log.open("w") if log else nullcontext() as output:
            self._process = subprocess.Popen(  # noqa: S603  our own command line
                [sys.executable, "-m", "benchmarks.harness.worker", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONPATH": f"{ROOT / 'include'}{os.pathsep}{ROOT}",
                },
            )
        theirs.close()
        self.pid = self._process.pid
        # One that is frozen does not see the end of the pipe.
        guard.watch(self.pid, psutil.Process(self.pid).create_time())
        self._ask(kind, *arguments)

    def call(self, method: Callable[Concatenate[Any, P], R], *arguments: P.args, **named: P.kwargs) -> R:
        """Have the object's `method`, as its class has it, called there."""
        answer: R = self._ask(method, *arguments, **named)
        return answer

    def _ask(self, what: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            self._pipe.send((what, arguments, named))
            return self._pipe.recv()
        except (EOFError, OSError) as error:
            self.close()  # all of its log is written then
            log = self._log.read_text(encoding="utf-8") if self._log else ""
            raised = next((kind for text, kind in self._errors.items() if text in log), RuntimeError)
            end = "\n".join(log.splitlines()[-25:]) or "its error is above"
            raise raised(f"a process of the benchmark ended ({self._how()}):\n{end}") from error

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    @property
    def killed(self) -> bool:
        """Whether the process was ended by SIGKILL."""
        return self._process.poll() == -signal.SIGKILL

    def _how(self) -> str:
        code = self._process.poll()
        return f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name

    def close(self, patience: float = 60.0) -> None:
        """End the process in order, or by force after `patience` seconds."""
        self._pipe.close()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        guard.forget(self.pid)


def main() -> None:
    """Make the object and call its methods until the pipe is closed. An error ends the process."""
    pipe = Connection(int(sys.argv[1]))
    kind, arguments, _ = pipe.recv()
    made = kind(*arguments)
    pipe.send(None)
    with suppress(EOFError):
        while True:
            method, arguments, named = pipe.recv()
            pipe.send(method(made, *arguments, **named))


if __name__ == "__main__":
    main()
