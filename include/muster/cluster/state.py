"""A cluster at one moment: its topics, consumers, partitions, lag and problems, from one reading. Pure.

Everything that a front end shows of a cluster is decided here, once: the condition of each consumer, what a topic
waits for, when it is stuck, what lag is, and what a person should know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from muster.cluster.condition import Condition, ConsumerState
from muster.cluster.lag import Measured, measure
from muster.cluster.last_rebalance import LastRebalance, last_rebalance
from muster.cluster.partitions import Holding, TopicCells, holdings, topic_cells
from muster.cluster.problems import Problem, problems
from muster.cluster.reading import InConsul, Reading, Statuses
from muster.core import losses
from muster.core.copies import ShardCopy
from muster.core.diagnosis import Situation, Waiting, held_up, overdue
from muster.core.model import Consumer, ConsumerStatus, Membership, State, TopicSnapshot
from muster.core.offsets import TopicOffsets
from muster.core.overrides import NO_OVERRIDES, IsolationEntry, Overrides
from muster.core.patience import Replies
from muster.core.progress import Look, Mark
from muster.core.starting import Starting
from muster.core.stuck import blind, named, stuck
from muster.core.time_lag import TimeLag, of_all, time_lag
from muster.core.wire import readable
from muster.edges.consul import Registration
from muster.settings.cluster_settings import ClusterSettings


@dataclass(frozen=True, slots=True)
class TopicLine:
    """One topic. `seconds` is how long it has been Stable, or not Stable; None where that is unknown.

    `starting` partitions have an owner that is not seen running them, `closing` ones are not closed yet; `unowned`
    ones have no owner, as those that are closing. `paused` ones are not to be read, by their assignment. `overdue`:
    not Stable for longer than `stuck_after`.
    """

    topic: str
    state: State
    seconds: float | None
    partitions: int
    unowned: int
    starting: int
    closing: int
    paused: int
    epoch: int
    reason: str
    overdue: bool


@dataclass(frozen=True, eq=False)
class ClusterState:
    """What follows from `reading` of a cluster at `at` (seconds since the epoch). Each part is made when it is asked
    for, and once."""

    settings: ClusterSettings
    reading: Reading
    at: float

    # What was read

    @cached_property
    def _readable(self) -> tuple[dict[str, TopicSnapshot], dict[str, str]]:
        return readable(self.reading.zookeeper.value or {})

    @property
    def snapshots(self) -> dict[str, TopicSnapshot]:
        """The topics that can be read."""
        return self._readable[0]

    @property
    def unreadable_topics(self) -> dict[str, str]:
        """The other topics, with the reason."""
        return self._readable[1]

    @property
    def consul(self) -> InConsul | None:
        """What Consul holds; None if it was never read."""
        return self.reading.consul.value

    @property
    def membership(self) -> Membership | None:
        """The consumers in service discovery; None if Consul was not read, or is not to be trusted."""
        return self.consul.members.membership if self.consul is not None else None

    @property
    def doubt(self) -> str:
        """Why there is no membership, '' if there is."""
        if self.consul is None:
            return "Consul was not read yet"
        return self.consul.members.doubt if self.consul.members.membership is None else ""

    @property
    def live(self) -> Mapping[str, Consumer]:
        """The live consumers; none if Consul is not to be trusted."""
        return self.membership.live if self.membership is not None else {}

    @property
    def registered(self) -> Mapping[str, Registration]:
        """The consumers that are registered, live or not."""
        return self.consul.members.registered if self.consul is not None else {}

    @property
    def isolated(self) -> Mapping[str, IsolationEntry]:
        """The consumers that a person isolated with a command, with who and why."""
        return self.overrides.isolated

    @property
    def overrides(self) -> Overrides:
        """What people decided, as far as it was read."""
        return self.consul.overrides if self.consul is not None else NO_OVERRIDES

    @property
    def statuses(self) -> Mapping[str, ConsumerStatus]:
        """What the consumers say, by id."""
        return self._statuses.statuses

    @property
    def failures(self) -> Mapping[str, str]:
        """Why the statuses of the others are unavailable."""
        return self._statuses.failures

    @property
    def _statuses(self) -> Statuses:
        return self.reading.consumers.value or Statuses()

    @property
    def offsets(self) -> TopicOffsets:
        return self.reading.kafka.value or TopicOffsets()

    # What follows from it

    @cached_property
    def topics(self) -> dict[str, TopicLine]:
        """How each topic that can be read stands, by name."""
        return {topic: self._topic(self.snapshots[topic]) for topic in sorted(self.snapshots)}

    @cached_property
    def leaving(self) -> dict[str, str]:
        """The topics that are not subscribed any more, with the reason."""
        overrides = self.overrides
        reads = self.settings.topics.read_with(overrides.subscriptions, overrides.topics_in_doubt)
        return reads.leaving(self.snapshots)

    @cached_property
    def consumers(self) -> dict[str, ConsumerState]:
        """Every consumer that is registered, isolated, assigned something or expected, by id."""
        owned: Counter[str] = Counter()
        for snapshot in self.snapshots.values():
            if snapshot.assignment is not None:
                owned.update(snapshot.assignment.owners.values())
        isolated = self.isolated.keys() | (self.membership.isolated if self.membership is not None else set())
        seen = owned.keys() | self.live.keys() | isolated | self.registered.keys()
        expected = frozenset(self.settings.consumer_ids())
        return {
            consumer: self._consumer(
                consumer, owned[consumer], consumer in isolated, consumer in expected, consumer in seen
            )
            for consumer in sorted(seen | expected)
        }

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Consumers by `COUNTED_AS`."""
        return Counter(each.counted_as for each in self.consumers.values())

    @cached_property
    def situation(self) -> Situation:
        """What the rule that nothing stands still unnamed is computed from."""
        return Situation(
            self.snapshots,
            self.membership or Membership({}),
            Replies(self.statuses, self.failures),
            self.at,
            self.settings.stuck_after,
            self.overrides,
            self.reading.progress.value or Look(),
            self.doubt,
        )

    @cached_property
    def waiting(self) -> dict[str, list[Waiting]]:
        """What holds up each topic."""
        return held_up(self.situation)

    @cached_property
    def stuck(self) -> dict[str, str]:
        """Topic to the full message for people, of those that are held up for longer than `stuck_after`."""
        return stuck(self.situation, self.waiting)

    @property
    def standing(self) -> Mapping[str, Mapping[int, Mark]]:
        """The partitions that have not moved for longer than `stuck_after`, by topic."""
        return self.situation.standing

    @property
    def blind(self) -> str:
        """Why it is unknown what stands still, '' if it is known."""
        return blind(self.situation)

    @property
    def named(self) -> list[str]:
        """What stands still and a person has decided, or is within a bound that was set."""
        return named(self.waiting)

    @cached_property
    def lost(self) -> dict[str, str]:
        """Topic to what Kafka had no more of it when it was to be read, in words, of those of which consumers report
        that; they do so for an hour."""
        return losses.in_words(self.statuses)

    @cached_property
    def cells(self) -> dict[str, TopicCells]:
        """The partitions of each topic that can be read."""
        live = self.live.keys() if self.membership is not None else None
        return {t: topic_cells(s, self.statuses, live) for t, s in self.snapshots.items()}

    @cached_property
    def measured(self) -> Measured:
        """Lag and rates of partitions."""
        return measure(self.offsets, self.statuses.values(), current=self.reading.kafka.error is None)

    @cached_property
    def holdings(self) -> dict[str, Holding]:
        """What each consumer has, by id."""
        return holdings(self.cells)

    def copies_of(self, topic: str) -> dict[int, dict[str, ShardCopy]]:
        """Return the copies of the state by key of each partition, by consumer, without its owner's."""
        found: dict[int, dict[str, ShardCopy]] = {}
        owner = self.cells[topic].owner
        for consumer, status in sorted(self.statuses.items()):
            for partition, copy in sorted((status.copies or {}).get(topic, {}).items()):
                if owner.get(partition) != consumer:
                    found.setdefault(partition, {})[consumer] = copy
        return found

    def lag_of(self, topic: str) -> tuple[int | None, float | None]:
        """Return lag and rate of a topic; None where nothing is known."""
        return self.measured.total([(topic, p) for p in self.cells[topic].numbers])

    @cached_property
    def totals(self) -> tuple[int | None, float | None]:
        """Lag and rate over all topics; None where nothing is known."""
        return self.measured.total([(t, p) for t, cells in self.cells.items() for p in cells.numbers])

    @cached_property
    def time_lags(self) -> dict[str, dict[int, TimeLag]]:
        """How far behind in time each partition of each topic is."""
        look = self.reading.progress.value or Look()
        return {
            topic: {p: time_lag(look, self.offsets, (topic, p)) for p in cells.numbers}
            for topic, cells in self.cells.items()
        }

    @cached_property
    def behind(self) -> dict[str, TimeLag]:
        """How far behind in time each topic is."""
        return {topic: of_all(of_topic.values()) for topic, of_topic in self.time_lags.items()}

    @cached_property
    def lag_unknown(self) -> int:
        """Partitions whose lag is unknown."""
        lag = self.measured.lag
        return sum((t, p) not in lag for t, cells in self.cells.items() for p in cells.numbers)

    @property
    def consumed_rate(self) -> float | None:
        """Records a second that are committed, over all partitions; None while Kafka is out of reach."""
        return self.offsets.consumed if self.reading.kafka.error is None else None

    @cached_property
    def last_rebalance(self) -> LastRebalance | None:
        """The last rebalance that is known."""
        return last_rebalance(self.reading.history.value or (), self.at, self.snapshots.values())

    @cached_property
    def pins(self) -> dict[str, dict[int, str]]:
        """Topic to partition to the consumer it is pinned to."""
        return {t: dict(p) for t, p in self.overrides.pinned().items()}

    @cached_property
    def pinned_to(self) -> dict[str, int]:
        """Consumer to the number of partitions that are pinned to it."""
        return dict(Counter(to for of_topic in self.pins.values() for to in of_topic.values()))

    @cached_property
    def problems(self) -> list[Problem]:
        """Everything that a person should know, the worst first."""
        return problems(self)

    @property
    def well(self) -> bool:
        """Whether every topic is Stable, a consumer is live, the cluster is not paused, and no problem stands in the
        way of consumption."""
        return (
            all(topic.state is State.STABLE for topic in self.topics.values())
            and bool(self.live)
            and self.overrides.paused is None
            and not any(problem.blocking for problem in self.problems)
        )

    def prepare(self) -> None:
        """Make what takes longest, where its time counts as part of the reading."""
        _ = self.consumers, self.holdings, self.totals, self.lag_unknown, self.behind, self.problems

    def _topic(self, snapshot: TopicSnapshot) -> TopicLine:
        state, assignment = snapshot.state, snapshot.assignment
        owners = assignment.owners if assignment is not None else {}
        since = state.since if state is not None else 0.0
        return TopicLine(
            topic=snapshot.topic,
            state=snapshot.name,
            seconds=round(max(0.0, self.at - since), 1) if since > 0 else None,
            partitions=len(snapshot.partitions),
            unowned=len(snapshot.partitions - owners.keys()),
            starting=sum(map(len, state.to_start.values())) if state is not None else 0,
            closing=sum(map(len, state.to_close.values())) if state is not None else 0,
            paused=len(assignment.paused) if assignment is not None else 0,
            epoch=assignment.epoch if assignment is not None else 0,
            reason=state.reason if state is not None else "",
            overdue=overdue(snapshot, self.at, self.settings.stuck_after),
        )

    def _consumer(
        self, consumer: str, partitions: int, isolated: bool, expected: bool, seen: bool
    ) -> ConsumerState:
        there, registration = self.live.get(consumer), self.registered.get(consumer)
        if isolated:
            condition = Condition.ISOLATED
        elif there is not None:
            condition = Condition.LIVE
        elif self.membership is None:
            condition = Condition.UNKNOWN
        else:
            condition = self._not_live(consumer, registration is not None)
        return ConsumerState(
            consumer,
            condition,
            partitions,
            expected,
            seen,
            weight=there.weight if there else None,
            zone=there.zone if there else None,
            priority=there.priority if there else None,
            address=f"{registration.address}:{registration.port}" if registration else "",
            failure=self.failures.get(consumer, ""),
            output=registration.output if registration else "",
            isolation=self.isolated.get(consumer),
            starting=self._starting.get(consumer),
        )

    @property
    def _starting(self) -> Mapping[str, Starting]:
        return self.consul.starting if self.consul is not None else {}

    def _not_live(self, consumer: str, registered: bool) -> Condition:
        starting = self._starting.get(consumer)
        patience = self.settings.consumers.startup_timeout
        if starting is None or starting.failed or starting.overdue(self.at, patience):
            return Condition.FAILING if registered else Condition.ABSENT
        return Condition.STARTING
