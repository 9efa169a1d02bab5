"""Refusing requests that another site had the user's browser send, and telling browsers what the page may do.

A browser sends Airflow's cookie along with any request to it. So what changes something, or costs something, is only
taken if it can not come from another site's page: it must be JSON with a header of our own, which a form cannot send
and a script of another site only with leave that is never given; and what the browser itself says of where it comes
from (`Sec-Fetch-Site`, `Origin`) must not be elsewhere.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import HTTPException, Request, Response, status
from starlette.middleware.base import RequestResponseEndpoint

HEADER = "X-Muster-Request"

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'self'",
        "form-action 'none'",
        "frame-ancestors 'self'",
    )
)
"""No script or style but from our own files, none in the HTML; framed only by Airflow itself."""

SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""What keeps a browser from doing more than it should."""


async def with_security_headers(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Hand on, and add the headers to the answer."""
    response = await call_next(request)
    response.headers.update(SECURITY_HEADERS)
    return response


def from_our_own_page(request: Request) -> None:
    """Raise 403 or 415 unless the request may change something: see the module."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise HTTPException(
            status.HTTP_415_UNSUPPORTED_MEDIA_TYPE,
            f"the request's content is {content_type or 'of no type'}; send JSON (Content-Type: application/json)",
        )
    if not request.headers.get(HEADER):
        raise HTTPException(
            status.HTTP_403_FORBIDDEN,
            f"the header {HEADER} is missing; a program that means it sends {HEADER}: 1",
        )
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        foreign = site != "same-origin"
    else:
        foreign = origin is not None and urlsplit(origin).netloc != request.headers.get("host", "")
    if foreign:
        raise HTTPException(
            status.HTTP_403_FORBIDDEN,
            f"the request comes from another site ({origin or site}); use Airflow's own page",
        )
