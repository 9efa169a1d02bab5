"""What the operator does next about a consumer, rule by rule, and when the trigger holds one for gone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.airflow.presence import ABSENCE, STOP_MARGIN, Presence, Seen, Step, next_step
from muster.airflow.processes import Life
from muster.airflow.submission import Submission
from muster.core.starting import Stage, Starting
from muster.edges.consul import Registration, StopRequest
from muster.settings.cluster_settings import ConsumersSettings

SETTINGS = ConsumersSettings(handler="a.b", startup_timeout=100.0, lost_after=20.0, graceful_timeout=30.0)
NOW = 1_000_000.0
LIVE = Registration(id="c-1", incarnation="i1", passing=True)
FAILING = replace(LIVE, passing=False, output="answers 503")
REFUSED = replace(
    LIVE, passing=False, output='Get "http://h:1/health": dial tcp: connect: connection refused'
)
YOUNG = Submission("i1", "h", NOW - 5)
OLD = replace(YOUNG, at=NOW - 101)
STOP = StopRequest("c-1", incarnation="i1", by="me", why="because", at=NOW)


def see(
    registration: Registration | None = None,
    submission: Submission | None = None,
    life: Life = Life.UNKNOWN,
    stop: StopRequest | None = None,
    failing_for: float = 0.0,
    stopping_for: float = 0.0,
    starting: Starting | None = None,
) -> Seen:
    return Seen(registration, submission, life, stop, starting, failing_for, stopping_for, NOW)


def came(ago: float, tries: int = 1) -> Starting:
    """It made its session so many seconds ago."""
    return Starting("i1", Stage.SESSION, NOW - ago, tries)


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        (see(), Step.SUBMIT),
        (see(LIVE), Step.ADOPT),
        (see(LIVE, YOUNG, Life.RUNNING), Step.ADOPT),
        (see(LIVE, YOUNG, Life.ENDED), Step.SUBMIT),
        (see(replace(LIVE, passing=False, maintenance=True), OLD, Life.RUNNING, failing_for=99), Step.ADOPT),
        # submitted, not registered yet
        (see(None, YOUNG, Life.RUNNING), Step.WAIT),
        (see(None, YOUNG, Life.UNKNOWN), Step.WAIT),
        (see(None, YOUNG, Life.ENDED), Step.SUBMIT),
        (see(None, OLD, Life.RUNNING), Step.END),
        (see(None, OLD, Life.UNKNOWN), Step.SUBMIT),
        (see(None, OLD, Life.ENDED), Step.SUBMIT),
        # it comes on, however long ago it was submitted
        (see(None, OLD, Life.RUNNING, starting=came(99)), Step.WAIT),
        (see(None, OLD, Life.RUNNING, starting=came(100)), Step.END),
        (see(None, OLD, Life.UNKNOWN, starting=came(100)), Step.SUBMIT),
        (see(None, OLD, Life.RUNNING, starting=came(199, tries=2)), Step.WAIT),
        (see(None, OLD, Life.RUNNING, starting=came(200, tries=2)), Step.END),
        (see(None, OLD, Life.ENDED, starting=came(1)), Step.SUBMIT),
        # tries are not limited
        (see(None, replace(OLD, tries=1000), Life.ENDED, starting=came(1, tries=1000)), Step.SUBMIT),
        # registered, check fails
        (see(FAILING, YOUNG, Life.RUNNING, failing_for=19), Step.WAIT),
        (see(FAILING, YOUNG, Life.RUNNING, failing_for=20), Step.END),
        (see(FAILING, YOUNG, Life.UNKNOWN, failing_for=20), Step.END),
        (see(FAILING, YOUNG, Life.ENDED), Step.SUBMIT),
        # asked to stop
        (see(LIVE, YOUNG, Life.RUNNING, STOP), Step.WAIT),
        (see(LIVE, YOUNG, Life.UNKNOWN, STOP), Step.WAIT),
        (see(LIVE, YOUNG, Life.RUNNING, STOP, stopping_for=30 + STOP_MARGIN + 1), Step.END),
        (see(None, YOUNG, Life.RUNNING, STOP), Step.WAIT),
        (see(None, YOUNG, Life.ENDED, STOP), Step.SUBMIT),
        (see(None, None, Life.UNKNOWN, STOP), Step.SUBMIT),
        (see(FAILING, YOUNG, Life.ENDED, STOP), Step.SUBMIT),
        # nothing listens where it was: its process has ended, unless it is seen to run
        (see(REFUSED, OLD, Life.UNKNOWN), Step.SUBMIT),
        (see(REFUSED, OLD, Life.RUNNING), Step.WAIT),
        # asked to stop was another incarnation
        (see(LIVE, YOUNG, Life.RUNNING, replace(STOP, incarnation="i0")), Step.ADOPT),
        (see(None, OLD, Life.ENDED, replace(STOP, incarnation="i0")), Step.SUBMIT),
    ],
)
def test_next_step_has_a_reason(seen: Seen, step: Step):
    found, why = next_step(seen, SETTINGS)
    assert found is step
    assert why


def presence() -> Presence:
    return Presence("i1", lost_after=20.0, graceful=30.0)


def test_a_live_consumer_is_there():
    assert not presence().gone(True, LIVE, Life.RUNNING, NOW)
    assert not presence().gone(True, LIVE, Life.UNKNOWN, NOW)


def test_a_process_that_ended_is_evidence_even_without_consul():
    assert "process has ended" in presence().gone(False, None, Life.ENDED, NOW)
    assert "process has ended" in presence().gone(True, LIVE, Life.ENDED, NOW)


def test_doubtful_answers_are_no_evidence():
    watched = presence()
    assert not watched.gone(False, None, Life.UNKNOWN, NOW)
    assert not watched.gone(False, None, Life.UNKNOWN, NOW + 1000)
    assert not watched.gone(False, FAILING, Life.UNKNOWN, NOW + 2000)
    assert not watched.gone(True, None, Life.UNKNOWN, NOW + 2001)


def test_absence_counts_from_when_it_was_first_seen_and_ends_with_a_registration():
    watched = presence()
    assert not watched.gone(True, None, Life.UNKNOWN, NOW)
    assert not watched.gone(True, LIVE, Life.UNKNOWN, NOW + ABSENCE)
    assert not watched.gone(True, None, Life.UNKNOWN, NOW + ABSENCE + 1)
    assert "left Consul" in watched.gone(True, None, Life.UNKNOWN, NOW + 2 * ABSENCE + 2)


def test_a_process_that_is_seen_may_be_absent_for_as_long_as_it_may_take_to_close():
    watched = presence()
    assert not watched.gone(True, None, Life.RUNNING, NOW)
    assert not watched.gone(True, None, Life.RUNNING, NOW + 30)
    assert "still runs" in watched.gone(True, None, Life.RUNNING, NOW + 31)


def test_a_failing_check_counts_until_it_passes_again():
    watched = presence()
    assert not watched.gone(True, FAILING, Life.RUNNING, NOW)
    assert not watched.gone(True, LIVE, Life.RUNNING, NOW + 19)
    assert not watched.gone(True, FAILING, Life.RUNNING, NOW + 20)
    assert not watched.gone(True, FAILING, Life.RUNNING, NOW + 40)
    assert "check has failed for 21 s: answers 503" in watched.gone(True, FAILING, Life.RUNNING, NOW + 41)


def test_process_that_cannot_be_seen_is_gone_soon_after_its_check_is_refused():
    for life in (Life.UNKNOWN, Life.RUNNING):
        watched = presence()
        assert not watched.gone(True, REFUSED, life, NOW)
        assert not watched.gone(True, REFUSED, life, NOW + ABSENCE)
        gone = watched.gone(True, REFUSED, life, NOW + ABSENCE + 1)
        assert ("connection refused" in gone) == (life is Life.UNKNOWN)


def test_maintenance_is_no_failure():
    watched = presence()
    for seconds in range(0, 100, 10):
        maintained = replace(FAILING, maintenance=True)
        assert not watched.gone(True, maintained, Life.UNKNOWN, NOW + seconds)


def test_a_newer_incarnation_is_followed():
    watched = presence()
    assert not watched.gone(True, replace(LIVE, incarnation="i2"), Life.ENDED, NOW)
    assert watched.incarnation == "i2"
