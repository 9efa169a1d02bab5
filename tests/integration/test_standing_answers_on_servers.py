"""The command for standing answers on a real Consul: what it writes, shows before, refuses, counts, takes back."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from muster.commands.audit import carry_out, foreseen
from muster.commands.command import Actor, CommandError
from muster.commands.table import COMMANDS, why_not
from muster.commands.target import Target
from muster.core.history import CommandEntry
from muster.core.model import Consumer, ConsumerStatus, PastFailure, TopicStatus
from muster.core.overrides import StandingAnswer
from muster.core.parking import Answer
from muster.edges.consul import ConsulCluster
from muster.edges.status import StatusFailure
from muster.edges.zookeeper import TopicStore
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import ConsulSettings, ZooKeeperSettings

ANN = Actor("ann", "has the cache", 1700000000.0)
GIVEN = {"topic": "flights", "error": "ValueError", "answer": "skip", "text": "no date", "limit": ""}
ONE = StandingAnswer(
    by="ann",
    at=1700000000.0,
    why="has the cache",
    topic="flights",
    answer=Answer.SKIP,
    error="ValueError",
    text="no date",
)


@pytest.fixture
def cluster() -> ClusterSettings:
    name = f"c{uuid4().hex[:12]}"
    values = {"name": name, "consul_service": name, "group_id": "g", "topics": ["flights", "planned"]}
    return ClusterSettings.model_validate(values | {"consumers": {"handler": "a.b", "count": 2}})


@pytest.fixture
def store(zookeeper: ZooKeeperSettings, cluster: ClusterSettings) -> Iterator[TopicStore]:
    with TopicStore(zookeeper, cluster.name) as opened:
        opened.create_topic("flights", "k:9092", "g")
        yield opened


@pytest.fixture
def target(consul: ConsulSettings, cluster: ClusterSettings, zookeeper: ZooKeeperSettings) -> Target:
    discovery = ConsulCluster(consul, cluster.name, cluster.consul_service)
    return Target(cluster, discovery, lambda: TopicStore(zookeeper, cluster.name, read_only=True))


def give(target: Target, **fields: str) -> StandingAnswer:
    carry_out(COMMANDS["standing-answer"], target, ANN, GIVEN | fields, "test")
    (found,) = target.consul.overrides.read().standing
    assert target.consul.answers.standing() == (found,)
    return found


def test_answer_stands_until_it_is_taken_back(target: Target, store: TopicStore) -> None:
    command, undo = COMMANDS["standing-answer"], COMMANDS["end-standing-answer"]
    on = {"topic": "flights", "error": "ValueError", "text": "no date"}
    found = give(target)
    assert replace(found, modified=0) == ONE
    decided = target.consul.overrides.read()
    assert [each.on for each in command.standing(decided)] == [on]
    assert why_not(undo, decided, on) == ""
    with pytest.raises(
        CommandError, match=r"skip what fails with ValueError with 'no date', by ann .* take it back"
    ):
        carry_out(command, target, ANN, GIVEN | {"answer": "retry"}, "test")
    with pytest.raises(CommandError, match="there are: ValueError with 'no date' in topic 'flights'"):
        carry_out(undo, target, ANN, on | {"text": ""}, "test")
    outcome = carry_out(undo, target, ANN, on, "test")
    assert outcome.lines[0].startswith(
        "taken back: topic flights: skip what fails with ValueError with 'no date'"
    )
    assert target.consul.overrides.read().standing == ()
    assert why_not(undo, target.consul.overrides.read(), on) == "not answered"
    entries = [record.entry for record in store.history().records]
    history = [entry.what for entry in entries if isinstance(entry, CommandEntry)]
    assert sorted(history) == ["end-standing-answer", "standing-answer"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"answer": "ignore"}, "answer 'ignore': write one of skip, dead-letter, retry"),
        ({"error": "ValueError: no date"}, "without the message"),
        ({"limit": "many"}, "limit 'many': write 100 for so many records"),
        ({"limit": "0/h"}, "limit '0/h'"),
        ({"topic": "flight"}, "has no topic 'flight'; its topics are: flights, planned"),
        ({"text": "a\nb"}, "characters that cannot be shown"),
    ],
    ids=str,
)
def test_answer_that_does_not_fit_is_refused(
    target: Target, store: TopicStore, fields: dict[str, str], said: str
) -> None:
    for act in (carry_out, foreseen):
        with pytest.raises(CommandError, match=said):
            act(
                COMMANDS["standing-answer"],
                target,
                ANN,
                GIVEN | fields,
                *(["test"] if act is carry_out else []),
            )
    assert target.consul.overrides.read().standing == ()


def test_dead_letters_need_fencing(target: Target, cluster: ClusterSettings, store: TopicStore) -> None:
    unfenced = replace(target, cluster=cluster.model_copy(update={"fencing": False}))
    with pytest.raises(CommandError, match="'fencing: false'"):
        give(unfenced, answer="dead-letter")
    assert give(unfenced, answer="skip").answer is Answer.SKIP


@pytest.mark.parametrize(("limit", "given"), [("5", 5), ("5/h", 5), ("", 40)])
def test_limit_holds_for_all_consumers_together(
    target: Target, consul: ConsulSettings, store: TopicStore, limit: str, given: int
) -> None:
    one = give(target, limit=limit)

    def take(_number: int) -> bool:
        box = ConsulCluster(consul, target.cluster.name, target.cluster.consul_service).answers
        while True:
            try:
                return box.take(one, 1000.0)
            except Exception as error:
                assert "was counted by others" in str(error)

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(take, range(40))) == given
    box = target.consul.answers
    assert box.take(one, 1000.0 + 3601) is (limit != "5"), "another hour"
    box.end_standing("flights", "ValueError", "no date")
    assert not box.take(one, 9000.0), "it was taken back"


def test_preview_shows_what_failed_within_the_hour(target: Target, store: TopicStore) -> None:
    failures = (
        PastFailure(3, 70, "ValueError: no date here", 1.0),
        PastFailure(0, 5, "ValueError: no date", 1.0),
        PastFailure(1, 6, "KeyError: 'day'", 1.0),
    )
    asked: dict[str, Any] = {}

    def poll(_consumers: object, _timeout: float, **about: Any) -> dict[str, Any]:
        asked.update(about)
        status = ConsumerStatus("a", "i", {"flights": TopicStatus(failures=failures)})
        return {"a": status, "b": StatusFailure("b", "it does not answer")}

    live = {name: Consumer(name) for name in ("a", "b")}
    seen = replace(target, poll=poll)
    members = target.consul.catalog.members()
    membership = members.membership
    assert membership is not None
    known = replace(members, membership=replace(membership, live=live))
    object.__setattr__(seen.consul.catalog, "members", lambda *_: known)
    found = foreseen(COMMANDS["standing-answer"], seen, ANN, GIVEN)
    assert asked == {"topics": {"a": {"flights"}, "b": {"flights"}}, "failures": True}
    assert found.lines() == (
        "topic flights, partition 0, offset 5: ValueError: no date",
        "topic flights, partition 3, offset 70: ValueError: no date here",
        "2 of the 3 record(s) of topic 'flights' that failed within the last hour match",
        "others failed with: KeyError: 'day'",
        "what failed at consumer b is unknown: it does not answer",
        str(ONE),
    )
    assert target.consul.overrides.read().standing == ()
