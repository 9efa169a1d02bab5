"""The keys of one cluster in Consul's KV, below `muster/[CLUSTER]/`, and what their values have in common.

Instead of `muster` the keys begin with the cluster's `consul_prefix`. People's decisions are in
`muster.edges.consul_overrides`, their answers to a consumer in `muster.edges.consul_answers`, what processes leave
for each other in `muster.edges.consul_jobs`. Most values are
JSON objects with `who`, `when` (ISO 8601 in UTC) and `why`. Consul's ACL says who may write which key.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from muster.core.moments import LAST_MOMENT, to_iso
from muster.core.wire import check_id
from muster.edges.consul_api import ConsulApi, ConsulError, address, not_understood
from muster.settings.connections import ConsulSettings

PREFIX = "muster"
"""What all keys begin with, unless `consul_prefix` in the settings says otherwise."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key as it was read; `modified` is the index to write against."""

    name: str
    value: bytes
    modified: int


def key_prefix(cluster: str, prefix: str = PREFIX) -> str:
    """Return what the keys of `cluster` begin with."""
    return f"{prefix}/{check_id(cluster, 'cluster name')}/"


def of_consumer(kind: str, consumer: str) -> str:
    """Return what follows the prefix in the name of a consumer's key."""
    return f"{kind}/{check_id(consumer)}"


class Keys:
    """The keys of one cluster by what follows `prefix`. Raises `ConsulError` within the connection's time-out."""

    def __init__(self, api: ConsulApi, cluster: str, prefix: str = PREFIX) -> None:
        self.api = api
        self.cluster = cluster
        self.prefix = key_prefix(cluster, prefix)

    def read(self, rest: str) -> Key | None:
        """Read one key; None if there is none."""
        answer = self.api.read_keys(self.prefix + rest)
        return parse_key(self.api.settings, self.prefix + rest, answer.trusted())

    def below(self, rest: str = "") -> dict[str, Key]:
        """Read all keys that begin with `rest`, by what follows it.

        Raises `ConsulError` also if the answer may leave keys out: not to see an isolation would be to take the
        consumer for live.
        """
        path = self.prefix + rest
        answer = self.api.read_keys(path, recurse=True)
        if not answer.data:
            self.api.require_key_read(path)
        keys = parse_keys(self.api.settings, path, answer.trusted())
        return {key.name.removeprefix(path): key for key in keys if key.name != path}

    def write(self, rest: str, value: str) -> None:
        """Write a key, whatever it holds."""
        if not self.api.put_key(self.prefix + rest, value):
            raise self.error(f"key {self.prefix}{rest} was not written; try again")

    def change(self, rest: str, value: str, before: Key | None) -> bool:
        """Write a key that was read as `before` (None: not there); False if it has changed since."""
        return self.api.put_key(self.prefix + rest, value, cas=0 if before is None else before.modified)

    def remove(self, rest: str) -> bool:
        """Delete a key as it stands; False if there is none."""
        key = self.read(rest)
        if key is None:
            return False
        if not self.delete(rest, key):
            raise self.error(f"key {self.prefix}{rest} was written while it was deleted; try again")
        return True

    def delete(self, rest: str, before: Key) -> bool:
        """Delete a key that was read as `before`; False if it has changed since."""
        return self.api.delete_key(self.prefix + rest, cas=before.modified)

    def error(self, problem: str) -> ConsulError:
        """Make the error that says `problem` of this Consul."""
        return ConsulError(f"Consul at {address(self.api.settings)}: {problem}")


def parse_keys(settings: ConsulSettings, path: str, data: Any) -> list[Key]:
    """Parse the keys in an answer of `/v1/kv/[PATH]`. Raises `ConsulError` if it is none."""
    try:
        return [
            Key(_text(entry["Key"]), base64.b64decode(entry["Value"] or ""), int(entry["ModifyIndex"]))
            for entry in data or []
        ]
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise not_understood(settings, f"GET /v1/kv/{path}", data) from error


def parse_key(settings: ConsulSettings, path: str, data: Any) -> Key | None:
    """Parse an answer about one key in the same way; None if it is not there."""
    return next(iter(parse_keys(settings, path, data)), None)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def read_object(value: bytes) -> dict[str, Any] | None:
    """Read the JSON object in `value`, None if it holds none."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def said(value: Mapping[str, object]) -> dict[str, Any]:
    """Read who (`by`), when (`at`) and `why`. What is missing is unknown: the decision still stands."""
    return {
        "by": str(value.get("who", "unknown")),
        "at": seconds(value.get("when")),
        "why": str(value.get("why", "")),
    }


def text(by: str, why: str, at: float, more: Mapping[str, Any] | None = None) -> str:
    """Format the value of a key with who, when (`at`, seconds since the epoch) and why, and `more`."""
    return json.dumps({**(more or {}), "who": by, "when": to_iso(at), "why": why})


def seconds(text: object) -> float:
    """Read ISO 8601 as seconds since the epoch; 0 for what is none, and for moments that no clock has shown."""
    try:
        moment = datetime.fromisoformat(str(text)[:64])
        found = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return found if 0 <= found < LAST_MOMENT else 0.0
