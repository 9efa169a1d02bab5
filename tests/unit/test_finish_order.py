"""The hint that keeps partitions with the Python worker that has fetched them ahead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from muster.consumer.source import offsets
from muster.consumer.source.finish_order import Finish, FinishOrder

A, B, C, D = (("t", number) for number in range(4))


@pytest.fixture
def order() -> Iterator[FinishOrder]:
    made = FinishOrder()
    yield made
    made.close()


def test_partitions_rank_by_when_their_task_finished(order: FinishOrder) -> None:
    assert order.ranks() == {}
    first, second, _ = order.expect([[A, B], [C], [D]])
    second.say()
    first.say()
    assert order.ranks() == {C: 0, A: 1, B: 1}, "of a task that has said nothing nothing is known"


def test_a_task_that_ran_twice_counts_the_last_time(order: FinishOrder) -> None:
    first, second = order.expect([[A], [B]])
    for finish in (first, second, first):
        finish.say()
    assert order.ranks() == {B: 0, A: 1}


def test_what_is_not_of_the_last_batch_is_not_heard(order: FinishOrder) -> None:
    (earlier,) = order.expect([[A]])
    (later,) = order.expect([[B]])
    earlier.say()
    Finish(later.port, "\xff" * 200).say()
    assert order.ranks() == {}
    later.say()
    assert order.ranks() == {B: 0}


def test_nobody_need_be_there_to_hear() -> None:
    gone = FinishOrder()
    (finish,) = gone.expect([[A]])
    gone.close()
    finish.say()


def test_groups_stand_in_the_order_of_their_partitions_ranks() -> None:
    groups = [[(tp, (0, 9))] for tp in (A, B, C)]
    assert offsets.in_turn(groups, {}) == groups
    assert offsets.in_turn(groups, {B: 0, A: 1}) == [groups[1], groups[0], groups[2]]
    mixed = [[(A, (0, 9)), (B, (0, 9))], [(C, (0, 9)), (D, (0, 9))]]
    assert offsets.in_turn(mixed, {A: 0, B: 2, C: 0, D: 0}) == [mixed[1], mixed[0]]
