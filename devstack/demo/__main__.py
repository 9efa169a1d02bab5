"""`python -m devstack.demo`: all flights, consumed with Muster, a hand-over in the middle, each accounted for."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from devstack.airflow import ROOT
from devstack.airflow_api import AirflowApi, wait_for
from devstack.demo.arrivals import count_arrivals
from devstack.demo.cluster_view import ClusterView
from devstack.demo.flights import ROWS, FlightsProducer, read_flights
from devstack.demo.flow import RATE, start_flow
from devstack.demo.needs import needs
from devstack.demo.report import Rebalance, Verdict, rebalances_of
from devstack.errors import DevstackError
from devstack.progress import Step, console, say, step
from devstack.stack import Stack
from muster.settings.clusters import load_clusters
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings

CLUSTER = "flights"
TOPIC = "flights"
PARTITIONS = 12
CONSUMERS_DAG = f"muster_consumers__{CLUSTER}"
COORDINATOR_DAG = f"muster_coordinator__{CLUSTER}"
CONSUMER_TASK = "consumer"
LEAVER = "flights-2"
BURST = 120_000
"""So many flights are produced at full speed before the hand-over; then they trickle until it is through."""
TRICKLE = 300.0
"""Flights a second while partitions are handed over."""


class Demo:
    """One run of the demo on a stack that is up."""

    def __init__(self, stack: Stack, api: AirflowApi, view: ClusterView) -> None:
        self.stack = stack
        self.api = api
        self.view = view
        self.producer = FlightsProducer(stack.kafka.address, TOPIC, BURST, TRICKLE)

    def run(self) -> Verdict:
        """Do everything and return what came of it. Raises TimeoutError naming what did not come."""
        self._create_topic()
        with step("Airflow: the DAGs go") as progress:
            for dag in (CONSUMERS_DAG, COORDINATOR_DAG):
                self._wait(progress, f"DAG {dag} is parsed", partial(self.api.has_dag, dag), 90)
                self.api.set_paused(dag, False)
            progress.result = f"{CONSUMERS_DAG} and {COORDINATOR_DAG} are unpaused"
        with step("Consumers: three Spark jobs are submitted by Airflow") as progress:
            self._wait(progress, "4/4/4", lambda: self._shares() == [4, 4, 4], 240)
            progress.result = self.view.describe(TOPIC)
        self.producer.start()
        with step(f"Flights: the first {BURST:,} are produced and consumed") as progress:
            self._wait(progress, "the burst", lambda: self.producer.produced >= BURST, 180)
            progress.result = self._flow()
        self._hand_over()
        self.producer.release()
        with step("Flights: the rest is produced") as progress:
            self._wait(progress, "the last flight", lambda: not self.producer.running, 300)
            self.producer.join(5)
            progress.result = f"{self.producer.produced:,} in all"
        with step("Consumers: they read to the end") as progress:
            self._wait(progress, "lag 0", lambda: self.view.lag(TOPIC) == 0, 300)
            progress.result = f"every offset is committed; {self.view.describe(TOPIC)}"
        return self._account()

    def _create_topic(self) -> None:
        quiet = logging.getLogger("devstack.demo.admin")
        admin = AdminClient({"bootstrap.servers": self.stack.kafka.address}, logger=quiet)
        created = admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])
        created[TOPIC].result(30)
        say(f"Topic {TOPIC}: created with {PARTITIONS} partitions")

    def _hand_over(self) -> None:
        run_id, map_index = self._task_of(LEAVER)
        with step(f"Hand-over: {LEAVER} is stopped from its task in Airflow") as progress:
            self.api.mark(CONSUMERS_DAG, run_id, CONSUMER_TASK, map_index, "failed")
            self._wait(
                progress,
                f"{LEAVER} leaves and its partitions are taken over",
                lambda: LEAVER not in self.view.live() and self._shares() == [6, 6],
                120,
            )
            progress.result = self.view.describe(TOPIC)
        with step(f"Hand-over: {LEAVER} comes back, its task is cleared") as progress:
            self.api.clear(CONSUMERS_DAG, run_id, CONSUMER_TASK, map_index)
            self._wait(progress, "4/4/4 again", lambda: self._shares() == [4, 4, 4], 180)
            progress.result = self.view.describe(TOPIC)

    def _task_of(self, consumer: str) -> tuple[str, int]:
        """The run and the map index of a consumer's task."""
        run_id = str(self.api.runs(CONSUMERS_DAG, limit=1)[0]["dag_run_id"])
        index = load_clusters()[CLUSTER].consumer_ids().index(consumer)
        return run_id, index

    def _shares(self) -> list[int]:
        """Partitions a consumer, if the topic is Stable; empty while it is not."""
        return sorted(self.view.shares(TOPIC).values()) if self.view.stable(TOPIC) else []

    def _flow(self) -> str:
        return f"{self.producer.produced:,} of {ROWS:,} produced, {self.view.lag(TOPIC):,} not yet committed"

    def _wait(self, progress: Step, what: str, condition: Callable[[], Any], timeout: float) -> None:
        shown = 0.0

        def noted() -> Any:
            nonlocal shown
            if time.monotonic() - shown > 1:
                shown = time.monotonic()
                flow = f"{self._flow()}; " if self.producer.running else ""
                progress.note(flow + self.view.describe(TOPIC))
            if self.producer.error is not None:
                self.producer.join(0)
            return condition()

        wait_for(what, noted, timeout, interval=0.2, detail=lambda: self.view.describe(TOPIC))

    def _account(self) -> Verdict:
        with step("Proof: what the consumers wrote is held against the source file") as progress:
            arrivals = count_arrivals(self.stack.data / CLUSTER)
            expected = Counter(flight.carrier for flight in read_flights())
            progress.result = f"{arrivals.records:,} records read back"
        with step("Audit: the Asset events of the rebalances are read from Airflow"):
            rebalances: list[Rebalance] = wait_for("the Asset events", self._rebalances_if_complete, 30)
        return Verdict(self.producer.produced, arrivals, expected, rebalances)

    def _rebalances_if_complete(self) -> list[Rebalance]:
        """The first assignment, the leaving and the return; an event is there when its task has ended."""
        found = rebalances_of(self.api.asset_events(COORDINATOR_DAG), TOPIC)
        return found if len(found) >= 3 else []  # noqa: PLR2004


def run(stack: Stack) -> Verdict:
    """Bring the stack up, run the demo on it, and show what came of it."""
    stack.up()
    os.environ.update(stack.environment())
    login = stack.airflow.passwords()["admin"]
    cluster = load_clusters()[CLUSTER]
    say(f"Dashboard: {stack.airflow.dashboard}  login: admin / {login}")
    with (
        AirflowApi(stack.airflow.url, "admin", login) as api,
        ClusterView(
            cluster,
            ZooKeeperSettings(hosts=stack.zookeeper.address),
            ConsulSettings(host="127.0.0.1", port=stack.consul.port),
            KafkaSettings(config={"bootstrap.servers": stack.kafka.address}),
        ) as view,
    ):
        verdict = Demo(stack, api, view).run()
    verdict.show(console)
    return verdict


@click.command()
@click.option(
    "--keep/--no-keep",
    default=sys.stdout.isatty(),
    help="Leave the servers up at the end (default in a terminal).",
)
@click.option("--folder", type=click.Path(path_type=Path), default=ROOT / ".devstack" / "demo")
def main(keep: bool, folder: Path) -> None:
    """Run the demo from a clean slate in FOLDER. Exit code 0 only if nothing is missing or was read twice."""
    for line in needs(folder):
        say(line)
    stack = Stack(folder)
    stack.down()
    if folder.exists():
        shutil.rmtree(folder)
    stack = Stack(folder)
    verdict: Verdict | None = None
    try:
        verdict = run(stack)
    except (DevstackError, TimeoutError, RuntimeError) as error:
        say(f"Error: {error}\nThe logs are in {folder}.")
    finally:
        if not keep or verdict is None:
            stack.down()
    if verdict is None:
        sys.exit(1)
    if keep:
        start_flow(stack.folder, stack.kafka.address, TOPIC)
        login = stack.airflow.passwords()["admin"]
        say(f"Everything stays up, and {RATE:g} flights a second go on flowing, until 'make down'.")
        say(f"Dashboard: {stack.airflow.dashboard}  login: admin / {login}")
        say("In this folder: .venv/bin/muster status, make status")
    say(verdict.last_line)
    sys.exit(0 if verdict.good else 1)


if __name__ == "__main__":
    main()
