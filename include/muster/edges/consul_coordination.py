"""What counts for a cluster's coordination as a whole, in Consul's KV: what persons decided, and how far it has got.

- `muster/[CLUSTER]/coordination/paused`: `{"who": ..., "when": ..., "why": ...}`; nothing is planned or written
- `muster/[CLUSTER]/coordination/rebalance`: the same; a rebalance is to be made now. The coordinator deletes it
- `muster/[CLUSTER]/coordination/assignor`: the same and `name` and `options`, in the place of clusters.yaml's
- `muster/[CLUSTER]/coordination/epochs`: `{TOPIC: EPOCH}`, the highest that was ever about to be written to ZooKeeper

What cannot be read means the status quo: a pause is one whatever its key holds, with another assignor that is
unknown nothing is planned, and a rebalance is not made. Epochs are the exception: without them nothing shows that
ZooKeeper was restored from a backup but what consumers report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from muster.core.coordination import AssignorChoice, Pause, RebalanceRequest
from muster.core.wire import MAX_EPOCH, WireError, check_topic
from muster.edges.consul_keys import Key, Keys, iso, read_object, said

COORDINATION = "coordination"
PAUSED = "paused"
REBALANCE = "rebalance"
ASSIGNOR = "assignor"
EPOCHS = "epochs"
ATTEMPTS = 10
"""How many times epochs are tried to be noted while others note some as well."""


class CoordinationKeys(Keys):
    """The keys of one cluster, with those on coordination. Raises `ConsulError` as `Keys` does."""

    def pause(self, by: str, why: str, at: float) -> bool:
        """Hold coordination still. False if it is paused already: then who did it first, and why, stays."""
        return self._api.put_key(self._coordination(PAUSED), _text(by, why, at), cas=0)

    def resume(self) -> bool:
        """End the pause, also one that cannot be read; False if there is none."""
        return self._remove(self._coordination(PAUSED))

    def ask_for_rebalance(self, by: str, why: str, at: float) -> None:
        """Ask for a rebalance now, in place of an earlier request that was not carried out yet."""
        self._put_coordination(REBALANCE, _text(by, why, at))

    def end_rebalance(self, request: RebalanceRequest) -> bool:
        """A request was carried out. False if another one has taken its place, which stands."""
        return self._api.delete_key(self._coordination(REBALANCE), cas=request.modified)

    def choose_assignor(self, name: str, options: Mapping[str, Any], by: str, why: str, at: float) -> None:
        """Put an assignor in the place of the one in clusters.yaml, and of one chosen earlier."""
        value = {"name": name, "options": dict(options)}
        self._put_coordination(ASSIGNOR, _text(by, why, at, value))

    def clear_assignor(self) -> bool:
        """Take the choice back, also one that cannot be read; False if there is none."""
        return self._remove(self._coordination(ASSIGNOR))

    def epochs(self) -> dict[str, int]:
        """The epochs that were noted, by topic; none if the key cannot be read."""
        return _epochs_in(self._key(self._coordination(EPOCHS)))

    def note_epochs(self, epochs: Mapping[str, int]) -> None:
        """Note that these are about to be written, by topic. One that is noted never falls."""
        name = self._coordination(EPOCHS)
        for _ in range(ATTEMPTS):
            key = self._key(name)
            known = _epochs_in(key)
            merged = known | {topic: max(epoch, known.get(topic, epoch)) for topic, epoch in epochs.items()}
            value = json.dumps(merged, separators=(",", ":"), sort_keys=True)
            if merged == known or self._api.put_key(name, value, cas=0 if key is None else key.modified):
                return
        raise self._error(f"key {name} was written by others {ATTEMPTS} times meanwhile; try again")

    def _put_coordination(self, kind: str, value: str) -> None:
        name = self._coordination(kind)
        if not self._api.put_key(name, value):
            raise self._error(f"key {name} was not written; try again")

    def _coordination(self, kind: str) -> str:
        return f"{self.prefix}{COORDINATION}/{kind}"


def read_pause(key: Key) -> Pause:
    """Return a pause; an unreadable key still pauses (fail safe)."""
    value = read_object(key.value)
    if value is None:
        return Pause(by="unknown", at=0.0, why=f"key {key.name} holds no JSON object")
    return Pause(**said(value))


def read_rebalance(key: Key) -> RebalanceRequest:
    """A request. Raises `WireError` for anything else."""
    return RebalanceRequest(**said(_object(key, "")), modified=key.modified)


def read_assignor(key: Key) -> AssignorChoice:
    """A choice of an assignor. Raises `WireError` for anything else."""
    wanted = " with 'name' (text) and 'options' (an object)"
    value = _object(key, wanted)
    name, options = value.get("name"), value.get("options", {})
    if not isinstance(name, str) or not name or not isinstance(options, dict):
        raise _not_understood(key, wanted)
    return AssignorChoice(**said(value), name=name, options=options)


def read_epochs(key: Key) -> dict[str, int]:
    """Epochs by topic. Raises `WireError` for anything else."""
    wanted = f" of topics to whole numbers from 0 to {MAX_EPOCH - 1}"
    value = _object(key, wanted)
    if not all(type(epoch) is int and 0 <= epoch < MAX_EPOCH for epoch in value.values()):
        raise _not_understood(key, wanted)
    return {check_topic(topic): epoch for topic, epoch in value.items()}


def _epochs_in(key: Key | None) -> dict[str, int]:
    try:
        return {} if key is None else read_epochs(key)
    except WireError:
        return {}


def _object(key: Key, wanted: str) -> Mapping[str, Any]:
    value = read_object(key.value)
    if value is None:
        raise _not_understood(key, wanted)
    return value


def _not_understood(key: Key, wanted: str) -> WireError:
    return WireError(f"holds {key.value[:100]!r}, expected is a JSON object{wanted}")


def _text(by: str, why: str, at: float, more: Mapping[str, Any] | None = None) -> str:
    return json.dumps({**(more or {}), "who": by, "when": iso(at), "why": why})
