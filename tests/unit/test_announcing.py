"""What a handler that asks to know hears of what its consumer has, and of what it has no more."""

from __future__ import annotations

from muster.core.model import TopicAssignment
from muster.core.ownership import Ownership
from tests.support.claiming import claim

ME = "flights-1"
TP = ("t", 0)


def assign(own: Ownership, mine: set[int], epoch: int) -> None:
    own.read("t", TopicAssignment("kafka:9092", "group", dict.fromkeys(mine, ME), epoch), epoch)


def taken_up() -> Ownership:
    own = Ownership(ME, announces=True)
    own.query.start()
    assign(own, {0}, 1)
    return own


def offered(own: Ownership) -> set[int]:
    topics = own.offer().topics
    return set(topics["t"].partitions) if "t" in topics else set()


def test_partition_is_announced_after_its_claim_and_before_its_offer() -> None:
    own = taken_up()
    assert own.to_announce == {}, "not claimed"
    claim(own)
    announced = own.to_announce
    assert announced.keys() == {TP}
    assert offered(own) == set()
    own.begin_announcing(announced)
    assert own.to_announce == {}, "under way"
    assert offered(own) == set()
    own.announced({TP: announced[TP] + 1})
    assert offered(own) == set(), "of another claim"
    own.announced(announced)
    assert offered(own) == {0}
    assert own.to_announce == {}


def test_partition_is_withdrawn_after_its_last_batch_and_before_it_closes() -> None:
    own = taken_up()
    claim(own)
    announced = own.to_announce
    own.begin_announcing(announced)
    own.announced(announced)
    own.planned(own.offer().asked, {"t": {0: (0, 5)}})
    assert own.to_withdraw == {}
    assign(own, set(), 2)
    assert own.to_withdraw == {}, "the batch is under way"
    own.processed(own.query.batch(), 0.0)
    for due in own.due(0.0).values():
        own.committed(due, 0.0)
    own.planned(own.offer().asked, {})
    assert own.to_withdraw == announced
    own.withdrawn({TP: announced[TP] + 1})
    assert not own.closed, "of another claim"
    own.withdrawn(announced)
    assert own.closed


def test_announcement_under_way_is_withdrawn_when_its_partition_closes() -> None:
    own = taken_up()
    claim(own)
    announced = own.to_announce
    own.begin_announcing(announced)
    assign(own, set(), 2)
    assert own.to_withdraw == announced
    assert not own.closed
    own.withdrawn(announced)
    assert own.closed


def test_closing_partition_is_not_announced() -> None:
    own = taken_up()
    claim(own)
    own.planned(own.offer().asked, {})
    own.block("isolated")
    assert own.to_announce == {}
    assert own.closed
