"""Real code that starts threads, waits and looks at the clock, run step by step by the model.

`copy_of` loads a module a second time and replaces names such as `threading` and `time` in that copy. So the code
that runs is the project's own, and the module that others import stays as it is.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

if TYPE_CHECKING:
    from tests.faults.model.process import Process

_AT_WORK: list[Process] = []


@contextmanager
def at_work(process: Process) -> Iterator[None]:
    """What is done meanwhile is done by `process`: its threads begin there, by its clock."""
    _AT_WORK.append(process)
    try:
        yield
    finally:
        _AT_WORK.pop()


class Threads:
    """The threads of one process. Each runs until it has to wait; `go_on` lets those that wait look again."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._waiting: list[greenlet] = []

    def start(self, work: Callable[[], object]) -> None:
        """Begin a thread."""
        self._run(greenlet(work))

    def go_on(self) -> None:
        """Let every thread look whether it has to wait any longer."""
        waiting, self._waiting = self._waiting, []
        for thread in waiting:
            self._run(thread)

    def end(self) -> None:
        """End them where they stand, because the process is dead."""
        waiting, self._waiting = self._waiting, []
        for thread in waiting:
            thread.throw(GreenletExit)

    def _run(self, thread: greenlet) -> None:
        thread.parent = getcurrent()
        with at_work(self._process):
            thread.switch()
        if not thread.dead:
            self._waiting.append(thread)


def wait_until(reached: Callable[[], bool]) -> None:
    """Let the world go on, and the thread that runs now wait, until `reached`."""
    while not reached():
        parent = getcurrent().parent
        assert parent is not None, "only a thread can wait"
        parent.switch()


def process_at_work() -> Process:
    """Whose code runs now."""
    return _AT_WORK[-1]


def now() -> float:
    """The time of the process that is at work."""
    return _AT_WORK[-1].world.now


class _Thread:
    """`threading.Thread`, begun by the process that is at work."""

    def __init__(
        self, target: Callable[..., object], args: Iterable[Any] = (), name: str = "", daemon: bool = True
    ) -> None:
        self._work = lambda: target(*args)

    def start(self) -> None:
        _AT_WORK[-1].threads.start(self._work)


class _Lock:
    """Threads change places only where they wait, and none waits with a lock."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def _wait(futures: Iterable[Future[Any]], timeout: float | None = None) -> None:
    """`concurrent.futures.wait`: with a time-out it looks once, because the world says what takes long."""
    if timeout is None:
        wait_until(lambda: all(future.done() for future in futures))


THREADING = SimpleNamespace(Thread=_Thread, Lock=_Lock)
TIME = SimpleNamespace(monotonic=now, time=now)
CONCURRENT = SimpleNamespace(futures=SimpleNamespace(wait=_wait))


def copy_of(name: str, **simulated: object) -> Any:
    """Load the module `name` a second time, with `simulated` in the place of its globals of these names."""
    importlib.import_module(name)  # dataclasses of the copy look there
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    missing = simulated.keys() - module.__dict__.keys()
    assert not missing, f"{name} has no {missing} any more, so the model runs something else than the project"
    module.__dict__.update(simulated)
    return module
