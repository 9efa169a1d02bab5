"""What people answered about records that a handler fails with, for the consumers that hold them, in Consul's KV.

`answers/[TOPIC]/[PARTITION]`: `{"offset": 70, "answer": "skip", "who": ..., "when": ..., "why": ...}`, the newest
answer about the partition. It is for whichever consumer fails with the record at that offset, so it survives a
hand-over. That consumer deletes it once it is carried out; about another record it has no effect.

`standing/[TOPIC]/[DIGEST]`: `{"answer": "skip", "error": "ValueError", "text": "no date", "who": ..., "when": ...,
"why": ...}`, and `records` or `hourly`: a standing answer, which stands until a person deletes it. The digest is of
error and text. Before a consumer gives one that is limited, it counts the record in the key, against what it read:
so the limit holds for all consumers together. `taken` counts those of the hour that began at `hour`, in seconds since
the epoch.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from muster.core.model import TopicPartition
from muster.core.overrides import StandingAnswer
from muster.core.parking import Answer
from muster.core.turns import HOUR
from muster.core.wire import WireError, check_topic, parse_partition
from muster.edges.consul_keys import Key, Keys, read_object, said, text

ANSWERS, STANDING = "answers", "standing"
ATTEMPTS = 10
"""How many times a record is tried to be counted while other consumers count some as well."""


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """What is to become of the record at `offset`, and who decided that, when and why; `modified` tells this answer
    from an earlier one."""

    offset: int
    answer: Answer
    by: str
    at: float
    why: str
    modified: int


class AnswerBox:
    """The answers of one cluster. Raises `ConsulError`."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def give(self, tp: TopicPartition, offset: int, answer: Answer, by: str, why: str, at: float) -> None:
        """Answer about the record at `offset`, in the place of an earlier answer about the partition."""
        self._keys.write(_name(tp), text(by, why, at, {"offset": offset, "answer": answer}))

    def all(self) -> dict[TopicPartition, GivenAnswer]:
        """Return all answers; keys that hold something else are left out."""
        found = {}
        for name, key in self._keys.below(f"{ANSWERS}/").items():
            topic, _, partition = name.partition("/")
            try:
                found[check_topic(topic), parse_partition(partition)] = _given(key)
            except (WireError, ValueError):
                continue
        return found

    def end(self, tp: TopicPartition, given: GivenAnswer) -> None:
        """Delete an answer that was carried out, unless there is a newer one."""
        self._keys.api.delete_key(self._keys.prefix + _name(tp), cas=given.modified)

    def stand(self, one: StandingAnswer) -> bool:
        """Add a standing answer; False if there is one about the same errors, which stays."""
        more: dict[str, Any] = {"answer": one.answer, "error": one.error, "text": one.text}
        limits = {"records": one.records, "hourly": one.hourly}
        more |= {name: limit for name, limit in limits.items() if limit is not None}
        return self._keys.change(_standing_name(one), text(one.by, one.why, one.at, more), before=None)

    def end_standing(self, topic: str, error: str, words: str) -> bool:
        """Take a standing answer back; False if there is none."""
        return self._keys.remove(_standing_key(topic, error, words))

    def standing(self) -> tuple[StandingAnswer, ...]:
        """Return all standing answers; keys that hold something else are left out."""
        found = []
        for name, key in self._keys.below(f"{STANDING}/").items():
            try:
                found.append(parse_standing(name, key))
            except ValueError:
                continue
        return tuple(found)

    def take(self, one: StandingAnswer, now: float) -> bool:
        """Count one more record for a standing answer, at `now` in seconds since the epoch; False if there may be no
        more, or if it was taken back."""
        for _ in range(ATTEMPTS):
            key = self._keys.read(_standing_name(one))
            if key is None:
                return False
            value = read_object(key.value) or {}
            if not _counted(value, now):
                return False
            if self._keys.change(_standing_name(one), json.dumps(value), key):
                return True
        raise self._keys.error(f"the standing answer {one} was counted by others {ATTEMPTS} times meanwhile")


def _name(tp: TopicPartition) -> str:
    return f"{ANSWERS}/{check_topic(tp[0])}/{tp[1]}"


def _given(key: Key) -> GivenAnswer:
    value = read_object(key.value) or {}
    offset = value.get("offset")
    if type(offset) is not int or offset < 0:
        raise WireError(f"key {key.name} holds {json.dumps(value)[:100]}, which names no offset")
    return GivenAnswer(offset, Answer(str(value.get("answer"))), modified=key.modified, **said(value))


def _standing_key(topic: str, error: str, words: str) -> str:
    digest = hashlib.sha256(f"{error}\0{words}".encode()).hexdigest()[:32]
    return f"{STANDING}/{check_topic(topic)}/{digest}"


def _standing_name(one: StandingAnswer) -> str:
    return _standing_key(one.topic, one.error, one.text)


def parse_standing(rest: str, key: Key) -> StandingAnswer:
    """Read a standing answer from its key, of whose name `rest` is what follows `standing/`. Raises ValueError."""
    wanted = "expected is a JSON object with 'answer' (skip, dead_letter or retry), 'error' and 'text'"
    value = read_object(key.value) or {}
    topic, _, _ = rest.partition("/")
    error, words, answer = value.get("error"), value.get("text", ""), value.get("answer")
    records, hourly = value.get("records"), value.get("hourly")
    numbers = all(limit is None or (type(limit) is int and limit >= 0) for limit in (records, hourly))
    known = answer in {Answer.SKIP, Answer.DEAD_LETTER, Answer.RETRY}
    if not (isinstance(error, str) and error and isinstance(words, str) and known and numbers):
        raise WireError(f"holds {key.value[:100]!r}, {wanted}")
    return StandingAnswer(
        **said(value),
        topic=check_topic(topic),
        answer=Answer(str(answer)),
        error=error,
        text=words,
        records=records,
        hourly=hourly,
        modified=key.modified,
    )


def _counted(value: dict[str, Any], now: float) -> bool:
    """Count one more record in the value of a key; False if that may be no more."""
    left, hourly = value.get("records"), value.get("hourly")
    if type(left) is int:
        value["records"] = left - 1
        return left > 0
    if type(hourly) is not int:
        return True
    if not 0 <= now - float(value.get("hour") or 0.0) < HOUR:
        value |= {"hour": now, "taken": 0}
    taken = int(value.get("taken") or 0) + 1
    value["taken"] = taken
    return taken <= hourly
