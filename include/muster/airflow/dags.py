"""All of Muster's DAGs, for a DAG file of three lines:

    from muster.airflow.dags import muster_dags

    globals().update(muster_dags())

Airflow only parses files that contain the words "dag" and "airflow".

- For each cluster `muster_coordinator__[cluster]`, `muster_consumers__[cluster]`, `muster_isolate__[cluster]`,
  `muster_commands__[cluster]` and `muster_stuck__[cluster]`.
- `muster_pruning`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from airflow.sdk import DAG, get_parsing_context

from muster.airflow.run_notes import OURS
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import Clusters, SettingsError, load_clusters


def muster_dags() -> dict[str, DAG]:
    """Make every DAG, by id; in a task's process only the one that the task belongs to.

    Airflow parses the file again for each task: with a hundred clusters that takes half of what the task takes.

    A cluster with a mistake in its settings has the DAGs that it had before the mistake: the settings are kept,
    because Airflow takes a DAG that is missing from its file for removed. Raises `SettingsError` if the settings as a
    whole cannot be read.
    """
    found = load_clusters()
    found.keep()
    return {dag.dag_id: dag for dag in _dags(found, get_parsing_context().dag_id)}


def check_settings() -> None:
    """Raise `SettingsError` with every mistake in the settings.

    This belongs in a DAG file of its own: a file that Airflow cannot import has its DAGs taken out of the schedule.
    """
    if mistakes := load_clusters().mistakes:
        raise SettingsError("\n".join(mistakes))


def _dags(clusters: Clusters, only: str | None) -> Iterator[DAG]:
    for kind, make in _KINDS.items():
        for name, cluster in clusters.clusters.items():
            if only in {None, f"{OURS}{kind}__{name}"}:
                yield make(cluster)
    if only is None or "__" not in only:
        yield from _dags_of_no_cluster(only)


# Each kind is imported where it is made: a task's process imports one of them.


def _coordinator(cluster: ClusterSettings) -> DAG:
    from muster.airflow.coordinator_dag import coordinator_dag  # noqa: PLC0415

    return coordinator_dag(cluster)


def _consumers(cluster: ClusterSettings) -> DAG:
    from muster.airflow.consumers_dag import consumers_dag  # noqa: PLC0415

    return consumers_dag(cluster)


def _stuck(cluster: ClusterSettings) -> DAG:
    from muster.airflow.stuck_dag import stuck_dag  # noqa: PLC0415

    return stuck_dag(cluster)


def _commands(cluster: ClusterSettings) -> DAG:
    from muster.airflow.command_dags import commands_dag  # noqa: PLC0415

    return commands_dag(cluster)


def _isolate(cluster: ClusterSettings) -> DAG:
    from muster.airflow.command_dags import isolate_dag  # noqa: PLC0415

    return isolate_dag(cluster)


_KINDS: Mapping[str, Callable[[ClusterSettings], DAG]] = {
    "coordinator": _coordinator,
    "consumers": _consumers,
    "isolate": _isolate,
    "commands": _commands,
    "stuck": _stuck,
}


def _dags_of_no_cluster(only: str | None) -> Iterator[DAG]:
    from muster.airflow.pruning_dag import PRUNING, pruning_dag  # noqa: PLC0415

    if only in {None, PRUNING}:
        yield pruning_dag()
