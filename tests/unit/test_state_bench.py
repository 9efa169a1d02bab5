"""What the state benchmark makes of its cells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.state import Figure, Results, line, with_failover, write
from benchmarks.state_driver import BULK, PANDAS, ROWS, Ended
from benchmarks.state_failover import (
    COLD,
    SPARK,
    STATELESS,
    WARM,
    Beside,
    Checked,
    Failover,
    expected,
)
from benchmarks.state_failover_job import AT_ONCE, WithSpare, WithStandby
from benchmarks.state_measure import FEW, MANY, MUSTER, PARTITIONS, Cell, Filled
from benchmarks.state_measure import SPARK as SPARK_CELL
from muster.core.model import Consumer

NO_FAILOVER = " warm_s=nan warm_growth=nan stateless_s=nan cold_s=nan spark_restart_s=nan"


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
        figure(FEW, SPARK_CELL, ROWS, 4.0),
        figure(FEW, SPARK_CELL, PANDAS, 2.0),
        figure(FEW, MUSTER, ROWS, 0.5),
        figure(FEW, MUSTER, BULK, 0.25, differ=1),
        figure(MANY, SPARK_CELL, ROWS, 10.0),
        figure(MANY, MUSTER, ROWS, 1.0),
        figure(MANY, MUSTER, BULK, 0.5, differ=2),
    )
    results = Results("full", 0.1, figures, (200_000.0, 190_000.0, 210_000.0), ("writing",), 4)
    said = (
        "bench-state: row_ratio=4.00 bulk_ratio=8.00 cpu_ratio=0.25 restore_krecords_s=200 diff=7"
        + NO_FAILOVER
    )
    assert line(results) == said
    write(tmp_path, results)
    assert said in (tmp_path / "report-state.md").read_text(encoding="utf-8")


def test_missing_cells_are_nan() -> None:
    said = (
        "bench-state: row_ratio=nan bulk_ratio=nan cpu_ratio=nan restore_krecords_s=nan diff=0" + NO_FAILOVER
    )
    assert line(Results("quick", 0.1)) == said
    alone = Figure.of(Cell(FEW, False, SPARK_CELL), batches(1.0, count=1), 1, 0)
    assert line(Results("quick", 0.1, (alone,))) == said


def test_oracle_counts_what_a_partition_has() -> None:
    counts, sums = Filled("t", np.array([0, 1, 0, 2])).expected(3, 3 * PARTITIONS)
    assert counts.tolist() == [2, 1, 0]
    assert sums.tolist() == [2, 1, 0]


def test_failovers_are_medians_at_most_keys(tmp_path: Path) -> None:
    results = Results("full", 0.1)
    for case, keys, seconds in [
        (STATELESS, 0, (3.0, 2.0, 9.0)),
        (WARM, 1000, (4.0, 5.0, 4.0)),
        (WARM, 50_000, (6.0, 5.0, 7.0)),
        (COLD, 50_000, (40.0,)),
        (SPARK, 50_000, (20.0,)),
    ]:
        for each in seconds:
            results = with_failover(results, Failover(case, keys, each))
    results = with_failover(with_failover(results, Beside(200.0, 150.0, 7)), Checked(2))
    said = "diff=2 warm_s=6.0 warm_growth=1.50 stateless_s=3.0 cold_s=40.0 spark_restart_s=20.0"
    assert line(results).endswith(said)
    write(tmp_path, results)
    report = (tmp_path / "report-state.md").read_text(encoding="utf-8")
    assert "| warm standby | 50,000 | 3 | 6.0 (5.0 to 7.0) |" in report
    assert "`warm_s` met, `warm_growth` NOT met" in report
    assert "0.75 of that" in report


def test_first_records_fill_and_later_ones_change() -> None:
    keys = 2 * AT_ONCE
    assert expected(keys, 0).sum() == 0
    assert expected(keys, 1).tolist() == [1] * AT_ONCE + [0] * AT_ONCE
    counts = expected(keys, 4)
    assert (counts.min(), counts.sum()) == (1, keys + 2)


def test_partitions_stay_until_their_owner_is_gone() -> None:
    topics, one, two = {"t": frozenset({0, 1})}, Consumer("one"), Consumer("two")
    both, of_two = {"one": one, "two": two}, {"t": {0: "two", 1: "two"}}
    assert WithSpare().assign(topics, both, {}) == {"t": {0: "one", 1: "one"}}
    assert WithSpare().assign(topics, both, of_two) == of_two
    assert WithSpare().assign(topics, {"one": one}, of_two) == {"t": {0: "one", 1: "one"}}
    assert WithStandby().standbys(topics, both, of_two, {}) == {"t": {0: ("one",), 1: ("one",)}}
