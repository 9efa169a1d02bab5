"""What `DeltaSink` does for a table's files beside batches: readers see each record once, whatever is joined."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pytest
from deltalake.exceptions import DeltaError

from muster.sinks import DeltaSink, SinkError, delta_upkeep
from tests.support.database_writer import TOPIC, batch_of
from tests.support.delta_rows import delta_rows

pytestmark = pytest.mark.stack

DAYS = 24 * 3600


@pytest.fixture(autouse=True)
def always_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_upkeep, "EVERY", 0.0)


def write(
    sink: DeltaSink, begin: int, end: int, partitions: tuple[int, ...] = (0, 1), lowest: bool = True
) -> None:
    rows, batch = batch_of(begin, end, partitions)
    sink.store(rows, replace(batch, has_lowest=lambda topic: lowest and topic == TOPIC))


def settle() -> None:
    """Wait until no upkeep is under way."""
    for thread in threading.enumerate():
        if thread.name == "delta-upkeep":
            thread.join()


def table(path: Path) -> Any:
    return deltalake.DeltaTable(str(path))


def done(path: Path, operation: str) -> list[dict[str, Any]]:
    return [commit for commit in table(path).history() if commit["operation"] == operation]


def removed_bytes(commit: dict[str, Any]) -> int:
    return int(json.loads(commit["operationMetrics"]["filesRemoved"])["totalSize"])


def test_owner_of_lowest_partition_joins_files(tmp_path: Path) -> None:
    other, owner = DeltaSink(str(tmp_path)), DeltaSink(str(tmp_path))
    for begin in range(0, 60, 10):
        write(other, begin, begin + 10, lowest=False)
    settle()
    assert len(table(tmp_path).file_uris()) == 6
    write(owner, 60, 70)
    settle()
    assert len(table(tmp_path).file_uris()) <= 2
    assert Counter(delta_rows(tmp_path, "partition", "offset")) == {
        (p, n): 1 for p in (0, 1) for n in range(70)
    }


def test_table_without_upkeep_keeps_its_files(tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path), upkeep=False)
    for begin in range(0, 40, 10):
        write(sink, begin, begin + 10)
    settle()
    assert {commit["operation"] for commit in table(tmp_path).history()} == {"CREATE TABLE", "WRITE"}


def test_commits_join_at_most_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeltaSink(str(tmp_path))
    for begin in range(0, 200, 10):
        write(sink, begin, begin + 10, lowest=False)
    sizes = [Path(uri.removeprefix("file://")).stat().st_size for uri in table(tmp_path).file_uris()]
    monkeypatch.setattr(delta_upkeep, "PIECE", piece := 5 * max(sizes))
    write(sink, 200, 210)
    settle()
    pieces = [removed_bytes(commit) for commit in done(tmp_path, "OPTIMIZE")]
    assert len(pieces) > 2
    assert max(pieces) <= piece


@pytest.mark.parametrize("owners", [{0}, {0, 1}], ids=["one owner", "two owners, as while it moves"])
def test_reader_sees_each_record_once_while_files_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owners: set[int]
) -> None:
    monkeypatch.setattr(delta_upkeep, "PIECE", 8_000)
    write(DeltaSink(str(tmp_path)), 0, 5)
    early = table(tmp_path)

    def consume(partition: int) -> None:
        sink = DeltaSink(str(tmp_path))
        for begin in range(5, 105, 5):
            write(sink, begin, begin + 5, (partition,), lowest=partition in owners)

    consumers = [threading.Thread(target=consume, args=(partition,)) for partition in (0, 1)]
    for consumer in consumers:
        consumer.start()
    before = {0: 5, 1: 5}
    while True:
        last = not any(consumer.is_alive() for consumer in consumers)
        found = Counter(delta_rows(tmp_path, "partition", "offset"))
        ends = {p: sum(1 for partition, _ in found if partition == p) for p in (0, 1)}
        assert found == {(p, n): 1 for p in (0, 1) for n in range(ends[p])}
        assert all(ends[p] >= before[p] for p in (0, 1))
        before = ends
        if last:
            break
    settle()
    assert ends == {0: 105, 1: 105}
    assert len(done(tmp_path, "OPTIMIZE")) > 1
    assert early.to_pyarrow_table().num_rows == 10, "a reader that began before goes on"


def test_upkeep_that_was_overtaken_joins_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sink = DeltaSink(str(tmp_path))
    for begin in range(0, 40, 10):
        write(sink, begin, begin + 10, lowest=False)
    late, newer = (delta_upkeep.Upkeep(str(tmp_path), {}) for _ in range(2))
    join = delta_upkeep.compact

    def overtaken(table: Any) -> None:
        monkeypatch.setattr(delta_upkeep, "compact", join)
        newer.run()
        join(table)

    monkeypatch.setattr(delta_upkeep, "compact", overtaken)
    late.run()
    assert "Metadata changed" in caplog.text
    assert Counter(delta_rows(tmp_path, "partition", "offset")) == {
        (p, n): 1 for p in (0, 1) for n in range(40)
    }
    assert len(done(tmp_path, "OPTIMIZE")) == 1


def test_vacuum_removes_failed_attempts_after_a_week_once_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = DeltaSink(str(tmp_path))
    write(sink, 0, 10, lowest=False)

    def refuse(*_: Any, **__: Any) -> None:
        raise DeltaError("refused")

    attempts = []
    for _ in range(2):
        known = set(tmp_path.glob("*.parquet"))
        with monkeypatch.context() as patch:
            patch.setattr(deltalake.DeltaTable, "create_write_transaction", refuse)
            with pytest.raises(SinkError, match="refused"):
                write(sink, 10, 20, lowest=False)
        attempts += set(tmp_path.glob("*.parquet")) - known
    old, young = attempts
    os.utime(old, (time.time() - 8 * DAYS,) * 2)
    write(sink, 10, 20)
    settle()
    assert (old.exists(), young.exists()) == (False, True)
    os.utime(young, (time.time() - 8 * DAYS,) * 2)
    for upkeep in (sink._upkeep, delta_upkeep.Upkeep(str(tmp_path), {})):
        upkeep.run()
    assert young.exists(), "this process and another one know that it was done today"
    monkeypatch.setattr(delta_upkeep, "VACUUM_EVERY", 0)
    delta_upkeep.Upkeep(str(tmp_path), {}).run()
    assert not young.exists()
    assert len(delta_rows(tmp_path, "offset")) == 40


def test_batches_go_on_where_files_cannot_be_joined(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink = DeltaSink(str(tmp_path))
    write(sink, 0, 10, lowest=False)
    write(sink, 10, 20, lowest=False)
    broken = Path(table(tmp_path).file_uris()[0].removeprefix("file://"))
    broken.write_bytes(b"no Parquet")
    write(sink, 20, 30)
    settle()
    write(sink, 30, 40, lowest=False)
    [said] = [record.message for record in caplog.records if "could not be joined" in record.message]
    assert str(tmp_path) in said
    assert table(tmp_path).transaction_version(f"muster:{TOPIC}:an-id:0") == 40
