"""`retention` in `clusters.yaml`: for how long what Muster leaves behind is kept.

The DAG `muster_pruning` deletes what Airflow has of it, each coordinator its history in ZooKeeper.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from muster.settings.duration import Duration

_Kept = Annotated[Duration, Field(gt=0)]


class RetentionSettings(BaseModel):
    """Durations are in seconds once read.

    `ticks` are runs of coordinators that succeeded and did nothing, `failures` those that failed, `rebalances` all
    others: runs that changed something (they have a note), by hand or not. `history` and the two limits are for each
    cluster's history in ZooKeeper. `airflow` is the Airflow connection through which runs are deleted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ticks: _Kept = 86_400.0
    failures: _Kept = 7 * 86_400.0
    rebalances: _Kept = 90 * 86_400.0
    history: _Kept = 90 * 86_400.0
    history_entries: Annotated[int, Field(ge=1, le=20_000)] = 5_000
    history_megabytes: Annotated[int, Field(ge=1, le=1_000)] = 64
    airflow: str = "muster_airflow"

    @property
    def longest(self) -> float:
        """What is older than this is not needed any more."""
        return max(self.ticks, self.failures, self.rebalances)
