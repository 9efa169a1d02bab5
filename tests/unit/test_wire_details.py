"""What a consumer tells of itself for people: read where it is there, and never in the way of its status."""

from __future__ import annotations

import json

import pytest

from muster.core.lenient import LONGEST_TEXT, MOST_ERRORS
from muster.core.model import ConsumerDetails, FailingRecord
from muster.core.wire import parse_status

BARE = {"consumer": "a", "incarnation": "x", "topics": {"t": {"running": [1]}}}


def details(**keys: object) -> ConsumerDetails:
    status = parse_status(json.dumps({**BARE, **keys}).encode(), "u")
    assert status.topics["t"].running == {1}
    return status.details


def test_details_are_read_as_musters_own_consumers_write_them() -> None:
    found = details(
        host="h",
        version="0.1.0",
        state="running",
        started="1970-01-01T00:01:40.000+00:00",
        errors=["topic t: no leader"],
        records=7,
        batches=2,
        last_batch="1970-01-01T00:02:00+00:00",
    )
    assert found == ConsumerDetails("h", "0.1.0", "running", 100.0, ("topic t: no leader",), 7, 2, 120.0)


def test_details_may_be_left_out_by_a_foreign_consumer() -> None:
    assert details() == ConsumerDetails()


@pytest.mark.parametrize(
    "rubbish", [None, 5, -1, True, "no moment", [], ["x"], {}, {"a": 1}, 1e400, [1, None, {}], "9" * 20]
)
def test_malformed_details_count_as_missing(rubbish: object) -> None:
    keys = ("host", "version", "state", "started", "errors", "records", "batches", "last_batch")
    found = details(**dict.fromkeys(keys, rubbish))
    assert found.started_at is found.last_batch_at is None
    assert found.records in {None, 5}
    assert set(found.errors) <= {"x"}


def test_details_are_cut_where_they_are_too_long() -> None:
    found = details(host="h" * 10_000, errors=["e" * 10_000] * 1000)
    assert len(found.host) == len(found.errors[0]) == LONGEST_TEXT
    assert len(found.errors) == MOST_ERRORS


def test_record_that_a_consumer_fails_with_is_read_and_malformed_ones_count_as_missing() -> None:
    def failing(entry: object, partition: str = "1") -> dict[int, FailingRecord]:
        topics = {"t": {"running": [1], "failing": {partition: entry}}}
        return dict(parse_status(json.dumps(BARE | {"topics": topics}).encode(), "u").on("t").failing)

    said = {
        "offset": 17,
        "attempts": 8,
        "error": "ValueError: no",
        "parked": True,
        "answer": "skip",
        "decided_for": 2.5,
    }
    assert failing(said) == {
        1: FailingRecord(17, "ValueError: no", 8, parked=True, answer="skip", decided_for=2.5)
    }
    assert failing({"offset": 0, "attempts": "x", "error": 5, "parked": 1, "answer": None}) == {
        1: FailingRecord(0)
    }
    for malformed in ({}, {"offset": -1}, {"offset": True}, [], None, 5):
        assert failing(malformed) == {}
    assert failing(said, "one") == {}
