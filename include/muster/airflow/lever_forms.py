"""What the DAGs that people trigger by hand have in common: the fields of their forms, and what a run was asked.

The levers themselves are in `muster.levers`. DAG files import this module, so it takes no client of a server with it.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from muster.airflow.lever_events import leave_event
from muster.airflow.run_notes import OURS, leave_note
from muster.levers.outcome import Outcome, Word, brief
from muster.settings.clusters import Clusters, ClusterSettings, load_clusters

if TYPE_CHECKING:
    from airflow.sdk import Context

    from muster.edges.consul import Discovery
    from muster.edges.zookeeper import TopicStore

log = logging.getLogger(__name__)

BY_HAND: dict[str, Any] = {
    "schedule": None,
    "is_paused_upon_creation": False,  # they run only when a person triggers them, and then at once
    "default_args": {"owner": "muster", "retries": 0},
    "tags": ["muster", "by hand"],
}
"""What these DAGs are made with."""


def cluster_field(clusters: Clusters) -> Param:
    """A drop-down list of the clusters."""
    names = sorted(clusters.clusters)
    choice: dict[str, Any] = {"default": names[0]} if len(names) == 1 else {}
    return Param(
        type="string",
        enum=names or ["(none)"],
        title="Cluster",
        description="As in clusters.yaml",
        **choice,
    )


def consumer_field(clusters: Clusters) -> Param:
    """A consumer's id, with the configured ones proposed."""
    configured = [consumer for _, cluster in _sorted(clusters) for consumer in cluster.consumer_ids()]
    return _text("Consumer", "Its id, as registered in Consul", configured)


def topic_field(clusters: Clusters) -> Param:
    """A topic, with those that are configured by name proposed."""
    names = sorted({name for _, cluster in _sorted(clusters) for name in cluster.topics.names})
    return _text("Topic", "One of the cluster's topics in Kafka", names)


def reason_field(description: str) -> Param:
    """Why."""
    return _text("Reason", description, [])


def assignor_field(default: str) -> Param:
    """An assignor's name or dotted path, with the built-in ones proposed."""
    from muster.core.assignors import BUILT_IN  # noqa: PLC0415 - the DAG file stays light

    return Param(
        default,
        type="string",
        minLength=1,
        title="Assignor",
        description="A built-in one, or the dotted path of one that clusters.yaml allows",
        examples=[default, *sorted(BUILT_IN)],
    )


def _text(title: str, description: str, proposed: list[str]) -> Param:
    proposals: dict[str, Any] = {"examples": proposed} if proposed else {}
    return Param(type="string", minLength=1, title=title, description=description, **proposals)


def _sorted(clusters: Clusters) -> list[tuple[str, ClusterSettings]]:
    return sorted(clusters.clusters.items())


def asked(context: Context, name: str) -> str:
    """What the run's form says under `name`. Raises `LeverError` for what is too long to be meant."""
    return brief(name, str(context["params"][name])).strip()


def asked_cluster(context: Context) -> ClusterSettings:
    """The cluster that the run is about. Raises `SettingsError` naming those that there are."""
    return load_clusters()[asked(context, "cluster")]


def word(context: Context) -> Word:
    """Who triggered the run, why, and now. Raises `LeverError` without a reason."""
    return Word(context["dag_run"].triggering_user_name or "airflow", asked(context, "reason"), time.time())


def discovery(cluster: ClusterSettings) -> Discovery:
    """The cluster's consumers and keys in Consul, through its Airflow connection."""
    from muster.airflow.connections import CONNECTIONS  # noqa: PLC0415 - the DAG file stays light
    from muster.edges.consul import Discovery  # noqa: PLC0415

    return Discovery.of(CONNECTIONS.consul(cluster.consul), cluster)


def store(cluster: ClusterSettings) -> TopicStore:
    """The cluster's topics in ZooKeeper, through its Airflow connection; a context manager."""
    from muster.airflow.connections import CONNECTIONS  # noqa: PLC0415
    from muster.edges.zookeeper import TopicStore  # noqa: PLC0415

    return TopicStore(CONNECTIONS.zookeeper(cluster.zookeeper), cluster.name, read_only=True)


def told(
    context: Context, cluster: ClusterSettings, outcome: Outcome, lever: str | None = None
) -> dict[str, Any]:
    """Note what was done in the cluster's history, as the run's note and as an Asset event, and log it line by line.

    `lever` is its name, if it is not that of the DAG. The values become the task's return value.
    """
    from muster.levers.audit import recorded  # noqa: PLC0415

    run = context["dag_run"]
    outcome = recorded(outcome, lambda: store(cluster), f"{run.dag_id} {run.run_id}")
    for line in outcome.lines:
        log.info("%s", line)
    leave_note(context, outcome.lines[0])
    leave_event(context, lever or context["ti"].dag_id.removeprefix(OURS), outcome.values, outcome.lines[0])
    return dict(outcome.values)
