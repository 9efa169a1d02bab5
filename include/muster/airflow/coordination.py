"""What the four tasks of a coordinator run do: open the edges, let `muster.coordinator` work, say what came of it.

The outcome of a task is chosen for what a person sees in the grid of runs:

- nothing to do: `advance_state` is skipped;
- something may have to be done but must not be (the cluster is paused, no consumer is live, or what Consul
  answers is in doubt): `compute_assignment` is skipped, and its log says why; `fetch_partitions` too while paused;
- a step of a rebalance was written: `advance_state` succeeds, with an Asset event;
- ZooKeeper or Consul is out of reach: the tasks that noticed fail, and nothing is written;
- Kafka is out of reach, or a topic is missing or unreadable: `fetch_partitions` fails, the run goes on with the
  other topics, and when their work is done it fails too;
- the assignor fails: what needs no plan is done, and `compute_assignment` fails if that was nothing, else
  `advance_state` (of this run or, if this one wrote something, of the next);
- a `compute_assignment` that waited in the triggerer succeeds, and `advance_state` is skipped or fails in its place;
- a topic is stuck: `advance_state` fails and names the consumer to isolate.

Each failure calls the notifiers of `on_stuck`, see `muster.airflow.alerts`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from typing import Any

from airflow.sdk import Asset, AssetAlias, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred
from pydantic import JsonValue

from muster.airflow.abandoned import stop_abandoned
from muster.airflow.alerts import REPEATS
from muster.airflow.connections import CONNECTIONS
from muster.airflow.run_notes import leave_note
from muster.airflow.stats import CoordinatorStats
from muster.airflow.waiting import ChangeTrigger, ComputeAssignment, in_task, quiet_wait
from muster.airflow.watcher import Watched
from muster.coordinator.coordinator import Coordinator
from muster.coordinator.opening import open_coordinator
from muster.coordinator.reports import SHOWN_MOVES, AdvanceReport, Change, ConsumersReport
from muster.core.model import State
from muster.edges.consul import ConsulCluster, ConsulError, WaitIndex
from muster.edges.zookeeper import TopicStore, ZooKeeperError
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import Clusters, load_clusters

log = logging.getLogger(__name__)

SHOWN_REASONS = 5
SHOWN_CHANGES = 50
"""Longer lists of changes are cut in XComs and Asset events: bulk data stays in ZooKeeper."""

HISTORY_PRUNED_EVERY = 100
"""Entries of a cluster's history from one pruning to the next. It looks at every entry there is, 5,000 with the
default retention."""

REPORT = "report"
"""XCom key under which each task leaves what it found."""


@contextmanager
def open_cluster(cluster: ClusterSettings, context: Context) -> Iterator[Coordinator]:
    """Open a coordinator of `cluster` for a run, which is named in the history; see `open_edges`."""
    with CoordinatorStats(cluster.name).reading(), open_edges(cluster, run_of(context)) as coordinator:
        yield coordinator


def open_edges(cluster: ClusterSettings, by: str = "") -> AbstractContextManager[Coordinator]:
    """Open a coordinator of `cluster`, with the connections that Airflow has for it; see `open_coordinator`."""
    return open_coordinator(
        cluster,
        CONNECTIONS.zookeeper(cluster.zookeeper),
        CONNECTIONS.consul(cluster.consul),
        CONNECTIONS.kafka(cluster.kafka),
        CONNECTIONS.status_pages(cluster.status),
        by=by,
    )


def run_of(context: Context) -> str:
    """Name the run that does something, as history and Asset events do: by its DAG and its id."""
    return f"{context['ti'].dag_id} {context['run_id']}"


def fetch_partitions(name: str, context: Context) -> None:
    """Bring the partition lists in ZooKeeper up to date with Kafka.

    Raises `AirflowFailException` when the work that could be done is done and something is wrong, naming it, and
    `AirflowSkipException` while the cluster is paused.
    """
    with open_cluster(load_clusters()[name], context) as coordinator:
        report = coordinator.fetch_partitions()
    CoordinatorStats(name).partitions(report)
    context["ti"].xcom_push(REPORT, report.as_dict())
    if report.held:
        raise AirflowSkipException(f"status quo kept: {report.held}")
    log.info("%d topic(s) in Kafka belong to cluster %s", report.topics, name)
    for topic in report.new_topics:
        log.info("topic %s: new", topic)
    for topic in report.recreated:
        log.warning(
            "topic %s: it was deleted and created again in Kafka; it is read from its beginning", topic
        )
    for topic, partitions in report.added.items():
        log.info("topic %s: partitions %s are new", topic, _shown(partitions))
    for topic, partitions in report.removed.items():
        log.warning("topic %s: partitions %s are gone from Kafka", topic, _shown(partitions))
    if report.racks:
        log.info("topic(s) %s: the racks of partitions' leaders changed", _shown(report.racks))
    _warn_of(report.warnings)
    if report.kafka_error:
        raise AirflowFailException(report.kafka_error)
    _fail_with(report.errors.values(), context)


def fetch_consumers(name: str, context: Context) -> None:
    """Report the live consumers. It opens Consul alone.

    Before that, it stops consumers whose task ended while no trigger was watching, see `muster.airflow.abandoned`.
    """
    cluster = load_clusters()[name]
    consul = ConsulCluster.of(CONNECTIONS.consul(cluster.consul), cluster)
    stats = CoordinatorStats(name)
    with stats.reading():
        stop_abandoned(consul, context["ti"].get_task_states)
        report = ConsumersReport.of(consul.catalog.members())
    stats.consumers(report)
    context["ti"].xcom_push(REPORT, report.as_dict())
    if not report.trusted:
        log.warning("%s", report.doubt)
        return
    isolated = f", isolated: {', '.join(report.isolated)}" if report.isolated else ""
    log.info("%d live consumer(s)%s", report.live, isolated)


def compute_assignment(name: str, when_stuck: AssetAlias, stuck: Asset, context: Context) -> bool:
    """Say whether `advance_state` has something to do, and what; writes nothing.

    With nothing to do, wait up to the cluster's `long_poll_timeout` for something, or defer until there may be
    something (see `muster.airflow.waiting`).

    If a topic is stuck and no question is open about it, `stuck` gets an event through the outlet `when_stuck`.

    Raises `AirflowSkipException` while the status quo must be kept, and `AirflowFailException` if there is
    nothing to do but something is wrong.
    """
    clusters = load_clusters()
    cluster = clusters[name]
    stats = CoordinatorStats(name)
    waits = in_task(clusters)
    began = time.monotonic()
    with open_cluster(cluster, context) as coordinator:
        # Taken before the reading, so a change in between ends the wait at once.
        index = WaitIndex() if waits else coordinator.catalog.wait(WaitIndex(), 0.0)
        plan = coordinator.compute_assignment(cluster.long_poll_timeout if waits else 0.0)
        change = None if waits or plan.needed else coordinator.next_change()
    stats.plan(plan, time.monotonic() - began - plan.waited)
    context["ti"].xcom_push(REPORT, plan.as_dict())
    log.info("after %.1f s: %s", plan.waited, plan.woke)
    _warn_of(plan.warnings)
    if plan.assignor:
        log.info("planned with %s, instead of the one in the settings", plan.assignor)
    if plan.asked:
        log.info("%s", plan.asked)
    if plan.shadow is not None:
        log.log(logging.WARNING if plan.shadow.error else logging.INFO, "%s", plan.shadow)
    if plan.stuck and not question_is_open(name, context):
        extra: dict[str, JsonValue] = {"cluster": name, "stuck": list(plan.stuck[:SHOWN_CHANGES])}
        context["outlet_events"][when_stuck].add(stuck, extra=extra)
    if plan.needed:
        for topic, step in plan.topics.items():
            log.info("topic %s: %s", topic, step)
        _warn_of(plan.stuck)
        log.info("%d partition(s) to move%s", plan.moves, _because(plan.reasons))
        return True
    if not waits:
        quiet = quiet_wait(clusters, cluster)
        wait = quiet if change is None else max(0.0, min(quiet, change))
        # What there is of trouble, `advance_state` meets as well, and fails with it.
        due = wait < quiet or bool(plan.trouble)
        held = f"status quo kept: {plan.held}" if plan.held else "nothing to do"
        log.info("%s; waiting in the triggerer, at most %.0f s", held, wait)
        seen = [index.seen_health, index.seen_keys]
        raise TaskDeferred(
            trigger=ChangeTrigger(asdict(Watched.of(cluster)), seen, time.time() + wait, due),
            method_name=ComputeAssignment.execute_complete.__name__,
        )
    _fail_with(plan.trouble, context, earlier_trouble(context))
    if plan.held:
        raise AirflowSkipException(f"status quo kept: {plan.held}")
    log.info("nothing to do")
    return False


def question_is_open(name: str, context: Context) -> bool:
    """Tell whether a run of `muster_stuck__[cluster]` waits for an answer, or lets time pass after one."""
    unfinished = ["queued", "running"]
    return bool(context["ti"].get_dr_count(dag_id=f"muster_stuck__{name}", states=unfinished))


def advance_state(name: str, asset: Asset, context: Context) -> dict[str, Any]:
    """Carry the topics on through their states, and leave an Asset event about what was written.

    Raises `AirflowFailException` naming what is stuck or wrong, and `AirflowSkipException` if nothing was
    written. Airflow drops the Asset events of a failed task. So a run that wrote something and met trouble
    succeeds with the trouble in its log, and the next run, two seconds later, fails with it: a rebalance is never
    missing from the audit.
    """
    clusters = load_clusters()
    cluster = clusters[name]
    changes: list[Change] = []
    trouble: list[str] = []
    with open_cluster(cluster, context) as coordinator:
        try:
            report = coordinator.advance(cluster.advance_budget, changes.append)
        except (ConsulError, ZooKeeperError) as error:
            if not changes:
                raise
            report = None
            trouble.append(str(error))
    CoordinatorStats(name).advanced(changes, report)
    prune_history(clusters, name, len(changes))
    if report is not None:
        trouble += report.trouble
        _warn_of(report.warnings)
        for line in report.waiting:
            log.info("waiting: %s", line)
        if not report.stable:
            log.info("not all topics are Stable yet; the next run goes on")
    earlier = earlier_trouble(context)
    if not changes:
        if trouble or earlier:
            leave_note(context, "\n".join(dict.fromkeys([*trouble, *earlier])))
        _fail_with(trouble, context, earlier)
        raise AirflowSkipException(_idle(report))
    trouble += earlier
    for line in trouble:
        log.error("%s", line)
    event = rebalance_event(name, changes, trouble, run_of(context))
    log.info("%s", event["summary"])
    leave_note(context, "\n".join([event["summary"], *trouble]))
    context["outlet_events"][asset].extra = event
    return event


def prune_history(clusters: Clusters, name: str, written: int) -> None:
    """Prune the history of cluster `name` if one of the last `written` entries was a hundredth.

    The history grows only when something is written, so a quiet cluster costs nothing. An error is a warning, because
    what the run is for is done. With a wrong `retention` nothing is deleted.
    """
    kept = clusters.retention
    if kept is None or not written:
        return
    try:
        with TopicStore(CONNECTIONS.zookeeper(clusters[name].zookeeper), name, read_only=True) as store:
            newest = store.history(limit=1).records[:1]
            if not newest or newest[0].number % HISTORY_PRUNED_EVERY >= written:
                return
            pruned = store.prune_history(
                keep_seconds=kept.history,
                keep_entries=kept.history_entries,
                keep_bytes=kept.history_megabytes * 2**20,
            )
    except ZooKeeperError as error:
        log.warning("the history of cluster %s was not pruned: %s", name, error)
    else:
        log.info("%d old entries of the history of cluster %s were deleted", pruned, name)


def rebalance_event(name: str, changes: list[Change], trouble: list[str], run: str) -> dict[str, Any]:
    """Build the extra of an Asset event: what changed in a run, why and how long it took, small enough to be read.

    `seconds` is how long the slowest rebalance took that ended in this run, from its beginning (perhaps in an earlier
    run); None if none ended. `run` is the one that did it; `reasons` name who or what caused it.
    """
    moved = sum(len(change.moves) for change in changes)
    topics = sorted({change.topic for change in changes})
    reasons = sorted({part for change in changes for part in change.reason.split("; ") if part})
    ended = [change.lasted for change in changes if change.after is State.STABLE and change.lasted]
    seconds = round(max(ended), 3) if ended else None
    shown = changes[:SHOWN_CHANGES]
    return {
        "cluster": name,
        "run": run,
        "summary": f"{len(changes)} step(s) in topic(s) {_shown(topics)}, {moved} partition(s) to move"
        + (f", {seconds:.1f} s" if seconds else "")
        + _because(reasons),
        "reasons": reasons[:SHOWN_CHANGES],
        "seconds": seconds,
        "topics": len(topics),
        "moved": moved,
        "steps": len(changes),
        "changes": [change.as_dict(SHOWN_MOVES // max(1, len(shown))) for change in shown],
        "trouble": trouble[:SHOWN_CHANGES],
    }


def earlier_trouble(context: Context) -> list[str]:
    """Return what `fetch_partitions` of the same run found wrong."""
    report = context["ti"].xcom_pull(task_ids="fetch_partitions", key=REPORT)
    if not isinstance(report, dict):
        return []
    kafka_error = [report["kafka_error"]] if report.get("kafka_error") else []
    return [*kafka_error, *report.get("errors", {}).values()]


def _warn_of(warnings: Iterable[str]) -> None:
    """Show what is wrong without failing the task: the plan is nevertheless made."""
    for warning in warnings:
        log.warning("%s", warning)


def _idle(report: AdvanceReport | None) -> str:
    if report is not None and report.asked:
        return f"{report.asked}; there is nothing to move"
    if report is not None and report.held:
        return f"status quo kept: {report.held}"
    if report is not None and report.waiting:
        return f"nothing written; waiting: {'; '.join(report.waiting[:SHOWN_CHANGES])}"
    return "no write: the topic changed concurrently or is already up to date"


def _fail_with(trouble: Iterable[str], context: Context, earlier: Iterable[str] = ()) -> None:
    """Fail if there is `trouble`, or `earlier` trouble, which another task of the run has failed with already."""
    own, known = list(dict.fromkeys(trouble)), list(dict.fromkeys(earlier))
    if set(own) <= set(known) and known:
        context["ti"].xcom_push(REPEATS, True)
    if found := list(dict.fromkeys([*own, *known])):
        raise AirflowFailException("\n".join(found))


def _because(reasons: list[str]) -> str:
    more = "; ..." if len(reasons) > SHOWN_REASONS else ""
    return f" ({'; '.join(reasons[:SHOWN_REASONS])}{more})" if reasons else ""


def _shown(values: Iterable[Any]) -> str:
    texts = [str(value) for value in values]
    more = f" and {len(texts) - SHOWN_CHANGES} more" if len(texts) > SHOWN_CHANGES else ""
    return ", ".join(texts[:SHOWN_CHANGES]) + more
