"""Stops consumers whose task ended while no trigger was watching.

Airflow tells a deferred task's trigger that its task was marked. A trigger that is not running at that moment is
not notified: in the second or two after the task was deferred, and while the triggerer is down. The job would run on
while its task says failed or success. So each coordinator run looks for such jobs and asks them to stop.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from muster.airflow.stopping import BY_AIRFLOW
from muster.airflow.submission import Submission, TaskRef
from muster.edges.consul import ConsulCluster, JobMailbox, UnreadableKeyError

log = logging.getLogger(__name__)

ENDED = frozenset({"failed", "success", "skipped", "removed"})
"""States that a task with a live consumer only gets from a person, or from a smaller number of consumers. A cleared
task is none of these: its next try adopts the consumer."""

States = Callable[..., Mapping[str, Mapping[str, Any]]]
"""`get_task_states` of a running task instance: run id to key to state."""


def stop_abandoned(consul: ConsulCluster, get_task_states: States) -> list[str]:
    """Ask those consumers to stop, and return their ids. Raises `ConsulError` if Consul is out of reach."""
    watched: dict[tuple[str, str], dict[str, Submission]] = defaultdict(dict)
    registered = consul.catalog.members().registered
    for consumer, note in consul.jobs.submissions().items():
        submission = Submission.from_dict(note)
        if submission is None or submission.watch is None or consumer not in registered:
            continue
        if registered[consumer].incarnation == submission.incarnation:
            watched[submission.watch.dag, submission.watch.run][consumer] = submission
    stopped = []
    for (dag, run), submissions in watched.items():
        states = get_task_states(dag_id=dag, run_ids=[run]).get(run, {})
        for consumer, submission in submissions.items():
            if submission.watch is not None and _ended(submission.watch, states):
                state = states[submission.watch.key]
                if _ask(consul.jobs, consumer, submission.incarnation, submission.watch, str(state)):
                    stopped.append(consumer)
    return stopped


def _ended(watch: TaskRef, states: Mapping[str, Any]) -> bool:
    return str(states.get(watch.key)) in ENDED


def _ask(jobs: JobMailbox, consumer: str, incarnation: str, watch: TaskRef, state: str) -> bool:
    try:
        request = jobs.stop_request(consumer)
    except UnreadableKeyError as error:
        log.warning("consumer %s: %s; a request to stop takes its place", consumer, error)
        request = None
    if request is not None and request.incarnation in {"", incarnation}:
        return False
    why = f"its task {watch.key} in run {watch.run} became {state}"
    jobs.request_stop(consumer, incarnation, f"{BY_AIRFLOW}{watch.dag}, {watch.run}", why)
    log.warning("consumer %s is asked to stop: %s", consumer, why)
    return True
