"""What the state benchmark makes of its cells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.state import Figure, Results, line, write
from benchmarks.state_driver import BULK, PANDAS, ROWS, Ended
from benchmarks.state_measure import FEW, MANY, MUSTER, PARTITIONS, SPARK, Cell, Filled


def batches(each: float, records: int = 1000, count: int = 4) -> list[Ended]:
    """Batches of `each` seconds, with two CPU seconds in one, and a tenth of that in the broker."""
    return [Ended(n * each, records, 2 * n * each, 0.2 * n * each) for n in range(1, count + 1)]


def figure(keys: int, system: str, form: str, each: float, differ: int = 0) -> Figure:
    return Figure.of(Cell(keys, False, system, form), batches(each), 1, differ)


def test_first_and_last_batch_do_not_count() -> None:
    ended = [*batches(0.5), Ended(9.0, 10, 99.0, 9.0)]
    of = Figure.of(Cell(FEW, False, MUSTER), ended, 1, 0)
    assert (of.batches, of.records, of.seconds) == (3, 3000, 1.5)
    assert of.rate == 2000
    assert of.cpu_each == pytest.approx(1100)


def test_ratios_are_of_the_worst_cell_and_the_quicker_peer(tmp_path: Path) -> None:
    figures = (
        figure(FEW, SPARK, ROWS, 4.0),
        figure(FEW, SPARK, PANDAS, 2.0),
        figure(FEW, MUSTER, ROWS, 0.5),
        figure(FEW, MUSTER, BULK, 0.25, differ=1),
        figure(MANY, SPARK, ROWS, 10.0),
        figure(MANY, MUSTER, ROWS, 1.0),
        figure(MANY, MUSTER, BULK, 0.5, differ=2),
    )
    results = Results("full", 0.1, figures, (200_000.0, 190_000.0, 210_000.0), ("writing",), 4)
    said = "bench-state: row_ratio=4.00 bulk_ratio=8.00 cpu_ratio=0.25 restore_krecords_s=200 diff=7"
    assert line(results) == said
    write(tmp_path, results)
    assert said in (tmp_path / "report-state.md").read_text(encoding="utf-8")


def test_missing_cells_are_nan() -> None:
    said = "bench-state: row_ratio=nan bulk_ratio=nan cpu_ratio=nan restore_krecords_s=nan diff=0"
    assert line(Results("quick", 0.1)) == said
    alone = Figure.of(Cell(FEW, False, SPARK), batches(1.0, count=1), 1, 0)
    assert line(Results("quick", 0.1, (alone,))) == said


def test_oracle_counts_what_a_partition_has() -> None:
    counts, sums = Filled("t", np.array([0, 1, 0, 2])).expected(3, 3 * PARTITIONS)
    assert counts.tolist() == [2, 1, 0]
    assert sums.tolist() == [2, 1, 0]
