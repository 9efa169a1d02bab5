"""Where a coordinator waits for something to do: in its task, or in the triggerer, where it holds no slot.

In `compute_assignment` a change is acted on soonest: the process is there and has its connections. But each cluster
takes one of Airflow's slots (`[core] parallelism`) for it. So with more clusters than leave `SPARE` slots,
`advance_state` defers to `ChangeTrigger`, which has it go on when something may be due, and else ends it as skipped.
A deferred task goes on without its run's turn among the hundred that the scheduler looks at. The triggers of a
triggerer share one watch a cluster (`muster.airflow.watcher`).
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from airflow.providers.standard.operators.python import PythonOperator, ShortCircuitOperator
from airflow.sdk import Context
from airflow.sdk.configuration import conf
from airflow.triggers.base import StartTriggerArgs, TaskSkippedEvent, TriggerEvent

from muster.airflow.base_trigger import MusterTrigger, event
from muster.airflow.watcher import Watched, watching
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import Clusters

log = logging.getLogger(__name__)

SPARE = 3
"""Slots that coordinators which wait in their tasks leave to others: to submissions, and to their own other tasks."""
QUIET_RUN = 2.0
"""Seconds between two quiet runs of any cluster, where they defer: a run takes a second of CPU."""
WAIT = "wait"
"""XCom key under which `compute_assignment` leaves the fields of the `ChangeTrigger` for `advance_state`."""
_LEFT = f"{{{{ ti.xcom_pull(task_ids='compute_assignment', key='{WAIT}', map_indexes=-1) | tojson }}}}"
"""The index says that the task is not mapped: the triggerer knows no request for XComs of several."""
LONGEST = 240.0
"""Seconds from one quiet run of a cluster to the next at most, but for a longer `long_poll_timeout`. The alert
`MusterCoordinatorNotRunning` waits for 300."""


def in_task(clusters: Clusters) -> bool:
    """Whether there are slots enough for each cluster to wait in its task."""
    slots: int = conf.getint("core", "parallelism")
    return len(clusters.clusters) + SPARE <= slots


def quiet_wait(clusters: Clusters, cluster: ClusterSettings) -> float:
    """Seconds that a deferred task of `cluster` waits while nothing happens.

    Any time of a range, because clusters that were begun together would go on in step: all their runs would come at
    once, and a change in one of them would wait behind those.
    """
    at_most = max(cluster.long_poll_timeout, min(LONGEST, QUIET_RUN * len(clusters.clusters)))
    return at_most * random.uniform(0.5, 1.0)  # noqa: S311


@dataclass(eq=False, repr=False)
class ChangeTrigger(MusterTrigger):
    """Has its task go on at the first change in Consul since `seen`, else at `until` (seconds since 1970).

    If nothing is `due` then, the task ends skipped instead. `watched` has the fields of `Watched`; `seen` is what was
    seen of the health of the cluster's consumers and of its keys. While Consul is out of reach nothing is known to
    have changed.
    """

    watched: dict[str, str]
    seen: list[str]
    until: float
    due: bool = True

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait. A restart of the triggerer begins here again, and misses nothing."""
        async with watching(Watched(**self.watched)) as watch:
            while (left := self.until - time.time()) > 0:
                if watch.seen is not None and watch.seen != tuple(self.seen):
                    log.info("Consul has news")
                    yield event(None)
                    return
                await watch.changed(left)
        yield event(None) if self.due else TaskSkippedEvent()


@dataclass(eq=False, repr=False)
class LeftWaitTrigger(MusterTrigger):
    """A `ChangeTrigger` of what `compute_assignment` of the same run has left: `wait` is a template of its fields, as
    JSON. If it has left none, the task goes on at once.

    Airflow starts it in the place of `advance_state`, without a process of that; it fills in the template.
    """

    wait: str

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait."""
        if (left := json.loads(self.wait)) is None:
            yield event(None)
            return
        async for fired in ChangeTrigger(**left).run():
            yield fired


class ComputeAssignment(ShortCircuitOperator):
    """The task `compute_assignment`."""

    def execute_complete(self, context: Context, **_: object) -> None:
        """Succeed. Tasks that version 1 of the protocol deferred go on here after an upgrade."""


class AdvanceState(PythonOperator):
    """The task `advance_state`. With `in_triggerer` it waits there first for what `compute_assignment` has left, if
    that has found nothing to do."""

    template_fields = (*PythonOperator.template_fields, "wait")

    def __init__(self, *, in_triggerer: bool, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.wait = _LEFT if in_triggerer else "null"
        self.start_from_trigger = in_triggerer
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=f"{LeftWaitTrigger.__module__}.{LeftWaitTrigger.__qualname__}",
            trigger_kwargs={"wait": self.wait},
            next_method=AdvanceState.execute_complete.__name__,
        )

    def execute(self, context: Context) -> Any:
        """Do it, or wait first: where Airflow does not start from a trigger, as in `dag.test()`."""
        if (left := json.loads(self.wait)) is not None:
            self.defer(trigger=ChangeTrigger(**left), method_name=self.execute_complete.__name__)
        return super().execute(context)

    def execute_complete(self, context: Context, **_: object) -> Any:
        """Do it, after the wait."""
        return super().execute(context)
