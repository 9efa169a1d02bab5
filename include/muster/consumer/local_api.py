"""The agent's end of the local API (see `muster.consumer.source.protocol`): the plan of the next batch.

Served on the loopback interface only. The bearer token is new for each query, so what is left of a query that ended
is turned away.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response, status
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from muster.consumer.agent import Agent, StaleTokenError
from muster.consumer.plannings import Plannings
from muster.consumer.source.batch_size import Bounds
from muster.consumer.source.java_client import KafkaSettingError
from muster.consumer.source.protocol import NEXT_PATH, NextQuestion
from muster.core.ownership import PlanRefusedError
from muster.settings.connections import KafkaSettings


async def _token(authorization: Annotated[str, Header()] = "") -> str:
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


Token = Annotated[str, Depends(_token)]

_CODES = {
    StaleTokenError: status.HTTP_401_UNAUTHORIZED,
    PlanRefusedError: status.HTTP_409_CONFLICT,
    KafkaSettingError: status.HTTP_400_BAD_REQUEST,
}


def make_local_api(
    agent: Agent,
    kafka: KafkaSettings,
    bounds: Bounds,
    interval: float = 0.0,
    source_options: Mapping[str, str] | None = None,
) -> FastAPI:
    """Build the application that answers the connector; the arguments are those of `Plannings`."""
    app = FastAPI(openapi_url=None)
    plannings = Plannings(agent, kafka, bounds, interval, source_options)

    for refused, code in _CODES.items():
        app.add_exception_handler(refused, partial(_refuse, code))

    @app.post(NEXT_PATH)
    async def next_batch(request: Request, token: Token) -> Response:
        agent.check_token(token)
        question = _question(await request.body())
        answer = await run_in_threadpool(plannings.next, token, question)
        return Response(answer.model_dump_json(by_alias=True), media_type="application/json")

    return app


async def _refuse(code: int, _: Request, error: Exception) -> Response:
    return JSONResponse({"detail": str(error)}, code)


def _question(body: bytes) -> NextQuestion:
    # Not by FastAPI, which answers some texts that are no JSON with a fault of its own, and looks before the token.
    try:
        return NextQuestion.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part)[:100] for part in first["loc"]) or "the whole text"
        raise HTTPException(
            status.HTTP_422_UNPROCESSABLE_CONTENT,
            f"{where}: {first['msg']}; check that the driver and this process run the same version of muster",
        ) from error
