"""Tells an assignor how its plans ended. Whatever it does then, the rebalance is written and the run goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from copy import deepcopy

from muster.core.assignors import Assignor, ObservesOutcome, Outcome
from muster.core.model import Consumer, State, Transition

log = logging.getLogger(__name__)

TIME_LIMIT = 5.0
"""Seconds that an assignor may take to observe; then it is left alone."""


def tell(assignor: Assignor, written: Iterable[Transition], consumers: Mapping[str, Consumer]) -> None:
    """Tell `assignor`, if it observes, which of the topics in `written` have become Stable. Never raises."""
    ended = [each for each in written if each.state.state is State.STABLE and not _was_stable(each)]
    if not ended or not isinstance(assignor, ObservesOutcome):
        return
    outcome = Outcome(
        {each.topic: dict(each.assignment.owners) for each in ended},
        {each.topic: each.reason for each in ended},
        deepcopy(dict(consumers)),
    )
    failures: list[str] = []

    def work() -> None:
        try:
            assignor.observe(outcome)
        except BaseException as error:  # in this thread nothing that it raises may count, sys.exit neither
            failures.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=work, name="assignor-observes", daemon=True)
    thread.start()
    thread.join(TIME_LIMIT)
    if thread.is_alive():
        failures.append(f"it was not done after {TIME_LIMIT:g} s and was left alone")
    for failure in failures:
        log.warning(
            "assignor %r could not observe the outcome: %s; nothing depends on it", assignor.name, failure
        )


def _was_stable(transition: Transition) -> bool:
    before = transition.before.state
    return before is not None and before.state is State.STABLE
