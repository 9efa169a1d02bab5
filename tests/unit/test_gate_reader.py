"""Which consumers a coordinator asks for their stores, and when it asks them again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.coordinator.gate_reader import GateReader
from muster.core.assignors.sticky import Sticky
from muster.core.copies import ShardCopy
from muster.core.model import Consumer, ConsumerStatus, State, TopicAssignment, TopicSnapshot, TopicState
from muster.core.overrides import NO_OVERRIDES
from muster.core.planner import propose
from muster.core.warming import Gate
from muster.edges.status import StatusFailure
from tests.support.runs import cluster

COPIES = {"t": {0: ShardCopy(100, 100), 1: ShardCopy(100, 100)}}


class Asked:
    """Consumers b and c, which warm up for what a has; a poll lasts as long as it may while c is frozen."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.polls: list[list[str]] = []
        self.frozen = True
        self.incarnation = "first"
        settings = cluster({"topics": ["t"], "consumers": {"handler": "a.b", "state": ["t"]}})
        self.reader = GateReader(settings, self.poll, lambda: self.now)

    def poll(
        self, consumers: Iterable[Consumer], timeout: float, *, topics: object = None
    ) -> Mapping[str, ConsumerStatus | StatusFailure]:
        ids = [consumer.id for consumer in consumers]
        self.polls.append(ids)
        answers: dict[str, ConsumerStatus | StatusFailure] = {
            each: ConsumerStatus(each, None, {}, copies=COPIES) for each in ids
        }
        if "c" in answers and self.frozen:
            self.now += timeout
            answers["c"] = StatusFailure("c", "no answer in time")
        return answers

    def look(self) -> Gate:
        node = TopicAssignment("k:1", "g", {0: "a", 1: "a"}, 5, warm_ups={0: "b", 1: "c"})
        there = TopicSnapshot("t", frozenset({0, 1}), node, 1, TopicState(State.STABLE, epoch=5), 1)
        live = {c: Consumer(c) for c in "ab"} | {"c": Consumer("c", incarnation=self.incarnation)}
        proposal = propose([there], live, Sticky(), has_state=lambda _: True)
        return self.reader.read(proposal, live, NO_OVERRIDES)


def test_frozen_consumer_holds_up_one_look_alone() -> None:
    asked = Asked()
    gate = asked.look()
    assert gate.copies == {"b": COPIES}
    began = asked.now
    for _ in range(30):
        assert asked.look().copies == {"b": COPIES}
        asked.now += 0.25
    assert sum("c" in ids for ids in asked.polls) == 1
    assert asked.now - began == 7.5, "no look took any time"


def test_answers_count_from_when_they_came() -> None:
    asked = Asked()
    asked.look()
    asked.look()
    assert asked.polls == [["b", "c"]]
    asked.now += 1.0
    asked.look()
    assert asked.polls == [["b", "c"], ["b"]]


def test_silent_consumer_is_asked_again_later() -> None:
    asked = Asked()
    asked.look()
    asked.frozen = False
    asked.now += 9.5
    assert asked.look().copies.keys() == {"b"}
    asked.now += 1.0
    assert asked.look().copies.keys() == {"b", "c"}


def test_new_incarnation_of_a_silent_consumer_is_asked() -> None:
    asked = Asked()
    asked.look()
    asked.frozen, asked.incarnation = False, "second"
    assert asked.look().copies.keys() == {"b", "c"}
