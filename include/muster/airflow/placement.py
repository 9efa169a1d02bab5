"""Pinning partitions and excluding consumers by hand: what the DAGs of `dags/muster_placement.py` do.

The levers are in `muster.levers.placement`; here they get their forms and are told who pulls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from muster.airflow import lever_forms as forms
from muster.levers.partition_list import PATTERN, parse_partitions
from muster.settings.clusters import Clusters

if TYPE_CHECKING:
    from airflow.sdk import Context

_WHY = "Shown as the reason of where partitions are"


def pin_form(clusters: Clusters) -> dict[str, Param]:
    """Cluster, topic, partitions, the consumer they are to go to, and reason."""
    return {
        "cluster": forms.cluster_field(clusters),
        "topic": forms.topic_field(clusters),
        "partitions": _partitions_field(),
        "consumer": forms.consumer_field(clusters),
        "reason": forms.reason_field(_WHY),
    }


def unpin_form(clusters: Clusters) -> dict[str, Param]:
    """Cluster, topic, partitions and reason."""
    return {name: field for name, field in pin_form(clusters).items() if name != "consumer"}


def exclusion_form(clusters: Clusters) -> dict[str, Param]:
    """Cluster, consumer, the topic it is about, and reason."""
    return {
        "cluster": forms.cluster_field(clusters),
        "consumer": forms.consumer_field(clusters),
        "topic": forms.topic_field(clusters),
        "reason": forms.reason_field(_WHY),
    }


def pin(context: Context) -> dict[str, Any]:
    """Pin what the run's parameters name. Raises `LeverError` if that cannot be done."""
    from muster.levers import placement  # noqa: PLC0415 - the DAG file stays light

    cluster, word = forms.asked_cluster(context), forms.word(context)
    topic, consumer = forms.asked(context, "topic"), forms.asked(context, "consumer")
    partitions = parse_partitions(forms.asked(context, "partitions"))
    discovery = forms.discovery(cluster)
    with forms.store(cluster) as store:
        return forms.told(
            context, cluster, placement.pin(discovery, store, cluster, topic, partitions, consumer, word)
        )


def unpin(context: Context) -> dict[str, Any]:
    """Take the pins back that the run's parameters name. Raises `LeverError` if one is not there."""
    from muster.levers import placement  # noqa: PLC0415

    cluster, word = forms.asked_cluster(context), forms.word(context)
    partitions = parse_partitions(forms.asked(context, "partitions"))
    topic = forms.asked(context, "topic")
    return forms.told(
        context, cluster, placement.unpin(forms.discovery(cluster), cluster, topic, partitions, word)
    )


def exclude(context: Context) -> dict[str, Any]:
    """Exclude the consumer that the run's parameters name. Raises `LeverError` if that cannot be done."""
    from muster.levers import placement  # noqa: PLC0415

    cluster, word = forms.asked_cluster(context), forms.word(context)
    topic, consumer = forms.asked(context, "topic"), forms.asked(context, "consumer")
    discovery = forms.discovery(cluster)
    with forms.store(cluster) as store:
        return forms.told(
            context, cluster, placement.exclude(discovery, store, cluster, consumer, topic, word)
        )


def include(context: Context) -> dict[str, Any]:
    """Take the exclusion back that the run's parameters name. Raises `LeverError` if there is none."""
    from muster.levers import placement  # noqa: PLC0415

    cluster, word = forms.asked_cluster(context), forms.word(context)
    topic, consumer = forms.asked(context, "topic"), forms.asked(context, "consumer")
    return forms.told(
        context, cluster, placement.include(forms.discovery(cluster), cluster, consumer, topic, word)
    )


def _partitions_field() -> Param:
    return Param(
        type="string",
        pattern=PATTERN,
        title="Partitions",
        description="Numbers and ranges between commas, such as 0-3,7",
    )
