"""Lists of partitions as people write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.commands.command import MOST_PARTITIONS, PARTITION_LIST, Actor, CommandError, parse_partitions
from muster.core.partition_list import format_partitions


@pytest.mark.parametrize(
    ("text", "partitions"),
    [("0", {0}), ("0-3,7", {0, 1, 2, 3, 7}), (" 7 , 0 - 1 ", {0, 1, 7}), ("2-2,1-3", {1, 2, 3})],
)
def test_numbers_and_ranges(text: str, partitions: set[int]) -> None:
    assert parse_partitions(text) == partitions


@given(st.frozensets(st.integers(0, 500), min_size=1))
def test_partition_list_is_read_as_it_was_written(partitions: frozenset[int]) -> None:
    text = format_partitions(partitions)
    assert re.fullmatch(PARTITION_LIST, text)
    assert parse_partitions(text) == partitions


@pytest.mark.parametrize("text", ["", "a", "1,", "1--2", "-1", "1;2", "0x1", "1.5", "1-2-3"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(CommandError, match=r"such as 0-3,7"):
        parse_partitions(text)


@pytest.mark.parametrize(
    ("text", "said"), [("3-1", "write 1-3"), (f"0-{MOST_PARTITIONS}", "more than"), ("0-4000000000", "more")]
)
def test_slips_of_the_finger_are_refused(text: str, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        parse_partitions(text)


def test_the_empty_list_is_written_in_words() -> None:
    assert format_partitions([]) == "none"


def test_a_reason_is_asked_for() -> None:
    with pytest.raises(CommandError, match="say why"):
        Actor("ann", "  ", 0.0)
