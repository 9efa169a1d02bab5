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
        ([NEW, NEW], Mark(0, 100)),
        ([NEW, BEHIND], Mark(5, 110)),
        ([NEW, replace(NEW, committed={TP: 0})], Mark(0, 100)),
        ([BEHIND, NEW, BEHIND], Mark(5, 100)),
        ([replace(NEW, ends={TP: 0})], None),
        ([replace(NEW, beginnings={TP: 9})], None),
        ([BEHIND, replace(BEHIND, beginnings={TP: 7})], Mark(5, 100)),
        ([BEHIND, replace(BEHIND, ends={})], Mark(5, 100, known=False)),
        ([BEHIND, TopicOffsets(), TopicOffsets()], Mark(5, 100, known=False)),
        ([TopicOffsets(), TopicOffsets()], Mark(None, 100, known=False)),
        ([TopicOffsets(), BEHIND], Mark(5, 100)),
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
        "a commit of where it began is no movement",
        "a vanished group is no movement",
        "no record ever",
        "all deleted",
        "deleted by retention is no movement",
        "no leader",
        "unknown for long",
        "never known",
        "known at last",
        "unknown for a while",
    ],
)
def test_mark_begins_where_the_committed_offset_stays(found: list[TopicOffsets], mark: Mark | None) -> None:
    marks = {tp: replace(each, points=()) for tp, each in looks(*found).marks.items()}
    assert marks == ({} if mark is None else {TP: mark})


def test_marks_keep_where_partitions_were_at_two_points() -> None:
    last, seen = Look(), []
    for number in range(8):
        offsets = replace(BEHIND, ends={TP: 9 + number}, committed={TP: number})
        last = look(last, [TP], offsets, 100.0 + 10 * number)
        seen.append((last.points, last.marks[TP].points))
    assert seen[2] == ((100,), ((0, 9),))
    assert seen[3] == ((130, 100), ((3, 12), (0, 9)))
    assert seen[6] == seen[7] == ((160, 130), ((6, 15), (3, 12)))


def test_partition_that_had_no_lag_has_no_older_point() -> None:
    first = look(Look(), [TP], DONE, 100.0)
    assert first.points == (100,)
    late = look(first, [TP], BEHIND, 110.0)
    assert late.marks[TP].points == ()
    assert look(late, [TP], BEHIND, 140.0).marks[TP].points == ((5, 9),)
    unknown = look(looks(BEHIND), [TP], TopicOffsets(), 140.0)
    assert unknown.marks[TP].points == ()


def test_clock_that_was_set_back_begins_new_points() -> None:
    assert look(looks(BEHIND), [TP], BEHIND, 50.0).points == (50,)


def test_partition_that_is_gone_has_no_mark() -> None:
    assert look(looks(BEHIND), [], BEHIND, 200.0).marks == {}


def test_partitions_stand_still_after_the_given_seconds() -> None:
    last = looks(BEHIND)
    assert last.standing(130.0, 30.0) == {}
    assert last.standing(130.1, 30.0) == {"t": {0: Mark(5, 100, points=((5, 9),))}}


def test_looks_come_often_enough_for_a_short_limit() -> None:
    assert [Look().pause(after) for after in (300.0, 1e6, 10.0)] == [60.0, 60.0, 2.0]


def test_looks_that_take_long_come_less_often() -> None:
    slow = looks(BEHIND, took=10.0)
    assert (slow.pause(300.0), slow.pause(60.0)) == (200.0, 60.0)
    assert parse_look(format_parent(slow), ()).took == 10.0


def test_marks_are_read_back_as_written() -> None:
    marks = {
        (f"t{t}", p): Mark(None if p == 3 else p * 7, 100 + p % 2, p != 4, ((p, 9), (p, 8))[:p])
        for t in range(50)
        for p in range(5)
    }
    nodes = format_marks(marks)
    assert 1 < len(nodes) <= NODES
    parent = format_parent(Look(160.9, errors=("no leader",), points=(160, 100)))
    assert parse_look(parent, nodes.values()) == Look(160.0, marks, ("no leader",), points=(160, 100))
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
    "node",
    [
        b"",
        b"[]",
        b"{",
        b'{"t":7}',
        b'{"t":{"x":{"0":1}}}',
        b'{"t":{"1":{"x":[1]}}}',
        b'{"t":{"1":{"0":[]}}}',
        b'{"t":{"1":{"0":[1,2]}}}',
    ],
)
def test_malformed_node_counts_as_no_look(node: bytes) -> None:
    assert parse_look(b'{"at":5}', [node]) == Look()
    assert parse_look(node, []) == Look()
