"""Asset events of levers: `muster://[CLUSTER]/levers` has one for each lever that a person pulled through a DAG.

The cluster is only known when the form is filled in, so the tasks name an alias as their outlet, and the event goes
to the Asset of the cluster. Other DAGs can be scheduled on it, as on the rebalances.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Asset, AssetAlias, Context

LEVERS = AssetAlias(name="muster_levers", group="muster")
"""The outlet of a task that pulls a lever."""


def levers(cluster: str) -> Asset:
    """The Asset whose events are the levers pulled in a cluster."""
    return Asset(name=f"muster_{cluster}_levers", uri=f"muster://{cluster}/levers", group="muster")


def leave_event(context: Context, lever: str, values: Mapping[str, Any], summary: str) -> None:
    """Leave an event about `lever`, if the task has the outlet; `values` name `cluster` and `who` at least."""
    if LEVERS not in context["task"].outlets:
        return
    extra = {
        "lever": lever,
        "summary": summary,
        **values,
        "run": f"{context['ti'].dag_id} {context['run_id']}",
    }
    context["outlet_events"][LEVERS].add(levers(str(values["cluster"])), extra=extra)
