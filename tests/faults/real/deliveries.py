"""What was delivered to handlers, from their notes: which records twice, and which partitions a batch passed over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Delivery:
    """One batch as a handler got it. `at` is in seconds since the epoch; partition to offsets, end exclusive."""

    pid: int
    at: float
    ranges: dict[int, tuple[int, int]]


class Journal:
    """The notes below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def deliveries(self) -> list[Delivery]:
        """All batches in the order of their times. A line that is being written is left out."""
        return sorted(self._read(), key=lambda delivery: delivery.at)

    def doubled(self, since: float, until: float) -> int:
        """How many records were delivered again within these times, to whomever they were delivered before."""
        seen: set[tuple[int, int]] = set()
        again = 0
        for delivery in self.deliveries():
            for partition, (begin, end) in delivery.ranges.items():
                for offset in range(begin, end):
                    if (partition, offset) in seen and since <= delivery.at < until:
                        again += 1
                    seen.add((partition, offset))
        return again

    def passed_over(self, pid: int, partition: int, since: float, until: float) -> int:
        """How many batches in a row the driver `pid` was given without anything of `partition`, at most."""
        longest = row = 0
        for delivery in self.deliveries():
            if delivery.pid == pid and since <= delivery.at < until:
                row = 0 if partition in delivery.ranges else row + 1
                longest = max(longest, row)
        return longest

    def _read(self) -> Iterator[Delivery]:
        for file in self.folder.glob("*.jsonl"):
            for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
                if line.endswith("\n"):
                    note = json.loads(line)
                    ranges = {partition: (begin, end) for partition, begin, end in note["ranges"]}
                    yield Delivery(note["pid"], note["at"], ranges)
