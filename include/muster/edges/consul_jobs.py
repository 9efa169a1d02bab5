"""What the processes of a cluster leave for each other in Consul's KV.

- `stop/[CONSUMER]`: `{"incarnation": ..., "who": ..., "when": ..., "why": ...}`; that incarnation is asked to stop in
  order
- `generations/[CONSUMER]`: `{"generation": 7, "incarnation": ...}`; how many processes had this id so far, and the
  newest of them
- `submitted/[CONSUMER]`: notes of the process that submitted the consumer's job
- `starting/[CONSUMER]`: `{"incarnation": ..., "stage": ..., "since": ...}`; how far that incarnation had come when
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from muster.core.starting import Stage, Starting
from muster.edges.consul_api import ConsulError
from muster.edges.consul_keys import Key, Keys, of_consumer, read_object, said, text
from muster.edges.consul_members import MOST_GENERATIONS

STOP, GENERATIONS, SUBMITTED, STARTING = "stop", "generations", "submitted", "starting"
BY_POISON = "on_poison: stop"
"""Who asked a consumer to stop that ends by itself, because of a poison record."""
TAKES = 10
"""How many times a number is tried to be taken while others take one as well."""


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
class Generation:
    """How many processes had a consumer's id so far, and the newest one's incarnation; 0 and '' if none had it."""

    number: int = 0
    incarnation: str = ""


class JobMailbox:
    """Requests to stop, generations and submissions of the consumers of one cluster. Raises `ConsulError`."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def request_stop(
        self, consumer: str, incarnation: str, by: str, why: str, at: float | None = None
    ) -> None:
        """Ask this incarnation of a consumer to stop. A request for another incarnation is replaced."""
        moment = time.time() if at is None else at
        self._keys.write(of_consumer(STOP, consumer), text(by, why, moment, {"incarnation": incarnation}))

    def stop_request(self, consumer: str) -> StopRequest | None:
        """Return what this consumer was asked, None if nothing. Raises `UnreadableKeyError` for a malformed key."""
        return self.read_stop(consumer, self._keys.read(of_consumer(STOP, consumer)))

    def read_stop(self, consumer: str, key: Key | None) -> StopRequest | None:
        """Return the same, of a key that was read already."""
        request = None if key is None else _stop_request(consumer, key)
        if key is not None and request is None:
            problem = (
                f"key {key.name} holds {key.value[:100]!r}, not a stop request with 'incarnation'; delete it"
            )
            raise UnreadableKeyError(str(self._keys.error(problem)))
        return request

    def stop_requests(self) -> dict[str, StopRequest]:
        """Return what each consumer was asked; keys that hold something else are left out."""
        requests = [_stop_request(consumer, key) for consumer, key in self._keys.below(f"{STOP}/").items()]
        return {request.consumer: request for request in requests if request is not None}

    def clear_stop(self, consumer: str) -> bool:
        """Delete a request to stop, also one that cannot be read. False if there was none, or a newer one came."""
        key = self._keys.read(of_consumer(STOP, consumer))
        return key is not None and self._keys.delete(of_consumer(STOP, consumer), key)

    def take_generation(self, consumer: str, incarnation: str, above: int = 0) -> int:
        """Take the next number for a process of this consumer: higher than any taken before, and than `above`.

        A number that this incarnation has taken already is the same one again, if it is higher than `above`.
        """
        name = of_consumer(GENERATIONS, consumer)
        for _ in range(TAKES):
            key = self._keys.read(name)
            known = read_generation(key)
            if known.incarnation == incarnation and known.number > above:
                return known.number
            number = max(known.number, above) + 1
            if self.keep_generation(consumer, incarnation, number, key):
                return number
        raise self._keys.error(
            f"key {self._keys.prefix}{name} was written by others {TAKES} times while a number was taken; try again"
        )

    def keep_generation(self, consumer: str, incarnation: str, number: int, key: Key | None) -> bool:
        """Name the newest process in `key`, which was read so (None: not there); False if it has changed since."""
        value = json.dumps({"generation": number, "incarnation": incarnation})
        return self._keys.change(of_consumer(GENERATIONS, consumer), value, key)

    def note_submission(self, consumer: str, note: Mapping[str, Any]) -> None:
        """Note what was submitted for a consumer, in place of what was noted before."""
        self._keys.write(of_consumer(SUBMITTED, consumer), json.dumps(dict(note)))

    def claim_submission(
        self, consumer: str, note: Mapping[str, Any], over: Mapping[str, Any] | None
    ) -> bool:
        """Note a submission only if what is noted still is `over` (None: nothing).

        So of two that are about to submit the same consumer, one gets False and submits nothing.
        """
        key = self._keys.read(of_consumer(SUBMITTED, consumer))
        if (None if key is None else read_object(key.value) or {}) != (None if over is None else dict(over)):
            return False
        return self._keys.change(of_consumer(SUBMITTED, consumer), json.dumps(dict(note)), key)

    def submission(self, consumer: str) -> dict[str, Any] | None:
        """Return what was noted of the last submission, None if nothing (or nothing that can be read)."""
        key = self._keys.read(of_consumer(SUBMITTED, consumer))
        return None if key is None else read_object(key.value) or None

    def submissions(self) -> dict[str, dict[str, Any]]:
        """Return what was noted of the last submission of each consumer; what cannot be read is left out."""
        found = {c: read_object(key.value) for c, key in self._keys.below(f"{SUBMITTED}/").items()}
        return {consumer: note for consumer, note in found.items() if note}

    def note_stage(self, consumer: str, incarnation: str, stage: Stage, at: float) -> None:
        """Note how far an incarnation has come."""
        value = {"incarnation": incarnation, "stage": stage, "since": at}
        self._keys.write(of_consumer(STARTING, consumer), json.dumps(value))

    def starting(self, consumer: str, note: Mapping[str, Any] | None) -> Starting | None:
        """Return how far the job that was noted as submitted has come; None if there is none."""
        if note is None:
            return None
        key = self._keys.read(of_consumer(STARTING, consumer))
        return _starting(note, {} if key is None else read_object(key.value) or {})

    def all_starting(self) -> dict[str, Starting]:
        """Return the same of each consumer that has not been live since its job was submitted."""
        stages = {c: read_object(key.value) or {} for c, key in self._keys.below(f"{STARTING}/").items()}
        found = {c: _starting(note, stages.get(c, {})) for c, note in self.submissions().items()}
        return {c: each for c, each in found.items() if each is not None and each.stage is not Stage.LIVE}

    def clear_submission(self, consumer: str) -> None:
        """Forget the last submission."""
        self._keys.api.delete_key(self._keys.prefix + of_consumer(SUBMITTED, consumer))


def _starting(note: Mapping[str, Any], noted: Mapping[str, Any]) -> Starting | None:
    incarnation, at, tries = note.get("incarnation"), note.get("at"), note.get("tries")
    if (
        not isinstance(incarnation, str)
        or not isinstance(at, int | float)
        or type(tries) is not int
        or tries < 1
    ):
        return None
    failed = note.get("failed")
    stage = Stage.PROCESS if note.get("pid") or note.get("application") else Stage.SUBMITTED
    since = float(at)
    if noted.get("incarnation") == incarnation and isinstance(noted.get("since"), int | float):
        with suppress(ValueError):
            stage, since = Stage(str(noted.get("stage"))), max(since, float(noted["since"]))
    return Starting(incarnation, stage, since, tries, failed if isinstance(failed, str) else "")


def read_generation(key: Key | None) -> Generation:
    """Read what a key says; what is no number from 1 counts as none, because the next process corrects it."""
    value = {} if key is None else read_object(key.value) or {}
    number, incarnation = value.get("generation"), value.get("incarnation")
    if type(number) is not int or not 0 < number < MOST_GENERATIONS:
        return Generation()
    return Generation(number, incarnation if isinstance(incarnation, str) else "")


def _stop_request(consumer: str, key: Key) -> StopRequest | None:
    value = read_object(key.value) or {}
    incarnation = value.get("incarnation")
    return StopRequest(consumer, incarnation, **said(value)) if isinstance(incarnation, str) else None
