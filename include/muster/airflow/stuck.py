"""What the DAG `muster_stuck__[cluster]` does besides asking: finds the consumers, isolates, looks again."""

from __future__ import annotations

import time
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from muster.airflow import lever_forms as forms
from muster.airflow.coordination import open_cluster, open_edges
from muster.coordinator.stuck import questions
from muster.levers import isolation
from muster.levers.outcome import Word
from muster.settings.clusters import load_clusters

ISOLATE = "Isolate"
WAIT = "Wait"


def find_questions(name: str, context: Context) -> list[dict[str, Any]]:
    """The arguments of one `AskToIsolate` a consumer; `AirflowSkipException` if there is none to ask about."""
    with open_cluster(load_clusters()[name], context) as coordinator:
        found = questions(coordinator)
    if not found:
        raise AirflowSkipException("no consumer holds anything up any more")
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
    outcome = isolation.isolate(forms.discovery(cluster), cluster, consumer, Word(who, why, time.time()))
    return forms.told(context, cluster, outcome, "isolate")


def still_holds_up(name: str, consumer: str) -> bool:
    """Whether some topic still waits for `consumer`. Raises `ZooKeeperError` or `ConsulError`."""
    with open_edges(load_clusters()[name]) as coordinator:
        return coordinator.waits_for(consumer)
