"""What concerns one consumer in Consul: its registration with the local agent and its keys; and waiting for a change.

A consumer watches nothing of the others, so what it asks does not depend on how many there are. Each of its keys is
watched by a blocking query. One on a key that does not exist is answered when the key is made; changes of other keys
wake it in the server, but send no answer. The local agent has no blocking query for a service's checks and
maintenance mode, so it is asked at an interval, which costs the servers nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import httpx

from muster.edges.consul_http import (
    ConsulApi,
    ConsulError,
    agent_health_path,
    async_client,
    not_understood,
    read_agent_health,
    unreachable,
)
from muster.edges.consul_keys import Key, read_keys
from muster.edges.consul_members import Registration, parse_agent_registration
from muster.edges.consul_wait import Track, first_done, follow, keys_digest

INTERRUPT_LOOK = 0.5
"""Seconds between two looks at whether a wait is to be given up."""


@dataclass(frozen=True, slots=True)
class SeenKey:
    """A key as it was read, None if there is none, and Consul's index to wait from."""

    name: str
    key: Key | None
    index: int

    def track(self) -> Track:
        """To be watched from here on."""
        seen = [] if self.key is None else [{"Key": self.key.name, "ModifyIndex": self.key.modified}]
        return Track(f"/v1/kv/{self.name}", [], keys_digest, self.index, keys_digest(seen))


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


def read_key(api: ConsulApi, name: str) -> SeenKey:
    """Read one key. Raises `ConsulError`."""
    answer = api.read(f"/v1/kv/{name}")
    if answer.doubt:
        raise ConsulError(answer.doubt)
    return SeenKey(name, _one(api, name, answer.data), answer.index)


def read_registration(api: ConsulApi, consumer: str) -> Registration | None:
    """The registration that the local agent holds under this id, None if it holds none. Raises `ConsulError`."""
    return _registration(api, consumer, api.agent_health(consumer))


def wait_for_own(
    api: ConsulApi, own: Own, timeout: float, poll: float, interrupted: Callable[[], bool]
) -> Own:
    """Return what changed of `own` at the first change, or after `timeout` seconds, or when `interrupted` says so.

    The local agent is asked every `poll` seconds. Raises `ConsulError` when Consul cannot be asked. Not to be called
    from within a running event loop.
    """
    return asyncio.run(_Wait(api, own, poll, interrupted).run(timeout))


class _Wait:
    def __init__(self, api: ConsulApi, own: Own, poll: float, interrupted: Callable[[], bool]) -> None:
        self._api = api
        self._own = own
        self._poll = poll
        self._interrupted = interrupted

    async def run(self, seconds: float) -> Own:
        own = self._own
        keys = (own.stop, own.isolation, own.generation)
        tracks = [seen.track() for seen in keys]
        end = asyncio.get_running_loop().time() + seconds
        async with async_client(self._api.settings) as client:
            works = [follow(self._api, client, track, end) for track in tracks]
            await first_done([*works, self._ask_agent(client), self._interruption()], seconds)
        stop, isolation, generation = (
            self._seen(seen, track) for seen, track in zip(keys, tracks, strict=True)
        )
        return replace(self._own, stop=stop, isolation=isolation, generation=generation)

    async def _ask_agent(self, client: httpx.AsyncClient) -> None:
        """Return when the registration has changed; a check's output does not count."""
        path = agent_health_path(self._own.consumer)
        settings = self._api.settings
        before = self._own.registration
        while True:
            await asyncio.sleep(self._poll)
            try:
                response = await client.get(path, timeout=settings.timeout)
            except (httpx.HTTPError, OSError) as error:
                raise unreachable(settings, f"GET {path}", error) from error
            data = read_agent_health(settings, f"GET {path}", response.status_code, response.text)
            found = _registration(self._api, self._own.consumer, data)
            self._own = replace(self._own, registration=found)
            if _silent(found) != _silent(before):
                return

    async def _interruption(self) -> None:
        while True:
            if self._interrupted():
                return
            await asyncio.sleep(INTERRUPT_LOOK)

    def _seen(self, before: SeenKey, track: Track) -> SeenKey:
        if track.answer is None:
            return before
        if track.answer.doubt:
            raise ConsulError(track.answer.doubt)
        return SeenKey(before.name, _one(self._api, before.name, track.answer.data), track.index)


def _one(api: ConsulApi, name: str, data: Any) -> Key | None:
    keys = read_keys(api.settings, name, data)
    return keys[0] if keys else None


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
