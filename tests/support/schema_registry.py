"""A schema registry as far as a consumer asks it: `GET /schemas/ids/[ID]` of its REST API, over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit


class SchemaRegistry:
    """Serves `schemas`, by id, from when the block begins until it ends; `asked` has the ids that were asked for."""

    def __init__(self, schemas: Mapping[int, object]) -> None:
        self.asked: list[str] = []
        texts = {f"/schemas/ids/{number}": json.dumps(schema) for number, schema in schemas.items()}
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                asked.append(path.rpartition("/")[2])
                if path in texts:
                    self._answer(200, {"schema": texts[path]})
                else:
                    self._answer(404, {"error_code": 40403, "message": "Schema not found"})

            def _answer(self, status: int, answer: Mapping[str, Any]) -> None:
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing on stderr."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
