"""Subscribing a cluster to topics and unsubscribing it: what the DAGs of `dags/muster_topics.py` do.

The levers are in `muster.levers.topics`; here they get their form and are told who pulls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from muster.airflow import lever_forms as forms
from muster.settings.clusters import Clusters

if TYPE_CHECKING:
    from airflow.sdk import Context

NAME = "name"
PATTERN = "pattern"


def form(clusters: Clusters) -> dict[str, Param]:
    """Cluster, topic, whether that is a name or a pattern, and reason."""
    return {
        "cluster": forms.cluster_field(clusters),
        "topic": forms.topic_field(clusters),
        "kind": Param(
            NAME,
            type="string",
            enum=[NAME, PATTERN],
            title="Name or pattern",
            description="A pattern is a regular expression for whole names, such as flights-.*",
        ),
        "reason": forms.reason_field(
            "Shown with the rebalance that follows, and kept in the cluster's history"
        ),
    }


def subscribe(context: Context) -> dict[str, Any]:
    """Subscribe what the run's parameters name. Raises `LeverError` if it is subscribed already."""
    from muster.levers import topics  # noqa: PLC0415 - the DAG file stays light

    cluster, word = forms.asked_cluster(context), forms.word(context)
    topic, pattern = forms.asked(context, "topic"), forms.asked(context, "kind") == PATTERN
    return forms.told(
        context, cluster, topics.subscribe(forms.discovery(cluster), cluster, topic, pattern, word)
    )


def unsubscribe(context: Context) -> dict[str, Any]:
    """Unsubscribe what the run's parameters name. Raises `LeverError` if it is not subscribed."""
    from muster.levers import topics  # noqa: PLC0415

    cluster, word = forms.asked_cluster(context), forms.word(context)
    topic, pattern = forms.asked(context, "topic"), forms.asked(context, "kind") == PATTERN
    discovery = forms.discovery(cluster)
    with forms.store(cluster) as store:
        outcome = topics.unsubscribe(discovery, store, cluster, topic, pattern, word)
    return forms.told(context, cluster, outcome)
