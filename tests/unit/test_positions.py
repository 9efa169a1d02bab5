"""Where a partition goes on: whose offset is believed, and what becomes of a position that Kafka lost."""

from __future__ import annotations

import pytest

from muster.core import positions
from muster.core.positions import Committed, Jump, Stamp, Start, Why


@pytest.mark.parametrize(
    ("metadata", "stamp"),
    [
        ("muster:flights:qpJaokkrTr2QutpwMVdOOw", Stamp("flights", "qpJaokkrTr2QutpwMVdOOw")),
        ("muster:flights:", Stamp("flights")),
        ("", None),
        ("muster", None),
        ("muster:flights", None),
        ("muster::x", None),
        ("mustering:flights:x", None),
        ("by hand, see ticket 7", None),
    ],
)
def test_metadata_says_whose_an_offset_is_or_nothing(metadata: str, stamp: Stamp | None) -> None:
    assert positions.parse_stamp(metadata) == stamp
    if stamp is not None:
        assert positions.format_stamp(stamp.cluster, stamp.topic_id) == metadata


@pytest.mark.parametrize(
    ("position", "committed", "earliest", "expected"),
    [
        (None, None, 4, Start(4)),
        (None, 9, 4, Start(9)),
        (None, 0, 0, Start(0)),
        (None, 2, 10, Start(10, Jump(2, 10, Why.RETENTION))),
        (12, 9, 4, Start(12)),
        (12, 20, 4, Start(20)),
        (12, None, 4, Start(12)),
        (12, None, 15, Start(15, Jump(12, 15, Why.RETENTION))),
    ],
)
def test_start_is_the_groups_offset_unless_spark_is_ahead(
    position: int | None, committed: int | None, earliest: int, expected: Start
) -> None:
    there = None if committed is None else Committed(committed)
    assert positions.start(position, there, "A", earliest) == expected


@pytest.mark.parametrize("metadata", ["", "other tool", "muster:c:", "muster:c:A", "muster:other:A"])
def test_start_believes_an_offset_that_does_not_name_another_topic(metadata: str) -> None:
    assert positions.start(None, Committed(7, metadata), "A", 3) == Start(7)


def test_start_does_not_believe_an_offset_of_another_topic_however_large_this_one_is() -> None:
    committed = Committed(1000, "muster:c:A")
    assert positions.start(None, committed, "B", 0) == Start(0, Jump(1000, 0, Why.RECREATED))
    assert positions.start(12, committed, "B", 0) == Start(12), "what was read of this one counts"
    assert positions.start(None, committed, "", 0) == Start(1000), "which topic this is is not known"


def test_jumps_count_what_kafka_has_no_more() -> None:
    assert Jump(30, 70, Why.RETENTION).lost == 40
    assert Jump(100, 95, Why.TRUNCATION).lost == 5
    assert Jump(1000, 0, Why.RECREATED).lost == 0


@pytest.mark.parametrize(
    ("topic_id", "kafka_id", "expected"),
    [
        ("A", "A", Start(95, Jump(100, 95, Why.TRUNCATION))),
        ("A", "B", None),
        ("A", "", None),
        ("", "B", Start(3, Jump(100, 3, Why.RECREATED))),
        ("", "", Start(3, Jump(100, 3, Why.RECREATED))),
    ],
)
def test_a_position_after_the_end(topic_id: str, kafka_id: str, expected: Start | None) -> None:
    assert positions.after_the_end(100, 95, 3, topic_id, kafka_id) == expected
