"""How a shard begins, by what changelog and group say of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from muster.consumer.state.position import ANYWHERE, Place, Position, TakenUp, Variable
from muster.consumer.state.position import moved as moved_of
from muster.consumer.state.position import take_up as take_up_of
from muster.core.model import Seek, SeekState
from muster.core.positions import Committed, Note, Stamp, format_stamp, parse_stamp

FOUND = Position({"t": Place(10, "s1", top=7, topic_id="id")}, 3, history="s1", time=5)
PAIR = Position({"t": Place(10, top=7, topic_id="id"), "u": Place(20, top=9, topic_id="id")}, 3, time=5)
IDS = {"t": "id", "u": "id"}


def group(offset: int, seq: int = 0, sought: str = "", topic_id: str = "id") -> Committed:
    return Committed(offset, format_stamp("c", topic_id, Note(sought), seq))


def take_up(found: Position | None, committed: Committed | None, topic_id: str, **more: Any) -> TakenUp:
    return take_up_of(found, {"t": committed}, {"t": topic_id}, **more)


def moved(now: Position, offset: int, note: Note, seek: Seek | None = None) -> Position:
    return moved_of(now, {"t": offset}, {"t": note}, seek)


def at(position: Position | None, **changes: Any) -> Position:
    """A position with another place."""
    assert position is not None
    return replace(position, places={"t": replace(position.places["t"], **changes)})


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
    assert take_up(None, group(4), "id").position == Position({"t": Place(4, topic_id="id")})
    assert take_up(None, Committed(4), "id").position == Position({"t": Place(4, topic_id="id")})


def test_shard_without_any_offset_begins_anywhere() -> None:
    assert take_up(None, None, "id").position == Position({"t": Place(topic_id="id")})


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
    after = at(replace(FOUND, seq=9, history="s2"), offset=15, move="s2", top=None)
    assert moved(taken.position, 15, Note("s2")) == after


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
    assert (position.places, position.seq) == ({"t": Place(ANYWHERE, topic_id="another")}, 3)
    assert position.generation > FOUND.generation
    assert position.time == FOUND.time


def test_commit_without_a_seek_keeps_the_watermark() -> None:
    assert moved(FOUND, 12, Note("s1")) == at(replace(FOUND, seq=4), offset=12)


def test_rebuild_raises_its_number_and_begins_empty() -> None:
    seek = Seek("s2", 2, 9, SeekState.REBUILD)
    found = at(replace(FOUND, variables={"v": Variable(1, "value", "{}")}, time_mode="EventTime"), done=5)
    position = moved(found, 2, Note("s2", rebuild=9), seek)
    assert position == Position({"t": Place(2, "s2", topic_id="id")}, 4, "s2", 9, 5)
    assert position.generation > found.generation
    for other in (replace(seek, id="s3"), Seek("s3", 2, state=SeekState.REBUILD)):
        again = moved(position, 2, Note("s3", rebuild=8), other)
        assert again.rebuild == 10, "by a clock that has gone back, or without a number"


def test_skip_keeps_the_watermark_and_what_is_done() -> None:
    seek = Seek("s2", 2, state=SeekState.SKIP)
    back = moved(FOUND, 2, Note("s2"), seek)
    assert back == at(replace(FOUND, seq=4, history="s2"), offset=2, move="s2", done=10)
    once_more = moved(back, 1, Note("s3"), replace(seek, id="s3"))
    assert once_more.places["t"].done == 10
    assert moved(back, 1, Note("s3"), Seek("s3", 1, state=SeekState.AGAIN)).places["t"].done == 0


def both(t: Committed | None, u: Committed | None) -> dict[str, Committed | None]:
    return {"t": t, "u": u}


def test_shard_of_two_topics_goes_on_where_all_agree() -> None:
    assert take_up_of(PAIR, both(group(10, 3), group(20, 3)), IDS).position == PAIR
    new = take_up_of(None, both(group(4), None), IDS).position
    assert new == Position({"t": Place(4, topic_id="id"), "u": Place(topic_id="id")})
    assert take_up_of(replace(new, seq=1), both(group(4, 1), None), IDS).position == replace(new, seq=1)


@pytest.mark.parametrize(
    "committed",
    [
        both(group(10, 3), group(19, 3)),
        both(group(10, 3), group(20, 2)),
        both(group(10, 3), group(20, 3, "s2")),
        both(group(10, 3), None),
    ],
)
def test_shard_does_not_run_where_one_differs(committed: dict[str, Committed | None]) -> None:
    taken = take_up_of(PAIR, committed, IDS)
    assert taken.position is None
    assert "is at offset 10 of topic 't', offset 20 of topic 'u', commit 3; the group" in taken.differs


def test_state_of_other_topics_than_the_settings_differs() -> None:
    taken = take_up_of(FOUND, both(group(10, 3, "s1"), group(0)), IDS)
    assert "has the state of 't', and the settings have the state of 't' and 'u' in one" in taken.differs
    chosen = take_up_of(FOUND, both(group(10, 3, "s1"), group(0)), IDS, seek="s2").position
    assert chosen is not None
    assert chosen.places.keys() == IDS.keys()


def test_commit_of_one_topic_leaves_the_other_in_place() -> None:
    assert moved_of(PAIR, {"t": 12}, {"t": Note()}) == replace(
        PAIR, places={**PAIR.places, "t": replace(PAIR.places["t"], offset=12)}, seq=4
    )


def test_watermark_of_two_topics_is_the_smaller() -> None:
    assert PAIR.top == 7
    assert replace(PAIR, places={**PAIR.places, "u": Place(20)}).top is None, "none of the other yet"


def test_recreated_topic_of_two_begins_with_empty_state() -> None:
    found = take_up_of(PAIR, both(group(10, 3), None), {"t": "id", "u": "another"}).position
    assert found is not None
    assert (found.places["t"].offset, found.places["u"].offset) == (10, ANYWHERE)
    assert found.generation > PAIR.generation


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
