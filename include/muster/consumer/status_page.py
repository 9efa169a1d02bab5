"""The consumer's HTTP face: `/status` for the coordinator and people, `/health` for people, `/metrics`.

Consul asks `/health?incarnation=...`, which fails for every other process: one that later listens at the address of a
process that died must not bring that back to life.

With a token, `/status` and `/metrics` answer only requests that send it (`Authorization: Bearer ...`).
`/health` is open in any case and says little: a token in Consul's check would be in Consul's catalog, which many can
read. No page shows a setting that could be a secret. They answer from memory, so they are quick whatever Spark, Kafka
or ZooKeeper do.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Header, HTTPException, Query, Response, status
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import SecretStr

import muster
from muster.consumer.agent import Agent
from muster.consumer.blocks import STOPPING
from muster.consumer.metrics import ConsumerMetrics
from muster.consumer.snapshot import AgentSnapshot
from muster.core.copies import ShardCopy, write_copy
from muster.core.lenient import write
from muster.core.model import ConsumerDetails, PastFailure, TopicPartition
from muster.core.wire import PROTOCOL, format_topic
from muster.settings.consumer import ConsumerSettings

_T = TypeVar("_T")

UNHEALTHY_AFTER = 10
"""Failures of the query in a row, without a batch coming through, after which the consumer is not healthy."""


def make_status_page(
    agent: Agent,
    settings: ConsumerSettings,
    trouble: Callable[[], list[str]],
    generation: Callable[[], int] = lambda: 0,
) -> FastAPI:
    """Build the application. `trouble` says what is wrong with the agent's own threads, nothing if they are well;
    `generation` is the process's, 0 before it registered."""
    app = FastAPI(title=f"muster consumer {settings.consumer}", openapi_url=None)
    metrics = ConsumerMetrics(agent, settings.cluster, settings.incarnation)
    started = time.time()

    guarded = [Depends(_bearer(settings.status_token))]

    @app.get("/status", dependencies=guarded)
    async def show(
        topic: Annotated[frozenset[str], Query()] = frozenset(), failures: bool = False
    ) -> dict[str, Any]:
        view = agent.view()
        names = topic & view.topics.keys() or view.topics.keys()
        details = ConsumerDetails(
            host=socket.gethostname(),
            version=muster.__version__,
            doing=_state(view),
            started_at=started,
            errors=tuple(f"{key}: {message}" for key, message in sorted(view.problems.items())),
            records=view.counters.records,
            batches=view.counters.batches,
            last_batch_at=view.counters.last_batch_at,
        )
        return {
            "consumer": settings.consumer,
            "incarnation": settings.incarnation,
            "generation": generation(),
            "epochs": True,
            "leaving": STOPPING in view.blocks,
            "max_batch_time": agent.max_batch_time,
            "batch": round(view.batch_seconds, 1) if view.in_batch else None,
            "topics": {
                name: _topic(view, name, agent.answers.failures(name) if failures else None) for name in names
            },
            "cluster": settings.cluster,
            **_stores(agent.states.copies(), topic),
            **write(details),
            "read_ahead_bytes": view.counters.read_ahead_bytes,
            "refused_commits": view.counters.refused_commits,
            "handler_failures": view.counters.handler_failures,
            "query_failures": view.counters.query_failures,
            "recreated": view.counters.recreated,
            "uptime": round(time.time() - started, 1),
            "pid": os.getpid(),
            "protocol": PROTOCOL,
        }

    @app.get("/health")
    async def health(incarnation: str = settings.incarnation) -> Response:
        wrong = trouble()
        if incarnation != settings.incarnation:
            wrong.append(
                f"here is consumer {settings.consumer} of cluster {settings.cluster}, "
                f"incarnation {settings.incarnation}, not {incarnation[:100]}"
            )
        failures, error = agent.query_failures
        if failures >= UNHEALTHY_AFTER:
            wrong.append(
                f"handler or query failed {failures} times in a row without a batch coming through, last: {error}"
            )
        return Response("\n".join(wrong) or "ok", status_code=503 if wrong else 200, media_type="text/plain")

    @app.get("/metrics", dependencies=guarded)
    async def scrape() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return app


def _bearer(token: SecretStr | None) -> Callable[[str], Awaitable[None]]:
    """Return a dependency that refuses requests without `token`."""
    wanted = f"Bearer {token.get_secret_value()}".encode() if token else b""

    async def check(authorization: Annotated[str, Header()] = "") -> None:
        if wanted and not secrets.compare_digest(authorization.encode(), wanted):
            raise HTTPException(
                status.HTTP_401_UNAUTHORIZED,
                "this page needs the bearer token of the cluster's 'status' connection: Authorization: Bearer ...",
                {"WWW-Authenticate": "Bearer"},
            )

    return check


def _state(view: AgentSnapshot) -> str:
    """Say what the consumer does as a whole: why it takes nothing up, or how far its query is."""
    if view.blocks:
        return ", ".join(sorted(view.blocks))
    return "running" if view.query_running else "starting"


def _topic(view: AgentSnapshot, topic: str, failures: tuple[PastFailure, ...] | None) -> dict[str, Any]:
    source = view.sources.get(topic)
    offsets = {
        str(partition): _partition(view, (name, partition)) for name, partition in view.held if name == topic
    }
    status = replace(
        view.topics[topic],
        failing=_of(topic, view.failing),
        losses=_of(topic, view.losses),
        left_out=_of(topic, view.left_out),
        stored={p: held.stored for p, held in _of(topic, view.held).items() if held.stored is not None},
        shards=_of(topic, view.shards),
        failures=failures,
    )
    return {
        **format_topic(status),
        "topic.id": source.topic_id or None if source else None,
        "bootstrap.servers": source.bootstrap_servers if source else None,
        "group.id": source.group_id if source else None,
        "offsets": offsets,
        "fenced": {str(partition): refusal.why for partition, refusal in _of(topic, view.refusals).items()},
        "unread": {
            str(partition): {"offset": failure.offset, "kind": failure.kind.lower(), "why": failure.why}
            for partition, failure in _of(topic, view.unread).items()
        },
        "lag": sum(entry["lag"] or 0 for entry in offsets.values()),
    }


def _of(topic: str, values: Mapping[TopicPartition, _T]) -> dict[int, _T]:
    return {partition: value for (name, partition), value in sorted(values.items()) if name == topic}


def _stores(copies: Mapping[TopicPartition, ShardCopy] | None, topics: Collection[str]) -> dict[str, Any]:
    """Return the local stores of shards, of these topics or all, if there are topics with state."""
    if copies is None:
        return {}
    found: dict[str, dict[str, dict[str, object]]] = {}
    for (topic, partition), copy in sorted(copies.items()):
        if not topics or topic in topics:
            found.setdefault(topic, {})[str(partition)] = write_copy(copy)
    return {"stores": found}


def _partition(view: AgentSnapshot, tp: TopicPartition) -> dict[str, Any]:
    held, lost = view.held[tp], view.counters.lost.get(tp)
    return {
        "position": held.position,
        "committed": held.committed,
        "end": held.end,
        "lag": held.lag,
        "rate": None if held.rate is None else round(held.rate, 3),
        **({"batch": round(view.batch_seconds, 1)} if tp in view.in_batch else {}),
        **({} if lost is None else {"lost": sum(lost.values())}),
        **({"rebuild": view.rebuilds[tp]} if tp in view.rebuilds else {}),
    }
