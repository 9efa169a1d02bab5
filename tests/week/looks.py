"""A process tells how much it holds after a collection, whenever it is asked by a file.

Only the process itself can collect its garbage first, and be between two runs when its handles are counted.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from pathlib import Path

import psutil

VARIABLE = "MUSTER_TEST_LOOKS"
"""Environment variable with the folder of the question and the answers."""
QUESTION = "question"
_EVERY = 0.2


class Answers:
    """What `name` says when it is asked, if the environment names a folder. With `by_itself` a thread says it."""

    def __init__(self, name: str, by_itself: bool = False) -> None:
        self._folder, self._name, self._last = os.environ.get(VARIABLE), name, ""
        if self._folder and by_itself:
            threading.Thread(target=self._go_on, daemon=True, name="test-looks").start()

    def answer(self) -> None:
        """Answer if there is a new question."""
        if not self._folder:
            return
        folder = Path(self._folder)
        asked = (folder / QUESTION).read_text() if (folder / QUESTION).exists() else ""
        if asked != self._last:
            self._last = asked
            gc.collect()
            holds = {
                "heap blocks": sys.getallocatedblocks(),
                "handles": psutil.Process().num_fds(),
                "threads": psutil.Process().num_threads(),
            }
            _write(folder / f"{self._name}.json", json.dumps({"look": int(asked), "holds": holds}))

    def _go_on(self) -> None:
        while True:
            self.answer()
            time.sleep(_EVERY)


def ask_looks(folder: Path, number: int) -> None:
    """Ask all for look `number`."""
    _write(folder / QUESTION, str(number))


def answered(folder: Path, name: str, number: int) -> dict[str, int] | None:
    """Return what `name` holds at look `number`, by the names of the measures; None: not answered yet."""
    try:
        answer = json.loads((folder / f"{name}.json").read_text())
    except FileNotFoundError:
        return None
    return dict(answer["holds"]) if answer["look"] == number else None


def _write(file: Path, text: str) -> None:
    partial = file.with_name(f"{file.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(file)
