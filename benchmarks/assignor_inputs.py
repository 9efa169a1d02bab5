"""What the assignors are measured on: groups of three sizes, two kinds of subscriptions, and what happens to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from muster.core.assignors import load_assignor
from muster.core.model import Assignment, Consumer


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """Topics, partitions a topic, and consumers."""

    topics: int
    partitions: int
    consumers: int

    def __str__(self) -> str:
        return f"{self.topics:,} x {self.partitions:,} x {self.consumers:,}"


SIZES = (Size(10, 100, 10), Size(100, 100, 100), Size(1000, 100, 1000))


@dataclass(frozen=True)
class Input:
    """What an assignor is called with, and what to call that: `event` happened to a group with `kind` of
    subscriptions that was at rest under Muster's sticky assignor."""

    size: Size
    kind: str
    event: str
    topics: Mapping[str, frozenset[int]]
    consumers: Mapping[str, Consumer]
    previous: Assignment


def inputs(size: Size) -> Iterator[Input]:
    """Build all inputs of one size.

    `uniform`: everyone takes every topic. `mixed`: a third of the consumers takes every topic, a third the first half
    of them, a third the second half.
    `start`: nothing was assigned. `leave`, `leave10`: the first consumer goes, or the first ten (but at most half of
    them). `join`: one more like the first.
    """
    topics = {f"topic-{n:05d}": frozenset(range(size.partitions)) for n in range(size.topics)}
    ids = [f"consumer-{n:05d}" for n in range(size.consumers)]
    half = len(topics) // 2
    halves = (None, frozenset(sorted(topics)[:half]), frozenset(sorted(topics)[half:]))
    groups = {
        "uniform": {name: Consumer(name) for name in ids},
        "mixed": {name: Consumer(name, topics=halves[n % 3]) for n, name in enumerate(ids)},
    }
    for kind, consumers in groups.items():
        settled = load_assignor("sticky").assign(topics, consumers, {})
        newcomer = Consumer(f"consumer-{size.consumers:05d}", topics=consumers[ids[0]].topics)
        events: dict[str, tuple[dict[str, Consumer], Assignment]] = {
            "start": (consumers, {}),
            "leave": ({name: consumers[name] for name in ids[1:]}, settled),
            "join": ({**consumers, newcomer.id: newcomer}, settled),
            "leave10": ({name: consumers[name] for name in ids[min(10, size.consumers // 2) :]}, settled),
        }
        for event, (left, previous) in events.items():
            yield Input(size, kind, event, topics, left, previous)
