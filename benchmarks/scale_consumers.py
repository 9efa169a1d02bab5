"""Many simulated consumers: a status page each that says what ZooKeeper assigns, in one process, and the product's
own registrars, with nothing behind them, in others.

They obey at once: what the product's own watch of the assignments reads is running. Pages answer as those of a
real consumer do, with the epoch of each topic and offsets of what is held, so that answers have their real size.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from benchmarks.harness.worker import Worker
from benchmarks.scale_tasks import Place
from devstack.airflow_api import wait_for
from muster.consumer.agent import Agent
from muster.consumer.assignment_watch import AssignmentWatch
from muster.consumer.lifecycle import Ending
from muster.consumer.problems import Problems
from muster.consumer.registration import Registrar
from muster.core.model import TopicAssignment, by_consumer
from muster.edges.consul import ConsulCluster
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from muster.settings.consumer import ConsumerSettings

AT_ONCE = 16
"""So many are on their way to be live at the same time: here all have one agent of Consul, and one machine."""
PATIENCE = 600.0
"""Seconds until all that join have to be live."""


class NoBlocks:
    """Asks for no reading, where `muster.consumer.blocks.Blocks` may."""

    def __init__(self) -> None:
        self.wake_reader = threading.Event()

    def reading_wanted(self) -> None:
        """Nothing waits for one."""


class Assigned:
    """What the watch tells an agent, kept for all consumers: each topic's epoch, and who holds what of it."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[int, Mapping[str, frozenset[int]], str]] = {}
        self.blocks = NoBlocks()
        self.problems = Problems(time.monotonic)

    def listed(self, topics: list[str], zxid: int, synced: bool) -> None:  # noqa: ARG002 - as the agent's
        self.topics = {topic: self.topics[topic] for topic in topics if topic in self.topics}

    def assigned(self, topic: str, assignment: TopicAssignment, zxid: int, synced: bool) -> bool:  # noqa: ARG002
        """Take the assignment of a topic; returns that it is obeyed."""
        nothing = json.dumps({topic: _topic(assignment.epoch, [])})[1:-1]
        self.topics[topic] = (assignment.epoch, by_consumer(assignment.owners), nothing)
        return True

    def status(self, consumer: str, asked: frozenset[str]) -> bytes:
        """Return what the page of `consumer` says, of the topics `asked` or of all."""
        known = self.topics
        topics = {name: known[name] for name in asked & known.keys()} if asked else known
        shown = ", ".join(
            json.dumps({name: _topic(epoch, sorted(held[consumer]))})[1:-1] if consumer in held else nothing
            for name, (epoch, held, nothing) in topics.items()
        )
        head = {"consumer": consumer, "incarnation": f"{consumer}-1", "epochs": True, "leaving": False}
        return f'{json.dumps(head)[:-1]}, "topics": {{{shown}}}}}'.encode()


def _topic(epoch: int, held: list[int]) -> dict[str, Any]:
    """Return what `muster.consumer.status_page` says of a topic."""
    offset = {"position": 1_000_000, "committed": 1_000_000, "end": 1_000_000, "lag": 0, "rate": 1.0}
    return {
        "running": held,
        "starting": [],
        "closing": [],
        "standby": [],
        "epoch": epoch,
        "bootstrap.servers": "kafka-1.example.com:9092",
        "group.id": "scale",
        "offsets": {str(partition): offset for partition in held},
        "fenced": {},
        "lag": 0,
    }


class _Page(asyncio.Protocol):
    """The few lines of HTTP that a page needs; a thousand servers of a framework would take more than the rest."""

    def __init__(self, consumer: str, assigned: Assigned) -> None:
        self._consumer = consumer
        self._assigned = assigned
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if b"\r\n\r\n" not in self._received:
            return
        target = urlsplit(self._received.split(b" ", 2)[1].decode())
        asked = frozenset(parse_qs(target.query).get("topic", ()))
        body = b"ok" if target.path == "/health" else self._assigned.status(self._consumer, asked)
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self._transport.write(head.encode() + body)
        self._transport.close()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


class Crowd:
    """The pages of a cluster's consumers that are there, in this process."""

    def __init__(self, place: Place) -> None:
        zookeeper = ZooKeeperSettings(hosts=place.zookeeper, operation_timeout=60.0)
        self._assigned = Assigned()
        # Of an agent the watch only calls what `Assigned` has.
        watch = AssignmentWatch(zookeeper, place.cluster, cast(Agent, self._assigned), 3600.0)
        threading.Thread(target=watch.run, args=(lambda: None,), daemon=True).start()
        self._servers: dict[str, asyncio.Server] = {}

    def join(self, names: list[str]) -> dict[str, int]:
        """Open pages; returns their ports."""
        for name in names:
            made = _loop().create_server(partial(_Page, name, self._assigned), "127.0.0.1", 0)
            self._servers[name] = asyncio.run_coroutine_threadsafe(made, _loop()).result()
        return {name: self._servers[name].sockets[0].getsockname()[1] for name in names}

    def leave(self, name: str) -> None:
        _loop().call_soon_threadsafe(self._servers.pop(name).close)


class Registrars:
    """Registrars in threads of one process."""

    def __init__(self, place: Place) -> None:
        # Threads that wait for the interpreter's lock look for it at this interval. At the default of 5 ms, hundreds
        # of them take all CPU. In the field a process has one registrar.
        sys.setswitchinterval(1.0)
        self._place = place
        self._consul = ConsulSettings(host="127.0.0.1", port=place.consul, timeout=30.0)
        self._all: dict[str, Registrar] = {}

    def join(self, ports: Mapping[str, int]) -> None:
        """Register consumers by the ports of their pages, and return when all are live."""
        for name, port in ports.items():
            self._wait(AT_ONCE - 1)
            settings = ConsumerSettings(
                cluster=self._place.cluster,
                consumer=name,
                incarnation=f"{name}-1",
                consul_service=self._place.service,
                zookeeper=ZooKeeperSettings(hosts=self._place.zookeeper),
                consul=self._consul,
                kafka=KafkaSettings(config={"bootstrap.servers": "none"}),
                handler="none.none",
                bind="127.0.0.1",
                advertise="127.0.0.1",
                check_interval=self._place.check_interval,
            )
            discovery = ConsulCluster(self._consul, settings.cluster, settings.consul_service)
            registrar = self._all[name] = Registrar(settings, discovery, Agent(name), Ending(), port)
            registrar.open()
            threading.Thread(target=registrar.run, args=(lambda: None,), daemon=True).start()
        self._wait(0)

    def kill(self, name: str) -> None:
        """Leave a consumer's registration as it is."""
        del self._all[name]

    def leave(self, name: str) -> None:
        self._all.pop(name).leave()

    def _wait(self, others: int) -> None:
        wait_for(
            f"{len(self._all)} consumers are live",
            lambda: sum(not registrar.live for registrar in self._all.values()) <= others,
            PATIENCE,
            interval=0.05,
        )


class Consumers(ExitStack):
    """Simulated consumers, until the end of the context: one process with their status pages, some with registrars.

    There are `registrars` of the latter; their way to Consul is the port `consul`, if it is given.
    """

    def __init__(self, place: Place, registrars: int = 1, consul: int = 0) -> None:
        super().__init__()
        place_of_registrars = replace(place, consul=consul or place.consul)
        self._pages = Worker(Crowd, place)
        self._registrars = [Worker(Registrars, place_of_registrars) for _ in range(registrars)]
        for worker in (self._pages, *self._registrars):
            self.callback(worker.close, 0.0)
        self._names: list[str] = []
        self._born = 0

    def join(self, number: int) -> None:
        names = [f"scale-{self._born + n:04d}" for n in range(number)]
        self._born += number
        self._names += names
        ports = self._pages.call(Crowd.join, names)
        shares = {
            worker: {name: port for name, port in ports.items() if self._registrar(name) is worker}
            for worker in self._registrars
        }
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda worker: worker.call(Registrars.join, shares[worker]), shares))

    def leave(self) -> None:
        self._end(Registrars.leave)

    def kill(self) -> None:
        """Have the oldest one's page refuse connections; it stays registered."""
        self._end(Registrars.kill)

    def _end(self, how: Any) -> None:
        name = self._names.pop(0)
        self._registrar(name).call(how, name)
        self._pages.call(Crowd.leave, name)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Freeze the registrars: in the field they have machines of their own, and take none of this one's time.

        Consul still has their blocking queries.
        """
        for worker in self._registrars:
            worker.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for worker in self._registrars:
                worker.signal(signal.SIGCONT)

    def _registrar(self, name: str) -> Worker:
        return self._registrars[int(name.rpartition("-")[2]) % len(self._registrars)]
