"""A topic of which nothing is left out until a person answers, on a real Kafka: the next owner knows it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from muster.core.ownership import BatchPlan
from muster.core.positions import noted
from muster.core.turns import Failure
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.committing_consumer import Consumer
from tests.support.kafka_topics import make_topic

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def consumers(kafka: KafkaSettings, group: GroupOffsets) -> Iterator[tuple[Consumer, Consumer]]:
    """Two processes of one consumer, each with its token."""
    made = [Consumer("one", kafka, group, True, holder=holder) for holder in ("a0", "b0")]
    yield made[0], made[1]
    for one in made:
        one.close()


def test_topic_that_rejects_stopped_stays_so(
    kafka: KafkaSettings,
    group: GroupOffsets,
    consumers: tuple[Consumer, Consumer],
    eventually: Eventually,
) -> None:
    topic = make_topic(kafka, 1)
    tp = (topic, 0)
    group.commit({tp: 0}, {tp: "muster:c:"})

    def batch_of(one: Consumer, end: int) -> BatchPlan:
        eventually(lambda: one.offered() == {0}, 60, "claimed and offered")
        return one.plan(topic, {0: end})

    first, second = consumers
    first.reads(topic, {0: "one"}, 1)
    plan = batch_of(first, 100)
    rejected = {tp: dict.fromkeys(range(40), "ValueError: no")}
    why = first.agent.may_reject(plan, rejected)
    assert "33 of the last 100 records" in why
    first.agent.batch_done(plan, Failure(why, of_record=False), rejected)
    eventually(lambda: noted(group.positions([tp])[tp], "").stopped, 60, "committed as stopped")
    first.close()

    second.reads(topic, {0: "one"}, 1)
    plan = batch_of(second, 10)
    assert "it was stopped when partition 0 had another owner" in second.agent.may_reject(
        plan, {tp: {3: "ValueError: no"}}
    )
    assert "nothing of it is left out until a person answers" in str(second.status(topic)["errors"])
    assert group.committed([tp])[tp] == 0
