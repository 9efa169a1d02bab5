"""`python -m devstack.demo`: all flights, consumed with Muster, a hand-over in the middle, each accounted for."""

from __future__ import annotations

from collections import Counter

from devstack.airflow_api import AirflowApi
from devstack.demo.arrivals import count_arrivals
from devstack.demo.cluster_view import ClusterView
from devstack.demo.flights import ROWS, FlightsProducer, read_flights
from devstack.demo.needs import Needs
from devstack.demo.report import Rebalance, Verdict, rebalances_of
from devstack.demo.story import CONSUMER_TASK, TOPIC, Story, command, opened
from devstack.progress import console, step
from devstack.stack import Stack

CLUSTER = "flights"
PARTITIONS = 12
LEAVER = "flights-2"
BURST = 120_000
"""So many flights are produced at full speed before the hand-over; then they trickle until it is through."""
TRICKLE = 300.0
"""Flights a second while partitions are handed over."""
NEEDS = Needs("The demo", minutes=6, memory=5.0, disk=1.0)


class Demo(Story):
    """One run of the demo on a stack that is up."""

    def __init__(self, stack: Stack, api: AirflowApi, view: ClusterView) -> None:
        super().__init__(stack, api, view, FlightsProducer(stack.kafka.address, TOPIC, BURST, TRICKLE))

    def run(self) -> Verdict:
        """Do everything and return what came of it. Raises TimeoutError naming what did not come."""
        self.create_topic(PARTITIONS)
        self.unpause_dags()
        with step("Consumers: three Spark jobs are submitted by Airflow") as progress:
            self.wait(progress, "4/4/4", lambda: self.shares() == [4, 4, 4])
            progress.result = self.view.describe(TOPIC)
        self.producer.start()
        with step(f"Flights: the first {BURST:,} are produced and consumed") as progress:
            self.wait(progress, "the burst", lambda: self.producer.produced >= BURST)
            progress.result = self.flow()
        self._hand_over()
        self.producer.release()
        with step("Flights: the rest is produced") as progress:
            self.wait(progress, "the last flight", lambda: not self.producer.running)
            self.producer.join(5)
            progress.result = f"{self.producer.produced:,} in all"
        with step("Consumers: they read to the end") as progress:
            self.wait(progress, "lag 0", lambda: self.view.lag(TOPIC) == 0)
            progress.result = f"every offset is committed; {self.view.describe(TOPIC)}"
        return self._account()

    def _hand_over(self) -> None:
        run_id, map_index = self.task_of(LEAVER)
        with step(f"Hand-over: {LEAVER} is stopped from its task in Airflow") as progress:
            self.api.mark(self.consumers_dag, run_id, CONSUMER_TASK, map_index, "failed")
            self.wait(
                progress,
                f"{LEAVER} leaves and its partitions are taken over",
                lambda: LEAVER not in self.view.live() and self.shares() == [6, 6],
            )
            progress.result = self.view.describe(TOPIC)
        with step(f"Hand-over: {LEAVER} comes back, its task is cleared") as progress:
            self.api.clear(self.consumers_dag, run_id, CONSUMER_TASK, map_index)
            self.wait(progress, "4/4/4 again", lambda: self.shares() == [4, 4, 4])
            progress.result = self.view.describe(TOPIC)

    def flow(self) -> str:
        """Say how far the flights are, of all that there are."""
        return f"{self.producer.produced:,} of {ROWS:,} produced, {self.view.lag(TOPIC):,} not yet committed"

    def _account(self) -> Verdict:
        with step("Proof: what the consumers wrote is held against the source file") as progress:
            arrivals = count_arrivals(self.stack.data / CLUSTER)
            expected = Counter(flight.carrier for flight in read_flights())
            progress.result = f"{arrivals.records:,} records read back"
        with step("Audit: the Asset events of the rebalances are read from Airflow") as progress:
            rebalances: list[Rebalance] = self.wait(progress, "the events", self._rebalances_if_complete)
            progress.result = f"{len(rebalances)} rebalances"
        return Verdict(self.producer.produced, arrivals, expected, rebalances)

    def _rebalances_if_complete(self) -> list[Rebalance]:
        """Return the first assignment, the leaving and the return, [] before; each is there once its task ended."""
        found = rebalances_of(self.api.asset_events(self.coordinator_dag), TOPIC)
        return found if len(found) >= 3 else []  # noqa: PLR2004


def run(stack: Stack) -> Verdict:
    """Bring the stack up, run the demo on it, and show what came of it."""
    stack.up()
    with opened(stack, CLUSTER) as (api, view):
        verdict = Demo(stack, api, view).run()
    verdict.show(console)
    return verdict


main = command(
    "demo",
    NEEDS,
    Stack,
    run,
    "Run the demo from a clean slate in FOLDER. Exit code 0 only if nothing is missing or was read twice.",
)

if __name__ == "__main__":
    main()
