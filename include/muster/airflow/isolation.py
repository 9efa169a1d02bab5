"""Isolating and restoring a consumer by hand: what the DAGs `muster_isolate` and `muster_restore` do.

The levers are in `muster.levers.isolation`; here they get their form and are told who pulls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.airflow import lever_forms as forms
from muster.settings.clusters import Clusters

if TYPE_CHECKING:
    from airflow.sdk import Context, Param


def form(clusters: Clusters) -> dict[str, Param]:
    """The fields of the trigger form: cluster (a drop-down list), consumer (with proposals) and reason."""
    return {
        "cluster": forms.cluster_field(clusters),
        "consumer": forms.consumer_field(clusters),
        "reason": forms.reason_field("Shown as the reason of the isolation"),
    }


def isolate(context: Context) -> dict[str, Any]:
    """Isolate the consumer that the run's parameters name. Raises `LeverError` if that cannot be done."""
    from muster.levers import isolation  # noqa: PLC0415 - the DAG file stays light

    cluster, word = forms.asked_cluster(context), forms.word(context)
    consumer = forms.asked(context, "consumer")
    return forms.told(context, cluster, isolation.isolate(forms.discovery(cluster), cluster, consumer, word))


def restore(context: Context) -> dict[str, Any]:
    """End the isolation of the consumer that the run's parameters name. Raises `LeverError` if there is none."""
    from muster.levers import isolation  # noqa: PLC0415

    cluster, word = forms.asked_cluster(context), forms.word(context)
    consumer = forms.asked(context, "consumer")
    return forms.told(context, cluster, isolation.restore(forms.discovery(cluster), cluster, consumer, word))
