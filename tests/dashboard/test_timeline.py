"""The timeline: what the history holds, newest first, filtered, in pages, with how long each phase took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from muster.cluster.last_rebalance import LastRebalance, last_rebalance
from muster.core.history import CommandEntry, HistoryPage, Record, Step, Transitions, Unreadable
from muster.core.model import Move, State
from muster.dashboard.timeline import MOST_READS, READ_AT_ONCE, timeline
from tests.support.runs import Topics, settle
from tests.support.simulated import SimulatedCluster
from tests.support.simulated_dashboard import Dashboard


def transitions(at: float, *steps: Step) -> Transitions:
    return Transitions(at, "a run", steps)


def step(topic: str, before: str, after: str, **more: Any) -> Step:
    return Step(topic, State(before), State(after), 1, **more)


def lever(at: float) -> CommandEntry:
    return CommandEntry(at, "ann", "isolate", "it is slow", "dashboard", {"consumer": "a"})


@dataclass
class History:
    entries: list[Any]
    reads: int = 0

    def __call__(self, limit: int, before: int | None) -> HistoryPage:
        self.reads += 1
        numbers = [n for n in range(len(self.entries) - 1, -1, -1) if before is None or n < before]
        there = tuple(Record(n, 0.0, self.entries[n]) for n in numbers[:limit])
        return HistoryPage(there, numbers[limit - 1] if len(numbers) > limit else None)


MOVES = tuple(Move("t", p, "a", "b", "consumer a is isolated") for p in (1, 2, 3, 7))
STORY = [
    transitions(100.0, step("t", "Initial", "Starting"), step("u", "Initial", "Starting")),
    transitions(103.0, step("t", "Starting", "Stable", lasted=3.0)),
    lever(200.0),
    transitions(201.0, step("t", "Stable", "Closing", moves=MOVES, moved=4, reason="consumer a is isolated")),
    transitions(203.5, step("t", "Closing", "Closing", lasted=2.5)),
    transitions(205.0, step("t", "Closing", "Starting", lasted=4.0)),
    transitions(206.0, step("t", "Starting", "Stable", lasted=5.0)),
    Unreadable(207.0, "rubbish"),
]


def told(
    limit: int = 50, before: int | None = None, topic: str | None = None, consumer: str | None = None
) -> Any:
    return timeline(History(list(STORY)), limit=limit, before=before, topic=topic, consumer=consumer)


def test_timeline_is_newest_first_with_phases_moves_and_actors() -> None:
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


def test_timeline_is_that_of_one_topic_or_one_consumer() -> None:
    assert [e.topic for e in told(topic="u").entries] == ["u"]
    assert [(e.kind, e.after) for e in told(consumer="a").entries] == [
        ("transition", "Closing"),
        ("lever", None),
    ]
    assert told(consumer="nobody").entries == []


def test_a_filter_that_leaves_nothing_does_not_read_the_whole_history_at_once() -> None:
    history = History([lever(float(n)) for n in range(READ_AT_ONCE * (MOST_READS + 5))])
    found = timeline(history, limit=50, before=None, topic="t", consumer=None)
    assert (found.entries, history.reads) == ([], MOST_READS)
    assert found.next_before == READ_AT_ONCE * 5
    rest = timeline(history, limit=50, before=found.next_before, topic="t", consumer=None)
    assert rest.next_before is None


def test_the_last_rebalance_is_of_all_topics_that_began_together() -> None:
    def upto(number: int) -> LastRebalance | None:
        return last_rebalance([Record(n, 0.0, entry) for n, entry in enumerate(STORY[:number])], 300.0)

    assert upto(0) is None
    assert upto(2) == LastRebalance(at=100.0, reason="", topics=2, moved=0, lasted=None)
    assert upto(5) == LastRebalance(at=201.0, reason="consumer a is isolated", topics=1, moved=4, lasted=None)
    assert upto(8) == LastRebalance(at=201.0, reason="consumer a is isolated", topics=1, moved=4, lasted=5.0)


def test_the_history_is_only_read_when_a_topic_has_gone_on(dashboard: Dashboard) -> None:
    dashboard.sources.history_page = History(list(STORY))(100, None)
    for _ in range(3):
        assert dashboard.get("")["clusters"][0]["last_rebalance"]["lasted"] == 5.0
        dashboard.look_again()
    assert dashboard.sources.reads["history"] == 1
    dashboard.world.join("b")
    settle(dashboard.world, Topics(t=4), "sticky")
    dashboard.get("")
    assert dashboard.sources.reads["history"] == 2


def test_over_http_and_with_zookeeper_out_of_reach(dashboard: Dashboard) -> None:
    dashboard.sources.history_page = History(list(STORY))(100, None)
    found = dashboard.get("/c/timeline", topic="t", limit=2)
    assert [entry["after"] for entry in found["entries"]] == ["Stable", "Starting"]
    assert found["next_before"] == 5
    dashboard.sources.down.add("zookeeper")
    found = dashboard.get("/c/timeline")
    assert found["entries"] == []
    assert found["freshness"]["sources"][0]["error"] == "zookeeper is out of reach; look whether it runs"


@pytest.fixture
def dashboard() -> Dashboard:
    world = SimulatedCluster()
    world.join("a")
    settle(world, Topics(t=4), "sticky")
    return Dashboard(world)
