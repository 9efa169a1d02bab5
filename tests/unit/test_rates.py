"""Limits of records a second, over all consumers that read a topic."""

from __future__ import annotations

import random

import pytest

from muster.consumer.source.rates import Rates
from muster.core.model import TopicPartition


class Consumer:
    """Reads all that it may of `partitions` of a topic that has twelve, whenever it plans."""

    def __init__(self, rate: float, partitions: set[int]) -> None:
        self.rates = Rates({"t": rate})
        self.partitions = partitions
        self.read: dict[TopicPartition, int] = {}

    def plan(self, now: float, there: bool = True) -> int:
        allowed = self.rates.allow({("t", p): 12 for p in self.partitions}, now)
        assert allowed.keys() == {("t", p) for p in self.partitions}
        taken = allowed if there else {}
        self.rates.taken(taken)
        for tp, records in taken.items():
            self.read[tp] = self.read.get(tp, 0) + records
        return sum(taken.values())


@pytest.mark.parametrize("rate", [2.5, 60.0, 1200.0])
def test_rate_holds_over_all_consumers_whichever_have_the_partitions(rate: float) -> None:
    chance = random.Random(7)
    consumers = [Consumer(rate, set(range(0, 6))), Consumer(rate, set(range(6, 12))), Consumer(rate, set())]
    for step in range(1, 6001):
        if step % 500 == 0:  # a rebalance
            owners = [chance.randrange(3) for _ in range(12)]
            for number, one in enumerate(consumers):
                one.partitions = {p for p, owner in enumerate(owners) if owner == number}
        chance.choice(consumers).plan(step * 0.1)
    total = sum(sum(one.read.values()) for one in consumers)
    assert total <= rate * 600
    assert total >= 0.9 * rate * 600 - 12 * 12, "but for fractions of a record that go with each move"


def test_each_partition_has_its_share_and_what_it_does_not_use_is_not_given_to_others() -> None:
    one = Consumer(120.0, {0, 1})
    for step in range(101):
        one.plan(step * 0.1)
    assert one.read == {("t", 0): 100, ("t", 1): 100}, "10 a second each, of 120 for 12 partitions"


def test_partition_without_records_keeps_what_is_for_one_second() -> None:
    one = Consumer(120.0, {0})
    for step in range(600):
        one.plan(step * 0.1, there=False)
    assert one.plan(60.0) == 11, "a second's worth, and what came since the last planning"


def test_partition_may_give_what_a_long_batch_has_saved_up() -> None:
    one = Consumer(120.0, {0})
    assert one.plan(0.0) == 0, "it begins with nothing"
    assert one.plan(30.0) == 300


def test_slow_rate_gives_a_record_now_and_then() -> None:
    one = Consumer(1.0, {0})
    given = [one.plan(float(now)) for now in range(121)]
    assert sum(given) == 10
    assert max(given) == 1


def test_topic_without_a_rate_is_not_limited_and_the_first_match_counts() -> None:
    rates = Rates({"invoices": 10.0, "in.*": 5.0})
    assert [rates.of(topic) for topic in ("invoices", "incidents", "xin", "orders")] == [
        10.0,
        5.0,
        None,
        None,
    ]
    assert rates.allow({("orders", 0): 1}, 0.0) == {}
