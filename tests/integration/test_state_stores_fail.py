"""A local store that fails while its partition is read: that stops, is named, and is restored; nothing is lost."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from muster.consumer.state import store as stores
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.kafka_topics import make_topic, produce
from tests.support.only_long import only_long
from tests.support.state_query import begin_at_the_first_record
from tests.support.stateful_consumer import CLUSTER, StatefulConsumer

pytestmark = pytest.mark.timeout(300)

LARGE = {b"large %d" % n: os.urandom(1000) for n in range(2000)}
"""Changes that fit neither a disk nor a map that is full."""


@contextmanager
def full_disk(_data: Path) -> Iterator[None]:
    """No file grows beyond a quarter of a megabyte."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def full_map(_data: Path) -> Iterator[None]:
    """The consumer was started with a map that is too small."""
    yield


@contextmanager
def cut_short(data: Path) -> Iterator[None]:
    """Another program truncates the file."""
    os.truncate(data, data.stat().st_size // 2)
    yield


@pytest.mark.parametrize(
    "harm", [full_disk, pytest.param(full_map, marks=only_long), cut_short], ids=lambda harm: harm.__name__
)
def test_store_that_fails_is_named_and_restored(
    kafka: KafkaSettings,
    group: GroupOffsets,
    tmp_path: Path,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    harm: Callable[[Path], AbstractContextManager[None]],
) -> None:
    topic = make_topic(kafka, 1)
    begin_at_the_first_record(group, topic, 1)
    produce(kafka, topic, 0, 30)
    if harm is full_map:
        monkeypatch.setattr(stores, "MAP_SIZE", 1 << 18)
    one = StatefulConsumer("one", kafka, group, tmp_path)
    one.reads(topic, {0: "one"}, 1)
    eventually(lambda: one.readable(topic), 60, "taken up")
    first = {b"%d" % n: b"x" * 100 for n in range(100)}
    one.batch(topic, 10, first)
    eventually(lambda: one.readable(topic), 60, "committed")
    restored = one.states.take_up
    taken: list[object] = []
    monkeypatch.setattr(one.states, "take_up", lambda *said: taken.append(said) or restored(*said))
    plan = one.plan(topic, 20)
    computed = one.compute(topic, plan, LARGE)
    with harm(tmp_path / CLUSTER / "one" / topic / "0" / "data.mdb"):
        one.done(topic, computed)
        eventually(lambda: group.committed([(topic, 0)])[topic, 0] == 20, 60, "committed in Kafka")
        if harm is cut_short:
            eventually(lambda: one.let_go() or taken, 60, "taken up again")
        else:
            named = f"state {topic} [0]"
            eventually(
                lambda: one.let_go() or f"{tmp_path}" in one.errors().get(named, ""),
                60,
                "named, with its folder",
            )
            assert not one.readable(topic)
    monkeypatch.setattr(stores, "MAP_SIZE", 1 << 36)
    eventually(lambda: one.readable(topic), 60, "restored")
    assert one.state(topic) == {**first, **LARGE}
    one.batch(topic, 30, {b"0": None})
    eventually(lambda: one.readable(topic), 60, "goes on")
    assert one.errors() == {}
    one.close()
