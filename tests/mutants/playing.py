"""A warm pytest process that tries mutants: all is imported and collected once, and each mutant has a fork of it.

It is a plugin of pytest, which `python -m tests.mutants` starts in a copy of the tree. Requests and answers are lines
of JSON on two pipes. A step is a test of pytest, a stored history, or one of the random histories.
"""

from __future__ import annotations

import ast
import builtins
import gc
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from devstack.kafka import Kafka
from tests.faults.model.histories import DEFECTS, MISTAKES, play
from tests.faults.model.world import Model
from tests.mutants.drawing import FILES

PIPES = "MUSTER_MUTANTS"
"""The environment variable with the two file descriptors."""
MODEL = "tests/faults/test_model.py"
"""Where the rules of the random histories are."""
MUTANT = "<mutant>"
"""The name of the file that a mutated function is of."""
ELSEWHERE = {"zookeeper_server", "consul_server"}
"""The fixtures of tests that are left out: those start other servers than a Kafka."""
NOTE = "note_line_of_mutants"
HISTORIES, SEED = 100, 20260101
"""So many random histories of the model, which follow from this seed."""
PATIENCE, FACTOR = 10.0, 10
"""A step may take so many seconds and so many times what it takes without a mutant."""

# Each mutant meets the same examples, and nobody reads the smallest one.
settings.register_profile(
    "mutants", derandomize=True, database=None, deadline=None, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("mutants")


def pytest_runtestloop(session: pytest.Session) -> bool:
    requests, answers = map(int, os.environ[PIPES].split(","))
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    worker = Worker(session)
    try:
        with os.fdopen(requests) as lines, os.fdopen(answers, "w") as out:
            for line in lines:
                request = json.loads(line)
                print(json.dumps(getattr(worker, request.pop("do"))(**request)), file=out, flush=True)
    finally:
        worker.end()
    return True


class Worker:
    """Answers requests; each public method is one."""

    def __init__(self, session: pytest.Session) -> None:
        self._stored = {**MISTAKES, **DEFECTS}
        self._items = {item.nodeid: item for item in session.items if _is_step(item)}
        self._model = next(item.module for item in session.items if item.nodeid.startswith(MODEL))  # type: ignore
        self._fixtures = lambda name: session._fixturemanager.getfixturedefs(name, session.items[0])
        self._random: list[Any] = []
        self._server: Any = None

    def tests(self) -> list[str]:
        """Return the names of all steps that are there."""
        return [*self._items, *(f"history {name}" for name in self._stored)]

    def record(self) -> Any:
        """Return the random histories, with their settings."""
        return _elsewhere(lambda: _recorded(self._model))

    def know(self, histories: Sequence[Any]) -> list[str]:
        """Take the random histories; return their names."""
        self._random = list(histories)
        return [f"random history {number}" for number in range(len(histories))]

    def cover(self, steps: Sequence[str]) -> Any:
        """Return how long each step takes and whether it passes, and which steps meet which line."""
        return _elsewhere(lambda: self._cover(steps))

    def serve_kafka(self) -> None:
        """Start the Kafka that the tests of this process share."""
        (fixture,) = self._fixtures("kafka_server")
        self._server = Kafka(Path.cwd() / "kafka", guarded=True)
        self._server.start()
        fixture.func, fixture.argnames = (lambda: self._server), ()

    def end(self) -> None:
        """Stop what was started."""
        if self._server is not None:
            self._server.stop()

    def attempt(self, file: str, function: str, source: str, steps: Mapping[str, float]) -> dict[str, Any]:
        """Try a mutant: run steps until one fails, which it has to do with the mutant only."""
        ran: list[str] = []
        doubtful: list[str] = []
        left = list(steps)
        while left:
            with _written(file, source):
                how, passed = self._run(left, steps, lambda: _replace(file, source, function))
            ran, left = [*ran, *left[: passed + 1]], left[passed:]
            if how == "survived":
                break
            if self._run(left[:1], steps, lambda: None)[0] == "survived":
                return {"how": how, "by": left[0], "ran": ran, "doubtful": doubtful}
            doubtful.append(left.pop(0))
        return {"how": "survived", "by": "", "ran": ran, "doubtful": doubtful}

    def _run(
        self, steps: Sequence[str], usual: Mapping[str, float], prepare: Callable[[], None]
    ) -> tuple[str, int]:
        """Run steps in a fork until one fails: how it ended, and how many passed before."""
        with _fork(lambda tell: self._steps(steps, prepare, tell)) as (pid, answers):
            for passed, step in enumerate(steps):
                if not _answers_within(pid, answers, PATIENCE + FACTOR * usual[step]):
                    return "timeout", passed
                if os.read(answers, 1) != b".":  # it says so, or is dead
                    return "killed", passed
        return "survived", len(steps)

    def _steps(
        self, steps: Sequence[str], prepare: Callable[[], None], tell: Callable[[bytes], object]
    ) -> None:
        prepare()
        for step, following in zip(steps, [*steps[1:], ""], strict=True):
            tell(b"." if self._passes(step, following) else b"F")

    def _passes(self, step: str, following: str) -> bool:
        if (item := self._items.get(step)) is not None:
            reports = runtestprotocol(item, nextitem=self._items.get(following), log=False)
            return not any(report.failed for report in reports)
        try:
            self._play_history(step)
        except Exception:
            return False
        return True

    def _play_history(self, step: str) -> None:
        if step.startswith("history "):
            play(self._stored[step.removeprefix("history ")])
            return
        setting, events = self._random[int(step.rsplit(maxsplit=1)[-1])]
        world = Model(*setting)
        try:
            for event in events:
                world.do(tuple(event))
            world.calm()
        finally:
            world.close()

    def _cover(self, steps: Sequence[str]) -> Any:
        met: set[tuple[str, int]] = set()
        vars(builtins)[NOTE] = met.add
        for file in FILES:
            _replace(file, _noting(file))
        usual: dict[str, float] = {}
        failed: list[str] = []
        lines: dict[str, list[tuple[str, int]]] = {}
        for step, following in zip(steps, [*steps[1:], ""], strict=True):
            met.clear()
            began = time.monotonic()
            if not self._passes(step, following):
                failed.append(step)
            usual[step], lines[step] = time.monotonic() - began, sorted(met)
        return {"usual": usual, "failed": failed, "lines": lines}


def _is_step(item: Any) -> bool:
    """True if it is a test of its own, and needs no server but a Kafka."""
    return not item.nodeid.startswith(MODEL) and not ELSEWHERE & set(item.fixturenames)


def _recorded(model: Any) -> list[Any]:
    found: list[Any] = []

    class Recorded(model.Machine):  # type: ignore[misc]
        def teardown(self) -> None:
            if hasattr(self, "world"):
                found.append((self.world.setting, self.world.history))
                self.world.close()

    run_state_machine_as_test(
        seed(SEED)(Recorded),
        settings=settings(
            max_examples=HISTORIES, stateful_step_count=model.STEPS, suppress_health_check=list(HealthCheck)
        ),
    )
    return found[:HISTORIES]


def _replace(file: str, source: str | ast.Module, only: str = "") -> None:
    """Give every function of a file, in every copy that is loaded, the code that it has in this source."""
    path = str(Path(file).resolve())
    name = file.removeprefix("include/").removesuffix(".py").replace("/", ".")
    exec(compile(source, MUTANT, "exec"), vars(ModuleType(name)))  # noqa: S102  nothing else makes functions
    every = [f for f in gc.get_objects() if isinstance(f, FunctionType)]
    new = {f.__code__.co_qualname: f for f in every if f.__code__.co_filename == MUTANT}
    there = [f for f in every if f.__code__.co_filename == path and f.__code__.co_qualname in new]
    for old in there:
        now = new[old.__code__.co_qualname]
        if not only or now.__code__.co_qualname == only:
            old.__code__, old.__defaults__, old.__kwdefaults__ = (
                now.__code__,
                now.__defaults__,
                now.__kwdefaults__,
            )
    assert not only or any(f.__code__.co_qualname == only for f in there), f"{only} of {file} is not loaded"


def _noting(file: str) -> ast.Module:
    """Return a file of which each statement in a function notes its line before it is run."""
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        for node in list(ast.walk(function)):
            for block in ("body", "orelse", "finalbody"):
                found = getattr(node, block, None)
                if isinstance(found, list) and found and not _notes(found[0]):
                    noted = [(_note(file, statement.lineno), statement) for statement in found]
                    setattr(node, block, [each for pair in noted for each in pair])
        function.body.insert(0, _note(file, function.lineno))
    return ast.fix_missing_locations(tree)


def _note(file: str, line: int) -> ast.stmt:
    return ast.parse(f"{NOTE}(({file!r}, {line}))").body[0]


def _notes(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and NOTE in ast.dump(statement)


@contextmanager
def _written(file: str, source: str) -> Iterator[None]:
    """Have the copy of the tree hold the mutant, for processes that tests start."""
    path = Path(file)
    original = path.read_text(encoding="utf-8")
    path.write_text(source, encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(original, encoding="utf-8")


@contextmanager
def _fork(work: Callable[[Callable[[bytes], object]], None]) -> Iterator[tuple[int, int]]:
    """Work in a fork, which ends with all that it started: its process, and a descriptor to read what it tells."""
    answers, out = os.pipe()
    pid = os.fork()
    if not pid:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            work(lambda told: os.write(out, told))
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(0)
    os.close(out)
    try:
        yield pid, answers
    finally:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(answers)


def _answers_within(pid: int, answers: int, seconds: float) -> bool:
    """Whether a fork says something within `seconds`, without those in which it had no core."""
    began, kept_waiting = time.monotonic(), _kept_waiting(pid)
    while not select.select([answers], [], [], 0.5)[0]:
        if time.monotonic() - began - (_kept_waiting(pid) - kept_waiting) > seconds:
            return False
    return True


def _kept_waiting(pid: int) -> float:
    """Return the most seconds that a thread of a process was ready to run and had no core (proc(5), `schedstat`)."""
    delays = []
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            delays.append(int(thread.read_text().split()[1]))
    return max(delays, default=0) / 1e9


def _elsewhere(work: Callable[[], Any]) -> Any:
    """Return what `work` returns in a fork."""
    with _fork(lambda tell: _tell_all(tell, json.dumps(work()).encode())) as (_, answers):
        return json.loads(b"".join(iter(lambda: os.read(answers, 1 << 16), b"")))


def _tell_all(tell: Callable[[bytes], object], told: bytes) -> None:
    while told:
        told = told[tell(told) :]  # type: ignore[misc]
