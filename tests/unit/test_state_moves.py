"""What moves mean for state by key: which are warm, and what a cold one restores."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.copies import ShardCopy, Warmth
from muster.core.model import ConsumerStatus, Move
from muster.core.state_moves import StateMove, state_moves, summary


def says(consumer: str, **copies: ShardCopy) -> ConsumerStatus:
    """Copies of topic t, by `p` and the number of the partition."""
    return ConsumerStatus(consumer, "one", copies={"t": {int(name[1:]): c for name, c in copies.items()}})


def found(target: str, *statuses: ConsumerStatus, topic: str = "t") -> Mapping[tuple[str, int], StateMove]:
    by_name = {status.consumer: status for status in statuses}
    return state_moves([Move(topic, 0, "a", target, "balance")], by_name, lambda name: name == "t")


OWNER = says("a", p0=ShardCopy(1_000_000, 1_000_000, 50_000_000, True, 100_000.0))


def test_warm_target_restores_nothing() -> None:
    move = found("b", OWNER, says("b", p0=ShardCopy(999_000, 1_000_000)))
    assert move == {("t", 0): StateMove(Warmth.WARM)}
    assert str(move["t", 0]) == "warm"
    assert summary(move) == "state: 1 of 1 moves are warm"


def test_cold_target_restores_all_at_the_measured_rate() -> None:
    move = found("b", OWNER)
    assert move == {("t", 0): StateMove(Warmth.COLD, 1_000_000, 50_000_000, 10.0)}
    assert str(move["t", 0]) == "cold: restores at most 1,000,000 records, 50.0 MB, about 10 s"
    assert (
        summary(move)
        == "state: 0 of 1 moves are warm; the others restore at most 1,000,000 records, 50.0 MB, about 10 s"
    )


def test_target_that_warms_up_restores_the_rest_at_its_own_rate() -> None:
    copy = ShardCopy(600_000, 1_000_000, 30_000_000, True, 200_000.0)
    move = found("b", OWNER, says("b", p0=copy))
    assert move == {("t", 0): StateMove(Warmth.WARMING, 400_000, 20_000_000, 2.0)}


def test_unreported_changelog_leaves_it_unknown() -> None:
    assert found("b") == {("t", 0): StateMove(Warmth.COLD)}
    assert str(StateMove(Warmth.COLD)) == "cold"
    assert summary(found("b")) == "state: 0 of 1 moves are warm; the others are cold"


def test_topic_without_state_has_none() -> None:
    assert found("b", OWNER, topic="v") == {}
    assert summary({}) == ""
