"""What the agent tells of partitions that do not get on: stalled, lost, recreated, gone, failing, gone back."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient

from muster.consumer.status_page import UNHEALTHY_AFTER, make_status_page
from muster.core.model import Loss, OffsetRange, Seek, TopicAssignment, TopicStatus
from muster.core.ownership import LONGEST_RENEWAL, LONGEST_UNCOMMITTED, Place
from muster.core.positions import Jump, Note, Why
from muster.core.turns import Failure
from muster.core.wire import parse_status
from muster.sinks.batch import SinkReport
from tests.support.claiming import ClaimingAgent
from tests.support.consumer_settings import consumer_settings

PLACE = Place("k:9092", "g")
Ranges = dict[int, tuple[int, int]]


class Consumer:
    """An agent whose planner and handler the test plays."""

    def __init__(self, longest_renewal: float = LONGEST_RENEWAL) -> None:
        self.now = 1000.0
        self.agent = ClaimingAgent(
            "me", max_batch_time=120.0, clock=lambda: self.now, longest_renewal=longest_renewal
        )
        self.zxid = 0
        self.stands: dict[str, Ranges] = {}
        self.page = TestClient(make_status_page(self.agent, consumer_settings(), list))
        self.token = self.agent.query_started()

    def assign(self, partitions: set[int], epoch: int = 1, topic_id: str = "A") -> None:
        self.zxid += 1
        node = TopicAssignment("k:9092", "g", dict.fromkeys(partitions, "me"), epoch, topic_id=topic_id)
        self.agent.assigned("t", node, self.zxid)

    def plan(
        self, ranges: Ranges, ends: dict[int, int], jumps: dict[tuple[str, int], Jump] | None = None
    ) -> None:
        asked = self.agent.offer(self.token).asked
        after = {"t": ranges} if ranges else {}
        known = {("t", p): end for p, end in ends.items()}
        self.agent.planned(self.token, asked, self.stands, after, known, [], jumps)
        self.stands = after

    def process(self) -> None:
        self.agent.batch_done(self.agent.batch_started(), None)

    def commit(self) -> None:
        self.agent.committed(self.agent.due(PLACE))

    def fail(self, ranges: Ranges, ends: dict[int, int]) -> None:
        """A query whose first batch, after the rehearsal, fails."""
        self.plan({}, {})
        self.process()
        self.plan(ranges, ends)
        self.agent.batch_done(self.agent.batch_started(), Failure("it raised"))
        self.agent.query_ended(True, "the handler failed: ValueError: no")
        self.stands = {}
        self.token = self.agent.query_started()

    def stalled(self) -> dict[int, float]:
        held = self.agent.view().held
        return {p: view.stalled for (_, p), view in held.items() if view.stalled is not None}

    def in_batch(self) -> dict[int, float]:
        return dict(parse_status(self.page.get("/status").content, "u").on("t").batch_seconds)

    def offsets(self, partition: int) -> dict[str, object]:
        found: dict[str, object] = self.page.get("/status").json()["topics"]["t"]["offsets"][str(partition)]
        return found


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


def test_a_handler_that_hangs_stalls_what_has_lag_and_what_nothing_is_known_of(consumer: Consumer) -> None:
    consumer.assign({0, 1})
    consumer.plan({0: (0, 5), 1: (7, 7)}, {0: 9, 1: 7})
    consumer.agent.batch_started()
    consumer.now += 5
    assert consumer.stalled() == {}, "batches take time"
    consumer.now += 300
    assert consumer.stalled() == {0: 305.0, 1: 305.0}
    text = consumer.page.get("/metrics").text
    assert (
        'muster_consumer_stalled_seconds{cluster_name="c",consumer_id="me",partition="0",topic="t"} 305.0'
        in text
    )


def test_batch_under_way_is_reported_with_its_partitions(consumer: Consumer) -> None:
    consumer.assign({0, 1})
    consumer.plan({0: (0, 5), 1: (7, 7)}, {0: 9, 1: 7})
    batch = consumer.agent.batch_started()
    consumer.now += 9
    assert consumer.in_batch() == {}, "batches take time"
    consumer.now += 141
    assert consumer.in_batch() == {0: 150.0}, "partition 1 has no record in it"
    said = parse_status(consumer.page.get("/status").content, "u")
    assert (said.batch_seconds, said.max_batch_time) == (150.0, 120.0)
    assert "muster_consumer_batch_under_way_seconds" in consumer.page.get("/metrics").text
    consumer.agent.batch_done(batch, None)
    assert consumer.in_batch() == {}
    assert parse_status(consumer.page.get("/status").content, "u").batch_seconds is None


def test_partition_that_progresses_or_has_nothing_to_read_is_not_stalled(consumer: Consumer) -> None:
    consumer.assign({0, 1, 2})
    consumer.plan({0: (0, 5), 1: (7, 7), 2: (0, 0)}, {0: 9, 1: 7, 2: 3})
    consumer.now += 60
    consumer.process()
    assert consumer.stalled() == {1: 60.0, 2: 60.0}
    consumer.plan({0: (5, 9), 1: (7, 7), 2: (0, 0)}, {0: 20, 1: 7, 2: 3})
    assert consumer.stalled() == {2: 60.0}, "a planning has seen the end of 1, and 2 is starved"


def test_released_partition_is_measured_from_nothing_when_it_is_taken_up_again(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.plan({0: (0, 5)}, {0: 100})
    consumer.now += 30
    consumer.process()
    consumer.plan({0: (5, 9)}, {0: 400})
    assert (consumer.offsets(0)["end"], consumer.offsets(0)["rate"]) == (400, 10.0)
    consumer.assign(set(), epoch=2)
    consumer.process()
    consumer.plan({}, {})
    consumer.process()
    consumer.commit()
    consumer.assign({0}, epoch=3)
    assert (consumer.offsets(0)["end"], consumer.offsets(0)["rate"]) == (None, None)


def test_never_planned_partition_is_stalled_and_a_closing_one_is_not(consumer: Consumer) -> None:
    consumer.assign({0, 1})
    consumer.plan({0: (0, 5)}, {0: 5})
    consumer.now += 60
    assert consumer.stalled() == {0: 60.0, 1: 60.0}, "a partition without a leader is never planned"
    consumer.assign({1}, epoch=2)
    assert consumer.stalled() == {1: 60.0}


def test_a_batch_that_fails_right_after_each_start_shows_its_lag(consumer: Consumer) -> None:
    consumer.assign({0})
    for _ in range(3):
        consumer.fail({0: (100, 200)}, {0: 200})
        consumer.now += 30
    shown = consumer.offsets(0)
    assert (shown["position"], shown["end"], shown["lag"]) == (100, 200, 100)
    assert consumer.stalled() == {0: 90.0}
    lag = [
        line
        for line in consumer.page.get("/metrics").text.splitlines()
        if line.startswith("kafka_consumergroup_group_lag{")
    ]
    assert [line.rsplit(" ", 1)[1] for line in lag] == ["100.0"]


def test_health_fails_for_a_query_that_only_fails_until_a_batch_comes_through(consumer: Consumer) -> None:
    consumer.assign({0})
    for _ in range(UNHEALTHY_AFTER - 1):
        consumer.fail({0: (0, 5)}, {0: 5})
    assert consumer.page.get("/health").status_code == 200
    consumer.fail({0: (0, 5)}, {0: 5})
    answer = consumer.page.get("/health")
    assert answer.status_code == 503
    assert f"failed {UNHEALTHY_AFTER} times in a row" in answer.text
    assert "the handler failed: ValueError: no" in answer.text
    consumer.plan({0: (0, 5)}, {0: 5})
    assert consumer.page.get("/health").status_code == 503, "planned is not processed"
    consumer.process()
    assert consumer.page.get("/health").status_code == 200


def test_failures_with_nothing_to_read_in_between_are_not_in_a_row(consumer: Consumer) -> None:
    consumer.assign({0, 1})
    for _ in range(2 * UNHEALTHY_AFTER):
        consumer.plan({0: (5, 5), 1: (5, 5)}, {0: 5, 1: 5})
        consumer.agent.query_ended(True, "why")
        consumer.stands = {}
        consumer.token = consumer.agent.query_started()
    assert consumer.page.get("/health").status_code == 200
    for _ in range(UNHEALTHY_AFTER):
        consumer.plan({0: (5, 5)}, {0: 5})
        consumer.agent.query_ended(True, "why")
        consumer.stands = {}
        consumer.token = consumer.agent.query_started()
    assert consumer.page.get("/health").status_code == 503, "of the other one nothing is known"


def test_lost_records_are_counted_and_shown_by_reason(
    consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    consumer.assign({0, 1})
    consumer.plan({0: (70, 80), 1: (0, 600)}, {0: 100, 1: 600}, {("t", 0): Jump(30, 70, Why.RETENTION)})
    consumer.process()
    consumer.plan({0: (80, 90), 1: (595, 600)}, {0: 100, 1: 600}, {("t", 1): Jump(600, 595, Why.TRUNCATION)})
    assert (consumer.offsets(0)["lost"], consumer.offsets(1)["lost"]) == (40, 5)
    text = consumer.page.get("/metrics").text
    labels = 'cluster_name="c",consumer_id="me",partition="{}",reason="{}",topic="t"'
    assert f"muster_consumer_lost_records_total{{{labels.format(0, 'retention')}}} 40.0" in text
    assert f"muster_consumer_lost_records_total{{{labels.format(1, 'truncation')}}} 5.0" in text
    assert "topic 't', partition 0: 40 records from offset 30 on were deleted by retention" in caplog.text
    assert "topic 't', partition 1: 5 records from offset 595 on are gone from Kafka" in caplog.text


def test_lost_records_are_reported_for_the_history_once_no_more_follow(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def losses() -> dict[int, tuple[Loss, ...]]:
        return dict(parse_status(consumer.page.get("/status").content, "u").on("t").losses)

    consumer.assign({0, 1})
    consumer.plan({0: (70, 80), 1: (0, 600)}, {0: 100, 1: 600}, {("t", 0): Jump(30, 70, Why.RETENTION)})
    assert losses() == {}
    monkeypatch.setattr("muster.core.losses.QUIET", 0.0)
    assert {p: [(one.begin, one.end, one.records, one.why) for one in of] for p, of in losses().items()} == {
        0: [(30, 70, 40, "retention")]
    }


def test_recreated_topic_is_reported_until_the_new_id_is_assigned(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.agent.outside.identified(PLACE, {"t": "A"}, ())
    assert consumer.agent.view().problems == {}
    consumer.agent.outside.identified(PLACE, {"t": "B"}, ())
    (problem,) = consumer.page.get("/status").json()["errors"]
    assert "Kafka at k:9092 has it under id B, but its assignment is for id A" in problem
    assert consumer.agent.offer(consumer.token).topics.get("t") is None
    consumer.assign({0}, epoch=2, topic_id="B")
    consumer.agent.outside.identified(PLACE, {"t": "B"}, ())
    assert consumer.agent.view().problems == {}
    consumer.plan({0: (0, 5)}, {0: 9}, {("t", 0): Jump(1000, 0, Why.RECREATED)})
    assert consumer.page.get("/status").json()["recreated"] == 1
    assert consumer.page.get("/status").json()["topics"]["t"]["topic.id"] == "B"


def test_deleted_topic_is_reported_and_closed(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.plan({0: (0, 5)}, {0: 5})
    consumer.process()
    consumer.agent.outside.identified(PLACE, {}, {"t"})
    consumer.plan({}, {})
    assert consumer.agent.view().topics["t"].held == frozenset()
    (problem,) = consumer.page.get("/status").json()["errors"]
    assert "does not have it any more: its partitions are closed without committing" in problem
    with consumer.agent.shared.locked() as own:
        assert own.watched() == {PLACE: {"t"}}, "it may come back"
    consumer.agent.listed([], 99)
    assert consumer.agent.view().problems == {}


def test_an_idle_partition_is_committed_again_before_kafka_forgets_it(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.plan({0: (5, 5)}, {0: 5})
    consumer.process()
    consumer.commit()
    assert not consumer.agent.due(PLACE)
    consumer.now += LONGEST_RENEWAL
    assert consumer.agent.due(PLACE)
    ((key, due),) = consumer.agent.due(PLACE).items()
    assert (key, due.offset, due.topic_id) == (("t", 0), 5, "A")
    consumer.commit()
    assert not consumer.agent.due(PLACE)


def test_settings_shorten_the_time_to_the_next_renewal() -> None:
    consumer = Consumer(longest_renewal=60.0)
    consumer.assign({0})
    consumer.plan({0: (5, 5)}, {0: 5})
    consumer.process()
    consumer.commit()
    consumer.now += 30.0
    assert not consumer.agent.due(PLACE)
    consumer.now += 30.0
    assert consumer.agent.due(PLACE)


def test_partition_whose_commits_kafka_does_not_answer_is_named_and_has_no_turn(consumer: Consumer) -> None:
    consumer.assign({0, 1})
    consumer.plan({0: (0, 5), 1: (0, 5)}, {0: 9, 1: 9})
    consumer.process()
    due = consumer.agent.due(PLACE)
    consumer.agent.committed({("t", 1): due["t", 1]})
    ready = {("t", 0), ("t", 1)}
    assert consumer.agent.failing.turn(ready).keys() == ready
    consumer.now += LONGEST_UNCOMMITTED + 1
    assert consumer.agent.failing.turn(ready).keys() == {("t", 1)}
    assert consumer.page.get("/status").json()["errors"] == [
        "uncommitted: topic 't', partition 0: Kafka has acknowledged no commit for 30 s; nothing more is read until "
        "it has answered"
    ]
    consumer.commit()
    assert consumer.agent.failing.turn(ready).keys() == ready
    assert consumer.page.get("/status").json()["errors"] == []


def test_older_assignment_is_looked_into_once_and_reported_if_it_stays(consumer: Consumer) -> None:
    agent, old = consumer.agent, TopicAssignment("k:9092", "g", {1: "me"}, 5, topic_id="A")
    consumer.zxid = 500
    consumer.assign({0}, epoch=7)
    agent.assigned("t", old, 300)
    wanted = agent.blocks.reading_wanted()
    assert (wanted is not None, agent.blocks.wake_reader.is_set()) == (True, True)
    agent.assigned("t", old, 300, synced=True)
    agent.blocks.has_read(wanted or 0)
    assert agent.blocks.reading_wanted() is None
    (problem,) = agent.view().problems.values()
    assert "went back to epoch 5 (transaction 300), from epoch 7" in problem
    status = agent.view().topics["t"]
    assert (status.epoch, status.held) == (7, {0}), "which the coordinator sees"
    agent.assigned("t", old, 300)
    assert agent.blocks.reading_wanted() is None, "not again and again"

    planned = TopicAssignment("k:9092", "g", {1: "me"}, 8, topic_id="A")
    agent.assigned("t", planned, 310)
    status = agent.view().topics["t"]
    assert (status.epoch, status.starting) == (8, {1})
    assert agent.view().problems == {}
    agent.assigned("t", TopicAssignment("k:9092", "g", {0: "me"}, 9, topic_id="A"), 311)
    assert agent.view().topics["t"].epoch == 9, "from here on as ever"


def test_a_server_that_lags_behind_changes_and_tells_nothing(consumer: Consumer) -> None:
    consumer.zxid = 500
    consumer.assign({0}, epoch=7)
    agent = consumer.agent
    agent.assigned("t", TopicAssignment("k:9092", "g", {1: "me"}, 5, topic_id="A"), 300)
    wanted = agent.blocks.reading_wanted()
    consumer.zxid -= 1  # what the sync brings up is what is known
    consumer.assign({0}, epoch=7)
    agent.blocks.has_read(wanted or 0)
    assert (agent.blocks.reading_wanted(), agent.view().problems) == (None, {})


def test_list_that_went_back_closes_nothing_and_is_reported(consumer: Consumer) -> None:
    consumer.zxid = 500
    consumer.assign({0}, epoch=7)
    agent = consumer.agent
    agent.listed([], 300)
    wanted = agent.blocks.reading_wanted()
    assert wanted is not None
    agent.listed([], 300, synced=True)
    agent.blocks.has_read(wanted)
    assert agent.view().topics["t"].held == {0}
    assert "is not in ZooKeeper any more" in agent.view().problems["restored t"]
    agent.listed([], 300)
    assert agent.blocks.reading_wanted() is None
    agent.assigned("t", TopicAssignment("k:9092", "g", {0: "me"}, 8, topic_id="A"), 320)
    assert agent.view().problems == {}


def test_ignored_assignment_starts_nothing_after_an_isolation(consumer: Consumer) -> None:
    consumer.zxid = 500
    consumer.assign({0}, epoch=7)
    agent = consumer.agent
    agent.blocks.block("isolated")
    agent.blocks.unblock_once_read("isolated")
    wanted = agent.blocks.reading_wanted() or 0
    old = TopicAssignment("k:9092", "g", {0: "other"}, 6, topic_id="A")
    assert not agent.assigned("t", old, 300, synced=True)
    agent.blocks.has_read(wanted, unread={"t"})
    assert agent.view().blocks == set()
    assert agent.view().topics["t"].held == set(), "another consumer may have it since ZooKeeper went back"


def test_partitions_that_the_handler_fails_with_are_named_until_they_come_through_or_go(
    consumer: Consumer,
) -> None:
    consumer.assign({0, 1})
    consumer.plan({0: (5, 9), 1: (5, 9)}, {0: 9, 1: 9})
    consumer.agent.batch_done(consumer.agent.batch_started(), Failure("ValueError: no"))
    assert consumer.agent.failing.turn({("t", 0), ("t", 1)}) == {}, "not before a pause"
    consumer.now += 1.0
    assert consumer.agent.failing.turn({("t", 0), ("t", 1)}) == {("t", 0): 4, ("t", 1): 4}, "again as it was"
    (error,) = consumer.page.get("/status").json()["errors"]
    assert "ValueError: no" in error
    assert "topic 't', partition 0; topic 't', partition 1, while the other 0 partitions go on" in error
    assert consumer.page.get("/status").json()["handler_failures"] == 1
    consumer.agent.query_ended(False)
    consumer.assign({1}, epoch=2)
    (error,) = consumer.page.get("/status").json()["errors"]
    assert "partition 0" not in error
    consumer.stands = {}
    consumer.token = consumer.agent.query_started()
    consumer.plan({1: (5, 9)}, {1: 9})
    consumer.process()
    assert consumer.page.get("/status").json()["errors"] == []


def test_record_that_fails_alone_fails_no_health_while_others_have_nothing_to_read(
    consumer: Consumer,
) -> None:
    consumer.assign({0, 1})
    consumer.plan({0: (5, 6), 1: (9, 9)}, {0: 6, 1: 9})
    for _ in range(3 * UNHEALTHY_AFTER):
        assert not consumer.agent.batch_done(consumer.agent.batch_started(), Failure("ValueError: no"))
        consumer.now += 100.0
        consumer.stands = {"t": {0: (5, 6), 1: (9, 9)}}
        consumer.plan({0: (5, 5), 1: (9, 9)}, {0: 6, 1: 9})
        consumer.process()
        consumer.plan({0: (5, 6), 1: (9, 9)}, {0: 6, 1: 9})
    assert consumer.page.get("/health").status_code == 200
    assert consumer.page.get("/status").json()["handler_failures"] == 3 * UNHEALTHY_AFTER


def test_handler_that_only_fails_starts_the_query_again_at_times(consumer: Consumer) -> None:
    consumer.assign({0})
    consumer.plan({0: (5, 6)}, {0: 6})
    again = []
    for _ in range(2 * UNHEALTHY_AFTER):
        again.append(consumer.agent.batch_done(consumer.agent.batch_started(), Failure("ValueError: no")))
        consumer.stands = {"t": {0: (5, 6)}}
        consumer.plan({0: (5, 5)}, {0: 6})
        consumer.process()
        consumer.plan({0: (5, 6)}, {0: 6})
    assert [number for number, due in enumerate(again, 1) if due] == [10, 20]
    assert consumer.page.get("/health").status_code == 503


def test_sink_that_is_away_does_not_make_its_consumer_unhealthy(consumer: Consumer) -> None:
    """Another consumer would meet the same, so nothing moves; a person is asked about what does not."""
    consumer.assign({0})
    consumer.plan({0: (5, 6)}, {0: 6})
    again = []
    for failure in [Failure("SinkError: away", of_record=False)] * 2 * UNHEALTHY_AFTER + [
        Failure("ValueError: no")
    ]:
        again.append(consumer.agent.batch_done(consumer.agent.batch_started(), failure))
        assert consumer.page.get("/health").status_code == (503 if failure.of_record else 200)
        consumer.stands = {"t": {0: (5, 6)}}
        consumer.plan({0: (5, 5)}, {0: 6})
        consumer.process()
        consumer.plan({0: (5, 6)}, {0: 6})
    assert [number for number, due in enumerate(again, 1) if due] == [10, 20], "the query is started again"


def test_page_says_what_sinks_have_and_the_number_of_a_rebuild() -> None:
    def page() -> TopicStatus:
        return parse_status(consumer.page.get("/status").content, "u").on("t")

    def pass_batch(ranges: list[OffsetRange], notices: tuple[str, ...] = ()) -> None:
        report = SinkReport({}, {"table x": {("t", 3): ranges}} if ranges else {}, notices)
        consumer.agent.batch_done(consumer.agent.batch_started(), None, sinks=report)

    consumer = Consumer()
    consumer.assign({3})
    consumer.plan({3: (50, 60)}, {3: 60})
    assert page().stored == {}, "unknown before the first batch"
    pass_batch([])
    assert page().stored == {3: {}}, "no sink is known"
    consumer.plan({3: (60, 61)}, {3: 61})
    pass_batch([(10 * n, 10 * n + 5) for n in range(30)], ("rows were removed",))
    found = page().stored[3]["table x"]
    assert (found.ranges[0], found.ranges[-1], len(found.ranges), found.more) == (
        (100, 105),
        (290, 295),
        20,
        10,
    )
    assert "sink: rows were removed" in consumer.page.get("/status").json()["errors"]
    with consumer.agent.shared.change() as own:
        own.held["t", 3].note = Note(rebuild=7)
    assert consumer.page.get("/status").json()["topics"]["t"]["offsets"]["3"]["rebuild"] == 7


def test_records_left_out_after_a_seek_stand_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer()
    consumer.assign({3})
    consumer.plan({3: (50, 60)}, {3: 60})
    consumer.agent.batch_done(consumer.agent.batch_started(), None, sinks=SinkReport({("t", 3): [(50, 52)]}))
    assert "sink" not in str(consumer.page.get("/status").json()["errors"]), "of the last owner"
    asked = consumer.agent.offer(consumer.token).asked
    after = {"t": {3: (0, 20)}}
    consumer.agent.planned(
        consumer.token,
        asked,
        consumer.stands,
        after,
        {},
        [],
        {("t", 3): Jump(60, 0, Why.SEEK)},
        sought={("t", 3): Seek("s", 0)},
    )
    consumer.agent.batch_done(consumer.agent.batch_started(), None, sinks=SinkReport({("t", 3): [(0, 20)]}))
    (error,) = consumer.page.get("/status").json()["errors"]
    assert "partition 3: offsets 0 to 19 (20 record(s)) were left out after a seek" in error
    monkeypatch.setattr("muster.core.losses.QUIET", 0.0)
    (reported,) = parse_status(consumer.page.get("/status").content, "u").on("t").left_out[3]
    assert (reported.begin, reported.end, reported.records, reported.why) == (0, 20, 20, "after a seek")
    metrics = consumer.page.get("/metrics").text
    assert re.search(r"^muster_consumer_left_out_records_total\{.*\} 2.0$", metrics, re.MULTILINE)
    assert re.search(
        r"^muster_consumer_left_out_unexpectedly_records_total\{.*\} 20.0$", metrics, re.MULTILINE
    )
