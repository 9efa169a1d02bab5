"""The local store of a shard: what it trusts, and what becomes of it when files or processes are harmed."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from muster.consumer.state.errors import StateStoreError
from muster.consumer.state.position import Position
from muster.consumer.state.shards import Shard, States
from muster.consumer.state.store import LONGEST_KEY, Readers, Store
from muster.settings.connections import KafkaSettings

KAFKA = KafkaSettings(config={"bootstrap.servers": "k:1"})


def fill(store: Store, count: int, value: bytes = b"v") -> None:
    mark = store.mark
    changes = [(f"{n:09}".encode(), value) for n in range(count)]
    assert store.apply(changes, mark, replace(mark, upto=mark.upto + 1))


def test_store_comes_back_with_what_it_had(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", "one", 5.0)
    fill(store, 3)
    store.close()
    again = Store(tmp_path / "s", "one", 9.0)
    assert (again.mark.upto, again.mark.current) == (1, 5.0)
    assert len(list(again.reader().scan(b""))) == 3


@pytest.mark.parametrize(("identity", "boot"), [("two", ""), ("one", "another boot")])
def test_store_of_another_identity_or_boot_is_emptied(tmp_path: Path, identity: str, boot: str) -> None:
    store = Store(tmp_path / "s", "one", 5.0)
    fill(store, 3)
    store.close()
    again = Store(tmp_path / "s", identity, 9.0, boot)
    assert (again.mark.upto, again.mark.current) == (0, 9.0)
    assert list(again.reader().scan(b"")) == []


def test_apply_changes_nothing_of_a_store_that_is_further(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", "one", 5.0)
    before = store.mark
    fill(store, 1)
    assert not store.apply([(b"late", b"x")], before, replace(before, upto=7))
    assert store.reader().get(b"late") is None
    assert store.mark.upto == 1


def test_three_hundred_stores_are_open_at_once(tmp_path: Path) -> None:
    with ExitStack() as stack:
        stores = [Store(tmp_path / str(n), str(n), 0.0) for n in range(300)]
        for number, store in enumerate(stores):
            stack.callback(store.close)
            fill(store, 2, str(number).encode())
        assert [store.reader().get(b"000000001") for store in stores] == [str(n).encode() for n in range(300)]


def test_store_cut_short_under_load_fails_by_name(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", "one", 0.0)
    fill(store, 20_000, b"x" * 100)
    data = tmp_path / "s" / "data.mdb"
    os.truncate(data, data.stat().st_size // 2)
    with pytest.raises(StateStoreError, match=r"data\.mdb has \d+ bytes of \d+"):
        store.reader()
    with pytest.raises(StateStoreError, match=r"data\.mdb has \d+ bytes of \d+"):
        store.apply([(b"k", b"v")], replace(Store(tmp_path / "other", "one", 0.0).mark, upto=1), store.mark)
    store.close()
    with pytest.raises(StateStoreError, match=r"data\.mdb has \d+ bytes of \d+"):
        Readers().at(tmp_path / "s")
    assert Store(tmp_path / "s", "one", 1.0).mark.upto == 0


def test_long_keys_are_found_by_their_beginning(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", "one", 0.0)
    mark, start = store.mark, b"p" * (LONGEST_KEY - 10)
    keys = [start + bytes([n]) * 600 for n in range(3)] + [start + b"short", b"q"]
    assert store.apply([(key, key[-3:]) for key in keys], mark, replace(mark, upto=1))
    reader = store.reader()
    assert dict(reader.scan(start)) == {key: key[-3:] for key in keys[:4]}
    assert reader.get_many(keys) == {key: key[-3:] for key in keys}
    assert reader.get(start + bytes([1]) * 599) is None


def test_second_process_of_a_consumer_has_stores_of_its_own(tmp_path: Path) -> None:
    one, two = (States("c", "me", KAFKA, [".*"], tmp_path) for _ in range(2))
    first = one.stores.place()
    assert two.stores.place() != first
    one.stores.release()
    three = States("c", "me", KAFKA, [".*"], tmp_path)
    assert three.stores.place() == first


def test_stores_that_nothing_used_for_long_are_removed(tmp_path: Path) -> None:
    states = States("c", "me", KAFKA, [".*"], tmp_path)
    place = states.stores.place()
    for name, age in (("0", 8 * 86_400), ("1", 6 * 86_400)):
        Store(place / "t" / name, name, 0.0).close()
        data = place / "t" / name / "data.mdb"
        os.utime(data, (data.stat().st_mtime - age,) * 2)
    states.stores.release()
    stores = States("c", "me", KAFKA, [".*"], tmp_path).stores
    stores.tidy()
    assert len(list((place / "t").iterdir())) == 2, "the folder is not taken yet"
    stores.place()
    stores.tidy()
    assert [path.name for path in (place / "t").iterdir()] == ["1"]


def test_keys_below_a_rebuild_are_found_by_their_whole_names(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", "one", 5.0)
    old, new = [b"\x01a", b"\x01" + b"b" * LONGEST_KEY], [b"\x02a"]
    changes = [(key, b"v") for key in (*old, *new, b"\x00position")]
    assert store.apply(changes, store.mark, store.mark)
    assert store.reader().below(b"\x02", 10) == old
    assert store.reader().below(b"\x02", 1) == old[:1]
    assert store.reader().highest() == b"\x02a"
    assert Store(tmp_path / "other", "one", 5.0).reader().highest() == b""


def test_open_store_is_neither_opened_nor_emptied(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", "one", 5.0)
    fill(store, 3)
    with pytest.raises(StateStoreError, match="is open in this process"):
        Store(tmp_path / "s", "one", 9.0)
    assert store.mark.upto == 1
    assert len(list(store.reader().scan(b""))) == 3


def test_keep_leaves_a_shard_that_is_taken_up(tmp_path: Path) -> None:
    states = States("c", "me", KAFKA, folder=tmp_path)
    store, _ = states.stores.open(("t", 0), ("id",), 0)
    states._shards["t", 0] = Shard(1, "c-t", store, store.mark, Position({}), 1)
    with states.stores.opening(("t", 0)):
        states.keep({})
        assert states.stores.is_open(("t", 0)), "who takes it up closes it, in the order of the lock"
    states.keep({})
    assert not states.stores.is_open(("t", 0))


def test_store_file_holds_nothing_of_the_heap(tmp_path: Path) -> None:
    """What the process has in its memory, such as a password, gets into no file."""
    secret = b"what the heap had"
    store = Store(tmp_path, "x", 0.0)
    for size in (1000, 4000, 4090, 8192):
        del [bytes(bytearray(secret * (size // len(secret)))) for _ in range(200)][:]
    mark = store.mark
    for n in range(20):
        after = replace(mark, upto=n + 1)
        assert store.apply([(b"key %d" % n, b"value")], mark, after)
        mark = after
    store.close()
    assert secret not in (tmp_path / "data.mdb").read_bytes()
