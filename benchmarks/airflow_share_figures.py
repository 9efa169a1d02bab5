"""What is measured of Airflow's own share, and how parts of a run become one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks.harness import report
from benchmarks.harness.options import Keeper
from muster.settings.cluster_settings import ClusterSettings, RetentionSettings

DAY = 86_400.0
PARTS = ("scheduler", "supervisors", "tasks", "API server", "DAG processor", "triggerer")
"""Of Airflow's processes. `supervisors` are the LocalExecutor's workers, each the parent of a task's process."""
FOR_RUNS = PARTS[:4]
"""The parts that a run costs anything; what the others take comes and goes by the clock."""
WAITS = "compute_assignment"
"""The task that has the long poll in it."""
STEPS = (
    "compute_assignment hears of it, and has planned",
    "Airflow starts advance_state",
    "advance_state until it has written",
)
TUNED, DEFAULTS = "airflow.cfg", "Airflow's defaults"
_DAYS = RetentionSettings().quiet_runs / DAY
"""For which a run with nothing to do is kept."""


@dataclass(frozen=True)
class Quiet:
    """Runs with nothing to do and a `long_poll` of so many seconds, in a window of `seconds` from the end of a run to
    the end of another.

    `deaf` is, for each run, the seconds without a listener: from one long poll's end to the next one's,
    without its length. `gaps` is the part of it between two tasks `WAITS`. `cpu` is in seconds by part, and
    `idle` in seconds a second when no run is made. `tasks` and `parsers` are processes that were started, by the
    executor and by the DAG processor; `logs` is bytes of task logs.
    """

    long_poll: float
    runs: int
    seconds: float
    deaf: tuple[float, ...]
    gaps: tuple[float, ...]
    tasks: int
    parsers: int
    cpu: dict[str, float]
    idle: dict[str, float]
    rows: dict[str, int]
    bytes: dict[str, int]
    logs: int

    @property
    def runs_a_day(self) -> float:
        return DAY * self.runs / self.seconds

    @property
    def made(self) -> int:
        """Runs whose rows came in the window; Airflow makes the next run before it is seen that one has ended."""
        return self.rows.get("dag_run", 0) or self.runs

    @property
    def cpu_a_run(self) -> dict[str, float]:
        """CPU seconds by part beyond those that Airflow takes when no run is made, of the parts that runs need."""
        beyond = {part: self.cpu[part] - self.idle[part] * self.seconds for part in FOR_RUNS}
        return {part: max(0.0, seconds) / self.runs for part, seconds in beyond.items()}


@dataclass(frozen=True)
class Reaction:
    """One consumer left or joined: seconds by step until the coordinator had written who takes over.

    `busy` is whether other programs took all cores meanwhile; `took` are the seconds of the event itself.
    """

    event: str
    busy: bool
    steps: dict[str, float]
    took: float = 0.0

    @property
    def total(self) -> float:
        return sum(self.steps.values())


@dataclass(frozen=True)
class Pruning:
    """What went when `muster_pruning` deleted `runs` runs, and `airflow db clean` after it all of the table `log`.

    `new` before any run was made, `full` before pruning, `pruned` after it and `cleaned` after both are bytes of the
    database's pages in use. `rows` are what pruning deleted and `cleaned_rows` what was deleted after it, by table.
    """

    runs: int
    seconds: float
    new: int
    full: int
    pruned: int
    cleaned: int
    rows: dict[str, int]
    cleaned_rows: dict[str, int]

    def settled(self, bytes_a_run: float, runs_a_day: float) -> float:
        """Return the MB of the database when as many runs are pruned as are made."""
        return (self.new + bytes_a_run * runs_a_day * _DAYS) / 1e6


@dataclass(frozen=True)
class Side:
    """All that was measured with some settings. `idle` is CPU seconds a second by part, `memory` MB by part."""

    name: str
    idle: dict[str, float]
    memory: dict[str, float]
    quiet: tuple[Quiet, ...] = ()
    reactions: tuple[Reaction, ...] = ()
    pruning: Pruning | None = None

    def joined(self, later: Side) -> Side:
        """Join both; a length that `later` measured again replaces the old, reactions add up, `idle` is the mean."""
        polls = {quiet.long_poll: quiet for quiet in (*self.quiet, *later.quiet)}
        before, after = len(self.quiet), len(later.quiet)
        share = after / (before + after) if before + after else 1.0
        return replace(
            later,
            idle={part: share * later.idle[part] + (1 - share) * self.idle[part] for part in PARTS},
            quiet=tuple(polls[poll] for poll in sorted(polls)),
            reactions=(*self.reactions, *later.reactions),
            pruning=later.pruning or self.pruning,
        )

    @property
    def resting(self) -> dict[str, float]:
        """CPU seconds a second by part without a run. What runs have nothing to do with is taken from them, too:
        DAG files are parsed together, every so often, and a short look may miss it."""
        seconds = sum(quiet.seconds for quiet in self.quiet)
        seen = {part: sum(quiet.cpu[part] for quiet in self.quiet) / seconds for part in PARTS if seconds}
        return self.idle | {part: seen[part] for part in seen if part not in FOR_RUNS}

    @property
    def hourly(self) -> float:
        """CPU seconds an hour without a run, of all parts."""
        return 3600 * sum(self.resting.values())

    @property
    def deaf(self) -> float:
        """The median of all runs, in seconds."""
        return median([seconds for quiet in self.quiet for seconds in quiet.deaf])

    @property
    def cpu_a_run(self) -> dict[str, float]:
        """Seconds by part, with the shortest long poll: a longer one loses more in what Airflow takes anyway."""
        return min(self.quiet, key=lambda quiet: quiet.long_poll).cpu_a_run

    @property
    def rows_a_run(self) -> dict[str, float]:
        """By table, over all lengths."""
        return self._a_run(lambda quiet: quiet.rows)

    @property
    def bytes_a_run(self) -> dict[str, float]:
        """Bytes of the database's pages by table, with indexes, over all lengths."""
        return self._a_run(lambda quiet: quiet.bytes)

    @property
    def logs_a_run(self) -> float:
        return self._a_run(lambda quiet: {"logs": quiet.logs})["logs"]

    def reacted(self, busy: bool) -> list[Reaction]:
        return [reaction for reaction in self.reactions if reaction.busy == busy]

    def _a_run(self, figures: Callable[[Quiet], Mapping[str, float]]) -> dict[str, float]:
        runs = sum(quiet.made for quiet in self.quiet)
        found = [figures(quiet) for quiet in self.quiet]
        keys = dict.fromkeys(key for figure in found for key in figure)
        return {key: sum(figure.get(key, 0) for figure in found) / runs for key in keys}


KEEPER = Keeper(tuple[Side, ...])


def joined(sides: Sequence[Side], later: Side) -> tuple[Side, ...]:
    """Return all sides; what `later` measured is joined to the one of its name."""
    if not any(side.name == later.name for side in sides):
        return (*sides, later)
    return tuple(side.joined(later) if side.name == later.name else side for side in sides)


def write(folder: Path | None, sides: Sequence[Side], load: float) -> None:
    """Print the table, and write the report into `folder`. `load` is the machine's before the run, by other work."""
    report.publish(
        folder,
        "airflow-share",
        last_line(sides),
        sides=sides,
        load=load,
        parts=PARTS,
        steps=STEPS,
        defaults=next((side for side in sides if side.name == DEFAULTS), None),
        tuned=next((side for side in sides if side.name == TUNED and side.quiet), None),
        days=_DAYS,
        ratio=_ratio,
    )


def _ratio(side: Side, base: Side | None, busy: bool) -> str:
    """Format how long `side` takes to react, over `base`; '' if either was not measured."""
    if base is None or not (base.reacted(busy) and side.reacted(busy)):
        return ""
    total, of_base = (median(reaction.total for reaction in each.reacted(busy)) for each in (side, base))
    return f"{total / of_base:.2f}"


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
            figures["settles_mb"] = f"{tuned.pruning.settled(size, a_day):.0f}"
    if tuned is not None and defaults is not None:
        figures["idle_cpu_ratio"] = f"{tuned.hourly / defaults.hourly:.2f}"
        ratios = {
            "react_ratio": _ratio(tuned, defaults, False),
            "react_busy_ratio": _ratio(tuned, defaults, True),
        }
        figures |= {name: ratio for name, ratio in ratios.items() if ratio}
    return report.last_line("airflow-share", figures)
