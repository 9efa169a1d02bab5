"""TCP proxies on 127.0.0.1 that can cut off or delay chosen processes, as a broken network would.

What is cut off hears nothing: its connections stay open, new ones are taken, and no byte passes until the network is
whole again. Then all that was sent arrives, late, as TCP delivers it after an outage.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from devstack.ports import free_port
from tests.faults.real.whose import ports_of, processes_of_sessions

T = TypeVar("T")
CHUNK = 65_536


class Connection:
    """One client's connection. `port` is the client's own end, by which its process is found."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.whole = asyncio.Event()
        self.whole.set()
        self.delay = 0.0
        self.writers: list[asyncio.StreamWriter] = []

    async def pass_on(self) -> None:
        """Wait for as long as the network holds back what comes now."""
        if self.delay:
            await asyncio.sleep(self.delay)
        await self.whole.wait()


class Network:
    """The event loop of all proxies, in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-network", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T], timeout: float = 30.0) -> T:
        """Do `work` in the loop and return what it returns."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def close(self) -> None:
        """End the loop, with all that runs in it."""

        async def end() -> None:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        with suppress(TimeoutError):
            self.call(end(), 5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)


class Proxy:
    """One server's proxy. `upstream` gives the server's port, which may not be known before it has started."""

    def __init__(self, network: Network, upstream: Callable[[], int]) -> None:
        self.port = free_port()
        self._network = network
        self._upstream = upstream
        self._connections: set[Connection] = set()
        self._cut: set[int] = set()
        self._delay = 0.0
        self._server = network.call(self._listen())

    @property
    def address(self) -> str:
        """Where clients connect to."""
        return f"127.0.0.1:{self.port}"

    @contextmanager
    def cut(self, *sessions: int, delay: float = 0.0) -> Iterator[None]:
        """Let nothing pass of the processes in these sessions; with `delay` let it pass that many seconds late."""
        self._cut, self._delay = set(sessions), delay
        ports = ports_of(processes_of_sessions(sessions))
        self._network.call(self._apply(ports))
        try:
            yield
        finally:
            self._cut, self._delay = set(), 0.0
            self._network.call(self._apply(set()))

    async def _apply(self, ports: set[int]) -> None:
        for connection in self._connections:
            self._judge(connection, connection.port in ports)

    def _judge(self, connection: Connection, concerned: bool) -> None:
        connection.delay = self._delay if concerned else 0.0
        if concerned and not self._delay:
            connection.whole.clear()
        else:
            connection.whole.set()

    def close(self) -> None:
        """Stop listening, and end all connections."""

        async def end() -> None:
            self._server.close()
            for connection in self._connections:
                for writer in connection.writers:
                    writer.close()

        self._network.call(end())

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(writer.get_extra_info("peername")[1])
        connection.writers.append(writer)
        self._connections.add(connection)
        try:
            if self._cut:
                sessions = tuple(self._cut)
                held = await asyncio.to_thread(lambda: ports_of(processes_of_sessions(sessions)))
                self._judge(connection, bool(self._cut) and connection.port in held)
            await connection.pass_on()
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._upstream())
            connection.writers.append(server_writer)
            await self._serve(connection, (reader, writer), (server_reader, server_writer))
        except (OSError, asyncio.IncompleteReadError):
            pass  # whoever is at the other end sees the connection close
        finally:
            self._connections.discard(connection)
            for open_writer in connection.writers:
                open_writer.close()

    async def _serve(
        self,
        connection: Connection,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        pumps = [
            asyncio.create_task(self.pump(connection, client[0], server[1], True)),
            asyncio.create_task(self.pump(connection, server[0], client[1], False)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def pump(
        self,
        connection: Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        from_client: bool,
    ) -> None:
        """Pass bytes on in one direction until that end closes."""
        while data := await reader.read(CHUNK):
            await connection.pass_on()
            writer.write(data)
            await writer.drain()
        await connection.pass_on()
