"""A small server of the page with pretended clusters behind it; paths, headers and refusals are the real one's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import Body, FastAPI, Request, Response
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel

import muster
from devstack.ports import free_port
from muster.commands.command import CommandError
from muster.commands.table import COMMANDS
from muster.dashboard.commands import commands_answer
from muster.dashboard.conditional import conditional
from muster.dashboard.models import (
    ClustersAnswer,
    CommandAnswer,
    ConsumersAnswer,
    Said,
    TimelineAnswer,
    TimelineEntry,
    TopicsAnswer,
    WhatIfRequest,
)
from tests.browser.pretend import Cluster

STATIC = Path(muster.__file__).parent / "dashboard" / "static"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)


FRAMED = """<!doctype html><html class="dark"><body style="margin:0"><iframe src="/muster/"
  style="width:100%;height:96vh;border:0" sandbox="allow-scripts allow-same-origin allow-forms allow-downloads">
</iframe></body></html>"""


class Site:
    """The server; `clusters` may change at any time. `down` makes every answer of the API fail with that status."""

    def __init__(self, clusters: dict[str, Cluster]) -> None:
        self.clusters = clusters
        self.down: int | None = None
        self.previewed: list[dict[str, Any]] = []
        self.foreseen: list[tuple[str, str, dict[str, Any]]] = []
        self.pulled: list[tuple[str, str, dict[str, Any]]] = []
        self.not_modified = 0
        self.port = free_port()
        config = uvicorn.Config(self._app(), host="127.0.0.1", port=self.port, log_level="error")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.port}/muster/"

    def start(self) -> None:
        """Serve; returns when it does."""
        self._thread.start()
        deadline = time.monotonic() + 20
        while not self._server.started and time.monotonic() < deadline:
            time.sleep(0.02)
        assert self._server.started, "the tests' own server did not start within 20 s"

    def stop(self) -> None:
        """End it."""
        self._server.should_exit = True
        self._thread.join(10)

    def _app(self) -> FastAPI:
        app = FastAPI(openapi_url=None)

        @app.middleware("http")
        async def guard(request: Request, call_next: Callable[[Request], Any]) -> Response:
            if self.down and "/api/" in request.url.path:
                return JSONResponse({"detail": "it is down, as the test wishes"}, self.down)
            _, of_cluster, rest = request.url.path.partition("/api/clusters/")
            if of_cluster and (name := rest.split("/")[0]) not in self.clusters:
                return JSONResponse({"detail": f"there is no cluster {name!r} that you may read"}, 404)
            answer: Response = await call_next(request)
            if request.url.path.startswith("/muster/"):
                answer.headers["Content-Security-Policy"] = CSP
            return answer

        @app.get("/muster/")
        async def page() -> FileResponse:
            return FileResponse(STATIC / "index.html")

        app.mount("/muster/static", StaticFiles(directory=STATIC))
        self._reading(app)
        self._writing(app)

        @app.get("/framed")
        async def framed() -> Response:
            """As Airflow shows it: in a frame, in a page that has the theme as a class."""
            page = FRAMED
            return Response(page, media_type="text/html")

        return app

    def _reading(self, app: FastAPI) -> None:
        api = "/muster/api/clusters"

        @app.get(api)
        def clusters(request: Request) -> Response:
            return self._answer(
                request,
                ClustersAnswer(
                    user="anna", clusters=[self.clusters[name].summary() for name in sorted(self.clusters)]
                ),
            )

        @app.get("/muster/api/commands")
        def commands(request: Request) -> Response:
            return self._answer(request, commands_answer())

        @app.get(api + "/{name}")
        def cluster(request: Request, name: str) -> Response:
            return self._answer(request, self.clusters[name].answer())

        @app.get(api + "/{name}/topics")
        def topics(
            request: Request, name: str, state: str = "", search: str = "", sort: str = "topic",
            order: str = "asc", offset: int = 0, limit: int = 100,
        ) -> Response:  # fmt: skip
            found = self.clusters[name]
            rows = [
                found.topic_row(t)
                for t in found.topics.values()
                if search in t.name and state in {"", t.state}
            ]
            worst = ["Unreadable", "Initial", "Closing", "Starting", "Stable"]
            by = {
                "state": lambda row: (worst.index(row.state), row.topic),
                "since": lambda row: row.since or 0,
            }
            rows.sort(key=by.get(sort) or (lambda row: getattr(row, sort) or 0), reverse=order == "desc")
            return self._answer(
                request,
                TopicsAnswer(
                    topics=rows[offset : offset + limit],
                    total=len(rows),
                    offset=offset,
                    freshness=found.freshness(),
                ),
            )

        @app.get(api + "/{name}/topics/{topic}")
        def topic(request: Request, name: str, topic: str) -> Response:
            if topic not in self.clusters[name].topics:
                return JSONResponse({"detail": f"cluster {name!r} has no topic {topic!r}"}, 404)
            return self._answer(request, self.clusters[name].topic_answer(topic))

        @app.get(api + "/{name}/consumers")
        def consumers(
            request: Request, name: str, state: str = "", search: str = "", sort: str = "consumer",
            order: str = "asc", offset: int = 0, limit: int = 100,
        ) -> Response:  # fmt: skip
            found = self.clusters[name]
            rows = [row for row in found.rows() if search in row.consumer and state in {"", row.state}]
            worst = ["gone", "not passing", "isolated", "unknown", "live"]
            key = (
                (lambda row: (worst.index(row.state), row.consumer))
                if sort == "state"
                else (lambda row: getattr(row, sort) or 0)
            )
            rows.sort(key=key, reverse=order == "desc")
            return self._answer(
                request,
                ConsumersAnswer(
                    consumers=rows[offset : offset + limit],
                    total=len(rows),
                    offset=offset,
                    freshness=found.freshness(),
                ),
            )

        @app.get(api + "/{name}/consumers/{consumer}")
        def consumer(request: Request, name: str, consumer: str) -> Response:
            return self._answer(request, self.clusters[name].consumer_answer(consumer))

        @app.get(api + "/{name}/timeline")
        def timeline(
            request: Request,
            name: str,
            topic: str = "",
            consumer: str = "",
            before: int = 0,
            limit: int = 100,
        ) -> Response:
            found = self.clusters[name]
            entries = [
                entry for entry in found.timeline if topic in {"", entry.topic} and consumer in repr(entry)
            ]
            shown = entries[before : before + limit]
            more = before + limit if before + limit < len(entries) else None
            return self._answer(
                request, TimelineAnswer(entries=shown, next_before=more, freshness=found.freshness())
            )

    def _writing(self, app: FastAPI) -> None:
        api = "/muster/api/clusters/{name}"

        @app.post(api + "/what-if")
        def what_if(request: Request, name: str, body: Annotated[dict[str, Any], Body()]) -> Response:
            self.previewed.append(body)
            return self._post(request) or self._answer(
                request, self.clusters[name].what_if(WhatIfRequest(**body))
            )

        @app.post(api + "/levers/{lever}/foresee")
        def foresee(
            request: Request, name: str, lever: str, body: Annotated[dict[str, Any], Body()]
        ) -> Response:
            self.foreseen.append((name, lever, body))
            if refused := self._post(request):
                return refused
            try:
                return self._answer(
                    request, CommandAnswer(lines=self.clusters[name].foresee(COMMANDS[lever], body))
                )
            except CommandError as error:
                return JSONResponse({"detail": str(error)}, 409)

        @app.post(api + "/levers/{lever}")
        def pull(
            request: Request, name: str, lever: str, body: Annotated[dict[str, Any], Body()]
        ) -> Response:
            if refused := self._post(request):
                return refused
            if body.get("reason") == "refuse me":
                return JSONResponse({"detail": "the command is refused, as the test wishes"}, 409)
            self.pulled.append((name, lever, body))
            self._obey(self.clusters[name], lever, body)
            return self._answer(request, CommandAnswer(lines=[f"{lever} of {name}: {body.get('reason')}"]))

    def _obey(self, cluster: Cluster, lever: str, body: dict[str, Any]) -> None:
        said = Said(by="anna", at=time.time(), why=body["reason"])
        if lever == "isolate":
            cluster.states[body["consumer"]], cluster.said[body["consumer"]] = "isolated", said
        elif lever == "restore":
            cluster.states.pop(body["consumer"], None)
            cluster.said.pop(body["consumer"], None)
        elif lever in {"pause", "resume"}:
            cluster.paused = said if lever == "pause" else None
        elif lever == "rebalance":
            cluster.rebalance_asked = said
        details = {key: value for key, value in body.items() if key != "reason"}
        entry = TimelineEntry(
            id=f"{said.at:020.3f}",
            at=said.at or 0,
            kind="lever",
            lever=lever,
            details=details,
            reason=said.why,
            who=said.by,
        )
        cluster.timeline.insert(0, entry)

    def _post(self, request: Request) -> Response | None:
        good = (
            request.headers.get("X-Muster-Request") == "1"
            and request.headers.get("content-type") == "application/json"
        )
        return None if good else JSONResponse({"detail": "not from the page"}, 403)

    def _answer(self, request: Request, answer: BaseModel) -> Response:
        """As the real server, counting what has not changed."""
        response = conditional(request, answer)
        self.not_modified += response.status_code == 304
        return response
