"""The whole system under every fault of the design, in any order. `tests/faults/model/watchman.py` says what holds.

A failure shows the history as a story: every event, every write, with the simulated seconds.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.faults.model.tally import PLAYED
from tests.faults.model.world import COORDINATORS, IDS, World

EXAMPLES = 2000
PARTS = 25 if os.environ.get("LONG") == "1" else 1
"""Each plays `EXAMPLES` histories of its own: 50,000 in the long version, which take most of an hour of one core."""
STEPS = 25

pytestmark = pytest.mark.timeout(1800)

one = st.sampled_from(("a", "a", "b", "b", "c", "a-", "b-", "a--"))
ids = st.sampled_from(IDS)
coordinators = st.sampled_from((*COORDINATORS, COORDINATORS[0]))


class Machine(RuleBasedStateMachine):
    """Each rule is one event of `World`, named alike."""

    @initialize(
        assignor=st.sampled_from(("sticky", "range", "round-robin")),
        delay=st.sampled_from((0.0, 0.0, 8.0)),
        only_u=st.sampled_from(("", "", "a", "c")),
        commits=st.sampled_from(("fenced", "fenced", "guarded")),
        running=st.sampled_from((("a", "b"), ("a", "b"), ("a", "b", "c"), ("a",), ())),
    )
    def begin(self, assignor: str, delay: float, only_u: str, commits: str, running: tuple[str, ...]) -> None:
        self.world, self.commits = World(assignor, delay, only_u, commits), commits
        for consumer in running:
            self.world.do(("start", consumer))
        if running:
            for _ in range(2):
                self.world.do(("everybody",))
                self.world.do(("coordinate", "first", "end"))
            self.world.do(("everybody",))

    @rule(
        name=coordinators,
        until=st.sampled_from(
            ("end", "end", "before", "after", "asked", "read Consul", "read ZooKeeper", "pause")
        ),
        how=st.sampled_from(("", "", "", "lags 1", "lags 3", "lost", "delayed", "old answers")),
    )
    def coordinate(self, name: str, until: str, how: str) -> None:
        self.world.do(("coordinate", name, until, how))

    @rule(name=coordinators)
    def die(self, name: str) -> None:
        self.world.do(("die", name))

    @rule(
        consumer=ids,
        server=st.sampled_from(("current", "current", "1", "3")),
        place=st.sampled_from(("new", "same")),
    )
    def start(self, consumer: str, server: str, place: str) -> None:
        self.world.do(("start", consumer, server, place))

    @rule(consumer=ids)
    def join(self, consumer: str) -> None:
        self.world.do(("start", consumer))
        self.world.do(("everybody",))

    @rule(which=one, how=st.sampled_from(("crash", "stop", "fail_query", "answer_lost")))
    def end(self, which: str, how: str) -> None:
        self.world.do((how, which))

    @rule(
        which=one,
        what=st.sampled_from(
            (
                *("hung", "no_consul", "check_fails", "no_answer", "no_zookeeper", "lags", "slow"),
                *("no_kafka", "unheard_commits"),
            )
        ),
    )
    def fault(self, which: str, what: str) -> None:
        self.world.do(("fault", which, what))

    @rule(
        which=one,
        what=st.sampled_from(("everything", "everything", "work", "consul_round", "takeover_round")),
    )
    def goes_on(self, which: str, what: str) -> None:
        self.world.do((what, which))

    @rule(which=one, how=st.sampled_from(("watches", "lost", "one", "full")))
    def zookeeper_round(self, which: str, how: str) -> None:
        self.world.do(("zookeeper_round", which, how))

    @rule()
    def everybody(self) -> None:
        self.world.do(("everybody",))

    @rule(
        what=st.sampled_from(
            ("checks", "checks", "consul_away", "zookeeper_away", "kafka_away", "late_writes")
        )
    )
    def servers(self, what: str) -> None:
        self.world.do((what,))

    @rule(consumer=ids, how=st.sampled_from(("key", "maintenance")))
    def isolate(self, consumer: str, how: str) -> None:
        self.world.do(("isolate", consumer, how))

    @rule(topic=st.sampled_from(("t", "u")), partition=st.sampled_from(("0", "1")), consumer=ids)
    def pin(self, topic: str, partition: str, consumer: str) -> None:
        self.world.do(("pin", topic, partition, consumer))

    @rule(consumer=ids, topic=st.sampled_from(("t", "u")))
    def exclude(self, consumer: str, topic: str) -> None:
        self.world.do(("exclude", consumer, topic))

    @rule(consumer=ids)
    def forget(self, consumer: str) -> None:
        self.world.do(("forget", consumer))

    @rule(times=st.sampled_from(("1", "2")))
    def empty_list(self, times: str) -> None:
        self.world.do(("empty_list", times))

    @rule(topic=st.sampled_from(("t", "u")), count=st.sampled_from(("1", "2", "3", "4")))
    def partitions(self, topic: str, count: str) -> None:
        self.world.do(("partitions", topic, count))

    @rule(seconds=st.sampled_from(("1", "6", "9", "30")))
    def time(self, seconds: str) -> None:
        self.world.do(("time", seconds))

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                self.world.calm()
                PLAYED[self.commits] += 1
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
def test_whatever_happens_what_is_promised_holds(part: int) -> None:
    @seed(part)  # the same histories in every run
    class Part(Machine):
        pass

    run_state_machine_as_test(Part, settings=SETTINGS)
