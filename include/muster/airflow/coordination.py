"""What the four tasks of a coordinator run do: open the edges, let `muster.coordinator` work, say what came of it.

The outcome of a task is chosen for what a person sees in the grid of runs:

- nothing to do: `advance_state` is skipped;
- something may have to be done but must not be (no consumer is live, or Consul's word is not to be trusted):
  `compute_assignment` is skipped, and its log says why;
- a step of a rebalance was written: `advance_state` succeeds, with an Asset event;
- ZooKeeper or Consul is out of reach: the tasks that noticed fail, and nothing is written;
- Kafka is out of reach, or a topic is missing or unreadable: `fetch_partitions` fails, the run goes on with the
  other topics, and when their work is done it fails too;
- a topic is stuck: `advance_state` fails, saying whom to isolate.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from airflow.sdk import Asset, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from muster.airflow.abandoned import stop_abandoned
from muster.airflow.connections import consul_settings, kafka_settings, status_token, zookeeper_settings
from muster.airflow.stats import CoordinatorStats
from muster.coordinator.coordinator import Coordinator, open_coordinator
from muster.coordinator.reports import AdvanceReport, Change
from muster.edges.consul import ConsulError, Discovery
from muster.edges.zookeeper import ZooKeeperError
from muster.settings.clusters import ClusterSettings, load_clusters

log = logging.getLogger(__name__)

SHOWN_REASONS = 5
SHOWN_CHANGES = 50
"""Longer lists of changes are cut in XComs and Asset events: bulk data stays in ZooKeeper."""

REPORT = "report"
"""XCom key under which each task leaves what it found."""


@contextmanager
def _coordinator(cluster: ClusterSettings) -> Iterator[Coordinator]:
    with (
        CoordinatorStats(cluster.name).reading(),
        open_coordinator(
            cluster,
            zookeeper_settings(cluster.zookeeper),
            consul_settings(cluster.consul),
            kafka_settings(cluster.kafka),
            status_token(cluster.status),
        ) as coordinator,
    ):
        yield coordinator


def fetch_partitions(name: str, context: Context) -> None:
    """Bring the partition lists in ZooKeeper up to date with Kafka.

    Raises `AirflowFailException` when the work that could be done is done and something is wrong, naming it.
    """
    with _coordinator(load_clusters()[name]) as coordinator:
        report = coordinator.fetch_partitions()
    CoordinatorStats(name).partitions(report)
    context["ti"].xcom_push(REPORT, report.as_dict())
    log.info("%d topic(s) in Kafka belong to cluster %s", report.topics, name)
    for topic in report.new_topics:
        log.info("topic %s: new", topic)
    for topic, partitions in report.added.items():
        log.info("topic %s: partitions %s are new", topic, _shown(partitions))
    for topic, partitions in report.removed.items():
        log.warning("topic %s: partitions %s are gone from Kafka", topic, _shown(partitions))
    if report.racks:
        log.info("topic(s) %s: the racks of partitions' leaders changed", _shown(report.racks))
    _warn_of(report.warnings)
    if report.kafka_error:
        raise AirflowFailException(report.kafka_error)
    _fail_with(report.errors.values())


def fetch_consumers(name: str, context: Context) -> None:
    """See who is live; with nothing to do, wait up to the cluster's tick for something to do.

    Before that, consumers are stopped whose task a person ended unnoticed, see `muster.airflow.abandoned`.
    """
    cluster = load_clusters()[name]
    consul = consul_settings(cluster.consul)
    stop_abandoned(Discovery(consul, cluster.name, cluster.consul_service), context["ti"].get_task_states)
    with _coordinator(cluster) as coordinator:
        report = coordinator.fetch_consumers(cluster.tick)
    CoordinatorStats(name).consumers(report)
    context["ti"].xcom_push(REPORT, report.as_dict())
    if not report.trusted:
        log.warning("after %.1f s: %s", report.waited, report.doubt)
        return
    isolated = f", isolated: {', '.join(report.isolated)}" if report.isolated else ""
    log.info("after %.1f s (%s): %d live consumer(s)%s", report.waited, report.woke, report.live, isolated)


def compute_assignment(name: str, context: Context) -> bool:
    """Say whether `advance_state` has something to do, and what; writes nothing.

    Raises `AirflowSkipException` while the status quo must be kept, and `AirflowFailException` if there is
    nothing to do but something is wrong.
    """
    stats = CoordinatorStats(name)
    with _coordinator(load_clusters()[name]) as coordinator, stats.stopwatch() as passed:
        plan = coordinator.compute_assignment()
    stats.plan(plan, sum(passed))
    context["ti"].xcom_push(REPORT, plan.as_dict())
    _warn_of(plan.warnings)
    if plan.shadow is not None:
        log.log(logging.WARNING if plan.shadow.error else logging.INFO, "%s", plan.shadow)
    if plan.needed:
        for topic, step in plan.topics.items():
            log.info("topic %s: %s", topic, step)
        log.info("%d partition(s) to move%s", plan.moves, _because(plan.reasons))
        return True
    _fail_with([*plan.errors.values(), *earlier_trouble(context)])
    if plan.held:
        raise AirflowSkipException(f"status quo kept: {plan.held}")
    log.info("nothing to do")
    return False


def advance_state(name: str, asset: Asset, context: Context) -> dict[str, Any]:
    """Carry the topics on through their states, and leave an Asset event about what was written.

    Raises `AirflowFailException` naming what is stuck or wrong, and `AirflowSkipException` if nothing was
    written. Airflow drops the Asset events of a failed task. So a run that wrote something and met trouble
    succeeds with the trouble in its log, and the next run, two seconds later, fails with it: a rebalance is never
    missing from the audit.
    """
    cluster = load_clusters()[name]
    changes: list[Change] = []
    trouble: list[str] = []
    with _coordinator(cluster) as coordinator:
        try:
            report = coordinator.advance(cluster.advance_budget, changes.append)
        except (ConsulError, ZooKeeperError) as error:
            if not changes:
                raise
            report = None
            trouble.append(str(error))
    CoordinatorStats(name).advanced(changes, report)
    if report is not None:
        trouble += [*report.stuck, *report.errors.values()]
        _warn_of(report.warnings)
        for line in report.waiting:
            log.info("waiting: %s", line)
        if not report.stable:
            log.info("not all topics are Stable yet; the next run goes on")
    trouble += earlier_trouble(context)
    if not changes:
        _fail_with(trouble)
        raise AirflowSkipException(_idle(report))
    for line in trouble:
        log.error("%s", line)
    event = rebalance_event(name, changes, trouble)
    log.info("%s", event["summary"])
    context["outlet_events"][asset].extra = event
    return event


def rebalance_event(name: str, changes: list[Change], trouble: list[str]) -> dict[str, Any]:
    """The extra of an Asset event: what changed in a run and why, small enough to be looked at."""
    moved = sum(len(change.moves) for change in changes)
    topics = sorted({change.topic for change in changes})
    reasons = sorted({change.reason for change in changes if change.reason})
    return {
        "cluster": name,
        "summary": f"{len(changes)} step(s) in topic(s) {_shown(topics)}, {moved} partition(s) to move"
        + _because(reasons),
        "reasons": reasons[:SHOWN_CHANGES],
        "topics": len(topics),
        "moved": moved,
        "steps": len(changes),
        "changes": [change.as_dict() for change in changes[:SHOWN_CHANGES]],
        "trouble": trouble[:SHOWN_CHANGES],
    }


def earlier_trouble(context: Context) -> list[str]:
    """What `fetch_partitions` of the same run found wrong."""
    report = context["ti"].xcom_pull(task_ids="fetch_partitions", key=REPORT)
    if not isinstance(report, dict):
        return []
    kafka_error = [report["kafka_error"]] if report.get("kafka_error") else []
    return [*kafka_error, *report.get("errors", {}).values()]


def _warn_of(warnings: Iterable[str]) -> None:
    """Show what is wrong without failing the task: the plan is made all the same."""
    for warning in warnings:
        log.warning("%s", warning)


def _idle(report: AdvanceReport | None) -> str:
    if report is not None and report.held:
        return f"status quo kept: {report.held}"
    if report is not None and report.waiting:
        return f"nothing written; waiting: {'; '.join(report.waiting[:SHOWN_CHANGES])}"
    return "nothing written: somebody else was faster, or the need has gone"


def _fail_with(trouble: Iterable[str]) -> None:
    if found := list(dict.fromkeys(trouble)):
        raise AirflowFailException("\n".join(found))


def _because(reasons: list[str]) -> str:
    more = "; ..." if len(reasons) > SHOWN_REASONS else ""
    return f" ({'; '.join(reasons[:SHOWN_REASONS])}{more})" if reasons else ""


def _shown(values: Iterable[Any]) -> str:
    texts = [str(value) for value in values]
    more = f" and {len(texts) - SHOWN_CHANGES} more" if len(texts) > SHOWN_CHANGES else ""
    return ", ".join(texts[:SHOWN_CHANGES]) + more
