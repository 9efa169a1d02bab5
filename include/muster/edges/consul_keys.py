"""What Muster keeps in Consul's KV about the consumers of a cluster; Consul's ACL says who may write it.

- `muster/[CLUSTER]/stop/[CONSUMER]`: `{"incarnation": ..., "who": ..., "when": ..., "why": ...}`; that
  incarnation is asked to stop in order
- `muster/[CLUSTER]/generations/[CONSUMER]`: `{"generation": 7, "incarnation": ...}`; how many processes had this id
  so far, and the newest of them
- `muster/[CLUSTER]/submitted/[CONSUMER]`: notes of the process that submitted the consumer's job

What people decide about the cluster is in `muster.edges.consul_overrides`. `when` is ISO 8601 in UTC. Instead of
`muster` the keys begin with the cluster's `consul_prefix`.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from muster.core.wire import LAST_MOMENT, check_id
from muster.edges.consul_http import ConsulApi, ConsulError, address, not_understood
from muster.edges.consul_members import MOST_GENERATIONS
from muster.settings.connections import ConsulSettings

PREFIX = "muster"
"""What all keys begin with, unless `consul_prefix` in clusters.yaml says otherwise."""


class UnreadableKeyError(ConsulError):
    """A key holds something else than it should; Consul itself is well. The message names key and next step."""


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Who asked which incarnation of a consumer to stop, when (seconds since the epoch) and why."""

    consumer: str
    incarnation: str
    by: str
    at: float
    why: str


@dataclass(frozen=True, slots=True)
class Key:
    """One key as it was read; `modified` is the index to write against."""

    name: str
    value: bytes
    modified: int


@dataclass(frozen=True, slots=True)
class Generation:
    """How many processes had a consumer's id so far, and the newest one's incarnation; 0 and '' if none had it."""

    number: int = 0
    incarnation: str = ""


STOP, GENERATIONS = "stop", "generations"
TAKES = 10
"""How many times a number is tried to be taken while others take one as well."""


def key_prefix(cluster: str, prefix: str = PREFIX) -> str:
    """What the keys of `cluster` begin with."""
    return f"{prefix}/{check_id(cluster, 'cluster name')}/"


class Keys:
    """The keys of one cluster. Raises `ConsulError` when Consul cannot be asked or does not answer in time."""

    def __init__(self, api: ConsulApi, cluster: str, prefix: str = PREFIX) -> None:
        self._api = api
        self.prefix = key_prefix(cluster, prefix)

    def request_stop(
        self, consumer: str, incarnation: str, by: str, why: str, at: float | None = None
    ) -> None:
        """Ask this incarnation of a consumer to stop. A request for another incarnation is replaced."""
        moment = time.time() if at is None else at
        value = {"incarnation": incarnation, "who": by, "when": iso(moment), "why": why}
        self._put(STOP, consumer, value)

    def stop_request(self, consumer: str) -> StopRequest | None:
        """What this consumer was asked, None if nothing. Raises `UnreadableKeyError` for a malformed key."""
        return self.read_stop(consumer, self._key(self._name(STOP, consumer)))

    def read_stop(self, consumer: str, key: Key | None) -> StopRequest | None:
        """The same, of a key that was read already."""
        if key is None:
            return None
        value = _object(key.value)
        if not isinstance(value.get("incarnation"), str):
            raise UnreadableKeyError(
                f"Consul at {address(self._api.settings)}: key {key.name} holds {key.value[:100]!r}, not a stop "
                "request with 'incarnation'; delete it"
            )
        return _stop_request(consumer, value)

    def stop_requests(self) -> dict[str, StopRequest]:
        """What each consumer was asked; keys that hold something else are left out."""
        prefix = self.prefix + "stop/"
        found = {}
        for key in self._keys(prefix):
            consumer, value = key.name.removeprefix(prefix), _object(key.value)
            if consumer and isinstance(value.get("incarnation"), str):
                found[consumer] = _stop_request(consumer, value)
        return found

    def clear_stop(self, consumer: str) -> bool:
        """Delete a request to stop, also one that cannot be read. False if there was none, or a newer one came."""
        name = self._name(STOP, consumer)
        key = self._key(name)
        return key is not None and self._api.delete_key(name, cas=key.modified)

    def take_generation(self, consumer: str, incarnation: str, above: int = 0) -> int:
        """Take the next number for a process of this consumer: higher than any taken before, and than `above`.

        A number that this incarnation has taken already is the same one again, if it is higher than `above`.
        """
        name = self._name(GENERATIONS, consumer)
        for _ in range(TAKES):
            key = self._key(name)
            known = read_generation(key)
            if known.incarnation == incarnation and known.number > above:
                return known.number
            number = max(known.number, above) + 1
            if self.keep_generation(consumer, incarnation, number, key):
                return number
        raise self._error(
            f"key {name} was written by others {TAKES} times while a number was taken; try again"
        )

    def keep_generation(self, consumer: str, incarnation: str, number: int, key: Key | None) -> bool:
        """Name the newest process in `key`, which was read so (None: not there); False if it has changed since."""
        value = json.dumps({"generation": number, "incarnation": incarnation})
        return self._api.put_key(
            self._name(GENERATIONS, consumer), value, cas=0 if key is None else key.modified
        )

    def note_submission(self, consumer: str, note: Mapping[str, Any]) -> None:
        """Note what was submitted for a consumer, in place of what was noted before."""
        self._put("submitted", consumer, dict(note))

    def claim_submission(
        self, consumer: str, note: Mapping[str, Any], over: Mapping[str, Any] | None
    ) -> bool:
        """Note a submission only if what is noted still is `over` (None: nothing).

        So of two that are about to submit the same consumer, one gets False and submits nothing.
        """
        name = self._name("submitted", consumer)
        key = self._key(name)
        if (None if key is None else _object(key.value)) != (None if over is None else dict(over)):
            return False
        return self._api.put_key(name, json.dumps(dict(note)), cas=key.modified if key else 0)

    def submission(self, consumer: str) -> dict[str, Any] | None:
        """What was noted of the last submission, None if nothing (or nothing that can be read)."""
        key = self._key(self._name("submitted", consumer))
        return None if key is None else _object(key.value) or None

    def submissions(self) -> dict[str, dict[str, Any]]:
        """What was noted of the last submission of each consumer; what cannot be read is left out."""
        prefix = self.prefix + "submitted/"
        found = {key.name.removeprefix(prefix): _object(key.value) for key in self._keys(prefix)}
        return {consumer: note for consumer, note in found.items() if consumer and note}

    def clear_submission(self, consumer: str) -> None:
        """Forget the last submission."""
        self._api.delete_key(self._name("submitted", consumer))

    def _name(self, kind: str, consumer: str) -> str:
        return f"{self.prefix}{kind}/{check_id(consumer)}"

    def _put(self, kind: str, consumer: str, value: Mapping[str, Any]) -> None:
        name = self._name(kind, consumer)
        if not self._api.put_key(name, json.dumps(value)):
            raise self._error(f"key {name} was not written; try again")

    def _remove(self, name: str) -> bool:
        """Delete a key as it stands; False if there is none."""
        key = self._key(name)
        if key is None:
            return False
        if not self._api.delete_key(name, cas=key.modified):
            raise self._error(f"key {name} was written while it was deleted; try again")
        return True

    def _key(self, name: str) -> Key | None:
        keys = self._read(name, recurse=False)
        return keys[0] if keys else None

    def _keys(self, prefix: str) -> list[Key]:
        return self._read(prefix, recurse=True)

    def _read(self, path: str, recurse: bool) -> list[Key]:
        answer = self._api.read(f"/v1/kv/{path}", [("recurse", "1")] if recurse else None)
        if recurse and not answer.data:
            self._api.require_key_read(path)
        if answer.doubt:
            # Not to see an isolation would be to take the consumer for live.
            raise ConsulError(answer.doubt)
        return read_keys(self._api.settings, path, answer.data)

    def _error(self, problem: str) -> ConsulError:
        return ConsulError(f"Consul at {address(self._api.settings)}: {problem}")


def read_keys(settings: ConsulSettings, path: str, data: Any) -> list[Key]:
    """The keys in an answer of `/v1/kv/[PATH]`. Raises `ConsulError` if it is none."""
    try:
        return [
            Key(_text(entry["Key"]), base64.b64decode(entry["Value"] or ""), int(entry["ModifyIndex"]))
            for entry in data or []
        ]
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise not_understood(settings, f"GET /v1/kv/{path}", data) from error


def read_generation(key: Key | None) -> Generation:
    """What a key says; what is no number from 1 counts as none, because the next process corrects it."""
    value = {} if key is None else _object(key.value)
    number, incarnation = value.get("generation"), value.get("incarnation")
    if type(number) is not int or not 0 < number < MOST_GENERATIONS:
        return Generation()
    return Generation(number, incarnation if isinstance(incarnation, str) else "")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _stop_request(consumer: str, value: Mapping[str, Any]) -> StopRequest:
    return StopRequest(
        consumer,
        value["incarnation"],
        str(value.get("who", "unknown")),
        seconds(value.get("when")),
        str(value.get("why", "")),
    )


def read_object(value: bytes) -> dict[str, Any] | None:
    """The JSON object in `value`, None if it holds none."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _object(value: bytes) -> dict[str, Any]:
    return read_object(value) or {}


def said(value: Mapping[str, object]) -> dict[str, Any]:
    """Who (`by`), when (`at`) and `why`. What is missing is unknown: the decision still stands."""
    return {
        "by": str(value.get("who", "unknown")),
        "at": seconds(value.get("when")),
        "why": str(value.get("why", "")),
    }


def iso(moment: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")


def seconds(text: object) -> float:
    """ISO 8601 as seconds since the epoch; 0 for what is none, and for moments that no clock has shown."""
    try:
        moment = datetime.fromisoformat(str(text)[:64])
        found = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return found if 0 <= found < LAST_MOMENT else 0.0
