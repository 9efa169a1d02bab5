"""A small HTTP server for tests: pages that answer as the test says, and a record of what was asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


@dataclass
class Page:
    """One answer. `drip` seconds pass before each of its parts."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    drip: float = 0.0
    parts: int = 1


@dataclass(frozen=True)
class Request:
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


class Pages:
    """Serves what `answer(request)` returns on a free port of 127.0.0.1; a context manager."""

    def __init__(self, answer: Callable[[Request], Page]) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        pages = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {k.lower(): v for k, v in self.headers.items()}
                request = Request(self.command, self.path, headers, body)
                pages.requests.append(request)
                page = pages.answer(request)
                try:
                    time.sleep(page.drip)
                    self.send_response(page.status)
                    for name, value in page.headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(page.body) * page.parts))
                    self.end_headers()
                    for _ in range(page.parts):
                        time.sleep(page.drip)
                        self.wfile.write(page.body)
                        self.wfile.flush()
                except OSError:
                    pass  # whoever asked has gone, which is what some tests are about

            do_GET = do_PUT = do_DELETE = do_POST = _serve  # noqa: N815  http.server wants these names

            def log_message(self, *_: object) -> None:
                """Keep the test's output clean."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 1024

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
