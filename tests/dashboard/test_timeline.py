"""The timeline: what the history holds, newest first, filtered, in pages, with how long each phase took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from muster.core.model import Move
from muster.dashboard.timeline import MOST_READS, READ_AT_ONCE, timeline


@dataclass(frozen=True)
class Step:
    """As `muster.core.history.Step`."""

    topic: str
    before: str
    after: str
    epoch: int = 1
    reason: str = ""
    lasted: float = 0.0
    moves: tuple[Move, ...] = ()
    moved: int = 0


@dataclass(frozen=True)
class Transitions:
    at: float
    steps: tuple[Step, ...]
    by: str = "a run"
    kind: str = "transitions"


@dataclass(frozen=True)
class Lever:
    at: float
    what: str = "isolate"
    who: str = "ann"
    why: str = "it is slow"
    via: str = "dashboard"
    details: dict[str, Any] = field(default_factory=lambda: {"consumer": "a"})
    kind: str = "lever"


@dataclass(frozen=True)
class Unreadable:
    at: float
    problem: str = "rubbish"
    kind: str = "unreadable"


@dataclass(frozen=True)
class Record:
    number: int
    entry: Any


@dataclass(frozen=True)
class Page:
    records: tuple[Record, ...]
    before: int | None = None


@dataclass
class History:
    entries: list[Any]
    reads: int = 0

    def __call__(self, limit: int, before: int | None) -> Page:
        self.reads += 1
        numbers = [n for n in range(len(self.entries) - 1, -1, -1) if before is None or n < before]
        there = tuple(Record(n, self.entries[n]) for n in numbers[:limit])
        return Page(there, numbers[limit - 1] if len(numbers) > limit else None)


MOVES = tuple(Move("t", p, "a", "b", "consumer a is isolated") for p in (1, 2, 3, 7))
STORY = [
    Transitions(100.0, (Step("t", "Initial", "Starting"), Step("u", "Initial", "Starting"))),
    Transitions(103.0, (Step("t", "Starting", "Stable", lasted=3.0),)),
    Lever(200.0),
    Transitions(
        201.0, (Step("t", "Stable", "Closing", moves=MOVES, moved=4, reason="consumer a is isolated"),)
    ),
    Transitions(203.5, (Step("t", "Closing", "Closing", lasted=2.5),)),
    Transitions(205.0, (Step("t", "Closing", "Starting", lasted=4.0),)),
    Transitions(206.0, (Step("t", "Starting", "Stable", lasted=5.0),)),
    Unreadable(207.0),
]


def told(
    limit: int = 50, before: int | None = None, topic: str | None = None, consumer: str | None = None
) -> Any:
    return timeline(History(list(STORY)), limit=limit, before=before, topic=topic, consumer=consumer)


def test_everything_newest_first_with_phases_moves_and_who() -> None:
    found = told()
    assert found.next_before is None
    kinds = [(e.kind, e.topic, e.before, e.after, e.lasted) for e in found.entries]
    assert kinds == [
        ("unreadable", None, None, None, None),
        ("transition", "t", "Starting", "Stable", 1.0),
        ("transition", "t", "Closing", "Starting", 4.0),
        ("transition", "t", "Closing", "Closing", None),
        ("transition", "t", "Stable", "Closing", 98.0),
        ("lever", None, None, None, None),
        ("transition", "t", "Starting", "Stable", 3.0),
        ("transition", "u", "Initial", "Starting", None),
        ("transition", "t", "Initial", "Starting", None),
    ]
    assert sorted((e.id for e in found.entries), reverse=True) == [e.id for e in found.entries]
    moved = found.entries[4]
    assert (moved.moved, moved.reason, moved.by) == (4, "consumer a is isolated", "a run")
    assert [(m.source, m.target, m.partitions) for m in moved.moves] == [("a", "b", [(1, 3), (7, 7)])]
    lever = found.entries[5]
    assert (lever.lever, lever.who, lever.reason, lever.by) == ("isolate", "ann", "it is slow", "dashboard")
    assert lever.details == {"consumer": "a"}


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_pages_hold_everything_once(limit: int) -> None:
    seen: list[str] = []
    before = None
    while True:
        page = told(limit, before)
        seen += [entry.id for entry in page.entries]
        if page.next_before is None:
            break
        before = page.next_before
    assert seen == [entry.id for entry in told().entries]


def test_of_one_topic_or_one_consumer() -> None:
    assert [e.topic for e in told(topic="u").entries] == ["u"]
    assert [(e.kind, e.after) for e in told(consumer="a").entries] == [
        ("transition", "Closing"),
        ("lever", None),
    ]
    assert told(consumer="nobody").entries == []


def test_a_filter_that_leaves_nothing_does_not_read_the_whole_history_at_once() -> None:
    history = History([Lever(float(n)) for n in range(READ_AT_ONCE * (MOST_READS + 5))])
    found = timeline(history, limit=50, before=None, topic="t", consumer=None)
    assert (found.entries, history.reads) == ([], MOST_READS)
    assert found.next_before == READ_AT_ONCE * 5
    rest = timeline(history, limit=50, before=found.next_before, topic="t", consumer=None)
    assert rest.next_before is None
