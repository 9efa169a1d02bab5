"""What people answered about records that a handler fails with, for the consumers that hold them, in Consul's KV.

`answers/[TOPIC]/[PARTITION]`: `{"offset": 70, "answer": "skip", "who": ..., "when": ..., "why": ...}`, the newest
answer about the partition. It is for whichever consumer fails with the record at that offset, so it survives a
hand-over. That consumer deletes it once it is carried out; about another record it has no effect.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from muster.core.model import TopicPartition
from muster.core.parking import Answer
from muster.core.wire import WireError, check_topic, parse_partition
from muster.edges.consul_keys import Key, Keys, read_object, said, text

ANSWERS = "answers"


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


def _name(tp: TopicPartition) -> str:
    return f"{ANSWERS}/{check_topic(tp[0])}/{tp[1]}"


def _given(key: Key) -> GivenAnswer:
    value = read_object(key.value) or {}
    offset = value.get("offset")
    if type(offset) is not int or offset < 0:
        raise WireError(f"key {key.name} holds {json.dumps(value)[:100]}, which names no offset")
    return GivenAnswer(offset, Answer(str(value.get("answer"))), modified=key.modified, **said(value))
