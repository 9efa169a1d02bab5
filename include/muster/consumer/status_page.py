"""The consumer's HTTP face: `/status` for the coordinator and people, `/health` for Consul, `/metrics`.

It is open to whoever reaches the port, so it shows no setting that could be a secret. It answers from memory,
so it is quick whatever Spark, Kafka or ZooKeeper do.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST

import muster
from muster.consumer.agent import STOPPING, Agent, View
from muster.consumer.metrics import ConsumerMetrics
from muster.settings.consumer import ConsumerSettings


def make_status_page(agent: Agent, settings: ConsumerSettings, trouble: Callable[[], list[str]]) -> FastAPI:
    """The application. `trouble` says what is wrong with the agent's own threads, nothing if they are well."""
    app = FastAPI(title=f"muster consumer {settings.consumer}", openapi_url=None)
    metrics = ConsumerMetrics(agent, settings.cluster)
    started = time.time()

    @app.get("/status")
    async def status() -> dict[str, Any]:
        view = agent.view()
        return {
            "consumer": settings.consumer,
            "incarnation": settings.incarnation,
            "epochs": True,
            "leaving": STOPPING in view.bars,
            "topics": {topic: _topic(view, topic) for topic in view.topics},
            "cluster": settings.cluster,
            "state": _state(view),
            "errors": [f"{key}: {message}" for key, message in sorted(view.problems.items())],
            "records": view.counters.records,
            "batches": view.counters.batches,
            "query_failures": view.counters.query_failures,
            "last_batch": _iso(view.counters.last_batch_at),
            "started": _iso(started),
            "uptime": round(time.time() - started, 1),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": muster.__version__,
        }

    @app.get("/health")
    async def health() -> Response:
        wrong = trouble()
        return Response("\n".join(wrong) or "ok", status_code=503 if wrong else 200, media_type="text/plain")

    @app.get("/metrics")
    async def scrape() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return app


def _state(view: View) -> str:
    """What the consumer does as a whole: why it takes nothing up, or how far its query is."""
    if view.bars:
        return ", ".join(sorted(view.bars))
    return "running" if view.query_running else "starting"


def _topic(view: View, topic: str) -> dict[str, Any]:
    status = view.topics[topic]
    source = view.sources.get(topic)
    offsets = {
        str(partition): {
            "position": report.position,
            "committed": report.committed,
            "end": (end := view.ends.get((topic, partition))),
            "lag": None if end is None or report.position is None else max(0, end - report.position),
        }
        for (name, partition), report in view.held.items()
        if name == topic
    }
    return {
        "running": sorted(status.running),
        "starting": sorted(status.starting),
        "closing": sorted(status.closing),
        "epoch": status.epoch,
        "bootstrap.servers": source.bootstrap_servers if source else None,
        "group.id": source.group_id if source else None,
        "offsets": offsets,
        "lag": sum(entry["lag"] or 0 for entry in offsets.values()),
    }


def _iso(moment: float | None) -> str | None:
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
