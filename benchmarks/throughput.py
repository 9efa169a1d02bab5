"""Records/s, latency, memory and CPU of Muster's source and of Spark's own Kafka source, side by side in one run.

The last line has the ratios, Muster's over Spark's: of the throughputs above 1 Muster is faster, of the latency
below.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from benchmarks.options import OUTPUT, RESULTS
from benchmarks.throughput_driver import HEAP
from benchmarks.throughput_figures import SINKS, Plan, latency, throughput
from benchmarks.throughput_inputs import Input
from benchmarks.throughput_report import HEADER, ratios, row, write
from benchmarks.throughput_results import Conditions, Results, load, save
from devstack.jars import jars
from devstack.kafka import Kafka
from devstack.progress import say
from muster.settings.connections import KafkaSettings

_BATCHES = 3
"""How many batches a reading has at least, so that there is something steady to measure."""


@click.command()
@click.option(
    "--rounds", default=3, show_default=True, help="How many times each topic is read with each sink."
)
@click.option("--records", default=2_000_000, show_default=True, help="Records of a topic.")
@click.option(
    "--size", "sizes", multiple=True, type=int, default=(200, 1000), show_default=True, help="Bytes."
)
@click.option("--partitions", multiple=True, type=int, default=(1, 12, 100), show_default=True)
@click.option("--sink", "sinks", multiple=True, type=click.Choice(SINKS), default=SINKS, show_default=True)
@click.option("--trickle/--no-trickle", default=True, help="Whether latency is measured.")
@click.option("--most", default=500_000, show_default=True, help="The largest batch, in records, for both.")
@click.option("--cores", default=2, show_default=True, help="Spark's cores, for both.")
@click.option("--seconds", default=20.0, show_default=True, help="How long a trickle is followed in a round.")
@click.option("--quick", is_flag=True, help="600,000 records of 200 bytes, 12 partitions, 2 rounds.")
@OUTPUT
@RESULTS
def main(
    rounds: int,
    records: int,
    sizes: tuple[int, ...],
    partitions: tuple[int, ...],
    sinks: tuple[str, ...],
    trickle: bool,
    most: int,
    cores: int,
    seconds: float,
    quick: bool,
    output: Path,
    kept: Path | None,
) -> None:
    """Print what is measured as it comes, and write tables and a plot."""
    if quick:
        rounds, records, sizes, partitions, seconds = (
            min(rounds, 2),
            min(records, 600_000),
            (200,),
            (12,),
            8.0,
        )
    plan = Plan(
        inputs=[Input(size, number, records) for size in sizes for number in partitions],
        sinks=sinks,
        rounds=rounds,
        cores=cores,
        most=min(most, records // _BATCHES),
        seconds=seconds,
        latency_rounds=min(rounds, 3),
    )
    conditions = Conditions(records, plan.most, plan.cores, plan.trigger, os.getloadavg()[0], HEAP)
    results = (load(kept) if kept else None) or Results(conditions)
    results = results.joined(Results(conditions))  # fails now rather than after a long run
    jars("spark-kafka")
    with tempfile.TemporaryDirectory(prefix="bench-throughput-") as folder:
        server = Kafka(Path(folder) / "kafka", guarded=True, heap="1g")
        server.start(240)
        try:
            kafka = KafkaSettings(config={"bootstrap.servers": server.address})
            for figure in throughput(kafka, plan, Path(folder)):
                results = results.joined(Results(conditions, (figure,)))
                if kept:
                    save(kept, results)
            if trickle:
                results = results.joined(Results(conditions, (), latency(kafka, plan, Path(folder))))
        finally:
            server.stop()
    if kept:
        save(kept, results)
    for figure in results.figures:
        say("; ".join(f"{name}: {cell}" for name, cell in zip(HEADER, row(figure), strict=True)))
    write(output, results)
    say(f"Written to {output}")
    say(ratios(results))


if __name__ == "__main__":
    main()
