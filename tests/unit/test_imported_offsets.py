"""Offsets from elsewhere: what is read of files and nodes, and what importing them means."""

from __future__ import annotations

import pytest

from muster.core.imported_offsets import (
    ForeignOffsetsError,
    Import,
    parse_checkpoint_offsets,
    parse_zookeeper_offset,
    plan_import,
)


def test_plan_says_what_is_read_again_passed_over_lost_and_left_out() -> None:
    places = [("t", n) for n in range(6)]
    now = dict(zip(places, (None, 50, 50, 5, 50, None), strict=True))
    found = {("t", 0): 40, ("t", 1): 30, ("t", 2): 80, ("t", 3): 7, ("t", 4): 101, ("gone", 0): 1}
    plan = plan_import(found, now, dict.fromkeys(places, 10), dict.fromkeys(places, 100))
    assert [(i.partition, i.again, i.passed_over, i.lost, i.left) for i in plan.imports] == [
        (0, 0, 0, 0, 60),
        (1, 20, 0, 0, 70),
        (2, 0, 30, 0, 20),
        (3, 0, 0, 3, 90),
    ]
    assert plan.imports[0] == Import("t", 0, to=40, now=None, earliest=10, end=100)
    assert plan.left_out.keys() == {("t", 4), ("gone", 0)}
    assert "beyond its end 100" in plan.left_out["t", 4]
    assert plan.without == (("t", 5),)


def test_offset_of_kafka_08_is_decimal_text() -> None:
    assert parse_zookeeper_offset(b"9223372036854775807", "/p") == 2**63 - 1
    for wrong in (b"", b"-1", b'{"offset": 1}', b"1.5", b"\xff"):
        with pytest.raises(ForeignOffsetsError, match="/p: expected an offset as decimal text"):
            parse_zookeeper_offset(wrong, "/p")


def test_checkpoint_has_a_line_for_each_source() -> None:
    head = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n'
    kafka, rate, files = '{"t":{"1":7,"0":5}}', "4", '{"logOffset":3}'
    found = parse_checkpoint_offsets(
        head + "\n".join((rate, kafka, "-", files, '{"u":{"0":0}}')), "/c/offsets/4"
    )
    assert found == {("t", 0): 5, ("t", 1): 7, ("u", 0): 0}
    with pytest.raises(ForeignOffsetsError, match="two sources of the query read topic 't'"):
        parse_checkpoint_offsets(f"{head}{kafka}\n{kafka}", "/c/offsets/4")
    for wrong in ("", "v9\n{}\n-", kafka):
        with pytest.raises(ForeignOffsetsError, match="expected Spark's offset log of version v1"):
            parse_checkpoint_offsets(wrong, "/c/offsets/4")
