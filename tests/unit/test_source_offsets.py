"""The arithmetic of a batch's offsets."""

from __future__ import annotations

import collections
import itertools
import json
from collections.abc import Mapping

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
    assert offsets.moves(before, {(T, 0): (0, 0), (T, 1): (7, 7)}), "a partition that begins again"
    assert not offsets.moves({}, {})


parts = st.tuples(partitions, st.integers(0, 3))


@given(ranges, st.integers(1, 12))
def test_parts_are_the_ranges_and_as_many_as_are_wanted_where_records_suffice(
    held: dict[tuple[str, int], tuple[int, int]], number: int
) -> None:
    divided = offsets.parts(held, number)
    for tp, (start, end) in held.items():
        of_range = sorted((part, bounds) for (of, part), bounds in divided.items() if of == tp)
        assert [part for part, _ in of_range] == list(range(len(of_range)))
        assert (of_range[0][1][0], of_range[-1][1][1]) == (start, end)
        assert all(before[1][1] == after[1][0] for before, after in itertools.pairwise(of_range))
        sizes = [to - begin for _, (begin, to) in of_range]
        assert max(sizes) - min(sizes) <= 1
        assert len(sizes) == 1 or min(sizes) >= 100
    assert len(held) <= len(divided) <= max(len(held), number)
    if len(divided) < number:
        assert all((to - begin) // 100 < 2 for begin, to in divided.values())


def test_parts_are_of_the_largest_ranges() -> None:
    held = {(T, 0): (0, 9000), (T, 1): (50, 3050), (T, 2): (7, 7)}
    assert offsets.parts(held, 3) == {((T, p), 0): bounds for (_, p), bounds in held.items()}
    assert offsets.parts(held, 5) == {
        ((T, 0), 0): (0, 3000),
        ((T, 0), 1): (3000, 6000),
        ((T, 0), 2): (6000, 9000),
        ((T, 1), 0): (50, 3050),
        ((T, 2), 0): (7, 7),
    }


@given(ranges, st.integers(1, 12), st.dictionaries(parts, st.integers(0, 15)))
def test_slots_are_of_each_part_and_even(
    held: dict[tuple[str, int], tuple[int, int]],
    number: int,
    before: dict[tuple[tuple[str, int], int], int],
) -> None:
    divided = offsets.parts(held, number)
    placed = offsets.slots(divided, number, before)
    assert placed.keys() == divided.keys()
    assert all(0 <= slot < number for slot in placed.values())
    held_twice = collections.Counter((tp, slot) for (tp, _), slot in placed.items())
    assert not held_twice or max(held_twice.values()) == 1
    sizes = [offsets.count(divided[of] for of in placed if placed[of] == slot) for slot in range(number)]
    largest = max((end - start for start, end in divided.values()), default=0)
    assert max(sizes) <= 1.25 * (sum(sizes) / number + largest) + 100 * number


def whole(ranges: Mapping[int, tuple[int, int]]) -> dict[tuple[tuple[str, int], int], tuple[int, int]]:
    """Ranges of undivided partitions of a topic."""
    return {((T, p), 0): bounds for p, bounds in ranges.items()}


def test_slots_keep_their_partitions_until_they_are_uneven() -> None:
    even = whole(dict.fromkeys(range(6), (0, 1000)))
    first = offsets.slots(even, 3, {})
    assert sorted(first.values()) == [0, 0, 1, 1, 2, 2]
    assert offsets.slots(even, 3, first) == first
    less = {of: bounds for of, bounds in even.items() if of != ((T, 0), 0)}
    assert offsets.slots(less, 3, first) == {of: slot for of, slot in first.items() if of in less}
    fewer = offsets.slots(even, 2, first)
    assert sorted(fewer.values()) == [0, 0, 0, 1, 1, 1]


def test_slots_move_partitions_where_records_are_uneven() -> None:
    before = {((T, p), 0): p % 2 for p in range(4)}
    # Both with many records are in slot 0.
    ranges = whole({0: (0, 900), 1: (0, 10), 2: (0, 900), 3: (5, 5)})
    after = offsets.slots(ranges, 2, before)
    assert after[(T, 0), 0] != after[(T, 2), 0]
    few = {of: (0, (end - start) // 100) for of, (start, end) in ranges.items()}
    assert offsets.slots(few, 2, before) == before


def test_partitions_of_a_shard_are_read_by_one_task() -> None:
    parts = {(("a", n), 0): (0, 100 * n) for n in range(4)} | {(("b", n), 0): (50, 60) for n in range(4)}
    of = {part: (("a", part[0][1]), part[1]) for part in parts}
    together = offsets.joined(parts, of)
    assert together == {(("a", n), 0): (0, 100 * n + 10) for n in range(4)}
    placed = offsets.slots(together, 3, {})
    assert placed.keys() == set(of.values())
