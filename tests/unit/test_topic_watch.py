"""When a topic counts as gone from Kafka, and how often Kafka is asked."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from muster.consumer.committer import GONE_AFTER, LONGEST_LOOK, SHARE, TOPICS_LOOK, TopicWatch
from muster.edges.kafka import Identities, KafkaError, TopicListing


class Kafka:
    def __init__(self) -> None:
        self.ids = {"t": "A", "u": "B"}
        self.listed: dict[str, frozenset[int]] = {"u": frozenset({0})}
        self.errors: dict[str, str] = {}
        self.away = False
        self.lists = 0

    def identities(self, topics: Collection[str]) -> Identities:
        if self.away:
            raise KafkaError("away")
        ids = {topic: self.ids[topic] for topic in topics if topic in self.ids}
        return Identities(ids, frozenset(topics) - ids.keys())

    def list_topics(self) -> TopicListing:
        self.lists += 1
        return TopicListing(self.listed, self.errors)


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


def test_a_topic_is_gone_when_it_was_absent_for_long_and_no_list_has_it(kafka: Kafka) -> None:
    watch = TopicWatch(kafka)
    assert watch.look({"t", "u"}, lambda: 0.0) == Identities({"t": "A", "u": "B"})
    del kafka.ids["t"]
    assert watch.look({"t", "u"}, lambda: 1.0) == Identities({"u": "B"})
    assert watch.look({"t", "u"}, lambda: 1.0 + GONE_AFTER - 0.1).absent == frozenset()
    assert kafka.lists == 0
    assert watch.look({"t", "u"}, lambda: 1.0 + GONE_AFTER).absent == {"t"}
    kafka.errors = {"t": "leader not available"}
    assert watch.look({"t", "u"}, lambda: 30.0).absent == frozenset(), "a list that has it in error has it"
    kafka.errors = {}
    kafka.ids["t"] = "C"
    assert watch.look({"t", "u"}, lambda: 40.0) == Identities({"t": "C", "u": "B"})
    del kafka.ids["t"]
    assert watch.look({"t", "u"}, lambda: 41.0).absent == frozenset(), "absent for no time yet"


def test_missing_answer_of_kafka_is_no_absence(kafka: Kafka) -> None:
    watch = TopicWatch(kafka)
    del kafka.ids["t"]
    watch.look({"t"}, lambda: 0.0)
    kafka.away = True
    with pytest.raises(KafkaError):
        watch.look({"t"}, lambda: GONE_AFTER)
    kafka.away = False
    kafka.ids["t"] = "A"
    assert watch.look({"t"}, lambda: GONE_AFTER + 1).absent == frozenset()


def test_a_look_that_took_long_is_followed_by_a_long_pause(kafka: Kafka) -> None:
    watch = TopicWatch(kafka)
    assert watch.pause(0.0) == 0.05, "the first look is due"
    now = iter([0.0, 0.001, 0.001])
    watch.look({"t"}, lambda: next(now))
    assert watch.pause(0.001) == pytest.approx(TOPICS_LOOK)
    now = iter([10.0, 11.0, 11.0])
    watch.look({"t"}, lambda: next(now))
    assert watch.pause(11.0) == pytest.approx(SHARE)
    now = iter([100.0, 109.0, 109.0])
    watch.look({"t"}, lambda: next(now))
    assert watch.pause(109.0) == pytest.approx(LONGEST_LOOK), "one slow answer does not blind it for minutes"
