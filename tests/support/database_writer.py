"""Writes one batch of a topic `t` into a database, dying or standing still at a step of it.

    python -m tests.support.database_writer CONNINFO FROM TO STEP SIGNAL

Prints the number of steps that there were.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from muster.sinks import Batch, DatabaseSink, OffsetRange
from tests.support.stepping_driver import Steps

TOPIC = "t"
PARTITIONS = (0, 1)
_PAGE = Path(__file__).resolve().parents[2] / "docs" / "sinks.md"
OFFSETS_TABLE = re.findall(
    r"```sql\n(CREATE TABLE muster_offsets.*?)```", _PAGE.read_text("utf-8"), re.DOTALL
)[0]
"""As the page has it."""
TABLE = """
CREATE TABLE numbers (topic text NOT NULL, partition integer NOT NULL, "offset" bigint NOT NULL, value bytea)
"""


def batch_of(
    begin: int, end: int, partitions: tuple[int, ...] = PARTITIONS, rebuild: int = 0
) -> tuple[pa.Table, Batch]:
    """The records with offsets `begin` up to `end` of each partition, and their batch, of this rebuild."""
    ranges = {(TOPIC, partition): (begin, end) for partition in partitions}
    batch = Batch(ranges, {TOPIC: "an-id"}, rebuilds=dict.fromkeys(ranges, rebuild))
    return rows_of(batch), batch


def rows_of(batch: Batch) -> pa.Table:
    """A row for each offset of a batch."""
    places = [(*tp, offset) for tp, held in batch.ranges.items() for offset in range(*held)]
    return pa.table(
        {
            "topic": [topic for topic, _, _ in places],
            "partition": pa.array([partition for _, partition, _ in places], pa.int32()),
            "offset": pa.array([offset for _, _, offset in places], pa.int64()),
            "value": pa.array([b"%d/%d" % place[1:] for place in places], pa.binary()),
        }
    )


def write(
    connect: dict[str, Any], begin: int, end: int, driver: str = "psycopg", rebuild: int = 0
) -> dict[tuple[str, int], Sequence[OffsetRange]]:
    """Write these records with a sink that knows of nothing yet; returns what it says is stored."""
    rows, batch = batch_of(begin, end, rebuild=rebuild)
    DatabaseSink(driver, connect, "numbers").store(rows, batch)
    return batch.stored["table numbers"]


def main() -> None:
    conninfo, *numbers = sys.argv[1:]
    begin, end, step, signal = map(int, numbers)
    steps = Steps(step, signal)
    write({"conninfo": conninfo, "steps": steps}, begin, end, "tests.support.stepping_driver")
    print(steps.done)


if __name__ == "__main__":
    main()
