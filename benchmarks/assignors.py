"""Planning, side by side: Muster's assignors and Kafka's on the same inputs, in one run.

The last line has the ratios at the largest size, Muster's time over that of Kafka's cooperative-sticky: below 1
Muster is faster.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import click

from benchmarks.assignor_figures import PEERS, measure
from benchmarks.assignor_inputs import SIZES, inputs
from benchmarks.assignor_report import HEADER, ratios, row, write
from benchmarks.options import OUTPUT
from devstack.progress import say
from tests.support.kafka_assignors import KafkaAssignors

WIDTHS = (33, 15, 9, 20, 11, 11, 7, 23, 39, 6)


@click.command()
@click.option("--rounds", default=11, show_default=True, help="How many times each is timed.")
@click.option(
    "--patience",
    default=5.0,
    show_default=True,
    help="Seconds after which no further round of a case begins.",
)
@click.option(
    "--limit", default=10.0, show_default=True, help="Seconds after which a plan of Kafka's is stopped."
)
@click.option("--quick", is_flag=True, help="The two smaller sizes and few rounds; writes no report.")
@OUTPUT
def main(rounds: int, patience: float, limit: float, quick: bool, output: Path) -> None:
    """Print times, moves and balance of both, and write them to a report with a plot of time against size."""
    if quick:
        rounds, patience, limit = min(rounds, 5), min(patience, 1.0), min(limit, 5.0)
    say(_columns(HEADER))
    figures = []
    sizes = SIZES[:-1] if quick else SIZES
    # The mixed ones last: Kafka's process has to be started again where it is stopped, and then is not warm any more.
    cases = sorted(
        chain.from_iterable(map(inputs, sizes)), key=lambda given: (given.kind == "mixed", given.size)
    )
    with KafkaAssignors(limit) as kafka:
        for given in cases:
            for peer in PEERS:
                figures.append(measure(kafka, given, peer, rounds, patience))
                say(_columns(row(figures[-1])))
    if not quick:
        write(output, figures)
        say(f"Written to {output}")
    say(ratios(figures))


def _columns(cells: tuple[str, ...]) -> str:
    return "".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


if __name__ == "__main__":
    main()
