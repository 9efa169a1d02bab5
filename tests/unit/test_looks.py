"""Since when partitions stand where they stand, by looks at Kafka's offsets; and how that is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.core.offsets import TopicOffsets
from muster.core.progress import (
    LONGEST_NODE,
    NODES,
    Look,
    Mark,
    format_marks,
    format_parent,
    look,
    parse_look,
)

TP = ("t", 0)
BEHIND = TopicOffsets(ends={TP: 9}, beginnings={TP: 0}, committed={TP: 5})
DONE = replace(BEHIND, ends={TP: 5})
NEW = replace(BEHIND, committed={TP: None})


def looks(*found: TopicOffsets, took: float = 0.0) -> Look:
    """The last of several looks, ten seconds apart, the first at 100."""
    last = Look()
    for number, offsets in enumerate(found):
        last = look(last, [TP], offsets, 100.0 + 10 * number, took)
    return last


@pytest.mark.parametrize(
    ("found", "mark"),
    [
        ([BEHIND, BEHIND, BEHIND], Mark(5, 100)),
        ([BEHIND, replace(BEHIND, ends={TP: 90})], Mark(5, 100)),
        ([BEHIND, replace(BEHIND, committed={TP: 6})], Mark(6, 110)),
        ([BEHIND, replace(BEHIND, committed={TP: 2})], Mark(2, 110)),
        ([BEHIND, DONE], None),
        ([DONE, BEHIND], Mark(5, 110)),
        ([NEW, NEW], Mark(None, 100)),
        ([NEW, BEHIND], Mark(5, 110)),
        ([replace(NEW, ends={TP: 0})], None),
        ([replace(NEW, beginnings={TP: 9})], None),
        ([BEHIND, replace(BEHIND, beginnings={TP: 7})], Mark(5, 100)),
        ([BEHIND, replace(BEHIND, ends={})], Mark(5, 100, known=False)),
        ([BEHIND, TopicOffsets(), TopicOffsets()], Mark(5, 100, known=False)),
        ([TopicOffsets(), TopicOffsets()], Mark(None, 100, known=False)),
        ([DONE, replace(DONE, ends={}), DONE], None),
    ],
    ids=[
        "nothing committed since",
        "more records",
        "committed",
        "sought back",
        "read to the end",
        "first record",
        "nothing committed ever",
        "first commit",
        "no record ever",
        "all deleted",
        "deleted by retention is no movement",
        "no leader",
        "unknown for long",
        "never known",
        "unknown for a while",
    ],
)
def test_mark_begins_where_the_committed_offset_stays(found: list[TopicOffsets], mark: Mark | None) -> None:
    assert looks(*found).marks == ({} if mark is None else {TP: mark})


def test_partition_that_is_gone_has_no_mark() -> None:
    assert look(looks(BEHIND), [], BEHIND, 200.0).marks == {}


def test_partitions_stand_still_after_the_given_seconds() -> None:
    last = looks(BEHIND)
    assert last.standing(130.0, 30.0) == {}
    assert last.standing(130.1, 30.0) == {"t": {0: Mark(5, 100)}}


def test_looks_come_often_enough_for_a_short_limit() -> None:
    assert [Look().pause(after) for after in (300.0, 1e6, 10.0)] == [60.0, 60.0, 2.0]


def test_looks_that_take_long_come_less_often() -> None:
    slow = looks(BEHIND, took=10.0)
    assert (slow.pause(300.0), slow.pause(60.0)) == (200.0, 60.0)
    assert parse_look(format_parent(slow), ()).took == 10.0


def test_marks_are_read_back_as_written() -> None:
    marks = {
        (f"t{t}", p): Mark(None if p == 3 else p * 7, 100 + p % 2, p != 4)
        for t in range(50)
        for p in range(5)
    }
    nodes = format_marks(marks)
    assert 1 < len(nodes) <= NODES
    assert parse_look(format_parent(Look(160.9, errors=("no leader",))), nodes.values()) == Look(
        160.0, marks, ("no leader",)
    )
    moved = format_marks({**marks, ("t0", 0): Mark(1, 999)})
    assert sum(moved[name] != nodes[name] for name in nodes) == 1, "the others need not be written"


def test_node_stays_small_and_keeps_the_oldest_marks() -> None:
    many = {("t", p): Mark(2**50 + p, 10_000 - p % 5_000) for p in range(40_000)}
    [node] = format_marks(many).values()
    assert len(node) <= LONGEST_NODE
    kept = parse_look(format_parent(Look(1.0)), [node]).marks
    assert len(kept) > 20_000
    oldest = {tp for tp, mark in many.items() if mark.since < 6_000}
    assert oldest <= kept.keys()


@pytest.mark.parametrize(
    "node", [b"", b"[]", b"{", b'{"t":7}', b'{"t":{"x":{"0":1}}}', b'{"t":{"1":{"x":1}}}']
)
def test_malformed_node_counts_as_no_look(node: bytes) -> None:
    assert parse_look(b'{"at":5}', [node]) == Look()
    assert parse_look(node, []) == Look()
