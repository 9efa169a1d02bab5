"""The arithmetic of a batch's offsets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.consumer.source import offsets
from muster.consumer.source.offsets import OffsetError

T = "flights"

partitions = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 40))
backlogs = st.dictionaries(partitions, st.integers(0, 5000), max_size=40)
ranges = st.dictionaries(
    partitions, st.tuples(st.integers(0, 10**12), st.integers(0, 10**6)).map(lambda r: (r[0], sum(r)))
)


@given(ranges)
def test_offsets_survive_sparks_json_and_do_not_depend_on_order(
    held: dict[tuple[str, int], tuple[int, int]],
) -> None:
    text = json.dumps(offsets.format_offsets(held))
    assert offsets.parse_offsets(json.loads(text)) == held
    assert json.dumps(offsets.format_offsets(dict(reversed(held.items())))) == text


@pytest.mark.parametrize(
    ("given_", "named"),
    [
        ({T: {"3": 5}}, "partition '3'"),
        ({T: {"3": [5]}}, "partition '3'"),
        ({T: {"x": [1, 2]}}, "partition 'x'"),
        ({T: 7}, f"topic '{T}'"),
        ([], "expected topics"),
    ],
)
def test_an_offset_of_another_source_is_an_error_that_names_it(given_: object, named: str) -> None:
    with pytest.raises(OffsetError, match=named) as caught:
        offsets.parse_offsets(given_)
    assert "new checkpoint" in str(caught.value)


@given(backlogs, st.integers(1, 10_000))
def test_admission_is_within_the_limit_and_starves_no_partition(
    waiting: dict[tuple[str, int], int], limit: int
) -> None:
    admitted = offsets.admit(waiting, limit)
    with_records = {tp for tp, backlog in waiting.items() if backlog}
    assert admitted.keys() == with_records
    assert all(1 <= admitted[tp] <= waiting[tp] for tp in admitted)
    total = sum(waiting.values())
    if total <= limit:
        assert sum(admitted.values()) == total
    else:
        assert sum(admitted.values()) == max(limit, len(with_records))


def test_admission_serves_the_short_at_once_and_the_long_by_backlog() -> None:
    admitted = offsets.admit({(T, 0): 10, (T, 1): 3_000_000, (T, 2): 1_000_000}, 6000)
    assert admitted[T, 0] == 10
    assert admitted[T, 1] > 1.5 * admitted[T, 2] > 1500
    assert offsets.admit({(T, 0): 10, (T, 1): 70}, None) == {(T, 0): 10, (T, 1): 70}
    assert offsets.admit({(T, n): 9 for n in range(5)}, 2) == {(T, n): 1 for n in range(5)}


def test_the_next_batch_begins_where_each_partition_stands() -> None:
    planned = offsets.next_ranges({(T, 0): 5, (T, 1): 7, (T, 2): 9}, {(T, 0): 8, (T, 1): 7}, 100)
    assert planned == {(T, 0): (5, 8), (T, 1): (7, 7), (T, 2): (9, 9)}


def test_a_batch_is_planned_only_for_records_or_another_set() -> None:
    before = {(T, 0): (0, 5), (T, 1): (2, 7)}
    assert not offsets.moves(before, {(T, 0): (5, 5), (T, 1): (7, 7)})
    assert offsets.moves(before, {(T, 0): (5, 6), (T, 1): (7, 7)})
    assert offsets.moves(before, {(T, 0): (5, 5)})
    assert offsets.moves(before, {})
    assert offsets.moves({}, {(T, 0): (5, 5)})
    assert offsets.moves(before, {(T, 0): (0, 0), (T, 1): (7, 7)}), "a partition that begins anew"
    assert not offsets.moves({}, {})


@given(ranges, st.integers(1, 12), st.dictionaries(partitions, st.integers(0, 15)))
def test_slots_are_of_each_partition_and_even(
    held: dict[tuple[str, int], tuple[int, int]], number: int, before: dict[tuple[str, int], int]
) -> None:
    placed = offsets.slots(held, number, before)
    assert placed.keys() == held.keys()
    assert all(0 <= slot < number for slot in placed.values())
    sizes = [offsets.count(held[tp] for tp in placed if placed[tp] == slot) for slot in range(number)]
    largest = max((end - start for start, end in held.values()), default=0)
    assert max(sizes) <= 1.25 * (sum(sizes) / number + largest) + 100 * number


def test_slots_keep_their_partitions_until_they_are_uneven() -> None:
    even = {("t", p): (0, 1000) for p in range(6)}
    first = offsets.slots(even, 3, {})
    assert sorted(first.values()) == [0, 0, 1, 1, 2, 2]
    assert offsets.slots(even, 3, first) == first
    less = {tp: bounds for tp, bounds in even.items() if tp != ("t", 0)}
    assert offsets.slots(less, 3, first) == {tp: slot for tp, slot in first.items() if tp in less}
    fewer = offsets.slots(even, 2, first)
    assert sorted(fewer.values()) == [0, 0, 0, 1, 1, 1]


def test_slots_move_partitions_where_records_are_uneven() -> None:
    before = {("t", p): p % 2 for p in range(4)}
    # Both with many records are in slot 0.
    ranges = {("t", 0): (0, 900), ("t", 1): (0, 10), ("t", 2): (0, 900), ("t", 3): (5, 5)}
    after = offsets.slots(ranges, 2, before)
    assert after["t", 0] != after["t", 2]
    few = {tp: (0, (end - start) // 100) for tp, (start, end) in ranges.items()}
    assert offsets.slots(few, 2, before) == before
