"""What a handler is notified of, when, and what that holds up: with the real agent and the thread that notifies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from muster.consumer.blocks import STOPPING
from muster.consumer.lifecycle import Ending, Loop
from muster.consumer.serial_handler import SerialHandler
from muster.core.model import TopicAssignment
from muster.sinks import Batch
from tests.conftest import Eventually
from tests.support.claiming import ClaimingAgent

ME = "me"


class Noting:
    """Notes what it is called with. `gates` that are closed keep a method of their name, or a batch, from returning;
    methods in `fail` raise."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.gates = {name: threading.Event() for name in ("assigned", "revoked", "batch")}
        self.fail: set[str] = set()
        for gate in self.gates.values():
            gate.set()

    def _called(self, name: str, partitions: frozenset[tuple[str, int]]) -> None:
        self.calls.append((name, sorted(p for _, p in partitions)))
        assert self.gates[name].wait(30)
        if name in self.fail:
            raise OSError("no room")

    def __call__(self, _frame: Any, batch: Batch) -> None:
        self._called("batch", frozenset(batch.ranges))

    def assigned(self, partitions: frozenset[tuple[str, int]]) -> None:
        self._called("assigned", partitions)

    def revoked(self, partitions: frozenset[tuple[str, int]]) -> None:
        self._called("revoked", partitions)

    def standby(self, partitions: frozenset[tuple[str, int]]) -> None:
        self.calls.append(("standby", sorted(p for _, p in partitions)))

    def close(self) -> None:
        self.calls.append(("close", []))


class Consumer:
    """An agent with a query, whose batches a test plans and runs."""

    def __init__(self) -> None:
        self.agent = ClaimingAgent(ME, announces=True)
        self.noting = Noting()
        self.handler = SerialHandler([self.noting], self.agent)
        self.token = self.agent.query_started()
        self.ends: dict[int, int] = {}
        self.zxid = 0
        self.loop = Loop("handler", self.handler.run, 60.0, Ending())
        self.loop.start()

    def assign(self, *mine: int, standby: tuple[int, ...] = ()) -> None:
        self.zxid += 1
        owners = {p: ME if p in mine else "other" for p in range(3)}
        node = TopicAssignment("k", "g", owners, self.zxid, standbys=dict.fromkeys(standby, (ME,)))
        self.agent.assigned("t", node, self.zxid)

    def offered(self) -> set[int]:
        """What the next batch may hold, by an offer that is taken as planned without a batch."""
        with self.agent.shared.locked() as own:
            return {p for (_, p), held in own.held.items() if held.offerable}

    def batch(self) -> None:
        """Plan the next ten offsets of all that is offered, and give them to the handler."""
        offer = self.agent.offer(self.token)
        held = offer.topics["t"].partitions if "t" in offer.topics else frozenset()
        ranges = {p: (self.ends.get(p, 0), self.ends.get(p, 0) + 10) for p in held}
        with self.agent.shared.locked() as own:
            finished = own.query.stands_at
        self.agent.planned(self.token, offer.asked, finished, {"t": ranges} if ranges else {}, {}, [])
        self.ends.update({p: end for p, (_, end) in ranges.items()})
        plan = self.agent.batch_started()
        if not plan.empty:
            self.handler(None, Batch(plan.ranges))  # type: ignore[arg-type]
        self.agent.batch_done(plan, None)

    def commit(self) -> None:
        with self.agent.shared.locked() as own:
            due = own.due(0.0)
        for offsets in due.values():
            self.agent.committed(offsets)

    def held(self) -> set[int]:
        with self.agent.shared.locked() as own:
            return {p for _, p in own.held}

    def problems(self) -> dict[str, str]:
        return dict(self.agent.view().problems)


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    made = Consumer()
    yield made
    for gate in made.noting.gates.values():
        gate.set()
    made.handler.close()
    assert made.loop.join(10)


def test_handler_knows_before_the_first_record_and_after_the_last(
    consumer: Consumer, eventually: Eventually
) -> None:
    consumer.assign(0, 1)
    eventually(lambda: consumer.offered() == {0, 1}, 10, "offered")
    consumer.batch()
    consumer.assign(1)
    consumer.batch()
    consumer.commit()
    eventually(lambda: consumer.held() == {1}, 10, "closed")
    consumer.batch()
    told = {p: [name for name, held in consumer.noting.calls if p in held] for p in (0, 1)}
    assert told == {0: ["assigned", "batch", "revoked"], 1: ["assigned", "batch", "batch", "batch"]}


def test_partition_is_not_offered_before_the_handler_knows(
    consumer: Consumer, eventually: Eventually
) -> None:
    consumer.noting.gates["assigned"].clear()
    consumer.assign(0)
    eventually(lambda: consumer.noting.calls == [("assigned", [0])], 10, "being told")
    assert consumer.offered() == set()
    assert consumer.agent.view().topics["t"].starting == {0}
    consumer.noting.gates["assigned"].set()
    eventually(lambda: consumer.offered() == {0}, 10, "offered")


def test_partition_is_not_closed_before_the_handler_knows(consumer: Consumer, eventually: Eventually) -> None:
    consumer.assign(0)
    eventually(lambda: consumer.offered() == {0}, 10, "offered")
    consumer.noting.gates["revoked"].clear()
    consumer.assign()
    eventually(lambda: consumer.noting.calls[-1] == ("revoked", [0]), 10, "being told")
    assert consumer.agent.view().topics["t"].closing == {0}
    consumer.noting.gates["revoked"].set()
    eventually(lambda: consumer.held() == set(), 10, "closed")


def test_partition_that_goes_while_it_is_announced_is_withdrawn(
    consumer: Consumer, eventually: Eventually
) -> None:
    consumer.noting.gates["assigned"].clear()
    consumer.assign(0)
    eventually(lambda: consumer.noting.calls == [("assigned", [0])], 10, "being told")
    consumer.assign()
    assert consumer.held() == {0}
    consumer.noting.gates["assigned"].set()
    eventually(lambda: consumer.held() == set(), 10, "closed")
    assert consumer.noting.calls == [("assigned", [0]), ("revoked", [0])]


def test_handler_with_a_batch_is_not_called_for_anything_else(
    consumer: Consumer, eventually: Eventually
) -> None:
    consumer.assign(0)
    eventually(lambda: consumer.offered() == {0}, 10, "offered")
    consumer.noting.gates["batch"].clear()
    batch = threading.Thread(target=consumer.batch, daemon=True)
    batch.start()
    eventually(lambda: consumer.noting.calls[-1] == ("batch", [0]), 10, "a batch")
    consumer.assign(0, 1, standby=(2,))
    # The thread that tells has had its turn at the news when it waits for the handler.
    eventually(consumer.handler._turn.locked, 10, "busy")
    assert consumer.noting.calls[-1] == ("batch", [0])
    assert consumer.offered() <= {0}
    consumer.noting.gates["batch"].set()
    batch.join(10)
    eventually(lambda: consumer.noting.calls[-2:] == [("assigned", [1]), ("standby", [2])], 10, "told")


def test_failing_assigned_is_a_problem_and_called_again(consumer: Consumer, eventually: Eventually) -> None:
    consumer.noting.fail.add("assigned")
    consumer.assign(0)
    eventually(lambda: len(consumer.noting.calls) > 1, 10, "called again")
    assert "OSError: no room" in consumer.problems()["Noting.assigned"]
    assert consumer.offered() == set()
    consumer.noting.fail.clear()
    eventually(lambda: consumer.offered() == {0}, 10, "offered")
    assert consumer.problems() == {}


def test_failing_assigned_and_failing_revoked_hold_up_no_close(
    consumer: Consumer, eventually: Eventually
) -> None:
    consumer.assign(0)
    eventually(lambda: consumer.offered() == {0}, 10, "offered")
    consumer.noting.fail |= {"assigned", "revoked"}
    consumer.assign(0, 1)
    eventually(lambda: "Noting.assigned" in consumer.problems(), 10, "fails")
    consumer.agent.blocks.block(STOPPING)
    eventually(lambda: consumer.held() == set(), 10, "closed")
    assert ("revoked", [0]) in consumer.noting.calls
    assert ("revoked", [1]) not in consumer.noting.calls
    assert "OSError: no room" in consumer.problems()["Noting.revoked"]


def test_standby_is_called_whenever_it_changes(consumer: Consumer, eventually: Eventually) -> None:
    consumer.assign(0, standby=(1, 2))
    eventually(lambda: ("standby", [1, 2]) in consumer.noting.calls, 10, "stands by")
    consumer.assign(0, 1, standby=(2,))
    eventually(lambda: consumer.noting.calls[-2:] == [("assigned", [1]), ("standby", [2])], 10, "one of two")
    consumer.agent.blocks.block(STOPPING)
    eventually(lambda: consumer.held() == set() and ("standby", []) in consumer.noting.calls, 10, "none")


def test_close_is_last(consumer: Consumer, eventually: Eventually) -> None:
    consumer.assign(0)
    eventually(lambda: consumer.offered() == {0}, 10, "offered")
    consumer.agent.blocks.block(STOPPING)
    assert consumer.agent.wait_closed(10)
    consumer.handler.close()
    assert [name for name, _ in consumer.noting.calls][-1] == "close"
    assert ("revoked", [0]) in consumer.noting.calls


def test_each_handler_knows_of_its_own_topics() -> None:
    here, there = Noting(), Noting()
    agent = ClaimingAgent(ME, announces=True, handler_of=lambda topic: int(topic == "u"))
    handler = SerialHandler([here, there], agent)
    loop = Loop("handler", handler.run, 60.0, Ending())
    loop.start()
    here.fail.add("assigned")
    for topic, standby in (("t", 1), ("u", 2)):
        agent.assigned(topic, TopicAssignment("k", "g", {0: ME}, 1, standbys={standby: (ME,)}), 1)
    with agent.shared.locked() as own:
        offerable = {("t", 0): own.held["t", 0], ("u", 0): own.held["u", 0]}
    assert agent.shared.wait_for(lambda _: offerable["u", 0].offerable, 10), (
        "one that raises holds up no other"
    )
    assert not offerable["t", 0].offerable
    handler(None, Batch({("u", 0): (0, 1)}))  # type: ignore[arg-type]
    handler.close()
    assert loop.join(10)
    assert here.calls[0] == ("assigned", [0])
    assert ("standby", [1]) in here.calls
    assert {("assigned", (0,)), ("standby", (2,)), ("batch", (0,))} <= {(n, tuple(p)) for n, p in there.calls}
    assert here.calls[-1] == there.calls[-1] == ("close", [])
    assert ("batch", [0]) not in here.calls


def test_closed_handler_is_not_called(consumer: Consumer, eventually: Eventually) -> None:
    consumer.assign(0, standby=(1,))
    eventually(lambda: ("standby", [1]) in consumer.noting.calls, 10, "stands by")
    with consumer.handler._turn:
        consumer.assign(1, standby=(2,))
        closing = threading.Thread(target=consumer.handler.close)
        closing.start()
        eventually(consumer.handler._stopped.is_set, 10, "closing")
    closing.join(10)
    assert consumer.loop.join(10)
    assert consumer.noting.calls[-1] == ("close", [])
