"""The coordinator DAG of a cluster: `[fetch_partitions, fetch_consumers] >> compute_assignment >> advance_state`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import ModuleType

from airflow.sdk import DAG, Asset, AssetAlias, TriggerRule, WeightRule, get_current_context, task

from muster.airflow.alerts import alerts
from muster.airflow.waiting import ComputeAssignment
from muster.settings.cluster_settings import ClusterSettings

_MARGIN = timedelta(minutes=2)
"""What a task may take on top of its own waiting, before it is stopped as hung."""

_DOC = """
### The coordinator of cluster `{name}`

Each run reads the partitions from Kafka and the live consumers from Consul (service `{service}`), plans who reads
which partition with the `{assignor}` assignor, and carries each topic through its states in ZooKeeper. A run with
nothing to do waits up to {long_poll_timeout:g} s for a change, so runs are few and answers are quick; with many
clusters `compute_assignment` is **deferred** for that, longer, and holds no slot. **To hold everything still**, use
*pause* and *resume* in `muster_commands__{name}`, which keep who and why: consumers go on with what they have.
*assignor* there puts another assignor in the place of this one; the log of `compute_assignment` says so then.

What you see, and what to do:

- `advance_state` **skipped**: nothing to do, or nothing could be written yet and its log says which consumers it
  waits for.
- `advance_state` **success**: a rebalance. Its log and the events of Asset `{asset}` say what moved, and why.
- `compute_assignment` **skipped**: the status quo is kept, because the cluster is paused, no consumer is live, or
  Consul's answer is not to be trusted; its log says which. With many clusters it waits first, and is skipped too when
  nothing happened meanwhile. `muster_consumers__{name}` starts consumers.
- `fetch_partitions` **failed**: Kafka is out of reach, or a topic is missing or unreadable, see its message. The
  other topics go on.
- `compute_assignment` or `advance_state` **failed** with the assignor's error: there is no plan. What is under way is
  finished, and consumers that are gone are replaced as the sticky assignor would, after `planning_error_delay`.
- `advance_state` **failed**: a topic is not Stable, or an owner makes no progress, for longer than {stuck:g} s. The
  message names topic, consumer and partitions; isolate that consumer with `muster_isolate__{name}`, or answer the
  question in `muster_stuck__{name}`, which shows what would happen then.
- **several tasks failed**: ZooKeeper or Consul is out of reach. Nothing is written, and consumers go on.

States of a topic: **Initial** (not planned yet), **Closing** (old owners are closing the partitions that move),
**Starting** (new owners begin to read), **Stable**. Each partition is handed over as soon as it is closed; one that
does not move is never touched.
"""


def rebalances(cluster: str) -> Asset:
    """Return the Asset whose events are the audit of a cluster's rebalances; other DAGs can be scheduled on it."""
    return Asset(name=f"muster_{cluster}_rebalances", uri=f"muster://{cluster}/rebalances", group="muster")


def stuck(cluster: str) -> Asset:
    """Return the Asset that gets an event when a topic is stuck; `muster_stuck__[cluster]` is scheduled on it."""
    return Asset(name=f"muster_{cluster}_stuck", uri=f"muster://{cluster}/stuck", group="muster")


def coordinator_dag(cluster: ClusterSettings) -> DAG:
    """Build `muster_coordinator__[cluster]`."""
    name = cluster.name
    asset = rebalances(name)
    # An outlet that is an Asset gets an event at every success; one that is an alias only where one is added.
    when_stuck = AssetAlias(name=f"muster_{name}_when_stuck", group="muster")
    with DAG(
        dag_id=f"muster_coordinator__{name}",
        dag_display_name=f"Muster coordinator: {name}",
        description=f"Who reads which partition in cluster {name}: plans it, and walks topics through their states",
        doc_md=_DOC.format(
            name=name,
            service=cluster.consul_service,
            assignor=cluster.assignor.name,
            long_poll_timeout=cluster.long_poll_timeout,
            stuck=cluster.stuck_after,
            asset=asset.uri,
        ),
        schedule=timedelta(seconds=cluster.schedule_interval),
        start_date=datetime(2024, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        # Before submissions, which hold a slot for half a minute each: a task that waits is a rebalance that waits.
        # Every task notifies: which one fails depends on whether there is something to write.
        default_args={
            "owner": "muster",
            "retries": 0,
            "priority_weight": 100,
            # A run that has begun comes before those that begin.
            "weight_rule": WeightRule.UPSTREAM,
            "on_failure_callback": alerts(cluster),
            **cluster.airflow.coordinator.arguments(),
        },
        tags=["muster", "coordinator", name],
    ) as dag:

        @task(execution_timeout=_MARGIN)
        def fetch_partitions() -> None:
            _coordination().fetch_partitions(name, get_current_context())

        @task(execution_timeout=_MARGIN)
        def fetch_consumers() -> None:
            _coordination().fetch_consumers(name, get_current_context())

        def compute_assignment() -> bool:
            return bool(
                _coordination().compute_assignment(name, when_stuck, stuck(name), get_current_context())
            )

        compute = ComputeAssignment(
            task_id="compute_assignment",
            python_callable=compute_assignment,
            # A Kafka that is out of reach does not keep consumers that died from being replaced.
            trigger_rule=TriggerRule.ALL_DONE,
            outlets=[when_stuck],
            execution_timeout=timedelta(seconds=cluster.long_poll_timeout) + _MARGIN,
        )

        @task(
            outlets=[asset],
            multiple_outputs=False,
            execution_timeout=timedelta(seconds=cluster.advance_budget) + _MARGIN,
        )
        def advance_state() -> dict[str, object]:
            return dict(_coordination().advance_state(name, asset, get_current_context()))

        [fetch_partitions(), fetch_consumers()] >> compute >> advance_state()
    return dag


def _coordination() -> ModuleType:
    """Import what the tasks do; by tasks only, because it takes the clients of all three servers with it."""
    from muster.airflow import coordination  # noqa: PLC0415

    return coordination
