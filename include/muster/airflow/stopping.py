"""Stopping a consumer in order: ask through Consul, wait, and only then use signals.

Asking through Consul works wherever the driver runs. The consumer closes its partitions, commits, deregisters and
exits. If it does not within its time and runs on this machine, SIGTERM goes to its Python driver, and at last SIGKILL
to its process group. It is asynchronous because the triggerer stops many at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

from muster.airflow.processes import Life, ProcessRef
from muster.edges.consul import ConsulCluster, ConsulError

log = logging.getLogger(__name__)

BY_AIRFLOW = "airflow: "
"""What `who` of a stop request begins with if a task's end asked for it, as opposed to a person or a tool."""

POLL = 0.5
TERM_PATIENCE = 15.0
"""Seconds between SIGTERM and SIGKILL."""

KILL_PATIENCE = 5.0
"""Seconds that the kernel gets to end what was killed, which on a busy machine is not at once."""


async def stop_consumer(
    consul: ConsulCluster,
    consumer: str,
    incarnation: str,
    who: str,
    why: str,
    patience: float,
    leader: ProcessRef | None = None,
    driver: ProcessRef | None = None,
    term_patience: float = TERM_PATIENCE,
) -> str:
    """Stop this incarnation of a consumer and return how it ended, in words.

    `patience`, until SIGTERM, and `term_patience`, until SIGKILL, are in seconds.
    `leader` is the `spark-submit` process and `driver` the Python one, if they are known.
    Does not raise if Consul is out of reach: then only signals are left.
    """

    def gone() -> bool:
        lives = [process.life() for process in (leader, driver) if process is not None]
        if Life.RUNNING in lives:
            return False
        if Life.ENDED in lives:
            return True
        members = consul.catalog.members()
        if members.membership is None:
            return False
        found = members.registered.get(consumer)
        return found is None or found.incarnation != incarnation

    asked = True
    try:
        await asyncio.to_thread(consul.jobs.request_stop, consumer, incarnation, who, why)
    except ConsulError as error:
        log.warning("consumer %s cannot be asked to stop (%s); a signal has to do", consumer, error)
        asked = False
    if asked and await _wait(gone, patience):
        return "it stopped in order"
    here = [process for process in (driver, leader) if process and process.life() is Life.RUNNING]
    if not here:
        return "it was asked to stop, and is not on this machine to be ended otherwise"
    log.warning("consumer %s: not gone after %g s, sending SIGTERM", consumer, patience if asked else 0)
    if driver is not None:
        driver.ask()
    if leader is not None:
        leader.ask_drivers()
    if await _wait(gone, term_patience if asked else patience):
        return "it stopped after SIGTERM"
    log.error("consumer %s: sending SIGKILL; what it read since its last commit will be read again", consumer)
    for process in here:
        process.kill()
    await _wait(gone, KILL_PATIENCE)
    with suppress(ConsulError):  # Consul notices by itself, only later
        await asyncio.to_thread(consul.catalog.deregister, consumer, incarnation)
    return "it was killed"


async def _wait(condition: Callable[[], bool], patience: float) -> bool:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            if await asyncio.to_thread(condition):
                return True
        except ConsulError as error:
            log.debug("cannot see whether it has gone: %s", error)
        await asyncio.sleep(POLL)
    return False
