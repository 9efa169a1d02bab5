"""Pausing, resuming and rebalancing a cluster, and changing its assignor: what `dags/muster_coordination.py` does.

The levers are in `muster.levers`; here they get their forms and are told who pulls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from muster.airflow import lever_forms as forms
from muster.levers.outcome import LeverError
from muster.settings.clusters import Clusters

if TYPE_CHECKING:
    from airflow.sdk import Context

FROM_FILE = "(as in clusters.yaml)"
"""The choice in the form that takes an earlier choice back."""


def form(clusters: Clusters) -> dict[str, Param]:
    """Cluster and reason."""
    return {
        "cluster": forms.cluster_field(clusters),
        "reason": forms.reason_field("Shown wherever the cluster is, and kept in its history"),
    }


def assignor_form(clusters: Clusters) -> dict[str, Param]:
    """Cluster, assignor (built-in ones proposed), its options as JSON, and reason."""
    return {
        "cluster": forms.cluster_field(clusters),
        "assignor": forms.assignor_field(FROM_FILE),
        "options": Param(
            {},
            type="object",
            title="Options",
            description='Of the assignor, such as {"budget": 10}; docs/assignors.md has them',
        ),
        "reason": forms.reason_field("Shown wherever the assignor is"),
    }


def pause(context: Context) -> dict[str, Any]:
    """Pause the cluster that the run's parameters name. Raises `LeverError` if it is paused."""
    from muster.levers import coordination  # noqa: PLC0415 - the DAG file stays light

    cluster, word = forms.asked_cluster(context), forms.word(context)
    return forms.told(context, cluster, coordination.pause(forms.discovery(cluster), cluster, word))


def resume(context: Context) -> dict[str, Any]:
    """Resume the cluster that the run's parameters name. Raises `LeverError` if it is not paused."""
    from muster.levers import coordination  # noqa: PLC0415

    cluster, word = forms.asked_cluster(context), forms.word(context)
    return forms.told(context, cluster, coordination.resume(forms.discovery(cluster), cluster, word))


def rebalance(context: Context) -> dict[str, Any]:
    """Ask for a rebalance of the cluster that the run's parameters name. Raises `LeverError` if it is paused."""
    from muster.levers import coordination  # noqa: PLC0415

    cluster, word = forms.asked_cluster(context), forms.word(context)
    return forms.told(context, cluster, coordination.rebalance_now(forms.discovery(cluster), cluster, word))


def assignor(context: Context) -> dict[str, Any]:
    """Choose the assignor that the run's parameters name, or take a choice back. Raises `LeverError` if that
    assignor is unavailable, or if there is no choice to take back."""
    from muster.levers.assignor import clear_assignor, set_assignor  # noqa: PLC0415

    cluster, word = forms.asked_cluster(context), forms.word(context)
    discovery, name = forms.discovery(cluster), forms.asked(context, "assignor")
    options = context["params"]["options"] or {}
    if not isinstance(options, dict):
        raise LeverError(f'options are {str(options)[:100]!r}; give a JSON object, such as {{"budget": 10}}')
    if name != FROM_FILE:
        outcome = set_assignor(discovery, cluster, name, options, word)
    elif options:
        raise LeverError(f"options belong to an assignor; leave them empty with {FROM_FILE}")
    else:
        outcome = clear_assignor(discovery, cluster, word)
    return forms.told(context, cluster, outcome)
