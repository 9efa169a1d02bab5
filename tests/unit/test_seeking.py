"""Seeks: what a person writes, where that is, and what it does in records."""

from __future__ import annotations

import pytest

from muster.core.positions import (
    Committed,
    Jump,
    Note,
    Stamp,
    Start,
    Why,
    format_stamp,
    noted,
    parse_stamp,
    sought,
)
from muster.core.seeking import Bounds, Destination, SeekError, To, effect, offset_for, parse_destination

NOW = 1_764_065_000.0
LOG = Bounds(earliest=100, end=1100, committed=600, at_time=450)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("earliest", Destination(To.EARLIEST)),
        (" latest ", Destination(To.LATEST)),
        ("120", Destination(To.OFFSET, 120)),
        ("+50", Destination(To.BY, 50)),
        ("-1000", Destination(To.BY, -1000)),
        ("-10m", Destination(To.TIME, NOW - 600)),
        ("-2d", Destination(To.TIME, NOW - 172_800)),
        ("2026-11-25T10:00:00Z", Destination(To.TIME, 1_795_600_800.0)),
        ("2026-11-25T11:00:00+01:00", Destination(To.TIME, 1_795_600_800.0)),
        ("2026-11-25T10:00:00", Destination(To.TIME, 1_795_600_800.0)),
    ],
)
def test_destination_is_read(text: str, found: Destination) -> None:
    assert parse_destination(text, NOW) == found


@pytest.mark.parametrize(
    "text", ["", "Earliest", "10m", "+10m", "1e3", "-", "1969-01-01", "9" * 20, "ten minutes"]
)
def test_other_text_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(
        SeekError, match="write earliest, latest, committed, changelog, an offset such as 120"
    ):
        parse_destination(text, NOW)


@pytest.mark.parametrize(
    ("to", "offset"),
    [
        ("earliest", 100),
        ("latest", 1100),
        ("100", 100),
        ("1100", 1100),
        ("-200", 400),
        ("-2000", 100),
        ("+2000", 1100),
        ("-10m", 450),
    ],
)
def test_destination_becomes_an_offset_of_the_log(to: str, offset: int) -> None:
    assert offset_for(parse_destination(to, NOW), LOG, "p") == offset


def test_missing_commit_counts_from_the_first_record_and_missing_time_is_the_end() -> None:
    log = Bounds(earliest=100, end=1100)
    assert offset_for(Destination(To.BY, 10), log, "p") == 110
    assert offset_for(Destination(To.TIME, NOW), log, "p") == 1100


@pytest.mark.parametrize("offset", [99, 1101])
def test_offset_outside_of_the_log_is_refused_with_its_bounds(offset: int) -> None:
    with pytest.raises(
        SeekError, match=rf"offset {offset} is outside .* the earliest is 100, the latest 1100"
    ):
        offset_for(Destination(To.OFFSET, offset), LOG, "topic 't', partition 3")


def test_effect_counts_records() -> None:
    assert effect(LOG, 400) == "600 -> 400, 200 record(s) come again"
    assert effect(LOG, 1100) == "600 -> 1100, 500 record(s) are passed over"
    assert effect(LOG, 600) == "600, it is there already"
    gone = Bounds(earliest=100, end=1100, committed=20)
    assert effect(gone, 100) == "100, it is there already", "what retention took comes not again"


def test_note_goes_with_the_metadata() -> None:
    assert format_stamp("c", "A") == "muster:c:A"
    for note, text in (
        (Note("s1"), "muster:c:A:s1"),
        (Note("s1", True), "muster:c:A:s1:stopped"),
        (Note(stopped=True), "muster:c:A::stopped"),
        (Note("s1", rebuild=7), "muster:c:A:s1::7"),
        (Note("s1", True, 7), "muster:c:A:s1:stopped:7"),
    ):
        assert format_stamp("c", "A", note) == text
        assert parse_stamp(f"{text}:more") == Stamp("c", "A", note)
        assert noted(Committed(5, text), "A") == note
        assert noted(Committed(5, text), "B") == Note(), "of another topic"
    assert noted(Committed(5, "muster:c:A"), "A") == noted(None, "A") == Note()
    assert noted(Committed(5, "muster:c:A:s1::-7"), "A") == Note("s1")


def test_sought_partition_goes_on_where_kafka_still_has_it() -> None:
    assert sought(50, Start(50), 20, 0, 100) == Start(20, Jump(50, 20, Why.SEEK))
    assert sought(None, Start(50), 20, 30, 100) == Start(30, Jump(50, 30, Why.SEEK))
    assert sought(50, Start(50), 500, 0, 100) == Start(100, Jump(50, 100, Why.SEEK))
    assert sought(50, Start(50), 50, 0, 100) == Start(50)
    assert Jump(50, 20, Why.SEEK).lost == 0
