"""An OpenTelemetry collector, as far as a test needs one: takes metrics by OTLP over HTTP, and remembers."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

KINDS = {"sum": "counter", "gauge": "gauge", "exponential_histogram": "timer", "histogram": "timer"}


class OtlpCollector:
    """A context manager. `seen` maps a name with its tags to the newest value: a counter's and a timer's sum, a
    gauge's value."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        self.kinds: dict[str, str] = {}
        self.tags: dict[str, frozenset[str]] = {}
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(ExportMetricsServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def value(self, name: str, tags: dict[str, str]) -> float | None:
        """The newest value of a metric with just these tags."""
        return self.seen.get((name, frozenset(tags.items())))

    def take(self, request: ExportMetricsServiceRequest) -> None:
        """Remember what a request has."""
        for resource in request.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    self._metric(metric)

    def _metric(self, metric: Any) -> None:
        kind = metric.WhichOneof("data")
        self.kinds[metric.name] = KINDS[kind]
        for point in getattr(metric, kind).data_points:
            tags = frozenset((each.key, each.value.string_value) for each in point.attributes)
            self.tags[metric.name] = frozenset(key for key, _ in tags)
            self.seen[metric.name, tags] = (
                point.sum if KINDS[kind] == "timer" else point.as_double or point.as_int
            )
