"""Which records a sink was to leave out, and which are a surprise that a person hears of."""

from __future__ import annotations

from muster.core.left_out import REPORTED, LeftOutLog
from muster.core.losses import QUIET
from muster.core.model import Loss

TP = ("t", 3)


def test_records_of_the_last_owner_are_only_counted() -> None:
    log = LeftOutLog()
    log.passed(TP, 1, (0, 10), {TP: [(0, 10)]}, 5.0)
    log.passed(TP, 1, (10, 30), {TP: [(10, 20)]}, 6.0)
    log.passed(TP, 1, (30, 40), {}, 7.0)
    assert (log.expected, log.surprising, log.words(8.0)) == (20, 0, "")


def test_records_left_out_after_newer_ones_are_named() -> None:
    log = LeftOutLog()
    log.passed(TP, 1, (0, 10), {}, 5.0)
    log.passed(TP, 1, (10, 20), {TP: [(12, 14), (16, 20)]}, 6.0)
    assert (log.expected, log.surprising) == (0, 6)
    assert log.words(7.0).startswith(
        "topic 't', partition 3: offsets 12 to 19 (6 record(s)) were left out after newer ones were "
        "written: by the sink's own record they are stored"
    )
    assert log.words(7.0).endswith("delete what is left of them, and seek back to them with --rebuild")
    assert log.words(6.0 + REPORTED) == ""


def test_surprises_are_reported_for_the_history() -> None:
    log = LeftOutLog()
    log.passed(TP, 1, (0, 10), {}, 5.0)
    for begin in (10, 20):
        log.passed(TP, 1, (begin, begin + 10), {TP: [(begin, begin + 5)]}, float(begin))
    log.sought(TP, 1)
    log.passed(TP, 1, (0, 10), {TP: [(0, 10)]}, 30.0)
    assert log.losses.whole(30.0 + QUIET) == {
        TP: (
            Loss(10, 25, 10, "after newer ones were written", 10.0),
            Loss(0, 10, 10, "after a seek", 30.0),
        )
    }


def test_notice_of_a_sink_stands_for_an_hour() -> None:
    log = LeftOutLog()
    log.notice("others have removed rows", 5.0)
    assert log.words(6.0) == "others have removed rows"
    assert log.words(5.0 + REPORTED) == ""


def test_batch_that_failed_may_be_left_out() -> None:
    log = LeftOutLog()
    log.passed(TP, 1, (0, 10), {}, 5.0)
    log.failed(TP, 1, (10, 20))
    log.passed(TP, 1, (10, 20), {TP: [(10, 20)]}, 6.0)
    assert (log.expected, log.surprising) == (10, 0)


def test_next_claim_begins_without_a_past() -> None:
    log = LeftOutLog()
    log.sought(TP, 1)
    log.passed(TP, 1, (0, 10), {TP: [(0, 5)]}, 5.0)
    log.passed(TP, 2, (10, 20), {TP: [(10, 20)]}, 6.0)
    assert (log.expected, log.surprising) == (10, 5)


def test_all_left_out_after_a_seek_is_named_until_written_whole() -> None:
    log = LeftOutLog()
    log.passed(TP, 1, (50, 60), {}, 4.0)
    log.sought(TP, 1)
    for begin in (0, 10):
        log.failed(TP, 1, (begin, begin + 10))
        log.passed(TP, 1, (begin, begin + 10), {TP: [(begin, begin + 10)]}, 5.0)
    assert "offsets 0 to 19 (20 record(s)) were left out after a seek" in log.words(5.0)
    log.passed(TP, 1, (20, 30), {}, 6.0)
    log.failed(TP, 1, (30, 40))
    log.passed(TP, 1, (30, 40), {TP: [(30, 40)]}, 7.0)
    assert (log.expected, log.surprising) == (10, 20)
