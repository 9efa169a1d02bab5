"""Seeks: the person who gives the commands, and the coordinator that carries them out where no consumer has them.

Both run the project's own code, over what the model holds in place of Kafka, Consul and ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from muster.commands.actions.seeks import cancel_seek, seek
from muster.commands.command import Actor, CommandError
from muster.commands.target import Target
from muster.consumer.state.position import ANYWHERE
from muster.consumer.stateless import Stateless
from muster.coordinator.seeker import Seeker
from muster.core.model import TopicAssignment, TopicPartition
from muster.core.positions import noted
from muster.core.seeking import Bounds
from muster.edges.consul import ConsulError
from muster.edges.zookeeper import ZooKeeperError
from muster.settings.cluster_settings import ClusterSettings
from tests.faults.model.commits import KAFKA, Fenced, Group
from tests.faults.model.consul import ELSEWHERE, Api, SimulatedConsul
from tests.faults.model.threads import Threads, at_work
from tests.faults.model.zookeeper import StoreClient

if TYPE_CHECKING:
    from tests.faults.model.coordinator import CoordinatorProcess
    from tests.faults.model.state_watch import StateWatch
    from tests.faults.model.world import Model

AHEAD = 10
"""Records that a person sees behind what is committed of a topic that is not small."""


class Desk(Target):
    """A person at a machine that reaches the servers."""

    def __init__(self, world: Model, cluster: ClusterSettings) -> None:
        consul = SimulatedConsul(Api(world.consul, host=ELSEWHERE))
        super().__init__(cluster, consul, lambda: nullcontext(store))
        reader: Any = SimpleNamespace(world=world)
        store = StoreClient(world.zookeeper, lambda _: None, reader)
        object.__setattr__(self, "world", world)

    def bounds(
        self, partitions: Mapping[TopicPartition, TopicAssignment], moment: float | None = None
    ) -> dict[TopicPartition, Bounds]:
        world: Model = self.world  # type: ignore[attr-defined]
        if world.kafka.away:
            raise CommandError("Kafka does not answer")
        found = {}
        for tp, assignment in partitions.items():
            record = world.kafka.record(tp, assignment.group_id)
            begin, there = world.kafka.begin(record), world.kafka.committed.get(record)
            stands = max(begin, there.offset if there else 0)
            end = begin if tp[0] in world.kafka.small else stands + AHEAD
            sought = noted(there, record[1]).sought
            found[tp] = Bounds(begin, end, there.offset if there else None, sought=sought)
        return found

    def stored(self, partitions: Mapping[TopicPartition, TopicAssignment]) -> dict[TopicPartition, Any]:
        return dict.fromkeys(partitions, "nobody was asked")

    def changelogs(self, partitions: Mapping[TopicPartition, TopicAssignment]) -> dict[TopicPartition, int]:
        logs: StateWatch = self.world.watchman.state  # type: ignore[attr-defined]
        found = {
            tp: at.places[tp[0]].offset for tp in partitions if (at := logs.log(tp).position) is not None
        }
        return {tp: at for tp, at in found.items() if at != ANYWHERE}

    def seek(self, topic: str, partition: int, to: str, how: str) -> None:
        """Ask for a seek, with a 'rebuild' or not, or `how` its state goes on."""
        state = (how or "again") if self.cluster.state.has(topic) else ""
        rebuild = how == "rebuild" and not state
        self._give(lambda by: seek(self, by, to, topic, frozenset({partition}), rebuild, state))

    def cancel(self, topic: str, partition: int) -> None:
        self._give(lambda by: cancel_seek(self, by, topic, frozenset({partition})))

    def _give(self, command: Any) -> None:
        world: Model = self.world  # type: ignore[attr-defined]
        try:
            outcome = command(Actor("ann", "w", world.now))
        except (CommandError, ConsulError, ZooKeeperError) as error:
            world.say(f"  the command fails: {error}")
        else:
            world.say(f"  {outcome.lines[0]}")


class Seeking:
    """The coordinator as it commits: what a `Process` is for producers and groups."""

    def __init__(self, coordinator: CoordinatorProcess) -> None:
        self.coordinator = coordinator
        self.world = coordinator.world
        self.id = self.incarnation = coordinator.name
        self.faults = SimpleNamespace(
            slow_claims=False, commits_fail=False, unheard_commits=False, old_offsets=False
        )
        self.threads: Any = Threads(self)  # type: ignore[arg-type]
        self.agent: Any = SimpleNamespace(
            fencing=coordinator.world.fencing, _ownership=SimpleNamespace(held={}), states=Stateless()
        )
        self.processed: dict[TopicPartition, Any] = {}
        self.own_commits: dict[TopicPartition, Any] = {}

    @property
    def cut_off_from_kafka(self) -> bool:
        return self.world.kafka.away

    def claims(self, key: TopicPartition, _refusal: set[str] | None) -> None:
        self.world.watchman.flow.claims(self, key)

    def refusal(self, _key: TopicPartition) -> set[str] | None:
        return None

    def calls(self, _key: TopicPartition) -> None:
        """It has one call at a time."""

    def refused(self, _key: TopicPartition, _own_doing: bool) -> None:
        """An owner has come meanwhile."""


class SimulatedSeeker(Seeker):
    """The real one, which stands at points of the coordinator's run."""

    def __init__(self, coordinator: CoordinatorProcess) -> None:
        super().__init__("c", KAFKA, coordinator.world.fencing, coordinator.cluster.state)
        self.process = Seeking(coordinator)

    def carry_out(self, seeks: Any, assignments: Any) -> dict[TopicPartition, str]:
        with at_work(self.process):  # type: ignore[arg-type]
            return super().carry_out(seeks, assignments)

    def _group(self, servers: str, group_id: str) -> Any:
        self.process.coordinator.at("read the group")
        return Group(self.process, group_id)

    @contextmanager
    def _commits(self, servers: str, group: Any) -> Iterator[Any]:
        self.process.coordinator.at("claim to seek")
        yield Fenced(self.process, group)
