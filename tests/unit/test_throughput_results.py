"""What parts of the throughput benchmark have measured makes one report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.throughput import ratios, write
from benchmarks.throughput_driver import (
    BACK_TO_BACK,
    MUSTER,
    NOOP,
    PARQUET,
    SHIPPED,
    TRIGGER,
    TUNED,
    Batch,
    Input,
    Reading,
)
from benchmarks.throughput_figures import (
    FETCHES,
    KEEPER,
    SHORT,
    Conditions,
    Figure,
    Heap,
    Latency,
    Results,
    Start,
    TooFewBatchesError,
    Tuning,
    window,
)

CONDITIONS = Conditions(batches=5, cores=2, load=0.5, heap="2g", java_options="-Xint")
FULL = Input(1000, 1).most


def reading(rate: float, memory: int = 100, cpu: float = 1.0) -> Reading:
    """Five full batches at `rate` records/s after a start of a second, and a last one that is not full."""
    ends = [1.0 + n * FULL / rate for n in range(1, 6)]
    return Reading([*(Batch(end, FULL, end * cpu) for end in ends), Batch(ends[-1] + 1, 10, 0.0)], memory)


def figure(partitions: int, sink: str, muster: float, size: int = 1000) -> Figure:
    """The tuned source reads 100 records/s."""
    return Figure(
        Input(size, partitions),
        sink,
        {TUNED: [reading(100.0)], MUSTER: [reading(muster, 80)], SHIPPED: [reading(50.0)]},
    )


def heap(size: int, tuned: float, muster: float) -> Heap:
    """Two of three drivers read so much."""
    rates = {TUNED: [tuned, tuned, 0.0], MUSTER: [muster, 1e6, muster]}
    return Heap(size, {TUNED: str(SHORT), MUSTER: "defaults"}, rates)


def test_window_is_from_the_first_full_batch_to_the_last() -> None:
    grows = [Batch(1, FULL // 3, 0), Batch(2, FULL // 2, 0)]
    full = [Batch(n, FULL - 5, 0) for n in (3, 4, 5)]
    assert window(Reading([*grows, *full, Batch(6, 7, 0)], 0), FULL) == full
    assert window(Reading([*grows, *full], 0), FULL) == full[:-1], "the last one reaches the topic's end"
    small = Batch(6, FULL // 2, 0)
    again = Batch(7, FULL, 0)
    assert window(Reading([*full, small, again, Batch(8, 7, 0)], 0), FULL) == [*full, small, again]
    with pytest.raises(
        TooFewBatchesError, match=r"no two full batches of 100000 records: .*; read a longer topic"
    ):
        window(Reading(grows, 0), FULL)


def test_figures_are_those_of_the_window() -> None:
    found = figure(1, NOOP, 200)
    assert found.steady(found.readings[MUSTER][0]) == pytest.approx(200)
    assert found.whole(found.readings[MUSTER][0]) == pytest.approx((5 * FULL + 10) / (2 + 5 * FULL / 200))
    assert found.ratio(found.cpu) == pytest.approx(0.5)
    assert found.ratio(found.memory) == pytest.approx(0.8)


def test_parts_make_one_report(tmp_path: Path) -> None:
    delays = tuple(
        Latency(
            0.05, 12, trigger, {TUNED: [[0.4, 0.4]], MUSTER: [[seconds] * 2]}, {TUNED: [1.0], MUSTER: [0.5]}
        )
        for trigger, seconds in ((TRIGGER, 0.3), (BACK_TO_BACK, 0.2))
    )
    starts = tuple(Start(Input(1000, n), {TUNED: [4.0], MUSTER: [n / 4]}) for n in (12, 100))
    file = tmp_path / "results.json"
    assert KEEPER.load(file) is None
    figures = (figure(12, NOOP, 170), figure(100, NOOP, 300))
    tunings = tuple(Tuning(Input(1000, n), [30.0, 20.0, 10.0]) for n in (12, 100))
    KEEPER.save(file, Results(CONDITIONS, figures, starts, tunings, delays))
    kept = KEEPER.load(file)
    assert kept is not None
    again = replace(CONDITIONS, load=2.0)
    new = (figure(12, NOOP, 180), figure(12, PARQUET, 120), figure(12, NOOP, 110, 100_000))
    both = kept.joined(
        Results(
            again,
            new,
            (Start(Input(1000, 100), {TUNED: [4.0], MUSTER: [5.0]}),),
            (Tuning(Input(1000, 12), [0.0, 20.0, 30.0]),),
            heaps=(
                heap(2048, 81.0, 99.0),
                heap(1024, 0.0, 80.0),
                heap(512, 90.0, 79.0),
                heap(8192, 100.0, 100.0),
            ),
        )
    )
    assert [(each.input.size, each.input.partitions, each.sink) for each in both.figures] == [
        (1000, 12, NOOP),
        (1000, 12, PARQUET),
        (1000, 100, NOOP),
        (100_000, 12, NOOP),
    ]
    assert both.conditions.load == 2.0
    assert [tuning.best for tuning in both.tunings] == [FETCHES[2], FETCHES[0]]
    assert ratios(both) == (
        "bench-throughput: noop_ratio=1.80 parquet_ratio=1.20 touch_ratio=nan cpu_ratio=0.83 memory_ratio=0.80 "
        "latency_ratio=0.50 start_ratio=1.25 heap_mb=1024 heap_ratio=0.50"
    )
    write(tmp_path, both)
    report = (tmp_path / "report-throughput.md").read_text()
    assert ratios(both) in report
    assert "| 1,000 B, 12 partitions, lz4 | out of memory | 20 | **30** |" in report
    assert f"| {TRIGGER} | Muster | 300 | 300 | 0.50 | 2 |" in report
    assert "| 1024 | 0 | 500 records, 256 kB | **80** | defaults |" in report
    assert "| 512 | 90 | 500 records, 256 kB | 79 | defaults |" in report
    assert "The machine was not quiet" in report


def test_missing_measurement_is_not_a_number() -> None:
    assert ratios(Results(CONDITIONS, (figure(1, NOOP, 150),))) == (
        "bench-throughput: noop_ratio=1.50 parquet_ratio=nan touch_ratio=nan cpu_ratio=0.67 memory_ratio=0.80 "
        "latency_ratio=nan start_ratio=nan heap_mb=nan heap_ratio=nan"
    )


def test_parts_of_other_conditions_are_not_joined(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="use another file"):
        Results(CONDITIONS).joined(Results(replace(CONDITIONS, cores=4)))
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="not results of this benchmark"):
        KEEPER.load(tmp_path / "other.json")
