"""`muster plan` over simulated edges: what it prints, what it refuses, how it ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from muster.cli.main import main
from muster.core.overrides import Overrides, Pin
from muster.edges.consul import ConsulError
from tests.support.runs import Topics, settled_world
from tests.support.simulated import Node, SimulatedCluster
from tests.support.sources import opener


class Bad:
    """An assignor of a user that is wrong."""

    name = "bad"

    def __init__(self, to: str = "nobody") -> None:
        self.to = to

    def assign(self, topics, consumers, previous):
        return {t: dict.fromkeys(partitions, self.to) for t, partitions in topics.items()}


BAD = f"{__name__}.Bad"


@pytest.fixture
def world() -> SimulatedCluster:
    return settled_world()


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The one cluster of `clusters.yaml`; `write` it after changing it."""
    path = tmp_path / "clusters.yaml"
    monkeypatch.setenv("MUSTER_CLUSTERS", str(path))
    cluster: dict[str, Any] = {
        "consul_service": "c",
        "group_id": "g",
        "topics": ["t", "u"],
        "consumers": {"handler": "a.b"},
    }
    write(path, cluster)
    return cluster


def write(path: Path, cluster: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump({"clusters": {"c": dict(cluster)}}))


def muster(world: SimulatedCluster, *args: str) -> Result:
    obj = opener(world.store, world, world.poll)
    return CliRunner().invoke(main, ["plan", "--cluster", "c", *args], obj=obj)


def printed(world: SimulatedCluster, *args: str) -> dict[str, Any]:
    result = muster(world, *args, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


pytestmark = pytest.mark.usefixtures("clusters")


def test_plan_of_a_balanced_cluster_has_nothing_to_move(world: SimulatedCluster) -> None:
    result = muster(world)
    assert result.exit_code == 0
    assert "plan: cluster c, assignor sticky\n" in result.stdout
    assert "moves: 0 of 12 partitions" in result.stdout
    assert "balance before: 3 consumers, 4 partitions a consumer" in result.stdout


def test_every_move_has_its_reason_without_a_consumer(world: SimulatedCluster) -> None:
    owned = sum(list(world.owners(t).values()).count("b") for t in ("t", "u"))
    result = muster(world, "--without", "b")
    rows = [line for line in result.stdout.splitlines() if line.endswith("consumer b left") and " b " in line]
    assert len([row for row in rows if row[0] in "tu"]) == owned
    assert f"moves: {owned} of 12 partitions" in result.stdout
    assert f"  {owned}: consumer b left" in result.stdout
    assert "balance after:  2 consumers, 6 partitions a consumer" in result.stdout


def test_json_has_what_the_table_has(world: SimulatedCluster) -> None:
    found = printed(world, "--with", "d:weight=2,zone=z,priority=3,topics=t|u", "--partitions", "t=9")
    assert found["what_if"] == {
        "without": [],
        "with": {"d": {"weight": 2.0, "priority": 3, "zone": "z", "topics": ["t", "u"]}},
        "partitions": {"t": 9},
        "assignor": None,
    }
    causes = {move["cause"] for move in found["moves"]}
    assert causes == {"joined", "new partition"}
    assert {(m["topic"], m["partition"]) for m in found["moves"] if m["from"] is None} == {("t", 7), ("t", 8)}
    assert found["summary"]["moves"] == len(found["moves"])
    assert found["summary"]["after"]["partitions"] == 14
    assert sum(found["summary"]["reasons"].values()) == len(found["moves"])
    assert [c["consumer"] for c in found["consumers"]] == ["a", "b", "c", "d"]


def test_plan_writes_nothing(world: SimulatedCluster) -> None:
    before, writes = dict(world.store.nodes), world.store.writes
    muster(world, "--without", "a", "--assignor", "range")
    assert (world.store.nodes, world.store.writes) == (before, writes)


def test_another_assignor_and_what_it_alone_moves(world: SimulatedCluster) -> None:
    found = printed(world, "--assignor", "range")
    assert found["assignor"] == found["what_if"]["assignor"] == "range"
    assert {m["why"] for m in found["moves"]} == {"assignor range moves it, sticky would not"}


def test_options_of_the_assignor(world: SimulatedCluster) -> None:
    found = printed(world, "--assignor", BAD, "--assignor-option", "to=a")
    assert {m["to"] for m in found["moves"]} == {"a"}
    refused = muster(world, "--assignor-option", "limit=2")
    assert refused.exit_code == 4
    assert "assignor 'sticky': wrong options" in refused.stderr


def test_a_live_consumer_with_other_attributes(world: SimulatedCluster) -> None:
    found = printed(world, "--with", "b:weight=4")
    assert {m["to"] for m in found["moves"]} == {"b"}
    assert {m["why"] for m in found["moves"]} == {"attributes of b changed"}


def test_long_tables_are_cut_and_say_how_to_see_all(world: SimulatedCluster) -> None:
    cut = muster(world, "--partitions", "t=500")
    rows = [
        line for line in cut.stdout.splitlines() if line.endswith("new partition") and line.startswith("t ")
    ]
    assert len(rows) == 30
    assert "... and 463 more; --all shows them, --json has them too" in cut.stdout
    everything = muster(world, "--partitions", "t=500", "--all")
    assert len([line for line in everything.stdout.splitlines() if line.startswith("t ")]) == 493
    assert len(printed(world, "--partitions", "t=500")["moves"]) == 493


def test_unreadable_topics_are_left_alone_and_named(world: SimulatedCluster) -> None:
    world.store.nodes["u"] = Node(b"{not json", 9)
    result = muster(world, "--without", "b")
    assert (
        "left alone: topic u: ZooKeeper node /consumers/c/assignments/u is not an assignment" in result.stdout
    )
    assert result.exit_code == 0
    assert set(printed(world, "--without", "b")["left_alone"]) == {"u"}
    asked = muster(world, "--partitions", "u=9")
    assert asked.exit_code == 2
    assert "topic 'u' cannot be read" in asked.stderr


def test_pins_that_cannot_be_obeyed_and_what_is_unknown(world: SimulatedCluster) -> None:
    pin = Pin(topic="t", partition=0, consumer="gone", by="ann", why="r", at=1.0)
    world.decided = Overrides({("t", 0): pin}, errors=("a key is unreadable",))
    result = muster(world)
    assert "impossible pin: topic 't', partition 0" in result.stdout
    assert "warning: a key is unreadable" in result.stdout
    assert printed(world)["impossible_pins"]


def test_a_topic_under_way_is_named(world: SimulatedCluster) -> None:
    world.join("d")
    for consumer in world.consumers.values():
        consumer.stuck = True
    from tests.support.runs import coordinator  # noqa: PLC0415

    coordinator(world, Topics(t=7, u=5)).advance(0)
    assert "under way: topic t is Closing: what is under way is finished first" in muster(world).stdout


def test_the_shadow_is_shown(world: SimulatedCluster, clusters: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "clusters.yaml", {**clusters, "shadow_assignor": "range"})
    result = muster(world, "--without", "b")
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("shadow: ")]
    assert line.startswith("shadow: range: ")
    assert "placed differently" in line
    assert printed(world)["shadow"]["assignor"] == "range"
    write(tmp_path / "clusters.yaml", {**clusters, "shadow_assignor": {"name": BAD}})
    assert "shadow: " + BAD + ": no plan to compare with" in muster(world).stdout


def test_plan_without_live_consumers_is_held_not_wrong(world: SimulatedCluster) -> None:
    for consumer in world.consumers.values():
        consumer.alive = False
    result = muster(world)
    assert result.exit_code == 0
    assert "held: no consumer is live" in result.stdout
    assert printed(world)["held"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--without", "x"], "consumer 'x': there is no such live consumer; live are: a, b, c"),
        (["--with", "a"], "consumer 'a' is live already"),
        (["--with", "d:speed=3"], "unknown attribute 'speed'"),
        (["--with", "d:weight=none"], "weight 'none' is not a number above 0"),
        (["--with", "d:weight=0"], "weight '0' is not a number above 0"),
        (["--with", "d:priority=1.5"], "priority '1.5' is not a whole number"),
        (["--with", "d:topics=a/b"], "topic name 'a/b'"),
        (["--with", "../d"], "consumer id '../d'"),
        (["--without", "a", "--with", "a:weight=2"], "cannot both be there and be gone"),
        (["--partitions", "x=3"], "there is no topic 'x'; there are: t, u"),
        (["--partitions", "t=many"], "'many' is not a whole number"),
        (["--partitions", "t=0"], "0 is not a number of partitions"),
        (["--partitions", "t"], "'t' is not topic=N"),
        (["--assignor-option", "limit"], "'limit' is not key=value"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_a_wrong_question_is_refused(world: SimulatedCluster, args: list[str], message: str) -> None:
    result = muster(world, *args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("assignor", "message"),
    [
        ("nope", "assignor 'nope' is unknown; there are"),
        ("no.such.Thing", "module 'no.such' cannot be imported"),
        (BAD, "assignor 'bad' returned no valid assignment: topic 't', partition 0, 1"),
    ],
)
def test_an_assignor_that_has_no_plan_ends_with_4(
    world: SimulatedCluster, assignor: str, message: str
) -> None:
    result = muster(world, "--assignor", assignor)
    assert result.exit_code == 4
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_out_of_reach_ends_with_3(world: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    world.store.unreachable = True
    away = muster(world)
    assert (away.exit_code, away.stdout) == (3, "")
    assert "ZooKeeper is out of reach" in away.stderr
    world.store.unreachable = False
    world.doubt = "Consul says there are none"
    doubtful = muster(world)
    assert doubtful.exit_code == 3
    assert "not to be trusted now: Consul says there are none" in doubtful.stderr

    def refuse() -> None:
        raise ConsulError("Consul at h:1 does not answer")

    monkeypatch.setattr(world, "members", refuse)
    assert muster(world).exit_code == 3
