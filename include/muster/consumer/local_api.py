"""The agent's end of the local API (see `muster.consumer.source.protocol`): what the planner may plan.

Served on the loopback interface only. The bearer token is new for each query, so the planner of a query that
ended is turned away even if its process still lives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Query, Request, Response, status
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from muster.consumer.agent import Agent, StaleTokenError
from muster.consumer.source.protocol import (
    LONGEST_WAIT,
    PARTITIONS_PATH,
    PLANNED_PATH,
    Offsets,
    SourcePartitions,
    SourcePlanned,
    TopicSource,
)
from muster.core.ownership import PlanRefusedError, Range, TopicOffer
from muster.core.positions import Jump
from muster.settings.connections import KafkaSettings


async def _token(authorization: Annotated[str, Header()] = "") -> str:
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


Token = Annotated[str, Depends(_token)]


def make_local_api(agent: Agent, kafka: KafkaSettings, max_records_per_batch: int) -> FastAPI:
    """The application that answers the planner."""
    app = FastAPI(openapi_url=None)
    properties = {key: value for key, value in kafka.config.items() if key != "bootstrap.servers"}

    async def refuse(_: Request, error: Exception) -> Response:
        stale = isinstance(error, StaleTokenError)
        code = status.HTTP_401_UNAUTHORIZED if stale else status.HTTP_409_CONFLICT
        return JSONResponse({"detail": str(error)}, code)

    for refused in (StaleTokenError, PlanRefusedError):
        app.add_exception_handler(refused, refuse)

    @app.get(PARTITIONS_PATH)
    async def partitions(
        token: Token, wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT)] = 0.0
    ) -> Response:
        agent.check_token(token)
        if wait > 0:
            await run_in_threadpool(agent.wait_for, lambda own: own.has_something_to_offer, wait)
        offer = agent.offer(token)
        nearby: Mapping[str, TopicOffer] = {}
        if not any(topic.partitions for topic in offer.topics.values()):
            with agent.locked() as own:
                nearby = own.nearby()
        answer = SourcePartitions(
            asked=offer.asked,
            topics=sources(offer.topics),
            nearby=sources(nearby),
            kafka=properties,
            max_records_per_batch=max_records_per_batch,
            operation_timeout=kafka.operation_timeout,
        )
        return Response(answer.model_dump_json(by_alias=True), media_type="application/json")

    @app.post(PLANNED_PATH, status_code=status.HTTP_204_NO_CONTENT)
    async def planned(request: Request, token: Token) -> None:
        agent.check_token(token)
        planned_by(agent, token, _plan(await request.body()))

    return app


def planned_by(agent: Agent, token: str, plan: SourcePlanned) -> None:
    """Tell `agent` what the planner planned. Raises `StaleTokenError` or `PlanRefusedError`."""
    agent.planned(
        token,
        asked=plan.asked,
        finished=_ranges(plan.finished),
        offsets=_ranges(plan.offsets),
        ends={
            (topic, int(partition)): end
            for topic, ends in plan.ends.items()
            for partition, end in ends.items()
        },
        problems=plan.problems,
        jumps={
            (topic, int(partition)): Jump(before, after, why)
            for topic, of_topic in plan.jumps.items()
            for partition, (before, after, why) in of_topic.items()
        },
    )


def sources(topics: Mapping[str, TopicOffer]) -> dict[str, TopicSource]:
    """Return topics as the planner receives them."""
    return {
        name: TopicSource(
            bootstrap_servers=topic.source.bootstrap_servers,
            group_id=topic.source.group_id,
            topic_id=topic.source.topic_id,
            partitions=sorted(topic.partitions),
        )
        for name, topic in topics.items()
    }


def _plan(body: bytes) -> SourcePlanned:
    # Not by FastAPI, which answers some texts that are no JSON with a fault of its own, and looks before the token.
    try:
        return SourcePlanned.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part)[:100] for part in first["loc"]) or "the whole text"
        raise HTTPException(
            status.HTTP_422_UNPROCESSABLE_CONTENT,
            f"{where}: {first['msg']}; check that the driver and this process run the same version of muster",
        ) from error


def _ranges(offsets: Offsets) -> Mapping[str, Mapping[int, Range]]:
    return {
        topic: {int(partition): (begin, end) for partition, (begin, end) in ranges.items()}
        for topic, ranges in offsets.items()
        if ranges
    }
