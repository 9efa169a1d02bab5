"""How a shard begins, by what changelog and group say of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from muster.consumer.state.position import ANYWHERE, Position, Variable, moved, take_up
from muster.core.model import Seek, SeekState
from muster.core.positions import Committed, Note, Stamp, format_stamp, parse_stamp

FOUND = Position(10, 3, move="s1", history="s1", time=5, top=7, topic_id="id")


def group(offset: int, seq: int = 0, sought: str = "", topic_id: str = "id") -> Committed:
    return Committed(offset, format_stamp("c", topic_id, Note(sought), seq))


def test_position_reads_back_as_it_was_written() -> None:
    position = replace(FOUND, variables={"v": Variable(1, "map", "{}", "{}", True)}, time_mode="EventTime")
    assert Position.of(position.text()) == position


def test_position_of_a_newer_format_is_refused() -> None:
    text = json.dumps({**json.loads(FOUND.text()), "format": 2}).encode()
    with pytest.raises(ValueError, match="has format 2, and this version of Muster reads 1"):
        Position.of(text)


def test_shard_goes_on_where_both_agree() -> None:
    assert take_up(FOUND, group(10, 3, "s1"), "id").position == FOUND


def test_new_shard_begins_where_the_group_is() -> None:
    assert take_up(None, group(4), "id").position == Position(4, topic_id="id")
    assert take_up(None, Committed(4), "id").position == Position(4, topic_id="id")


def test_shard_without_any_offset_begins_anywhere() -> None:
    assert take_up(None, None, "id").position == Position(ANYWHERE, topic_id="id")


@pytest.mark.parametrize(
    ("found", "committed"),
    [
        (FOUND, group(11, 3, "s1")),
        (FOUND, group(10, 4, "s1")),
        (FOUND, group(10, 3, "s2")),
        (FOUND, group(10, 0, "s1")),
        (FOUND, Committed(10)),
        (FOUND, None),
        (None, group(10, 3)),
    ],
)
def test_shard_does_not_run_where_they_differ(found: Position | None, committed: Committed | None) -> None:
    taken = take_up(found, committed, "id")
    assert (taken.position, taken.chosen) == (None, "")
    assert "the group" in taken.differs


def test_new_seek_chooses_and_goes_on_after_both() -> None:
    taken = take_up(FOUND, group(20, 8, "s1"), "id", seek="s2")
    assert taken.chosen == "s2"
    assert taken.position is not None
    assert (taken.position.seq, taken.position.history) == (8, "s2")
    assert moved(taken.position, 15, Note("s2")) == replace(
        FOUND, offset=15, seq=9, move="s2", history="s2", top=None
    )


def test_choice_reads_no_state_of_a_lower_rebuild() -> None:
    there = Committed(20, format_stamp("c", "id", Note("s0", rebuild=7), 8))
    assert "rebuild 7, before which no state is read" in take_up(FOUND, there, "id").differs
    position = take_up(FOUND, there, "id", seek="s2").position
    assert position is not None
    assert (position.rebuild, position.variables) == (7, {})


@pytest.mark.parametrize("committed", [None, group(4), group(4, 3)])
def test_keys_without_a_position_are_not_read(committed: Committed | None) -> None:
    assert (
        "has no position, and no state that could be read"
        in take_up(None, committed, "id", highest=3).differs
    )
    position = take_up(None, committed, "id", seek="s2", highest=3).position
    assert position is not None
    assert position.rebuild == 4


@pytest.mark.parametrize("seek", ["s1", "s0"])
def test_seek_that_was_carried_out_chooses_nothing(seek: str) -> None:
    assert take_up(FOUND, group(20, 8, "s0"), "id", seek=seek).position is None


def test_another_topic_of_the_name_has_no_state() -> None:
    position = take_up(FOUND, group(10, 3, "s1"), "another").position
    assert position is not None
    assert (position.offset, position.seq, position.topic_id) == (ANYWHERE, 3, "another")
    assert position.generation > FOUND.generation
    assert position.time == FOUND.time


def test_commit_without_a_seek_keeps_the_watermark() -> None:
    assert moved(FOUND, 12, Note("s1")) == replace(FOUND, offset=12, seq=4)


def test_rebuild_raises_its_number_and_begins_empty() -> None:
    seek = Seek("s2", 2, 9, SeekState.REBUILD)
    found = replace(FOUND, variables={"v": Variable(1, "value", "{}")}, time_mode="EventTime", done=5)
    position = moved(found, 2, Note("s2", rebuild=9), seek)
    assert position == Position(2, 4, "s2", "s2", rebuild=9, time=5, topic_id="id")
    assert position.generation > found.generation
    for other in (replace(seek, id="s3"), Seek("s3", 2, state=SeekState.REBUILD)):
        again = moved(position, 2, Note("s3", rebuild=8), other)
        assert again.rebuild == 10, "by a clock that has gone back, or without a number"


def test_skip_keeps_the_watermark_and_what_is_done() -> None:
    seek = Seek("s2", 2, state=SeekState.SKIP)
    back = moved(FOUND, 2, Note("s2"), seek)
    assert back == replace(FOUND, offset=2, seq=4, move="s2", history="s2", done=10)
    once_more = moved(back, 1, Note("s3"), replace(seek, id="s3"))
    assert once_more.done == 10
    assert moved(back, 1, Note("s3"), Seek("s3", 1, state=SeekState.AGAIN)).done == 0


@pytest.mark.parametrize(
    "stamp",
    [
        Stamp("c"),
        Stamp("c", "id"),
        Stamp("c", "id", Note("s")),
        Stamp("c", "", Note(stopped=True)),
        Stamp("c", "id", seq=3),
        Stamp("c", "id", Note("s", True, 7), 12),
    ],
)
def test_stamp_reads_back_as_it_was_written(stamp: Stamp) -> None:
    text = format_stamp(stamp.cluster, stamp.topic_id, stamp.note, stamp.seq)
    assert parse_stamp(text) == stamp
