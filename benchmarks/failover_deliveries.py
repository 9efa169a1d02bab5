"""Which record reached which consumer, and when: written by all consumers alike, and read while they run.

`python -m benchmarks.failover_deliveries CONFIG TOPIC FOLDER` is one member of a Kafka group, as plain as it can be.
CONFIG is librdkafka's, as JSON. It notes what it is given below FOLDER, and leaves the group in order at SIGTERM.

A line of JSON a batch: `{"pid", "at", "ranges": [[partition, begin, end], ...]}`. `at` is in seconds since the epoch,
when the records were in the consumer's hands; `end` is exclusive.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from muster.sinks import Batch


@dataclass(frozen=True, order=True, slots=True)
class Delivery:
    """The records `begin` to `end` (exclusive) of one partition, in the hands of process `pid`."""

    at: float
    pid: int
    begin: int
    end: int


class Notes:
    """The notes of this process, in a file of its own below `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"{os.getpid()}-{uuid.uuid4().hex}.jsonl").open("a", encoding="utf-8")

    def batch(self, offsets: Iterable[tuple[int, int]]) -> None:
        at = time.time()
        ranges: list[list[int]] = []
        for partition, offset in sorted(offsets):
            if ranges and ranges[-1][0] == partition and ranges[-1][2] == offset:
                ranges[-1][2] += 1
            else:
                ranges.append([partition, offset, offset + 1])
        if ranges:
            self._file.write(json.dumps({"pid": os.getpid(), "at": at, "ranges": ranges}) + "\n")
            self._file.flush()


class Noting:
    """The handler of Muster's consumers: notes each batch below `folder` once its records are in the driver."""

    def __init__(self, folder: str) -> None:
        self._notes = Notes(Path(folder))

    def __call__(self, batch_df: DataFrame, _batch: Batch) -> None:
        table = batch_df.select("partition", "offset").toArrow()
        columns = (table.column(name).to_pylist() for name in ("partition", "offset"))
        self._notes.batch(zip(*columns, strict=True))


class Deliveries:
    """All notes below `folder`, by partition and in the order of their times. `refresh` reads what has come."""

    def __init__(self, folder: Path, partitions: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.of: dict[int, list[Delivery]] = {partition: [] for partition in range(partitions)}
        self._read: dict[Path, int] = {}

    def refresh(self) -> Deliveries:
        """Read what was written since the last time. A line that is being written is left for the next."""
        for path in self.folder.glob("*.jsonl"):
            begun = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(begun)
                data = file.read()
            data = data[: data.rfind(b"\n") + 1]
            self._read[path] = begun + len(data)
            for line in data.splitlines():
                note = json.loads(line)
                for partition, begin, end in note["ranges"]:
                    self.of[partition].append(Delivery(note["at"], note["pid"], begin, end))
        for deliveries in self.of.values():
            deliveries.sort()
        return self

    def owners(self) -> dict[int, int]:
        """Map each partition to the process that was given records of it last."""
        return {partition: deliveries[-1].pid for partition, deliveries in self.of.items() if deliveries}

    def reached(self) -> dict[int, int]:
        """Map each partition to the end of what was delivered."""
        return {p: max((d.end for d in deliveries), default=0) for p, deliveries in self.of.items()}

    def lost(self, produced: Mapping[int, int]) -> int:
        """Count how many of the `produced` records (partition to their number) reached no consumer."""
        missing = 0
        for partition, deliveries in self.of.items():
            upto = 0
            for begin, end in sorted((d.begin, d.end) for d in deliveries):
                missing += max(0, begin - upto)
                upto = max(upto, end)
            missing += max(0, produced[partition] - upto)
        return missing

    def doubled(self, since: float, until: float) -> int:
        """Count how many records were delivered from `since` to `until` that had been delivered before."""
        again = 0
        for deliveries in self.of.values():
            upto = 0
            for delivery in deliveries:
                if since <= delivery.at < until:
                    again += max(0, min(upto, delivery.end) - delivery.begin)
                upto = max(upto, delivery.end)
        return again


def main() -> None:
    """Consume until SIGTERM."""
    config, topic, folder = json.loads(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    consumer = Consumer(config)
    consumer.subscribe([topic])
    notes = Notes(folder)
    try:
        while not stop.is_set():
            # So many records, and seconds after which they are handled though there are not so many.
            found = [message for message in consumer.consume(500, 0.05) if message.error() is None]
            notes.batch((message.partition() or 0, message.offset() or 0) for message in found)
    finally:
        consumer.close()


if __name__ == "__main__":
    main()
