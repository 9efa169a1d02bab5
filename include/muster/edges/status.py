"""Ask consumers for their status, all at once, within one deadline for all of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx

from muster.core.model import Consumer, ConsumerStatus
from muster.core.wire import WireError, parse_status
from muster.edges.tls import client_context, no_tls
from muster.settings.connections import OPEN_PAGES, StatusPageSettings

AT_ONCE = 200
"""So many requests are on the way together. More only make each other late: on a busy machine, of 500 that had
begun at once not one was through within its second."""
LEAST_SHARE = 1.0
"""Seconds that a consumer is given even when there are very many, since asking hundreds takes its own time."""
LONGEST_QUERY = 6_000
"""Characters of topics that a request names; beyond them it is about all, for servers cut long addresses off."""
LARGEST_ANSWER = 8 * 1024 * 1024
"""Bytes; a thousand topics with all their partitions take a tenth of it."""

LONGEST_PROBLEM = 300
"""Characters of what an HTTP client says, which may repeat all that it was sent."""
_HOST = re.compile(r"[A-Za-z0-9._:%-]{1,255}")
_PORTS = 2**16


@dataclass(frozen=True, slots=True)
class StatusFailure:
    """A status that is unavailable, and why. `refused`: nothing listens there, so the process is gone."""

    consumer: str
    reason: str
    refused: bool = False


StatusResult = ConsumerStatus | StatusFailure
"""What comes of asking one consumer."""


class _UselessAnswerError(Exception):
    """The answer is of no use; the message says why."""


def guard(pages: StatusPageSettings) -> dict[str, Any]:
    """Return what an HTTP client is made with to read status pages. Raises OSError if the CA cannot be loaded."""
    token, tls = pages.token, pages.tls
    return {
        "headers": {"Authorization": f"Bearer {token.get_secret_value()}"} if token else {},
        "verify": client_context(tls.ca, check_hostname=tls.check_hostname) if tls else no_tls(),
    }


def poll_statuses(
    consumers: Iterable[Consumer],
    timeout: float,
    pages: StatusPageSettings = OPEN_PAGES,
    topics: Mapping[str, Collection[str]] | None = None,
    cluster: str = "",
    failures: bool = False,
) -> dict[str, StatusResult]:
    """Ask every consumer for `GET /status`, and return within `timeout` seconds what came of it, by consumer id.

    Never raises for what a consumer does or fails to do: no answer in time, an error, a body that is too large or
    not a status, or a status under another id or of another cluster than `cluster` are each a `StatusFailure`. Of
    more than `AT_ONCE` consumers each gets its share of the time, so that frozen ones do not use up that of the
    others. A consumer in `topics` is asked about those topics only, if they are few; it may answer of all. `pages`
    says how the pages are guarded; a CA that cannot be loaded is a failure of each. With `failures` the records that
    failed within the last hour are asked for, too.
    """
    asked = {consumer.id: consumer for consumer in consumers}.values()
    try:
        guarded = guard(pages)
    except OSError as error:
        ca = pages.tls.ca if pages.tls else ""
        reason = (
            f"its status page cannot be verified: CA {ca} cannot be loaded ({error}); check 'ca' of the "
            "cluster's 'status' connection on this machine"
        )
        return {consumer.id: StatusFailure(consumer.id, reason) for consumer in asked}
    about = {one.id: _about((topics or {}).get(one.id, ()), failures) for one in asked}
    return asyncio.run(_poll(asked, timeout, about, pages.scheme, guarded, cluster))


async def _poll(
    consumers: Iterable[Consumer],
    seconds: float,
    about: Mapping[str, httpx.QueryParams | None],
    scheme: str,
    guarded: Mapping[str, Any],
    cluster: str,
) -> dict[str, StatusResult]:
    asked = list(consumers)
    if not asked:
        return {}
    rounds = -(-len(asked) // AT_ONCE)
    share = max(seconds / rounds, min(seconds, LEAST_SHARE))
    slots = asyncio.Semaphore(AT_ONCE)
    answers: dict[str, StatusResult] = {}
    async with httpx.AsyncClient(
        timeout=share,
        limits=httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=0),
        trust_env=False,  # a proxy for the outside world has no business between coordinator and consumers
        **guarded,
    ) as client:

        async def ask(consumer: Consumer) -> None:
            async with slots:
                answers[consumer.id] = await _ask(
                    client, consumer, share, about[consumer.id], scheme, cluster
                )

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for consumer in asked:
                    group.create_task(ask(consumer))
    for consumer in asked:
        if consumer.id not in answers:
            answers[consumer.id] = _too_late(consumer, seconds, scheme)
    return answers


async def _ask(
    client: httpx.AsyncClient,
    consumer: Consumer,
    seconds: float,
    about: httpx.QueryParams | None,
    scheme: str,
    cluster: str,
) -> StatusResult:
    if not consumer.address or not consumer.port:
        return StatusFailure(consumer.id, "it is registered without an address and port of its status page")
    try:
        url = page_url(consumer.address, consumer.port, scheme)
        async with asyncio.timeout(seconds):
            return _of_cluster(await _get(client, consumer, url, about), cluster, url)
    except (TimeoutError, httpx.TimeoutException):
        return _too_late(consumer, seconds, scheme)
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        problem = str(error)[:LONGEST_PROBLEM] or type(error).__name__
        reason = f"its status page {_url(consumer, scheme)} is out of reach: {problem}{_tls_step(problem)}"
        return StatusFailure(consumer.id, reason, was_refused(error))
    except (WireError, _UselessAnswerError) as error:
        return StatusFailure(consumer.id, str(error))


async def _get(
    client: httpx.AsyncClient, consumer: Consumer, url: str, about: httpx.QueryParams | None
) -> ConsumerStatus:
    async with client.stream("GET", url, params=about) as response:
        if response.status_code == httpx.codes.UNAUTHORIZED:
            sent = "another one than was sent" if "Authorization" in client.headers else "and none was sent"
            raise _UselessAnswerError(
                f"its status page {url} answered 401: it asks for a bearer token, {sent}; check the cluster's "
                "'status' connection, and restart a consumer that was started before the token was changed"
            )
        if response.status_code != httpx.codes.OK:
            raise _UselessAnswerError(f"its status page {url} answered {response.status_code}")
        body = bytearray()
        async for part in response.aiter_bytes():
            body += part
            if len(body) > LARGEST_ANSWER:
                raise _UselessAnswerError(
                    f"its status page {url} answered with more than {LARGEST_ANSWER} bytes"
                )
    status = parse_status(bytes(body), url)
    if status.consumer != consumer.id:
        raise _UselessAnswerError(f"at {url} answers consumer {status.consumer}, not {consumer.id}")
    return status


def _of_cluster(status: ConsumerStatus, cluster: str, url: str) -> ConsumerStatus:
    """Return the answer of a consumer of `cluster`, or of one that does not say whose it is."""
    if cluster and status.cluster not in {"", cluster}:
        raise _UselessAnswerError(
            f"at {url} answers {status.consumer} of cluster {status.cluster!r}, not of {cluster!r}; stop it, so that "
            "it starts as one of this cluster"
        )
    return status


def _about(topics: Collection[str], failures: bool = False) -> httpx.QueryParams | None:
    """Return the query that names `topics`, unless that is longer than `LONGEST_QUERY`, and asks for `failures`; None
    where there is nothing to say."""
    more = {"failures": "true"} if failures else {}
    if topics and sum(map(len, topics)) <= LONGEST_QUERY:  # else none is made only to be seen too long
        about = httpx.QueryParams({"topic": sorted(topics), **more})
        if len(str(about)) <= LONGEST_QUERY:
            return about
    return httpx.QueryParams(more) if more else None


def was_refused(error: BaseException | None) -> bool:
    """Tell whether a host answered that nothing listens there. Any other error says nothing about the process."""
    while error is not None:
        if isinstance(error, ConnectionRefusedError):
            return True
        error = error.__cause__ or error.__context__
    return False


def page_url(address: str, port: int, scheme: str = "http") -> str:
    """Return the URL of the status page at a registered address. Raises `WireError` if that is no host and port.

    What else a URL can hold (a path, a user) is not to be had by registering a strange address.
    """
    if not _HOST.fullmatch(address) or not 0 < port < _PORTS:
        raise WireError(
            f"it is registered at address {address[:100]!r}, port {str(port)[:20]}, which is no host name or IP "
            "address with a port from 1 to 65535; correct it where the consumer registers"
        )
    return f"{scheme}://{f'[{address}]' if ':' in address else address}:{port}/status"


def _url(consumer: Consumer, scheme: str) -> str:
    return page_url(consumer.address, consumer.port, scheme)


def _tls_step(problem: str) -> str:
    words = problem.lower()
    if "certificate verify failed" in words:
        return (
            "; check 'ca' of the cluster's 'status' connection, and that the address that the consumer registers "
            "stands in its certificate ('check_hostname')"
        )
    if "ssl" in words or "disconnected without sending" in words:
        return "; restart a consumer that was started before TLS of the status pages was switched on or off"
    return ""


def _too_late(consumer: Consumer, timeout: float, scheme: str) -> StatusFailure:
    return StatusFailure(
        consumer.id, f"its status page {_url(consumer, scheme)} did not answer within {timeout:g} s"
    )
