"""Many consumers in one process: a status page each that says what ZooKeeper assigns. `scale_registrars` has their
place in Consul.

They obey at once: what the product's own watch of the assignments reads is running. Pages answer as those of a
real consumer do, with the epoch of each topic and offsets of what is held, so that answers have their real size.
It reads commands from its standard input, a line each: `join [NAME] ...`, `leave [NAME] ...`; and says which ports
the pages of those that join have, in JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from muster.consumer.agent import Agent
from muster.consumer.assignment_watch import AssignmentWatch
from muster.core.model import TopicAssignment, by_consumer
from muster.settings.connections import ZooKeeperSettings


class Assigned:
    """What the watch tells an agent, kept for all consumers: each topic's epoch, and who holds what of it."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[int, Mapping[str, frozenset[int]], str]] = {}
        self.wake_reader = threading.Event()

    def reading_wanted(self) -> None:
        """Ask for nothing, where `Agent.reading_wanted` asks for a reading."""

    def problem(self, key: str, message: str | None) -> None:
        """Print what is wrong."""
        if message:
            print(f"{key}: {message}", file=sys.stderr, flush=True)

    def listed(self, topics: list[str], zxid: int, synced: bool) -> None:  # noqa: ARG002 - as the agent's
        """Forget the topics that went."""
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


class Crowd:
    """The pages of the consumers that are there."""

    def __init__(self, assigned: Assigned) -> None:
        self._assigned = assigned
        self._servers: dict[str, asyncio.Server] = {}

    async def join(self, names: list[str]) -> dict[str, int]:
        """Open pages; returns their ports."""
        loop = asyncio.get_running_loop()
        ports: dict[str, int] = {}
        for name in names:
            server = await loop.create_server(
                lambda name=name: _Page(name, self._assigned),  # type: ignore[misc]
                "127.0.0.1",
                0,
            )
            self._servers[name] = server
            ports[name] = server.sockets[0].getsockname()[1]
        return ports

    async def leave(self, names: list[str]) -> dict[str, int]:
        """Close pages."""
        for name in names:
            self._servers.pop(name).close()
        return {}


async def _serve(crowd: Crowd) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        what, *names = line.split()
        print(json.dumps(await (crowd.join if what == "join" else crowd.leave)(names)), flush=True)


def main() -> None:
    """Serve until standard input ends; the one argument says where the servers are, in JSON."""
    told = json.loads(sys.argv[1])
    assigned = Assigned()
    zookeeper = ZooKeeperSettings(hosts=told["zookeeper"], operation_timeout=60.0)
    # Of an agent the watch only calls what `Assigned` has.
    watch = AssignmentWatch(zookeeper, told["cluster"], cast(Agent, assigned), 3600.0)
    threading.Thread(target=watch.run, args=(lambda: None,), daemon=True).start()
    asyncio.run(_serve(Crowd(assigned)))


if __name__ == "__main__":
    main()
