"""`muster plan`, also as a process of its own, against real ZooKeeper and Consul: right, and without a trace."""

from __future__ import annotations

import json

import pytest

from muster.core.assignors import load_assignor
from tests.support.obedient_consumers import coordinator, owners
from tests.support.only_long import only_long
from tests.support.site import Site, site

__all__ = ["site"]

OWN = "tests.integration.own_assignors"


def test_plan_shows_what_then_happens_and_writes_nothing(site: Site) -> None:
    before = site.trace()
    shown = site.json("--without", "b")
    table = site.run("--without", "b")
    assert site.trace() == before

    standing = owners(site.store)
    assert table.returncode == 0, table.stderr
    assert table.stdout.count("consumer b left") == len(shown["moves"]) + 1
    assert {move["from"] for move in shown["moves"]} == {"b"}

    site.discovery.overrides.isolate("b", by="test", why="to see", at=0)
    assert coordinator(site.write(), site.store, site.discovery).advance(20).stable
    expected = {topic: dict(held) for topic, held in standing.items()}
    for move in shown["moves"]:
        assert expected[move["topic"]][move["partition"]] == move["from"]
        expected[move["topic"]][move["partition"]] = move["to"]
    assert owners(site.store) == expected


def test_plan_with_suppositions_writes_nothing(site: Site) -> None:
    site.write(shadow_assignor="range")
    before = site.trace()
    found = site.json("--with", "d:weight=2", "--partitions", "t=9", "--assignor", "round-robin")
    assert found["assignor"] == "round-robin"
    assert found["shadow"]["assignor"] == "range"
    assert site.ask("--without", "unknown").returncode == 2
    assert site.trace() == before


def test_status_shows_the_cluster_and_writes_nothing(site: Site) -> None:
    site.discovery.overrides.isolate("b", by="ann", why="it is slow", at=0)
    before = site.trace()
    done = site.run("--json", "--check", command="status")
    assert site.trace() == before
    assert done.returncode == 5, done.stderr
    found = json.loads(done.stdout)
    assert {t["topic"]: (t["state"], t["partitions"]) for t in found["topics"]} == {
        "t": ("Stable", 7),
        "u": ("Stable", 5),
    }
    assert {c["consumer"]: (c["state"], c["partitions"]) for c in found["consumers"]} == {
        "a": ("live", 4),
        "b": ("isolated", 4),
        "c": ("live", 4),
    }
    assert {c["consumer"]: c["why"] for c in found["consumers"]}["b"] == "by ann: it is slow"
    site.discovery.overrides.restore("b")
    assert site.ask("--check", command="status").returncode == 0


def test_a_cluster_that_never_ran_has_no_topics_and_gets_no_nodes(site: Site) -> None:
    site.name = f"new-{site.name}"
    site.write()
    before = site.trace()
    found = site.json()
    assert found["moves"] == []
    assert found["held"].startswith("no consumer is live")
    assert site.trace() == before


@pytest.mark.parametrize(
    ("own", "offence"),
    [
        ("Stale", "given to 'left-long-ago', which is not a live consumer"),
        pytest.param("Forgetful", "left out, though a consumer subscribes", marks=only_long),
        pytest.param("Broken", "failed (KeyError: 'nobody')", marks=only_long),
    ],
)
def test_an_own_assignor_that_is_wrong_moves_nothing_and_is_named(site: Site, own: str, offence: str) -> None:
    cluster = site.write(assignor=f"{OWN}.{own}")
    site.store.set_partitions("t", frozenset(range(9)))  # so that there is something to plan
    before = site.trace()
    run = coordinator(cluster, site.store, site.discovery, load_assignor(cluster.assignor.name))
    planned = run.compute_assignment()
    advanced = run.advance(5)
    assert not planned.needed
    assert advanced.changes == []
    for error in (planned.planning_error, advanced.planning_error):
        assert f"assignor 'own_assignors.{own}'" in error
        assert offence in error
        assert "Correct the assignor" in error
    shown = (site.run if own == "Broken" else site.ask)()
    assert shown.returncode == 4
    assert f"Error: assignor 'own_assignors.{own}'" in shown.stderr
    assert offence in shown.stderr
    assert "Traceback" not in shown.stderr
    assert site.trace() == before
    site.write()
    asked = site.ask("--assignor", f"{OWN}.{own}")
    assert (asked.returncode, offence in asked.stderr) == (4, True)
