"""The consumer's metrics, for Prometheus.

Offsets and lag have the names and labels that Kafka lag exporters made familiar, so existing dashboards and alerts
fit; `cluster_name` is Muster's cluster. What is the consumer's own begins with `muster_consumer_`. Of the group as a
whole a consumer knows only its part: sums, maxima, and partitions without an owner are in `muster.monitoring`.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

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
from muster.consumer.agent import Agent
from muster.consumer.measures import Counters
from muster.consumer.snapshot import AgentSnapshot
from muster.core.copies import Warmth

_OWN = ["cluster_name", "consumer_id"]
_GROUP = ["cluster_name", "group", "topic", "partition", "member_host", "consumer_id", "client_id"]

_Samples = Iterable[tuple[tuple[object, ...], float | None]]
"""The values of a family's further labels, each with what was measured, None if nothing was."""


class ConsumerMetrics(Collector):
    """Reads the agent whenever it is scraped. `text` is what is served."""

    def __init__(self, agent: Agent, cluster: str, incarnation: str) -> None:
        self._agent = agent
        self._cluster = cluster
        self._incarnation = incarnation
        self._host = socket.gethostname()
        self._me = [cluster, agent.owner]
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """Write all metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Describe nothing in advance, so that registering reads nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield everything at one moment."""
        view = self._agent.view()
        yield from self._offsets(view)
        yield from self._labelled(view)
        yield from self._gauges(view)
        yield from self._counters(view.counters)

    def _offsets(self, view: AgentSnapshot) -> Iterator[Metric]:
        """Yield what lag exporters have."""
        families = [
            GaugeMetricFamily(f"kafka_consumergroup_group_{name}", text, labels=_GROUP)
            for name, text in (
                ("lag", "Records of the partition that the group has not processed"),
                ("offset", "Committed offset of the group"),
            )
        ]
        latest = GaugeMetricFamily(
            "kafka_partition_latest_offset",
            "Offset after the last record of the partition",
            labels=["cluster_name", "topic", "partition"],
        )
        owner = self._agent.owner
        for (topic, number), held in view.held.items():
            group, partition = view.sources[topic].group_id if topic in view.sources else "", str(number)
            labels = [self._cluster, group, topic, partition, self._host, owner, owner]
            for family, value in zip(families, (held.lag, held.committed), strict=True):
                if value is not None:
                    family.add_metric(labels, value)
            if held.end is not None:
                latest.add_metric([self._cluster, topic, partition], held.end)
        yield from (*families, latest)

    def _labelled(self, view: AgentSnapshot) -> Iterator[Metric]:
        """Yield what is the consumer's own by partition, topic or reason."""
        partitions, topics = view.held.items(), view.topics.items()
        text = "Records that arrive in the partition a second, over about the last minute"
        rates: _Samples = ((tp, partition.rate) for tp, partition in partitions)
        yield self._own(GaugeMetricFamily, "arrival_rate", text, rates, "topic", "partition")
        text = "For how long a partition with lag, or whose lag is not known, has made no progress"
        stalled: _Samples = ((tp, partition.stalled) for tp, partition in partitions)
        yield self._own(GaugeMetricFamily, "stalled_seconds", text, stalled, "topic", "partition")
        text = "Offsets that Kafka had no more when they were to be read, or after they were read"
        lost = (((*tp, why), n) for tp, reasons in view.counters.lost.items() for why, n in reasons.items())
        yield self._own(CounterMetricFamily, "lost_records", text, lost, "topic", "partition", "reason")
        text = "Records that were skipped, by a person's answer"
        skipped = _from_zero(view, view.counters.skipped)
        yield self._own(CounterMetricFamily, "skipped_records", text, skipped, "topic")
        text = "Records that were written to the dead-letter topic"
        letters = _from_zero(view, view.counters.dead_lettered)
        yield self._own(CounterMetricFamily, "dead_letters", text, letters, "topic")
        text = "Whether the partition is parked, for a record that the handler fails with or records that are lost"
        parked: _Samples = ((tp, tp in view.failing and view.failing[tp].parked) for tp in view.held)
        yield self._own(GaugeMetricFamily, "parked", text, parked, "topic", "partition")
        text = "Whether the partition cannot be read at present; the status page says why"
        unread: _Samples = ((tp, tp in view.unread) for tp in view.held)
        yield self._own(GaugeMetricFamily, "unread", text, unread, "topic", "partition")
        yield from self._states(view)
        text = "Partitions by state; those that it stands by for it does not read"
        states = ("running", "starting", "closing", "standby")
        counts = (((topic, s), len(getattr(status, s))) for topic, status in topics for s in states)
        yield self._own(GaugeMetricFamily, "partitions", text, counts, "topic", "state")
        text = "Partitions that are held and not read, because their consumption is paused"
        paused = (((topic,), len(status.paused)) for topic, status in topics)
        yield self._own(GaugeMetricFamily, "paused_partitions", text, paused, "topic")
        epochs = (((topic,), status.epoch) for topic, status in topics)
        yield self._own(GaugeMetricFamily, "epoch", "Assignment epoch acted on", epochs, "topic")
        blocks = (((reason,), 1) for reason in sorted(view.blocks))
        yield self._own(
            GaugeMetricFamily, "barred", "1 for each reason why it takes nothing up", blocks, "reason"
        )

    def _states(self, view: AgentSnapshot) -> Iterator[Metric]:
        """Yield how the state by key of partitions stands."""
        running = [(tp, s) for tp, s in view.shards.items() if not (s.restore or s.differs)]
        restored = [(tp, s.restore) for tp, s in view.shards.items() if s.restore is not None]
        families: tuple[tuple[str, str, _Samples], ...] = (
            ("state_keys", "Entries of the partition's state", ((tp, s.keys) for tp, s in running)),
            ("state_bytes", "Bytes of its local store", ((tp, s.bytes) for tp, s in running)),
            (
                "state_offset",
                "Offset up to which it holds the records",
                ((tp, s.offset) for tp, s in running),
            ),
            (
                "state_differs",
                "Whether it does not run because it and the committed offset do not fit, until a person chooses",
                ((tp, bool(s.differs)) for tp, s in view.shards.items()),
            ),
            (
                "restore_ratio",
                "How much of its changelog a restore has read, from 0 to 1",
                ((tp, r.read / r.total if r.total else 0.0) for tp, r in restored),
            ),
            ("restore_rate", "Offsets that a restore reads a second", ((tp, r.rate) for tp, r in restored)),
            (
                "restore_still_seconds",
                "Seconds since a restore last came further",
                ((tp, r.still) for tp, r in restored),
            ),
        )
        for name, text, samples in families:
            yield self._own(GaugeMetricFamily, name, text, samples, "topic", "partition")
        text, late = (
            "Rows that were dropped because they came after the watermark",
            ((tp, s.late) for tp, s in running),
        )
        yield self._own(CounterMetricFamily, "late_rows", text, late, "topic", "partition")
        text = "Offsets of its changelog that the local store of a shard lacks, whether or not the shard runs here"
        copies = self._agent.states.copies() or {}
        lags: _Samples = ((tp, copy.lag) for tp, copy in copies.items())
        yield self._own(GaugeMetricFamily, "state_copy_lag", text, lags, "topic", "partition")
        text = "Copies of the state of partitions that are not held here, by how warm they are"
        counted = Counter((tp[0], copy.warmth) for tp, copy in copies.items() if tp not in view.held)
        topics = sorted({topic for topic, _ in copies})
        warmths = (((topic, warmth), counted[topic, warmth]) for topic in topics for warmth in Warmth)
        yield self._own(GaugeMetricFamily, "state_copies", text, warmths, "topic", "warmth")

    def _gauges(self, view: AgentSnapshot) -> Iterator[Metric]:
        info = InfoMetricFamily("muster_consumer", "Which process this is", labels=_OWN)
        about = {"incarnation": self._incarnation, "version": muster.__version__, "host": self._host}
        info.add_metric(self._me, about)
        yield info
        for name, text, value in (
            (
                "fenced_partitions",
                "Partitions whose commit was refused, and which are not taken up again yet",
                len(view.refusals),
            ),
            ("query_running", "Whether the Spark query runs", view.query_running),
            (
                "query_failures_in_a_row",
                "Failures of handler and query since a batch came through",
                view.counters.failures_in_a_row,
            ),
            ("problems", "Things that are wrong now; the status page says what", len(view.problems)),
            (
                "batch_under_way_seconds",
                "For how long the handler has been at work on its batch; 0 without one",
                view.batch_seconds,
            ),
            (
                "read_ahead_bytes",
                "Bytes that the executors hold, or reserve for Kafka's clients, of what they read ahead",
                view.counters.read_ahead_bytes,
            ),
            ("last_batch_timestamp_seconds", "When the last batch was done", view.counters.last_batch_at),
        ):
            if value is not None:
                yield self._own(GaugeMetricFamily, name, text, [((), value)])

    def _counters(self, counters: Counters) -> Iterator[Metric]:
        for name, text, value in (
            ("records", "Records whose batch was processed (offsets passed)", counters.records),
            (
                "read_bytes",
                "Bytes of keys, values and headers that tasks have read; what is read twice counts twice",
                counters.read_bytes,
            ),
            (
                "read_failures",
                "Batches that failed because a partition could not be read, for no fault of their records",
                counters.read_failures,
            ),
            ("batches", "Batches processed", counters.batches),
            ("commits", "Commits acknowledged by Kafka", counters.commits),
            ("failed_commits", "Commits that failed and were tried again", counters.failed_commits),
            (
                "refused_commits",
                "Commits refused because another consumer has taken the partition over",
                counters.refused_commits,
            ),
            ("handler_failures", "Times that the handler raised", counters.handler_failures),
            ("poison_records", "Records that failed so often alone that they are poison", counters.poison),
            ("query_failures", "Times that the query failed and was started again", counters.query_failures),
            (
                "foreign_commits",
                "Times that another program had set the committed offset of a partition that is held here",
                counters.foreign_commits,
            ),
            ("seeks", "Seeks that were carried out, counted by partition", counters.seeks),
            (
                "left_out_records",
                "Offsets that a sink had already, as the last owner had not committed them or a batch had failed",
                counters.left_out.expected,
            ),
            (
                "left_out_unexpectedly_records",
                "Offsets that a sink had already, though the partition had gone back, or newer ones were written",
                counters.left_out.surprising,
            ),
            (
                "recreated_partitions",
                "Partitions that began at the first record of a topic that was created again",
                counters.recreated,
            ),
        ):
            yield self._own(CounterMetricFamily, name, text, [((), value)])
        for name, text, timings in (
            ("batch_seconds", "Seconds that the handler took for a batch", counters.batches_took),
            ("commit_seconds", "Seconds that a commit took, whatever came of it", counters.commits_took),
        ):
            histogram = HistogramMetricFamily(f"muster_consumer_{name}", text, labels=_OWN)
            histogram.add_metric(self._me, timings.buckets(), timings.seconds)
            yield histogram

    def _own(
        self,
        kind: type[GaugeMetricFamily | CounterMetricFamily],
        name: str,
        text: str,
        samples: _Samples,
        *labels: str,
    ) -> Metric:
        family = kind(f"muster_consumer_{name}", text, labels=[*_OWN, *labels])
        for values, value in samples:
            if value is not None:
                family.add_metric([*self._me, *map(str, values)], value)
        return family


def _from_zero(view: AgentSnapshot, counts: Mapping[str, int]) -> _Samples:
    """Count by topic, also those topics in which nothing was counted so far: a rate is right from the first on."""
    return (((topic,), counts.get(topic, 0)) for topic in sorted(view.topics.keys() | counts.keys()))
