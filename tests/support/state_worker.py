"""A process that counts the records of partition 0 by key, of one topic or of two that share their state, and is
killed at a step of its second batch."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from muster.consumer.state.shards import States
from muster.consumer.state.store import Store
from muster.core.state_topics import StateTopics
from muster.edges import kafka_fencing, state_changelog
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from tests.support.stateful_consumer import StatefulConsumer

STEPS = ("computed", "writing", "written", "committed", "applying", "applied", "")
KEYS, AT_ONCE = 7, 10
INITIAL = 1000
"""What each key begins with."""
_batches = 0
_dies_in = 2


def die() -> None:
    if _batches >= _dies_in:
        os.kill(os.getpid(), signal.SIGKILL)


def dies_at(step: str, die: Callable[[], None] = die) -> None:
    """Have `die` called at a step, of a batch that changes something."""
    write, landed, apply = state_changelog.write_carried, States.landed, Store.apply

    def writing(producer: Any, carried: Any, timeout: float) -> Any:
        if step == "writing" and carried.keys:
            die()
        found = write(producer, carried, timeout)
        if step == "written" and carried.keys:
            die()
        return found

    def landing(self: States, tp: Any, of: Any) -> None:
        if step == "committed" and of.carried.keys:
            die()
        landed(self, tp, of)
        if step == "applied" and of.carried.keys:
            die()

    def half(changes: Any) -> Iterator[Any]:
        for number, change in enumerate(changes):
            if number == 1:
                die()
            yield change

    def applying(self: Store, changes: Any, *marks: Any) -> bool:
        return apply(self, half(changes) if step == "applying" else changes, *marks)

    places: Any = (kafka_fencing, States, Store)
    fences, states, store = places
    fences.write_carried, states.landed, store.apply = writing, landing, applying


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def shared(topics: list[str]) -> StateTopics:
    return StateTopics([tuple(topics)] if len(topics) > 1 else [".*"])


def begun() -> dict[bytes, bytes]:
    """The initial state."""
    return {str(n).encode(): str(INITIAL).encode() for n in range(KEYS)}


def counted(before: dict[bytes, bytes], begin: int, end: int) -> dict[bytes, bytes | None]:
    changes: dict[bytes, bytes | None] = {}
    for n in range(begin, end):
        key = str(n % KEYS).encode()
        changes[key] = str(int(changes.get(key) or before.get(key, b"0")) + 1).encode()
    return changes


def main() -> None:
    global _batches, _dies_in  # noqa: PLW0603
    said = json.loads(sys.argv[1])
    _dies_in = said["dies_in"]
    dies_at(said["step"])
    kafka = KafkaSettings(config=said["kafka"])
    group, topics = GroupOffsets(kafka, said["group"]), said["topics"]
    one = StatefulConsumer("one", kafka, group, Path(said["folder"]), topics=shared(topics))
    for topic in topics:
        one.reads(topic, {0: "one"}, said["zxid"])

    def ready() -> bool:
        return all(one.readable(topic) for topic in topics)

    wait(ready)
    committed = group.committed([(topic, 0) for topic in topics])
    at = {topic: committed[topic, 0] or 0 for topic in topics}
    for number in itertools.count():
        left = [topic for topic in topics if at[topic] < said["records"]]
        if not left:
            break
        # Of two topics now both have records in a batch, now one.
        read = [topic for topic in left if len(left) == 1 or topics.index(topic) + 1 != number % 3]
        upto = {topic: at[topic] + AT_ONCE * (topic in read) for topic in topics}
        plan = one.plan_all(upto)
        before = begun() if one.states.view((topics[0], 0), at).fresh else one.state(topics[0])
        changes: dict[bytes, bytes | None] = {}
        for topic in read:
            before |= {key: value for key, value in changes.items() if value is not None}
            changes |= counted(before, at[topic], upto[topic])
        computed = one.compute(topics[0], plan, changes)
        _batches += 1
        if said["step"] == "computed":
            die()
        one.done(topics[0], computed)
        wait(ready)
        at = upto
    one.close()


if __name__ == "__main__":
    main()
