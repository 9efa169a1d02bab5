"""Claims that take long: what closes meanwhile, and what becomes of claims that nothing wants any more.

The real agent, committer and fences with their threads, over producers whose initialisation waits for the test.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError as Reason
from confluent_kafka import KafkaException

from muster.consumer import committer
from muster.consumer.agent import Agent
from muster.consumer.blocks import STOPPING
from muster.consumer.committer import PlaceWorker
from muster.core.model import TopicAssignment
from muster.core.ownership import Place
from muster.core.positions import Committed
from muster.edges import kafka_fencing
from muster.edges.commit_outcome import CommitOutcome
from muster.edges.dead_letters import LARGEST
from muster.edges.kafka import Identities, KafkaError, PartitionError
from muster.edges.kafka_fencing import PARALLEL, FencedCommits, transactional_id
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually

KAFKA = KafkaSettings(config={"bootstrap.servers": "k:9092"})
PLACE = Place("k:9092", "g")


class Broker:
    """Who initialised each transactional id last. While `gate` is closed initialisations of `slow` wait at it, and
    until `freed` is set the producers that are `stuck` send nothing. `stale` is what a consumer is given for the
    group's offsets, by a broker that was cut off with it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.epochs: dict[str, int] = {}
        self.offsets: dict[tuple[str, int], Committed] = {}
        self.gate = threading.Event()
        self.slow = "x"
        self.stuck: set[Producer] = set()
        self.freed = threading.Event()
        self.stale: dict[str, dict[tuple[str, int], Committed]] = {}
        self.fails: set[str] = set()
        self.answers: dict[str, KafkaException] = {}
        """By call: the error that the next producer gets which makes it, and is not stuck."""
        self.initialising = 0
        self.open: list[Producer] = []


class Producer:
    """`confluent_kafka.Producer`, as far as claims and commits need it."""

    def __init__(self, broker: Broker, owner: str, key: tuple[str, int]) -> None:
        self.broker, self.owner, self.key = broker, owner, key
        self.name = transactional_id("c", "g", *key)
        self.epoch = -1
        self.item: Any = None
        self.aborted = self.lonely = False
        broker.open.append(self)

    def _hear(self, call: str) -> None:
        if (error := self.broker.answers.pop(call, None)) is not None:
            raise error

    def list_topics(self, *_: object, **__: object) -> None:
        if self.lonely:
            raise KafkaException(Reason(Reason._TRANSPORT, "no broker"))

    def init_transactions(self, _timeout: float) -> None:
        with self.broker.lock:
            self.broker.initialising += self.owner == self.broker.slow
        if self.owner == self.broker.slow:
            assert self.broker.gate.wait(30)
        self._hear("init_transactions")
        if self.owner in self.broker.fails:
            raise KafkaException(Reason(Reason._TIMED_OUT, "timed out", retriable=True))
        with self.broker.lock:
            self.epoch = self.broker.epochs[self.name] = self.broker.epochs.get(self.name, 0) + 1

    def begin_transaction(self) -> None:
        """Nothing to do."""

    def send_offsets_to_transaction(self, items: list[Any], _metadata: object, _timeout: float) -> None:
        if self in self.broker.stuck:
            assert self.broker.freed.wait(30)
        self._hear("send_offsets_to_transaction")
        self.item = items[0]

    def commit_transaction(self, _timeout: float) -> None:
        self._hear("commit_transaction")
        if self.broker.epochs[self.name] != self.epoch:
            raise KafkaException(Reason(Reason._FENCED, "fenced", fatal=True))
        self.broker.offsets[self.key] = Committed(self.item.offset, self.item.metadata)

    def abort_transaction(self, _timeout: float) -> None:
        self._hear("abort_transaction")
        self.aborted = True


class Group:
    """`GroupOffsets`."""

    group_id = "g"

    def __init__(self, broker: Broker, owner: str = "") -> None:
        self.broker, self.owner = broker, owner
        self.topics: Any = self

    def identities(self, _topics: object) -> Identities:
        return Identities()

    def positions(self, keys: Any) -> dict[tuple[str, int], Committed | None]:
        offsets = self.broker.stale.get(self.owner, self.broker.offsets)
        return {key: offsets.get(key) for key in keys}

    def metadata(self) -> None:
        """Of no use here."""

    def close(self) -> None:
        """Nothing to let go of."""


class Fenced(FencedCommits):
    def __init__(self, broker: Broker, owner: str, group: Any) -> None:
        super().__init__(KAFKA, "c", group)
        self.broker, self.owner = broker, owner

    def _open(self, key: tuple[str, int]) -> Any:
        return Producer(self.broker, self.owner, key)


class Consumer:
    def __init__(self, name: str, broker: Broker) -> None:
        self.agent = Agent(name, fencing=True)
        group: Any = Group(broker, name)
        self.commits = Fenced(broker, name, group)
        self.stopped = threading.Event()
        self.worker = PlaceWorker(self.agent, "c", PLACE, group, self.commits, self.stopped)
        self.token = self.agent.query_started()
        self.worker.start()

    def assign(self, owners: dict[int, str], epoch: int) -> None:
        self.agent.assigned("t", TopicAssignment("k:9092", "g", owners, epoch), epoch)

    def offered(self) -> frozenset[int]:
        offer = self.agent.offer(self.token)
        return offer.topics["t"].partitions if "t" in offer.topics else frozenset()

    @property
    def held(self) -> int:
        return len(self.agent.view().held)

    @property
    def refused(self) -> int:
        return self.agent.view().counters.refused_commits

    def process(self, end: int) -> None:
        """Process all that is held up to `end`."""
        offer = self.agent.offer(self.token)
        with self.agent.shared.locked() as own:
            finished = dict(own.query.stands_at)
        ranges = {tp[1]: (held.position or 0, end) for tp, held in self.agent.view().held.items()}
        self.agent.planned(self.token, offer.asked, finished, {"t": ranges}, {}, [])
        self.agent.batch_done(self.agent.batch_started(), None)

    def confirm(self) -> None:
        """Have ZooKeeper, as it was written last, and Consul say once more who owns what."""
        number = self.agent.blocks.reading_wanted()
        assert number is not None
        self.agent.blocks.has_read(number)
        self.agent.blocks.is_registered(self.agent.clock())


@pytest.fixture(autouse=True)
def looked_up_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker ends when it has looked up once more."""
    monkeypatch.setattr(committer, "LOOK_UP", 0.1)


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    made.gate.set()
    made.freed.set()


@pytest.fixture
def consumer(broker: Broker) -> Iterator[Callable[[str], Consumer]]:
    made: list[Consumer] = []

    def make(name: str) -> Consumer:
        made.append(Consumer(name, broker))
        return made[-1]

    yield make
    broker.gate.set()
    for one in made:
        one.stopped.set()
        one.worker.close()


def test_a_partition_is_closed_only_when_its_claim_has_ended_and_queued_claims_are_never_made(
    broker: Broker, consumer: Callable[[str], Consumer], eventually: Eventually
) -> None:
    count = 6 * PARALLEL
    x, y = consumer("x"), consumer("y")
    x.assign(dict.fromkeys(range(count), "x"), 1)
    eventually(lambda: broker.initialising == PARALLEL, what="as many as go at once")
    x.agent.blocks.block(STOPPING)
    assert x.held == PARALLEL, "those whose claims had not begun are closed"
    assert x.agent.view().topics["t"].closing == {key[1] for key in x.agent.view().held}
    broker.gate.set()
    assert x.agent.wait_closed(10)
    assert broker.initialising == PARALLEL, "nothing landed that was queued"

    y.assign(dict.fromkeys(range(count), "y"), 3)
    eventually(lambda: len(y.offered()) == count, what="the next owner has claimed all")
    offer = y.agent.offer(y.token)
    planned = {"t": dict.fromkeys(offer.topics["t"].partitions, (0, 10))}
    y.agent.planned(y.token, offer.asked, {}, planned, {}, [])
    y.agent.batch_done(y.agent.batch_started(), None)
    eventually(lambda: len(broker.offsets) == count, what="committed")
    assert y.agent.view().counters.refused_commits == 0


def test_a_claim_that_timed_out_holds_its_partition_until_it_ends_and_leaves_no_producer(
    broker: Broker,
    consumer: Callable[[str], Consumer],
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_fencing, "ANSWER_WITHIN", 0.1)
    x, y = consumer("x"), consumer("y")
    x.assign({0: "x"}, 1)
    eventually(lambda: "no answer in time" in str(x.agent.view().problems), what="it is told")
    x.assign({0: "y"}, 3)
    assert x.agent.view().topics["t"].closing == {0}
    assert not x.agent.wait_closed(0.5), "its claim may still land"
    broker.gate.set()
    assert x.agent.wait_closed(10)
    eventually(lambda: not x.commits._fences, what="no producer is left")
    y.assign({0: "y"}, 3)
    eventually(lambda: y.offered() == {0})
    assert broker.epochs == {transactional_id("c", "g", "t", 0): 2}, "the last one is the new owner's"


def test_calls_that_hang_keep_no_process_from_ending(
    broker: Broker, consumer: Callable[[str], Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_fencing, "ANSWER_WITHIN", 0.1)
    commits = Fenced(broker, "x", Group(broker))
    commits.claim([("t", 0)])
    commits.release([("t", 0)])
    daemons = {thread.name: thread.daemon for thread in threading.enumerate()}
    assert daemons["muster-fence"]
    assert daemons["muster-fence-end"], "it waits for the other one"
    assert all(thread.daemon for thread in consumer("y").worker._threads)


def test_a_claim_that_failed_is_released_as_soon_as_its_partition_closes(
    broker: Broker, consumer: Callable[[str], Consumer], eventually: Eventually
) -> None:
    broker.fails.add("x")
    broker.gate.set()
    x = consumer("x")
    x.assign({0: "x"}, 1)
    # From the third attempt on the pause before the next one is longer than what closing may take here.
    eventually(lambda: broker.initialising >= 4, what="tried again")
    assert len(broker.open) == 1, "the same producer is tried again"
    x.assign({}, 2)
    assert x.agent.wait_closed(1.0)
    assert not x.commits._fences


def test_partitions_of_another_clusters_group_are_not_taken_up(
    broker: Broker, consumer: Callable[[str], Consumer], eventually: Eventually
) -> None:
    broker.offsets = {("t", 0): Committed(5, "muster:other:A"), ("t", 1): Committed(5, "muster:c:A")}
    x = consumer("y")
    x.assign({0: "y", 1: "y", 2: "y"}, 1)
    eventually(lambda: x.offered() == {1, 2}, what="those that are its own")
    (problem,) = eventually(lambda: list(x.agent.view().problems.values()))
    assert "t [0]: its offset was committed by cluster 'other'" in problem
    assert "give cluster 'c' a 'group_id' of its own" in problem
    x.assign({1: "y"}, 2)
    eventually(lambda: x.agent.view().topics["t"].held == {1, 2}, what="2 is offered, so it may be read")
    eventually(lambda: ("t", 0) not in x.commits._fences, what="and let go of")
    broker.offsets["t", 3] = Committed(5)
    x.assign({1: "y", 3: "y"}, 3)
    eventually(lambda: 3 in x.offered(), what="an offset that names no cluster is anyone's")


def test_offsets_are_committed_with_cluster_and_topic(
    broker: Broker, consumer: Callable[[str], Consumer], eventually: Eventually
) -> None:
    y = consumer("y")
    y.agent.assigned("t", TopicAssignment("k:9092", "g", {0: "y"}, 1, topic_id="A"), 1)
    eventually(lambda: y.offered() == {0})
    y.process(10)
    eventually(lambda: broker.offsets == {("t", 0): Committed(10, "muster:c:A")})


def test_a_place_out_of_reach_is_tried_again_by_the_same_claim(
    broker: Broker,
    consumer: Callable[[str], Consumer],
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = Group.positions
    away = threading.Event()

    def positions(self: Group, keys: Any) -> dict[tuple[str, int], Committed | None]:
        if not away.is_set():
            away.set()
            raise KafkaError("Kafka at k:9092: no answer")
        return read(self, keys)

    monkeypatch.setattr(Group, "positions", positions)
    y = consumer("y")
    y.assign({0: "y"}, 1)
    eventually(lambda: y.offered() == {0})
    assert away.is_set()
    assert broker.epochs == {transactional_id("c", "g", "t", 0): 1}, "claimed once, read twice"


@pytest.fixture
def make_x_stuck(
    broker: Broker,
    consumer: Callable[[str], Consumer],
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[int], Consumer]:
    """Makes consumer x, which has committed 10 of each of its partitions and is stuck with 20."""
    monkeypatch.setattr(kafka_fencing, "ANSWER_WITHIN", 0.1)
    monkeypatch.setattr(kafka_fencing, "STUCK_AFTER", 0.2)
    monkeypatch.setattr(committer, "LONGEST_PAUSE", 0.2)

    def make(count: int) -> Consumer:
        broker.gate.set()
        x, committed = (
            consumer("x"),
            dict.fromkeys((("t", p) for p in range(count)), Committed(10, "muster:c:")),
        )
        x.assign(dict.fromkeys(range(count), "x"), 1)
        eventually(lambda: len(x.offered()) == count)
        x.process(10)
        eventually(lambda: broker.offsets == committed, what="committed")
        broker.stuck.update(broker.open)
        x.process(20)
        eventually(lambda: "ZooKeeper and Consul confirm" in str(x.agent.view().problems), what="it is shown")
        return x

    return make


@pytest.fixture
def x_is_stuck(make_x_stuck: Callable[[int], Consumer]) -> Consumer:
    """Consumer x with one partition."""
    return make_x_stuck(1)


def test_producer_that_is_stuck_is_replaced_once_the_owner_is_confirmed_and_nothing_is_read_again(
    broker: Broker, x_is_stuck: Consumer, eventually: Eventually
) -> None:
    assert len(broker.open) == 1
    x_is_stuck.confirm()
    eventually(lambda: len(broker.open) == 2, what="replaced")
    eventually(lambda: x_is_stuck.agent.blocks.reading_wanted() is not None, what="asks again")
    assert broker.offsets["t", 0].offset == 10, "not before that is answered"
    x_is_stuck.confirm()
    eventually(lambda: broker.offsets["t", 0].offset == 20, what="committed")
    assert x_is_stuck.agent.view().held["t", 0].position == 20


def test_stuck_producer_of_a_partition_that_closes_and_is_not_given_away_yet_is_replaced_and_commits(
    broker: Broker, x_is_stuck: Consumer, eventually: Eventually
) -> None:
    x_is_stuck.assign({}, 2)
    assert x_is_stuck.agent.view().topics["t"].closing == {0}
    x_is_stuck.confirm()
    eventually(lambda: len(broker.open) == 2, what="replaced")
    eventually(lambda: x_is_stuck.agent.blocks.reading_wanted() is not None, what="asks again")
    x_is_stuck.confirm()
    eventually(lambda: broker.offsets["t", 0].offset == 20, what="committed")
    assert x_is_stuck.agent.view().counters.refused_commits == 0
    x_is_stuck.agent.query_ended(failed=False)
    assert x_is_stuck.agent.wait_closed(10), "the claim of the replacement has ended"


def test_stuck_consumer_that_is_cut_off_leaves_the_next_owner_alone_and_commits_nothing(
    broker: Broker, x_is_stuck: Consumer, consumer: Callable[[str], Consumer], eventually: Eventually
) -> None:
    y = consumer("y")
    y.assign({0: "y"}, 2)
    eventually(lambda: y.offered() == {0})
    y.process(50)
    eventually(lambda: broker.offsets["t", 0].offset == 50)
    broker.stale["x"] = {("t", 0): Committed(10, "muster:c:")}
    x_is_stuck.assign({0: "y"}, 2)
    eventually(lambda: x_is_stuck.agent.view().counters.refused_commits == 1, what="refused")
    assert broker.epochs == {transactional_id("c", "g", "t", 0): 2}, "y was the last one to claim"
    assert (broker.offsets["t", 0].offset, y.agent.view().counters.refused_commits) == (50, 0)
    x_is_stuck.agent.query_ended(failed=False)
    assert x_is_stuck.agent.wait_closed(10), "a commit that is stuck fences off no other, and may never end"


def test_replacement_that_lands_after_the_next_owner_commits_nothing_whatever_the_group_seems_to_have(
    broker: Broker, x_is_stuck: Consumer, consumer: Callable[[str], Consumer], eventually: Eventually
) -> None:
    broker.gate.clear()
    initialised = broker.initialising
    x_is_stuck.confirm()
    eventually(lambda: broker.initialising > initialised, what="the replacement is on its way")
    y = consumer("y")
    y.assign({0: "y"}, 2)
    eventually(lambda: y.offered() == {0})
    y.process(50)
    eventually(lambda: broker.offsets["t", 0].offset == 50)
    broker.stale["x"] = {("t", 0): Committed(10, "muster:c:")}
    broker.gate.set()
    eventually(lambda: broker.epochs == {transactional_id("c", "g", "t", 0): 3}, what="it has landed")
    x_is_stuck.assign({0: "y"}, 2)
    eventually(lambda: x_is_stuck.agent.view().counters.refused_commits == 1, what="refused")
    assert broker.offsets["t", 0].offset == 50


def test_replacement_holds_its_partition_closing_until_its_initialisation_has_ended(
    broker: Broker, x_is_stuck: Consumer, consumer: Callable[[str], Consumer], eventually: Eventually
) -> None:
    broker.gate.clear()
    initialised = broker.initialising
    x_is_stuck.confirm()
    eventually(lambda: broker.initialising > initialised, what="the replacement is on its way")
    x_is_stuck.assign({0: "y"}, 2)
    eventually(lambda: x_is_stuck.agent.view().counters.refused_commits == 1, what="refused")
    x_is_stuck.agent.query_ended(failed=False)
    assert not x_is_stuck.agent.wait_closed(0.5), "it may still land"
    assert x_is_stuck.agent.view().topics["t"].closing == {0}
    broker.gate.set()
    assert x_is_stuck.agent.wait_closed(10)
    eventually(lambda: not x_is_stuck.commits._fences, what="no producer is left")
    y = consumer("y")
    y.assign({0: "y"}, 2)
    eventually(lambda: y.offered() == {0})
    assert broker.epochs == {transactional_id("c", "g", "t", 0): 3}, "the last one is the next owner's"


def test_replacement_of_a_topic_that_is_gone_holds_its_partition_closing_until_it_has_landed(
    broker: Broker, x_is_stuck: Consumer, eventually: Eventually
) -> None:
    broker.gate.clear()
    initialised = broker.initialising
    x_is_stuck.confirm()
    eventually(lambda: broker.initialising > initialised, what="the replacement is on its way")
    x_is_stuck.agent.outside.identified(PLACE, {}, frozenset({"t"}))
    x_is_stuck.agent.query_ended(failed=False)
    assert not x_is_stuck.agent.wait_closed(0.5), "it may still land"
    broker.gate.set()
    assert x_is_stuck.agent.wait_closed(10), "though nothing is committed for it any more"


def test_replacement_that_is_queued_behind_another_one_is_not_begun_once_its_partition_is_refused(
    broker: Broker,
    make_x_stuck: Callable[[int], Consumer],
    consumer: Callable[[str], Consumer],
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = make_x_stuck(2)
    monkeypatch.setattr(kafka_fencing, "PARALLEL", 1)
    monkeypatch.setattr(kafka_fencing, "STUCK_AFTER", 2.0)
    broker.gate.clear()
    initialised = broker.initialising
    x.confirm()
    eventually(lambda: broker.initialising > initialised, what="the first replacement is on its way")
    x.assign({0: "y", 1: "y"}, 2)
    x.agent.query_ended(failed=False)
    eventually(lambda: x.agent.view().counters.refused_commits == 2, what="both are refused")
    eventually(lambda: x.held == 1, what="the one that is queued is closed")
    broker.gate.set()
    assert x.agent.wait_closed(10)
    y = consumer("y")
    y.assign({0: "y", 1: "y"}, 2)
    eventually(lambda: y.offered() == {0, 1})
    assert sorted(broker.epochs.values()) == [2, 3], "only the first one was initialised by x a second time"


def test_commit_queued_behind_a_stuck_one_is_made_and_delays_no_other(
    broker: Broker, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PARALLEL": 1, "ANSWER_WITHIN": 0.1, "STUCK_AFTER": 0.2}.items():
        monkeypatch.setattr(kafka_fencing, name, value)
    first, queued = ("t", 0), ("t", 1)
    commits = Fenced(broker, "y", Group(broker))
    eventually(lambda: commits.claim([first, queued]).done == {first, queued})
    broker.stuck.update(producer for producer in broker.open if producer.key == first)

    def commit(*partitions: tuple[str, int]) -> CommitOutcome:
        return commits.commit(dict.fromkeys(partitions, 1), owned=lambda *_: None)

    began = time.monotonic()
    assert set(commit(first, queued).failed.values()) == {"no answer in time"}
    assert time.monotonic() - began < KAFKA.operation_timeout / 2
    outcome = eventually(lambda: found if (found := commit(queued, first)).done else None)
    assert outcome is not None
    assert outcome.done == {queued: 1}
    assert "its producer is stuck" in outcome.failed[first], "in the same round"
    assert len(broker.open) == 2
    commits.close()


def test_replacement_that_takes_long_to_initialise_is_not_replaced_and_holds_up_no_other(
    broker: Broker,
    make_x_stuck: Callable[[int], Consumer],
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = make_x_stuck(2)
    monkeypatch.setattr(kafka_fencing, "PARALLEL", 1)
    broker.gate.clear()
    initialised = broker.initialising

    def confirmed(reached: Callable[[], bool]) -> bool:
        if x.agent.blocks.reading_wanted() is not None:
            x.confirm()
        return reached()

    eventually(
        lambda: confirmed(lambda: broker.initialising == initialised + 2), what="both are on their way"
    )
    began = time.monotonic()
    eventually(lambda: confirmed(lambda: time.monotonic() - began > 1.0), what="for long")
    assert len(broker.open) == 4, "one replacement each"
    broker.gate.set()
    eventually(
        lambda: confirmed(lambda: {found.offset for found in broker.offsets.values()} == {20}),
        what="committed",
    )
    assert len(broker.open) == 4


def test_replacement_claiming_again_keeps_no_other_waiting(broker: Broker, eventually: Eventually) -> None:
    again, lost = ("t", 0), ("t", 1)
    commits = Fenced(broker, "y", Group(broker))
    eventually(lambda: commits.claim([again, lost]).done == {again, lost})
    fences = dict(commits._fences)
    first, second = fences[again], fences[lost]
    first.replaces, first.phase, first.ended_at = True, kafka_fencing._Phase.INITIALISE, 3.0
    second.lost, second.ended_at = "it is gone", 4.0
    asked: list[tuple[object, float]] = []
    assert commits._replace_stuck(fences, lambda tp, since: not asked.append((tp, since))) == {}
    assert asked == [(again, 3.0), (lost, 4.0)]
    assert fences == commits._fences == {again: first, lost: fences[lost]}
    assert (fences[lost].replaces, fences[lost].topic, fences[lost].lost) == (True, "t", "")
    assert fences[lost].producer is broker.open[-1] is not second.producer
    commits.close()


def test_replacement_whose_claim_has_failed_claims_again_only_once_the_owner_is_confirmed_again(
    broker: Broker, x_is_stuck: Consumer, consumer: Callable[[str], Consumer], eventually: Eventually
) -> None:
    broker.fails.add("x")
    x_is_stuck.confirm()
    eventually(lambda: "timed out" in str(x_is_stuck.agent.view().problems), what="its claim has failed")
    eventually(lambda: "ZooKeeper and Consul confirm" in str(x_is_stuck.agent.view().problems), what="asks")
    broker.fails.clear()
    y = consumer("y")
    y.assign({0: "y"}, 2)
    eventually(lambda: y.offered() == {0})
    initialised = broker.initialising
    x_is_stuck.assign({0: "y"}, 2)
    eventually(lambda: x_is_stuck.agent.view().counters.refused_commits == 1, what="refused")
    assert broker.initialising == initialised, "it does not fence off the next owner"
    y.process(50)
    eventually(lambda: broker.offsets["t", 0].offset == 50, what="the next owner commits")


CALLS = ("init_transactions", "send_offsets_to_transaction", "commit_transaction")


@pytest.mark.parametrize("code", sorted(kafka_fencing.FORGOTTEN))
@pytest.mark.parametrize("fatal", [False, True], ids=["abortable", "fatal"])
@pytest.mark.parametrize("call", CALLS)
def test_forgotten_producer_is_replaced_once_the_owner_is_confirmed(
    call: str, fatal: bool, code: int, broker: Broker, x_is_stuck: Consumer, eventually: Eventually
) -> None:
    """x is stuck with offset 20; what replaces its producer is forgotten in its turn, at that call."""
    forgotten = Reason(code, "unknown producer", fatal=fatal, txn_requires_abort=not fatal)
    broker.answers[call] = KafkaException(forgotten)
    eventually(lambda: confirmed(x_is_stuck, lambda: not broker.answers), what="the broker has forgotten it")
    last = broker.open[-1]
    eventually(lambda: "forgotten its producer" in str(x_is_stuck.agent.view().problems), what="it is said")
    assert broker.offsets["t", 0].offset == 10, "not before that is answered"
    eventually(lambda: confirmed(x_is_stuck, lambda: broker.offsets["t", 0].offset == 20), what="committed")
    assert last is not broker.open[-1]
    assert not last.aborted, "which would have initialised it again, unasked"
    assert x_is_stuck.agent.view().counters.refused_commits == 0


def test_transaction_that_cannot_be_aborted_at_once_has_its_producer_replaced(
    broker: Broker, x_is_stuck: Consumer, eventually: Eventually
) -> None:
    broker.answers["commit_transaction"] = KafkaException(Reason(Reason.GROUP_AUTHORIZATION_FAILED, "no"))
    broker.answers["abort_transaction"] = KafkaException(Reason(Reason._STATE, "no"))
    eventually(lambda: confirmed(x_is_stuck, lambda: not broker.answers), what="the abort has failed")
    failed = broker.open[-1]
    eventually(lambda: "transaction failed, and it waits" in str(x_is_stuck.agent.view().problems))
    eventually(lambda: confirmed(x_is_stuck, lambda: broker.offsets["t", 0].offset == 20), what="committed")
    assert failed is not broker.open[-1]


def test_transaction_aborted_long_after_its_begin_has_its_producer_replaced(
    broker: Broker, x_is_stuck: Consumer, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the process had been frozen in between, and the broker had forgotten it."""
    monkeypatch.setattr(kafka_fencing, "ABORT_WITHIN", 0.0)
    broker.answers["commit_transaction"] = KafkaException(Reason(Reason.GROUP_AUTHORIZATION_FAILED, "no"))
    eventually(lambda: confirmed(x_is_stuck, lambda: not broker.answers), what="it has failed")
    failed = broker.open[-1]
    eventually(lambda: confirmed(x_is_stuck, lambda: broker.offsets["t", 0].offset == 20), what="committed")
    assert failed is not broker.open[-1]


def test_transaction_that_fails_by_an_answer_is_aborted_and_tried_again_unasked(
    broker: Broker, consumer: Callable[[str], Consumer], eventually: Eventually
) -> None:
    y = consumer("y")
    y.assign({0: "y"}, 1)
    eventually(lambda: y.offered() == {0})
    broker.answers["commit_transaction"] = KafkaException(Reason(Reason.GROUP_AUTHORIZATION_FAILED, "no"))
    y.process(10)
    eventually(lambda: broker.offsets.get(("t", 0)) == Committed(10, "muster:c:"), what="committed")
    (only,) = broker.open
    assert only.aborted


def confirmed(x: Consumer, reached: Callable[[], bool]) -> bool:
    """Whether it is so; ZooKeeper and Consul confirm the owner whenever that is asked for."""
    if x.agent.blocks.reading_wanted() is not None:
        x.confirm()
    return reached()


@pytest.fixture
def quiet(broker: Broker, consumer: Callable[[str], Consumer], eventually: Eventually) -> Consumer:
    """Consumer y, which has committed 10 of partition 0 of topic A, and has nothing more to read."""
    y = consumer("y")
    y.agent.assigned("t", TopicAssignment("k:9092", "g", {0: "y"}, 1, topic_id="A"), 1)
    eventually(lambda: y.offered() == {0})
    y.process(10)
    eventually(lambda: broker.offsets == {("t", 0): Committed(10, "muster:c:A")}, what="committed")
    return y


def close_in_order(one: Consumer) -> bool:
    one.agent.assigned("t", TopicAssignment("k:9092", "g", {}, 2, topic_id="A"), 2)
    one.agent.query_ended(failed=False)
    return one.agent.wait_closed(10)


@pytest.mark.parametrize("topic_id", ["A", "B"])
def test_offset_deleted_before_the_close_is_committed_for_its_topic_alone(
    topic_id: str, broker: Broker, quiet: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Group, "identities", lambda *_: Identities({"t": topic_id}))
    broker.offsets.clear()
    assert close_in_order(quiet)
    assert broker.offsets == ({("t", 0): Committed(10, "muster:c:A")} if topic_id == "A" else {})


def test_last_look_that_kafka_does_not_answer_holds_up_no_close(
    quiet: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def positions(*_: object) -> None:
        raise KafkaError("Kafka at k:9092: no answer")

    monkeypatch.setattr(Group, "positions", positions)
    assert close_in_order(quiet)


@pytest.mark.parametrize("topic_id", ["A", "B"])
def test_replacement_yields_to_higher_offsets_of_its_topic_alone(
    topic_id: str, broker: Broker, quiet: Consumer, eventually: Eventually
) -> None:
    broker.answers["send_offsets_to_transaction"] = KafkaException(Reason(Reason.UNKNOWN_PRODUCER_ID, "no"))
    quiet.process(20)
    eventually(lambda: not broker.answers, what="the broker has forgotten its producer")
    present = Committed(50, f"muster:c:{topic_id}")
    broker.offsets["t", 0] = present
    eventually(lambda: confirmed(quiet, lambda: broker.offsets["t", 0] != present or bool(quiet.refused)))
    assert (broker.offsets["t", 0].offset, quiet.refused) == ((50, 1) if topic_id == "A" else (20, 0))


def test_queued_commit_that_is_released_meanwhile_is_never_made(
    broker: Broker, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_fencing, "PARALLEL", 1)
    first, queued = ("t", 0), ("t", 1)
    commits = Fenced(broker, "y", Group(broker))
    eventually(lambda: commits.claim([first, queued]).done == {first, queued})
    broker.stuck.update(broker.open)
    with ThreadPoolExecutor() as pool:
        ended = threading.Event()
        asked = pool.submit(commits.commit, {first: 1, queued: 1})
        eventually(lambda: commits._fences[queued].call)
        commits.release([queued], lambda _: ended.set())
        assert ended.wait(10), "its producer is let go of at once"
        broker.freed.set()
        outcome = asked.result(10)
    assert (outcome.done, outcome.failed) == ({first: 1}, {queued: "no answer in time"})
    assert broker.offsets.keys() == {first}
    commits.close()


@pytest.mark.parametrize(
    ("finds", "others", "opened"), [(False, True, 2), (True, True, 1), (False, False, 1)]
)
def test_producer_alone_without_a_broker_is_replaced(
    finds: bool,
    others: bool,
    opened: int,
    broker: Broker,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tp, gone = ("t", 0), KafkaException(Reason(Reason._TRANSPORT, "no broker", retriable=True))
    commits = Fenced(broker, "y", Group(broker))
    eventually(lambda: commits.claim([tp]).done)
    monkeypatch.setattr(Group, "answers", lambda _: others, raising=False)
    (first,) = broker.open
    if not finds:
        first.lonely = True
    broker.answers["commit_transaction"] = gone
    assert "no broker" in commits.commit({tp: 1}).failed[tp]
    outcome = commits.commit({tp: 1}, owned=lambda *_: None)
    if opened == 2:
        assert "its producer finds no broker, and it waits" in outcome.failed[tp]
    eventually(lambda: commits.commit({tp: 1}).done)
    assert len(broker.open) == opened
    commits.close()


@pytest.mark.parametrize(("timeout", "settle"), [(9.0, kafka_fencing.SETTLE_WITHIN), (0.5, 0.5)])
def test_producer_settles_once_before_it_claims(
    timeout: float, settle: float, broker: Broker, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[object, ...]] = []
    monkeypatch.setattr(
        Producer, "list_topics", lambda _, topic, timeout: called.append(("settle", topic, timeout))
    )
    claim = Producer.init_transactions

    def init_transactions(self: Producer, timeout: float) -> None:
        called.append(("claim", timeout))
        claim(self, timeout)

    monkeypatch.setattr(Producer, "init_transactions", init_transactions)
    broker.fails.add("y")
    commits = Fenced(broker, "y", Group(broker))
    commits._timeout = timeout
    assert "timed out" in commits.claim([("t", 0)]).failed["t", 0]
    broker.fails.clear()
    assert commits.claim([("t", 0)]).done
    settles, looks = [("settle", "t", settle)] * 2, [("settle", "t", kafka_fencing.SETTLE_WITHIN)]
    assert called == [*settles, ("claim", timeout), *looks, ("claim", timeout)]
    commits.close()


@pytest.mark.parametrize("what", ["unknown", "released", "failed"])
def test_commit_without_a_claim_is_refused(what: str, broker: Broker, eventually: Eventually) -> None:
    tp = ("t", 0)
    commits = Fenced(broker, "y", Group(broker))
    if what == "failed":
        broker.fails.add("y")
        eventually(lambda: "timed out" in commits.claim([tp]).failed.get(tp, ""))
    elif what == "released":
        eventually(lambda: tp in commits.claim([tp]).done)
        commits.release([tp])
    outcome = commits.commit({tp: 1})
    assert (outcome.refused, outcome.done, outcome.failed) == ({tp: "its claim was given up"}, {}, {})
    assert broker.offsets == {}
    commits.close()


@pytest.mark.parametrize(
    ("error", "producers"),
    [
        (Reason(Reason._TIMED_OUT, "no", retriable=True), 1),
        (Reason(Reason.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no"), 2),
        (Reason(Reason._FATAL, "no", fatal=True, retriable=True), 2),
    ],
)
def test_claim_that_failed_for_good_takes_another_producer(
    error: Reason, producers: int, broker: Broker, eventually: Eventually
) -> None:
    tp = ("t", 0)
    commits = Fenced(broker, "y", Group(broker))
    broker.answers["init_transactions"] = KafkaException(error)
    eventually(lambda: commits.claim([tp]).failed)
    eventually(lambda: tp in commits.claim([tp]).done)
    assert len(broker.open) == producers
    assert commits.commit({tp: 1}).done == {tp: 1}
    commits.close()


def test_partition_that_kafka_does_not_answer_for_holds_up_no_other(
    broker: Broker,
    consumer: Callable[[str], Consumer],
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, bad = Group.positions, ("t", 0)

    def positions(self: Group, keys: Any) -> dict[tuple[str, int], Committed | None]:
        found = read(self, keys)
        if bad in found:
            del found[bad]
            raise PartitionError("one failed", found, {bad: "no coordinator"})
        return found

    monkeypatch.setattr(Group, "positions", positions)
    y = consumer("y")
    y.assign({0: "y", 1: "y"}, 1)
    eventually(lambda: y.offered() == {1}, what="taken up")
    assert "t [0]: no coordinator" in " ".join(y.agent.view().problems.values())
    monkeypatch.setattr(Group, "positions", read)
    eventually(lambda: y.offered() == {0, 1})
    y.process(10)
    eventually(lambda: broker.offsets.keys() == {bad, ("t", 1)}, what="committed")
    monkeypatch.setattr(Group, "positions", positions)
    broker.offsets["t", 1] = Committed(5)
    y.process(20)
    eventually(lambda: {each.offset for each in broker.offsets.values()} == {20}, what="committed again")
    y.process(30)
    eventually(lambda: {each.offset for each in broker.offsets.values()} == {30}, what="its own stand")
    assert y.agent.view().counters.foreign_commits == 1, "which the look before the commit has found"


def test_producer_is_transactional_and_answers_soon(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[object, dict[str, Any]]] = []
    monkeypatch.setattr(kafka_fencing, "open_client", lambda kind, config: opened.append((kind, config)))
    given = {"bootstrap.servers": "k:9092", "isolation.level": "read_uncommitted", "client.id": "me"}
    group: Any = Group(broker)
    FencedCommits(KafkaSettings(config=given), "c", group)._open(("t", 1))
    ((kind, config),) = opened
    assert kind is confluent_kafka.Producer
    assert config["transactional.id"] == "muster/c/t/1/g"
    assert config["transaction.timeout.ms"] == "30000"
    assert config["socket.timeout.ms"] == "5000"
    assert (config["bootstrap.servers"], config["client.id"]) == ("k:9092", "me")
    assert config["message.max.bytes"] == str(LARGEST)
    assert "isolation.level" not in config, "which a producer does not know"
