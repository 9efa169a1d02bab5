"""The commands of the command line on real ZooKeeper and Consul: the same ones as the DAGs', with who and why."""

from __future__ import annotations

import json
from subprocess import CompletedProcess
from typing import Any

from muster.core.history import CommandEntry
from tests.support.obedient_consumers import coordinator, owners
from tests.support.runs import Topics
from tests.support.site import Site, site

__all__ = ["site"]


def test_isolate_and_restore(site: Site) -> None:
    done = site.run("b", "--reason", "it is slow", "--by", "ann", "--json", command="isolate")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["who"] == "ann"
    entry = site.discovery.overrides.isolated()["b"]
    assert (entry.by, entry.why) == ("ann", "it is slow")
    assert entry.at > 0
    again = site.ask("b", "--reason", "once more", command="isolate")
    assert again.returncode == 2
    assert "is isolated already by ann: it is slow" in again.stderr
    assert {move["why"] for move in site.json()["moves"]} == {"consumer b was isolated"}
    assert site.ask("b", "--reason", "it is well", command="restore").returncode == 0
    assert site.json()["moves"] == []


def test_pin_is_planned_carried_out_and_reported_when_impossible(site: Site) -> None:
    owner = owners(site.store)["t"][0]
    to = min({"a", "b", "c"} - {owner})
    done = site.ask("t", "0", to, "--reason", "its cache is there", command="pin")
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
    assert site.ask("t", "0", "--reason", "no longer", command="unpin").returncode == 0
    assert site.json("--without", to)["impossible_pins"] == []


def test_an_exclusion_is_planned(site: Site) -> None:
    assert site.ask("a", "u", "--reason", "not its data", command="exclude").returncode == 0
    moves = site.json()["moves"]
    assert moves
    assert {move["why"] for move in moves if move["from"] == "a"} == {"consumer a is excluded from topic u"}
    assert site.ask("a", "u", "--reason", "it may", command="include").returncode == 0
    assert site.json()["moves"] == []


def test_a_drained_consumer_hands_everything_over_and_stays_registered(site: Site) -> None:
    before = owners(site.store)
    done = site.ask("b", "--reason", "new kernel", "--by", "ann", command="drain")
    assert done.returncode == 0, done.stderr
    assert {move["why"] for move in site.json()["moves"] if move["from"] == "b"} == {"consumer b is drained"}
    report = coordinator(site.write(), site.store, site.discovery).advance(20)
    assert report.stable
    assert {move.reason for change in report.changes for move in change.moves} == {
        "b drained by ann: new kernel"
    }
    after = owners(site.store)
    for topic, found in before.items():
        assert "b" not in after[topic].values()
        assert {p: c for p, c in found.items() if c != "b"}.items() <= after[topic].items()
    membership = site.discovery.catalog.members().membership
    assert membership is not None
    assert "b" in membership.live
    status = site.ask(command="status").stdout
    assert "drained: b by ann: new kernel" in status
    assert site.ask("b", "--reason", "it is back", command="undrain").returncode == 0
    assert coordinator(site.write(), site.store, site.discovery).advance(20).stable
    assert "b" in owners(site.store)["t"].values()


IMPOSSIBLE = [
    ("isolate", ["x", "--reason", "r"], "has no consumer 'x'"),
    ("isolate", ["a", "--reason", " "], "no reason was given"),
    ("restore", ["a", "--reason", "r"], "is not isolated"),
    ("pin", ["t", "9-3", "a", "--reason", "r"], "goes backwards"),
    ("pin", ["t", "70", "a", "--reason", "r"], "has no partition(s) 70"),
    ("pin", ["x", "0", "a", "--reason", "r"], "has no topic 'x'"),
]


def test_impossible_levers_are_refused(site: Site) -> None:
    before = site.trace()
    for command, args, message in IMPOSSIBLE:
        done = site.ask(*args, command=command)
        assert done.returncode == 2, args
        assert message in done.stderr
    assert site.trace() == before


def recorded(site: Site) -> list[tuple[str, str, str]]:
    """What the history says of commands, oldest first."""
    found = [record.entry for record in reversed(site.store.history().records)]
    return [(e.what, e.who, e.via) for e in found if isinstance(e, CommandEntry)]


def asked(site: Site, command: str, *args: str) -> CompletedProcess[str]:
    return site.ask(*args, command=command)


def planned(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(asked(site, "plan", "--json").stdout)
    return found


def give(site: Site, command: str, *args: str) -> dict[str, Any]:
    done = asked(site, command, *args, "--reason", "release", "--by", "ann", "--json")
    assert done.returncode == 0, done.stderr
    values: dict[str, Any] = json.loads(done.stdout)
    assert (values["cluster"], values["who"], values["reason"]) == (site.name, "ann", "release")
    return values


def test_pause_resume_rebalance_and_assignor(site: Site) -> None:
    give(site, "pause")
    again = asked(site, "pause", "--reason", "r")
    assert again.returncode == 2
    assert "is paused by ann since " in again.stderr
    refused = asked(site, "rebalance", "--reason", "r")
    assert refused.returncode == 2
    assert "nothing can be rebalanced now; resume it first" in refused.stderr
    assert "paused by ann since " in asked(site, "status", "--check").stdout
    assert planned(site)["paused"].startswith("paused by ann since ")
    cluster = site.write()
    held = coordinator(cluster, site.store, site.discovery).advance(5).held
    assert held.startswith("paused by ann since ")
    give(site, "resume")
    assert asked(site, "resume", "--reason", "r").returncode == 2

    give(site, "rebalance")
    report = coordinator(cluster, site.store, site.discovery).advance(20)
    assert report.asked == "rebalance asked for by ann: release"
    assert site.discovery.overrides.read().rebalance is None

    assert give(site, "assignor", "load-aware", "--option", "budget=3")["options"] == {"budget": 3}
    wrong = asked(site, "assignor", "load-aware", "--option", "budge=3", "--reason", "r")
    assert wrong.returncode == 2
    assert "wrong options" in wrong.stderr
    found = planned(site)
    assert found["assignor"] == "load-aware"
    assert found["assignor_chosen"].startswith("assignor load-aware (budget=3) by ann since ")
    assert "it overrides the settings" in asked(site, "status").stdout
    give(site, "assignor", "--clear")
    assert planned(site)["assignor"] == "sticky"
    assert recorded(site) == [
        (what, "ann", "command line")
        for what in ("pause", "resume", "rebalance", "assignor", "clear-assignor")
    ]


def test_a_topic_is_unsubscribed_closed_and_subscribed_again(site: Site) -> None:
    cluster = site.write()
    before = owners(site.store)["t"]
    assert give(site, "unsubscribe", "u")["closed"] == ["u"]
    assert planned(site)["leaving"] == {"u": "unsubscribed by ann: release"}
    report = coordinator(cluster, site.store, site.discovery).advance(20)
    assert {change.topic for change in report.changes} == {"u"}
    assert owners(site.store) == {"t": before}
    again = asked(site, "unsubscribe", "u", "--reason", "r")
    assert again.returncode == 2
    assert "is not subscribed to topic u; its topics are: t" in again.stderr
    give(site, "subscribe", "u")
    kafka = Topics(t=7, u=5, **{"x-1": 2})
    one = coordinator(cluster, site.store, site.discovery)
    one.lister = kafka
    assert one.fetch_partitions().new_topics == ["u"]
    give(site, "subscribe", "x-.*", "--pattern")
    assert one.fetch_partitions().new_topics == ["x-1"]
    assert one.advance(20).stable
    kafka.topics["x-1"] = 4
    assert one.fetch_partitions().added == {"x-1": [2, 3]}
    assert one.advance(20).stable
    assert owners(site.store)["x-1"].keys() == set(range(4))
    assert give(site, "unsubscribe", "x-.*", "--pattern")["closed"] == ["x-1"]
    assert one.fetch_partitions().new_topics == []
    assert one.advance(20).stable
    assert owners(site.store).keys() == {"t", "u"}
    told = [what for what, _, _ in recorded(site)]
    assert told == ["unsubscribe", "subscribe", "subscribe", "unsubscribe"]


NONSENSE = [
    ("subscribe", ["t"], "is subscribed to topic t already: it is in the settings"),
    ("subscribe", ["a b"], "for several topics at once give a pattern"),
    ("subscribe", ["(", "--pattern"], "is not a regular expression"),
    ("assignor", ["--clear"], "nothing to clear"),
]


def test_senseless_arguments_are_refused(site: Site) -> None:
    before = site.trace()
    for command, args, message in NONSENSE:
        done = asked(site, command, *args, "--reason", "r")
        assert done.returncode == 2
        assert message in done.stderr
    assert site.trace() == before


def test_a_command_works_while_zookeeper_is_away_and_says_what_is_missing(site: Site) -> None:
    site.variables["AIRFLOW_CONN_MUSTER_ZOOKEEPER"] = json.dumps(
        {"conn_type": "generic", "host": "127.0.0.1:9", "extra": {"operation_timeout": 0.5}}
    )
    done = asked(site, "isolate", "a", "--reason", "it burns")
    assert done.returncode == 0, done.stderr
    assert "it is done, but not in the cluster's history: ZooKeeper at 127.0.0.1:9" in done.stdout
    assert site.discovery.overrides.isolated().keys() == {"a"}


def test_record_that_an_owner_fails_with_is_answered_by_its_offset(site: Site) -> None:
    site.write(stuck_after="1h")
    assert coordinator(site.write(), site.store, site.discovery).advance(20).stable

    def answer(command: str, partition: int, offset: int) -> tuple[int, str]:
        done = site.ask("t", str(partition), str(offset), "--reason", "known", "--by", "ann", command=command)
        return done.returncode, done.stderr or done.stdout

    assert answer("skip-record", 3, 17)[1].endswith("nothing to answer\n")
    site.failing["t", 3] = {"offset": 17, "attempts": 8, "error": "ValueError: no date", "parked": True}
    status = site.ask("--check", command="status")
    assert status.returncode == 5
    assert "does not get past offset 17 of partition 3" in status.stdout
    code, said = answer("skip-record", 3, 18)
    assert (code, "fails with offset 17, not with 18" in said) == (2, True)
    assert answer("skip-record", 9, 17)[0] == 2
    assert answer("skip-record", 3, -1)[0] == 2
    assert site.discovery.answers.all() == {}
    previewed = site.ask("t", "3", "17", "--preview", command="skip-record").stdout
    assert "what it holds cannot be shown: " in previewed, "there is no Kafka here"
    code, said = answer("skip-record", 3, 17)
    assert (code, "ValueError: no date" in said) == (0, True), said
    (given,) = site.discovery.answers.all().items()
    assert given[0] == ("t", 3)
    assert (given[1].offset, given[1].answer, given[1].by, given[1].why) == (17, "skip", "ann", "known")
    code, said = answer("dead-letter-record", 3, 17)
    assert (code, "goes to topic __muster.dead-letters." in said) == (0, True), said
    newer = site.discovery.answers.all()["t", 3]
    assert newer.answer == "dead_letter"
    site.discovery.answers.end(("t", 3), given[1])
    assert site.discovery.answers.all() == {("t", 3): newer}, "an older answer takes no newer one away"
    site.discovery.answers.end(("t", 3), newer)
    assert site.discovery.answers.all() == {}
    site.failing["t", 3]["answer"] = "dead_letter"
    assert "under way" in answer("retry-record", 3, 17)[1]
    entries = [found.entry for found in site.store.history(limit=10).records]
    levers = [one for one in entries if isinstance(one, CommandEntry) and one.what.endswith("-record")]
    assert [one.what for one in levers] == ["dead-letter-record", "skip-record"]
    assert levers[0].details["offset"] == 17


def test_loss_that_parks_a_partition_is_accepted_by_its_first_offset_and_recorded(site: Site) -> None:
    assert coordinator(site.write(), site.store, site.discovery).advance(20).stable

    def answer(command: str) -> tuple[int, str]:
        done = site.ask("t", "3", "30", "--reason", "known", "--by", "ann", command=command)
        return done.returncode, done.stderr or done.stdout

    why = "40 records from offset 30 on were deleted by retention"
    site.failing["t", 3] = {"offset": 30, "attempts": 0, "error": why, "parked": True, "lost": 40}
    status = site.ask("--check", command="status")
    assert status.returncode == 5
    assert f"does not get past offset 30 of partition 3 (the partition is parked, {why}" in status.stdout
    code, said = answer("dead-letter-record")
    assert (code, "offset 30 of partition 3 of topic 't' is lost, so no letter" in said) == (2, True)
    assert site.discovery.answers.all() == {}
    code, said = answer("skip-record")
    assert (code, "partition 3 of topic 't' goes on behind what is lost, at offset 30" in said) == (
        0,
        True,
    ), said
    assert site.discovery.answers.all()["t", 3].answer == "skip"
    (newest,) = [record.entry for record in site.store.history(limit=1).records]
    assert isinstance(newest, CommandEntry)
    assert (newest.what, newest.who, newest.details["lost"]) == ("skip-record", "ann", 40)
    assert newest.details["error"] == why
    site.failing["t", 3] = {"offset": 30, "error": "the timer of key (1,) failed", "timer": True}
    code, said = answer("dead-letter-record")
    assert (code, "there is no letter to write; skip-record drops the timer" in said) == (2, True)
    code, said = answer("skip-record")
    assert (code, "the timer that fails at offset 30 of partition 3 of topic 't' is dropped" in said) == (
        0,
        True,
    )
