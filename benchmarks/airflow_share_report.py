"""What the benchmark of Airflow's own share leaves behind: tables, and the line of figures."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.airflow_share_figures import DAY, DEFAULTS, PARTS, STEPS, TUNED, Pruning, Side
from benchmarks.markdown import table
from muster.settings.cluster_settings import ClusterSettings, RetentionSettings

REPORT = "report-airflow-share.md"
_KEPT = RetentionSettings().quiet_runs
_FEW = 0.1
"""Rows a run; a table that grows by less is left out."""


def write(folder: Path, sides: Sequence[Side], load: float) -> None:
    """Write the report into `folder`. `load` is the machine's before the run, by other work."""
    text = [
        "# Airflow's own share",
        "",
        "Written by `make bench-airflow-share`: do not edit. A coordinator of three simulated consumers on a real",
        "stack (SQLite, LocalExecutor), with this checkout's `airflow.cfg` and `config/`, and with Airflow's",
        "defaults instead: the same DAGs without these two. What was measured with one setting changed back is",
        "called 'airflow.cfg, but ...'.",
        "",
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f} before the run.",
        ""
        if load < 1
        else "**The machine was not quiet: seconds and CPU are too high; rows and bytes are not.**",
        "",
        "## A run with nothing to do",
        "",
        "It waits until the long poll ends. `deaf` is the time without a listener between two long polls, `gap`",
        "the part of it from the end of one task that waits to the start of the next one (medians). Processes",
        "are those of tasks; the DAG processor's, which parse DAG files, are counted by the hour. CPU is of all that",
        "is Airflow's, tasks among it; rows a run are of all runs together.",
        "",
        *_polls(sides),
        "",
        "## CPU by part",
        "",
        "`idle` is in CPU seconds an hour without any run; `a run` in CPU seconds beyond that, with the shortest",
        "long poll; the DAG processor and the triggerer have nothing to do with it. Memory is in MB (proportional",
        "set size), without a run.",
        "",
        *_parts(sides),
        "",
        *_reactions(sides),
        *_database(sides),
        f"`{last_line(sides)}`",
        "",
    ]
    (folder / REPORT).write_text("\n".join(text), encoding="utf-8")


def _polls(sides: Sequence[Side]) -> list[str]:
    head = (
        *("settings", "long poll s", "runs seen", "runs a day", "deaf s", "gap s", "processes a run"),
        *("parsers an hour", "CPU s an hour, in all", "rows a run", "rows a day"),
    )
    return table(
        head,
        (
            (
                side.name,
                f"{quiet.long_poll:g}",
                f"{quiet.runs}",
                f"{quiet.runs_a_day:,.0f}",
                _spread(quiet.deaf),
                f"{median(quiet.gaps):.2f}",
                f"{quiet.tasks / quiet.runs:.1f}",
                f"{3600 * quiet.parsers / quiet.seconds:,.0f}",
                f"{3600 * sum(quiet.cpu.values()) / quiet.seconds:,.0f}",
                f"{sum(side.rows_a_run.values()):.1f}",
                f"{sum(side.rows_a_run.values()) * quiet.runs_a_day:,.0f}",
            )
            for side in sides
            for quiet in side.quiet
        ),
    )


def _parts(sides: Sequence[Side]) -> list[str]:
    rows = []
    for side in sides:
        a_run = side.cpu_a_run if side.quiet else {}
        idle, memory = side.resting, side.memory
        rows += [
            (side.name, "idle", *(f"{3600 * idle[part]:,.0f}" for part in PARTS), f"{_hourly(side):,.0f}")
        ]
        if a_run:
            rows += [
                (
                    side.name,
                    "a run",
                    *(f"{a_run[part]:.2f}" if part in a_run else "" for part in PARTS),
                    f"{sum(a_run.values()):.2f}",
                )
            ]
        rows += [
            (side.name, "MB", *(f"{memory[part]:,.0f}" for part in PARTS), f"{sum(memory.values()):,.0f}")
        ]
    return table(("settings", "", *PARTS, "all"), rows)


def _hourly(side: Side) -> float:
    return 3600 * sum(side.resting.values())


def _reactions(sides: Sequence[Side]) -> Iterator[str]:
    if not any(side.reactions for side in sides):
        return
    yield from (
        "## A run that computes and advances",
        "",
        "Consumers leave and join in turn, while the coordinator is in its long poll; simulated ones leave Consul in",
        "order and take up at once, so what is left is the coordinator's and Airflow's. Seconds, medians, from the",
        "event to the write to ZooKeeper that says who takes over. `busy` is with as many programs as there are",
        "cores, which take all they get, as Spark consumers do on the same machine.",
        "",
    )
    found = [(side, busy, side.reacted(busy)) for busy in (False, True) for side in sides]
    yield from table(
        ("settings", "machine", "events", *STEPS, "all", "all, over Airflow's defaults"),
        (
            (
                side.name,
                "busy" if busy else "quiet",
                f"{len(reactions)}",
                *(f"{median([reaction.steps[step] for reaction in reactions]):.2f}" for step in STEPS),
                _spread([reaction.total for reaction in reactions]),
                _ratio(side, next((other for other in sides if other.name == DEFAULTS), None), busy),
            )
            for side, busy, reactions in found
            if reactions
        ),
    )
    yield ""


def _ratio(side: Side, base: Side | None, busy: bool) -> str:
    if base is None or not (base.reacted(busy) and side.reacted(busy)):
        return ""
    return f"{_total(side, busy) / _total(base, busy):.2f}"


def _total(side: Side, busy: bool) -> float:
    return median([reaction.total for reaction in side.reacted(busy)])


def _database(sides: Sequence[Side]) -> Iterator[str]:
    side = next((side for side in sides if side.name == TUNED and side.quiet), None)
    if side is None:
        return
    rows, sizes = side.rows_a_run, side.bytes_a_run
    yield from (
        "## The database",
        "",
        "What a run with nothing to do leaves, by table; bytes are those of the pages in use, with indexes. Tables",
        "that grew by less than a row in ten runs are left out.",
        "",
    )
    yield from table(
        ("table", "rows a run", "bytes a run"),
        (
            (table, f"{count:.1f}", f"{sizes.get(table, 0):,.0f}")
            for table, count in sorted(rows.items(), key=lambda item: -item[1])
            if count >= _FEW
        ),
    )
    yield from (
        "",
        f"All: {sum(sizes.values()):,.0f} bytes a run, and {side.logs_a_run:,.0f} bytes of task logs. Rendered",
        "fields are kept of five runs (`num_dag_runs_to_retain_rendered_fields`): they soon grow no further.",
        "",
    )
    if side.pruning is not None:
        yield from _retention(side, side.pruning)


def _retention(side: Side, pruning: Pruning) -> Iterator[str]:
    sizes = side.bytes_a_run
    yield from (
        "## What retention settles at",
        "",
        f"`retention.quiet_runs` is {_KEPT / DAY:g} day(s). The table `log` is Airflow's audit log: `muster_pruning`",
        "cannot delete from it, `airflow db clean` can, and is taken to keep it as long. Without it the database",
        "grows on by the last column, every day.",
        "",
    )
    yield from table(
        ("long poll s", "runs kept", "database, MB", "task logs, MB", "the audit log grows by, MB a day"),
        (
            (
                f"{quiet.long_poll:g}",
                f"{quiet.runs_a_day * _KEPT / DAY:,.0f}",
                f"{settled(pruning, sum(sizes.values()), quiet.runs_a_day):,.0f}",
                f"{side.logs_a_run * quiet.runs_a_day * _KEPT / DAY / 1e6:,.0f}",
                f"{sizes.get('log', 0) * quiet.runs_a_day / 1e6:,.1f}",
            )
            for quiet in side.quiet
        ),
    )
    without_audit = sum(sizes.values()) - sizes.get("log", 0)
    yield from (
        "",
        f"That is {pruning.new / 1e6:.1f} MB of a new database, and the bytes of a run for each run that is kept.",
        "",
        f"Really pruned: {pruning.runs} runs in {pruning.seconds:.0f} s, the pruning's own start counted. Pages in",
        "use:",
        "",
    )
    yield from table(
        ("", "MB", "rows that went, by table"),
        (
            ("before the first run", f"{pruning.new / 1e6:.2f}", ""),
            ("before pruning", f"{pruning.full / 1e6:.2f}", ""),
            ("after `muster_pruning`", f"{pruning.pruned / 1e6:.2f}", _went(pruning.rows)),
            (
                "after `airflow db clean --tables log`",
                f"{pruning.cleaned / 1e6:.2f}",
                _went(pruning.cleaned_rows),
            ),
        ),
    )
    yield from (
        "",
        f"Pruning freed {(pruning.full - pruning.pruned) / pruning.runs:,.0f} bytes a run, where by the table above",
        f"a run has {without_audit:,.0f} outside of the audit log. Rows are net of what the pruning's own run left;",
        "runs that rebalanced are kept longer and were not deleted. `db clean` was asked to delete all of the audit",
        "log, of those runs too. Pages that are emptied are used again; the file does not shrink.",
        "",
    )


def _went(rows: Mapping[str, int]) -> str:
    return ", ".join(f"{table} {count}" for table, count in rows.items() if count > 0)


def settled(pruning: Pruning, bytes_a_run: float, runs_a_day: float) -> float:
    """Return the MB of the database when as many runs are pruned as are made."""
    return (pruning.new + bytes_a_run * runs_a_day * _KEPT / DAY) / 1e6


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def last_line(sides: Sequence[Side]) -> str:
    """Give a script what it reads: figures with `airflow.cfg`, and their ratio to those with Airflow's defaults."""
    named = {side.name: side for side in sides}
    tuned, defaults = named.get(TUNED), named.get(DEFAULTS)
    figures: dict[str, str] = {}
    if tuned is not None and tuned.quiet:
        cpu, size = sum(tuned.cpu_a_run.values()), sum(tuned.bytes_a_run.values())
        figures |= {"deaf_s": f"{tuned.deaf:.2f}", "cpu_s_a_run": f"{cpu:.2f}", "bytes_a_run": f"{size:.0f}"}
        if defaults is not None and defaults.quiet:
            figures["deaf_ratio"] = f"{tuned.deaf / defaults.deaf:.2f}"
            figures["cpu_ratio"] = f"{cpu / sum(defaults.cpu_a_run.values()):.2f}"
        if tuned.pruning is not None:
            a_day = DAY / (ClusterSettings.model_fields["long_poll_timeout"].default + tuned.deaf)
            figures["settles_mb"] = f"{settled(tuned.pruning, size, a_day):.0f}"
    if tuned is not None and defaults is not None:
        figures["idle_cpu_ratio"] = f"{_hourly(tuned) / _hourly(defaults):.2f}"
        figures |= {
            name: ratio
            for name, busy in (("react_ratio", False), ("react_busy_ratio", True))
            if (ratio := _ratio(tuned, defaults, busy))
        }
    return "bench-airflow-share: " + " ".join(f"{key}={value}" for key, value in figures.items())
