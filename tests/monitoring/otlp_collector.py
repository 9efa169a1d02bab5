"""An OpenTelemetry collector, as far as a test needs one: takes metrics by OTLP over HTTP, and remembers."""

from __future__ import annotations

import gzip
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.support.http_pages import Page, Pages, Request

KINDS = {"sum": "counter", "gauge": "gauge", "exponential_histogram": "timer", "histogram": "timer"}


class OtlpCollector:
    """A context manager. `seen` maps a name with its tags to the newest value: a counter's and a timer's sum, a
    gauge's value."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        self.kinds: dict[str, str] = {}
        self.tags: dict[str, frozenset[str]] = {}
        self._pages = Pages(self._receive)
        self.port: int = self._pages.port

    def __enter__(self) -> Self:
        self._pages.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._pages.__exit__(*raised)

    def _receive(self, request: Request) -> Page:
        zipped = request.headers.get("content-encoding") == "gzip"
        body = gzip.decompress(request.body) if zipped else request.body
        self.take(ExportMetricsServiceRequest.FromString(body))
        return Page()

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
