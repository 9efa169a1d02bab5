"""State by key, Muster's beside Spark's own `transformWithState`: records/s, CPU, memory, a restore, kills, failover.

The last line has the ratios, each the worst of its cells: Muster's rows and its vectorised form over the quicker of
Spark's rows and pandas frames in records/s, and the CPU of the rows over that of the same. After them come the
seconds from the kill of an owner until all partitions flow again: with a warm standby, without state, cold, and of
Spark's own restart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from benchmarks import state_failover
from benchmarks.harness import machine, report
from benchmarks.harness.options import OUTPUT, RESULTS, Keeper
from benchmarks.harness.servers import kafka
from benchmarks.state_driver import BULK, HEAP, JAVA_OPTIONS, ROWS, TUNED, Ended
from benchmarks.state_failover import (
    COLD,
    EACH_TURN,
    PAUSE,
    STATELESS,
    WARM,
    Beside,
    Checked,
    Failover,
    failovers,
)
from benchmarks.state_failover import SPARK as SPARK_RESTART
from benchmarks.state_measure import (
    FULL,
    MUSTER,
    PARTITIONS,
    QUICK,
    SIZE,
    SPARK,
    Cell,
    Plan,
    cells,
    kills,
    restore,
    show,
)
from devstack.jars import jars
from devstack.progress import say

LATER, GROWTH = 3.0, 1.3
"""Goals: seconds that a warm standby may take beyond what a failover without state takes, and how much longer it may
take with many keys than with few."""

_SERVERS = "Kafka, ZooKeeper, Consul, the coordinator, the producer"
BESIDE = {
    STATELESS: f"{_SERVERS}; the consumer that takes over, which has nothing before",
    WARM: f"{_SERVERS}; the consumer that takes over, which tails the changelog",
    COLD: f"{_SERVERS}; the consumer that takes over, with nothing on its disk",
    SPARK_RESTART: "Kafka, ZooKeeper, Consul, the producer; no consumer of Muster's",
}
"""What else ran in each case."""


@dataclass(frozen=True)
class Figure:
    """One cell, from the end of its first batch to that of its last."""

    cell: Cell
    batches: int
    records: int
    seconds: float
    cpu: float
    broker: float
    memory: int
    differ: int

    @classmethod
    def of(cls, cell: Cell, ended: Sequence[Ended], memory: int, differ: int) -> Figure:
        """Leave the first batch out, and the last one if it is smaller: it has what was left of the topic."""
        full = ended[:-1] if len(ended) > 2 and ended[-1].records < ended[1].records else ended  # noqa: PLR2004
        if len(full) < 2:  # noqa: PLR2004
            return cls(cell, len(ended), 0, 0.0, 0.0, 0.0, memory, differ)
        first, last = full[0], full[-1]
        records = sum(one.records for one in full[1:])
        return cls(
            cell,
            len(full) - 1,
            records,
            last.at - first.at,
            last.cpu - first.cpu,
            last.broker - first.broker,
            memory,
            differ,
        )

    @property
    def rate(self) -> float:
        return self.records / self.seconds if self.records else math.nan

    @property
    def cpu_each(self) -> float:
        """CPU seconds of a million records, the broker's with them."""
        return 1e6 * (self.cpu + self.broker) / self.records if self.records else math.nan


@dataclass(frozen=True)
class Results:
    """What a run has measured."""

    plan: str
    load: float
    figures: tuple[Figure, ...] = ()
    restored: tuple[float, ...] = ()
    killed: tuple[str, ...] = ()
    differ: int = 0
    failovers: tuple[Failover, ...] = ()
    beside: tuple[Beside, ...] = ()

    def find(self, keys: int, system: str, form: str, to_topic: bool = False) -> Figure | None:
        wanted = Cell(keys, to_topic, system, form)
        return next((figure for figure in self.figures if figure.cell == wanted), None)

    def peer(self, keys: int, to_topic: bool = False) -> Figure | None:
        """Return the quicker of Spark's forms."""
        found = [f for f in self.figures if f.cell.system == SPARK and f.cell.keys == keys]
        found = [f for f in found if f.cell.to_topic == to_topic and f.records]
        return max(found, key=lambda figure: figure.rate, default=None)

    def ratios(self, form: str) -> list[tuple[float, float]]:
        """Return records/s and CPU of a form of Muster's over the peer's, by keys."""
        pairs = [
            (self.find(keys, MUSTER, form), self.peer(keys))
            for keys in sorted({f.cell.keys for f in self.figures})
        ]
        return [
            (ours.rate / peer.rate, ours.cpu_each / peer.cpu_each) for ours, peer in pairs if ours and peer
        ]

    def seconds(self, case: str, keys: int | None = None) -> list[float]:
        """Return those of the kills in a case, with so many keys, by default its most."""
        found = [one for one in self.failovers if one.case == case]
        wanted = max((one.keys for one in found), default=0) if keys is None else keys
        return [one.seconds for one in found if one.keys == wanted]

    def by_keys(self, case: str) -> list[tuple[int, list[float]]]:
        sizes = sorted({one.keys for one in self.failovers if one.case == case})
        return [(keys, self.seconds(case, keys)) for keys in sizes]

    @property
    def most_keys(self) -> int:
        return max((one.keys for one in self.failovers), default=0)

    @property
    def growth(self) -> float:
        """The warm standby's seconds at its most keys over those at its least."""
        least = min((one.keys for one in self.failovers if one.case == WARM), default=0)
        return report.middle(self.seconds(WARM)) / report.middle(self.seconds(WARM, least))

    def goals(self) -> str:
        """Say which goals of the failover are met."""
        warm, stateless = report.middle(self.seconds(WARM)), report.middle(self.seconds(STATELESS))
        return ", ".join(
            f"`{name}` {'met' if met else 'NOT met'}"
            for name, met in {
                "warm_s": warm <= stateless + LATER,
                "warm_growth": self.growth <= GROWTH,
            }.items()
        )


KEEPER = Keeper(Results)


def line(results: Results) -> str:
    """Format the last line of a run; `nan` is what was not measured."""

    def least(found: Iterable[float]) -> str:
        return f"{min(found, default=math.nan):.2f}"

    rows, bulk = results.ratios(ROWS), results.ratios(BULK)
    restored = report.middle(results.restored) / 1000
    differ = results.differ + sum(figure.differ for figure in results.figures)
    return report.last_line(
        "state",
        {
            "row_ratio": least(rate for rate, _ in rows),
            "bulk_ratio": least(rate for rate, _ in bulk),
            "cpu_ratio": f"{max((cpu for _, cpu in rows), default=math.nan):.2f}",
            "restore_krecords_s": f"{restored:.0f}",
            "diff": str(differ),
            "warm_s": f"{report.middle(results.seconds(WARM)):.1f}",
            "warm_growth": f"{results.growth:.2f}",
            "stateless_s": f"{report.middle(results.seconds(STATELESS)):.1f}",
            "cold_s": f"{report.middle(results.seconds(COLD)):.1f}",
            "spark_restart_s": f"{report.middle(results.seconds(SPARK_RESTART)):.1f}",
        },
    )


def write(folder: Path | None, results: Results) -> None:
    report.publish(
        folder,
        "state",
        line(results),
        results=results,
        partitions=PARTITIONS,
        size=SIZE,
        tuned=TUNED,
        heap=HEAP,
        java_options=JAVA_OPTIONS,
        cases=tuple(BESIDE),
        beside=BESIDE,
        failover_partitions=state_failover.PARTITIONS,
        each_second=round(EACH_TURN / PAUSE),
        later=LATER,
        growth=GROWTH,
    )


def measure(results: Results, plan: Plan, parts: Sequence[str], kept: Path | None) -> Results:
    with kafka() as (server, folder):
        if "cells" in parts:
            for cell, reading, differ in cells(server, plan, folder):
                show(cell, reading, differ)
                figure = Figure.of(cell, reading.batches, reading.memory, differ)
                results = replace(results, figures=(*results.figures, figure))
                KEEPER.save(kept, results)
        for number in range(plan.restores) if "restore" in parts else ():
            rate = restore(server, folder / f"restore-{number}")
            say(f"restored {rate:,.0f} keys a second")
            results = replace(results, restored=(*results.restored, rate))
        for step, differ in kills(server, plan, folder) if "kills" in parts else ():
            say(f"killed at: {step}")
            results = replace(results, killed=(*results.killed, step), differ=results.differ + differ)
        for one in failovers(server, plan.failover, folder, plan.cores) if "failover" in parts else ():
            say(str(one))
            results = with_failover(results, one)
        KEEPER.save(kept, results)
    return results


def with_failover(results: Results, one: Failover | Beside | Checked) -> Results:
    match one:
        case Failover():
            return replace(results, failovers=(*results.failovers, one))
        case Beside():
            return replace(results, beside=(*results.beside, one))
    return replace(results, differ=results.differ + one.differ)


PARTS = ("cells", "restore", "kills", "failover")


@click.command()
@click.option("--part", "parts", multiple=True, type=click.Choice(PARTS), default=PARTS, show_default=True)
@click.option("--seconds", type=float, help="How long a cell is measured.")
@click.option("--quick", is_flag=True, help="12 s a cell, few kills: whether it runs, not how fast.")
@OUTPUT
@RESULTS
def main(parts: tuple[str, ...], seconds: float | None, quick: bool, output: Path, kept: Path | None) -> None:
    """Print what is measured as it comes, and write a table; a quick run writes none."""
    plan = QUICK if quick else FULL
    plan = replace(plan, seconds=seconds or plan.seconds)
    jars("spark-kafka")
    results = KEEPER.load(kept) or Results("quick" if quick else "full", machine.load())
    write(None if quick else output, measure(results, plan, parts, kept))
