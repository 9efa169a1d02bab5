"""One watch on Consul for all consumers of a cluster that this process looks after.

Hundreds of triggers in one triggerer share it, so Consul is asked once, by one blocking query at a time. The watch
begins with its first subscriber and ends with its last. No exception ends it: subscribers see it in `Watch.error`,
and Consul is asked again.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from muster.airflow.connections import aconsul_settings
from muster.edges.consul import ConsulCluster, ConsulError, Members, StopRequest, WaitIndex
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connection_parsing import ConnectionSettingsError

log = logging.getLogger(__name__)

T = TypeVar("T")

BLOCK = 30.0
"""Seconds that one blocking query lasts at most."""
AGAIN = 2.0
"""Seconds until Consul is asked again after an error."""


@dataclass(frozen=True)
class Watched:
    """Which watch: the cluster, its Consul service, the Airflow connection that says where Consul is, and what the
    cluster's keys there begin with."""

    cluster: str
    service: str
    connection: str
    prefix: str

    @classmethod
    def of(cls, cluster: ClusterSettings) -> Watched:
        return cls(cluster.name, cluster.consul_service, cluster.consul, cluster.consul_prefix)

    async def consul(self) -> ConsulCluster:
        """Open Consul as the connection says now. Raises `ConnectionSettingsError`."""
        settings = await aconsul_settings(self.connection)
        return ConsulCluster(settings, self.cluster, self.service, prefix=self.prefix)


@dataclass
class Watch:
    """The latest answers of Consul: which consumers are there, and which were asked to stop.

    `members` is None before the first answer and while Consul is out of reach, with `error` saying why.
    """

    what: Watched
    members: Members | None = None
    stops: Mapping[str, StopRequest] = field(default_factory=dict)
    error: str = ""
    seen: tuple[str, str] | None = None
    """What tells one state of the consumers' health and of the cluster's keys from another; None before the first."""
    subscribers: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    async def changed(self, at_most: float) -> None:
        """Return at the next answer of Consul, after `at_most` seconds at the latest."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), at_most)

    def start(self) -> None:
        """Begin to watch, in a task of its own that belongs to no trigger."""
        self._task = asyncio.create_task(self._run(), context=contextvars.Context())

    async def stop(self) -> None:
        """End the watch. A blocking query that is under way is left to end by itself."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def _tell(self, members: Members | None, error: str = "", unexpected: Exception | None = None) -> None:
        if error and error != self.error:
            log.warning("%s", error, exc_info=unexpected)
        self.members, self.error = members, error
        # Those that wait are woken by the old event, the next ones wait for the new one.
        self._changed.set()
        self._changed = asyncio.Event()

    async def _run(self) -> None:
        while True:
            try:
                await self._follow()
            except (ConsulError, ConnectionSettingsError) as error:
                self._tell(None, str(error))
            except Exception as error:  # of any kind: every consumer of the cluster hangs on this watch
                what = f"watching the consumers of cluster {self.what.cluster!r} failed"
                said = f"{what}: {type(error).__name__}: {error}; trying again in {AGAIN:g} s"
                self._tell(None, said, unexpected=error)
            await asyncio.sleep(AGAIN)

    async def _follow(self) -> None:
        # Opened again after each error, so that a connection that was corrected in Airflow takes effect.
        consul = await self.what.consul()
        index = await _in_thread(lambda: consul.catalog.wait(WaitIndex(), 0.0))
        while True:
            self.seen = (index.seen_health, index.seen_keys)
            self.stops = await _in_thread(consul.jobs.stop_requests)
            self._tell(await _in_thread(consul.catalog.members))
            index = await _in_thread(partial(consul.catalog.wait, index, BLOCK))


async def _in_thread(work: Callable[[], T]) -> T:
    """Do `work` in a daemon thread of its own.

    The event loop's few threads would be used up by blocking queries, and threads of an executor keep a process that
    is to end waiting for them.
    """
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # from now on only `run` ends it; who waits may be cancelled

    def run() -> None:
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True, name="muster-watch").start()
    return await asyncio.wrap_future(done)


_watches: dict[tuple[asyncio.AbstractEventLoop, Watched], Watch] = {}


@asynccontextmanager
async def watching(what: Watched) -> AsyncIterator[Watch]:
    """Subscribe to the watch `what` of this event loop for as long as the context lasts."""
    key = (asyncio.get_running_loop(), what)
    watch = _watches.get(key)
    if watch is None:
        watch = _watches[key] = Watch(what)
        watch.start()
    watch.subscribers += 1
    try:
        yield watch
    finally:
        watch.subscribers -= 1
        if not watch.subscribers:
            del _watches[key]
            await watch.stop()
