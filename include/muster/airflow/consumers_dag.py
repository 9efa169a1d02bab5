"""The consumers DAG of a cluster: one mapped task a consumer, each having one Spark job running."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, ExceptionRetryPolicy, RetryAction, RetryRule

from muster.airflow.operator import MusterConsumerOperator
from muster.settings.clusters import ClusterSettings

RETRIES = 1_000_000
"""A consumer that dies is submitted anew for as long as the run lasts; Airflow has no word for 'always'."""

AGAIN = timedelta(seconds=5)
"""From a consumer's death to the retry that submits it anew."""

AGAIN_AFTER_FAILED_START = timedelta(seconds=30)
"""A consumer that does not even come up would keep the machine busy with starting JVMs."""

_DOC = """
### The consumers of cluster `{name}`

One task a consumer ({count} of them, handler `{handler}`). A task submits its Spark job, waits until the consumer is
live in Consul, and is then **deferred**: that is its normal state for days on end. It holds no worker, and a restart
of Airflow does not touch the job. A consumer that is alive already is adopted. The driver's log is in the task's log.

What you want, and what to do:

- **stop one consumer** in order: mark its task as failed, or as success. **Have it back**: clear the task.
- **restart one**: clear its task while it is deferred.
- **stop all**: pause this DAG first, else a new run starts them again; then mark the run as failed.
- keep one running **without work**: isolate it with `muster_isolate`.

What you see:

- **deferred**: the consumer is live.
- **up for retry**: it died or did not come up. The log says what was seen and has the end of the driver's log. It is
  submitted anew.
- **skipped**: somebody asked the consumer to stop, past Airflow.

Pausing this DAG, or the coordinator's, does not stop a consumer.
"""


def consumers_dag(cluster: ClusterSettings) -> DAG:
    """Build `muster_consumers__[cluster]`."""
    name = cluster.name
    consumers = list(cluster.consumer_ids())
    with DAG(
        dag_id=f"muster_consumers__{name}",
        dag_display_name=f"Muster consumers: {name}",
        description=f"Has the {len(consumers)} consumers of cluster {name} running",
        doc_md=_DOC.format(name=name, count=len(consumers), handler=cluster.consumers.handler),
        # Without consumers a run would end at once, and @continuous would start the next one, for ever.
        schedule="@continuous" if consumers else None,
        start_date=datetime(2024, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        default_args={"owner": "muster"},
        tags=["muster", "consumers", name],
    ) as dag:
        MusterConsumerOperator.partial(
            task_id="consumer",
            cluster=name,
            map_index_template="{{ task.consumer }}",
            retries=RETRIES,
            retry_delay=AGAIN,
            retry_policy=ExceptionRetryPolicy(
                rules=[
                    RetryRule(
                        exception="muster.airflow.operator.ConsumerStartError",
                        action=RetryAction.RETRY,
                        retry_delay=AGAIN_AFTER_FAILED_START,
                        reason="the consumer did not come up",
                    )
                ]
            ),
        ).expand(consumer=consumers)
    return dag
