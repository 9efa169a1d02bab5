"""What a real Prometheus and a StatsD server find of a running stack."""

from __future__ import annotations

import json
import re
import time

import httpx
import pytest

from devstack.consul import Consul
from tests.conftest import Eventually
from tests.monitoring.conftest import PARTITIONS, STATUS_TOKEN, Stack
from tests.monitoring.grafana import DASHBOARD, queries
from tests.monitoring.metrics_page import described
from tests.monitoring.prometheus_server import Prometheus

pytestmark = [pytest.mark.airflow, pytest.mark.stack]

PLACES = ("airflow", "consul", "kafka", "zookeeper")
MAY_BE_EMPTY = {
    "Rebalances under way, for how long": "every topic of the stack is Stable",
    **dict.fromkeys(
        (
            *("Keys by topic", "Size by topic", "Partitions without their state"),
            *("Restores: how much has been read", "Restores: offsets a second"),
            *("Copies of state by how warm they are", "Copies of state: offsets that they lack"),
        ),
        "no topic of the stack has state",
    ),
}
"""Panels whose queries find nothing in a stack that is well."""


def test_the_tasks_send_what_they_did_along_airflows_own_path(stack: Stack, eventually: Eventually) -> None:
    """The stack's first run has given the partitions of one topic away; no consumer takes those of the other."""
    prefix = f"airflow.muster.{stack.cluster.name}"
    eventually(lambda: f"{prefix}.stuck_topics" in stack.statsd.seen, 10)
    assert stack.statsd.total(f"{prefix}.rebalances") == 1
    assert stack.statsd.total(f"{prefix}.moves") == PARTITIONS
    assert stack.statsd.total(f"{prefix}.plan_time") > 0
    assert stack.statsd.total(f"{prefix}.rebalance_time") > 0
    assert stack.statsd.last(f"{prefix}.topics.Initial") == 2
    assert stack.statsd.last(f"{prefix}.consumers.live") == 2
    assert stack.statsd.total("airflow.muster.moves") == PARTITIONS


@pytest.mark.parametrize("path", ["/muster/metrics", "/muster/targets"])
def test_requests_without_the_token_are_refused(stack: Stack, path: str) -> None:
    for token in (None, "wrong", STATUS_TOKEN):
        answer = stack.get(path, token=token)
        assert answer.status_code == 401
        assert stack.cluster.name not in answer.text
    assert stack.get(path).status_code == 200


def test_prometheus_finds_every_consumer_by_itself(
    stack: Stack, prometheus: Prometheus, eventually: Eventually
) -> None:
    def healthy() -> set[tuple[str, str]]:
        return {
            (target["labels"]["job"], target["labels"].get("consumer_id", ""))
            for target in prometheus.targets()
            if target["health"] == "up"
        }

    wanted = {("muster", ""), *(("muster-consumers", consumer) for consumer in stack.consumers)}
    eventually(lambda: healthy() == wanted, 30, what="all targets up")


def test_prometheus_has_lag_of_any_consumer_once(
    stack: Stack, prometheus: Prometheus, eventually: Eventually
) -> None:
    group = f'group="{stack.cluster.group_id}"'
    eventually(lambda: prometheus.value(f"sum(kafka_consumergroup_group_lag{{{group}}})") == 40, 30)
    of_nobody = prometheus.ask(f'kafka_consumergroup_group_lag{{{group}, consumer_id=""}}')
    assert {each["metric"]["topic"] for each in of_nobody} == {stack.lonely}
    assert len(of_nobody) == PARTITIONS
    for consumer in stack.consumers.values():
        consumer.limit = 0
    stack.produce(stack.topic, 80)
    try:
        eventually(lambda: prometheus.value(f"sum(kafka_consumergroup_group_lag{{{group}}})") == 120, 30)
        name = f'kafka_consumergroup_group_topic_sum_lag{{{group}, topic="{stack.topic}"}}'
        eventually(lambda: prometheus.value(name) == 80, 30)
        seconds = f'min(kafka_consumergroup_group_lag_seconds{{{group}, topic="{stack.topic}"}})'
        eventually(lambda: 1 < (prometheus.value(seconds) or 0) < 60, 30, what="lag in time grows")
    finally:
        for consumer in stack.consumers.values():
            consumer.limit = 1_000_000
    eventually(lambda: prometheus.value(f"sum(kafka_consumergroup_group_lag{{{group}}})") == 40, 30)
    eventually(lambda: prometheus.value(seconds) == 0, 30)


def test_prometheus_has_topics_consumers_and_the_coordinator(
    stack: Stack, prometheus: Prometheus, eventually: Eventually
) -> None:
    name = stack.cluster.name

    def value(metric: str, **labels: str) -> float | None:
        matchers = ", ".join(f'{key}="{each}"' for key, each in {"cluster_name": name, **labels}.items())
        return prometheus.value(f"{metric}{{{matchers}}}")

    def all_known() -> bool:
        assert value("muster_topic_state", topic=stack.topic, state="Stable") == 1
        assert value("muster_topic_state", topic=stack.topic, state="Closing") == 0
        assert value("muster_topic_unconsumed_partitions", topic=stack.topic) == 0
        assert value("muster_topic_unconsumed_partitions", topic=stack.lonely) == PARTITIONS
        assert value("muster_consumers", state="live") == 2
        assert value("muster_consumer_state", consumer_id=f"{name}-3", state="missing") == 1
        assert value("muster_coordinator_paused") == 0
        assert value("muster_cluster_paused") == 0
        assert time.time() - (value("muster_coordinator_last_run_timestamp_seconds") or 0) < 600
        assert prometheus.value("muster_wrong_clusters") == 1
        for consumer, running in stack.consumers.items():
            here = {"consumer_id": consumer}
            assert value("muster_consumer_partitions", **here, topic=stack.topic, state="running") == 2
            assert value("muster_consumer_info", **here, incarnation=running.incarnation) == 1
            assert (value("muster_consumer_commit_seconds_count", **here) or 0) > 0
        return True

    eventually(all_known, 30)


def test_alerts_are_raised_of_what_is_wrong_here(
    stack: Stack, prometheus: Prometheus, eventually: Eventually
) -> None:
    """The stack has a topic without consumers, a consumer that was never started, and a cluster that is wrong."""

    def raised() -> set[str]:
        return {each["metric"]["alertname"] for each in prometheus.ask("ALERTS")}

    wrong = {"MusterPartitionsUnconsumed", "MusterConsumerMissing", "MusterSettingsWrong"}
    eventually(lambda: wrong <= raised(), 30)


def test_every_query_of_the_dashboard_finds_something(
    stack: Stack, prometheus: Prometheus, eventually: Eventually
) -> None:
    wanted = queries(json.loads(DASHBOARD.read_text()), stack.cluster.name, interval="60s")
    empty = dict(wanted)

    def all_found() -> bool:
        stack.produce(stack.topic, 40)  # how long a batch took is only known while there are some
        for panel, query in wanted:
            found = prometheus.ask(query)
            if any(each["value"][1] != "NaN" for each in found):
                empty.pop(panel, None)
        assert empty.keys() == MAY_BE_EMPTY.keys(), empty
        return True

    eventually(all_found, 40)
    clusters = {labels["cluster_name"] for labels in prometheus.series("muster_cluster_info")}
    assert clusters == {stack.cluster.name}, "what the dashboard's variable offers"


def test_page_documents_everything_that_is_scraped(stack: Stack, prometheus: Prometheus) -> None:
    pages = described("Clusters") | described("Consumers")
    names = {
        re.sub(r"_(bucket|count|sum)$", "", labels["__name__"])
        if "_seconds_" in labels["__name__"]
        else labels["__name__"]
        for labels in prometheus.series('{__name__=~"(muster|kafka)_.+"}')
    }
    assert names <= pages.keys()
    assert len(names) > 40


def test_a_server_that_hangs_does_not_hold_up_the_others(
    stack: Stack, prometheus: Prometheus, consul_server: Consul, eventually: Eventually
) -> None:
    def up(place: str) -> float | None:
        name = stack.cluster.name
        return prometheus.value(f'muster_place_up{{cluster_name="{name}", place="{place}"}}')

    eventually(lambda: up("consul") == 1, 30)
    consul_server.pause()
    try:
        eventually(lambda: [up(place) for place in PLACES] == [1, 0, 1, 1], 30, what="only Consul is away")
        answer = stack.get("/muster/targets")
        assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE, "not an empty list"
        assert len(prometheus.targets()) == 1 + len(stack.consumers)
    finally:
        consul_server.resume()
    eventually(lambda: up("consul") == 1, 30)
