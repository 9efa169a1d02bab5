"""The agent's end of the local API (see `muster.consumer.source.protocol`): what the planner may plan.

Served on the loopback interface only. The bearer token is new for each query, so the planner of a query that
ended is turned away even if its process still lives.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from fastapi import FastAPI, Header, HTTPException, Query, Request, Response, status
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ValidationError

from muster.consumer.agent import Agent, StaleTokenError
from muster.consumer.plannings import Plannings, QueryOffers, planned_by
from muster.consumer.source.java_client import KafkaSettingError
from muster.consumer.source.protocol import (
    LONGEST_WAIT,
    NEXT_PATH,
    PARTITIONS_PATH,
    PLANNED_PATH,
    NextQuestion,
    SourcePlanned,
)
from muster.core.ownership import PlanRefusedError
from muster.settings.connections import KafkaSettings

_Message = TypeVar("_Message", bound=BaseModel)


def make_local_api(
    agent: Agent, kafka: KafkaSettings, max_records_per_batch: int, idle_wait: float = 0.0
) -> FastAPI:
    """The application that answers the planner and the connector; `idle_wait` is that of `Plannings`."""
    app = FastAPI(openapi_url=None)
    plannings = Plannings(agent, kafka, max_records_per_batch, idle_wait)

    @app.get(PARTITIONS_PATH)
    async def partitions(
        authorization: Annotated[str, Header()] = "",
        wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT)] = 0.0,
    ) -> Response:
        offers = QueryOffers(agent, _token(authorization), kafka, max_records_per_batch)
        try:
            answer = await run_in_threadpool(offers.partitions, wait)
        except (StaleTokenError, PlanRefusedError) as error:
            raise _refusal(error) from error
        return Response(answer.model_dump_json(by_alias=True), media_type="application/json")

    @app.post(PLANNED_PATH, status_code=status.HTTP_204_NO_CONTENT)
    async def planned(request: Request, authorization: Annotated[str, Header()] = "") -> None:
        token = _token(authorization)
        try:
            agent.check_token(token)
            plan = _parsed(SourcePlanned, await request.body())
            planned_by(agent, token, plan)
        except (StaleTokenError, PlanRefusedError) as error:
            raise _refusal(error) from error

    @app.post(NEXT_PATH)
    async def next_batch(request: Request, authorization: Annotated[str, Header()] = "") -> Response:
        token = _token(authorization)
        try:
            agent.check_token(token)
            question = _parsed(NextQuestion, await request.body())
            answer = await run_in_threadpool(plannings.next, token, question)
        except (StaleTokenError, PlanRefusedError) as error:
            raise _refusal(error) from error
        except KafkaSettingError as error:
            raise HTTPException(status.HTTP_400_BAD_REQUEST, str(error)) from error
        return Response(answer.model_dump_json(by_alias=True), media_type="application/json")

    return app


def _parsed(kind: type[_Message], body: bytes) -> _Message:
    # Not by FastAPI, which answers some texts that are no JSON with a fault of its own, and looks before the token.
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part)[:100] for part in first["loc"]) or "the whole text"
        raise HTTPException(
            status.HTTP_422_UNPROCESSABLE_CONTENT,
            f"{where}: {first['msg']}; check that the driver and this process run the same version of muster",
        ) from error


def _token(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _refusal(error: Exception) -> HTTPException:
    code = status.HTTP_401_UNAUTHORIZED if isinstance(error, StaleTokenError) else status.HTTP_409_CONFLICT
    return HTTPException(code, str(error))
