"""What the demo and the incident have in common: a stack that begins empty, one cluster, and one topic into which
flights flow while things happen to it."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import click
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from devstack.airflow import ROOT
from devstack.airflow_api import AirflowApi, AirflowAwayError
from devstack.demo.cluster_view import ClusterView
from devstack.demo.flights import FlightsProducer
from devstack.demo.flow import RATE, start_flow
from devstack.demo.movement import Movement
from devstack.demo.needs import Needs
from devstack.errors import DevstackError
from devstack.progress import Step, say, step
from devstack.stack import Stack
from muster.core.starting import Starting
from muster.edges.consul import ConsulError
from muster.edges.kafka_admin import KafkaError
from muster.edges.zookeeper import ZooKeeperError
from muster.settings.clusters import load_clusters
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings

TOPIC = "flights"
CONSUMER_TASK = "consumer"
STOOD = 30
"""Seconds after which a wait says that nothing moves."""


class Verdict(Protocol):
    """What came of a story."""

    @property
    def good(self) -> bool:
        """Whether all of it went as it is promised."""

    @property
    def last_line(self) -> str:
        """The line that scripts read."""


class Story:
    """One cluster on a stack that is up, and `producer`, whose flights go to its topic. Times are in seconds."""

    def __init__(self, stack: Stack, api: AirflowApi, view: ClusterView, producer: FlightsProducer) -> None:
        self.stack = stack
        self.api = api
        self.view = view
        self.producer = producer
        self.cluster = view.cluster.name
        self.movement = Movement()
        self._patience = patience((), view.cluster.consumers.startup_timeout)

    @property
    def consumers_dag(self) -> str:
        """The DAG that has the consumers running."""
        return f"muster_consumers__{self.cluster}"

    @property
    def coordinator_dag(self) -> str:
        """The DAG that assigns."""
        return f"muster_coordinator__{self.cluster}"

    def create_topic(self, partitions: int, topic: str = TOPIC) -> None:
        """Create a topic. Raises KafkaException."""
        quiet = logging.getLogger("devstack.demo.admin")
        admin = AdminClient({"bootstrap.servers": self.stack.kafka.address}, logger=quiet)
        created = admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
        created[topic].result(30)
        say(f"Topic {topic}: created with {partitions} partitions")

    def unpause_dags(self) -> None:
        """Let both DAGs go. Raises TimeoutError if one is not parsed."""
        with step("Airflow: the DAGs go") as progress:
            for dag in (self.consumers_dag, self.coordinator_dag):
                self.wait(progress, f"DAG {dag} is parsed", partial(self.api.has_dag, dag))
                self.api.set_paused(dag, False)
            progress.result = f"{self.consumers_dag} and {self.coordinator_dag} are unpaused"

    def task_of(self, consumer: str) -> tuple[str, int]:
        """Return the run and the map index of a consumer's task."""
        run_id = str(self.api.runs(self.consumers_dag, limit=1)[0]["dag_run_id"])
        return run_id, self.view.cluster.consumer_ids().index(consumer)

    def shares(self) -> list[int]:
        """Count the partitions a consumer, if the topic is Stable; empty while it is not."""
        return sorted(self.view.shares(TOPIC).values()) if self.view.stable(TOPIC) else []

    def flow(self) -> str:
        """Say how far the flights are, in words."""
        return f"{self.producer.produced:,} produced, {self.view.lag(TOPIC):,} not yet committed"

    def wait(self, progress: Step | None, what: str, condition: Callable[[], Any]) -> Any:
        """Return the first true value of `condition`; a server that does not answer in time is asked again.

        Raises TimeoutError that names `what` and how things stand if nothing has moved for `patience`, and
        RuntimeError if producing failed.
        """
        away: dict[str, str] = {}

        def asked(name: str, question: Callable[[], Any]) -> Any:
            if self.producer.error is not None:
                self.producer.join(0)
            away.pop(name, None)
            try:
                return question()
            except (AirflowAwayError, ConsulError, KafkaError, ZooKeeperError) as error:
                away[name] = str(error)
                return None

        def look() -> str:
            asked("look", self._look)
            stands = "; ".join([*away.values(), self.movement.said()])
            if progress is not None:
                stood = self.movement.stands
                progress.note(stands + (f"; nothing has moved for {stood:.0f} s" if stood > STOOD else ""))
            return stands

        return self.movement.wait(what, lambda: asked("condition", condition), look, lambda: self._patience)

    def _look(self) -> None:
        """See what moves, and how long it may stand. Flights that trickle say nothing, and do not count."""
        doing = self.view.doing(TOPIC)
        if not self.producer.trickling:
            doing["so far"] = self.flow()
        self._patience = patience(self.view.starting().values(), self.view.cluster.consumers.startup_timeout)
        self.movement.see(doing)


def patience(starting: Iterable[Starting], startup_timeout: float) -> float:
    """Return the seconds for which nothing may move: twice what a stage may take.

    The time is doubled because Airflow gives up a job that took too long, and submits the next one after that.
    """
    return 2 * max([startup_timeout, *(each.patience(startup_timeout) for each in starting)])


@contextmanager
def opened(stack: Stack, cluster: str) -> Iterator[tuple[AirflowApi, ClusterView]]:
    """Open Airflow's API and the view of a cluster on a stack that is up.

    This process gets the environment of the stack, as a person's shell would.
    """
    os.environ.update(stack.environment())
    login = stack.airflow.passwords()["admin"]
    say(f"Dashboard: {stack.airflow.dashboard}  login: admin / {login}")
    with (
        AirflowApi(stack.airflow.url, "admin", login) as api,
        ClusterView(
            load_clusters()[cluster],
            ZooKeeperSettings(hosts=stack.zookeeper.address),
            ConsulSettings(host="127.0.0.1", port=stack.consul.port),
            KafkaSettings(config={"bootstrap.servers": stack.kafka.address}),
        ) as view,
    ):
        yield api, view


def command(
    name: str, needs: Needs, make: Callable[[Path], Stack], tell: Callable[[Stack], Verdict], says: str
) -> click.Command:
    """Make the command that plays a story in `.devstack/[name]`; `says` is its help."""

    @click.command(name, help=says)
    @click.option(
        "--keep/--no-keep",
        default=sys.stdout.isatty(),
        help="Leave the servers up at the end (default in a terminal).",
    )
    @click.option("--folder", type=click.Path(path_type=Path), default=ROOT / ".devstack" / name)
    def main(keep: bool, folder: Path) -> None:
        sys.exit(play(folder, needs, make, tell, keep))

    return main


def play(
    folder: Path,
    needs: Needs,
    make: Callable[[Path], Stack],
    tell: Callable[[Stack], Verdict],
    keep: bool,
) -> int:
    """Tell a story on a stack that begins empty in `folder`, print its last line, and return the exit code.

    The stack is stopped at the end, unless `keep` is set and the story came to its end: then flights flow on. The
    exit code is 0 only if the verdict is good.
    """
    for line in needs.said(folder):
        say(line)
    make(folder).down()
    if folder.exists():
        shutil.rmtree(folder)
    stack = make(folder)
    verdict: Verdict | None = None
    try:
        verdict = tell(stack)
    except (DevstackError, TimeoutError, RuntimeError) as error:
        say(f"Error: {error}\nThe logs are in {folder}.")
    finally:
        if not keep or verdict is None:
            stack.down()
    if verdict is None:
        return 1
    if keep:
        start_flow(stack.folder, stack.kafka.address, TOPIC)
        login = stack.airflow.passwords()["admin"]
        say(f"Everything stays up, and {RATE:g} flights a second go on flowing, until 'make down'.")
        say(f"Dashboard: {stack.airflow.dashboard}  login: admin / {login}")
        say("In this folder: .venv/bin/muster status, make status")
    say(verdict.last_line)
    return 0 if verdict.good else 1
