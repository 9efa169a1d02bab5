"""The planner's decisions, with a Kafka whose answers and a clock whose hands the test moves.

What it does on a real Kafka and a real Spark stands in `tests/spark`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from muster.consumer.source.fetch_ahead import fetch_ahead
from muster.consumer.source.offsets import TopicPartition
from muster.consumer.source.planner import Planner
from muster.consumer.source.protocol import AgentClient, AgentRefusedError, AgentUnreachableError
from muster.core.positions import Committed, Why
from muster.edges.kafka import KafkaError, PartitionError
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.spark.local_agent import LocalAgent

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


@pytest.fixture
def agent() -> Iterator[LocalAgent]:
    with LocalAgent(KafkaSettings(config={"bootstrap.servers": SERVERS, "sasl.password": "p"}), "g") as made:
        yield made


@pytest.fixture
def planner(agent: LocalAgent, logs: dict[str, Log], clock: Clock) -> Iterator[Planner]:
    made = planner_of(agent, logs, clock)
    yield made
    made.close()


def planner_of(agent: LocalAgent, logs: dict[str, Log], clock: Clock, shares: str = "") -> Planner:
    return Planner(
        AgentClient(agent.options["agent"], agent.options["token"]),
        parallelism=2,
        agent_patience=30,
        shares=shares,
        open_offsets=lambda settings, group: SimulatedOffsets(logs[settings.bootstrap_servers], group),
        clock=clock,
    )


def plan(planner: Planner, start: dict, limit: int | None = 10**9) -> dict:  # type: ignore[type-arg]
    """A planning as Spark sees it: text in, text out."""
    return json.loads(json.dumps(planner.latest(start, limit)))  # type: ignore[no-any-return]


def test_a_batch_after_the_other(planner: Planner, agent: LocalAgent, logs: dict[str, Log]) -> None:
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
    told = [(p.asked, p.plans_batch) for p in agent.planned]
    assert told == [(1, True), (2, False), (3, True), (4, True), (5, True)]
    assert agent.planned[2].finished == {T: {"0": (0, 100), "1": (60, 100)}}
    assert agent.planned[2].ends == {T: {"0": 130, "1": 100}}


def test_limits(planner: Planner, agent: LocalAgent) -> None:
    agent.hold(T, [0, 1])
    agent.max_records = 50
    assert plan(planner, {}) == {T: {"0": [0, 25], "1": [0, 25]}}
    assert plan(planner, {}, 10) == {T: {"0": [0, 5], "1": [0, 5]}}
    assert plan(planner, {}, None) == {T: {"0": [0, 100], "1": [0, 100]}}, (
        "Spark's word that there is no limit"
    )


def test_a_partition_that_comes_back_begins_at_the_committed_offset(
    planner: Planner, agent: LocalAgent, logs: dict[str, Log]
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
    planner: Planner, agent: LocalAgent, logs: dict[str, Log], clock: Clock
) -> None:
    """Its own commits may lag behind the checkpoint; an offset ahead of it is somebody else's work."""
    agent.hold(T, [0, 1])
    first = plan(planner, {})
    logs[SERVERS].bounds |= {(T, 0): (0, 500), (T, 1): (0, 500)}
    logs[SERVERS].committed |= {("g", (T, 0)): 40, ("g", (T, 1)): 300}
    again = planner_of(agent, logs, clock)
    assert plan(again, first) == {T: {"0": [100, 500], "1": [300, 500]}}
    again.close()


def test_records_lost_to_retention_are_reported_before_and_during_reading(
    planner: Planner, agent: LocalAgent, logs: dict[str, Log]
) -> None:
    logs[SERVERS].bounds[T, 0] = (70, 100)
    logs[SERVERS].committed["g", (T, 0)] = 30
    agent.hold(T, [0])
    first = plan(planner, {}, limit=10)
    assert first == {T: {"0": [70, 80]}}
    assert agent.planned[-1].jumps == {T: {"0": (30, 70, Why.RETENTION)}}
    logs[SERVERS].bounds[T, 0] = (95, 100)
    second = plan(planner, first, limit=10)
    assert second == {T: {"0": [95, 100]}}, "it was behind, so it was asked where Kafka begins"
    assert agent.planned[-1].jumps == {T: {"0": (80, 95, Why.RETENTION)}}
    calls = len(logs[SERVERS].calls)
    logs[SERVERS].bounds[T, 0] = (95, 110)
    plan(planner, second)
    assert logs[SERVERS].calls[calls:] == ["end"], "one that had read all there is is not asked about"


def test_kafka_out_of_reach_holds_everything_and_is_reported(
    planner: Planner, agent: LocalAgent, logs: dict[str, Log], eventually: Eventually
) -> None:
    agent.hold(T, [0, 1])
    first = plan(planner, {})
    logs[SERVERS].down = True
    assert plan(planner, first) == first
    assert f"Kafka at {SERVERS} is out of reach, its 2 partitions wait" in agent.planned[-1].problems[0]
    agent.hold(T, [1, 2])
    second = plan(planner, first)
    assert second == {T: {"1": [100, 100]}}, "what is taken away leaves, what is new waits"
    logs[SERVERS].down = False
    logs[SERVERS].bounds[T, 1] = (0, 110)
    third = eventually(lambda: (end := plan(planner, second)) != second and end, 10, "a batch")
    assert third == {T: {"1": [100, 110], "2": [0, 100]}}
    assert agent.planned[-1].problems == []


def test_a_kafka_that_hangs_holds_up_no_other(
    planner: Planner, agent: LocalAgent, logs: dict[str, Log], eventually: Eventually
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
    planner: Planner, agent: LocalAgent, logs: dict[str, Log], clock: Clock
) -> None:
    agent.hold(T, [0, 1, 2])
    first = plan(planner, {})
    logs[SERVERS].broken = {(T, 1): "Unknown topic or partition", (T, 3): "Unknown topic or partition"}
    logs[SERVERS].bounds |= {(T, 0): (0, 110), (T, 1): (0, 110)}
    agent.hold(T, [0, 1, 2, 3])
    second = plan(planner, first)
    assert second == {T: {"0": [100, 110], "1": [100, 100], "2": [100, 100]}}
    (problem,) = agent.planned[-1].problems
    assert f"topic '{T}', partitions [1, 3] wait" in problem
    assert "Unknown topic or partition" in problem
    logs[SERVERS].broken = {}
    assert plan(planner, second) == second
    assert agent.planned[-1].problems == [problem], "they are not asked about in every planning"
    clock.now += 3
    third = plan(planner, second)
    assert third == {T: {"0": [110, 110], "1": [100, 110], "2": [100, 100], "3": [0, 100]}}
    assert agent.planned[-1].problems == []


def wait_for_the_end(planner: Planner, start: dict, clock: Clock) -> dict:  # type: ignore[type-arg]
    """Plan for as long as an end before the position is not believed, and once more."""
    for _ in range(4):
        assert plan(planner, start) == start
        clock.now += 3
    return plan(planner, start)


def test_a_topic_of_unknown_id_that_ends_before_its_position_is_read_from_its_beginning_after_a_while(
    planner: Planner, agent: LocalAgent, logs: dict[str, Log], clock: Clock
) -> None:
    agent.hold(T, [0, 1])
    first = plan(planner, {})
    logs[SERVERS].bounds[T, 0] = (0, 20)
    second = wait_for_the_end(planner, first, clock)
    assert f"topic '{T}', partition 0: it ends at 20, before the offset 100" in agent.planned[-2].problems[0]
    assert second == {T: {"0": [0, 20], "1": [100, 100]}}
    assert agent.planned[-1].jumps == {T: {"0": (100, 0, Why.RECREATED)}}
    assert plan(planner, second) == second
    assert (agent.planned[-1].problems, agent.planned[-1].jumps) == ([], {})


def test_a_truncated_partition_goes_on_at_the_least_end_that_was_seen(
    planner: Planner, agent: LocalAgent, logs: dict[str, Log], clock: Clock
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
    assert agent.planned[-1].jumps == {T: {"0": (100, 95, Why.TRUNCATION)}}
    assert agent.planned[-1].problems == []


def test_a_recreated_topic_waits_for_its_id_and_holds_up_no_other(
    planner: Planner, agent: LocalAgent, logs: dict[str, Log], clock: Clock
) -> None:
    agent.hold(T, [0], topic_id="A")
    agent.hold("other", [0])
    logs[SERVERS].bounds["other", 0] = (0, 10)
    logs[SERVERS].ids[T] = "B"
    first = plan(planner, {})
    logs[SERVERS].bounds[T, 0] = (0, 20)
    assert wait_for_the_end(planner, first, clock) == first
    (problem,) = agent.planned[-1].problems
    assert "under id B, and the assignment under A" in problem
    logs[SERVERS].bounds["other", 0] = (0, 15)
    second = plan(planner, first)
    assert second == {T: {"0": [100, 100]}, "other": {"0": [10, 15]}}
    del logs[SERVERS].ids[T]
    assert plan(planner, second) == second, "what is not known waits as well"


def test_an_offset_that_was_committed_of_another_topic_is_not_believed(
    planner: Planner, agent: LocalAgent, logs: dict[str, Log]
) -> None:
    agent.hold(T, [0, 1, 2, 3], topic_id="B")
    for partition, metadata in enumerate(("muster:c:A", "muster:c:B", "muster:c:", "other tool")):
        logs[SERVERS].committed["g", (T, partition)] = 60
        logs[SERVERS].metadata["g", (T, partition)] = metadata
    assert plan(planner, {}) == {T: {"0": [0, 100], "1": [60, 100], "2": [60, 100], "3": [60, 100]}}
    assert agent.planned[-1].jumps == {T: {"0": (60, 0, Why.RECREATED)}}


def test_an_end_that_was_only_late_changes_nothing(
    planner: Planner, agent: LocalAgent, logs: dict[str, Log], clock: Clock
) -> None:
    agent.hold(T, [0])
    first = plan(planner, {})
    logs[SERVERS].bounds[T, 0] = (0, 90)
    assert plan(planner, first) == first
    clock.now += 60
    logs[SERVERS].bounds[T, 0] = (0, 101)
    assert plan(planner, first) == {T: {"0": [100, 101]}}


def test_an_agent_out_of_reach_is_waited_for_and_then_an_error(
    planner: Planner, agent: LocalAgent, logs: dict[str, Log], clock: Clock
) -> None:
    agent.hold(T, [0])
    first = plan(planner, {})
    logs[SERVERS].bounds[T, 0] = (0, 110)
    agent.refusing = True
    for _ in range(3):
        assert plan(planner, first) == first
        clock.now += 9
    agent.refusing = False
    second = plan(planner, first)
    assert second == {T: {"0": [100, 110]}}
    agent.refusing = True
    assert plan(planner, second) == second
    clock.now += 31
    with pytest.raises(AgentUnreachableError, match=r"GET /source/partitions: 503.*driver's log"):
        plan(planner, second)


def test_batch_that_cannot_be_reported_to_the_agent_is_not_planned(
    planner: Planner, agent: LocalAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(self: AgentClient, message: object) -> None:
        raise AgentUnreachableError("gone")

    agent.hold(T, [0])
    with monkeypatch.context() as patch:
        patch.setattr(AgentClient, "planned", unreachable)
        assert plan(planner, {}) == {}
    assert plan(planner, {}) == {T: {"0": [0, 100]}}


def test_a_wrong_token_is_an_error_at_once(agent: LocalAgent) -> None:
    with (
        AgentClient(agent.options["agent"], "another") as client,
        pytest.raises(AgentRefusedError, match=r"401: wrong token; check the source's options"),
    ):
        client.partitions()


def test_unreachable_agent_is_an_error_of_its_own() -> None:
    with (
        AgentClient("http://127.0.0.1:9", "t", timeout=1) as client,
        pytest.raises(AgentUnreachableError, match=r"agent at http://127.0.0.1:9: GET /source/partitions"),
    ):
        client.partitions()


def test_tasks_come_from_the_end_alone(
    planner: Planner, agent: LocalAgent, logs: dict[str, Log], clock: Clock
) -> None:
    """Also in a new process, for partitions that are held no longer; secrets do not show."""
    agent.hold(T, [0, 1, 2])
    end = {T: {"0": [0, 100], "1": [40, 100], "2": [60, 100], "3": [5, 5]}}
    agent.hold(T, [])
    again = planner_of(agent, logs, clock)
    tasks = again.tasks(end)
    assert [dict(task.shares[0][0].ranges) for task in tasks] == [
        {(T, 0): (0, 100)},
        {(T, 1): (40, 100), (T, 2): (60, 100)},
    ]
    assert [task.records for task in tasks] == [100, 100]
    assert dict(tasks[0].shares[0][0].config) == {
        "bootstrap.servers": SERVERS,
        "group.id": "g",
        "sasl.password": "p",
        **fetch_ahead(2),
    }
    assert "sasl" not in repr(tasks[0])
    with pytest.raises(ValueError, match="topic 'gone' is in a batch that is run again"):
        again.tasks({"gone": {"0": [0, 1]}})
    assert again.tasks({T: {"0": [7, 7]}}) == []
    again.close()


def test_tasks_on_one_machine_may_choose_their_shares(
    agent: LocalAgent, logs: dict[str, Log], clock: Clock, tmp_path: Path
) -> None:
    """Unless there is only one."""
    agent.hold(T, [0, 1])
    planner = planner_of(agent, logs, clock, str(tmp_path))
    first, second = planner.tasks({T: {"0": [0, 200], "1": [0, 200]}})
    assert first.shares == second.shares
    assert [[list(cluster.ranges) for cluster in share] for share in first.shares] == [[[(T, 0)]], [[(T, 1)]]]
    ahead = {id(first.shares[0]): 0, id(first.shares[1]): 1}
    assert first.share(lambda share: ahead[id(share)]) is first.shares[1]
    assert second.share(lambda share: ahead[id(share)]) is first.shares[0], "what is left"
    (alone,) = planner.tasks({T: {"0": [200, 210], "1": [200, 210]}})
    assert alone.choice is None
    planner.close()


def test_ranges_of_several_kafkas_in_one_task(planner: Planner, agent: LocalAgent) -> None:
    agent.hold(T, [0])
    agent.hold("other", [0], "kafka-2:9092")
    tasks = planner.tasks({T: {"0": [0, 10]}, "other": {"0": [0, 5], "1": [0, 5]}})
    assert sorted(
        (cluster.servers, sorted(cluster.ranges)) for task in tasks for cluster in task.shares[0]
    ) == [("kafka-1:9092", [(T, 0)]), ("kafka-2:9092", [("other", 0), ("other", 1)])]


def test_available_now_stops_where_it_began(
    planner: Planner, agent: LocalAgent, logs: dict[str, Log]
) -> None:
    agent.hold(T, [0, 1])
    planner.stop_at_present_end()
    logs[SERVERS].bounds[T, 0] = (0, 150)
    agent.hold(T, [0, 1, 2])
    first = plan(planner, {})
    assert {p: bounds for p, bounds in first[T].items() if bounds[0] < bounds[1]} == {
        "0": [0, 100],
        "1": [0, 100],
    }
    assert plan(planner, first) == first
    assert planner.newest() is not None


def test_the_first_batch_without_records_of_its_own_is_rehearsed_with_the_last_one_of_others(
    planner: Planner, agent: LocalAgent, logs: dict[str, Log]
) -> None:
    logs["kafka-2:9092"] = Log()
    logs["kafka-2:9092"].bounds = {("empty", 5): (7, 7)}
    agent.know(T, [1])
    agent.know("empty", [5], "kafka-2:9092")
    assert plan(planner, {}) == {}
    assert logs[SERVERS].calls == ["end", "beginning"], "a committed offset may be one to wait for"
    tasks = planner.rehearsal()
    assert [{c.servers: dict(c.ranges) for c in task.shares[0]} for task in tasks] == 2 * [
        {SERVERS: {(T, 1): (99, 100)}}
    ]
    (cluster,) = tasks[0].shares[0]
    agent.hold(T, [0, 1])
    real = planner.tasks(plan(planner, {}))
    assert {c.servers: dict(c.config) for task in real for c in task.shares[0]} == {
        SERVERS: cluster.config
    }, "the same settings, so that the worker's fetcher serves both"
    assert planner.rehearsal() == [], "once is enough"
    assert "close" not in logs[SERVERS].calls


def test_a_rehearsal_does_without_what_is_out_of_reach(
    planner: Planner, agent: LocalAgent, logs: dict[str, Log]
) -> None:
    logs[SERVERS].down = True
    agent.know(T, [1])
    assert plan(planner, {}) == {}
    assert [task.shares[0] for task in planner.rehearsal()] == [(), ()]
    assert agent.planned[-1].problems == [], "nothing of this consumer waits for it"
    logs[SERVERS].down = False
    agent.hold(T, [1])
    planned = plan(planner, {})
    assert planned in ({}, {T: {"1": [0, 100]}})


def test_consumer_with_records_to_read_asks_about_no_nearby_partition(
    planner: Planner, agent: LocalAgent, logs: dict[str, Log]
) -> None:
    agent.hold(T, [0])
    plan(planner, {})
    logs[SERVERS].calls.clear()
    agent.know(T, [1])
    plan(planner, {T: {"0": [0, 100]}})
    assert logs[SERVERS].calls == ["end"]
