"""Wait for a change of a service's health or of the keys below a prefix, whichever comes first.

Two blocking queries on two connections. Consul may answer one of them without a change that matters (its index is
that of more than what was asked for), so what was seen is compared too. An index that goes backwards, as it does
after servers were restored, begins again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httpx

from muster.edges.consul_http import (
    Answer,
    ConsulApi,
    Params,
    async_client,
    not_understood,
    read_answer,
    unreachable,
)
from muster.edges.consul_members import fingerprint, parse_registrations

UNCHANGED_PAUSE = 0.1
"""Seconds until the next query after one that brought nothing new, so that a strange answer makes no busy loop."""
REST = 10
"""So many times as long as an answer took to take apart is at least waited for the next. With a thousand consumers
that takes 40 ms, and Consul answers whenever what any check says has changed."""


@dataclass(frozen=True, slots=True)
class WaitIndex:
    """A moment in Consul's life, to wait for the next change from. Without arguments: from before everything."""

    health: int = 0
    keys: int = 0
    seen_health: str = ""
    seen_keys: str = ""


@dataclass
class Track:
    """One thing that is watched: where to read it, and what was seen of it last; `index` 0 is before everything."""

    path: str
    params: Params
    digest: Callable[[Any], str]
    index: int
    seen: str
    answer: Answer | None = None
    """The last answer that brought something new."""
    cost: float = 0.0
    """Seconds that it took to take the last answer apart."""


def wait_for_change(api: ConsulApi, service: str, prefix: str, index: WaitIndex, timeout: float) -> WaitIndex:
    """Return at the first change of `service` or below `prefix` since `index`, or after `timeout` seconds.

    With a `timeout` of 0 it says where things stand. Raises `ConsulError` when Consul cannot be asked.
    Not to be called from within a running event loop.
    """
    health = Track(f"/v1/health/service/{service}", [], _health_digest, index.health, index.seen_health)
    keys = Track(f"/v1/kv/{prefix}", [("recurse", "1")], keys_digest, index.keys, index.seen_keys)
    if timeout <= 0:
        asyncio.run(_read_both(api, health, keys))
    else:
        asyncio.run(_first_of_both(api, health, keys, timeout))
    return WaitIndex(health.index, keys.index, health.seen, keys.seen)


async def _read_both(api: ConsulApi, *tracks: Track) -> None:
    async with async_client(api.settings) as client:
        await asyncio.gather(*(_read(api, client, track, 0, 0.0) for track in tracks))


async def _first_of_both(api: ConsulApi, health: Track, keys: Track, seconds: float) -> None:
    end = asyncio.get_running_loop().time() + seconds
    async with async_client(api.settings) as client:
        await first_done([follow(api, client, track, end) for track in (health, keys)], seconds)


async def first_done(works: Iterable[Coroutine[Any, Any, None]], seconds: float) -> None:
    """Return when one of `works` is done or after `seconds`; the others are cancelled. Raises what one raised."""
    tasks = [asyncio.create_task(work) for work in works]
    done, waiting = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    # Every error is looked at, or asyncio complains of those that are not; one of them is raised.
    failures = [failure for task in done if (failure := task.exception()) is not None]
    if failures:
        raise failures[0]


async def follow(api: ConsulApi, client: httpx.AsyncClient, track: Track, end: float) -> None:
    """Return when `track` has changed or its time is over."""
    loop = asyncio.get_running_loop()
    while (left := end - loop.time()) > 0:
        if await _read(api, client, track, track.index, left):
            return
        await asyncio.sleep(max(UNCHANGED_PAUSE, REST * track.cost))


async def _read(api: ConsulApi, client: httpx.AsyncClient, track: Track, index: int, wait: float) -> bool:
    """Read once, blocking up to `wait` seconds unless `index` is 0; say whether something changed."""
    what = f"GET {track.path}"
    params = api.params(track.params)
    seconds = api.settings.timeout
    if index > 0:
        params += [("index", str(index)), ("wait", f"{max(1, round(wait * 1000))}ms")]
        # Consul adds up to a sixteenth of the wait, so that not all come back at once.
        seconds += wait + wait / 16
    try:
        response = await client.get(track.path, params=params, timeout=seconds)
    except (httpx.HTTPError, OSError) as error:
        raise unreachable(api.settings, what, error) from error
    if response.status_code == HTTPStatus.OK and response.headers.get("X-Consul-Index") == str(index):
        return False  # the wait is over; a thousand registrations need not be taken apart to see that
    began = time.perf_counter()
    answer: Answer = read_answer(api.settings, what, response.status_code, response.headers, response.text)
    if 0 < index == answer.index:
        return False
    try:
        seen = track.digest(answer.data)
    except (ValueError, KeyError, TypeError) as error:
        raise not_understood(api.settings, what, response.text) from error
    track.cost = time.perf_counter() - began
    changed = seen != track.seen
    track.answer = answer
    track.index = 0 if answer.index < track.index else answer.index
    track.seen = seen
    return changed


def _health_digest(data: Any) -> str:
    return fingerprint(parse_registrations(data or []))


def keys_digest(data: Any) -> str:
    """What a change of means: a key was written, made or deleted."""
    keys = sorted((entry["Key"], entry["ModifyIndex"]) for entry in data or [])
    return hashlib.sha256(json.dumps(keys).encode()).hexdigest()
