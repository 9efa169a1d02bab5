"""The dashboard as Airflow mounts it: imported and built at the first request, not when plugins are loaded.

Every part of Airflow loads plugins (the scheduler and each task too), and only the API server is ever asked for a
page. This module therefore imports next to nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class LazyApplication:
    """An ASGI application that is made by `build`, in a thread, when it is first asked for something."""

    def __init__(self, build: Callable[[], Application]) -> None:
        self._build = build
        self._built: Application | None = None
        self._building = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on. What `build` raises is the request's error, and the next request tries again."""
        if self._built is None:
            async with self._building:
                if self._built is None:
                    self._built = await asyncio.to_thread(self._build)
        await self._built(scope, receive, send)


def lazy_dashboard() -> LazyApplication:
    """The dashboard behind Airflow's permissions."""
    return LazyApplication(_build)


def _build() -> Application:
    from muster.airflow.dashboard import airflow_dashboard  # noqa: PLC0415 - see the module

    return airflow_dashboard()
