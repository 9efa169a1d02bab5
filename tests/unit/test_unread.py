"""What the reader cannot read, by what the connector says of it."""

from __future__ import annotations

import pytest

from muster.core.unread import RETRY, Kind, ReadFailure, Unread, read_failures

A, B, C = ("t", 0), ("t", 1), ("u", 0)


def failure(kind: Kind = Kind.LEADER, why: str = "it has no leader") -> ReadFailure:
    return ReadFailure(kind, A, 7, why)


def test_failure_is_found_in_a_java_trace() -> None:
    text = (
        "An error occurred while calling o1.collect.\n: org.apache.spark.SparkException: Job aborted\n"
        "Caused by: muster.connector.ReadException: RIGHT: topic 'a.b', partition 3, offset 12: Kafka at k:9092: "
        "TopicAuthorizationException: [a.b]; give the consumer's user the right\n\tat x"
    )
    why = "Kafka at k:9092: TopicAuthorizationException: [a.b]; give the consumer's user the right"
    assert read_failures(text) == [ReadFailure(Kind.RIGHT, ("a.b", 3), 12, why)]


def test_all_partitions_of_a_failure_are_found_once() -> None:
    lines = "LEADER: topic 't', partition 0, offset 5: a\nReadException: SILENT: topic 't', partition 1, offset 6: b"
    text = f"muster.connector.ReadException: {lines}\n\tat x\nCaused by: muster.connector.ReadException: {lines}\n"
    assert read_failures(text) == [ReadFailure(Kind.LEADER, A, 5, "a"), ReadFailure(Kind.SILENT, B, 6, "b")]


@pytest.mark.parametrize(
    "text", ["ValueError: RIGHT", "ReadException: OTHER: topic 't', partition 0, offset 1: x"]
)
def test_other_errors_are_no_read_failures(text: str) -> None:
    assert not read_failures(text)


def test_unread_partition_is_due_after_the_pause() -> None:
    unread = Unread()
    unread.note({A: failure()}, 100.0)
    assert not unread.due({A, B}, 100.0 + RETRY - 0.1)
    assert unread.due({A, B}, 100.0 + RETRY) == {A}
    assert not unread.due({A, B}, 100.0 + RETRY), "once in each pause"
    assert not unread.due({B}, 100.0 + 2 * RETRY), "it has nothing to read"


def test_partitions_of_one_reason_are_due_together() -> None:
    unread = Unread()
    unread.note(dict.fromkeys([A, B], failure(Kind.RIGHT, "x")), 0.0)
    unread.note({C: failure()}, 1.0)
    assert unread.due({A, B, C}, 20.0) == {A, B}
    assert unread.due({A, B, C}, 20.0) == {C}


def test_partition_that_is_read_is_forgotten() -> None:
    unread = Unread()
    unread.note(dict.fromkeys([A, B], failure()), 0.0)
    assert unread.forget([A, C]) == [A]
    assert unread.all.keys() == {B}
