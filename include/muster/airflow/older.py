"""What Airflow 3.2 has otherwise than 3.3.2, in one place."""

from __future__ import annotations

import asyncio
from typing import Any

from airflow.sdk import Connection, exceptions
from airflow.sdk.observability import stats
from airflow.triggers.base import BaseTrigger

AWAITS_INPUT: type[BaseException] = getattr(exceptions, "TaskAwaitingInput", exceptions.TaskDeferred)
"""What the standard provider's operator raises when it has put its question; in 3.2 it defers."""
STATS: Any = stats if hasattr(stats, "gauge") else stats.Stats
"""Where metrics are sent: a module; in 3.2 a class of the same methods."""
READS_ASYNC = hasattr(Connection, "aextra_dejson")
"""True since 3.3.2, if a trigger can read a connection on the event loop. Before, Airflow's secrets masker waits
for the supervisor there, which fails while another trigger asks something."""


async def kill_if_cancelled(trigger: BaseTrigger) -> None:
    """Call the `on_kill` of a cancelled trigger where Airflow does not.

    Airflow 3.2 cancels a trigger when a person ends its task, and also when the triggerer shuts down. So `on_kill`
    must ask whether the task has ended.
    """
    task = asyncio.current_task()
    if not hasattr(BaseTrigger, "on_kill") and task is not None and task.cancelling():
        await trigger.on_kill()
