"""A proxy that reads ZooKeeper's frames: it kills who writes the n-th transaction, and sees sessions expire.

Requests begin with xid and operation, answers with the xid that they answer; the first frame in either direction is
the session's own (Apache ZooKeeper, `zookeeper.jute`: ConnectRequest, ConnectResponse, RequestHeader, ReplyHeader).
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import psutil

from tests.faults.real.proxy import Connection, Network, Proxy
from tests.faults.real.whose import process_at

MULTI = 14
"""The operation of a transaction of several writes."""

Moment = Literal["before", "after"]


@dataclass
class Trap:
    """Kills the process that sends the `number`-th transaction from now on, `before` ZooKeeper has it or `after`.

    `sprung` is set when it is dead; `victim` says what it was. With `after` it dies before it has the answer.
    """

    number: int
    moment: Moment
    seen: int = 0
    sprung: threading.Event = field(default_factory=threading.Event)
    victim: str = ""

    def kill(self, port: int) -> None:
        """Kill the process that is connected from `port`. Blocks for a moment."""
        process = process_at(port)
        assert process is not None, f"nobody is connected from port {port}"
        self.victim = f"{process.pid} {' '.join(process.cmdline())}"
        process.kill()
        psutil.wait_procs([process], timeout=10)
        self.sprung.set()


@dataclass
class Watched:
    """What all proxies of one ensemble have in common."""

    trap: Trap | None = None
    expired: int = 0
    """Sessions that a client wanted to go on with, and that had expired."""


class ZooKeeperProxy(Proxy):
    """One server's proxy, which passes on whole frames."""

    def __init__(self, network: Network, upstream: Callable[[], int], watched: Watched) -> None:
        self._watched = watched
        self._awaited: dict[Connection, int] = {}
        super().__init__(network, upstream)

    async def pump(
        self,
        connection: Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        from_client: bool,
    ) -> None:
        """Pass frames on in one direction until that end closes."""
        first = True
        while True:
            try:
                length = await reader.readexactly(4)
                frame = await reader.readexactly(struct.unpack(">i", length)[0])
            except asyncio.IncompleteReadError:
                break
            await connection.pass_on()
            if first:
                # protocol version, time-out, session: a session that is gone has no time-out any more.
                if not from_client and struct.unpack_from(">i", frame, 4)[0] <= 0:
                    self._watched.expired += 1
            elif not await (self._request if from_client else self._answer)(connection, frame):
                return
            first = False
            writer.write(length + frame)
            await writer.drain()
        await connection.pass_on()

    async def _request(self, connection: Connection, frame: bytes) -> bool:
        """Whether to pass it on."""
        xid, operation = struct.unpack_from(">ii", frame)
        trap = self._watched.trap
        if trap is None or operation != MULTI:
            return True
        trap.seen += 1
        if trap.seen != trap.number:
            return True
        if trap.moment == "before":
            await asyncio.to_thread(trap.kill, connection.port)
            return False
        self._awaited[connection] = xid
        return True

    async def _answer(self, connection: Connection, frame: bytes) -> bool:
        xid = struct.unpack_from(">i", frame)[0]
        trap = self._watched.trap
        if trap is None or self._awaited.get(connection) != xid:
            return True
        del self._awaited[connection]
        await asyncio.to_thread(trap.kill, connection.port)
        return False
