"""The history of a cluster in a real ZooKeeper."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from kazoo.client import KazooClient

from muster.core.history import CommandEntry, Transitions, Unreadable, history_path
from muster.core.model import Move, State, TopicSnapshot, TopicState, Transition
from muster.edges import zookeeper_history, zookeeper_transitions
from muster.edges.zookeeper import TopicStore
from muster.settings.connections import ZooKeeperSettings


@pytest.fixture
def store(zookeeper: ZooKeeperSettings, cluster: str) -> Iterator[TopicStore]:
    with TopicStore(zookeeper, cluster, by="dag run-1") as opened:
        yield opened


def topics(store: TopicStore, count: int, partitions: int = 2) -> dict[str, TopicSnapshot]:
    for number in range(count):
        store.create_topic(f"t{number}", "h:1", "g")
        store.set_partitions(f"t{number}", frozenset(range(partitions)))
    found = store.snapshots()
    assert all(isinstance(read, TopicSnapshot) for read in found.values())
    return {topic: read for topic, read in found.items() if isinstance(read, TopicSnapshot)}


def start(before: TopicSnapshot, owner: str = "a") -> Transition:
    assert before.assignment is not None
    partitions = sorted(before.partitions)
    return Transition(
        before,
        replace(before.assignment, owners=dict.fromkeys(partitions, owner), epoch=1),
        TopicState(
            State.STARTING, {owner: before.partitions}, epoch=1, since=time.time(), reason="first assignment"
        ),
        tuple(Move(before.topic, p, None, owner, "first assignment") for p in partitions),
    )


def told(store: TopicStore) -> list[list[str]]:
    """The topics of each entry, oldest first."""
    entries = [record.entry for record in reversed(store.history(limit=1000).records)]
    return [[step.topic for step in entry.steps] for entry in entries if isinstance(entry, Transitions)]


def test_history_has_each_write_with_moves_and_author(store: TopicStore) -> None:
    before = topics(store, 3)
    began = time.time()
    assert store.apply([start(snapshot) for snapshot in before.values()]) == [True] * 3
    [record] = store.history().records
    assert isinstance(record.entry, Transitions)
    assert record.entry.by == "dag run-1"
    assert began - 0.01 <= record.entry.at <= time.time()
    assert [step.topic for step in record.entry.steps] == ["t0", "t1", "t2"]
    step = record.entry.steps[1]
    assert (step.before, step.after, step.moved) == (State.INITIAL, State.STARTING, 2)
    assert step.moves == (
        Move("t1", 0, None, "a", "first assignment"),
        Move("t1", 1, None, "a", "first assignment"),
    )


def test_history_leaves_out_a_write_that_conflicted(store: TopicStore) -> None:
    before = topics(store, 3)
    assert store.apply([start(before["t1"])]) == [True]
    assert store.apply([start(snapshot, "b") for snapshot in before.values()]) == [True, False, True]
    assert told(store) == [["t1"], ["t0"], ["t2"]]


def test_thousand_topics_are_written_with_history_in_few_multis(store: TopicStore) -> None:
    before = topics(store, 2, partitions=100)
    # As many topics as fit into the largest multi, each with all its moves to tell.
    write = zookeeper_transitions._write(
        store.cluster, start(before["t0"], "consumer-with-a-name"), time.time()
    )
    many = zookeeper_transitions.BYTES_AT_ONCE // write.size
    names = [f"m{number}" for number in range(2 * many)]
    for name in names:
        store.create_topic(name, "h:1", "g")
    read = store.snapshots()
    steps = []
    for name in names:
        snapshot = read[name]
        assert isinstance(snapshot, TopicSnapshot)
        steps.append(start(replace(snapshot, partitions=frozenset(range(100))), "consumer-with-a-name"))
    assert store.apply(steps) == [True] * len(names)
    entries = told(store)
    assert len(entries) <= 4
    assert [topic for entry in entries for topic in entry] == names


def test_pages_newest_first_and_only_since(store: TopicStore, raw: KazooClient, cluster: str) -> None:
    levers = [CommandEntry(1_000.0 + n, "ann", "isolate", f"reason {n}", details={"n": n}) for n in range(5)]
    numbers = [store.append_history(lever) for lever in levers]
    assert numbers == sorted(set(numbers))
    first = store.history(limit=2)
    assert [record.entry for record in first.records] == [levers[4], levers[3]]
    second = store.history(limit=2, before=first.before)
    third = store.history(limit=2, before=second.before)
    assert [record.entry for page in (second, third) for record in page.records] == levers[2::-1]
    assert third.before is None
    middle = next(r.written for r in store.history().records if r.number == numbers[2])
    found = [record.number for record in store.history(since=middle).records]
    assert set(numbers[3:]) <= set(found)
    assert not store.history(since=time.time() + 60).records
    # Whoever only looks sees the same.
    with TopicStore(store._session.settings, cluster, read_only=True) as looking:
        assert looking.history(limit=2) == first


def test_malformed_entry_does_not_hide_the_others(store: TopicStore, raw: KazooClient, cluster: str) -> None:
    store.append_history(CommandEntry(1.0, "ann", "pin", "r"))
    raw.create(f"{history_path(cluster)}/entry-", b"rubbish", sequence=True)
    raw.create(f"{history_path(cluster)}/notes", b"of somebody")
    store.append_history(CommandEntry(2.0, "ann", "unpin", "r"))
    newest, rubbish, oldest = store.history().records
    assert isinstance(rubbish.entry, Unreadable)
    assert "rubbish" in rubbish.entry.problem
    assert [r.entry.what for r in (newest, oldest) if isinstance(r.entry, CommandEntry)] == ["unpin", "pin"]
    assert store.prune_history(keep_seconds=0.0, keep_entries=0, keep_bytes=0) == 3
    assert raw.get_children(history_path(cluster)) == ["notes"]


def test_missing_history_is_empty_and_made_by_a_lever(zookeeper: ZooKeeperSettings, cluster: str) -> None:
    with TopicStore(zookeeper, cluster, read_only=True) as store:
        assert not store.history().records
        assert store.prune_history(keep_seconds=1, keep_entries=1, keep_bytes=1) == 0
        store.append_history(CommandEntry(1.0, "ann", "pause", "release"))
        assert len(store.history().records) == 1


def test_pruning_keeps_the_newest_by_age_number_and_size(
    store: TopicStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_history, "PRUNED_AT_ONCE", 3)  # several rounds of it
    monkeypatch.setattr(zookeeper_history, "READ_AT_ONCE", 3)
    plenty = {"keep_seconds": 3600.0, "keep_entries": 1000, "keep_bytes": 10**9}

    def appended(count: int) -> list[int]:
        return [store.append_history(CommandEntry(1.0, "ann", "pin", "r")) for _ in range(count)]

    def numbers() -> list[int]:
        return [record.number for record in store.history().records]

    made = appended(12)
    monkeypatch.setattr(zookeeper_history, "PRUNED_AT_MOST", 2)  # in bounded steps, the oldest first
    assert store.prune_history(**plenty | {"keep_entries": 7}) == 2  # type: ignore[arg-type]
    assert numbers() == made[:1:-1]
    made = made[2:]
    monkeypatch.setattr(zookeeper_history, "PRUNED_AT_MOST", 100)
    assert store.prune_history(**plenty) == 0  # type: ignore[arg-type]
    assert store.prune_history(**plenty | {"keep_entries": 7}) == 3  # type: ignore[arg-type]
    assert numbers() == made[:2:-1]
    size = len(zookeeper_history.format_entry(CommandEntry(1.0, "ann", "pin", "r")))
    assert store.prune_history(**plenty | {"keep_bytes": 4 * size}) == 3  # type: ignore[arg-type]
    assert numbers() == made[:5:-1]
    operation = store._session.begin()
    later = time.time() + 4000
    arguments = {"keep_seconds": 3600.0, "keep_entries": 1000, "keep_bytes": 10**9, "now": later}
    assert zookeeper_history.prune_history(operation, store.cluster, **arguments) == 4  # type: ignore[arg-type]
    assert not numbers()
