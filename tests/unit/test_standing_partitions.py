"""How the test week finds what stands still, and whether it is named."""

from __future__ import annotations

import json

from tests.week.clock import NAMED_WITHIN, STUCK_AFTER
from tests.week.oracle import Key, Oracle

KEY = "c", "t", 0
LONG_AFTER = STUCK_AFTER + NAMED_WITHIN + 1


def status(*topics: str) -> str:
    """What `muster status --json` prints where partition 0 of these topics is waited for."""
    waiting = [{"topic": topic, "partitions": [0]} for topic in topics]
    return json.dumps({"waiting": waiting, "doubt": "", "left_alone": {}})


def look(oracle: Oracle, committed: int, now: float) -> None:
    oracle.ends, oracle.committed = {KEY: 99}, {KEY: committed}
    oracle._judge(now)


def oracle_of(told: str, excused: frozenset[Key] = frozenset()) -> Oracle:
    """No server is asked."""
    return Oracle("127.0.0.1:1", {"c": "g"}, lambda _: {"t": 1}, lambda key: key in excused, lambda _: told)


def test_partition_that_stands_twice_is_judged_twice() -> None:
    oracle = oracle_of(status("t"))
    for now, committed in ((0.0, 3), (LONG_AFTER, 3), (LONG_AFTER + 1, 3), (100.0, 5), (100 + LONG_AFTER, 5)):
        look(oracle, committed, now)
    assert [standing.committed for standing in oracle.named] == [3, 5]
    assert oracle.unnamed == []


def test_standing_partition_without_a_name_is_unnamed() -> None:
    oracle = oracle_of(status("another"))
    look(oracle, 3, 0.0)
    look(oracle, 3, LONG_AFTER)
    assert [standing.key for standing, _ in oracle.unnamed] == [KEY]


def test_moving_or_excused_partition_is_not_judged() -> None:
    oracle, excused = oracle_of(status()), oracle_of(status(), frozenset({KEY}))
    for second in range(int(3 * LONG_AFTER)):
        look(oracle, second // 10, float(second))
        look(excused, 3, float(second))
    assert oracle.unnamed == excused.unnamed == []
