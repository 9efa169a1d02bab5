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
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Query, Response, status
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import SecretStr

import muster
from muster.consumer.agent import Agent
from muster.consumer.blocks import STOPPING
from muster.consumer.metrics import ConsumerMetrics
from muster.consumer.snapshot import AgentSnapshot
from muster.core.model import Loss, ShardState, TopicPartition
from muster.core.wire import PROTOCOL, to_iso
from muster.settings.consumer import ConsumerSettings

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
        failed = {name: {"failures": _failures(agent, name)} for name in names} if failures else {}
        return {
            "consumer": settings.consumer,
            "incarnation": settings.incarnation,
            "generation": generation(),
            "epochs": True,
            "leaving": STOPPING in view.blocks,
            "max_batch_time": agent.max_batch_time,
            "batch": round(view.batch_seconds, 1) if view.in_batch else None,
            "topics": {name: _topic(view, name) | failed.get(name, {}) for name in names},
            "cluster": settings.cluster,
            "state": _state(view),
            "errors": [f"{key}: {message}" for key, message in sorted(view.problems.items())],
            "records": view.counters.records,
            "batches": view.counters.batches,
            "read_ahead_bytes": view.counters.read_ahead_bytes,
            "refused_commits": view.counters.refused_commits,
            "handler_failures": view.counters.handler_failures,
            "query_failures": view.counters.query_failures,
            "recreated": view.counters.recreated,
            "last_batch": _iso(view.counters.last_batch_at),
            "started": _iso(started),
            "uptime": round(time.time() - started, 1),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": muster.__version__,
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


def _topic(view: AgentSnapshot, topic: str) -> dict[str, Any]:
    held = view.topics[topic]
    source = view.sources.get(topic)
    offsets = {
        str(partition): _partition(view, (name, partition)) for name, partition in view.held if name == topic
    }
    return {
        "running": sorted(held.running),
        "starting": sorted(held.starting),
        "closing": sorted(held.closing),
        "standby": sorted(held.standby),
        "paused": sorted(held.paused),
        "epoch": held.epoch,
        "topic.id": source.topic_id or None if source else None,
        "bootstrap.servers": source.bootstrap_servers if source else None,
        "group.id": source.group_id if source else None,
        "offsets": offsets,
        "fenced": {
            str(partition): refusal.why
            for (name, partition), refusal in sorted(view.refusals.items())
            if name == topic
        },
        "failing": {
            str(partition): {
                "offset": record.offset,
                "attempts": record.attempts,
                "error": record.error,
                "parked": record.parked,
                "answer": record.answer or None,
                **({"decided_for": round(record.decided_for, 1)} if record.answer else {}),
                **({"lost": record.lost} if record.lost else {}),
                **({"timer": True} if record.timer else {}),
            }
            for (name, partition), record in sorted(view.failing.items())
            if name == topic
        },
        "unread": {
            str(partition): {"offset": failure.offset, "kind": failure.kind.lower(), "why": failure.why}
            for (name, partition), failure in sorted(view.unread.items())
            if name == topic
        },
        "losses": _losses(view.losses, topic),
        "left_out": _losses(view.left_out, topic),
        "stored": {
            str(partition): {
                sink: {"ranges": stored.ranges, "more": stored.more, "at": _iso(stored.at)}
                for sink, stored in sorted(held.stored.items())
            }
            for (name, partition), held in sorted(view.held.items())
            if name == topic and held.stored is not None
        },
        "state": {
            str(partition): _shard(shard)
            for (name, partition), shard in sorted(view.shards.items())
            if name == topic
        },
        "lag": sum(entry["lag"] or 0 for entry in offsets.values()),
    }


def _shard(shard: ShardState) -> dict[str, Any]:
    if shard.differs:
        return {"differs": shard.differs}
    if (found := shard.restore) is not None:
        return {
            "restored": found.read,
            "total": found.total,
            "rate": round(found.rate, 1),
            "still": round(found.still, 1),
        }
    return {
        "keys": shard.keys,
        "bytes": shard.bytes,
        "offset": shard.offset,
        "commit": shard.commit,
        "late": shard.late,
    }


def _failures(agent: Agent, topic: str) -> list[dict[str, Any]]:
    return [
        {"partition": one.partition, "offset": one.offset, "error": one.error, "at": _iso(one.at)}
        for one in agent.answers.failures(topic)
    ]


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


def _losses(losses: Mapping[TopicPartition, tuple[Loss, ...]], topic: str) -> dict[str, Any]:
    return {
        str(partition): [
            {
                "from": loss.begin,
                "to": loss.end,
                "records": loss.records,
                "reason": loss.why,
                "at": _iso(loss.at),
            }
            for loss in of_partition
        ]
        for (name, partition), of_partition in sorted(losses.items())
        if name == topic
    }


def _iso(moment: float | None) -> str | None:
    return None if moment is None else to_iso(moment)
