"""The stores of executors on other hosts, with a real Kafka: each is brought to where its batch was planned."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from muster.consumer.state import executor
from muster.consumer.state.errors import StateStoreError
from muster.consumer.state.executor import Brought, Planned, planned_reader
from muster.consumer.state.store import Store, mark_of
from muster.consumer.state.stores import OLDEST
from muster.core.model import Seek, SeekState
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.kafka_topics import make_topic, produce
from tests.support.settings_server import giving
from tests.support.state_query import begin_at_the_first_record
from tests.support.stateful_consumer import StatefulConsumer

pytestmark = pytest.mark.timeout(300)

MANY = {b"key %d" % n: b"value" for n in range(3000)}


class World:
    """A consumer with a shard, and executors that compute it."""

    def __init__(
        self, kafka: KafkaSettings, topic: str, one: StatefulConsumer, eventually: Eventually
    ) -> None:
        self.kafka, self.topic, self.one, self._eventually = kafka, topic, one, eventually
        self.upto = 0

    @property
    def tp(self) -> tuple[str, int]:
        return self.topic, 0

    def commit(self, changes: dict[bytes, bytes | None]) -> None:
        self.upto += 1
        self.one.batch(self.topic, self.upto, changes)
        self._eventually(lambda: self.one.readable(self.topic), 60, "committed")

    def planned(self) -> Planned:
        """What a batch would be planned at now."""
        found = self.one.states.view(self.tp, {}).planned
        assert found is not None
        return found

    def has(self, folder: Path, planned: Planned) -> tuple[dict[bytes, bytes], Brought]:
        """What the executor with this folder computes with."""
        with in_executor(folder, self.kafka), planned_reader(self.tp, planned) as (reader, brought):
            mark = reader.mark
            assert replace(mark, boot="", current=0.0) == replace(planned.mark, current=0.0)
            prefix = self.one.states._shards[self.tp].position.prefix
            return {key[4:]: value for key, value in reader.scan(prefix)}, brought

    def store(self, folder: Path) -> Path:
        return folder / executor.FOLDER / self.topic / "0"


@contextmanager
def in_executor(folder: Path, kafka: KafkaSettings) -> Iterator[None]:
    """Be a Python process of an executor."""
    with pytest.MonkeyPatch.context() as patch, giving(folder / executor.FOLDER, kafka):
        patch.setenv("SPARK_LOCAL_DIRS", f"{folder},/elsewhere")
        yield


@pytest.fixture
def world(
    kafka: KafkaSettings, group: GroupOffsets, tmp_path: Path, eventually: Eventually
) -> Iterator[World]:
    topic = make_topic(kafka, 1)
    begin_at_the_first_record(group, topic, 1)
    produce(kafka, topic, 0, 100)
    one = StatefulConsumer("one", kafka, group, tmp_path / "driver")
    one.reads(topic, {0: "one"}, 1)
    eventually(lambda: one.readable(topic), 60, "taken up")
    yield World(kafka, topic, one, eventually)
    one.close()


def test_executors_store_follows_the_commits(world: World, tmp_path: Path) -> None:
    first = world.planned()
    assert world.has(tmp_path, first) == ({}, Brought(brought_by(), first.mark.upto, True))
    assert world.one.states.status()[world.tp].executor == ""
    world.one.states.brought(world.tp, Brought(brought_by(), first.mark.upto, True))
    assert world.one.states.status()[world.tp].executor == brought_by()
    world.commit(dict(MANY))
    found, brought = world.has(tmp_path, world.planned())
    assert found == MANY
    assert (brought.offsets, brought.restored) == (len(MANY) + 2, False)
    for n in range(5):
        world.commit({b"key %d" % n: None, b"more %d" % n: b"1"})
        before = time.monotonic()
        found, brought = world.has(tmp_path, world.planned())
        print(f"brought on in {time.monotonic() - before:.3f} s")
        assert found == world.one.state(world.topic)
        assert (brought.offsets, brought.restored) == (4, False)
    again, brought = world.has(tmp_path, world.planned())
    assert (again, brought.offsets) == (found, 0), "a second attempt reads nothing"
    other, brought = world.has(tmp_path / "other", world.planned())
    assert (other, brought.restored) == (found, True)


def brought_by() -> str:
    return f"7 on {executor.socket.gethostname()}"


def test_plan_that_the_changelog_passed_is_refused(world: World, tmp_path: Path) -> None:
    world.commit({b"a": b"1"})
    old = world.planned()
    assert world.has(tmp_path, old)[0] == {b"a": b"1"}
    world.commit({b"a": b"2"})
    new = world.planned()
    assert world.has(tmp_path, new)[0] == {b"a": b"2"}
    before = mark_of(world.store(tmp_path))
    for folder in (tmp_path, tmp_path / "other"):
        with pytest.raises(StateStoreError, match="planned before the last commit"):
            world.has(folder, old)
    assert mark_of(world.store(tmp_path)) == before, "the store stays where it is"


def brought_on(folder: Path, kafka: KafkaSettings, tp: tuple[str, int], planned: Planned) -> int:
    """Be another process of the executor; returns where it has brought the store."""
    with in_executor(folder, kafka), planned_reader(tp, planned) as (reader, _):
        return reader.mark.upto


def test_attempt_reads_on_while_its_store_moves(world: World, tmp_path: Path) -> None:
    world.commit({b"a": b"1"})
    with in_executor(tmp_path, world.kafka), planned_reader(world.tp, world.planned()) as (reader, _):
        world.commit({b"a": b"2"})
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            asked = pool.submit(brought_on, tmp_path, world.kafka, world.tp, world.planned())
            assert asked.result(120) == world.planned().mark.upto
        prefix = world.one.states._shards[world.tp].position.prefix
        assert dict(reader.scan(prefix)) == {prefix + b"a": b"1"}


def ahead(store: Store) -> None:
    mark = store.mark
    store.apply([(b"lost", b"1")], mark, replace(mark, upto=mark.upto + 5, seq=mark.seq + 1))


def of_another_history(store: Store) -> None:
    mark = store.mark
    store.apply([(b"lost", b"1")], mark, replace(mark, history="another"))


def of_another_commit(store: Store) -> None:
    mark = store.mark
    store.apply([(b"lost", b"1")], mark, replace(mark, seq=mark.seq + 7))


def too_old(store: Store) -> None:
    mark = store.mark
    current = mark.current - OLDEST - 60
    store.apply([(b"lost", b"1")], mark, replace(mark, upto=mark.upto - 2, current=current))


def begun_long_ago(store: Store) -> None:
    store.clear(store.mark.current - OLDEST - 60)


def torn(store: Store) -> None:
    os.truncate(store.folder / "data.mdb", 4096)


def of_another_boot(store: Store) -> None:
    mark = store.mark
    store.apply([], mark, replace(mark, boot="another"))


@pytest.mark.parametrize(
    "harm",
    [ahead, of_another_history, of_another_commit, too_old, begun_long_ago, torn, of_another_boot],
    ids=lambda harm: harm.__name__,
)
def test_store_outside_the_changelog_is_restored(
    world: World, tmp_path: Path, harm: Callable[[Store], None]
) -> None:
    world.commit(dict(MANY))
    planned = world.planned()
    world.has(tmp_path, planned)
    store = Store(world.store(tmp_path), planned.mark.identity, time.time())
    harm(store)
    store.close()
    found, brought = world.has(tmp_path, planned)
    assert (found, brought.restored) == (MANY, True)


def test_stores_are_restored_after_a_seek(world: World, tmp_path: Path, eventually: Eventually) -> None:
    one, topic = world.one, world.topic
    world.commit(dict(MANY))
    world.has(tmp_path, world.planned())
    seek = Seek("s1", 0, state=SeekState.AGAIN)
    one.reads(topic, {0: "one"}, 2, {0: seek})
    one.agent.batch_done(one.plan(topic, 0, seek), None)
    eventually(lambda: one.states._shards[world.tp].position.history == "s1", 60, "sought")
    found, brought = world.has(tmp_path, world.planned())
    assert (found, brought.restored) == (MANY, True)


def test_store_of_another_task_is_waited_for(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "LONGEST_WAIT", 0.2)
    world.commit({b"a": b"1"})
    world.has(tmp_path, world.planned())
    with (world.store(tmp_path).parent / "0.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StateStoreError, match="another task"):
            world.has(tmp_path, world.planned())
    assert world.has(tmp_path, world.planned())[0] == {b"a": b"1"}


def test_failures_on_the_way_keep_their_class(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit({b"a": b"1"})
    planned = world.planned()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    with pytest.raises(StateStoreError, match="not persisted"), planned_reader(world.tp, planned):
        pass
    short = world.kafka.model_copy(update={"operation_timeout": 1.0})
    with in_executor(tmp_path, short):
        away = replace(planned, servers="127.0.0.1:1")
        with pytest.raises(StateStoreError, match=r"127\.0\.0\.1:1"), planned_reader(world.tp, away):
            pass
        later = replace(planned, mark=replace(planned.mark, upto=planned.mark.upto + 10))
        with pytest.raises(StateStoreError, match="nothing came for 1 s"), planned_reader(world.tp, later):
            pass
    assert world.has(tmp_path, planned)[0] == {b"a": b"1"}


def test_unused_stores_of_an_executor_are_removed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit({b"a": b"1"})
    world.has(tmp_path, world.planned())
    gone = tmp_path / executor.FOLDER / "gone" / "3"
    for folder, age in ((gone, OLDEST + 60), (gone.with_name("4"), OLDEST - 60)):
        Store(folder, "x", 0.0).close()
        at = time.time() - age
        os.utime(folder / "data.mdb", (at, at))
    monkeypatch.setattr(executor._process, "tidied", float("-inf"))
    world.has(tmp_path, world.planned())
    assert not gone.exists()
    assert gone.with_name("4").exists()
