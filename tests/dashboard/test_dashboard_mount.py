"""What every part of Airflow imports with the plugin is next to nothing; the dashboard is built when it is asked."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from muster.airflow.dashboard_mount import Application, LazyApplication

HEAVY = {"kazoo", "consul", "confluent_kafka", "fastapi", "pydantic", "httpx", "airflow", "yaml"}


def test_the_plugin_imports_no_client_and_no_web_framework() -> None:
    program = "import sys, muster.airflow.dashboard_mount as m; m.lazy_dashboard(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not HEAVY & {name.partition(".")[0] for name in done.stdout.split()}


def test_application_is_built_once_and_tried_again_after_a_failure() -> None:
    built: list[int] = []
    asked: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"])

    def build() -> Application:
        built.append(len(built))
        if len(built) == 1:
            raise RuntimeError("not yet")
        return application

    lazy = LazyApplication(build)

    async def ask(path: str) -> None:
        await lazy({"path": path}, _nothing, _nothing)

    async def all_at_once() -> None:
        with pytest.raises(RuntimeError, match="not yet"):
            await ask("/first")
        await asyncio.gather(*(ask(f"/{n}") for n in range(5)))

    asyncio.run(all_at_once())
    assert len(built) == 2
    assert sorted(asked) == [f"/{n}" for n in range(5)]


async def _nothing(*_: Any) -> Any:
    return None
