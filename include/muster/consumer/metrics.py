"""The consumer's metrics, for Prometheus.

Offsets and lag have the names and labels that Kafka lag exporters made familiar, so existing dashboards and alerts
fit; `cluster_name` is Muster's cluster. What is the consumer's own begins with `muster_consumer_`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from muster.consumer.agent import Agent, View


class ConsumerMetrics(Collector):
    """Reads the agent whenever it is scraped. `text` is what is served."""

    def __init__(self, agent: Agent, cluster: str) -> None:
        self._agent = agent
        self._cluster = cluster
        self._host = socket.gethostname()
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Nothing in advance, so that registering reads nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Everything at one moment."""
        view = self._agent.view()
        yield from self._offsets(view)
        yield from self._consumer(view)

    def _offsets(self, view: View) -> Iterator[Metric]:
        group = ["cluster_name", "group", "topic", "partition", "member_host", "consumer_id", "client_id"]
        lag = GaugeMetricFamily(
            "kafka_consumergroup_group_lag", "Records not yet processed by the group", labels=group
        )
        offset = GaugeMetricFamily(
            "kafka_consumergroup_group_offset", "Committed offset of the group", labels=group
        )
        latest = GaugeMetricFamily(
            "kafka_partition_latest_offset",
            "Offset after the last record of the partition",
            labels=["cluster_name", "topic", "partition"],
        )
        rate = GaugeMetricFamily(
            "muster_consumer_arrival_rate",
            "Records that arrive in the partition a second, over about the last minute",
            labels=["cluster_name", "consumer_id", "topic", "partition"],
        )
        for (topic, partition), arriving in view.rates.items():
            rate.add_metric([self._cluster, self._agent.owner, topic, str(partition)], arriving)
        for (topic, partition), report in view.held.items():
            source = view.sources.get(topic)
            labels = [
                self._cluster,
                source.group_id if source else "",
                topic,
                str(partition),
                self._host,
                self._agent.owner,
                self._agent.owner,
            ]
            end = view.ends.get((topic, partition))
            if report.committed is not None:
                offset.add_metric(labels, report.committed)
            if end is not None:
                latest.add_metric([self._cluster, topic, str(partition)], end)
                if report.position is not None:
                    lag.add_metric(labels, max(0, end - report.position))
        yield from (lag, offset, latest, rate)

    def _consumer(self, view: View) -> Iterator[Metric]:
        own = ["cluster_name", "consumer_id"]
        me = [self._cluster, self._agent.owner]
        partitions = GaugeMetricFamily(
            "muster_consumer_partitions",
            "Partitions held, by state: running, starting, closing",
            labels=[*own, "topic", "state"],
        )
        epochs = GaugeMetricFamily(
            "muster_consumer_epoch", "Assignment epoch acted upon", labels=[*own, "topic"]
        )
        for topic, status in view.topics.items():
            for state in ("running", "starting", "closing"):
                partitions.add_metric([*me, topic, state], len(getattr(status, state)))
            if status.epoch is not None:
                epochs.add_metric([*me, topic], status.epoch)
        yield from (partitions, epochs)
        counters = view.counters
        for name, text, value in (
            ("records", "Records whose batch was processed (offsets passed)", counters.records),
            ("batches", "Batches processed", counters.batches),
            ("batch_seconds", "Seconds that the handler took", counters.batch_seconds),
            ("commits", "Commits acknowledged by Kafka", counters.commits),
            ("failed_commits", "Commits that failed and were tried again", counters.failed_commits),
            (
                "refused_commits",
                "Commits refused because another consumer has taken the partition over",
                counters.refused_commits,
            ),
            ("query_failures", "Times that the query failed and was started again", counters.query_failures),
        ):
            counter = CounterMetricFamily(f"muster_consumer_{name}", text, labels=own)
            counter.add_metric(me, value)
            yield counter
        problems = GaugeMetricFamily(
            "muster_consumer_problems", "Things that are wrong now; the status page says what", labels=own
        )
        problems.add_metric(me, len(view.problems))
        yield problems
