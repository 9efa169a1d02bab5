"""Copies of state: how warm they are, and how a status page says so."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from fastapi.testclient import TestClient

from muster.consumer.agent import Agent
from muster.consumer.state.copies import CopyNotes
from muster.consumer.stateless import Stateless
from muster.consumer.status_page import make_status_page
from muster.core.copies import WARM_LAG, ShardCopy, Warmth
from muster.core.model import TopicPartition
from muster.core.wire import parse_status
from tests.support.consumer_settings import consumer_settings


class Copied(Stateless):
    """Has copies on its disk, before it has read an assignment."""

    def copies(self) -> Mapping[TopicPartition, ShardCopy]:
        return {
            ("t", 0): ShardCopy(900, 1_000, 4096, True, 12.5),
            ("t", 1): ShardCopy(5),
            ("u", 0): ShardCopy(1, 1),
        }


@pytest.mark.parametrize(
    ("copy", "warmth"),
    [
        (ShardCopy(0, WARM_LAG), Warmth.WARM),
        (ShardCopy(0, WARM_LAG + 1), Warmth.COLD),
        (ShardCopy(0, WARM_LAG + 1, followed=True), Warmth.WARMING),
        (ShardCopy(7), Warmth.COLD),
    ],
)
def test_copy_is_warm_by_its_lag(copy: ShardCopy, warmth: Warmth) -> None:
    assert copy.warmth is warmth


def test_copies_are_counted_by_warmth_in_metrics() -> None:
    page = TestClient(make_status_page(Agent("me", states=Copied()), consumer_settings(), list))
    scraped = page.get("/metrics").text
    of = 'muster_consumer_state_copies{cluster_name="c",consumer_id="me",topic="%s",warmth="%s"} %s'
    for topic, warmth, number in (
        ("t", "warm", "1.0"),
        ("t", "warming", "0.0"),
        ("t", "cold", "1.0"),
        ("u", "warm", "1.0"),
    ):
        assert of % (topic, warmth, number) in scraped


def test_status_tells_of_copies_before_any_assignment() -> None:
    page = TestClient(make_status_page(Agent("me", states=Copied()), consumer_settings(), list))
    answer = page.get("/status")
    found = parse_status(answer.content, "here")
    assert found.topics == {}
    assert found.copies == {
        "t": {0: ShardCopy(900, 1_000, 4096, True, 12.5), 1: ShardCopy(5)},
        "u": {0: ShardCopy(1, 1)},
    }
    shown = answer.json()["stores"]["t"]["0"]
    assert (shown["lag"], shown["is"]) == (100, "warm")
    asked = parse_status(page.get("/status?topic=u").content, "here").copies
    assert asked is not None
    assert asked.keys() == {"u"}


def test_status_without_state_reports_no_copies() -> None:
    page = TestClient(make_status_page(Agent("me"), consumer_settings(), list))
    answer = page.get("/status")
    assert "stores" not in answer.json()
    assert parse_status(answer.content, "here").copies is None


def test_malformed_copies_are_left_out() -> None:
    status = {"consumer": "a", "incarnation": "i", "topics": {}}
    stores = {
        "t": {"0": {"position": -1}, "x": {"position": 1}, "1": {"position": 3, "end": "?"}, "2": 5},
        "u": 7,
    }
    found = parse_status(json.dumps({**status, "stores": stores}).encode(), "here").copies
    assert found == {"t": {1: ShardCopy(3)}, "u": {}}


def test_rate_is_that_of_the_first_way_to_the_end() -> None:
    now = [0.0]
    copies, tp = CopyNotes(lambda: now[0]), ("t", 0)
    copies.begin(tp, 0, 100_000)
    now[0] = 2.0
    copies.came(tp, 100_000, 100_000, 4096)
    now[0] = 50.0
    copies.came(tp, 100_010, 100_020)
    assert copies.view() == {tp: ShardCopy(100_010, 100_020, 4096, True, 50_000.0)}
    copies.rest(tp)
    copies.came(tp, 7, 7)
    copies.found(tp, 100_010, 200_000, 4096)
    assert copies.view() == {tp: ShardCopy(100_010, 200_000, 4096, False, 50_000.0)}
    copies.gone(tp)
    assert copies.view() == {}


def test_copy_says_since_when_it_stands_still() -> None:
    now = [0.0]
    copies, tp = CopyNotes(lambda: now[0]), ("t", 0)
    copies.to_follow([tp])
    now[0] = 5.0
    assert copies.view() == {tp: ShardCopy(0, still=5.0)}, "it could not even be begun with"
    copies.begin(tp, 0, 100_000)
    copies.came(tp, 500, 100_000)
    now[0] = 65.0
    copies.rest(tp)
    copies.begin(tp, 500, 100_000)
    copies.came(tp, 500, 100_000)
    assert copies.view()[tp].still == 60.0, "a retry is no progress"
    copies.came(tp, 100_000, 100_000)
    now[0] = 100.0
    assert copies.view()[tp].still == 0.0, "it has all there is"
    copies.came(tp, 100_000, 100_001)
    copies.to_follow([])
    assert copies.view()[tp].still == 0.0, "it is not to be followed any more"
