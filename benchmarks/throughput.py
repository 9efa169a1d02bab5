"""Records/s, latency, memory, CPU and cold starts of Muster's source and of Spark's own, side by side in one run.

The last line has the ratios, Muster's over those of Spark's source as its experts would set it, the worst of all
topics: of the throughputs above 1 Muster is better, of all else below.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from benchmarks import machine
from benchmarks.options import OUTPUT, RESULTS
from benchmarks.throughput_driver import HEAP, JAVA_OPTIONS
from benchmarks.throughput_figures import SINKS, Plan, latency, throughput
from benchmarks.throughput_inputs import LZ4, ZSTD, Input
from benchmarks.throughput_memory import memory
from benchmarks.throughput_report import HEADER, ratios, row, write
from benchmarks.throughput_results import Conditions, Results, load, save
from devstack.jars import jars
from devstack.kafka import Kafka
from devstack.progress import say
from muster.settings.connections import KafkaSettings

INPUTS = (
    *(Input(size, partitions) for size in (200, 1000) for partitions in (1, 12, 100)),
    Input(100_000, 12),
    Input(200, 12, ZSTD),
)
QUICK = Input(200, 12)


@click.command()
@click.option("--rounds", default=3, show_default=True, help="How often each topic is read with each sink.")
@click.option("--batches", default=38, show_default=True, help="How many full batches a topic holds.")
@click.option("--size", "sizes", multiple=True, type=int, help="Only topics with records of so many bytes.")
@click.option("--partitions", multiple=True, type=int, help="Only topics with so many partitions.")
@click.option("--codec", "codecs", multiple=True, type=click.Choice((LZ4, ZSTD)), help="Only topics with it.")
@click.option("--sink", "sinks", multiple=True, type=click.Choice(SINKS), default=SINKS, show_default=True)
@click.option("--trickle/--no-trickle", default=True, help="Whether latency is measured.")
@click.option(
    "--memory/--no-memory", "heaps", default=True, help="Whether smaller and smaller heaps are tried."
)
@click.option("--reading/--no-reading", default=True, help="Whether the topics are read.")
@click.option("--cores", default=2, show_default=True, help="Spark's cores, for all sources.")
@click.option("--seconds", default=20.0, show_default=True, help="How long a trickle is followed in a round.")
@click.option("--quick", is_flag=True, help="200 bytes, 12 partitions, 12 batches, 1 round.")
@OUTPUT
@RESULTS
def main(
    rounds: int,
    batches: int,
    sizes: tuple[int, ...],
    partitions: tuple[int, ...],
    codecs: tuple[str, ...],
    sinks: tuple[str, ...],
    trickle: bool,
    heaps: bool,
    reading: bool,
    cores: int,
    seconds: float,
    quick: bool,
    output: Path,
    kept: Path | None,
) -> None:
    """Print what is measured as it comes, and write tables and a plot."""
    if quick:
        rounds, batches, seconds = 1, 12, 8.0
    inputs = [
        given
        for given in ((QUICK,) if quick else INPUTS)
        if reading
        and given.size in (sizes or (given.size,))
        and given.partitions in (partitions or (given.partitions,))
        and given.codec in (codecs or (given.codec,))
    ]
    plan = Plan(inputs, sinks, rounds, batches, cores, seconds)
    conditions = Conditions(batches, cores, machine.load(), HEAP, JAVA_OPTIONS)
    results = (load(kept) if kept else None) or Results(conditions)
    results = results.joined(Results(conditions))  # fails now rather than after a long run
    jars("spark-kafka")
    with tempfile.TemporaryDirectory(prefix="bench-throughput-") as folder:
        server = Kafka(Path(folder) / "kafka", guarded=True, heap="1g")
        server.start(240)
        try:
            kafka = KafkaSettings(config={"bootstrap.servers": server.address})
            for tuning, start, figures in throughput(kafka, plan, Path(folder)):
                results = results.joined(Results(conditions, tuple(figures), (start,), (tuning,)))
                if kept:
                    save(kept, results)
            if trickle:
                results = results.joined(
                    Results(conditions, delays=tuple(latency(kafka, plan, Path(folder))))
                )
            for heap in memory(kafka, plan, Path(folder)) if heaps and not quick else ():
                results = results.joined(Results(conditions, heaps=(heap,)))
                if kept:
                    save(kept, results)
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
