"""Killed, frozen, stopped, joined, restarted: how soon records flow again, with Muster and with Kafka's own groups.

All read the same topic in one run, in turns. The last line has Muster's figures and the ratios to
the quickest tuned group, with session time-outs of 6 s and of 2 s.
"""

from __future__ import annotations

import logging
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from benchmarks import machine
from benchmarks.failover_contest import Contest
from benchmarks.failover_deliveries import Deliveries
from benchmarks.failover_muster import CONSUMERS, PARTITIONS, TOPIC, Muster
from benchmarks.failover_peers import KINDS, Peer, tune_consumer_groups
from benchmarks.failover_report import BUSY, Run, last_line, write
from benchmarks.options import OUTPUT
from devstack.progress import say
from tests.support.timed_numbers import PAUSE, NumberProducer


@click.command()
@click.option("--rounds", default=5, show_default=True, help="How many times each goes through the events.")
@click.option("--rate", default=100, show_default=True, help="Records a second and partition.")
@click.option(
    "--quick", is_flag=True, help="One round, without default settings and restarts; writes no report."
)
@OUTPUT
def main(rounds: int, rate: int, quick: bool, output: Path) -> None:
    """Print what is measured as it comes, and write tables and a plot."""
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    rounds = 1 if quick else rounds
    load = machine.load()
    with tempfile.TemporaryDirectory(prefix="bench-failover-") as name, Muster(Path(name)) as muster:
        folder = Path(name)
        least = tune_consumer_groups(muster.servers)
        producer = NumberProducer(muster.servers, TOPIC, PARTITIONS, at_once=max(1, round(rate * PAUSE)))
        tuned, default = (
            [
                Peer(kind, muster.servers, TOPIC, folder, Deliveries(folder / kind.group_id, PARTITIONS))
                for kind in KINDS
                if (kind.session is not None) is wanted
            ]
            for wanted in (True, False)
        )
        contest = Contest(muster, producer)

        def so_far(turns: int) -> Run:
            produced, lost = contest.account()
            run = Run(contest.events, produced, lost, least, turns, rate, load)
            if not quick:
                write(output, run)
            return run

        producer.start()
        try:
            # Their time-outs are most of it, so it is no harm to them that JVMs start meanwhile.
            with ThreadPoolExecutor(1) as pool:
                started = pool.submit(muster.start)
                if not quick:
                    contest.peer_round(1, default)
                started.result()
            for turn in range(1, rounds + 1):
                number = (turn - 1) % CONSUMERS + 1
                contest.muster_round(number)
                contest.peer_round(number, tuned)
                run = so_far(turn)
            if not quick:
                contest.muster_roll()
                contest.peer_roll(tuned)
                for loops in BUSY:
                    contest.busy_round(loops, 1, tuned)
                run = so_far(rounds)
                say(f"Written to {output}")
        finally:
            for peer in (*tuned, *default):
                peer.stop()
            producer.stop()
    say(last_line(run))


if __name__ == "__main__":
    main()
