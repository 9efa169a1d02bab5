"""A process tells how much it holds after a collection, whenever it is asked by a file.

The numbers of threads and handles are seen from outside. Only the process itself can collect its garbage first.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from pathlib import Path

VARIABLE = "MUSTER_TEST_LOOKS"
"""Environment variable with the folder of the question and the answers."""
QUESTION = "question"
_EVERY = 0.2


def answer_looks(name: str) -> None:
    """Answer in a thread from now on, if the environment names a folder."""
    if folder := os.environ.get(VARIABLE):
        threading.Thread(target=_answer, args=(Path(folder), name), daemon=True, name="test-looks").start()


def ask_looks(folder: Path, number: int) -> None:
    """Ask all for look `number`."""
    _write(folder / QUESTION, str(number))


def answered(folder: Path, name: str, number: int) -> dict[str, int] | None:
    """Return what `name` answered to look `number`: its pid and the blocks of Python's heap; None: not yet."""
    try:
        answer = json.loads((folder / f"{name}.json").read_text())
    except FileNotFoundError:
        return None
    return dict(answer) if answer["look"] == number else None


def _answer(folder: Path, name: str) -> None:
    last = ""
    while True:
        asked = (folder / QUESTION).read_text() if (folder / QUESTION).exists() else ""
        if asked != last:
            last = asked
            gc.collect()
            blocks = sys.getallocatedblocks()
            answer = {"look": int(asked), "pid": os.getpid(), "blocks": blocks}
            _write(folder / f"{name}.json", json.dumps(answer))
        time.sleep(_EVERY)


def _write(file: Path, text: str) -> None:
    partial = file.with_name(f"{file.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(file)
