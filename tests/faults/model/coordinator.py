"""A coordinator process: the real `Coordinator` in a coroutine that can be stopped at every call to an edge.

While it stands there anything may happen; then it goes on from what it had read, or dies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from greenlet import GreenletExit, getcurrent, greenlet

from muster.coordinator.coordinator import Coordinator
from muster.coordinator.reports import ConsumersReport
from muster.core.assignors import Assignor
from muster.core.model import Consumer, ConsumerStatus
from muster.edges.consul import ConsulError
from muster.edges.status import StatusFailure
from muster.edges.zookeeper import ZooKeeperError
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import KafkaSettings
from tests.faults.model.consul import ELSEWHERE, Api, SimulatedConsul
from tests.faults.model.kafka import Lister, Offsets
from tests.faults.model.seeks import SimulatedSeeker
from tests.faults.model.zookeeper import StoreClient

if TYPE_CHECKING:
    from tests.faults.model.world import Model

KAFKA = KafkaSettings(config={"bootstrap.servers": "k:9092"})
BUDGET = 1.0


class CoordinatorProcess:
    def __init__(self, world: Model, name: str, cluster: ClusterSettings, assignor: Assignor) -> None:
        self.world = world
        self.name = name
        self.cluster = cluster
        self.skew = 0.0
        """Seconds that the clock of its worker is ahead."""
        self.told = ""
        """What its last run said is wrong."""
        self.stands = "begin"
        self.stale_answers = False
        """The next statuses are those that were given the last time (once)."""
        self.store = StoreClient(world.zookeeper, self.at, self)
        self.api = Api(world.consul, self.at, ELSEWHERE)
        self.discovery = SimulatedConsul(self.api, world.moment)
        self.lister = Lister(world.kafka, self.at)
        self.coordinator = Coordinator(
            cluster,
            KAFKA,
            self.store,
            self.discovery.catalog,
            self.discovery.overrides,
            self.lister,
            self.poll,
            assignor,
            offsets=Offsets(world.kafka, self.at),
            seeker=SimulatedSeeker(self),
            clock=lambda: world.now + self.skew,
            pause=self.pause,
        )
        self._run: greenlet | None = None

    @property
    def under_way(self) -> bool:
        return self._run is not None

    def at(self, point: str) -> None:
        """The process is at `point`; give way to the world."""
        run = self._run
        if run is not None and getcurrent() is run:
            self.stands = point
            run.parent.switch()

    def pause(self, seconds: float) -> None:
        self.world.now += seconds
        self.at("pause")

    def poll(
        self, consumers: Iterable[Consumer], timeout: float, topics: object = None
    ) -> Mapping[str, ConsumerStatus | StatusFailure]:
        self.at("ask")
        old, self.stale_answers = self.stale_answers, False
        answers = {consumer.id: self.world.answer(consumer, old) for consumer in consumers}
        if answers:
            self.at("asked")  # answers are on their way while the world goes on
        return answers

    def go_on(self, until: str) -> None:
        """Run to the next point called `until`, at most to the end of the run. A new run begins if none is
        under way. While it runs to the end ('end'), everybody else works whenever it pauses."""
        if self._run is None:
            self._run = greenlet(self._one_run)
        for _ in range(2000):
            self._run.switch()
            if self._run.dead:
                self._run = None
                self.stands = "end"
                return
            if self.stands == until:
                return
            if self.stands == "pause":
                self.world.all_work()
            self.world.watchman.look()
        raise AssertionError(f"the run of {self.name} does not end")

    def die(self) -> None:
        if self._run is not None:
            self._run.throw(GreenletExit)
            self._run = None

    def _one_run(self) -> None:
        try:
            fetched = self.coordinator.fetch_partitions()
            ConsumersReport.of(self.discovery.catalog.members())
            plan = self.coordinator.compute_assignment()
            self.told = f"{fetched.errors} {fetched.warnings} {plan.held} {plan.errors} {plan.warnings}"
            if plan.needed:
                self.coordinator.advance(BUDGET)
        except (ZooKeeperError, ConsulError) as error:
            self.world.say(f"  {self.name} gives up: {error}")
