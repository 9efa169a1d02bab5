"""The consumers DAG of a cluster: one mapped task a consumer, each having one Spark job running."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG

from muster.airflow.alerts import alerts
from muster.airflow.operator import MusterConsumerOperator
from muster.settings.cluster_settings import ClusterSettings

RETRIES = 20
"""For what is not the consumer's doing, such as a task whose process was killed. A consumer that dies takes no try:
see `muster.airflow.failures`."""
AGAIN = timedelta(seconds=5)
"""From such a failure to the first retry; then twice as long each time, up to `LONGEST`."""
LONGEST = timedelta(minutes=1)

_DOC = """
### The consumers of cluster `{name}`

One task a consumer ({count} of them, handler `{handler}`). A task submits its Spark job, waits until the consumer is
live in Consul, and is then **deferred**: that is its normal state for days on end. It holds no worker, and a restart
of Airflow does not touch the job. A consumer that is alive already is adopted. The driver's log is in the task's log.

What you want, and what to do:

- **stop one consumer** in order: mark its task as failed, or as success. **Have it back**: clear the task.
- **restart one**: clear its task while it is deferred.
- **stop all**: pause this DAG first, else a new run starts them again; then mark the run as failed.
- **delete this DAG**: only to stop all for good. Airflow deletes its runs, and with them every consumer is stopped in
  order within seconds. While the cluster stands in the settings, the DAG comes back, without its runs and paused:
  unpause it to have the consumers back.
- keep one running **without work**: isolate it with `muster_isolate__{name}`.

What you see:

- **deferred**: the consumer is live.
- **running**: it is submitted and comes up. If it had died before, the log says what was seen and has the end of the
  driver's log.
- **up for reschedule**: it did not come up, and the log says why. It is submitted again within half a minute, as
  often as it takes.
- **failed**: it cannot start before you correct something: a setting, a connection, the handler, an option for
  `spark-submit`. The log says what. `on_stuck` in the settings says who is notified. Then clear the task.
- **this DAG is paused** though you did not pause it: all its consumers failed, and Airflow begins no further run.
  Correct what their logs say, and unpause it.
- **skipped**: a person asked the consumer to stop, outside Airflow.

Pausing this DAG, or the coordinator's, does not stop a consumer.
"""


def consumers_dag(cluster: ClusterSettings) -> DAG:
    """Build `muster_consumers__[cluster]`."""
    name = cluster.name
    consumers = list(cluster.consumer_ids())
    callback: dict[str, Any] = {"on_failure_callback": found} if (found := alerts(cluster, each=True)) else {}
    with DAG(
        dag_id=f"muster_consumers__{name}",
        dag_display_name=f"Muster consumers: {name}",
        description=f"Has the {len(consumers)} consumers of cluster {name} running",
        doc_md=_DOC.format(name=name, count=len(consumers), handler=cluster.consumers.handler),
        # Without consumers a run would end at once, and @continuous would start the next one, without end.
        schedule="@continuous" if consumers else None,
        start_date=datetime(2024, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        # Else @continuous would start consumers that cannot start again and again.
        max_consecutive_failed_dag_runs=1,
        default_args={"owner": "muster", **cluster.airflow.consumers.arguments()},
        tags=["muster", "consumers", name],
    ) as dag:
        MusterConsumerOperator.partial(
            task_id="consumer",
            cluster=name,
            map_index_template="{{ task.consumer }}",
            retries=RETRIES,
            retry_delay=AGAIN,
            retry_exponential_backoff=True,
            max_retry_delay=LONGEST,
            **callback,
        ).expand(consumer=consumers)
    return dag
