"""The trigger that looks after a live consumer while its task is deferred.

It waits for the consumer to be gone, brings the driver's log into the task's log, and stops the consumer in order
when a person ends the task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import astuple, dataclass
from typing import Any

from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.triggers.base import TriggerEvent
from asgiref.sync import sync_to_async

from muster.airflow.base_trigger import SETTLED, MusterTrigger, event
from muster.airflow.driver_log import DriverLog
from muster.airflow.older import kill_if_cancelled
from muster.airflow.presence import Presence
from muster.airflow.processes import Life, ProcessRef, this_host
from muster.airflow.stopping import BY_AIRFLOW, stop_consumer
from muster.airflow.submission import Submission
from muster.airflow.watcher import Watch, Watched, watching
from muster.edges.consul import ConsulCluster, ConsulError, Registration, StopRequest
from muster.settings.clusters import SettingsError, load_clusters
from muster.settings.connection_parsing import ConnectionSettingsError

LOOK = 1.0
"""Seconds between two looks at the driver's process and log; Consul's news come in between at any time."""

RECOUNT = 10.0
"""Seconds between two looks at how many consumers the settings want."""

_stops: set[asyncio.Task[str]] = set()
"""Stops under way. The event loop keeps only weak references to its tasks."""

_first_questions: list[asyncio.Task[None]] = []
"""The first question that a trigger of this process asked Airflow; empty before."""


@dataclass(eq=False, repr=False)
class ConsumerTrigger(MusterTrigger):
    """Fires when the consumer is gone, with `{"consumer", "incarnation", "why", "stopped_by", "log"}`.

    `stopped_by` is `{"who", "why"}` if a person had asked it to stop, else None. `leader` and `driver` are the
    `spark-submit` and the Python process as `[host, pid, started]`, None where unknown. `log_position` is the byte
    up to which the log has been shown. `watched` has the fields of `Watched`. No argument is a secret: where Consul
    is, the connection says.

    With `instances`, the number of task instances that the run has, it also fires `{"more": wanted}` when
    the settings want more consumers than that: Airflow adds mapped task instances to a run under way only when
    one of them is about to be scheduled.
    """

    watched: dict[str, str]
    consumer: str
    incarnation: str
    lost_after: float
    graceful_timeout: float
    leader: list[Any] | None = None
    driver: list[Any] | None = None
    log_file: str = ""
    log_position: int = 0
    instances: int = 0

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch until the consumer is gone. A restart of the triggerer begins here again, and harms nothing."""
        presence = Presence(self.incarnation, self.lost_after, self.graceful_timeout)
        driver_log = DriverLog(self.log_file, self.log_position)
        doubt = ""
        request: StopRequest | None = None
        began = counted = time.monotonic()
        self.log.info("watching consumer %s, incarnation %s", self.consumer, self.incarnation)
        if not _first_questions and self.task_instance is not None:
            _first_questions.append(asyncio.create_task(self._ask_ahead(self.task_instance)))
        async with watching(Watched(**self.watched)) as watch:
            while True:
                for line in driver_log.new_lines():
                    self.log.info(line)
                if (said := _doubt(watch)) != doubt:
                    self.log.warning(said or "Consul's answers are consistent again")
                    doubt = said
                members = watch.members
                request = self._meant_for_it(watch.stops.get(self.consumer)) or request
                registration = members.registered.get(self.consumer) if members else None
                trusted = members is not None and members.membership is not None
                why = presence.gone(trusted, registration, self._life(), time.time())
                if why:
                    break
                if self.instances and time.monotonic() - counted > RECOUNT:
                    counted = time.monotonic()
                    if (wanted := await asyncio.to_thread(_wanted, self.watched["cluster"])) > self.instances:
                        yield event({"more": wanted})
                        return
                if registration is not None and presence.incarnation != self.incarnation:
                    self._follow(registration, presence.incarnation)
                await watch.changed(LOOK)
        request = request or await self._asked()
        for line in driver_log.new_lines(final=True):
            self.log.info(line)
        await asyncio.sleep(max(0.0, SETTLED - (time.monotonic() - began)))
        yield event(
            {
                "consumer": self.consumer,
                "incarnation": self.incarnation,
                "why": why,
                "stopped_by": {"who": request.by, "why": request.why} if request else None,
                "log": self.log_file,
            }
        )

    async def _asked(self) -> StopRequest | None:
        """Tell who asked it to stop, by a look of its own: it may have been gone before the watch heard of it."""
        try:
            consul = await Watched(**self.watched).consul()
            return self._meant_for_it(await asyncio.to_thread(consul.jobs.stop_request, self.consumer))
        except (ConsulError, ConnectionSettingsError) as error:
            self.log.warning("whether a person asked it to stop is unknown: %s", error)
            return None

    async def on_kill(self) -> None:
        """Stop the consumer in order, because a person marked the task, or cleared it.

        Airflow cancels this coroutine with every turn of the triggerer's loop, about once a second, until it
        ends. So the stop is a task of its own which such a cancellation does not reach.
        """
        stop = asyncio.create_task(self._stop())
        _stops.add(stop)
        stop.add_done_callback(_stops.discard)
        self.log.info(await asyncio.shield(stop))

    async def cleanup(self) -> None:
        """Stop the consumer as `on_kill` does where Airflow does not call that."""
        await kill_if_cancelled(self)

    def _life(self) -> Life:
        return Life.UNKNOWN if self.driver is None else ProcessRef(*self.driver).life()

    def _follow(self, registration: Registration, incarnation: str) -> None:
        self.log.warning(
            "incarnation %s of consumer %s was replaced by %s, which another task submitted; watching that one",
            self.incarnation,
            self.consumer,
            incarnation,
        )
        self.incarnation = incarnation
        self.leader = None
        self.driver = encoded(driver_of(registration))

    def _meant_for_it(self, request: StopRequest | None) -> StopRequest | None:
        meant = request is not None and request.incarnation in {"", self.incarnation}
        return request if meant else None

    async def _stop(self) -> str:
        try:
            consul = await Watched(**self.watched).consul()
            if reason := await self._still_wanted(consul):
                return f"consumer {self.consumer} is left alone: {reason}"
        except (ConsulError, ConnectionSettingsError) as error:
            return f"consumer {self.consumer} is not stopped: {error}"
        ti = self.task_instance
        who = f"{BY_AIRFLOW}{ti.dag_id}, {ti.run_id}" if ti else f"{BY_AIRFLOW}its task"
        ended = await stop_consumer(
            consul,
            self.consumer,
            self.incarnation,
            who,
            "its task was marked or cleared",
            self.graceful_timeout,
            leader=ProcessRef(*self.leader) if self.leader else None,
            driver=ProcessRef(*self.driver) if self.driver else None,
        )
        return f"consumer {self.consumer}: {ended}"

    async def _ask_ahead(self, ti: Any) -> None:
        """Ask what `_still_wanted` asks, once in the life of a triggerer, before a person waits for the answer.

        At the first question Airflow builds its whole execution API in the triggerer's supervisor. That takes
        seconds, on a busy machine most of a minute, and until it is done no trigger is started or ended.
        """
        try:
            await _states(ti)
        except AirflowRuntimeError as error:  # then the next that has to know asks again
            self.log.debug("Airflow did not answer the first question: %s", error)

    async def _still_wanted(self, consul: ConsulCluster) -> str:
        """Say why the consumer must not be stopped, '' if it must.

        Airflow calls `on_kill` also in a triggerer that lost this trigger to another one, after a pause of the
        machine say. Then the task is still deferred, and the task that watches the consumer is still ours. After a
        person cleared the task, it is either not deferred, or already deferred again under another id.
        """
        ti = self.task_instance
        if ti is None:
            return ""
        states = await _states(ti)
        if "deferred" not in states.get(ti.run_id, {}).values():
            return ""
        noted = Submission.from_dict(await asyncio.to_thread(consul.jobs.submission, self.consumer))
        if noted is not None and noted.watch is not None and noted.watch.id != str(ti.id):
            return ""
        return "its task is still deferred, another triggerer watches it"


async def _states(ti: Any) -> dict[str, Any]:
    """Return the states that the task has in its run, as `get_task_states` gives them."""
    ask = sync_to_async(RuntimeTaskInstance.get_task_states)
    found = await ask(dag_id=ti.dag_id, map_index=ti.map_index, task_ids=[ti.task_id], run_ids=[ti.run_id])
    return dict(found)


def _wanted(cluster: str) -> int:
    """Return how many consumers the settings want now; 0 while they cannot be read, which a DAG file reports."""
    try:
        return load_clusters()[cluster].consumers.count
    except SettingsError:
        return 0


def driver_of(registration: Registration) -> ProcessRef | None:
    """Return the Python driver that a consumer names in its metadata, if it is on this machine and still there."""
    pid = registration.meta.get("pid", "")
    return ProcessRef.of(registration.meta.get("host", ""), int(pid)) if pid.isdigit() else None


def driver_life(registration: Registration) -> Life:
    """Tell whether the Python driver that a consumer names in its metadata runs."""
    if not registration.meta.get("pid", "").isdigit() or registration.meta.get("host", "") != this_host():
        return Life.UNKNOWN
    driver = driver_of(registration)
    return Life.ENDED if driver is None else driver.life()


def encoded(process: ProcessRef | None) -> list[Any] | None:
    """Encode a process as an argument of a trigger."""
    return None if process is None else list(astuple(process))


def _doubt(watch: Watch) -> str:
    if watch.members is None:
        return watch.error
    return "" if watch.members.membership is not None else watch.members.doubt
