"""The words for how a topic stands and how far each driver has come."""

from __future__ import annotations

from devstack.demo.cluster_view import drivers, standing
from muster.core.model import TopicSnapshot
from muster.core.starting import Stage, Starting


def test_drivers_are_described_by_their_stage() -> None:
    starting = {
        "b": Starting("b-1", Stage.JVM, 7.0),
        "c": Starting("c-1", Stage.SESSION, 7.0, tries=2),
        "d": Starting("d-1", Stage.SUBMITTED, 7.0, tries=9, failed="no memory"),
    }
    assert drivers("abcd", {"a", "x"}, starting | {"a": starting["b"]}) == {
        "a": "live",
        "b": "JVM started",
        "c": "Spark session made, try 2",
        "d": "submitted, try 3 or later, given up",
        "x": "live",
    }
    assert drivers("e", (), starting)["e"] == "not running"


def test_topic_without_an_assignment_is_described() -> None:
    assert standing(None) == "is unknown"
    assert standing(TopicSnapshot("flights", frozenset({0}))) == "is Initial, assigned none"
