"""Long polls on Consul: wait for a change of a cluster, or of what concerns one consumer.

Several blocking queries run on connections of their own, and the first that has news ends the wait. Consul may answer
one of them without a change that matters (its index is that of more than what was asked for), so what was seen is
compared too. An index that goes backwards, as it does after servers were restored, begins again.

A consumer watches nothing of the others, so what it asks does not depend on how many there are. A query on a key that
does not exist is answered when the key is made; changes of other keys wake it in the server, but send no answer. The
local agent has no blocking query for a service's checks and maintenance mode, so it is asked at an interval, which
costs the servers nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

import httpx

from muster.edges.consul_api import (
    ConsulAnswer,
    ConsulApi,
    Params,
    agent_health_path,
    client_options,
    not_understood,
    read_agent_health,
    read_answer,
    unreachable,
)
from muster.edges.consul_keys import Key, Keys, parse_key
from muster.edges.consul_members import (
    Registration,
    fingerprint,
    parse_agent_registration,
    parse_registrations,
)

UNCHANGED_PAUSE = 0.1
"""Seconds until the next query after one that brought nothing new, so that a strange answer makes no busy loop."""
REST = 10
"""So many times as long as an answer took to take apart is at least waited for the next. With a thousand consumers
that takes 40 ms, and Consul answers whenever what any check says has changed."""
INTERRUPT_LOOK = 0.5
"""Seconds between two looks at whether a wait is to be given up."""

Work = Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]]
"""What ends a wait when it is done."""


@dataclass(frozen=True, slots=True)
class WaitIndex:
    """A moment in Consul's life, to wait for the next change from. Without arguments: from before everything."""

    health: int = 0
    keys: int = 0
    seen_health: str = ""
    seen_keys: str = ""


@dataclass(frozen=True, slots=True)
class SeenKey:
    """A key as it was read, None if there is none, and Consul's index to wait from."""

    name: str
    key: Key | None
    index: int


@dataclass(frozen=True, slots=True)
class Own:
    """What Consul holds about one consumer at one moment.

    `registration` is what the local agent has under its id, None if nothing. `stop`, `isolation` and `generation` are
    its keys of these kinds.
    """

    consumer: str
    registration: Registration | None
    stop: SeenKey
    isolation: SeenKey
    generation: SeenKey

    @property
    def isolated(self) -> bool:
        """Whether a person isolated it, by a key or by Consul's maintenance mode."""
        return self.isolation.key is not None or (
            self.registration is not None and self.registration.maintenance
        )


@dataclass
class Track:
    """One thing that is watched: where to read it, and what was seen of it last; `index` 0 is before everything."""

    path: str
    digest: Callable[[Any], str]
    index: int
    seen: str
    params: Params = field(default_factory=list)
    answer: ConsulAnswer | None = None
    """The last answer that brought something new."""
    cost: float = 0.0
    """Seconds that it took to take the last answer apart."""


def wait_for_own(
    api: ConsulApi, own: Own, timeout: float, poll: float, interrupted: Callable[[], bool]
) -> Own:
    """Return what changed of `own` at the first change, or after `timeout` seconds, or when `interrupted` says so.

    The local agent is asked every `poll` seconds. Raises `ConsulError` when Consul cannot be asked. Not to be called
    from within a running event loop.
    """
    keys = (own.stop, own.isolation, own.generation)
    tracks = [Track(f"/v1/kv/{seen.name}", keys_digest, seen.index, _key_digest(seen)) for seen in keys]
    agent = _AgentPoll(api, own.consumer, own.registration, poll)

    async def interruption(_: httpx.AsyncClient) -> None:
        while not interrupted():  # noqa: ASYNC110  what it looks at belongs to another thread
            await asyncio.sleep(INTERRUPT_LOOK)

    asyncio.run(first_change(api, tracks, timeout, agent.run, interruption))
    stop, isolation, generation = (_news(api, *each) for each in zip(keys, tracks, strict=True))
    return Own(own.consumer, agent.registration, stop, isolation, generation)


def read_registration(api: ConsulApi, consumer: str) -> Registration | None:
    """Read the registration that the local agent holds under this id, None if it holds none. Raises `ConsulError`."""
    return _registration(api, consumer, api.agent_health(consumer))


async def first_change(api: ConsulApi, tracks: Sequence[Track], seconds: float, *others: Work) -> None:
    """Return when one of `tracks` has changed, one of `others` is done, or after `seconds`; raise what one raised.

    With 0 seconds each track is read once.
    """
    async with httpx.AsyncClient(**client_options(api.settings)) as client:
        if seconds <= 0:
            await asyncio.gather(*(_read(api, client, track, 0, 0.0) for track in tracks))
            return
        end = asyncio.get_running_loop().time() + seconds
        works = [_follow(api, client, track, end) for track in tracks] + [other(client) for other in others]
        tasks = [asyncio.create_task(work) for work in works]
        done, waiting = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        # Every error is looked at, or asyncio complains of those that are not; one of them is raised.
        failures = [failure for task in done if (failure := task.exception()) is not None]
        if failures:
            raise failures[0]


async def _follow(api: ConsulApi, client: httpx.AsyncClient, track: Track, end: float) -> None:
    """Return when `track` has changed or its time is over."""
    loop = asyncio.get_running_loop()
    while (left := end - loop.time()) > 0:
        if await _read(api, client, track, track.index, left):
            return
        await asyncio.sleep(max(UNCHANGED_PAUSE, REST * track.cost))


async def _read(api: ConsulApi, client: httpx.AsyncClient, track: Track, index: int, wait: float) -> bool:
    """Read once, blocking up to `wait` seconds unless `index` is 0; say whether something changed."""
    params = api.params(track.params)
    seconds = api.settings.timeout
    if index > 0:
        params += [("index", str(index)), ("wait", f"{max(1, round(wait * 1000))}ms")]
        # Consul adds up to a sixteenth of the wait, so that not all come back at once.
        seconds += wait + wait / 16
    response = await _get(api, client, track.path, params, seconds)
    if response.status_code == HTTPStatus.OK and response.headers.get("X-Consul-Index") == str(index):
        return False  # the wait is over; a thousand registrations need not be taken apart to see that
    began = time.perf_counter()
    what = f"GET {track.path}"
    answer = read_answer(api.settings, what, response.status_code, response.headers, response.text)
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


async def _get(
    api: ConsulApi, client: httpx.AsyncClient, path: str, params: Params, seconds: float
) -> httpx.Response:
    try:
        return await client.get(path, params=params, timeout=seconds)
    except (httpx.HTTPError, OSError) as error:
        raise unreachable(api.settings, f"GET {path}", error) from error


@dataclass
class _AgentPoll:
    """Asks the local agent for a consumer's `registration` every `interval` seconds."""

    api: ConsulApi
    consumer: str
    registration: Registration | None
    interval: float

    async def run(self, client: httpx.AsyncClient) -> None:
        """Return when the registration has changed; a check's output does not count."""
        path, settings = agent_health_path(self.consumer), self.api.settings
        before = _silent(self.registration)
        while _silent(self.registration) == before:
            await asyncio.sleep(self.interval)
            response = await _get(self.api, client, path, [], settings.timeout)
            data = read_agent_health(settings, f"GET {path}", response.status_code, response.text)
            self.registration = _registration(self.api, self.consumer, data)


def health_digest(data: Any) -> str:
    """Return a text that changes when a consumer joins, leaves or changes; see `fingerprint`."""
    return fingerprint(parse_registrations(data or []))


def keys_digest(data: Any) -> str:
    """Return a text that changes when a key is written, made or deleted."""
    keys = sorted((entry["Key"], entry["ModifyIndex"]) for entry in data or [])
    return hashlib.sha256(json.dumps(keys).encode()).hexdigest()


def _key_digest(seen: SeenKey) -> str:
    return keys_digest([] if seen.key is None else [{"Key": seen.key.name, "ModifyIndex": seen.key.modified}])


def read_key(keys: Keys, rest: str) -> SeenKey:
    """Read one key to be watched from there on. Raises `ConsulError`."""
    name = keys.prefix + rest
    return _seen(keys.api, name, keys.api.read_keys(name))


def _news(api: ConsulApi, before: SeenKey, track: Track) -> SeenKey:
    return (
        before if track.answer is None else replace(_seen(api, before.name, track.answer), index=track.index)
    )


def _seen(api: ConsulApi, name: str, answer: ConsulAnswer) -> SeenKey:
    return SeenKey(name, parse_key(api.settings, name, answer.trusted()), answer.index)


def _registration(api: ConsulApi, consumer: str, data: Any) -> Registration | None:
    if data is None:
        return None
    try:
        return parse_agent_registration(data)
    except ValueError as error:
        what = f"GET {agent_health_path(consumer)}"
        raise not_understood(api.settings, what, f"{error}: {data}") from error


def _silent(registration: Registration | None) -> Registration | None:
    return None if registration is None else replace(registration, output="")
