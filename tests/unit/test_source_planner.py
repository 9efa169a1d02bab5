"""The planner's decisions, with a Kafka whose answers and a clock whose hands the test moves.

What it does on a real Kafka and a real Spark stands in `tests/spark`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from muster.consumer.source.batch_size import Bounds
from muster.consumer.source.planner import Planner
from muster.consumer.source.protocol import GoneRange
from muster.core.model import OffsetRange, Seek, TopicPartition
from muster.core.ownership import Offer, Source, TopicOffer
from muster.core.parking import Parked
from muster.core.positions import Committed, Jump, Note, Why
from muster.core.state_topics import StateTopics
from muster.core.turns import Failure, Turns
from muster.edges.kafka import KafkaError, PartitionError
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.told_states import ToldStates

if TYPE_CHECKING:
    from muster.consumer.agent import Agent

SERVERS = "kafka-1:9092"
T = "flights"


class Log:
    """One Kafka cluster: what it knows, and whether it answers."""

    def __init__(self) -> None:
        self.bounds: dict[TopicPartition, tuple[int, int]] = {}
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.metadata: dict[tuple[str, TopicPartition], str] = {}
        self.ids: dict[str, str] = {}
        self.broken: dict[TopicPartition, str] = {}
        self.down = False
        self.stalled: threading.Event | None = None
        self.calls: list[str] = []


class SimulatedOffsets:
    """`GroupOffsets` of a group in a `Log`."""

    def __init__(self, log: Log, group: str) -> None:
        self._log = log
        self._group = group

    def positions(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Committed | None]:
        asked = self._asked("committed", partitions)
        found = {tp: self._log.committed.get((self._group, tp)) for tp in asked}
        return {
            tp: None if at is None else Committed(at, self._log.metadata.get((self._group, tp), ""))
            for tp, at in found.items()
        }

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        self._asked("ids", ())
        return {topic: self._log.ids[topic] for topic in topics if topic in self._log.ids}

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self._log.bounds[tp][0] for tp in self._asked("beginning", partitions)}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        asked = self._asked("end", partitions)
        known = {tp: self._log.bounds[tp][1] for tp in asked if tp not in self._log.broken}
        if errors := {tp: self._log.broken[tp] for tp in asked if tp in self._log.broken}:
            raise PartitionError("some partitions", known, errors)
        return known

    def close(self) -> None:
        self._log.calls.append("close")

    def _asked(self, what: str, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        self._log.calls.append(what)
        if self._log.stalled is not None:
            self._log.stalled.wait(20)
        if self._log.down:
            raise KafkaError("Kafka at kafka-1:9092: refused; check the brokers")
        return list(partitions)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def logs() -> dict[str, Log]:
    """Kafka clusters by their bootstrap servers; the first has four partitions of 100 records."""
    first = Log()
    first.bounds = {(T, p): (0, 100) for p in range(4)}
    return {SERVERS: first}


@dataclass(frozen=True)
class Planned:
    """What the planner reported."""

    asked: int
    finished: Mapping[str, Mapping[int, OffsetRange]]
    offsets: Mapping[str, Mapping[int, OffsetRange]]
    ends: Mapping[TopicPartition, int]
    problems: list[str]
    jumps: Mapping[TopicPartition, Jump]
    notes: Mapping[TopicPartition, Note]
    sought: Mapping[TopicPartition, Seek]
    losses: Mapping[TopicPartition, Jump]
    due: frozenset[TopicPartition]

    @property
    def plans_batch(self) -> bool:
        return self.offsets != self.finished


class SimulatedAgent:
    """What the planner asks of the agent: offers what the test says, and accepts every plan."""

    def __init__(self) -> None:
        self.shared = self.failing = self.parked = self
        self.plans: list[Planned] = []
        self.turns = Turns(lambda topic: int(topic.startswith("trains")))
        self.again: dict[TopicPartition, int] = {}
        self.in_group: frozenset[TopicPartition] = frozenset()
        self.fail_on_data_loss = False
        self.losses: dict[TopicPartition, Parked] = {}
        self.near: dict[str, TopicOffer] = {}
        self.states = ToldStates()
        self.on_wait: Callable[[float], None] = lambda _: None
        self._topics: dict[str, TopicOffer] = {}
        self._asked = 0

    @contextmanager
    def locked(self) -> Iterator[SimulatedAgent]:
        yield self

    def nearby(self) -> dict[str, TopicOffer]:
        return self.near

    def wait_for(self, _test: object, timeout: float) -> bool:
        self.on_wait(timeout)
        return False

    def due_state(self, _idle: object) -> frozenset[TopicPartition]:
        return frozenset()

    def turn(self, ready: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        return self.turns.next(ready, 0.0)

    def hold(self, topic: str, partitions: Iterable[int], servers: str = SERVERS, topic_id: str = "") -> None:
        """From now on exactly `partitions` of `topic` may be read."""
        held = frozenset(partitions)
        self._topics[topic] = TopicOffer(Source(servers, "g", topic_id), held, 4)

    def offer(self, token: str) -> Offer:
        assert token == "token"  # noqa: S105
        self._asked += 1
        return Offer(self._asked, dict(self._topics), self.again, in_group=self.in_group)

    def accepts(self, tp: TopicPartition, jump: Jump) -> bool:
        return True

    def planned(self, token: str, **plan: Any) -> int:
        self.plans.append(Planned(**plan))
        return sum(jump.lost for jump in self.plans[-1].jumps.values())


@pytest.fixture
def agent() -> SimulatedAgent:
    return SimulatedAgent()


@pytest.fixture
def planner(agent: SimulatedAgent, logs: dict[str, Log], clock: Clock) -> Iterator[Planner]:
    made = planner_of(agent, logs, clock)
    yield made
    made.close()


def planner_of(
    agent: SimulatedAgent,
    logs: dict[str, Log],
    clock: Clock,
    most: int = 10**9,
    min_tasks: int = 1,
    interval: float = 0.0,
    **bounds: Any,
) -> Planner:
    kafka = KafkaSettings(config={"bootstrap.servers": "elsewhere:1", "ssl.key.password": "p"})
    return Planner(
        cast("Agent", agent),
        "token",
        kafka,
        Bounds(most, **bounds),
        interval,
        min_tasks=min_tasks,
        open_offsets=lambda settings, group: SimulatedOffsets(logs[settings.bootstrap_servers], group),
        clock=clock,
    )


def plan(planner: Planner, start: dict) -> dict:  # type: ignore[type-arg]
    """A planning as the connector sees it: text in, text out."""
    return json.loads(json.dumps(planner.next(start, 2).offset))  # type: ignore[no-any-return]


def test_batch_holds_topics_of_one_handler_and_those_with_records_take_turns(
    planner: Planner, agent: SimulatedAgent, logs: dict[str, Log]
) -> None:
    topics = (T, "trains-day", "trains-night")
    for topic in topics:
        agent.hold(topic, [0])
        logs[SERVERS].bounds[topic, 0] = (0, 5)
    first = plan(planner, {})
    assert first == {T: {"0": [0, 5]}, "trains-day": {"0": [0, 0]}, "trains-night": {"0": [0, 0]}}
    logs[SERVERS].bounds[T, 0] = (0, 7)
    second = plan(planner, first)
    assert second == {T: {"0": [5, 5]}, "trains-day": {"0": [0, 5]}, "trains-night": {"0": [0, 5]}}
    third = plan(planner, second)
    assert third == {T: {"0": [5, 7]}, "trains-day": {"0": [5, 5]}, "trains-night": {"0": [5, 5]}}
    logs[SERVERS].bounds[T, 0] = (0, 9)
    assert plan(planner, third)[T] == {"0": [7, 9]}, "without a turn for those that have nothing"


def test_planner_that_stood_still_plans_only_once_it_may_have_heard_what_changed(
    agent: SimulatedAgent, logs: dict[str, Log], clock: Clock
) -> None:
    def sleep(seconds: float) -> None:
        clock.now += seconds

    def freeze(_: float) -> None:
        clock.now += 5.0

    planner = planner_of(agent, logs, clock, interval=0.2)
    agent.hold(T, [0])
    first = plan(planner, {})
    begin, end = first[T]["0"]
    logs[SERVERS].bounds[T, 0] = (begin, end + 7)
    agent.on_wait = freeze
    assert plan(planner, first) == first
    agent.on_wait = sleep
    assert plan(planner, first) == {T: {"0": [end, end + 7]}}
    assert clock.now == pytest.approx(1005.2), "an interval later"
    planner.close()


def test_first_batch_reads_a_record_of_each_kafka_while_nothing_may_be_taken_up(
    planner: Planner, agent: SimulatedAgent, logs: dict[str, Log], eventually: Eventually
) -> None:
    logs["empty:1"], logs["away:1"] = Log(), Log()
    logs["empty:1"].bounds = {("other", 0): (3, 3)}
    logs["away:1"].down = True
    near = {T: SERVERS, "other": "empty:1", "more": "away:1"}
    agent.near = {
        topic: TopicOffer(Source(servers, "g"), frozenset({0}), 4) for topic, servers in near.items()
    }
    batch = planner.next({}, 2)
    assert batch.tasks == [{SERVERS: {T: {"0": (99, 100, 100)}}}] * 2
    assert batch.kafka.keys() == {SERVERS}
    assert not batch.offset
    assert not agent.plans[-1].plans_batch, "for the agent it is a planning with nothing to do"
    assert not planner.next({}, 2).tasks, "once"
    agent.lost = None  # type: ignore[attr-defined]
    planner.missed(GoneRange(topic=T, partition=0, begin=99, end=100, deleted=True))
    agent.hold(T, [0])
    assert plan(planner, {}) == {T: {"0": [0, 100]}}
    eventually(
        lambda: "close" in logs["empty:1"].calls, 10, "that a Kafka that none of its topics is in is left"
    )
    assert "close" not in logs[SERVERS].calls, "the connection is the one that was made to warm up"


def test_warm_up_reads_nothing_where_something_may_be_taken_up(
    planner: Planner, agent: SimulatedAgent, logs: dict[str, Log]
) -> None:
    agent.near = {T: TopicOffer(Source(SERVERS, "g"), frozenset({1}), 4)}
    agent.hold(T, [0])
    logs[SERVERS].bounds[T, 0] = (0, 0)
    assert planner.next({}, 1).tasks == [{SERVERS: {T: {"0": (0, 0, 0)}}}]


def test_batch_that_failed_is_planned_again_from_its_begin_with_an_empty_one_between(
    planner: Planner, agent: SimulatedAgent, logs: dict[str, Log]
) -> None:
    agent.hold(T, [0, 1])
    for partition in (0, 1):
        logs[SERVERS].bounds[T, partition] = (0, 1)
    first = plan(planner, {})
    assert first == {T: {"0": [0, 1], "1": [0, 1]}}
    agent.again = {(T, 0): 0, (T, 1): 0}
    empty = plan(planner, first)
    assert empty == {T: {"0": [0, 0], "1": [0, 0]}}, "Spark takes equal offsets for no batch"
    agent.again = {}
    assert plan(planner, empty) == first
    agent.again = {(T, 0): 0}
    agent.turns.failed({(T, 0): (0, 1)}, 0.0, Failure())
    assert plan(planner, first) == {T: {"0": [0, 0], "1": [1, 1]}}, "one that waits is not read"


def test_records_that_a_truncated_partition_still_has_come_again_after_their_batch_failed(
    planner: Planner, agent: SimulatedAgent, logs: dict[str, Log]
) -> None:
    agent.hold(T, [0])
    logs[SERVERS].committed["g", (T, 0)] = 5
    logs[SERVERS].bounds[T, 0] = (0, 10)
    first = plan(planner, {})
    assert first == {T: {"0": [5, 10]}}
    logs[SERVERS].bounds[T, 0] = (0, 7)
    planner.missed(GoneRange(topic=T, partition=0, begin=7, end=10, deleted=False))
    agent.again = {(T, 0): 5}
    assert plan(planner, first) == {T: {"0": [5, 7]}}
    assert not agent.plans[-1].jumps


def test_batch_holds_as_many_records_as_a_turn_allows(
    agent: SimulatedAgent, planner: Planner, logs: dict[str, Log]
) -> None:
    agent.hold(T, [0])
    logs[SERVERS].bounds[T, 0] = (0, 100)
    first = plan(planner, {})
    for at in (-20.0, -10.0):
        agent.turns.failed({(T, 0): (0, 100)}, at, Failure())
    agent.again = {(T, 0): 0}
    assert plan(planner, first) == {T: {"0": [0, 1]}}


def test_a_batch_after_the_other(planner: Planner, agent: SimulatedAgent, logs: dict[str, Log]) -> None:
    agent.hold(T, [0, 1])
    logs[SERVERS].committed["g", (T, 1)] = 60
    first = plan(planner, {})
    assert first == {T: {"0": [0, 100], "1": [60, 100]}}
    assert plan(planner, first) == first, "nothing new: the start, as it is"
    logs[SERVERS].bounds[T, 0] = (0, 130)
    logs[SERVERS].calls.clear()
    second = plan(planner, first)
    assert second == {T: {"0": [100, 130], "1": [100, 100]}}
    assert logs[SERVERS].calls == ["end"], "one call for partitions that are known"
    agent.hold(T, [1, 2])
    third = plan(planner, second)
    assert third == {T: {"1": [100, 100], "2": [0, 100]}}
    agent.hold(T, [])
    assert plan(planner, third) == {}
    plans = [(p.asked, p.plans_batch) for p in agent.plans]
    assert plans == [(1, True), (2, False), (3, True), (4, True), (5, True)]
    assert agent.plans[2].finished == {T: {0: (0, 100), 1: (60, 100)}}
    assert agent.plans[2].ends == {(T, 0): 130, (T, 1): 100}


def test_batch_holds_at_most_what_the_settings_allow(
    agent: SimulatedAgent, logs: dict[str, Log], clock: Clock
) -> None:
    agent.hold(T, [0, 1])
    few = planner_of(agent, logs, clock, most=50)
    assert plan(few, {}) == {T: {"0": [0, 25], "1": [0, 25]}}
    few.close()


def test_several_tasks_read_a_partition_where_that_is_asked_for_and_read_ahead_what_will_be_theirs(
    agent: SimulatedAgent, logs: dict[str, Log], clock: Clock
) -> None:
    agent.hold(T, [0])
    logs[SERVERS].bounds[T, 0] = (0, 2000)
    with closing(planner_of(agent, logs, clock, most=1000, min_tasks=4)) as planner:
        first = planner.next({}, 2)
        assert first.offset == {T: {"0": (0, 1000)}}
        assert first.tasks == [
            {SERVERS: {T: {"0": (0, 500, 1000)}}},
            {SERVERS: {T: {"0": (500, 1000, 1500)}}},
        ]
        logs[SERVERS].bounds[T, 0] = (0, 1600)
        second = planner.next(first.offset, 2)
        assert second.tasks == [
            {SERVERS: {T: {"0": (1000, 1300, 1600)}}},
            {SERVERS: {T: {"0": (1300, 1600, 1600)}}},
        ], "nothing is read ahead behind the end"
        logs[SERVERS].bounds[T, 0] = (0, 1650)
        assert planner.next(second.offset, 2).tasks == [{SERVERS: {T: {"0": (1600, 1650, 1650)}}}], "too few"
        agent.hold(T, [0, 1])
        logs[SERVERS].bounds |= {(T, 0): (0, 3000), (T, 1): (0, 3000)}
        third = planner.next({T: {"0": (1600, 1650)}}, 2)
        assert len(third.tasks) == 2
        assert all(len(task[SERVERS][T]) == 1 for task in third.tasks), "a partition each"


def test_topic_with_a_rate_gives_its_share_and_holds_up_no_other(
    agent: SimulatedAgent, logs: dict[str, Log], clock: Clock
) -> None:
    agent.hold(T, [0, 1])
    agent.hold("other", [0])
    logs[SERVERS].bounds["other", 0] = (0, 7)
    slow = planner_of(agent, logs, clock, rates={T: 40.0})
    first = plan(slow, {})
    assert first == {T: {"0": [0, 0], "1": [0, 0]}, "other": {"0": [0, 7]}}
    clock.now += 2
    second = plan(slow, first)
    assert second == {T: {"0": [0, 20], "1": [0, 20]}, "other": {"0": [7, 7]}}, "40 for four partitions"
    assert plan(slow, second) == second, "nothing more in the same moment"
    clock.now += 0.5
    agent.again = {(T, 0): 0, (T, 1): 0}
    agent.turns.failed({(T, 0): (0, 20), (T, 1): (0, 20)}, -1.0, Failure())
    assert plan(slow, second)[T]["0"] == [0, 5], "records that come again count again"
    slow.close()


def test_plan_of_several_kafkas_has_the_settings_of_each_and_shows_no_secret(
    planner: Planner, agent: SimulatedAgent, logs: dict[str, Log]
) -> None:
    logs["kafka-2:9092"] = Log()
    logs["kafka-2:9092"].bounds = {("other", 0): (0, 10)}
    agent.hold(T, [0])
    agent.hold("other", [0], "kafka-2:9092")
    batch = planner.next({}, 1)
    assert batch.tasks == [
        {"kafka-2:9092": {"other": {"0": (0, 10, 10)}}, SERVERS: {T: {"0": (0, 100, 100)}}}
    ]
    assert {name: settings["bootstrap.servers"] for name, settings in batch.kafka.items()} == {
        SERVERS: SERVERS,
        "kafka-2:9092": "kafka-2:9092",
    }
    assert batch.kafka[SERVERS]["ssl.key.password"] == "p"
    assert "ssl.key.password" not in repr(batch)


def test_a_partition_that_comes_back_begins_at_the_committed_offset(
    planner: Planner, agent: SimulatedAgent, logs: dict[str, Log]
) -> None:
    agent.hold(T, [0, 1])
    first = plan(planner, {})
    agent.hold(T, [1])
    second = plan(planner, first)
    logs[SERVERS].bounds[T, 0] = (0, 300)
    logs[SERVERS].committed["g", (T, 0)] = 250
    agent.hold(T, [0, 1])
    assert plan(planner, second) == {T: {"0": [250, 300], "1": [100, 100]}}


def test_a_new_planner_on_an_old_checkpoint_trusts_the_group(
    planner: Planner, agent: SimulatedAgent, logs: dict[str, Log], clock: Clock
) -> None:
    """Its own commits may lag behind the checkpoint; an offset ahead of it is another consumer's work."""
    agent.hold(T, [0, 1])
    first = plan(planner, {})
    logs[SERVERS].bounds |= {(T, 0): (0, 500), (T, 1): (0, 500)}
    logs[SERVERS].committed |= {("g", (T, 0)): 40, ("g", (T, 1)): 300}
    again = planner_of(agent, logs, clock)
    assert plan(again, first) == {T: {"0": [100, 500], "1": [300, 500]}}
    again.close()


def test_records_lost_to_retention_are_reported_before_and_during_reading(
    agent: SimulatedAgent, logs: dict[str, Log], clock: Clock
) -> None:
    planner = planner_of(agent, logs, clock, most=10)
    logs[SERVERS].bounds[T, 0] = (70, 100)
    logs[SERVERS].committed["g", (T, 0)] = 30
    agent.hold(T, [0])
    first = plan(planner, {})
    assert first == {T: {"0": [70, 80]}}
    assert agent.plans[-1].jumps == {(T, 0): Jump(30, 70, Why.RETENTION)}
    logs[SERVERS].bounds[T, 0] = (95, 100)
    second = plan(planner, first)
    assert second == {T: {"0": [95, 100]}}, "it was behind, so it was asked where Kafka begins"
    assert agent.plans[-1].jumps == {(T, 0): Jump(80, 95, Why.RETENTION)}
    calls = len(logs[SERVERS].calls)
    logs[SERVERS].bounds[T, 0] = (95, 110)
    plan(planner, second)
    assert logs[SERVERS].calls[calls:] == ["end"], "one that had read all there is is not asked about"


def test_kafka_out_of_reach_holds_everything_and_is_reported(
    planner: Planner, agent: SimulatedAgent, logs: dict[str, Log], eventually: Eventually
) -> None:
    agent.hold(T, [0, 1])
    first = plan(planner, {})
    logs[SERVERS].down = True
    assert plan(planner, first) == first
    assert f"Kafka at {SERVERS} is out of reach, its 2 partitions wait" in agent.plans[-1].problems[0]
    agent.hold(T, [1, 2])
    second = plan(planner, first)
    assert second == {T: {"1": [100, 100]}}, "what is taken away leaves, what is new waits"
    logs[SERVERS].down = False
    logs[SERVERS].bounds[T, 1] = (0, 110)
    third = eventually(lambda: (end := plan(planner, second)) != second and end, 10, "a batch")
    assert third == {T: {"1": [100, 110], "2": [0, 100]}}
    assert agent.plans[-1].problems == []


def test_a_kafka_that_hangs_holds_up_no_other(
    planner: Planner, agent: SimulatedAgent, logs: dict[str, Log], eventually: Eventually
) -> None:
    logs["kafka-2:9092"] = Log()
    logs["kafka-2:9092"].bounds = {("other", 0): (0, 10)}
    agent.hold(T, [0])
    agent.hold("other", [0], "kafka-2:9092")
    first = plan(planner, {})
    assert first == {T: {"0": [0, 100]}, "other": {"0": [0, 10]}}
    hanging = logs["kafka-2:9092"]
    hanging.down = True
    assert plan(planner, first) == first, "the first failure is waited for"
    hanging.stalled = threading.Event()
    try:
        plan(planner, first)
        logs[SERVERS].bounds[T, 0] = (0, 120)
        second = plan(planner, first)
        assert second == {T: {"0": [100, 120]}, "other": {"0": [10, 10]}}
    finally:
        hanging.down = False
        hanging.stalled.set()
    hanging.bounds["other", 0] = (0, 15)
    third = eventually(lambda: (end := plan(planner, second)) != second and end, 10, "a batch")
    assert third == {T: {"0": [120, 120]}, "other": {"0": [10, 15]}}


def test_a_partition_without_an_answer_waits_alone(
    planner: Planner, agent: SimulatedAgent, logs: dict[str, Log], clock: Clock
) -> None:
    agent.hold(T, [0, 1, 2])
    first = plan(planner, {})
    logs[SERVERS].broken = {(T, 1): "Unknown topic or partition", (T, 3): "Unknown topic or partition"}
    logs[SERVERS].bounds |= {(T, 0): (0, 110), (T, 1): (0, 110)}
    agent.hold(T, [0, 1, 2, 3])
    second = plan(planner, first)
    assert second == {T: {"0": [100, 110], "1": [100, 100], "2": [100, 100]}}
    (problem,) = agent.plans[-1].problems
    assert f"topic '{T}', partitions [1, 3] wait" in problem
    assert "Unknown topic or partition" in problem
    logs[SERVERS].broken = {}
    assert plan(planner, second) == second
    assert agent.plans[-1].problems == [problem], "they are not asked about in every planning"
    clock.now += 3
    third = plan(planner, second)
    assert third == {T: {"0": [110, 110], "1": [100, 110], "2": [100, 100], "3": [0, 100]}}
    assert agent.plans[-1].problems == []


def wait_for_the_end(planner: Planner, start: dict, clock: Clock) -> dict:  # type: ignore[type-arg]
    """Plan for as long as an end before the position is not believed, and once more."""
    for _ in range(4):
        assert plan(planner, start) == start
        clock.now += 3
    return plan(planner, start)


def test_a_topic_of_unknown_id_that_ends_before_its_position_is_read_from_its_beginning_after_a_while(
    planner: Planner, agent: SimulatedAgent, logs: dict[str, Log], clock: Clock
) -> None:
    agent.hold(T, [0, 1])
    first = plan(planner, {})
    logs[SERVERS].bounds[T, 0] = (0, 20)
    second = wait_for_the_end(planner, first, clock)
    assert f"topic '{T}', partition 0: it ended at 20, before the offset 100" in agent.plans[-2].problems[0]
    assert second == {T: {"0": [0, 20], "1": [100, 100]}}
    assert agent.plans[-1].jumps == {(T, 0): Jump(100, 0, Why.RECREATED)}
    assert plan(planner, second) == second
    assert (agent.plans[-1].problems, agent.plans[-1].jumps) == ([], {})


def test_a_truncated_partition_goes_on_at_the_least_end_that_was_seen(
    planner: Planner, agent: SimulatedAgent, logs: dict[str, Log], clock: Clock
) -> None:
    agent.hold(T, [0, 1], topic_id="A")
    logs[SERVERS].ids[T] = "A"
    first = plan(planner, {})
    logs[SERVERS].bounds[T, 0] = (0, 95)
    assert plan(planner, first) == first
    logs[SERVERS].bounds[T, 0] = (0, 98)  # records that were written since
    second = wait_for_the_end(planner, first, clock)
    assert second == {T: {"0": [95, 98], "1": [100, 100]}}, (
        "neither from its beginning nor without what is new"
    )
    assert agent.plans[-1].jumps == {(T, 0): Jump(100, 95, Why.TRUNCATION)}
    assert agent.plans[-1].problems == []


def test_a_recreated_topic_waits_for_its_id_and_holds_up_no_other(
    planner: Planner, agent: SimulatedAgent, logs: dict[str, Log], clock: Clock
) -> None:
    agent.hold(T, [0], topic_id="A")
    agent.hold("other", [0])
    logs[SERVERS].bounds["other", 0] = (0, 10)
    logs[SERVERS].ids[T] = "B"
    first = plan(planner, {})
    logs[SERVERS].bounds[T, 0] = (0, 20)
    assert wait_for_the_end(planner, first, clock) == first
    (problem,) = agent.plans[-1].problems
    assert "under id B, and the assignment under A" in problem
    logs[SERVERS].bounds["other", 0] = (0, 15)
    second = plan(planner, first)
    assert second == {T: {"0": [100, 100]}, "other": {"0": [10, 15]}}
    del logs[SERVERS].ids[T]
    assert plan(planner, second) == second, "what is not known waits as well"


def test_an_offset_that_was_committed_of_another_topic_is_not_believed(
    planner: Planner, agent: SimulatedAgent, logs: dict[str, Log]
) -> None:
    agent.hold(T, [0, 1, 2, 3], topic_id="B")
    for partition, metadata in enumerate(("muster:c:A", "muster:c:B", "muster:c:", "other tool")):
        logs[SERVERS].committed["g", (T, partition)] = 60
        logs[SERVERS].metadata["g", (T, partition)] = metadata
    assert plan(planner, {}) == {T: {"0": [0, 100], "1": [60, 100], "2": [60, 100], "3": [60, 100]}}
    assert agent.plans[-1].jumps == {(T, 0): Jump(60, 0, Why.RECREATED)}


def test_an_end_that_was_only_late_changes_nothing(
    planner: Planner, agent: SimulatedAgent, logs: dict[str, Log], clock: Clock
) -> None:
    agent.hold(T, [0])
    first = plan(planner, {})
    logs[SERVERS].bounds[T, 0] = (0, 90)
    assert plan(planner, first) == first
    clock.now += 60
    logs[SERVERS].bounds[T, 0] = (0, 101)
    assert plan(planner, first) == {T: {"0": [100, 101]}}


def test_partition_whose_offset_was_deleted_waits_until_that_is_committed_again(
    agent: SimulatedAgent, logs: dict[str, Log], planner: Planner
) -> None:
    agent.hold(T, {0, 1}, topic_id="A")
    agent.in_group = frozenset({(T, 0)})
    assert json.loads(json.dumps(planner.next({}, 2).offset)) == {T: {"1": [0, 100]}}
    assert "partition 0: its committed offset was deleted; it waits" in agent.plans[-1].problems[0]
    logs[SERVERS].committed["g", (T, 0)] = 60
    assert planner.next({T: {"1": (0, 100)}}, 2).offset[T]["0"] == (60, 100)
    assert agent.plans[-1].problems == []


def test_shards_that_are_due_get_batches_without_records(
    planner: Planner,
    agent: SimulatedAgent,
    logs: dict[str, Log],
) -> None:
    agent.hold(T, [0, 1])
    logs[SERVERS].bounds[T, 0], logs[SERVERS].bounds[T, 1] = (0, 5), (0, 5)
    first = plan(planner, {})
    agent.failing.due_state = lambda idle: frozenset({(T, 1)} & set(idle))  # type: ignore[method-assign, assignment]
    second = plan(planner, first)
    third = plan(planner, second)
    assert second[T] == third[T] == {"0": [5, 5], "1": [5, 5]}
    assert second != third, "else Spark takes it for no batch"
    assert [one.due for one in agent.plans] == [frozenset(), {(T, 1)}, {(T, 1)}]
    logs[SERVERS].bounds[T, 0] = (0, 8)
    fourth = plan(planner, third)
    assert fourth == {T: {"0": [5, 8], "1": [5, 5]}}, "records have their turn"
    logs[SERVERS].bounds[T, 0] = (0, 9)
    assert plan(planner, fourth)[T] == {"0": [8, 8], "1": [5, 5]}


def test_loss_of_a_partition_with_state_is_committed_alone(
    planner: Planner,
    agent: SimulatedAgent,
    logs: dict[str, Log],
) -> None:
    agent.states = ToldStates(StateTopics([T]))
    agent.hold(T, [0], topic_id="id")
    logs[SERVERS].bounds[T, 0] = (2, 5)
    logs[SERVERS].committed["g", (T, 0)] = 0
    first = plan(planner, {})
    assert first == {T: {"0": [2, 2]}}, "the loss is committed first"
    assert plan(planner, first) == {T: {"0": [2, 5]}}
