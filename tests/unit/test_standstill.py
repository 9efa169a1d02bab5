"""Nothing stands still unnamed: what a partition that does not move is put down to, and who is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from muster.core.diagnosis import Phase, Situation, Waiting, held_up
from muster.core.epochs import Noted
from muster.core.model import (
    Consumer,
    ConsumerDetails,
    ConsumerStatus,
    FailingRecord,
    Membership,
    Restore,
    ShardState,
    State,
    TopicAssignment,
    TopicSnapshot,
    TopicState,
    TopicStatus,
)
from muster.core.overrides import ConsumptionPause, Drain, IsolationEntry, Overrides, Pause
from muster.core.patience import Replies
from muster.core.progress import Look, Mark
from muster.core.stuck import blind, named, stuck

NOW = 1_000.0
SAID: dict[str, Any] = {"by": "ann", "at": 0.0, "why": "a release"}
NODE = TopicAssignment("k:9092", "g", {0: "a", 1: "b"}, epoch=7)
ALL = frozenset({0, 1})


def topic(node: TopicAssignment | None = NODE, state: TopicState | None = None) -> TopicSnapshot:
    return TopicSnapshot("t", ALL, node, 3, state or TopicState(State.STABLE, epoch=7, since=900.0), 4)


def status(consumer: str, *running: int, epoch: int = 7, **more: Any) -> ConsumerStatus:
    report = TopicStatus(frozenset(running), epoch=epoch, **more)
    return ConsumerStatus(consumer, f"{consumer}1", {"t": report}, epochs=True)


def situation(snapshot: TopicSnapshot | None = None, **more: Any) -> Situation:
    """Partition 0, of a, has not moved for 400 s. Everything else is well, but for what is given."""
    statuses = {"a": status("a", 0), "b": status("b", 1)} | more.pop("statuses", {})
    failures = more.pop("failures", {})
    replies = Replies({c: found for c, found in statuses.items() if c not in failures}, failures)
    known: dict[str, Any] = {
        "membership": Membership({c: Consumer(c) for c in "ab"}),
        "look": Look(NOW, {("t", 0): Mark(5, 600)}),
        "replies": replies,
    }
    there = {} if snapshot is NOTHING else {"t": snapshot or topic()}
    return Situation(there, now=NOW, stuck_after=300.0, **{**known, **more})


NOTHING = TopicSnapshot("none", frozenset())
ERRORS = ConsumerDetails(
    errors=("query: slow", "uncommitted: topic 't', partition 0: INVALID_PRODUCER_ID_MAPPING")
)
GONE = Membership({"b": Consumer("b")})
BATCH = {0: 350.0}
STATES = {
    "closing": TopicState(State.CLOSING, {"b": frozenset({0})}, {"a": frozenset({0})}, 7, 900.0),
    "starting": TopicState(State.STARTING, {"a": frozenset({0})}, {}, 7, 900.0),
}
TAKEN = replace(NODE, owners={1: "b"})


def restoring(still: float) -> ConsumerStatus:
    """Consumer a restores the state of partition 0, which last came further so many seconds ago."""
    return status("a", starting=frozenset({0}), shards={0: ShardState(restore=Restore(50, 200, 5.0, still))})


TO_SKIP = FailingRecord(5, "x", 8, parked=True, answer="skip")
DIFFERS = {0: ShardState(differs="its changelog (end 9) is at offset 5, commit 2; the group has none")}

ASKED: dict[str, tuple[Situation, str, str]] = {
    "it runs, and nothing is wrong": (situation(), "a", "it reports that it runs them"),
    "which error": (
        situation(statuses={"a": replace(status("a", 0), details=ERRORS)}),
        "a",
        "partition 0: INVALID_PRODUCER_ID_MAPPING | query: slow",
    ),
    "who must answer": (situation(failures={"a": "connection refused"}), "a", "connection refused"),
    "a decided skip that is never done": (
        situation(
            statuses={
                "a": replace(status("a", 0, failing={0: replace(TO_SKIP, decided_for=301.0)}), details=ERRORS)
            }
        ),
        "a",
        "skip of offset 5 was decided 301 s ago, and is not done; it reports: uncommitted: topic 't'",
    ),
    "not listed": (
        situation(statuses={"a": ConsumerStatus("a", "a1", {}, epochs=True)}),
        "a",
        "has not read the topic's assignment yet",
    ),
    "an older epoch": (situation(statuses={"a": status("a", 0, epoch=6)}), "a", "has not read"),
    "not running": (situation(statuses={"a": status("a")}), "a", "does not report them running"),
    "an older process": (
        situation(
            replies=Replies({"a": ConsumerStatus("a", "a2", {}, epochs=True)}, older={"a": (status("a", 0),)})
        ),
        "a",
        "an older process of it still answers (incarnation a1)",
    ),
    "gone": (situation(membership=GONE, failures={"a": "refused"}), "a", "it is not live in Consul"),
    "isolated": (
        situation(
            membership=replace(GONE, isolated=frozenset({"a"})),
            overrides=Overrides(isolated={"a": IsolationEntry(**SAID, consumer="a")}),
        ),
        "a",
        "it is isolated by ann",
    ),
    "its check fails": (
        situation(membership=replace(GONE, failing={"a": Consumer("a")})),
        "a",
        "its check in Consul does not pass",
    ),
    "closing": (
        situation(topic(TAKEN, STATES["closing"]), failures={"a": "no answer"}),
        "a",
        "no answer",
    ),
    "closed and not given": (
        situation(topic(TAKEN, STATES["closing"]), statuses={"a": status("a")}),
        "",
        "a has closed it, and it is not given",
    ),
    "starting": (
        situation(topic(NODE, STATES["starting"]), statuses={"a": status("a")}),
        "a",
        "does not report them running",
    ),
    "initial": (
        situation(
            replace(topic(TAKEN), state=None), statuses={"a": ConsumerStatus("a", "a1", {}, epochs=True)}
        ),
        "a",
        "has not read the topic's assignment yet",
    ),
    "ahead": (
        situation(failures={"b": "no answer"}, overrides=Overrides(epochs={"t": Noted(8)})),
        "b",
        "no answer",
    ),
    "ahead, and all have answered": (
        situation(overrides=Overrides(epochs={"t": Noted(8)})),
        "",
        "all consumers have said what they hold",
    ),
    "no owner": (situation(topic(TAKEN)), "", "it has no owner"),
    "nobody subscribes": (
        situation(
            topic(TAKEN),
            membership=Membership({c: Consumer(c, topics=frozenset({"u"})) for c in "ab"}),
        ),
        "",
        "no live consumer subscribes to the topic",
    ),
    "no consumer is live": (situation(membership=Membership({})), "", "no consumer is live"),
    "Consul is out of reach": (situation(doubt="Consul does not answer"), "", "Consul does not answer"),
    "no assignment": (situation(topic(None)), "", "ZooKeeper does not say yet who reads it"),
    "an unknown lag": (
        situation(look=Look(NOW, {("t", 0): Mark(5, 600, known=False)}, ("partition 0 has no leader",))),
        "",
        "its lag is unknown: partition 0 has no leader",
    ),
    "unreadable nodes": (situation(NOTHING), "", "its nodes in ZooKeeper cannot be read"),
    "a batch without a limit": (
        situation(statuses={"a": status("a", 0, batch_seconds=BATCH)}),
        "a",
        "has worked on this batch for 350 s, and no max_batch_time is set",
    ),
    "a batch of other partitions": (
        situation(statuses={"a": replace(status("a", 0), batch_seconds=350.0)}),
        "a",
        "has worked on a batch of other partitions for 350 s",
    ),
    "a failing record": (
        situation(statuses={"a": status("a", 0, failing={0: FailingRecord(5, "no sink", 3, parked=True)})}),
        "a",
        "failed 3 times alone: no sink",
    ),
    "a restore that stands still": (
        situation(topic(NODE, STATES["starting"]), statuses={"a": restoring(301.0)}),
        "a",
        "25 % of 200 offsets of its changelog, 5 a second, 30 s left, and no progress for 301 s",
    ),
    "state that does not fit": (
        situation(topic(NODE, STATES["starting"]), statuses={"a": status("a", shards=DIFFERS)}),
        "",
        "its state and its committed offset do not fit: its changelog (end 9) is at offset 5",
    ),
}


@pytest.mark.parametrize("case", ASKED)
def test_standing_partition_is_named_and_asked_about(case: str) -> None:
    given, consumer, why = ASKED[case]
    waiting = held_up(given)
    [found] = [each for each in waiting["t"] if each.since is not None]
    assert (found.consumer, found.partitions, found.since, found.asked) == (consumer, (0,), 600.0, True)
    assert why in found.why
    [message] = stuck(given, waiting).values()
    assert message.startswith("topic t ")
    assert why in message
    assert ". What to do: " in message
    assert not message.endswith(": .")
    assert named(waiting) == []


DECIDED: dict[str, tuple[Situation, str]] = {
    "the cluster is paused": (
        situation(overrides=Overrides(paused=Pause(**SAID)), failures={"a": "no answer"}),
        "paused by ann",
    ),
    "consumption is paused": (
        situation(overrides=Overrides(consumption=(ConsumptionPause(**SAID, topic="t", partition=0),))),
        "consumption of partition(s) 0 of topic t paused by ann",
    ),
    "all that could take it are drained": (
        situation(topic(TAKEN), overrides=Overrides(drained={c: Drain(**SAID, consumer=c) for c in "ab"})),
        "a drained by ann",
    ),
    "its owner was drained and is gone": (
        situation(membership=GONE, overrides=Overrides(drained={"a": Drain(**SAID, consumer="a")})),
        "a drained by ann",
    ),
    "a batch within max_batch_time": (
        situation(statuses={"a": replace(status("a", 0, batch_seconds=BATCH), max_batch_time=600.0)}),
        "has worked on this batch for 350 s, max_batch_time is 600 s",
    ),
    "a record that is to be skipped": (
        situation(statuses={"a": status("a", 0, failing={0: replace(TO_SKIP, decided_for=300.0)})}),
        "skip of offset 5 was decided 300 s ago, and is not done",
    ),
    "a restore that goes on": (
        situation(topic(NODE, STATES["starting"]), statuses={"a": restoring(300.0)}),
        "25 % of 200 offsets of its changelog, 5 a second, 30 s left",
    ),
}


@pytest.mark.parametrize("case", DECIDED)
def test_decided_standstill_is_named_and_not_asked_about(case: str) -> None:
    given, why = DECIDED[case]
    waiting = held_up(given)
    [found] = [each for each in waiting["t"] if each.since is not None]
    assert (found.partitions, found.asked) == ((0,), False)
    assert why in found.why
    assert stuck(given, waiting) == {}
    [line] = named(waiting)
    assert why in line
    assert line.endswith("not moved since 1970-01-01T00:10:00.000+00:00)") or "not moved since" in line


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(status("a", 0, batch_seconds={0: 20.0}), id="its batch fails and begins again"),
        pytest.param(replace(status("a", 0), batch_seconds=20.0), id="it is in no batch"),
    ],
)
def test_batch_within_its_time_excuses_no_longer_standstill(batch: ConsumerStatus) -> None:
    said = replace(batch, max_batch_time=60.0, details=ERRORS)
    for stood, asked in ((420, False), (421, True)):
        look = Look(NOW, {("t", 0): Mark(5, int(NOW) - stood)})
        given = situation(statuses={"a": said}, look=look)
        [found] = held_up(given)["t"]
        assert found.asked is asked
        assert ("INVALID_PRODUCER_ID_MAPPING" in found.why) is asked


def test_pause_of_another_partition_decides_nothing() -> None:
    other = ConsumptionPause(**SAID, topic="t", partition=1)
    given = situation(overrides=Overrides(consumption=(other,)), failures={"a": "no answer"})
    assert stuck(given, held_up(given)).keys() == {"t"}


def test_moving_partition_is_not_named() -> None:
    well = situation(look=Look(NOW, {("t", 0): Mark(5, 701)}))
    assert held_up(well) == {}
    assert blind(well) == ""


def test_batch_beyond_its_limit_is_named_at_once() -> None:
    late = replace(status("a", 0, batch_seconds=BATCH), max_batch_time=300.0)
    given = situation(statuses={"a": late}, look=Look(NOW))
    [message] = stuck(given, held_up(given)).values()
    assert "batch that takes longer than max_batch_time" in message


@pytest.mark.parametrize("state", ["starting", "stable"])
def test_state_that_does_not_fit_is_asked_at_once(state: str) -> None:
    given = situation(
        topic(NODE, STATES.get(state)), statuses={"a": status("a", 0, shards=DIFFERS)}, look=Look(NOW)
    )
    [message] = stuck(given, held_up(given)).values()
    assert message.startswith("topic t is held up by state that is not there: partition(s) 0: its state and")
    assert "'muster seek --to=changelog --state=again t 0'" in message


def test_restore_that_goes_on_holds_nothing_up_however_long() -> None:
    long_ago = replace(STATES["starting"], since=1.0)
    given = situation(topic(NODE, long_ago), statuses={"a": restoring(1.0)}, look=Look(NOW))
    waiting = held_up(given)
    assert [each.phase for each in waiting["t"]] == [Phase.RESTORE]
    assert stuck(given, waiting) == {}


def test_partitions_with_one_cause_are_one_line() -> None:
    look = Look(NOW, {("t", 0): Mark(5, 600), ("t", 1): Mark(None, 500)})
    given = situation(membership=Membership({}), look=look)
    [found] = held_up(given)["t"]
    assert found == Waiting(
        "t",
        "",
        found.phase,
        (0, 1),
        found.why,
        since=500.0,
        todo="start consumers, or see why their checks fail",
    )


def test_missing_looks_are_named_after_the_limit() -> None:
    assert "not read since 1970-01-01T00:11:39" in blind(situation(look=Look(699.0)))
    assert blind(situation(look=Look(701.0))) == ""
