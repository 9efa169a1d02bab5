"""What the DAG `muster_stuck__[cluster]` does besides asking: finds out whom to ask about, isolates, looks again."""

from __future__ import annotations

import logging
import time
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from muster.airflow.connections import consul_settings, zookeeper_settings
from muster.airflow.coordination import open_cluster
from muster.airflow.lever_events import leave_event
from muster.airflow.lever_forms import store
from muster.airflow.run_notes import leave_note
from muster.coordinator.stuck import holds_up, questions
from muster.core.readable import readable
from muster.edges.consul import Discovery
from muster.edges.zookeeper import TopicStore
from muster.levers import isolation
from muster.levers.audit import recorded
from muster.levers.outcome import Word
from muster.settings.clusters import load_clusters

log = logging.getLogger(__name__)

ISOLATE = "Isolate"
WAIT = "Wait"


def find_questions(name: str, context: Context) -> list[dict[str, Any]]:
    """The arguments of one `AskToIsolate` a consumer; `AirflowSkipException` if there is nobody to ask about."""
    with open_cluster(load_clusters()[name], context) as coordinator:
        found = questions(coordinator)
    if not found:
        raise AirflowSkipException("nobody holds anything up any more")
    return [
        {
            "consumer": each.consumer,
            "subject": each.subject,
            "body": each.body,
            "options": [f"{ISOLATE} {each.consumer}", WAIT],
        }
        for each in found
    ]


def isolate(name: str, consumer: str, who: str, seconds: float, context: Context) -> dict[str, Any]:
    """Isolate `consumer` because `who` said so when asked. Raises `LeverError` if that cannot be done any more.

    It stands in Consul, in the cluster's history, on the run as its note and as an event of the levers' Asset.
    """
    cluster = load_clusters()[name]
    why = f"held up a rebalance for longer than {seconds:g} s; approved when asked"
    word = Word(who, why, time.time())
    discovery = Discovery.of(consul_settings(cluster.consul), cluster)
    outcome = isolation.isolate(discovery, cluster, consumer, word)
    via = f"{context['ti'].dag_id} {context['run_id']}"
    outcome = recorded(outcome, lambda: store(cluster), via)
    for line in outcome.lines:
        log.info("%s", line)
    leave_note(context, outcome.lines[0])
    leave_event(context, "isolate", outcome.values, outcome.lines[0])
    return dict(outcome.values)


def still_holds_up(name: str, consumer: str) -> bool:
    """Whether some topic still waits for `consumer`. Raises `ZooKeeperError`."""
    cluster = load_clusters()[name]
    with TopicStore(zookeeper_settings(cluster.zookeeper), cluster.name, read_only=True) as store:
        snapshots, _ = readable(store.snapshots())
    return holds_up(snapshots.values(), consumer)
