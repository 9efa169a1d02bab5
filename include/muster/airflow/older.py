"""What Airflow 3.2 has otherwise than 3.3, in one place."""

from __future__ import annotations

from typing import Any

from airflow.sdk import exceptions
from airflow.sdk.observability import stats

AWAITS_INPUT: type[BaseException] = getattr(exceptions, "TaskAwaitingInput", exceptions.TaskDeferred)
"""What the standard provider's operator raises when it has put its question; in 3.2 it defers."""
STATS: Any = stats if hasattr(stats, "gauge") else stats.Stats
"""Where metrics are sent: a module; in 3.2 a class of the same methods."""
