"""What parts of the benchmark of Airflow's own share have measured makes one report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.airflow_share_figures import (
    DEFAULTS,
    KEEPER,
    PARTS,
    STEPS,
    TUNED,
    Pruning,
    Quiet,
    Reaction,
    Side,
    joined,
    write,
)
from benchmarks.report import last_line

NOTHING = dict.fromkeys(PARTS, 0.0)


def quiet(long_poll: float, deaf: float, cpu: float, runs: int = 10) -> Quiet:
    """Ten runs, each of which takes `cpu` seconds beyond an idle 0.1 a second, and leaves 5,000 bytes."""
    seconds = runs * (long_poll + deaf)
    return Quiet(
        long_poll=long_poll,
        runs=runs,
        seconds=seconds,
        deaf=(deaf,) * runs,
        gaps=(deaf / 2,) * runs,
        tasks=3 * runs,
        parsers=9,
        cpu=NOTHING | {"tasks": cpu * runs, "scheduler": 0.1 * seconds},
        idle=NOTHING | {"scheduler": 0.1},
        rows={"dag_run": runs, "task_instance": 4 * runs, "log": 6 * runs},
        bytes={"task_instance": 4_000 * runs, "log": 1_000 * runs},
        logs=2_000 * runs,
    )


def side(name: str, deaf: float, cpu: float, total: float) -> Side:
    """A side that was measured with a long poll of 2 s and reacts in `total` seconds, thrice when busy."""
    reactions = tuple(
        Reaction("leave", busy, dict.fromkeys(STEPS, total * (3 if busy else 1) / len(STEPS)))
        for busy in (False, True)
    )
    return Side(name, NOTHING | {"scheduler": 0.1}, NOTHING, (quiet(2, deaf, cpu),), reactions)


def test_parts_make_one_report(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    assert KEEPER.load(file) is None
    pruned = Pruning(10, 3.0, 2_000_000, 2_050_000, 2_010_000, 2_001_000, {"task_instance": 40}, {"log": 60})
    KEEPER.save(file, joined((), replace(side(TUNED, 1.0, 0.5, 0.8), pruning=pruned)))
    sides = joined(KEEPER.load(file), side(DEFAULTS, 4.0, 2.0, 3.2))
    sides = joined(sides, Side(TUNED, sides[0].idle, NOTHING, (quiet(60, 1.0, 0.5, 2), quiet(2, 1.0, 0.5))))
    assert [each.name for each in sides] == [TUNED, DEFAULTS]
    assert [each.long_poll for each in sides[0].quiet] == [2, 60]
    assert sides[0].pruning == pruned
    assert sides[0].cpu_a_run["tasks"] == pytest.approx(0.5)
    assert sides[0].cpu_a_run["scheduler"] == pytest.approx(0.0)
    write(tmp_path, sides, 0.3)
    told = last_line("airflow-share", tmp_path / "report-airflow-share.md")
    # 86,400 / 21 runs are kept with the default long poll of 20 s, of 5,000 bytes each, above 2 MB.
    assert told == (
        "bench-airflow-share: deaf_s=1.00 cpu_s_a_run=0.50 bytes_a_run=5000 deaf_ratio=0.25 cpu_ratio=0.25 "
        "settles_mb=23 idle_cpu_ratio=1.00 react_ratio=0.25 react_busy_ratio=0.25"
    )
    text = (tmp_path / "report-airflow-share.md").read_text(encoding="utf-8")
    assert "| log | 6.0 | 1,000 |" in text
    assert "| after `airflow db clean --tables log` | 2.00 | log 60 |" in text
    assert "not quiet" not in text


def test_results_of_something_else_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text('{"conditions": {}}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"results\.json: not results of this benchmark"):
        KEEPER.load(file)
