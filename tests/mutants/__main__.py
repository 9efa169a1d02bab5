"""Tries mutants of the code that decides who reads and who commits, and says which of them no test notices.

`python -m tests.mutants --seed 7 --count 150`. For each mutant: the unit and property tests that meet its lines,
those that meet the fewest other lines first; then the histories of the model that meet them; for the committer and
the fencing their tests on a Kafka as well. It ends with the first failure. The last line is the score.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import click

from tests.mutants.drawing import FILES, ROOT, TRIED_ON_KAFKA, Mutant, draw, equivalents
from tests.mutants.playing import HISTORIES, MODEL, PIPES

TESTS = ("tests/unit", "tests/property")
ON_KAFKA = tuple(
    f"tests/integration/test_{name}.py" for name in ("fencing", "fenced_committer", "dead_letters")
)
SURVIVORS, EQUIVALENTS = 3, 15
"""So many may survive, or be equivalent, of one draw."""


class Worker:
    """A warm process in a copy of the tree of its own."""

    def __init__(self, place: Path) -> None:
        _copy_tree(place / "tree")
        ours, theirs = os.pipe(), os.pipe()
        self._log = (place / "log").open("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "tests.mutants.playing"),
                *("-p", "no:cacheprovider", f"--basetemp={place / 'tmp'}", *TESTS, *ON_KAFKA, MODEL),
            ],
            cwd=place / "tree",
            env=os.environ
            | {
                "PYTHONPATH": f"{place / 'tree/include'}:{place / 'tree'}",
                "PYTHONHASHSEED": "0",
                "PYTHONDONTWRITEBYTECODE": "1",
                PIPES: f"{theirs[0]},{ours[1]}",
            },
            pass_fds=(theirs[0], ours[1]),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        os.close(theirs[0])
        os.close(ours[1])
        self._answers, self._requests = os.fdopen(ours[0]), os.fdopen(theirs[1], "w")

    def ask(self, what: str, **named: Any) -> Any:
        """Return the answer to a request. Raises RuntimeError with the process's last words if it is dead."""
        print(json.dumps({"do": what, **named}), file=self._requests, flush=True)
        if line := self._answers.readline():
            return json.loads(line)
        self._log.seek(0)
        raise RuntimeError(f"the process that tries mutants is dead:\n{self._log.read()[-4000:]}")

    def end(self) -> None:
        """End the process, also in the middle of a mutant; its server ends with it."""
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _copy_tree(to: Path) -> None:
    listed = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name)


@contextmanager
def workers(count: int) -> Iterator[list[Worker]]:
    """Start warm processes, and end them without a trace."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(TemporaryDirectory(prefix="muster-mutants-")))
        started: list[Worker] = []
        for number in range(count):
            started.append(Worker(root / str(number)))
            stack.callback(started[-1].end)
        yield started


class Knowledge:
    """Which step meets which lines, how long each takes, and what fails without any mutant."""

    def __init__(self, pool: Sequence[Worker]) -> None:
        steps = pool[0].ask("tests")
        recorded = pool[-1].ask("record")
        if len(recorded) != HISTORIES:
            raise RuntimeError(f"{len(recorded)} random histories were recorded, not {HISTORIES}")
        for worker in pool:
            steps += [s for s in worker.ask("know", histories=recorded) if s not in steps]
            worker.ask("serve_kafka")
        scopes = {scope: number for number, scope in enumerate(dict.fromkeys(map(_scope, steps)))}
        shares = [[s for s in steps if scopes[_scope(s)] % len(pool) == n] for n in range(len(pool))]
        with ThreadPoolExecutor(len(pool)) as threads:
            found = list(threads.map(lambda w, share: w.ask("cover", steps=share), pool, shares))
        self.usual: dict[str, float] = {step: s for each in found for step, s in each["usual"].items()}
        self.failed: list[str] = [step for each in found for step in each["failed"]]
        self._by_line: dict[tuple[str, int], set[str]] = {}
        for each in found:
            for step, lines in each["lines"].items():
                for file, line in lines:
                    self._by_line.setdefault((file, line), set()).add(step)
        self._breadth = Counter(step for met in self._by_line.values() for step in met)

    def steps(self, mutant: Mutant) -> dict[str, float]:
        """Return the steps for a mutant, in order, with the seconds that each takes."""
        met = self._by_line.get((mutant.file, mutant.line), set()) - set(self.failed)
        if mutant.file not in TRIED_ON_KAFKA:
            met = {step for step in met if not step.startswith(ON_KAFKA)}
        order = sorted(
            met, key=lambda s: (s.startswith(ON_KAFKA), "history" in s.split(), self._breadth[s], s)
        )
        return {step: self.usual[step] for step in order}


def _scope(step: str) -> str:
    """Return what is to be run by one process: a file of tests, or a history."""
    return step.partition("::")[0]


def play(mutants: Sequence[Mutant], pool: Sequence[Worker]) -> list[dict[str, Any]]:
    """Try mutants, as many at once as there are workers."""
    began, lock, count = time.monotonic(), Lock(), len(mutants)
    known = Knowledge(pool)
    print(
        f"{len(known.usual)} tests and histories, {time.monotonic() - began:.0f} s to see which lines they meet"
    )
    for step in known.failed:
        print(f"left out, because it fails without a mutant: {step}")
    free: SimpleQueue[Worker] = SimpleQueue()
    for worker in pool:
        free.put(worker)
    done: list[dict[str, Any]] = []

    def attempt(mutant: Mutant) -> None:
        worker, at = free.get(), time.monotonic()
        try:
            result = {"mutant": mutant} | worker.ask(
                "attempt",
                file=mutant.file,
                function=mutant.function,
                source=mutant.source,
                steps=known.steps(mutant),
            )
        finally:
            free.put(worker)
        with lock:
            done.append(result)
            print(
                f"{len(done)}/{count} {result['how']}: {mutant}, {time.monotonic() - at:.1f} s, "
                f"{len(result['ran'])} tests{', the last ' * bool(result['by'])}{result['by']}",
                flush=True,
            )

    with ThreadPoolExecutor(len(pool)) as threads:
        list(threads.map(attempt, mutants))
    return done


@click.command()
@click.option("--seed", type=int, default=None, help="The draw; random without it.")
@click.option("--count", default=150, show_default=True, help="So many mutants.")
@click.option("--workers", "many", default=2, show_default=True, help="So many at once.")
@click.option("--only", default="", help="Only mutants of files that end with this.")
def main(seed: int | None, count: int, many: int, only: str) -> None:
    """Draw mutants and try them."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    seed = secrets.randbelow(2**32) if seed is None else seed
    print(f"mutants: seed={seed}", flush=True)
    known = equivalents()
    drawn = draw(seed, count, [file for file in FILES if file.endswith(only)])
    equivalent = {id(mutant): each for mutant in drawn for each in known if each.is_of(mutant)}
    with workers(many) as pool:
        results = play([mutant for mutant in drawn if id(mutant) not in equivalent], pool)
    for mutant in drawn:
        if id(mutant) in equivalent:
            print(f"\nequivalent: {mutant}: {equivalent[id(mutant)].why}\n{mutant.diff}")
    for each in results:
        for step in each["doubtful"]:
            print(f"\nno verdict on {each['mutant']}: fails without it, too: {step}")
        if each["how"] == "survived":
            tests = "\n".join(f"  {step}" for step in each["ran"])
            print(
                f"\nsurvived: {each['mutant']}\n{each['mutant'].diff}\ntests that ran:\n{tests or '  none'}"
            )
    hows = Counter(each["how"] for each in results)
    killed = hows["killed"] + hows["timeout"]
    print(
        f"mutants: seed={seed} tried={len(drawn)} killed={killed} timeout={hows['timeout']} "
        f"equivalent={len(equivalent)} survived={hows['survived']}"
    )
    sys.exit(hows["survived"] > SURVIVORS or len(equivalent) > EQUIVALENTS)


if __name__ == "__main__":
    main()
