"""Consumers on a real Kafka with a real sink: one stands still at a step, another one rebuilds its partition."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import psycopg
import pytest

from devstack.postgresql import PostgreSQL
from muster.core.positions import Note, noted
from muster.edges.kafka import GroupOffsets, KafkaError
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.database_writer import OFFSETS_TABLE, TABLE
from tests.support.delta_rows import delta_rows
from tests.support.kafka_topics import make_topic, produce
from tests.support.only_long import only_long
from tests.support.sinking_consumer import (
    AFTER,
    AFTER_REBUILD,
    AFTER_SINK,
    BEFORE,
    BEFORE_REBUILD,
    BEFORE_SINK,
    PLANNED,
)

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]


class DeltaRows:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = {"delta": str(path)}

    def offsets(self) -> Counter[int]:
        return Counter(int(offset) for (offset,) in delta_rows(self.path, "offset"))  # type: ignore[call-overload]

    def clear(self) -> None:
        deltalake.DeltaTable(str(self.path)).delete()


class DatabaseRows:
    def __init__(self, conninfo: str) -> None:
        self.config = {"conninfo": conninfo}
        self._conninfo = conninfo

    def offsets(self) -> Counter[int]:
        with psycopg.connect(self._conninfo) as connection:
            return Counter(offset for (offset,) in connection.execute('SELECT "offset" FROM numbers'))

    def clear(self) -> None:
        with psycopg.connect(self._conninfo) as connection:
            connection.execute("DELETE FROM numbers")


@pytest.fixture(params=["delta", pytest.param("database", marks=only_long)])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DeltaRows | DatabaseRows]:
    if request.param == "delta":
        yield DeltaRows(tmp_path / "table")
        return
    server: PostgreSQL = request.getfixturevalue("postgresql_server")
    name, url = f"d{uuid.uuid4().hex[:8]}", server.url("postgresql")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    conninfo = f"{url.rpartition('/')[0]}/{name}"
    with psycopg.connect(conninfo) as connection:
        connection.execute(TABLE)
        connection.execute(OFFSETS_TABLE)
    yield DatabaseRows(conninfo)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


class SinkingConsumer:
    """A process of `tests.support.sinking_consumer`."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.sinking_consumer", json.dumps(config)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    def tell(self, **said: object) -> None:
        assert self.process.stdin is not None
        print(json.dumps(said), file=self.process.stdin, flush=True)

    def wait_stopped(self) -> None:
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), self.lines

    def was_told(self, what: str) -> bool:
        return any(line.startswith(what) for line in self.lines)

    def finish(self) -> int:
        """Have it end by itself, between two batches; returns its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(60)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class RebuiltTopic:
    """A topic of one partition, its consumers, and what becomes of it."""

    def __init__(self, kafka: KafkaSettings, table: DeltaRows | DatabaseRows, eventually: Eventually) -> None:
        self.kafka, self.table, self.eventually = kafka, table, eventually
        self.topic, self.produced = make_topic(kafka, 1), 0
        self.group = GroupOffsets(kafka, f"g-{uuid.uuid4().hex[:8]}")
        self.topic_id = self.group.topic_ids([self.topic])[self.topic]
        self.consumers: list[SinkingConsumer] = []

    def start(self) -> SinkingConsumer:
        """The next owner, who is given the partition with the next epoch."""
        epoch = len(self.consumers) + 1
        where = {"servers": self.kafka.bootstrap_servers, "group": self.group.group_id, "topic": self.topic}
        more = {"name": f"consumer-{epoch}", "epoch": epoch, "topic_id": self.topic_id}
        self.consumers.append(SinkingConsumer({**where, **more, **self.table.config}))
        return self.consumers[-1]

    def produce(self, count: int) -> None:
        produce(self.kafka, self.topic, 0, count)
        self.produced += count

    def until_committed(self, rebuild: int) -> None:
        """Wait until all is committed under this number, and stands in the table once."""
        self.eventually(lambda: self.committed() == (self.produced, rebuild), 60, f"committed, {rebuild}")
        assert self.table.offsets() == dict.fromkeys(range(self.produced), 1)

    def committed(self) -> tuple[int, int] | None:
        try:
            there = self.group.positions([(self.topic, 0)])[self.topic, 0]
        except KafkaError:
            return None
        return None if there is None else (there.offset, noted(there, self.topic_id).rebuild)

    def close(self) -> None:
        for each in self.consumers:
            each.end()
        self.group.close()


@pytest.fixture
def world(
    kafka: KafkaSettings, table: DeltaRows | DatabaseRows, eventually: Eventually
) -> Iterator[RebuiltTopic]:
    made = RebuiltTopic(kafka, table, eventually)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("step", "end"),
    [
        pytest.param(PLANNED, "SinkError: ", marks=only_long),
        (BEFORE_SINK, "SinkError: "),
        *(pytest.param(step, "refused", marks=only_long) for step in (AFTER_SINK, BEFORE)),
        (AFTER, "SinkError: "),
    ],
)
@pytest.mark.parametrize("table", ["delta", "database"], indirect=True)
def test_owner_frozen_before_a_rebuild_writes_nothing_when_it_thaws(
    world: RebuiltTopic, step: str, end: str
) -> None:
    older = world.start()
    world.produce(10)
    world.until_committed(0)
    older.tell(stop=step)
    world.eventually(lambda: older.was_told("stops"), 30, "it heard where to stop")
    world.produce(10)
    older.wait_stopped()
    world.table.clear()
    newer = world.start()
    newer.tell(seek=["s1", 0, 7])
    world.until_committed(7)
    older.process.send_signal(signal.SIGCONT)
    world.produce(5)
    world.eventually(lambda: older.was_told(end), 60, end)
    world.until_committed(7)
    assert not newer.lines


@pytest.mark.parametrize(
    "step",
    [
        *(pytest.param(step, marks=only_long) for step in (BEFORE_REBUILD, PLANNED, AFTER_SINK)),
        AFTER_REBUILD,
        BEFORE_SINK,
    ],
)
def test_owner_frozen_while_it_rebuilds_is_followed_under_its_number(world: RebuiltTopic, step: str) -> None:
    older = world.start()
    world.produce(10)
    world.until_committed(0)
    world.table.clear()
    older.tell(stop=step)
    world.eventually(lambda: older.was_told("stops"), 30, "it heard where to stop")
    older.tell(seek=["s1", 0, 7])
    older.wait_stopped()
    newer = world.start()
    newer.tell(seek=["s1", 0, 7])
    world.until_committed(7)
    older.process.send_signal(signal.SIGCONT)
    world.produce(5)
    world.eventually(lambda: older.was_told("refused"), 60, "its commit is refused")
    world.until_committed(7)
    assert not newer.lines


def test_next_rebuild_has_a_higher_number_whatever_the_clock_says(world: RebuiltTopic) -> None:
    world.produce(10)
    first = world.start()
    first.tell(seek=["s1", 0, 7])
    world.until_committed(7)
    world.table.clear()
    second = world.start()
    second.tell(seek=["s2", 0, 3])
    world.until_committed(8)
    third = world.start()
    third.tell(seek=["s3", 0, 0])
    world.produce(5)
    world.until_committed(8)
    assert not third.lines, "a seek without a rebuild leaves the number"


@pytest.mark.parametrize("cleared", [False, True])
def test_rebuild_after_an_orderly_end_doubles_nothing(world: RebuiltTopic, cleared: bool) -> None:
    """The next owner begins it where the partition stands, or at the first record of a table that was cleared."""
    world.produce(10)
    first = world.start()
    first.tell(seek=["s1", 0, 7])
    world.until_committed(7)
    world.produce(5)
    world.until_committed(7)
    assert first.finish() == 0
    if cleared:
        world.table.clear()
    second = world.start()
    second.tell(seek=["s2", 0 if cleared else 15, 8])
    world.eventually(lambda: world.committed() == (15, 8), 60, "the rebuild is committed")
    world.produce(5)
    world.until_committed(8)
    assert not first.lines + second.lines


def test_number_that_was_lost_with_the_offset_is_named_with_the_next_step(world: RebuiltTopic) -> None:
    world.produce(10)
    first = world.start()
    first.tell(seek=["s1", 0, 7])
    world.until_committed(7)
    first.end()
    world.group.commit({(world.topic, 0): 10})
    assert world.committed() == (10, Note().rebuild)
    world.produce(5)
    second = world.start()
    world.eventually(lambda: second.was_told("SinkError: "), 60, "refused")
    assert f"'muster seek {world.topic} 0 --to +0 --rebuild'" in second.lines[0]
    second.tell(seek=["s2", 10, 9])
    world.until_committed(9)
