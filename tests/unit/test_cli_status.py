"""`muster status` over simulated edges: topics, consumers, and who holds up what."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from muster.cli.main import main
from muster.core.overrides import IsolationEntry, Overrides
from muster.edges.consul import Members, Registration
from tests.support.runs import Topics, coordinator, settled_world
from tests.support.simulated import Node, SimulatedCluster
from tests.support.sources import opener

KAFKA = Topics(t=7, u=5)


@dataclass
class Consul:
    """The world's consumers, registered, and who isolated them."""

    world: SimulatedCluster

    @property
    def catalog(self) -> Consul:
        return self

    overrides = catalog

    def members(self) -> Members:
        found = self.world.members()
        registered = {c: Registration(c, "h", 80) for c, there in self.world.consumers.items() if there.alive}
        return Members(found.membership, registered, found.doubt)

    def read(self) -> Overrides:
        isolated = {
            c: IsolationEntry(consumer=c, by="ann", at=0.0, why="it is slow") for c in self.world.isolated
        }
        return replace(self.world.read(), isolated=isolated)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedCluster:
    path = tmp_path / "clusters.yaml"
    monkeypatch.setenv("MUSTER_CLUSTERS", str(path))
    cluster = {"consul_service": "c", "group_id": "g", "topics": ["t", "u"], "consumers": {"handler": "a.b"}}
    path.write_text(yaml.safe_dump({"clusters": {"c": cluster}}))
    return settled_world()


def muster(world: SimulatedCluster, *args: str) -> Result:
    obj = opener(world.store, Consul(world), world.poll)
    return CliRunner().invoke(main, ["status", "--cluster", "c", *args], obj=obj)


def printed(world: SimulatedCluster) -> dict[str, Any]:
    result = muster(world, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_status_of_a_healthy_cluster_ends_with_0(world: SimulatedCluster) -> None:
    result = muster(world, "--check")
    assert result.exit_code == 0
    assert "status: cluster c, 2 of 2 topics Stable, 3 live consumers" in result.stdout
    found = printed(world)
    assert found["well"]
    assert [(t["topic"], t["state"], t["partitions"], t["unowned"]) for t in found["topics"]] == [
        ("t", "Stable", 7, 0),
        ("u", "Stable", 5, 0),
    ]
    assert [(c["consumer"], c["state"], c["partitions"]) for c in found["consumers"]] == [
        ("a", "live", 4),
        ("b", "live", 4),
        ("c", "live", 4),
    ]


def test_a_consumer_that_holds_things_up_is_named(world: SimulatedCluster) -> None:
    world.join("d")
    world.consumers["a"].answers = False
    coordinator(world, KAFKA).advance(5)
    result = muster(world, "--check")
    assert result.exit_code == 5
    assert "waiting: topic t: waiting for a to close" in result.stdout
    assert "no status: a: no answer in time" in result.stdout
    assert "stuck: topic t is Closing" in result.stdout, "in the world's time it began long ago"
    found = printed(world)
    assert not found["well"]
    assert {w["consumer"] for w in found["waiting"] if w["phase"] == "close"} == {"a"}


def test_isolated_and_gone_consumers_are_named(world: SimulatedCluster) -> None:
    world.isolated.add("a")
    world.consumers["b"].alive = False
    states = {c["consumer"]: c["state"] for c in printed(world)["consumers"]}
    assert states == {"a": "isolated", "b": "gone", "c": "live"}
    result = muster(world, "--check")
    assert "isolated: a by ann: it is slow" in result.stdout
    assert result.exit_code == 5


def test_an_unreadable_topic_and_a_doubtful_consul(world: SimulatedCluster) -> None:
    world.store.nodes["u"] = Node(b"{not json", 9)
    world.doubt = "Consul says there are none"
    result = muster(world, "--check")
    assert result.exit_code == 5
    assert (
        "left alone: topic u: ZooKeeper node /consumers/c/assignments/u is not an assignment" in result.stdout
    )
    assert "doubt: Consul says there are none" in result.stdout
    assert {c["state"] for c in printed(world)["consumers"]} == {"unknown"}


def test_long_tables_are_cut(world: SimulatedCluster) -> None:
    topics = Topics(**{f"t{n:03}": 1 for n in range(40)})
    settings = {"topics": {"patterns": ["t.*"]}}
    coordinator(world, topics, settings=settings).fetch_partitions()
    assert "... and 12 more; --all shows them" in muster(world).stdout
    assert "more; --all" not in muster(world, "--all").stdout
    assert len(printed(world)["topics"]) == 42
