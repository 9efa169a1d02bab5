"""A TCP proxy on 127.0.0.1 that counts the bytes and the HTTP requests that pass it."""

from __future__ import annotations

import asyncio
import re
import threading
from contextlib import ExitStack, suppress

CHUNK = 65_536
_REQUEST = re.compile(rb"(?:GET|PUT|POST|DELETE) (\S+) HTTP/1\.1\r\n")


class CountingProxy(ExitStack):
    """Within this context connections to `port` go to `host` and `upstream`.

    `bytes` are those of both directions, `requests` the paths that were asked for, in order, with parameters. A
    request line that two reads split is not counted; clients send it in one piece.
    """

    def __init__(self, host: str, upstream: int) -> None:
        super().__init__()
        self.bytes = 0
        self.requests: list[str] = []
        self._upstream = host, upstream
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="counting-proxy", daemon=True)
        thread.start()
        listen = asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=4_096)
        server = asyncio.run_coroutine_threadsafe(listen, loop).result(10.0)
        self.port: int = server.sockets[0].getsockname()[1]
        self.callback(thread.join, 10.0)
        self.callback(loop.call_soon_threadsafe, loop.stop)
        self.callback(lambda: asyncio.run_coroutine_threadsafe(self._cut(), loop).result(10.0))

    async def _cut(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            from_server, to_server = await asyncio.open_connection(*self._upstream)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, to_server, asked=True))
                group.create_task(self._pass(from_server, writer, asked=False))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: bool) -> None:
        try:
            with suppress(OSError):
                while data := await reader.read(CHUNK):
                    self.bytes += len(data)
                    if asked:
                        self.requests += [path.decode() for path in _REQUEST.findall(data)]
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.close()
