"""The levers of the command line on real ZooKeeper and Consul: the same ones as the DAGs', with who and why."""

from __future__ import annotations

import json

import pytest

from tests.integration.obedient import coordinator, owners
from tests.integration.test_muster_plan import Site, site

__all__ = ["site"]


def test_isolate_and_restore(site: Site) -> None:
    done = site.run("b", "--reason", "it is slow", "--by", "ann", "--json", command="isolate")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["who"] == "ann"
    entry = site.discovery.isolated()["b"]
    assert (entry.by, entry.why) == ("ann", "it is slow")
    assert entry.at > 0
    again = site.run("b", "--reason", "once more", command="isolate")
    assert again.returncode == 2
    assert "is isolated already by ann: it is slow" in again.stderr
    assert {move["why"] for move in site.json()["moves"]} == {"consumer b was isolated"}
    assert site.run("b", "--reason", "it is well", command="restore").returncode == 0
    assert site.json()["moves"] == []


def test_a_pin_is_planned_carried_out_and_told_when_it_is_impossible(site: Site) -> None:
    owner = owners(site.store)["t"][0]
    to = min({"a", "b", "c"} - {owner})
    done = site.run("t", "0", to, "--reason", "its cache is there", command="pin")
    assert done.returncode == 0, done.stderr
    found = site.json()
    (pinned,) = [move for move in found["moves"] if (move["topic"], move["partition"]) == ("t", 0)]
    assert (pinned["to"], pinned["cause"], pinned["why"]) == (to, "pin", f"pinned to {to}")
    assert coordinator(site.write(), site.store, site.discovery).advance(20).stable
    assert owners(site.store)["t"][0] == to
    assert site.json()["moves"] == []
    impossible = site.json("--without", to)
    assert len(impossible["impossible_pins"]) == 1
    assert f"the pin to consumer '{to}' cannot be obeyed" in impossible["impossible_pins"][0]
    assert site.run("t", "0", "--reason", "no longer", command="unpin").returncode == 0
    assert site.json("--without", to)["impossible_pins"] == []


def test_an_exclusion_is_planned(site: Site) -> None:
    assert site.run("a", "u", "--reason", "not its data", command="exclude").returncode == 0
    moves = site.json()["moves"]
    assert moves
    assert {move["why"] for move in moves if move["from"] == "a"} == {"consumer a is excluded from topic u"}
    assert site.run("a", "u", "--reason", "it may", command="include").returncode == 0
    assert site.json()["moves"] == []


@pytest.mark.parametrize(
    ("command", "args", "message"),
    [
        ("isolate", ["x", "--reason", "r"], "has no consumer 'x'"),
        ("isolate", ["a", "--reason", " "], "no reason was given"),
        ("isolate", ["a"], "Missing option '--reason'"),
        ("restore", ["a", "--reason", "r"], "is not isolated"),
        ("pin", ["t", "9-3", "a", "--reason", "r"], "goes backwards"),
        ("pin", ["t", "70", "a", "--reason", "r"], "has no partition(s) 70"),
        ("pin", ["x", "0", "a", "--reason", "r"], "has no topic 'x'"),
    ],
)
def test_what_cannot_be_done_is_refused(site: Site, command: str, args: list[str], message: str) -> None:
    before = site.trace()
    done = site.run(*args, command=command)
    assert done.returncode == 2
    assert message in done.stderr
    assert site.trace() == before
