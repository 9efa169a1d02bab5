"""Who is told when a task of a coordinator fails, or one of a consumer for good: the notifiers that `on_stuck` in
clusters.yaml names.

Any Airflow notifier does, by the dotted path of its class, such as
`airflow.providers.smtp.notifications.smtp.SmtpNotifier`. It is imported when it is needed, not when the DAG file is
parsed, because the file is parsed again for every task. `muster doctor` says whether it can be.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from muster.settings.clusters import ClusterSettings, NotifierSettings

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

Callback = Callable[["Context"], None]


def alerts(cluster: ClusterSettings, each: bool = False) -> list[Callback]:
    """The `on_failure_callback` of a task, empty without notifiers.

    Without `each` they are called at the first failure of several in a row: a coordinator that is stuck fails every
    few seconds.
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
        """Called by Airflow in the task's process, after it has failed."""
        if not self.each and _failed_before(context):
            log.info("%s was told when this task failed first", self.settings.notifier)
            return
        log.info("telling %s", self.settings.notifier)
        make_notifier(self.settings)(context)


def _failed_before(context: Context) -> bool:
    """Whether the same task of the run before failed; when that cannot be told, it did not."""
    try:
        previous = context["ti"].get_previous_ti()
    except Exception:  # whatever Airflow's API raises: to tell twice is better than not at all
        log.warning("whether the run before failed, too, cannot be told", exc_info=True)
        return False
    return previous is not None and previous.state == "failed"
