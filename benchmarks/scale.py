"""The coordinator at scale: what each task costs on real servers, with a thousand simulated consumers.

The last line has what a run with nothing to do and one consumer's leaving take in all tasks together at full size,
in seconds, how much more each is for ten times the size, and what all quiet consumers together ask of Consul.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from benchmarks import machine
from benchmarks.options import OUTPUT
from benchmarks.scale_inputs import EVENTS, SIZES, stage
from benchmarks.scale_report import Figures, last_line, lines, write
from benchmarks.scale_tasks import run
from devstack.progress import say, step


@click.command()
@click.option("--rounds", default=3, show_default=True, help="How many times each event happens.")
@click.option("--quick", is_flag=True, help="The two smaller sizes, 2 rounds; writes no report.")
@OUTPUT
def main(rounds: int, quick: bool, output: Path) -> None:
    """Print what is measured as it comes, and write tables and a plot."""
    load = machine.load()
    figures = Figures()
    for size in SIZES[:-1] if quick else SIZES:
        with (
            tempfile.TemporaryDirectory(prefix="bench-scale-") as folder,
            stage(Path(folder)) as standing,
        ):
            with step(f"{size}: topics and consumers"):
                standing.set_up(size)
            with step(f"{size}: first plan"), standing.consumers.still():
                figures.add(size, "start", run(standing.place))
            for _ in range(min(rounds, 2) if quick else rounds):
                for event in EVENTS:
                    standing.happen(event, size)
                    with standing.consumers.still():
                        figures.add(size, event, run(standing.place))
                    say(figures.said(size, event))
            with step(f"{size}: quiet consumers"):
                figures.traffic[size] = standing.traffic()
            say(figures.asked(size))
    if not quick:
        write(output, figures, load)
        say(f"Written to {output}")
    for line in lines(figures):
        say(line)
    say(last_line(figures))


if __name__ == "__main__":
    main()
