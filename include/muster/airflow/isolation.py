"""Isolating and restoring a consumer by hand: what the DAGs `muster_isolate` and `muster_restore` do.

Isolation is a key in Consul with who, when and why. The coordinator gives an isolated consumer's partitions to the
others, and a consumer that can still hear closes them by itself.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from muster.settings.clusters import Clusters, ClusterSettings, load_clusters

if TYPE_CHECKING:
    from airflow.sdk import Context

    from muster.edges.consul import Discovery

log = logging.getLogger(__name__)


class IsolationError(ValueError):
    """The consumer cannot be isolated or restored; the message says which ones there are."""


def form(clusters: Clusters) -> dict[str, Param]:
    """The fields of the trigger form: cluster (a drop-down list), consumer (with proposals) and reason."""
    names = sorted(clusters.clusters)
    configured = [consumer for name in names for consumer in clusters[name].consumer_ids()]
    choice: dict[str, Any] = {
        "enum": names or ["(none)"],
        "title": "Cluster",
        "description": "As in clusters.yaml",
    }
    if len(names) == 1:
        choice["default"] = names[0]
    return {
        "cluster": Param(type="string", **choice),
        "consumer": Param(
            type="string",
            minLength=1,
            title="Consumer",
            description="Its id, as registered in Consul",
            examples=configured or None,
        ),
        "reason": Param(
            type="string", minLength=1, title="Reason", description="Shown to whoever asks why it is isolated"
        ),
    }


def isolate(context: Context) -> dict[str, Any]:
    """Isolate the consumer that the run's parameters name. Raises `IsolationError` if there is no such consumer,
    or if it is isolated already."""
    cluster, consumer, reason = _asked(context)
    who, at = _who(context), time.time()
    discovery = _discovery(cluster)
    check_known(discovery, cluster, consumer)
    if not discovery.isolate(consumer, by=who, why=reason, at=at):
        entry = discovery.isolated().get(consumer)
        by = f" by {entry.by}: {entry.why}" if entry else ""
        raise IsolationError(
            f"consumer {consumer!r} of cluster {cluster.name!r} is isolated already{by}; restore it first to give "
            "another reason"
        )
    log.info("consumer %s of cluster %s is isolated: %s (by %s)", consumer, cluster.name, reason, who)
    log.info("its partitions go to the other consumers; muster_restore takes it back")
    return {"cluster": cluster.name, "consumer": consumer, "reason": reason, "who": who, "at": at}


def restore(context: Context) -> dict[str, Any]:
    """End the isolation of the consumer that the run's parameters name.

    Raises `IsolationError` if there is no such consumer, or if it is not isolated by Muster.
    """
    cluster, consumer, reason = _asked(context)
    who = _who(context)
    discovery = _discovery(cluster)
    check_known(discovery, cluster, consumer)
    if not discovery.restore(consumer):
        isolated = ", ".join(sorted(discovery.isolated())) or "none"
        registration = discovery.members().registered.get(consumer)
        maintenance = registration is not None and registration.maintenance
        raise IsolationError(
            f"consumer {consumer!r} of cluster {cluster.name!r} is not isolated; isolated are: {isolated}"
            + ("; it is in Consul's maintenance mode, which ends with 'consul maint'" if maintenance else "")
        )
    log.info("consumer %s of cluster %s is restored: %s (by %s)", consumer, cluster.name, reason, who)
    return {"cluster": cluster.name, "consumer": consumer, "reason": reason, "who": who, "at": time.time()}


def check_known(discovery: Discovery, cluster: ClusterSettings, consumer: str) -> None:
    """Raise `IsolationError` unless `consumer` is registered, configured or isolated already."""
    registered = set(discovery.members().registered)
    known = registered | set(cluster.consumer_ids()) | set(discovery.isolated())
    if consumer not in known:
        raise IsolationError(
            f"cluster {cluster.name!r} has no consumer {consumer!r}; registered in Consul are: "
            f"{', '.join(sorted(registered)) or 'none'}; configured are: "
            f"{', '.join(cluster.consumer_ids()) or 'none'}"
        )


def _asked(context: Context) -> tuple[ClusterSettings, str, str]:
    params = context["params"]
    reason = str(params["reason"]).strip()
    if not reason:
        raise IsolationError("no reason was given; say why, for whoever wonders later")
    return load_clusters()[str(params["cluster"])], str(params["consumer"]).strip(), reason


def _who(context: Context) -> str:
    return context["dag_run"].triggering_user_name or "airflow"


def _discovery(cluster: ClusterSettings) -> Discovery:
    from muster.airflow.connections import consul_settings  # noqa: PLC0415 - the DAG file stays light
    from muster.edges.consul import Discovery  # noqa: PLC0415

    return Discovery(consul_settings(cluster.consul), cluster.name, cluster.consul_service)
