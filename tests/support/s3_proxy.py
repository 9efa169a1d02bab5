"""A proxy before an object store: it counts the requests that change something, and holds or loses them."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from tests.support.object_store import signed_put

CHANGES = ("PUT", "POST", "DELETE")
PROBE = "/_muster/"
"""In a request that changes nothing of a table, in its path or in the keys that it names; it is not counted."""


class S3Proxy:
    """Forwards to the store at `target`; `address` is its own.

    `before` is called with the number of each change, from 1, before it is forwarded; the request is lost if it
    returns False. `after` likewise, when the store has answered; the answer is lost if it returns False. With
    `unconditional` the store does not get to know of conditions, as one that has not heard of them.
    """

    def __init__(
        self,
        target: str,
        before: Callable[[int], bool] = lambda _: True,
        after: Callable[[int], bool] = lambda _: True,
        unconditional: bool = False,
    ) -> None:
        self.target = target
        self.before = before
        self.after = after
        self.unconditional = unconditional
        self.changes: list[str] = []
        self._counting = threading.Lock()
        handler = type("Forwarding", (_Handler,), {"proxy": self})
        self._server = _Server(("127.0.0.1", 0), handler)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def number(self, method: str, path: str, body: bytes) -> int | None:
        """The number of a request, None if it is not counted."""
        if method not in CHANGES or PROBE in path or PROBE.encode() in body:
            return None
        with self._counting:
            self.changes.append(f"{method} {path}")
            return len(self.changes)

    def __enter__(self) -> S3Proxy:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    proxy: S3Proxy
    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        number = self.proxy.number(self.command, self.path, body)
        if number is not None and not self.proxy.before(number):
            self.close_connection = True
            return
        headers = dict(self.headers)
        if self.proxy.unconditional and "If-None-Match" in self.headers:
            headers = signed_put(self.headers["Host"], self.path, body)
        connection = http.client.HTTPConnection(self.proxy.target)
        connection.request(self.command, self.path, body, headers)
        response = connection.getresponse()
        answer = response.read()
        if number is not None and not self.proxy.after(number):
            self.close_connection = True
            return
        self.send_response_only(response.status)
        for name, value in response.getheaders():
            if name.lower() not in {"transfer-encoding", "connection", "content-length"}:
                self.send_header(name, value)
        length = response.getheader("Content-Length") if self.command == "HEAD" else str(len(answer))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(answer)
        connection.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward  # noqa: N815  the names that http.server calls

    def log_message(self, *_: object) -> None:
        """Say nothing."""
