"""What parts of the throughput benchmark have measured makes one report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.throughput_driver import MUSTER, NOOP, PARQUET, SPARK, Reading
from benchmarks.throughput_figures import Figure, Latency, Side
from benchmarks.throughput_inputs import Input
from benchmarks.throughput_report import ratios, write
from benchmarks.throughput_results import Conditions, Results, load, save

CONDITIONS = Conditions(records=1000, most=300, cores=2, trigger=200, load=0.5)


def figure(partitions: int, sink: str, muster: float) -> Figure:
    """Spark's source reads 100 records/s."""

    def side(rate: float) -> Side:
        reading = Reading(
            batches=4, first=1.0, first_records=100, last=1.0 + 900 / rate, records=1000, steady_cpu=1.0
        )
        return Side(reading, [reading])

    return Figure(Input(200, partitions, 1000), sink, {SPARK: side(100.0), MUSTER: side(muster)})


def test_parts_make_one_report(tmp_path: Path) -> None:
    delays = Latency(0.05, 12, 200, {SPARK: [[0.4, 0.4]], MUSTER: [[0.2, 0.2]]})
    file = tmp_path / "results.json"
    assert load(file) is None
    save(file, Results(CONDITIONS, (figure(12, NOOP, 170), figure(100, NOOP, 300)), delays))
    kept = load(file)
    assert kept is not None
    again = replace(CONDITIONS, load=2.0)
    both = kept.joined(Results(again, (figure(12, NOOP, 180), figure(12, PARQUET, 120))))
    assert [(each.input.partitions, each.sink) for each in both.figures] == [
        (12, NOOP),
        (12, PARQUET),
        (100, NOOP),
    ]
    assert both.conditions.load == 2.0
    assert ratios(both) == "bench-throughput: noop_ratio=1.80 parquet_ratio=1.20 latency_ratio=0.50"
    write(tmp_path, both)
    report = (tmp_path / "report-throughput.md").read_text()
    assert ratios(both) in report
    assert "The machine was not quiet" in report


def test_missing_measurement_is_not_a_number() -> None:
    assert ratios(Results(CONDITIONS, (figure(1, NOOP, 150),))) == (
        "bench-throughput: noop_ratio=1.50 parquet_ratio=nan latency_ratio=nan"
    )


def test_parts_of_other_conditions_are_not_joined(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="use another file"):
        Results(CONDITIONS).joined(Results(replace(CONDITIONS, cores=4)))
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="not results of this benchmark"):
        load(tmp_path / "other.json")
