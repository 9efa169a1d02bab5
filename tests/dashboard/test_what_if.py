"""Previews: what they show, what may not be asked, and that only what was shown is applied."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest

from muster.commands.target import Target
from muster.core.history import CommandEntry
from muster.core.overrides import Overrides, Pin
from muster.core.subscription import TopicOverride
from muster.dashboard import what_if as planning
from muster.settings.cluster_settings import ClusterSettings
from tests.support.runs import Topics, settle
from tests.support.simulated import SimulatedCluster
from tests.support.simulated_dashboard import Dashboard

KAFKA = Topics(t=6, u=6)


class Pinning:
    """Service discovery, as far as pins need it: what is pinned counts in the world at once."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard

    @property
    def catalog(self) -> Pinning:
        return self

    overrides = catalog

    def members(self):  # type: ignore[no-untyped-def]
        return self._dashboard.sources.members()

    def isolated(self):  # type: ignore[no-untyped-def]
        return self._dashboard.sources.overrides().isolated

    def read(self) -> Overrides:
        return self._dashboard.world.decided

    def pin(self, topic: str, partition: int, consumer: str, by: str, why: str, at: float) -> None:
        pin = Pin(topic=topic, partition=partition, consumer=consumer, by=by, why=why, at=at)
        pins = {**self._dashboard.world.decided.pins, (topic, partition): pin}
        self._dashboard.world.decided = Overrides(pins)


@pytest.fixture
def dashboard() -> Dashboard:
    world = SimulatedCluster()
    world.join("a", "b", "c")
    settle(world, KAFKA, "sticky")
    found = Dashboard(world, {"shadow_assignor": "muster.core.assignors.sticky.Sticky"})

    def target(cluster: ClusterSettings) -> Target:
        return Target(cluster, Pinning(found), lambda: nullcontext(world.store))  # type: ignore[arg-type]

    found.answers.open_target = target
    return found


def what_if(dashboard: Dashboard, **asked: Any) -> dict[str, Any]:
    found: dict[str, Any] = dashboard.post("/c/what-if", asked, user="viewer")
    return found


def test_preview_without_a_consumer(dashboard: Dashboard) -> None:
    gone = sum(1 for t in ("t", "u") for owner in dashboard.world.owners(t).values() if owner == "b")
    found = what_if(dashboard, without=["b"])
    assert (found["moved"], found["assignor"], found["held"]) == (gone, "sticky", "")
    assert {move["source"] for move in found["moves"]} == {"b"}
    assert sum(last - first + 1 for move in found["moves"] for first, last in move["partitions"]) == gone
    assert found["reasons"][0][1] >= 1
    shares = {share["consumer"]: (share["before"], share["after"]) for share in found["shares"]}
    assert shares["b"] == (4, 0)
    assert (found["after"]["consumers"], found["after"]["least"], found["after"]["most"]) == (2, 6, 6)
    # b itself stays, so the assignor would give it other partitions instead: that would not be what was shown.
    assert found["as_pins"] == {
        "possible": False,
        "why_not": "with these pins the assignor would move other partitions, for balance; isolate b instead",
    }
    assert found["as_assignor"] == {"possible": False, "why_not": "no other assignor was supposed"}


def test_preview_with_more_consumers(dashboard: Dashboard) -> None:
    dashboard.world.join("new-1")
    settle(dashboard.world, KAFKA, "sticky")
    found = what_if(dashboard, more=2)
    assert {share["consumer"] for share in found["shares"] if share["before"] == 0} == {"new-2", "new-3"}
    assert not found["as_pins"]["possible"]
    assert found["as_pins"]["why_not"] == "consumer new-2 is only supposed to be there"


def test_preview_with_another_assignor_or_more_partitions(dashboard: Dashboard) -> None:
    found = what_if(dashboard, assignor={"name": "range"})
    assert found["assignor"] == "range"
    found = what_if(dashboard, assignor={"name": "range"}, without=["a"])
    assert found["as_assignor"]["why_not"] == "more than another assignor was supposed"
    found = what_if(dashboard, partitions={"u": 8})
    assert found["moved"] == 2
    assert not found["as_pins"]["possible"]


def test_other_options_of_the_assignor_in_force(dashboard: Dashboard) -> None:
    found = what_if(dashboard, assignor={"options": {"rack_moves": 0}})
    assert (found["assignor"], found["moved"]) == ("sticky", 0)
    assert found["as_assignor"] == {"possible": True, "why_not": ""}
    asked = {"reason": "r", "what_if": {"assignor": {"options": {"nonsense": 1}}}, "way": "assignor"}
    words = dashboard.post("/c/levers/apply", {**asked, "plan": found["plan"]}, status=409)["detail"]
    assert "assignor 'sticky': wrong options" in words


def test_preview_that_supposes_nothing_is_what_the_next_run_would_do(dashboard: Dashboard) -> None:
    found = what_if(dashboard)
    assert (found["moved"], found["moves"]) == (0, [])
    assert found["as_pins"] == {"possible": False, "why_not": "nothing would move"}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"without": ["nobody"]}, "there is no such live consumer"),
        ({"partitions": {"x": 3}}, "there is no topic 'x'"),
        ({"partitions": {"t": 1_000_000}}, "are more than"),
        ({"joining": [{"consumer": "../x"}]}, "consumer id '../x'"),
        ({"assignor": {"name": "sticky", "options": {"no": 1}}}, "sticky"),
    ],
)
def test_suppositions_that_do_not_fit(dashboard: Dashboard, asked: dict[str, Any], words: str) -> None:
    assert words in dashboard.post("/c/what-if", asked, status=409)["detail"]


def test_previews_wait_for_each_other_but_not_for_long(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "PATIENCE", 0.01)
    with planning._one_at_a_time:
        assert "ask again" in dashboard.post("/c/what-if", {}, status=503)["detail"]
    dashboard.post("/c/what-if", {})


def test_viewer_cannot_have_any_code_run(dashboard: Dashboard, tmp_path: Any) -> None:
    made = tmp_path / "made"
    choice = {"name": "subprocess.Popen", "options": {"args": ["touch", str(made)]}}
    refused = dashboard.post("/c/what-if", {"assignor": choice}, user="viewer", status=409)
    assert "may not be chosen by hand; there are: co-partitioned, failover" in refused["detail"]
    for lever, asked in (
        ("assignor", {"assignor": choice}),
        ("apply", {"what_if": {"assignor": choice}, "plan": "x", "way": "assignor"}),
    ):
        answer = dashboard.post(f"/c/levers/{lever}", {"reason": "r", **asked}, status=409)
        assert "may not be chosen by hand" in answer["detail"], lever
    assert not made.exists()
    # One that clusters.yaml names may be.
    named = {"name": "muster.core.assignors.sticky.Sticky"}
    assert dashboard.post("/c/what-if", {"assignor": named}, user="viewer")["assignor"] == "sticky"


def test_a_plan_is_applied_as_pins_and_only_if_it_is_the_one_that_was_shown(dashboard: Dashboard) -> None:
    shown = what_if(dashboard, assignor={"name": "range"})
    asked = {
        "reason": "dealt out in turn",
        "what_if": {"assignor": {"name": "range"}},
        "plan": shown["plan"],
        "way": "pins",
    }
    assert shown["as_pins"]["possible"], shown["as_pins"]
    dashboard.world.join("d")
    settle(dashboard.world, KAFKA, "sticky")
    refused = dashboard.post("/c/levers/apply", asked, status=409)
    assert "no longer the one that was shown" in refused["detail"]
    assert not dashboard.world.decided.pins
    dashboard.world.consumers["d"].alive = False
    settle(dashboard.world, KAFKA, "sticky")
    dashboard.look_again()
    shown = what_if(dashboard, assignor={"name": "range"})
    done = dashboard.post("/c/levers/apply", {**asked, "plan": shown["plan"]})
    assert (
        done["lines"][0] == f"{shown['moved']} partition(s) pinned as previewed: dealt out in turn (by admin)"
    )
    pins = dashboard.world.decided.pins
    wanted = Counter(
        {
            (move["topic"], partition, move["target"]): 1
            for move in shown["moves"]
            for first, last in move["partitions"]
            for partition in range(first, last + 1)
        }
    )
    assert Counter((pin.topic, pin.partition, pin.consumer) for pin in pins.values()) == wanted
    assert {(pin.by, pin.why) for pin in pins.values()} == {("admin", "dealt out in turn")}
    history = [record.entry for record in dashboard.world.store.history().records]
    levers = {(entry.what, entry.who, entry.via) for entry in history if isinstance(entry, CommandEntry)}
    assert levers == {("pin", "admin", "dashboard")}
    # And so they show at once.
    assert dashboard.get("/c")["summary"]["pinned"] == shown["moved"]
    # And the coordinator's runs bring about just what was shown.
    expected = {key: pin.consumer for key, pin in pins.items()}
    settle(dashboard.world, KAFKA, "sticky")
    assert {(t, p): dashboard.world.owners(t)[p] for t, p in expected} == expected
    dashboard.look_again()
    assert what_if(dashboard)["moved"] == 0


def test_a_plan_that_cannot_be_applied_so_says_why(dashboard: Dashboard) -> None:
    shown = what_if(dashboard, more=1)
    asked = {"reason": "r", "what_if": {"more": 1}, "plan": shown["plan"], "way": "pins"}
    assert "only supposed to be there" in dashboard.post("/c/levers/apply", asked, status=409)["detail"]
    dashboard.post("/c/levers/apply", asked, user="viewer", status=403)


def test_preview_leaves_out_topics_that_are_not_subscribed_any_more(dashboard: Dashboard) -> None:
    """No run of the coordinator plans them either."""
    said = {"by": "ann", "at": 1.0, "why": "r"}
    gone = TopicOverride(**said, selector="u", pattern=False, subscribed=False)  # type: ignore[arg-type]
    dashboard.world.decided = Overrides(subscriptions=(gone,))
    dashboard.look_again()
    found = what_if(dashboard, without=["b"])
    assert {move["topic"] for move in found["moves"]} == {"t"}
    assert found["after"]["partitions"] == 6
    refused = dashboard.post("/c/what-if", {"partitions": {"u": 8}}, status=409)["detail"]
    assert "there is no topic 'u'" in refused
