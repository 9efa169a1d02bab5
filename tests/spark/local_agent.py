"""A small agent: serves the local API that the Spark source's planner calls, and remembers what it was told."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from muster.consumer.source.protocol import (
    PARTITIONS_PATH,
    PLANNED_PATH,
    SourcePartitions,
    SourcePlanned,
    TopicSource,
)
from muster.settings.connections import KafkaSettings

TOKEN = "token-of-the-test"  # noqa: S105


class LocalAgent:
    """Holds partitions as the test says. `refusing` makes it answer 503, as an agent that is not ready does."""

    def __init__(self, kafka: KafkaSettings, group: str, max_records_per_batch: int = 100_000) -> None:
        self.group = group
        self.max_records = max_records_per_batch
        self.refusing = False
        self.refused = 0
        self.planned: list[SourcePlanned] = []
        self._config = {k: v for k, v in kafka.config.items() if k != "bootstrap.servers"}
        self._servers = kafka.bootstrap_servers
        self._timeout = kafka.operation_timeout
        self._topics: dict[str, TopicSource] = {}
        self._nearby: dict[str, TopicSource] = {}
        self._asked = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def options(self) -> Mapping[str, str]:
        """The source's options that lead here."""
        return {"agent": f"http://127.0.0.1:{self._server.server_port}", "token": TOKEN}

    def hold(self, topic: str, partitions: Iterable[int], servers: str = "", topic_id: str = "") -> None:
        """From now on exactly `partitions` of `topic` may be read."""
        with self._lock:
            self._topics[topic] = self._source(partitions, servers, topic_id)

    def know(self, topic: str, partitions: Iterable[int], servers: str = "") -> None:
        """Others have these."""
        with self._lock:
            self._nearby[topic] = self._source(partitions, servers)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _source(self, partitions: Iterable[int], servers: str, topic_id: str = "") -> TopicSource:
        return TopicSource(
            bootstrap_servers=servers or self._servers,
            group_id=self.group,
            topic_id=topic_id,
            partitions=sorted(partitions),
        )

    def _answer(self) -> SourcePartitions:
        with self._lock:
            self._asked += 1
            return SourcePartitions(
                asked=self._asked,
                topics=dict(self._topics),
                nearby=dict(self._nearby),
                kafka=self._config,
                max_records_per_batch=self.max_records,
                operation_timeout=self._timeout,
            )

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        agent = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._reply(PARTITIONS_PATH, lambda: agent._answer().model_dump_json(by_alias=True))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))

                def told() -> str:
                    agent.planned.append(SourcePlanned.model_validate_json(body))
                    return ""

                self._reply(PLANNED_PATH, told)

            def _reply(self, path, produce) -> None:  # type: ignore[no-untyped-def]
                if self.headers["Authorization"] != f"Bearer {TOKEN}":
                    status, text = 401, "wrong token"
                elif self.path != path:
                    status, text = 404, "no such path"
                elif agent.refusing:
                    agent.refused += 1
                    status, text = 503, "not now"
                else:
                    text = produce()
                    status = 200 if text else 204
                self.send_response(status)
                if status != 204:
                    self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *args: object) -> None:
                """Silent."""

        return Handler
