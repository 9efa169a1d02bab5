"""Answers that say whether they are the same as last time: `ETag`, `If-None-Match` and 304.

When something was read is not part of what makes an answer another one; it stands in headers, so that a 304 tells
how old the unchanged content is.
"""

from __future__ import annotations

import hashlib
import time
from typing import Any

from fastapi import Request, Response, status
from pydantic import BaseModel

from muster.dashboard.models import Freshness

_WHEN = {"read_at", "ttl"}
_TIMES: dict[str, Any] = {
    "freshness": _WHEN,
    "summary": {"freshness": _WHEN},
    "clusters": {"__all__": {"freshness": _WHEN}},
}
"""Where answers say when they were read."""


def conditional(request: Request, answer: BaseModel) -> Response:
    """Send `answer` as JSON, or a 304 if the caller has it already."""
    read_at = _read_at(answer)
    # Ages are in the headers: a client that asks again only wants the body when it differs.
    tag = f'"{hashlib.sha256(answer.model_dump_json(exclude=_TIMES).encode()).hexdigest()[:32]}"'
    headers = {
        "ETag": tag,
        "Cache-Control": "private, no-cache",
        "Vary": "Cookie, Authorization",
        "Muster-Now": f"{time.time():.3f}",
    }
    if read_at is not None:
        headers["Muster-Read-At"] = f"{read_at:.3f}"
    known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
    if tag in known:
        return Response(status_code=status.HTTP_304_NOT_MODIFIED, headers=headers)
    return Response(answer.model_dump_json(), media_type="application/json", headers=headers)


def _read_at(answer: BaseModel) -> float | None:
    """Tell when what is oldest in it was read."""
    found: Freshness | None = getattr(answer, "freshness", None)
    if found is not None:
        return found.read_at
    moments = [m for each in getattr(answer, "clusters", []) if (m := _read_at(each)) is not None]
    inner = getattr(answer, "summary", None)
    return _read_at(inner) if inner is not None else min(moments, default=None)
