"""The consumer's metrics, for Prometheus.

Offsets and lag have the names and labels that Kafka lag exporters made familiar, so existing dashboards and alerts
fit; `cluster_name` is Muster's cluster. What is the consumer's own begins with `muster_consumer_`. Of the group as a
whole a consumer knows only its part: sums, maxima, and partitions without an owner are in `muster.monitoring`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

import muster
from muster.consumer.agent import Agent, View

_OWN = ["cluster_name", "consumer_id"]


class ConsumerMetrics(Collector):
    """Reads the agent whenever it is scraped. `text` is what is served."""

    def __init__(self, agent: Agent, cluster: str, incarnation: str) -> None:
        self._agent = agent
        self._cluster = cluster
        self._incarnation = incarnation
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
        yield from self._partitions(view)
        yield from self._work(view)
        yield from self._condition(view)

    @property
    def _me(self) -> list[str]:
        return [self._cluster, self._agent.owner]

    def _offsets(self, view: View) -> Iterator[Metric]:
        group = ["cluster_name", "group", "topic", "partition", "member_host", "consumer_id", "client_id"]
        lag = GaugeMetricFamily(
            "kafka_consumergroup_group_lag",
            "Records of the partition that the group has not processed",
            labels=group,
        )
        seconds = GaugeMetricFamily(
            "kafka_consumergroup_group_lag_seconds",
            "For how long the next record to process has been waiting, estimated",
            labels=group,
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
            labels=[*_OWN, "topic", "partition"],
        )
        for (topic, partition), arriving in view.rates.items():
            rate.add_metric([*self._me, topic, str(partition)], arriving)
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
            if (topic, partition) in view.seconds_behind:
                seconds.add_metric(labels, view.seconds_behind[topic, partition])
        yield from (lag, seconds, offset, latest, rate, *self._trouble(view))

    def _trouble(self, view: View) -> Iterator[Metric]:
        stalled = GaugeMetricFamily(
            "muster_consumer_stalled_seconds",
            "For how long a partition with lag, or whose lag is not known, has made no progress",
            labels=[*_OWN, "topic", "partition"],
        )
        for (topic, partition), seconds in view.stalled.items():
            stalled.add_metric([*self._me, topic, str(partition)], seconds)
        lost = CounterMetricFamily(
            "muster_consumer_lost_records",
            "Offsets that Kafka had no more when they were to be read, or after they were read",
            labels=[*_OWN, "topic", "partition", "reason"],
        )
        for (topic, partition), reasons in view.lost.items():
            for reason, count in reasons.items():
                lost.add_metric([*self._me, topic, str(partition), reason], count)
        yield from (stalled, lost)

    def _partitions(self, view: View) -> Iterator[Metric]:
        partitions = GaugeMetricFamily(
            "muster_consumer_partitions",
            "Partitions by state; those that it stands by for it does not read",
            labels=[*_OWN, "topic", "state"],
        )
        epochs = GaugeMetricFamily(
            "muster_consumer_epoch", "Assignment epoch acted on", labels=[*_OWN, "topic"]
        )
        for topic, status in view.topics.items():
            for state in ("running", "starting", "closing", "standby"):
                partitions.add_metric([*self._me, topic, state], len(getattr(status, state)))
            if status.epoch is not None:
                epochs.add_metric([*self._me, topic], status.epoch)
        yield from (partitions, epochs)
        fenced = GaugeMetricFamily(
            "muster_consumer_fenced_partitions",
            "Partitions whose commit was refused, and which are not taken up again yet",
            labels=_OWN,
        )
        fenced.add_metric(self._me, len(view.refusals))
        yield fenced

    def _work(self, view: View) -> Iterator[Metric]:
        counters = view.counters
        for name, text, value in (
            ("records", "Records whose batch was processed (offsets passed)", counters.records),
            ("batches", "Batches processed", counters.batches),
            ("commits", "Commits acknowledged by Kafka", counters.commits),
            ("failed_commits", "Commits that failed and were tried again", counters.failed_commits),
            (
                "refused_commits",
                "Commits refused because another consumer has taken the partition over",
                counters.refused_commits,
            ),
            ("query_failures", "Times that the query failed and was started again", counters.query_failures),
            (
                "recreated_partitions",
                "Partitions that began at the first record of a topic that was created again",
                view.recreated,
            ),
        ):
            counter = CounterMetricFamily(f"muster_consumer_{name}", text, labels=_OWN)
            counter.add_metric(self._me, value)
            yield counter
        for name, text, timings in (
            ("batch_seconds", "Seconds that the handler took for a batch", view.batches_took),
            ("commit_seconds", "Seconds that a commit took, whatever came of it", view.commits_took),
        ):
            histogram = HistogramMetricFamily(f"muster_consumer_{name}", text, labels=_OWN)
            histogram.add_metric(self._me, timings.buckets(), timings.seconds)
            yield histogram
        if counters.last_batch_at is not None:
            last = GaugeMetricFamily(
                "muster_consumer_last_batch_timestamp_seconds", "When the last batch was done", labels=_OWN
            )
            last.add_metric(self._me, counters.last_batch_at)
            yield last

    def _condition(self, view: View) -> Iterator[Metric]:
        info = InfoMetricFamily("muster_consumer", "Which process this is", labels=_OWN)
        info.add_metric(
            self._me,
            {"incarnation": self._incarnation, "version": muster.__version__, "host": self._host},
        )
        yield info
        barred = GaugeMetricFamily(
            "muster_consumer_barred", "1 for each reason why it takes nothing up", labels=[*_OWN, "reason"]
        )
        for reason in sorted(view.blocks):
            barred.add_metric([*self._me, reason], 1)
        yield barred
        for name, text, value in (
            ("query_running", "Whether the Spark query runs", view.query_running),
            (
                "query_failures_in_a_row",
                "Failures of the query since a batch came through; from 10 on /health fails",
                view.counters.failures_in_a_row,
            ),
            ("problems", "Things that are wrong now; the status page says what", len(view.problems)),
        ):
            gauge = GaugeMetricFamily(f"muster_consumer_{name}", text, labels=_OWN)
            gauge.add_metric(self._me, value)
            yield gauge
