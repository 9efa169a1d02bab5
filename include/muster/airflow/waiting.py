"""Where a coordinator waits for something to do: in its task, or in the triggerer, where it holds no slot.

In the task a change is acted on soonest: the process is there and has its connections. But each cluster takes one
of Airflow's slots (`[core] parallelism`) for it. So where there are fewer than `Clusters.slots`, tasks defer to
`ChangeTrigger`, which ends them when something may be due: `advance_state` looks for itself. When nothing was, it is
skipped with them. The triggers of a triggerer share one watch a cluster (`muster.airflow.watcher`).
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from airflow.providers.standard.operators.python import ShortCircuitOperator
from airflow.sdk import Context
from airflow.sdk.configuration import conf
from airflow.triggers.base import TaskSkippedEvent, TaskSuccessEvent, TriggerEvent

from muster.airflow.base_trigger import MusterTrigger
from muster.airflow.watcher import Watched, watching
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import Clusters

log = logging.getLogger(__name__)

QUIET_RUN = 2.0
"""Seconds between two quiet runs of any cluster, where they defer: a run takes a second of CPU."""
LONGEST = 240.0
"""Seconds from one quiet run of a cluster to the next at most, but for a longer `long_poll_timeout`. The alert
`MusterCoordinatorNotRunning` waits for 300."""


def in_task(clusters: Clusters) -> bool:
    """Tell whether there are slots enough for each cluster to wait in its task."""
    slots: int = conf.getint("core", "parallelism")
    return clusters.slots <= slots


def quiet_wait(clusters: Clusters, cluster: ClusterSettings) -> float:
    """Return the seconds that a deferred task of `cluster` waits while nothing happens.

    Any time of a range, because clusters that were begun together would go on in step: all their runs would come at
    once, and a change in one of them would wait behind those.
    """
    at_most = max(cluster.long_poll_timeout, min(LONGEST, QUIET_RUN * len(clusters.clusters)))
    return at_most * random.uniform(0.5, 1.0)  # noqa: S311


@dataclass(eq=False, repr=False)
class ChangeTrigger(MusterTrigger):
    """Ends its task, with success, at the first change in Consul since `seen`, else at `until` (seconds since 1970).

    If nothing is `due` then, the task ends skipped. `watched` has the fields of `Watched`; `seen` is what was seen of
    the health of the cluster's consumers and of its keys. While Consul is out of reach nothing is known to have
    changed.
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
                    yield TaskSuccessEvent()
                    return
                await watch.changed(left)
        yield TaskSuccessEvent() if self.due else TaskSkippedEvent()


class ComputeAssignment(ShortCircuitOperator):
    """The task `compute_assignment`. Its callable may defer."""

    def execute_complete(self, context: Context, event: object) -> None:
        """Succeed after the wait. Only `dag.test()` calls it: a triggerer ends the task itself."""
