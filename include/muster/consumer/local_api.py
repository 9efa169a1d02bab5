"""The agent's end of the local API (see `muster.consumer.source.protocol`): the plan of the next batch.

Served on the loopback interface only. The bearer token is new for each query, so what is left of a query that ended
is turned away.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Header, HTTPException, Request, Response, status
from fastapi.concurrency import run_in_threadpool
from pydantic import ValidationError

from muster.consumer.agent import Agent, StaleTokenError
from muster.consumer.plannings import Plannings
from muster.consumer.source.java_client import KafkaSettingError
from muster.consumer.source.protocol import NEXT_PATH, NextQuestion
from muster.core.ownership import PlanRefusedError
from muster.settings.connections import KafkaSettings


def make_local_api(
    agent: Agent, kafka: KafkaSettings, max_records_per_batch: int, idle_wait: float = 0.0
) -> FastAPI:
    """The application that answers the connector; `idle_wait` is that of `Plannings`."""
    app = FastAPI(openapi_url=None)
    plannings = Plannings(agent, kafka, max_records_per_batch, idle_wait)

    @app.post(NEXT_PATH)
    async def next_batch(request: Request, authorization: Annotated[str, Header()] = "") -> Response:
        token = _token(authorization)
        try:
            agent.check_token(token)
            question = _question(await request.body())
            answer = await run_in_threadpool(plannings.next, token, question)
        except (StaleTokenError, PlanRefusedError) as error:
            raise _refusal(error) from error
        except KafkaSettingError as error:
            raise HTTPException(status.HTTP_400_BAD_REQUEST, str(error)) from error
        return Response(answer.model_dump_json(by_alias=True), media_type="application/json")

    return app


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


def _token(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _refusal(error: Exception) -> HTTPException:
    code = status.HTTP_401_UNAUTHORIZED if isinstance(error, StaleTokenError) else status.HTTP_409_CONFLICT
    return HTTPException(code, str(error))
