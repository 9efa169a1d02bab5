"""The operator that has one consumer running: submits its Spark job, waits until it is live, and defers.

It is the Spark provider's `SparkSubmitOperator` with another life cycle. The job outlives the task's process, so no
worker slot is held and a restart of Airflow's parts touches nothing. A consumer that is alive is adopted. One that
dies is submitted again by the task that its trigger wakes; one that does not come up, by the task's next turn (see
`muster.airflow.failures`). A person who ends the task stops the job in order.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRuntimeError,
    AirflowSkipException,
)

from muster.airflow.connections import CONNECTIONS
from muster.airflow.driver_log import DriverLog
from muster.airflow.failures import (
    SHOWN_OUTPUT,
    ConsumerRefusedError,
    ConsumerStartError,
    again,
    for_good_or_again,
    refusal,
)
from muster.airflow.presence import Seen, Since, Step, next_step, progress, stopping
from muster.airflow.processes import Life, this_host
from muster.airflow.stopping import BY_AIRFLOW, stop_consumer
from muster.airflow.submission import (
    Submission,
    TaskRef,
    application,
    consumer_settings,
    is_cluster_mode,
    log_path,
    make_hook,
    submit_detached,
    submit_to_cluster,
)
from muster.airflow.trigger import ConsumerTrigger, driver_life, driver_of, encoded
from muster.airflow.watcher import Watched
from muster.consumer.connector import JAR
from muster.core.starting import Starting
from muster.edges.consul import ConsulCluster, ConsulError, Registration, StopRequest
from muster.edges.consul_jobs import BY_POISON
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import load_clusters

LOOK = 0.5
"""Seconds between two looks at Consul, process and log while a consumer starts."""

KILL_TIMEOUT = 3.0
"""Seconds for stopping a job that is just starting: Airflow kills a task's process 5 s after it asks it to end."""

CLEAR_TIMEOUT = 10.0
"""Seconds for each of asking and SIGTERM, when what is left of an older incarnation has to go."""

DOUBT = 30.0
"""Seconds that a doubtful answer of Consul about a consumer keeps it from being submitted. Submitting one that turns
out to be alive does no harm but a rebalance: the newer incarnation wins."""

GOES_ON = frozenset({"running", "queued", "scheduled", "up_for_retry", "up_for_reschedule", ""})
"""States of a task whose process is asked to end, in which the consumer is not to stop: a worker shuts down, or
Airflow lost sight of it and retries. '' is that Airflow does not answer, as when all of it shuts down."""


@dataclass
class _Search:
    """What `execute` has seen so far of a consumer that is to be live. `lost` is the incarnation whose check the
    trigger has seen failing for `lost_after`, '' for none."""

    consul: ConsulCluster
    cluster: ClusterSettings
    lost: str = ""
    noted: dict[str, Any] | None = None
    submission: Submission | None = None
    starting: Starting | None = None
    process: subprocess.Popen[bytes] | None = None
    mine: str = ""
    log: DriverLog = field(default_factory=lambda: DriverLog(""))
    since: Since = field(default_factory=Since)
    stop: StopRequest | None = None
    said: str = ""


class MusterConsumerOperator(SparkSubmitOperator):
    """Has the consumer `consumer` of `cluster` running for as long as the task is not ended by a person.

    Everything else comes from the settings and their Airflow connections when the task runs, so a correction
    there takes effect with the next submission. Arguments of `SparkSubmitOperator` (`py_files`, `packages`,
    `driver_memory`, ...) are passed on; `conf` is added to the cluster's `spark_conf`.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "cluster", "consumer")
    ui_color = "#e8f4ea"

    def __init__(self, *, cluster: str, consumer: str, jars: str | None = None, **kwargs: Any) -> None:
        super().__init__(jars=",".join(filter(None, [jars, str(JAR)])), **kwargs)
        self.cluster = cluster
        self.consumer = consumer
        self._ended = threading.Event()

    def execute(self, context: Context) -> None:
        """Adopt or submit the consumer, wait until it is live, and defer to `ConsumerTrigger`.

        Raises what `muster.airflow.failures` says if it does not come up. While Consul is out of reach it is not
        known whether the consumer is there, and nothing is submitted.
        """
        self._have_running(context)

    def _have_running(self, context: Context, lost: str = "") -> None:
        with for_good_or_again():
            cluster = load_clusters()[self.cluster]
            search = _Search(ConsulCluster.of(CONNECTIONS.consul(cluster.consul), cluster), cluster, lost)
            registration = self._until_live(search, context)
            self._watch(search, registration, context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> None:
        """Deal with a consumer that is gone.

        Raises `AirflowSkipException` if a person had asked it to stop. Else it is submitted again at once, also where
        a task had asked it to stop, which is what clearing this task does to the try before. If nothing is wrong and
        the settings want more consumers, the task is scheduled again; Airflow then adds the missing ones to the run.
        """
        if "more" in event:
            self.log.info("%d consumers are wanted now; the run is looked over", event["more"])
            raise again()
        what = f"consumer {event['consumer']} (incarnation {event['incarnation']})"
        stopped_by, lost = event.get("stopped_by"), ""
        if stopped_by is None:
            lost = event["incarnation"]
            end = DriverLog(event["log"]).end()
            self.log.error("%s is gone: %s.%s\nIt is submitted again.", what, event["why"], end)
        else:
            _skip_if_a_person_stopped_it(what, stopped_by["who"], stopped_by["why"])
            self.log.info("%s stopped, because %s; it is submitted again", what, stopped_by["why"])
        self._have_running(context, lost)

    def on_kill(self) -> None:
        """Take note that the task's process was asked to end; `execute` sees to it within `LOOK` seconds.

        Airflow calls this, in a signal handler, both when a person ends the task and when a worker shuts down. Only
        the task's state tells one from the other, and a signal handler cannot ask for it.
        """
        self._ended.set()

    def _until_live(self, search: _Search, context: Context) -> Registration:
        while True:
            if self._ended.is_set():
                self._end(search, context)
            seen = self._look(search)
            if seen is not None:
                step, why = next_step(seen, search.cluster.consumers)
                self._say(search, logging.INFO, why, f"consumer {self.consumer}: {step} ({why})")
                if step is Step.ADOPT and seen.registration is not None:
                    return seen.registration
                if step is Step.END:
                    self._clear_away(search, seen)
                if step in {Step.END, Step.SUBMIT}:
                    self._give_up_if_mine(search, why)
                    self._submit(search, context)
                    continue
            self._show_log(search)
            self._ended.wait(LOOK)

    def _look(self, search: _Search) -> Seen | None:
        """See what there is; None while Consul's answers are inconsistent."""
        if search.process is not None:
            search.process.poll()  # else it would stay a zombie
        now = time.time()
        life = _life(search.submission)
        try:
            if not search.mine:
                search.noted = search.consul.jobs.submission(self.consumer)
                search.submission = Submission.from_dict(search.noted)
                life = _life(search.submission)
            members = search.consul.catalog.members()
            stop = search.consul.jobs.stop_request(self.consumer)
            if search.submission is not None:
                search.starting = search.consul.jobs.starting(self.consumer, search.submission.as_dict())
        except ConsulError as error:
            # Before anything was submitted this is for the retry. Afterwards Consul may come back in time.
            if search.submission is None or not search.mine or life is Life.ENDED:
                raise
            patience = search.cluster.consumers.startup_timeout
            if progress(search.submission, search.starting).overdue(now, patience):
                raise
            self._say(search, logging.WARNING, str(error))
            return None
        registration = members.registered.get(self.consumer)
        if members.membership is None and registration is None and not search.mine:
            doubt = f"waiting until Consul's answers are consistent: {members.doubt}"
            self._say(search, logging.WARNING, doubt)
            if search.since.seconds("doubt", True, now) < DOUBT:
                return None
        if registration is not None and not _same(search.submission, registration):
            other = driver_life(registration)
            replaced = search.mine and not (life is Life.ENDED and registration.passing)
            if replaced or (search.mine and other is Life.ENDED):
                registration = None  # what is left of the incarnation before this try's own
            else:
                life = other
        failing = search.since.seconds("failing", registration is not None and not registration.passing, now)
        if registration is not None and registration.incarnation == search.lost:
            failing += search.cluster.consumers.lost_after  # the trigger has waited for that
        seen = Seen(registration, search.submission, life, stop, search.starting, failing, 0.0, now)
        search.stop = stop if stopping(seen) else search.stop
        return replace(seen, stopping_for=search.since.seconds("stopping", stopping(seen), now))

    def _submit(self, search: _Search, context: Context) -> None:
        cluster, incarnation = search.cluster, str(uuid.uuid4())
        settings = consumer_settings(cluster, self.consumer, incarnation, CONNECTIONS)
        self.name = f"muster {cluster.name} {self.consumer}"
        self.conf = cluster.consumers.spark_conf | (self.conf or {})
        path = self.application or application()
        hook = make_hook(self, cluster.consumers.spark)
        tries = search.submission.tries + 1 if search.submission is not None else 1
        claim = Submission(incarnation, this_host(), time.time(), watch=_task(context), tries=tries)
        if not self._claim(search, claim):
            return
        try:
            search.consul.jobs.clear_stop(self.consumer)
            if is_cluster_mode(hook):
                note = submit_to_cluster(hook, settings, path, claim.at)
            else:
                log_file = log_path(cluster.name, self.consumer, incarnation)
                note, search.process = submit_detached(hook, settings, path, log_file)
        except BaseException:
            search.consul.jobs.clear_submission(self.consumer)
            raise
        note = replace(note, watch=claim.watch, tries=claim.tries)
        search.mine, search.submission, search.log = incarnation, note, DriverLog(note.log)
        search.consul.jobs.note_submission(self.consumer, note.as_dict())
        where = f", its log: {note.log_hint}" if note.log_hint else ""
        self.log.info("submitted incarnation %s of consumer %s%s", incarnation, self.consumer, where)

    def _claim(self, search: _Search, claim: Submission) -> bool:
        """Say in Consul that a job is being submitted; False if another task did since the last look."""
        if search.consul.jobs.claim_submission(self.consumer, claim.as_dict(), search.noted):
            return True
        if search.consul.jobs.submission(self.consumer) is None:
            search.consul.jobs.clear_submission(self.consumer)  # malformed
        return False

    def _give_up_if_mine(self, search: _Search, why: str) -> None:
        """Raise `ConsumerStartError` or `ConsumerRefusedError` if it is this task's own job that will not come up."""
        if not search.mine:
            return
        self._show_log(search, final=True)
        if search.submission is not None:
            with suppress(ConsulError):
                search.consul.jobs.note_submission(
                    self.consumer, replace(search.submission, failed=why).as_dict()
                )
        if search.stop is not None and search.stop.incarnation in {"", search.mine}:
            _skip_if_a_person_stopped_it(f"consumer {self.consumer}", search.stop.by, search.stop.why)
        end = search.log.end()
        if not end and search.submission is not None and search.submission.application:
            end = f"\nIts driver's log: {search.submission.log_hint}"
        code = search.process.poll() if search.process is not None else None
        if refused := refusal(code, search.log.tail(SHOWN_OUTPUT)):
            raise ConsumerRefusedError(f"consumer {self.consumer} cannot start: {refused}.{end}")
        raise ConsumerStartError(f"consumer {self.consumer} did not come up: {why}.{end}")

    def _clear_away(self, search: _Search, seen: Seen) -> None:
        """End what is left of a consumer that can no longer be waited for.

        One on another machine that does not react is left: once the new incarnation registers, the old one is
        fenced off and, when it hears of it, exits.
        """
        incarnation = seen.registration.incarnation if seen.registration is not None else None
        incarnation = incarnation or (seen.submission.incarnation if seen.submission is not None else None)
        if incarnation is not None:
            self._stop(search, incarnation, seen.registration, search.said, CLEAR_TIMEOUT)

    def _stop(
        self, search: _Search, incarnation: str, registration: Registration | None, why: str, timeout: float
    ) -> None:
        """Stop an incarnation, with what is known of its processes; asking and SIGTERM get `timeout` seconds each."""
        submitted = registration is None or _same(search.submission, registration)
        ended = asyncio.run(
            stop_consumer(
                search.consul,
                self.consumer,
                incarnation,
                f"{BY_AIRFLOW}{self.dag_id}",
                why,
                timeout,
                leader=search.submission.process if search.submission is not None and submitted else None,
                driver=driver_of(registration) if registration is not None else None,
                term_patience=timeout,
            )
        )
        self.log.warning("incarnation %s of consumer %s: %s", incarnation, self.consumer, ended)

    def _watch(self, search: _Search, registration: Registration, context: Context) -> None:
        """Defer to the trigger that looks after the consumer `registration`."""
        settings = search.cluster.consumers
        incarnation = registration.incarnation or ""
        note = search.submission
        if note is None or note.incarnation != incarnation:
            note = Submission(incarnation, registration.meta.get("host", ""), time.time())
        note = replace(note, watch=_task(context), tries=0)
        search.consul.jobs.note_submission(self.consumer, note.as_dict())
        self._show_log(search)
        self.log.info(
            "consumer %s is live at %s:%d; its task is deferred now and holds no worker",
            self.consumer,
            registration.address,
            registration.port,
        )
        self.defer(
            trigger=ConsumerTrigger(
                watched=asdict(Watched.of(search.cluster)),
                consumer=self.consumer,
                incarnation=incarnation,
                lost_after=settings.lost_after,
                graceful_timeout=settings.graceful_timeout,
                leader=encoded(note.process),
                driver=encoded(driver_of(registration)),
                log_file=note.log,
                instances=_instances(context),
                log_position=search.log.position if search.log.path == note.log else 0,
            ),
            method_name="execute_complete",
        )

    def _end(self, search: _Search, context: Context) -> None:
        """React to the task's process having been asked to end while the consumer was starting; always raises."""
        state = _state(context)
        if state in GOES_ON:
            self.log.warning(
                "the worker shuts down; consumer %s is left alone, and adopted next", self.consumer
            )
            raise again()
        if search.submission is not None:
            why = f"its task became {state}"
            self._stop(search, search.submission.incarnation, None, why, KILL_TIMEOUT / 2)
        raise AirflowException(f"the task became {state} while consumer {self.consumer} was starting")

    def _show_log(self, search: _Search, final: bool = False) -> None:
        note = search.submission
        if note is not None and note.log and search.log.path != note.log:
            search.log = DriverLog(note.log)
        for line in search.log.new_lines(final):
            self.log.info(line)

    def _say(self, search: _Search, level: int, what: str, line: str = "") -> None:
        """Log `line` (else `what`), unless `what` was said last."""
        if what != search.said:
            self.log.log(level, line or what)
            search.said = what


def _skip_if_a_person_stopped_it(what: str, who: str, why: str) -> None:
    if who == BY_POISON:
        raise AirflowFailException(f"{what} has stopped: {why}. Then clear this task to have it back.")
    if not who.startswith(BY_AIRFLOW):
        raise AirflowSkipException(f"{what} was stopped by {who}: {why}. Clear this task to have it back.")


def _life(submission: Submission | None) -> Life:
    process = submission.process if submission is not None else None
    return Life.UNKNOWN if process is None else process.life()


def _same(submission: Submission | None, registration: Registration) -> bool:
    return submission is not None and submission.incarnation == registration.incarnation


def _task(context: Context) -> TaskRef:
    ti = context["ti"]
    return TaskRef(str(ti.id), ti.dag_id, ti.run_id, ti.task_id, -1 if ti.map_index is None else ti.map_index)


def _state(context: Context) -> str:
    """Return the state that the task has by now in Airflow's database, '' if Airflow does not answer."""
    task = _task(context)
    states = _states(context)
    if states is None:
        return ""
    return str(states[task.key] or "cleared") if task.key in states else "removed"


def _instances(context: Context) -> int:
    """Count the task instances of this task in its run. 0 for all but the first, as one is enough to count."""
    if _task(context).map_index != 0:
        return 0
    return sum(str(state) != "removed" for state in (_states(context) or {}).values())


def _states(context: Context) -> dict[str, Any] | None:
    """Return the states of all instances of this task in this run, None if Airflow does not answer."""
    task = _task(context)
    try:
        states = context["ti"].get_task_states(dag_id=task.dag, task_ids=[task.task], run_ids=[task.run])
    except AirflowRuntimeError:
        return None
    return dict(states.get(task.run, {}))
