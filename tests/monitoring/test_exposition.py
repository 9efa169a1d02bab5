"""From readings to metrics, without servers."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from muster.cluster.cache import StateCache
from muster.cluster.latest import Latest
from muster.cluster.reading import LateError, Reading, SourceReading, Statuses
from muster.cluster.state import ClusterState
from muster.core.model import ConsumerStatus, Restore, ShardState, State, TopicState, TopicStatus
from muster.core.offsets import TopicOffsets
from muster.core.overrides import ConsumptionPause, Overrides
from muster.core.progress import Look, Mark
from muster.edges.consul import ConsulError
from muster.monitoring.exporter import Exporter
from muster.monitoring.exposition import Runs, Scraped, TargetsUnknownError, exposition, targets
from muster.monitoring.routes import metrics_router
from muster.settings.clusters import Clusters
from muster.settings.connection_parsing import ConnectionSettingsError
from tests.support.scraped import CLUSTER, NOW, OFFSETS, doubted, live, topic

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


AWAY: SourceReading[Any] = SourceReading(error=ConsulError("away"), seconds=4.0)


def samples(partitions: bool = True, **places: object) -> Samples:
    read: dict[str, Any] = {
        place: value if isinstance(value, SourceReading) else SourceReading(value, NOW, seconds=0.1)
        for place, value in places.items()
    }
    runs = read.pop("airflow", SourceReading())
    scraped = Scraped(ClusterState(CLUSTER, Reading(**read), NOW), runs)
    families = exposition({"c": scraped}, 0, partitions)
    found: Samples = {}
    for family in families:
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, key
            found[key] = sample.value
    return found


def value(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset({"cluster_name": "c", **labels}.items())))


def test_a_topic_is_in_one_state() -> None:
    found = samples(zookeeper=topic({0: "c-1"}, State.CLOSING), consul=live("c-1"))
    states = {s: value(found, "muster_topic_state", topic="t", state=s) for s in map(str, State)}
    assert states == {"Initial": 0, "Starting": 0, "Closing": 1, "Stable": 0}
    assert value(found, "muster_topic_state_seconds", topic="t") == 60
    assert value(found, "muster_topic_epoch", topic="t") == 7
    assert value(found, "muster_topic_partitions", topic="t") == 3
    assert value(found, "muster_topic_closing_partitions", topic="t") == 1
    assert value(found, "muster_topic_stuck", topic="t") == 0


@pytest.mark.parametrize(("state", "since", "stuck"), [("Closing", 301, 1), ("Stable", 9999, 0)])
def test_a_topic_is_stuck_when_it_is_not_stable_for_too_long(state: str, since: float, stuck: int) -> None:
    found = samples(zookeeper=topic({0: "c-1"}, State(state), NOW - since), consul=live("c-1"))
    assert value(found, "muster_topic_stuck", topic="t") == stuck


def states(*waiting: Restore | str) -> ConsumerStatus:
    """What keeps the state of each partition of c-1 from being there."""
    shards = {
        p: ShardState(differs=each) if isinstance(each, str) else ShardState(restore=each)
        for p, each in enumerate(waiting)
    }
    return ConsumerStatus("c-1", "one", {"t": TopicStatus(starting=frozenset(shards), shards=shards)})


@pytest.mark.parametrize(
    ("status", "decided", "stuck", "consumer", "cause"),
    [
        (ConsumerStatus("c-1", "one", {"t": TopicStatus(frozenset({0, 1}))}), (), 1, "c-1", "progress"),
        (ConsumerStatus("c-1", "one", {"t": TopicStatus(frozenset({2}))}), (), 1, "c-1", "start"),
        (None, (ConsumptionPause(by="ann", at=0.0, why="w", topic="t"),), 0, "", "decided"),
        (states(*(Restore(n, 200, 5.0, 1.0) for n in (50, 60))), (), 0, "c-1", "restoring"),
        (states(*(Restore(n, 200, 5.0, 301.0) for n in (50, 60))), (), 1, "c-1", "restore"),
        (states("the group has none", "the group is at offset 3"), (), 1, "", "state differs"),
    ],
)
def test_standing_partitions_are_counted_with_their_cause(
    status: ConsumerStatus | None,
    decided: tuple[ConsumptionPause, ...],
    stuck: int,
    consumer: str,
    cause: str,
) -> None:
    look = Look(NOW, {("t", p): Mark(5, int(NOW - 301 + 200 * (p == 2))) for p in range(3)})
    found = samples(
        zookeeper=topic(dict.fromkeys(range(3), "c-1")),
        consul=replace(live("c-1"), overrides=Overrides(consumption=decided)),
        consumers=Statuses({"c-1": status} if status is not None else {}),
        progress=look,
    )
    standing = "muster_topic_standing_partitions"
    assert value(found, standing, topic="t", consumer_id=consumer, cause=cause) == 2
    assert sum(name == standing for name, _ in found) == 1
    assert value(found, "muster_topic_stuck", topic="t") == stuck


def test_long_restore_that_goes_on_makes_no_stuck_topic() -> None:
    """Its topic is Starting for as long."""
    everything = frozenset(range(3))
    state = TopicState(State.STARTING, {"c-1": everything}, epoch=7, since=NOW - 9_999)
    starting = replace(topic(dict.fromkeys(everything, "c-1"))["t"], state=state)
    for still, stuck in ((300.0, 0), (301.0, 1)):
        running = states(*[Restore(50, 200, 5.0, still)] * 3)
        found = samples(zookeeper={"t": starting}, consul=live("c-1"), consumers=Statuses({"c-1": running}))
        assert value(found, "muster_topic_stuck", topic="t") == stuck


@pytest.mark.parametrize(
    ("consumers", "unconsumed"),
    [
        (live("c-1", "c-2"), 1),
        (live("c-1", registered=("c-2",)), 2),
        (live("c-1", isolated=("c-2",)), 2),
        (doubted("an empty list"), 1),
        (AWAY, 1),
    ],
)
def test_a_partition_is_consumed_by_a_live_owner_only(consumers: object, unconsumed: int) -> None:
    found = samples(zookeeper=topic({0: "c-1", 1: "c-2"}), consul=consumers)
    assert value(found, "muster_topic_unconsumed_partitions", topic="t") == unconsumed


def test_each_consumer_is_in_one_state() -> None:
    consumers = live("c-1", "guest", registered=("late", "out"), isolated=("out",))
    found = samples(zookeeper=topic({0: "c-1", 1: "ghost"}), consul=consumers)
    expected = {
        "c-1": "live",
        "guest": "live",
        "out": "isolated",
        "ghost": "missing",  # owns a partition and is gone
        "c-2": "missing",  # the settings want it
        "late": "not_passing",
    }
    for consumer, present in expected.items():
        for state in ("live", "isolated", "missing", "not_passing", "unknown"):
            has = value(found, "muster_consumer_state", consumer_id=consumer, state=state)
            assert has == (state == present), (consumer, state)
    assert value(found, "muster_consumers", state="live") == 2
    assert value(found, "muster_consumers", state="missing") == 2
    assert value(found, "muster_consumers_wanted") == 2
    assert value(found, "muster_consumer_assigned_partitions", consumer_id="c-1") == 1


def test_doubtful_consul_answer_is_not_taken_for_a_fact() -> None:
    found = samples(zookeeper=topic({0: "c-1"}), consul=doubted("an empty list was not confirmed"))
    assert value(found, "muster_consul_doubt") == 1
    assert value(found, "muster_place_up", place="consul") == 1
    assert value(found, "muster_consumers", state="unknown") == 2
    assert value(found, "muster_consumers", state="missing") == 0


def test_lag_is_shown_of_every_partition_by_any_consumer() -> None:
    found = samples(zookeeper=topic({0: "c-1"}), consul=live("c-1"), kafka=OFFSETS)

    def of(name: str, partition: int, owner: str, host: str) -> float | None:
        labels = {"group": "g", "topic": "t", "partition": str(partition), "member_host": host}
        return value(found, f"kafka_consumergroup_group_{name}", **labels, consumer_id=owner, client_id=owner)

    assert of("lag", 0, "c-1", "host-c-1") == 10
    assert of("offset", 0, "c-1", "host-c-1") == 90
    assert of("lag", 1, "", "") == 30, "nothing committed: it is read from its beginning"
    assert of("offset", 1, "", "") is None
    assert of("lag", 2, "", "") == 20, "what Kafka deleted is no lag any more"
    assert value(found, "kafka_consumergroup_group_topic_sum_lag", group="g", topic="t") == 60
    assert value(found, "kafka_consumergroup_group_sum_lag", group="g") == 60
    assert value(found, "kafka_consumergroup_group_max_lag", group="g") == 30
    assert value(found, "kafka_partition_latest_offset", topic="t", partition="1") == 50
    assert value(found, "kafka_partition_earliest_offset", topic="t", partition="1") == 20


def test_lag_has_the_group_of_its_topic_as_label() -> None:
    offsets = TopicOffsets(
        partitions={"t": frozenset({0}), "u": frozenset({0})},
        ends={("t", 0): 100, ("u", 0): 50},
        committed={("t", 0): 90, ("u", 0): 45},
        groups={"u": "old"},
    )
    found = samples(kafka=offsets)
    of_topic = "kafka_consumergroup_group_topic_sum_lag"
    assert value(found, of_topic, group="old", topic="u") == 5
    assert value(found, of_topic, group="g", topic="t") == 10
    for metric in ("sum_lag", "max_lag"):
        assert value(found, f"kafka_consumergroup_group_{metric}", group="g") == 10
        assert value(found, f"kafka_consumergroup_group_{metric}", group="old") == 5


def test_sums_alone_are_shown_without_partitions() -> None:
    found = samples(partitions=False, zookeeper=topic({0: "c-1"}), consul=live("c-1"), kafka=OFFSETS)
    assert value(found, "kafka_consumergroup_group_sum_lag", group="g") == 60
    assert not any("partition" in dict(labels) for _, labels in found)


def test_offsets_that_are_not_known_are_left_out() -> None:
    partly = TopicOffsets(
        partitions={"t": frozenset({0, 1})},
        ends={("t", 0): 100, ("t", 1): 7},
        committed={("t", 0): 90},
        errors=("topic t, partition 1: no leader",),
    )
    found = samples(kafka=partly)
    assert value(found, "muster_place_up", place="kafka") == 0
    assert value(found, "kafka_consumergroup_group_sum_lag", group="g") == 10


def test_a_place_that_is_away_takes_only_its_own_metrics_with_it() -> None:
    found = samples(zookeeper=topic({0: "c-1"}), consul=AWAY, kafka=OFFSETS, airflow=Runs(False, NOW - 3))
    assert value(found, "muster_place_up", place="consul") == 0
    assert value(found, "muster_place_read_seconds", place="consul") == 4.0
    assert {value(found, "muster_place_up", place=p) for p in ("zookeeper", "kafka", "airflow")} == {1}
    assert not any(name.startswith("muster_consumer") for name, _ in found)
    assert value(found, "kafka_consumergroup_group_sum_lag", group="g") == 60
    assert value(found, "muster_coordinator_last_run_timestamp_seconds") == NOW - 3


def test_a_dag_that_airflow_has_not_seen_has_no_metrics() -> None:
    assert not any(name.startswith("muster_coordinator") for name, _ in samples(airflow=Runs()))


def test_targets_are_all_that_are_registered() -> None:
    consumers = live("c-1", registered=("c-2",))
    state = ClusterState(CLUSTER, Reading(consul=SourceReading(consumers, NOW)), NOW)
    assert targets({"c": state}) == [
        {"targets": ["h-c-1:80"], "labels": {"cluster_name": "c", "consumer_id": "c-1"}},
        {"targets": ["h-c-2:80"], "labels": {"cluster_name": "c", "consumer_id": "c-2"}},
    ]
    assert {group["labels"].get("__scheme__") for group in targets({"c": state}, ["c"])} == {"https"}


@pytest.mark.parametrize("read", [AWAY, SourceReading(doubted("not confirmed"), NOW)])
def test_targets_that_are_not_known_are_an_error_and_no_empty_list(read: SourceReading[Any]) -> None:
    with pytest.raises(TargetsUnknownError, match=r"cluster c, Consul service s: (away|not confirmed)"):
        targets({"c": ClusterState(CLUSTER, Reading(consul=read), NOW)})


def test_readings_are_shared_and_one_that_hangs_is_not_begun_again() -> None:
    go, begun, now = threading.Event(), [0], [0.0]

    def read() -> int:
        begun[0] += 1
        go.wait(10)
        return begun[0]

    with ThreadPoolExecutor(2) as pool:
        latest = Latest("it", read, pool, monotonic=lambda: now[0])
        first = latest.begin()
        now[0] = 100.0
        assert latest.begin() is first
        late = latest.result(first)
        assert (late.current, late.seconds) == (None, 100.0)
        assert isinstance(late.error, LateError)
        assert late.why == "no answer in time"
        go.set()
        assert first.result(10).value == 1
        now[0] = 101.0
        assert latest.begin() is not first, "it began a hundred seconds ago"
        second = latest.begin()
        assert second.result(10).value == 2
        now[0] = 102.0
        assert latest.begin() is second


def test_an_error_is_a_reading_too() -> None:
    def read() -> int:
        raise ValueError("no such thing")

    with ThreadPoolExecutor(1) as pool:
        found = Latest("it", read, pool).begin().result(10)
    assert (found.value, repr(found.error)) == (None, "ValueError('no such thing')")
    assert "no such thing" not in found.why, "a message that is not for people may hold what is secret"
    assert "ValueError" in found.why


def test_a_reading_that_is_expired_while_it_is_made_is_made_again() -> None:
    go = threading.Event()

    def read() -> bool:
        return go.wait(10)

    with ThreadPoolExecutor(2) as pool:
        latest = Latest("it", read, pool)
        first = latest.begin()
        latest.expire()
        second = latest.begin()
        assert second is not first
        assert latest.begin() is second
        assert not second.done()
        go.set()
        second.result(10)
        assert first.done(), "one reading at a time"
        assert latest.begin() is second


def test_a_reading_that_another_request_begins_afterwards_makes_this_one_not_late() -> None:
    go, now = threading.Event(), [0.0]
    go.set()

    def read() -> bool:
        return go.wait(10)

    with ThreadPoolExecutor(2) as pool:
        latest = Latest("it", read, pool, monotonic=lambda: now[0])
        first = latest.begin()
        first.result(10)
        go.clear()
        now[0] = 100.0
        second = latest.begin()
        assert (latest.result(first).error, latest.result(first).current) == (None, True)
        assert latest.result(second).why == "no answer in time"
        go.set()


def test_an_error_keeps_the_last_value_and_when_it_began() -> None:
    now, fails = [1.0], [False]

    def read() -> str:
        if fails[0]:
            raise ConsulError("away")
        return "good"

    with ThreadPoolExecutor(1) as pool:
        latest = Latest("it", read, pool, clock=lambda: now[0], monotonic=lambda: now[0])
        latest.begin().result(10)
        fails[0] = True
        for now[0] in (10.0, 20.0):
            found = latest.begin().result(10)
            assert (found.value, found.current, found.at, found.since) == ("good", None, 1.0, 10.0)
        fails[0], now[0] = False, 30.0
        found = latest.begin().result(10)
        assert (found.current, found.at, found.error, found.since) == ("good", 30.0, None, None)


def refused() -> SecretStr | None:
    raise ConnectionSettingsError("there is no connection 'muster_metrics'")


@pytest.mark.parametrize("path", ["/metrics", "/targets"])
def test_page_is_empty_without_the_connection(path: str) -> None:
    app = FastAPI()
    app.include_router(metrics_router(refused, None))
    answer = TestClient(app).get(path, headers={"Authorization": "Bearer x"})
    assert answer.status_code == 403
    assert "create the Airflow connection 'muster_metrics'" in answer.text


def test_an_exporter_whose_servers_are_all_away_answers_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, fields in (
        (
            "KAFKA",
            '{"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:9", "operation_timeout": 0.5}}',
        ),
        ("ZOOKEEPER", '{"conn_type": "generic", "host": "127.0.0.1:9", "extra": {"operation_timeout": 0.5}}'),
        ("CONSUL", '{"conn_type": "http", "host": "127.0.0.1", "port": 9}'),
    ):
        monkeypatch.setenv(f"AIRFLOW_CONN_MUSTER_{place}", fields)
    clusters = Clusters(path=tmp_path, clusters={"c": CLUSTER})
    began = time.monotonic()
    text = Exporter(StateCache(), settings=lambda: clusters).text((), True, 0.3).decode()
    assert time.monotonic() - began < 10
    up = [f for f in text_string_to_metric_families(text) if f.name == "muster_place_up"]
    assert [(s.labels["place"], s.value) for s in up[0].samples] == [
        ("consul", 0),
        ("kafka", 0),
        ("zookeeper", 0),
    ]
