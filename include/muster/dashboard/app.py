"""The application: paths, permissions, and errors in words. What is answered is made elsewhere in the package."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Body, Depends, FastAPI, Query, Request, Response, status
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.staticfiles import StaticFiles

from muster.cluster.planning import NothingReadError
from muster.commands.command import CommandError
from muster.commands.table import COMMANDS
from muster.core.assignors import AssignorError
from muster.core.preview import WhatIfError
from muster.core.wire import WireError
from muster.dashboard.access import IdentifyVisitor, Right, Visitor, requires
from muster.dashboard.answers import Answers, UnknownError
from muster.dashboard.commands import body_of, commands_answer
from muster.dashboard.conditional import conditional
from muster.dashboard.consumer_view import ConsumerSort, consumer_answer, consumers_answer
from muster.dashboard.models import ApplyBody, CommandAnswer, CommandBody, WhatIfAnswer, WhatIfRequest
from muster.dashboard.site_guard import from_our_own_page, with_security_headers
from muster.dashboard.topic_view import TopicSort, topic_answer, topics_answer
from muster.dashboard.what_if import BusyError
from muster.dashboard.window import Asked, Order
from muster.edges.consul import ConsulError
from muster.edges.kafka_admin import KafkaError
from muster.edges.zookeeper import ZooKeeperError
from muster.settings.connection_parsing import ConnectionSettingsError

Offset = Annotated[int, Query(ge=0)]
Limit = Annotated[int, Query(ge=1, le=500)]
Search = Annotated[str, Query(max_length=249)]
Name = Annotated[str | None, Query(max_length=249)]


def _asked(
    state: Name = None, search: Search = "", order: Order = "asc", offset: Offset = 0, limit: Limit = 50
) -> Asked:
    return Asked(state, search, order, offset, limit)


def create_app(answers: Answers, identify: IdentifyVisitor, static: str | None = None) -> FastAPI:
    """Build the application. `static` is the folder of the page's files, by default the package's own."""
    # No generated documentation: its pages would be open to anyone, and load scripts from elsewhere.
    app = FastAPI(title="Muster", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.include_router(_pages(identify, static or str(files("muster.dashboard") / "static")))
    app.include_router(_clusters(answers, identify), prefix="/api/clusters")
    app.include_router(_reading(answers, requires(identify, Right.LOOK)), prefix="/api/clusters/{cluster}")
    app.include_router(
        _commands(answers, requires(identify, Right.COMMAND)), prefix="/api/clusters/{cluster}/levers"
    )
    _explain_errors(app)
    app.add_middleware(BaseHTTPMiddleware, dispatch=with_security_headers)
    return app


def _pages(identify: IdentifyVisitor, folder: str) -> APIRouter:
    router = APIRouter(dependencies=[Depends(identify)])
    static = StaticFiles(directory=folder, check_dir=False)
    table = commands_answer()

    async def file(path: str, request: Request) -> Response:
        answer = await static.get_response(path, request.scope)
        # Kept, and asked for again by its ETag: a page and its script that do not fit each other are worse.
        answer.headers["Cache-Control"] = "private, no-cache"
        return answer

    @router.get("/")
    async def page(request: Request) -> Response:
        return await file("index.html", request)

    @router.get("/static/{path:path}")
    async def static_file(path: str, request: Request) -> Response:
        return await file(path, request)

    @router.get("/api/commands")
    def commands(request: Request) -> Response:
        return conditional(request, table)

    @router.get("/of-dag/{dag_id}")
    async def of_dag(dag_id: str) -> Response:
        kind, _, cluster = dag_id.partition("__")
        ours = cluster and kind.startswith("muster_")
        return RedirectResponse(f"../#/clusters/{quote(cluster, safe='')}" if ours else "../")

    return router


def _clusters(answers: Answers, identify: IdentifyVisitor) -> APIRouter:
    router = APIRouter()

    @router.get("")
    def clusters(request: Request, visitor: Annotated[Visitor, Depends(identify)]) -> Response:
        return conditional(request, answers.clusters(visitor))

    return router


def _reading(answers: Answers, reader: IdentifyVisitor) -> APIRouter:
    router = APIRouter(dependencies=[Depends(reader)])

    @router.get("")
    def cluster(cluster: str, request: Request, visitor: Annotated[Visitor, Depends(reader)]) -> Response:
        return conditional(request, answers.cluster(cluster, visitor))

    @router.get("/topics")
    def topics(
        cluster: str,
        request: Request,
        asked: Annotated[Asked, Depends(_asked)],
        sort: TopicSort = "topic",
    ) -> Response:
        watched, state = answers.state(cluster)
        return conditional(request, topics_answer(state, sort, asked, watched.ttl))

    @router.get("/topics/{topic}")
    def topic(cluster: str, topic: str, request: Request) -> Response:
        watched, state = answers.state(cluster)
        if topic not in state.snapshots and topic not in state.unreadable_topics:
            raise UnknownError(f"cluster {cluster!r} has no topic {topic!r}")
        return conditional(request, topic_answer(state, topic, watched.ttl))

    @router.get("/consumers")
    def consumers(
        cluster: str,
        request: Request,
        asked: Annotated[Asked, Depends(_asked)],
        sort: ConsumerSort = "consumer",
    ) -> Response:
        watched, state = answers.state(cluster)
        return conditional(request, consumers_answer(state, sort, asked, watched.ttl))

    @router.get("/consumers/{consumer}")
    def consumer(cluster: str, consumer: str, request: Request) -> Response:
        watched, state = answers.state(cluster)
        if consumer not in state.consumers:
            raise UnknownError(f"cluster {cluster!r} has no consumer {consumer!r}")
        return conditional(request, consumer_answer(state, consumer, watched.ttl))

    @router.get("/timeline")
    def timeline(
        cluster: str,
        request: Request,
        topic: Name = None,
        consumer: Name = None,
        before: Annotated[int | None, Query(ge=0)] = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
    ) -> Response:
        found = answers.timeline(cluster, limit=limit, before=before, topic=topic, consumer=consumer)
        return conditional(request, found)

    @router.post("/what-if", dependencies=[Depends(from_our_own_page)])
    def what_if(cluster: str, asked: WhatIfRequest) -> WhatIfAnswer:
        return answers.what_if(cluster, asked)

    return router


def _commands(answers: Answers, commander: IdentifyVisitor) -> APIRouter:
    router = APIRouter(dependencies=[Depends(commander), Depends(from_our_own_page)])

    def add(command: str, model: type[CommandBody]) -> None:
        def given(
            cluster: str,
            body: Annotated[model, Body()],  # type: ignore[valid-type]  # known when the route is added
            visitor: Annotated[Visitor, Depends(commander)],
        ) -> CommandAnswer:
            outcome = answers.command(cluster, command, body, visitor)
            return CommandAnswer(lines=list(outcome.lines), values=dict(outcome.values))

        router.add_api_route(f"/{command}", given, methods=["POST"], name=command)

    def add_preview(command: str, model: type[CommandBody]) -> None:
        def asked(
            cluster: str,
            body: Annotated[model, Body()],  # type: ignore[valid-type]  # known when the route is added
            visitor: Annotated[Visitor, Depends(commander)],
        ) -> CommandAnswer:
            return CommandAnswer(lines=list(answers.foreseen(cluster, command, body, visitor)))

        router.add_api_route(f"/{command}/foresee", asked, methods=["POST"], name=f"foresee {command}")

    for name, command in COMMANDS.items():
        add(name, body_of(command))
        if command.foresee is not None:
            add_preview(name, body_of(command))
    add("apply", ApplyBody)
    return router


_STATUS: Mapping[type[Exception], int] = {
    UnknownError: status.HTTP_404_NOT_FOUND,
    CommandError: status.HTTP_409_CONFLICT,
    WhatIfError: status.HTTP_409_CONFLICT,
    AssignorError: status.HTTP_409_CONFLICT,
    WireError: status.HTTP_409_CONFLICT,
    NothingReadError: status.HTTP_503_SERVICE_UNAVAILABLE,
    BusyError: status.HTTP_503_SERVICE_UNAVAILABLE,
    ConnectionSettingsError: status.HTTP_503_SERVICE_UNAVAILABLE,
    ZooKeeperError: status.HTTP_503_SERVICE_UNAVAILABLE,
    ConsulError: status.HTTP_503_SERVICE_UNAVAILABLE,
    KafkaError: status.HTTP_503_SERVICE_UNAVAILABLE,
}
"""What the errors of Muster's parts are in HTTP; their messages are for people."""


def _explain_errors(app: FastAPI) -> None:
    def in_words(_: Request, error: Exception) -> Response:
        code = next(code for kind, code in _STATUS.items() if isinstance(error, kind))
        return JSONResponse({"detail": str(error)}, code)

    def not_understood(_: Request, error: Exception) -> Response:
        found = error.errors() if isinstance(error, RequestValidationError) else []
        words = "; ".join(f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in found)
        return JSONResponse({"detail": words}, status.HTTP_422_UNPROCESSABLE_CONTENT)

    for kind in _STATUS:
        app.add_exception_handler(kind, in_words)
    app.add_exception_handler(RequestValidationError, not_understood)
