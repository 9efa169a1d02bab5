"""The metrics that go along Airflow's own path, from reports, to a StatsD server or an OpenTelemetry collector; what
a DAG run sends of them is in `test_scraped`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import pytest

import tests.dags.conftest  # noqa: F401  Airflow reads its home when it is first imported
from muster.coordinator.reports import AdvanceReport, Change, ConsumersReport, PartitionsReport, PlanReport
from muster.core.model import Move, State
from muster.core.time_lag import TimeLag, gauges
from muster.edges.consul import ConsulError
from muster.edges.zookeeper import ZooKeeperError
from tests.conftest import Eventually
from tests.monitoring.metrics_page import statsd
from tests.monitoring.otlp_collector import OtlpCollector
from tests.monitoring.statsd_listener import StatsdListener

pytestmark = pytest.mark.airflow

KINDS = {"counter": "c", "gauge": "g", "timer": "ms"}


@pytest.fixture
def listener() -> Iterator[StatsdListener]:
    """Airflow's own client, sending to it."""
    from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger  # noqa: PLC0415
    from airflow.sdk._shared.observability.metrics.statsd_logger import get_statsd_logger  # noqa: PLC0415
    from airflow.sdk.observability import stats  # noqa: PLC0415
    from statsd import StatsClient  # noqa: PLC0415

    with StatsdListener() as listening:
        client = partial(
            get_statsd_logger,
            stats_class=StatsClient,
            host="127.0.0.1",
            port=listening.port,
            prefix="airflow",
        )
        stats.initialize(factory=client, export_legacy_names=True)
        yield listening
    stats.initialize(factory=NoStatsLogger, export_legacy_names=True)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpCollector]:
    """Airflow's own OpenTelemetry, sending to it ten times a second."""
    from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger  # noqa: PLC0415
    from airflow.sdk._shared.observability.metrics.otel_logger import get_otel_logger  # noqa: PLC0415
    from airflow.sdk.observability import stats  # noqa: PLC0415
    from opentelemetry import metrics  # noqa: PLC0415

    with OtlpCollector() as collecting:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        client = partial(
            get_otel_logger, host="127.0.0.1", port=collecting.port, prefix="airflow", conf_interval=100
        )
        stats.initialize(factory=client, export_legacy_names=True)
        yield collecting
        metrics.get_meter_provider().shutdown()  # type: ignore[attr-defined]  # the SDK's provider
    stats.initialize(factory=NoStatsLogger, export_legacy_names=True)


def change(before: State, after: State, moves: int, lasted: float) -> Change:
    moved = tuple(Move("t", p, "a", "b", "a left") for p in range(moves))
    return Change("t", before, after, "a left", moved, epoch=1, at=0.0, lasted=lasted)


def send_every_report() -> None:
    from muster.airflow.stats import CoordinatorStats  # noqa: PLC0415

    stats = CoordinatorStats("my.flights")
    stats.partitions(PartitionsReport(errors={"t": "missing"}, kafka_error="away"))
    stats.consumers(ConsumersReport(live=3, isolated=["a"]))
    stats.consumers(ConsumersReport(trusted=False, doubt="not confirmed"))
    behind = gauges({"t": TimeLag(700.0, None, 60.0, near_deletion=True), "u": TimeLag()}, lambda _: 600.0)
    stats.plan(PlanReport(moves=4, states={"Stable": 7, "Closing": 1}, behind=behind), 0.25)
    steps = [
        change(State.STABLE, State.CLOSING, 4, 0.0),
        change(State.CLOSING, State.STARTING, 0, 1.0),
        change(State.STARTING, State.STABLE, 0, 2.0),
        change(State.STABLE, State.STABLE, 0, 0.0),  # only standbys changed
        change(State.INITIAL, State.STARTING, 5, 0.0),
    ]
    stats.advanced(steps, AdvanceReport(stuck=["t is stuck"]))
    for error in (ZooKeeperError("away"), ConsulError("away")):
        with pytest.raises(type(error)), stats.reading():
            raise error


def test_every_report_is_counted_under_the_names_of_the_page(
    listener: StatsdListener, eventually: Eventually
) -> None:
    send_every_report()
    by_name = "airflow.muster.my__flights"
    eventually(lambda: listener.total(f"{by_name}.failed_reads.zookeeper") == 1, 10)
    eventually(lambda: listener.total(f"{by_name}.failed_reads.consul") == 2, 10)
    assert listener.total(f"{by_name}.failed_reads.kafka") == 1
    assert listener.total("airflow.muster.failed_reads") == 4
    assert listener.total(f"{by_name}.rebalances") == 2
    assert listener.total(f"{by_name}.moves") == 9
    assert listener.total(f"{by_name}.rebalance_time") == 2000
    assert listener.total(f"{by_name}.plan_time") == 250
    assert listener.last(f"{by_name}.topics.Stable") == 7
    assert listener.last(f"{by_name}.topics.Starting") == 0
    assert listener.last(f"{by_name}.consumers.live") == 3
    assert listener.last(f"{by_name}.consumers.isolated") == 1
    assert listener.last(f"{by_name}.topics_wrong") == 1
    assert listener.last(f"{by_name}.stuck_topics") == 1
    assert listener.last(f"{by_name}.lag_seconds") == 700
    assert listener.last(f"{by_name}.topics_over_max_lag") == 1
    assert listener.last(f"{by_name}.topics_near_deletion") == 1

    sent = {name.removeprefix("airflow."): kind for name, (kind, _) in listener.seen.items()}
    page = statsd()
    with_cluster = {name: kind for name, kind in sent.items() if name.startswith("muster.my__flights.")}
    assert {name: KINDS[kind] for name, (_, kind, _) in page.items()} == {
        name: kind for name, kind in sent.items() if name not in with_cluster
    }
    patterns = [
        (re.sub(r"\\\[\w+\\\]", r"\\w+", re.escape(name)), KINDS[kind]) for name, kind, _ in page.values()
    ]
    for name, kind in with_cluster.items():
        assert [k for pattern, k in patterns if re.fullmatch(pattern, name)] == [kind], name
    assert all(any(re.fullmatch(pattern, name) for name in with_cluster) for pattern, _ in patterns)


def test_opentelemetry_gets_each_with_its_tags(collector: OtlpCollector, eventually: Eventually) -> None:
    send_every_report()
    cluster = {"cluster": "my.flights"}
    eventually(lambda: collector.value("airflow.muster.rebalances", cluster) == 2, 20)
    assert collector.value("airflow.muster.moves", cluster) == 9
    assert collector.value("airflow.muster.failed_reads", {**cluster, "place": "consul"}) == 2
    assert collector.value("airflow.muster.topics", {**cluster, "state": "Stable"}) == 7
    assert collector.value("airflow.muster.consumers", {**cluster, "state": "isolated"}) == 1
    assert collector.value("airflow.muster.plan_time", cluster) == 250
    assert collector.value("airflow.muster.my__flights.rebalance_time", {}) == 2000
    for name, (_, kind, tags) in statsd().items():
        assert (collector.kinds[f"airflow.{name}"], collector.tags[f"airflow.{name}"]) == (kind, tags), name


def test_tags_are_sent_where_the_server_knows_them() -> None:
    from muster.airflow.stats import CoordinatorStats  # noqa: PLC0415

    for name, (_, _, tags) in statsd().items():
        further = dict.fromkeys(tags - {"cluster"}, "x")
        modern, *_ = CoordinatorStats("c")._names(name.removeprefix("muster."), further)
        assert modern == (name, {"cluster": "c", **further})
