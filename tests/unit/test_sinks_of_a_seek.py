"""What the preview of a seek says about sinks, by what their consumers report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from muster.commands.actions.sinks import Effect
from muster.commands.target import Target
from muster.core.model import Consumer, ConsumerStatus, Membership, Stored, TopicAssignment, TopicStatus
from muster.core.wire import parse_status
from muster.edges.consul import Members
from muster.edges.status import StatusFailure, StatusResult
from muster.settings.cluster_settings import ClusterSettings

AT = 1_764_065_000.0
T0, T1, T2, T3 = (("t", n) for n in range(4))
DELTA, TABLE = "Delta table /x", "table y"
KNOWN = {
    T0: {DELTA: Stored(((0, 10), (20, 50)), 0, AT), TABLE: Stored(((45, 50),), 3, AT + 5)},
    T1: {DELTA: Stored(((0, 30),), 0, AT - 60)},
    T2: {},
    T3: "its owner c does not answer (refused)",
}
BEGINS = {T0: 5, T1: 40, T2: 0, T3: 0}


def test_sinks_leave_out_what_they_have() -> None:
    effect = Effect(BEGINS, KNOWN)
    assert [effect.of(tp) for tp in KNOWN] == [
        "; Delta table /x leaves out 35 of them; table y leaves out at least 5 of them",
        "; Delta table /x leaves out 0 of them",
        "",
        "",
    ]
    assert list(effect.summary()) == [
        "Delta table /x leaves out 35 record(s), by what it had at 2025-11-25T10:02:20.000+00:00",
        "table y leaves out at least 5 record(s), by what it had at 2025-11-25T10:03:25.000+00:00",
        "topic t, partition(s) 2: no sink known",
        "topic t, partition(s) 3: what sinks have is unknown: its owner c does not answer (refused)",
    ]


def test_rebuild_writes_them_again() -> None:
    effect = Effect(BEGINS, KNOWN, rebuild=True)
    assert effect.of(T1) == "; Delta table /x has 0 of them and writes them again"
    first, *_ = effect.summary()
    assert first.startswith(
        "Delta table /x has 35 of these record(s) and writes them again, by what it had at "
    )
    assert first.endswith("; delete them there first, or they stand twice")
    (empty,) = Effect({T1: 40}, {T1: KNOWN[T1]}, rebuild=True).summary()
    assert "twice" not in empty


class Catalog:
    """Consul, with one live consumer."""

    def __init__(self, *live: str) -> None:
        self.catalog = self
        self._live = {name: Consumer(name, "127.0.0.1", 1) for name in live}

    def members(self) -> Members:
        return Members(Membership(self._live), {})


def stored(answer: TopicStatus | str, owners: Mapping[int, str]) -> object:
    def poll(consumers: Iterable[Consumer], _: float, **__: Any) -> Mapping[str, StatusResult]:
        return {
            each.id: StatusFailure(each.id, answer)
            if isinstance(answer, str)
            else ConsumerStatus(each.id, "i", topics={"t": answer})
            for each in consumers
        }

    cluster = ClusterSettings.model_validate(
        {
            "name": "c",
            "consul_service": "c",
            "group_id": "g",
            "topics": ["t"],
            "consumers": {"handler": "a.b"},
        }
    )
    target = Target(cluster, Catalog("a"), None, poll=poll)  # type: ignore[arg-type]
    return target.stored({T0: TopicAssignment("k:9092", "g", owners)})[T0]


@pytest.mark.parametrize(
    ("answer", "owners", "expected"),
    [
        (TopicStatus(stored={0: KNOWN[T1]}), {0: "a"}, KNOWN[T1]),
        (TopicStatus(stored={0: {}}), {0: "a"}, {}),
        (TopicStatus(), {0: "a"}, "its owner a has had no batch of it yet"),
        ("it was silent", {0: "a"}, "its owner a does not answer (it was silent)"),
        (TopicStatus(), {0: "b"}, "its owner b is not live"),
        (TopicStatus(), {}, "no consumer has it"),
    ],
)
def test_owner_says_what_sinks_have(
    answer: TopicStatus | str, owners: dict[int, str], expected: object
) -> None:
    assert stored(answer, owners) == expected


def test_stored_ranges_of_a_status_are_read_leniently() -> None:
    right = '{"ranges":[[0,10],[20,30]],"more":2,"at":"1970-01-12T13:46:40+00:00"}'
    wrong = (
        '{"ranges":[[10,0]],"more":0,"at":"1970-01-12T13:46:40+00:00"}',
        '{"ranges":[[0]],"more":0,"at":"1970-01-12T13:46:40+00:00"}',
        '{"ranges":[],"more":0}',
        '{"more":0}',
        "7",
    )
    entries = [f'"0":{{"s":{right}}}', '"1":{}', *(f'"{n}":{{"s":{bad}}}' for n, bad in enumerate(wrong, 2))]
    topic = f'{{"running":[0],"starting":[],"closing":[],"stored":{{{",".join(entries)}}}}}'
    answer = parse_status(f'{{"consumer":"a","incarnation":"1","topics":{{"t":{topic}}}}}'.encode(), "u")
    assert answer.on("t").stored == {0: {"s": Stored(((0, 10), (20, 30)), 2, 1_000_000.0)}, 1: {}}
