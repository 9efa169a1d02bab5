"""The whole system under every fault of the design, in any order. `tests/faults/model/watchman.py` says what holds.

Every run plays histories of its own. The summary of the tests names the seed, with which they can be played again:
`MUSTER_SEED=... pytest tests/faults/test_model.py`. Records that kill and `max_batch_time` are played in the long
version, because such histories take longer. A failure shows the history as a story: every event, every write, with
the simulated seconds; and the history itself, to be stored in `tests/faults/model/histories.py`.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.faults.model.consul import HOSTS
from tests.faults.model.tally import CONFLICTS, MOVES, PLAYED, REPLAY, SAW, SEED, SEEKS
from tests.faults.model.world import ASSIGNORS, COORDINATORS, IDS, TOPICS, Model
from tests.support.only_long import HOURS

EXAMPLES, PARTS = (1000, 50) if HOURS else (150, 1)
"""Each part plays `EXAMPLES` histories of its own: 50,000 in the long version, which take two hours of one core."""
STEPS = 22
LEAST = {MOVES: EXAMPLES // 5, CONFLICTS: EXAMPLES // 10, SEEKS: EXAMPLES // 50}
"""So many histories of a part have each of these: half as many as usual, or fewer, so chance cannot miss it."""

pytestmark = pytest.mark.timeout(7200)

one = st.sampled_from(("a", "a", "b", "b", "c", "a-", "b-", "a--"))
ids = st.sampled_from(IDS)
hosts = st.sampled_from((HOSTS[0], *HOSTS))
topics = st.sampled_from(TOPICS)
coordinators = st.sampled_from((*COORDINATORS, COORDINATORS[0]))
points = st.sampled_from(("end", "end", "before", "after", "asked", "read Consul", "read ZooKeeper", "pause"))


class Machine(RuleBasedStateMachine):
    """Each rule is an event of `Model`, or some that often come together."""

    def do(self, *event: str) -> None:
        self.world.do(event)

    @initialize(
        assignor=st.sampled_from(("sticky", "sticky", *ASSIGNORS)),
        delay=st.sampled_from((0.0, 0.0, 8.0)),
        only_u=st.sampled_from(("", "", "a", "c")),
        commits=st.sampled_from(("fenced", "fenced", "guarded")),
        running=st.sampled_from((("a", "b"), ("a", "b"), ("a", "b", "c"), ("a",), ())),
        second_host=st.sampled_from(HOSTS),
        change=st.sampled_from(("joins", "joins", "leaves", "")),
        until=st.sampled_from(("end", "before", "after", "race", "race", "pause")),
        data_loss=st.sampled_from(("goes on", "fails")),
        batches=st.sampled_from(("", "", "30", "60") if HOURS else ("",)),
        keeps=st.sampled_from(("nothing", "nothing", "state")),
    )
    def begin(
        self,
        assignor: str,
        delay: float,
        only_u: str,
        commits: str,
        running: tuple[str, ...],
        second_host: str,
        change: str,
        until: str,
        data_loss: str,
        batches: str,
        keeps: str,
    ) -> None:
        """Some consumers read everything, and then a rebalance begins."""
        self.world, self.commits = Model(assignor, delay, only_u, commits), commits
        if data_loss == "fails":
            self.do("fail_on_data_loss")
        if batches:
            self.do("batches_within", batches)
        if keeps == "state" and commits == "fenced":
            self.do("keep_state")
        for consumer in running:
            self.do("start", consumer, "current", "new", second_host if consumer == "b" else HOSTS[0])
        if running:
            for _ in range(2):
                self.do("everybody")
                self.do("coordinate", "first", "end")
            self.do("everybody")
            self.change(running, change)
            if until == "race":
                self.race("after", "after")
            else:
                self.do("coordinate", "first", until)

    def change(self, running: tuple[str, ...], change: str) -> None:
        """A consumer joins or leaves in order, so that a rebalance is due."""
        others = [consumer for consumer in IDS if consumer not in running]
        if change == "joins" and others:
            self.do("start", others[0])
        elif change:
            self.do("stop", running[0])
        self.do("everybody")
        self.do("everybody")

    # -- coordinators -----------------------------------------------------------------------------------------

    @rule(
        name=coordinators,
        until=points,
        how=st.sampled_from(("", "", "", "lags 1", "lags 3", "lost", "delayed", "old answers")),
    )
    def coordinate(self, name: str, until: str, how: str) -> None:
        self.do("coordinate", name, until, how)

    @rule(until=points, other=points)
    def race(self, until: str, other: str) -> None:
        """One stands before it writes, while the other goes on."""
        self.do("coordinate", "first", "before")
        self.do("coordinate", "second", until)
        self.do("coordinate", "first", other)

    @rule(name=coordinators)
    def die(self, name: str) -> None:
        self.do("die", name)

    @rule(name=coordinators, seconds=st.sampled_from(("0", "3600", "-3600", "20")))
    def clock_of(self, name: str, seconds: str) -> None:
        self.do("clock_of", name, seconds)

    @rule(how=st.sampled_from(("fails", "works")))
    def assignor(self, how: str) -> None:
        self.do("assignor", how)

    @rule(group=st.sampled_from(("g", "h")))
    def group(self, group: str) -> None:
        self.do("group", group)

    # -- consumers --------------------------------------------------------------------------------------------

    @rule(
        consumer=ids,
        server=st.sampled_from(("current", "current", "1", "3")),
        place=st.sampled_from(("new", "same")),
        host=hosts,
    )
    def start(self, consumer: str, server: str, place: str, host: str) -> None:
        self.do("start", consumer, server, place, host)

    @rule(consumer=ids, host=hosts, until=points)
    def join(self, consumer: str, host: str, until: str) -> None:
        """A consumer joins, and the rebalance begins."""
        self.do("start", consumer, "current", "new", host)
        self.do("everybody")
        self.do("everybody")
        self.do("coordinate", "first", until)

    @rule(
        which=one, how=st.sampled_from(("crash", "stop", "stop", "fail_query", "fail_batch", "answer_lost"))
    )
    def end(self, which: str, how: str) -> None:
        self.do(how, which)

    @rule(
        which=one,
        what=st.sampled_from(
            (
                *("hung", "no_consul", "check_fails", "no_answer", "no_zookeeper", "lags", "slow"),
                *("no_kafka", "unheard_commits", "slow_claims", "slow_claims", "commits_fail"),
                *("old_offsets", "slow_restores"),
            )
        ),
    )
    def fault(self, which: str, what: str) -> None:
        self.do("fault", which, what)

    @rule(
        which=one,
        what=st.sampled_from(("everything", "everything", "work", "consul_round", "takeover_round")),
    )
    def goes_on(self, which: str, what: str) -> None:
        self.do(what, which)

    @rule(which=one, then=st.sampled_from(("free", "hung", "slow_claims", "no_zookeeper", "")))
    def stick(self, which: str, then: str) -> None:
        """Producers are stuck for long enough to be replaced, unless they go on."""
        self.do("stick", which)
        self.do("everything", which)
        if then == "free":
            self.do("free", which)
        elif then:
            self.do("fault", which, then)
        self.do("time", "9")
        self.do("everything", which)

    @rule(which=one)
    def free(self, which: str) -> None:
        self.do("free", which)

    @rule(which=one, how=st.sampled_from(("watches", "lost", "one", "full")))
    def zookeeper_round(self, which: str, how: str) -> None:
        self.do("zookeeper_round", which, how)

    @rule()
    def everybody(self) -> None:
        self.do("everybody")

    # -- servers ----------------------------------------------------------------------------------------------

    @rule(
        what=st.sampled_from(
            ("checks", "checks", "consul_away", "zookeeper_away", "kafka_away", "late_writes", "last")
        )
    )
    def servers(self, what: str) -> None:
        self.do(what)

    @rule(host=hosts, what=st.sampled_from(("restarted", "cut", "cut", "behind", "away")))
    def agent(self, host: str, what: str) -> None:
        self.do("agent", host, what)

    @rule(consumer=ids)
    def forget(self, consumer: str) -> None:
        self.do("forget", consumer)

    @rule(times=st.sampled_from(("1", "2")))
    def empty_list(self, times: str) -> None:
        self.do("empty_list", times)

    @rule(topic=topics, which=st.sampled_from(("state", "assignment", "both")))
    def delete_node(self, topic: str, which: str) -> None:
        self.do("delete_node", topic, which)

    @rule(
        writes=st.sampled_from(("1", "2", "4", "8", "16")),
        how=st.sampled_from(("", "elects", "elects", *TOPICS, "assignments", "states")),
    )
    def restore(self, writes: str, how: str) -> None:
        self.do("restore", writes, how)

    @rule(topic=topics, count=st.sampled_from(("1", "2", "3", "4")))
    def partitions(self, topic: str, count: str) -> None:
        self.do("partitions", topic, count)

    @rule(topic=topics, count=st.sampled_from(("1", "3")), size=st.sampled_from(("", "small", "large")))
    def another_topic(self, topic: str, count: str, size: str) -> None:
        if size:
            self.do("recreate_topic", topic, count, size)
        else:
            self.do("delete_topic", topic)

    @rule(topic=topics, partition=st.sampled_from(("0", "1")))
    def retention(self, topic: str, partition: str) -> None:
        self.do("retention", topic, partition)

    @rule()
    def forget_producers(self) -> None:
        self.do("forget_producers")

    @rule(topic=topics, partition=st.sampled_from(("all", "0", "1")))
    def delete_offsets(self, topic: str, partition: str) -> None:
        self.do("delete_offsets", topic, partition)

    @precondition(lambda self: self.world.state)
    @rule(
        host=hosts,
        what=st.sampled_from(("wipe_stores", "age_stores", "age_stores", "reboot")),
        back=st.sampled_from(("1", "2", "8")),
    )
    def stores(self, host: str, what: str, back: str) -> None:
        self.do(what, host, *([back] if what == "age_stores" else []))

    @precondition(lambda self: self.world.state)
    @rule(topic=topics, partition=st.sampled_from(("0", "1")))
    def lose_changelog(self, topic: str, partition: str) -> None:
        self.do("lose_changelog", topic, partition)

    # -- persons ----------------------------------------------------------------------------------------------

    @rule(consumer=ids, how=st.sampled_from(("key", "maintenance")))
    def isolate(self, consumer: str, how: str) -> None:
        self.do("isolate", consumer, how)

    @rule(topic=topics, partition=st.sampled_from(("0", "1")), consumer=ids)
    def pin(self, topic: str, partition: str, consumer: str) -> None:
        self.do("pin", topic, partition, consumer)

    @rule(consumer=ids, topic=topics)
    def exclude(self, consumer: str, topic: str) -> None:
        self.do("exclude", consumer, topic)

    @rule(scope=st.sampled_from(("all", "topics/t", "topics/u", "partitions/t/0", "partitions/t/1")))
    def pause_consumption(self, scope: str) -> None:
        self.do("pause_consumption", scope)

    @rule()
    def accept_losses(self) -> None:
        self.do("accept_losses")

    @rule(
        topic=topics,
        partition=st.sampled_from(("0", "1")),
        to=st.sampled_from(("-2", "-2", "+3", "earliest", "latest", "changelog")),
        how=st.sampled_from(("", "", "rebuild", "skip")),
        then=st.sampled_from(("waits", "waits", "waits", "goes on", "taken back", "brought back")),
    )
    def seek(self, topic: str, partition: str, to: str, how: str, then: str) -> None:
        """A person asks for a seek, which is written and carried out, or taken back, and a backup has it."""
        self.do("seek", topic, partition, to, how)
        if then != "waits":
            self.do("coordinate", "first", "after")
        if then in {"goes on", "brought back"}:
            self.do("everybody")
        if then in {"taken back", "brought back"}:
            self.do("cancel_seek", topic, partition)
            self.do("coordinate", "first", "end")
        if then == "brought back":
            self.do("everybody")
            self.do("coordinate", "first", "end")
            self.do("bring_seeks_back")

    @rule()
    def bring_seeks_back(self) -> None:
        self.do("bring_seeks_back")

    @precondition(lambda self: HOURS)
    @rule(
        topic=topics,
        partition=st.sampled_from(("0", "1")),
        times=st.sampled_from((1, 2, 2)),
        then=st.sampled_from(("", "", "60")),
    )
    def kills(self, topic: str, partition: str, times: int, then: str) -> None:
        """The next record of a partition kills one process after the other."""
        self.do("kills", topic, partition)
        for consumer in IDS[:times]:
            self.do("everybody")
            self.do("start", consumer)
            self.do("everybody")
            self.do("coordinate", "first", "after")
        if then:
            self.do("time", then)
            self.do("everybody")

    @rule(seconds=st.sampled_from(("1", "6", "9", "30")))
    def time(self, seconds: str) -> None:
        self.do("time", seconds)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                self.world.calm()
                PLAYED[self.commits] += 1
                SAW.update(self.world.saw)
            finally:
                self.world.close()


SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("part", range(PARTS))
def test_promises_hold_under_random_faults(part: int) -> None:
    @seed(SEED + part)
    class Part(Machine):
        pass

    before = SAW.copy()
    try:
        run_state_machine_as_test(Part, settings=SETTINGS)
    except BaseException as error:
        error.add_note(f"the same histories again: {REPLAY}")
        raise
    rare = {
        what: SAW[what] - before[what] for what, least in LEAST.items() if SAW[what] - before[what] < least
    }
    assert not rare, (
        f"too few histories have what their promises are about: {rare}; give the rules other weights"
    )
