"""The proof: what the consumers wrote, held against what was produced and against the source file."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds


@dataclass(frozen=True)
class Arrivals:
    """What the Parquet files hold. `rows` counts each distinct source row once, `records` counts everything.

    `read_twice` is the number of records that stand there again, by topic, partition and offset;
    `produced_twice` would be source rows under several offsets. `complete_to` is the first source row that is not
    there, counted from 0: what is behind it says nothing of a partition that is not read.
    """

    records: int
    rows: int
    read_twice: int
    produced_twice: int
    carriers: Counter[str]
    complete_to: int = 0


def count_arrivals(path: Path) -> Arrivals:
    """Read every Parquet file of flights below `path`."""
    return _count(path, "carrier")


def count_numbers(path: Path) -> Arrivals:
    """Read every Parquet file of records that carry nothing but their `row`."""
    return _count(path, None)


def _count(path: Path, group: str | None) -> Arrivals:
    # Not deeper: what is below a writer's _temporary is not complete, and comes and goes while one looks.
    files = sorted(str(file) for file in path.glob("writer=*/*.parquet"))
    if not files:
        return Arrivals(0, 0, 0, 0, Counter())
    table = ds.dataset(files, format="parquet").to_table(columns=["topic", "partition", "offset", "value"])
    places = table.select(["topic", "partition", "offset"]).group_by(["topic", "partition", "offset"])
    distinct = places.aggregate([]).num_rows
    groups: Counter[str] = Counter()
    seen: set[int] = set()
    again = 0
    for value in table.column("value").cast(pa.binary()).to_pylist():
        record = json.loads(value)
        if record["row"] in seen:
            again += 1
            continue
        seen.add(record["row"])
        if group:
            groups[record[group]] += 1
    read_twice = table.num_rows - distinct
    complete_to = next(row for row in itertools.count() if row not in seen)
    return Arrivals(table.num_rows, len(seen), read_twice, again - read_twice, groups, complete_to)
