"""The consumer that shares no code with Muster. What it prints is noted as the handlers' notes are."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.week.clock import RENEWAL

PROGRAM = Path(__file__).parents[1] / "integration" / "foreign_consumer.py"
COMMITS_EVERY = 1.0


class Foreign:
    """One process of it, in a session of its own, with `arguments` from its id on. `leave` has it leave."""

    def __init__(
        self, journal: Path, arguments: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self._who = {"consumer": arguments[0], "host": 1, "incarnation": str(uuid.uuid4())}
        self._notes = journal / f"{arguments[0]}-{self._who['incarnation']}.jsonl"
        log.parent.mkdir(exist_ok=True)
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), *arguments, str(COMMITS_EVERY), str(RENEWAL)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=dict(environment),
                start_new_session=True,
            )
        self._read: list[tuple[float, tuple[str, int, int, int, int]]] = []
        self._ended = False
        self._lock = threading.Lock()
        for work in (self._collect, self._note):
            threading.Thread(target=work, daemon=True, name="test-foreign").start()

    def leave(self) -> None:
        """Tell it to leave in order, and wait until it has."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60) == 0

    def _collect(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            topic, partition, offset = line.split()
            with self._lock:
                self._read.append((time.time(), (topic, 0, int(partition), int(offset), int(offset) + 1)))
        with self._lock:
            self._ended = True

    def _note(self) -> None:
        """Note what was read of a partition within each half second as a batch."""
        ended = False
        while not ended:
            time.sleep(0.5)
            with self._lock:
                read, self._read, ended = self._read, [], self._ended
            batches = defaultdict(list)
            for at, record in read:
                batches[record[0], record[2]].append((at, record))
            for batch in batches.values():
                note, ranges = uuid.uuid4().hex, [record for _, record in batch]
                began = {"batch": note, "began": batch[0][0], "ranges": ranges, **self._who}
                lines = (began, {"batch": note, "ended": batch[-1][0]})
                with self._notes.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(line) + "\n" for line in lines)
