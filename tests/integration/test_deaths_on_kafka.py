"""What an owner notes of its process in the offsets of a real Kafka; the committer is real, and fenced."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from muster.core.deaths import Deaths
from muster.core.positions import noted
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.committing_consumer import Consumer
from tests.support.kafka_topics import make_topic

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def consumer(kafka: KafkaSettings, group: GroupOffsets) -> Iterator[Callable[[str], Consumer]]:
    made: list[Consumer] = []

    def make(holder: str) -> Consumer:
        made.append(Consumer("one", kafka, group, True, holder=holder))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_orderly_close_leaves_no_token(
    kafka: KafkaSettings, group: GroupOffsets, consumer: Callable[[str], Consumer], eventually: Eventually
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
    one.agent.block("stopping")
    one.plan(topic, {})
    eventually(lambda: one.agent.wait_closed(0), 60, "closed")
    assert noted(group.positions([tp])[tp], "").deaths == Deaths()
    assert group.committed([tp])[tp] == 10
