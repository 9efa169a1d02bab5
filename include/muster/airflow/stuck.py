"""What the DAG `muster_stuck__[cluster]` does besides asking: finds the consumers, isolates, looks again."""

from __future__ import annotations

import time
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from muster.airflow.command_dags import carry_out_in_run
from muster.airflow.coordination import open_cluster, open_edges
from muster.commands.command import Actor
from muster.commands.table import COMMANDS
from muster.coordinator.stuck import questions
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
    """Isolate `consumer`, as `who` answered when asked. Raises `CommandError` if that cannot be done any more."""
    why = f"held up a rebalance for longer than {seconds:g} s; approved when asked"
    actor = Actor(who, why, time.time())
    return carry_out_in_run(
        COMMANDS["isolate"], load_clusters()[name], actor, {"consumer": consumer}, context
    )


def still_holds_up(name: str, consumer: str) -> bool:
    """Whether some topic still waits for `consumer`. Raises `ZooKeeperError` or `ConsulError`."""
    with open_edges(load_clusters()[name]) as coordinator:
        return coordinator.waits_for(consumer)
