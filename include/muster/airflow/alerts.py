"""Who is notified when a task of a coordinator fails, or one of a consumer for good: the notifiers that `on_stuck` in
the settings name.

Any Airflow notifier does, by the dotted path of its class, such as
`airflow.providers.smtp.notifications.smtp.SmtpNotifier`. It is imported when it is needed, not when the DAG file is
parsed, because the file is parsed again for every task. `muster doctor` says whether it can be.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from muster.settings.cluster_settings import ClusterSettings, NotifierSettings

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

Callback = Callable[["Context"], None]

REPEATS = "repeats"
"""XCom key of a task that failed with nothing but what another task of its run had failed with."""


def alerts(cluster: ClusterSettings, each: bool = False) -> list[Callback]:
    """Build the `on_failure_callback` of a task, empty without notifiers.

    Without `each` they are called at the first failure of several in a row: a coordinator that is stuck fails every
    few seconds. A failure that only repeats what another task of the run has failed with (`REPEATS`) does not count.
    """
    return [_Alert(settings, each) for settings in cluster.on_stuck]


def make_notifier(settings: NotifierSettings) -> Callback:
    """Import and make a notifier. Raises what its module or class raises, TypeError if it cannot be called."""
    module, _, name = settings.notifier.rpartition(".")
    notifier: Any = getattr(importlib.import_module(module), name)(**settings.options)
    if not callable(notifier):
        raise TypeError(f"{settings.notifier} gives {type(notifier).__name__}, which is no notifier")
    made: Callback = notifier
    return made


class _Alert:
    """Calls one notifier."""

    def __init__(self, settings: NotifierSettings, each: bool) -> None:
        self.settings = settings
        self.each = each
        self.__name__ = f"alert_{settings.notifier.rpartition('.')[2]}"

    def __call__(self, context: Context) -> None:
        """Notify; Airflow calls this in the task's process, after it has failed."""
        if not self.each and (reason := _why_not(context)):
            log.info("%s is not notified: %s", self.settings.notifier, reason)
            return
        log.info("telling %s", self.settings.notifier)
        make_notifier(self.settings)(context)


def _why_not(context: Context) -> str:
    """Say why a failure is no news, '' if it is or Airflow cannot answer: two notifications are better than none."""
    ti = context["ti"]
    try:
        if ti.xcom_pull(task_ids=ti.task_id, key=REPEATS):
            return "another task of this run failed with the same"
        previous = ti.get_previous_ti()
        if previous is None or previous.state != "failed":
            return ""
        repeated = ti.xcom_pull(task_ids=ti.task_id, key=REPEATS, run_id=previous.run_id)
    except Exception:  # whatever Airflow's API raises
        log.warning("whether the run before failed is unknown", exc_info=True)
        return ""
    return "" if repeated else "this task failed in the run before, too"
