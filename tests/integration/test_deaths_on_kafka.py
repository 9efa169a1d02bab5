"""What an owner notes of its process in the offsets of a real Kafka; the committer is real, and fenced."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from muster.core.deaths import IN_DOUBT, PAUSE, Deaths
from muster.core.positions import NO_NOTE, format_stamp, noted
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.committing_consumer import Consumer
from tests.support.kafka_topics import make_topic

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def consumer(kafka: KafkaSettings, group: GroupOffsets) -> Iterator[Callable[..., Consumer]]:
    """Makes a consumer with a token, and further settings of its agent."""
    made: list[Consumer] = []

    def make(holder: str, **agent_settings: Any) -> Consumer:
        made.append(Consumer("one", kafka, group, True, holder=holder, **agent_settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_orderly_close_leaves_no_token(
    kafka: KafkaSettings, group: GroupOffsets, consumer: Callable[..., Consumer], eventually: Eventually
) -> None:
    topic = make_topic(kafka, 1)
    tp = (topic, 0)
    group.commit({tp: 0}, {tp: "muster:c:"})
    one = consumer("a0")
    one.reads(topic, {0: "one"}, 1)
    eventually(lambda: one.offered() == {0}, 60, "claimed and offered")
    one.batch(topic, {0: 10})
    eventually(lambda: group.committed([tp])[tp] == 10, 60, "committed")
    assert noted(group.positions([tp])[tp], "").deaths == Deaths("a0")
    one.agent.blocks.block("stopping")
    one.plan(topic, {})
    eventually(lambda: one.agent.wait_closed(0), 60, "closed")
    assert noted(group.positions([tp])[tp], "").deaths == Deaths()
    assert group.committed([tp])[tp] == 10


def test_ends_without_a_close_are_counted_in_the_offset(
    kafka: KafkaSettings, group: GroupOffsets, consumer: Callable[..., Consumer], eventually: Eventually
) -> None:
    """A process that is killed leaves its token, and the next one finds it."""
    topic = make_topic(kafka, 1)
    tp = (topic, 0)
    group.commit({tp: 0}, {tp: "muster:c:"})

    def noted_by(holder: str) -> Consumer:
        one = consumer(holder)
        one.reads(topic, {0: "one"}, 1)
        eventually(lambda: one.offered() == {0}, 60, "claimed and offered")
        one.batch(topic, {})
        eventually(lambda: deaths().holder == holder, 60, "its token is committed")
        return one

    def deaths() -> Deaths:
        return noted(group.positions([tp])[tp], "").deaths

    first = noted_by("a0")
    first.batch(topic, {0: 10})
    eventually(lambda: group.committed([tp])[tp] == 10, 60, "committed")
    first.close()
    second = noted_by("b0")
    assert deaths() == Deaths("b0", 1)
    assert second.agent.failing.turn([tp]) == {tp: None}, "the first one costs nothing"
    second.close()
    noted_by("c0").close()
    assert deaths() == Deaths("c0", 2, 1_000, 10 + IN_DOUBT)
    noted_by("d0").close()
    assert deaths() == Deaths("d0", 2, 1_000, 10 + IN_DOUBT), "it was not tried"
    assert group.committed([tp])[tp] == 10


def test_piece_is_tried_once_that_is_committed(
    kafka: KafkaSettings, group: GroupOffsets, consumer: Callable[..., Consumer], eventually: Eventually
) -> None:
    topic = make_topic(kafka, 1)
    tp = (topic, 0)
    doubt = Deaths("b0", 1, at=10).taken_up("c0", 10)
    group.commit({tp: 10}, {tp: format_stamp("c", "", replace(NO_NOTE, deaths=doubt))})
    passed = [0.0]
    one = consumer("c0", clock=lambda: time.monotonic() + passed[0])
    one.reads(topic, {0: "one"}, 1)
    eventually(lambda: one.offered() == {0}, 60, "claimed and offered")
    one.batch(topic, {})
    assert one.agent.failing.turn([tp]) == {}, "it waits"
    passed[0] += PAUSE
    assert one.agent.failing.turn([tp]) == {}, "it is not committed"
    assert eventually(lambda: one.agent.failing.turn([tp]), 60, "committed") == {tp: 1_000}
    found = group.positions([tp])[tp]
    assert noted(found, "").deaths == replace(doubt, tried=True)
    assert group.committed([tp])[tp] == 10


def test_token_of_a_fenced_process_does_not_come_late(
    kafka: KafkaSettings, group: GroupOffsets, consumer: Callable[..., Consumer], eventually: Eventually
) -> None:
    """A process that was frozen when it was replaced goes on, and commits what it has."""
    topic = make_topic(kafka, 1)
    tp = (topic, 0)
    group.commit({tp: 0}, {tp: "muster:c:"})
    frozen = consumer("a0")
    frozen.reads(topic, {0: "one"}, 1)
    eventually(lambda: frozen.offered() == {0}, 60, "claimed and offered")
    plan = frozen.plan(topic, {0: 10})
    eventually(lambda: noted(group.positions([tp])[tp], "").deaths == Deaths("a0"), 60, "its token")
    newer = consumer("b0")
    newer.reads(topic, {0: "one"}, 1)
    eventually(lambda: newer.offered() == {0}, 60, "claimed and offered")
    newer.batch(topic, {})
    eventually(lambda: noted(group.positions([tp])[tp], "").deaths == Deaths("b0", 1), 60, "counted")
    frozen.agent.batch_done(plan, None)
    eventually(lambda: frozen.status(topic)["refused"], 60, "refused")
    assert noted(group.positions([tp])[tp], "").deaths == Deaths("b0", 1)
    assert group.committed([tp])[tp] == 0
