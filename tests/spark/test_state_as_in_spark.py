"""The same processors, over the same topic, in Spark's own `transformWithState` and in Muster's: all that they see,
their output and the state are the same, batch by batch."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from muster.consumer.state.codec import reader_of, unpack
from muster.consumer.state.handle import LIST, MAP, key_of
from muster.consumer.state.position import Variable
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings
from muster.sinks import Batch
from tests.conftest import Eventually
from tests.spark import stateful_processors
from tests.spark.spark_own_state import ANSWER
from tests.spark.stateful_processors import COLUMNS, OUTPUT
from tests.support.kafka_topics import make_topic
from tests.support.only_long import only_long
from tests.support.state_query import Make, StateQuery, begin_at_the_first_record

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
MOST = 12
"""Records of a batch."""
Record = tuple[str | None, str, int, int]
"""Key, what is to be done with which number, and the event time in seconds."""
BASIC: list[Record] = [
    *[("a", what, n, 0) for n, what in enumerate(("value.update", "list.add", "map.update", "rich.update"))],
    *[("b", what, n, 0) for n, what in enumerate(("list.put", "list.add", "map.update", "map.update"), 7)],
    *[(None, what, n, 0) for n, what in enumerate(("value.nulls", "map.get", "list.put", "value.update"), 3)],
    *[("a", what, n, 0) for n, what in enumerate(("map.get", "map.update", "list.put", "value.nulls"), 2)],
    *[("b", what, n, 0) for n, what in enumerate(("map.remove", "map.get", "rich.update", "list.clear"), 9)],
    *[("c", what, n, 0) for n, what in enumerate(("value.clear", "map.update", "map.clear", "list.add"))],
    *[("a", what, n, 0) for n, what in enumerate(("value.clear", "list.add", "map.update", "map.remove"))],
    *[("b", what, n, 0) for n, what in enumerate(("map.clear", "list.add", "value.update", "rich.update"))],
    *[(None, what, n, 0) for n, what in enumerate(("list.clear", "value.clear", "map.update", "map.get"), 3)],
]
TIMES: list[Record] = [
    *[("a", "timer.register", n, 0) for n in (30, 10, 20)],
    *[("b", "timer.never", n, 0) for n in (1, 2)],
    *[("b", "timer.delete", n, 0) for n in (2, 3)],
    *[("c", "live.update", n, 0) for n in (1, 2, 3)],
    *[("a", "value.update", n, 0) for n in (1, 2)],
    *[("c", "live.update", n, 0) for n in (4,)],
    *[("b", what, n, 0) for n, what in enumerate(("timer.register", "timer.delete", "value.update"), 5)],
    *[("a", what, n, 0) for n, what in enumerate(("timer.register", "timer.delete", "live.update"), 5)],
    *[("d", "live.update", n, 0) for n in range(5)],
    *[("c", what, n, 0) for n, what in enumerate(("live.clear", "list.add", "value.update"), 5)],
    *[("d", "live.update", n, 0) for n in range(9)],
]
EVENTS: list[Record] = [
    *[("a", "timer.register", n, 100) for n in (99, 98, 97, 120)],
    *[("b", "timer.register", 110, at) for at in (90, 91, 105)],
    *[("c", "value.update", n, 101) for n in range(5)],
    # The watermark is 103 now: a row at it is late, one after it is not.
    *[("late", "value.update", n, at) for n, at in enumerate((102, 103, 104, 103))],
    *[("a", "value.update", n, 112) for n in range(8)],
    # And 110: the timer at it is due.
    *[("late", "value.update", n, at) for n, at in enumerate((110, 111, 109, 130))],
    *[("a", "timer.register", n, 125) for n in (100, 128, 129)],
    *[("b", "list.add", n, 126) for n in range(5)],
    *[("late", "value.update", n, at) for n, at in enumerate((128, 129, 127, 140))],
    *[("b", "list.add", n, 150) for n in range(8)],
]


@dataclass(frozen=True)
class Case:
    processor: str
    records: tuple[Record, ...]
    mode: str = "None"
    delay: str = "0 seconds"
    initial: tuple[tuple[str, int], ...] = ()


CASES = {
    "variables": Case("Everything", tuple(BASIC)),
    "timers and TTL": Case("Timed", tuple(TIMES), "ProcessingTime"),
    "event time": Case("EventTimed", tuple(EVENTS), "EventTime", "2 seconds"),
    "initial state": Case("Everything", tuple(BASIC), initial=(("a", 5), ("z", 7), ("a", 6), ("b", 1))),
}


class SparkItself:
    """Spark's own, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.spark_own_state", str(folder)],
            cwd=ROOT,
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": f"{ROOT / 'include'}{os.pathsep}{ROOT}",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                found: dict[str, Any] = json.loads(line.removeprefix(ANSWER))
                return found
        raise AssertionError("Spark's own query failed; its error is above")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


@pytest.fixture(scope="module")
def spark_itself(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkItself]:
    with closing(SparkItself(tmp_path_factory.mktemp("spark-itself"))) as process:
        yield process


def send(kafka: KafkaSettings, topic: str, records: tuple[Record, ...]) -> None:
    producer = Producer(dict(kafka.config))
    for key, what, n, at in records:
        producer.produce(topic, json.dumps({"what": what, "n": n, "at": at}), key, partition=0)
    assert producer.flush(30) == 0


class Handler:
    """Keeps the output of each batch, in order."""

    def __init__(self, spark: SparkSession, case: Case, pandas: bool) -> None:
        self.spark, self.case, self.pandas = spark, case, pandas
        self.batches: dict[int, list[list[str]]] = {}
        self.ends: list[int] = []
        self.errors: list[Exception] = []

    def __call__(self, frame: DataFrame, batch: Batch) -> None:
        ((begin, end),) = batch.ranges.values() or [(-1, -1)]
        try:
            rows = self.called(batch, frame.selectExpr(*COLUMNS)).collect()
        except Exception as error:
            self.errors.append(error)
            raise
        self.batches[begin] = sorted([repr(row.key), row.said, str(row.at)] for row in rows)
        self.ends.append(end)

    def called(self, batch: Batch, rows: DataFrame) -> DataFrame:
        case, state = self.case, batch.state
        call = state.transformWithStateInPandas if self.pandas else state.transformWithState
        initial = self.spark.createDataFrame([*case.initial], "key string, n long").groupBy("key")
        found: DataFrame = call(
            rows,
            ["key"],
            processor_of(case, self.pandas)(),
            OUTPUT,
            "Update",
            case.mode,
            initial if case.initial else None,
            "at" if case.mode == "EventTime" else "",
            delay=case.delay,
        )
        return found


def processor_of(case: Case, pandas: bool) -> Any:
    return getattr(stateful_processors, case.processor + ("InPandas" if pandas else ""))


def state_of(query: StateQuery, topic: str, variables: list[str]) -> dict[str, list[str]]:
    position = query.states._shards[topic, 0].position
    with closing(query.states.reader((topic, 0))) as reader:
        there = [*reader.scan(position.generation.to_bytes(4, "big"))]
    return {name: sorted(_entries(position.variables[name], there)) for name in variables}


def _entries(of: Variable, there: list[tuple[bytes, bytes]]) -> Iterator[str]:
    read = reader_of(StructType.fromJson(json.loads(of.schema)))
    prefix = struct.pack(">H", of.number)
    for key, value in there:
        if not key[4:].startswith(prefix):
            continue
        length = int.from_bytes(key[6:10], "big")
        group, rest = key_of(key[6 : 10 + length])[0], key[10 + length :]
        data = value[8:] if of.expires else value
        values = unpack(data) if of.kind == LIST else [data]
        for one in values:
            item = one[1] if of.kind == LIST and of.expires else one
            yield repr((group, tuple(unpack(rest)) if of.kind == MAP else None, read(item)))


@dataclass
class Compared:
    """One topic, which processors of both systems read one after the other, each pair as far as there are records."""

    spark: SparkSession
    itself: SparkItself
    kafka: KafkaSettings
    group: GroupOffsets
    make: Make
    eventually: Eventually
    folder: Path
    sent: int = 0

    def __post_init__(self) -> None:
        self.topic = make_topic(self.kafka, 1)
        begin_at_the_first_record(self.group, self.topic, 1)

    def compare(self, case: Case, pandas: bool = False) -> None:
        begin, end = self.sent, self.sent + len(case.records)
        send(self.kafka, self.topic, case.records)
        self.sent = end
        processor = processor_of(case, pandas)
        variables = [name for name in processor.variables if case.processor == "Timed" or "long" not in name]
        theirs = self.itself.run(
            {
                "servers": self.kafka.bootstrap_servers,
                "topic": self.topic,
                "most": MOST,
                "checkpoint": str(self.folder / "checkpoint"),
                "processor": processor.__name__,
                "pandas": pandas,
                "mode": case.mode,
                "delay": case.delay,
                "initial": case.initial,
                "variables": variables,
            }
        )
        handler = Handler(self.spark, case, pandas)
        with self.make(self.folder / "stores", handler, most=MOST) as query:
            query.hold(self.topic, range(1))
            self.eventually(lambda: end in handler.ends or handler.errors, 180, "all read")
            assert not handler.errors
            shards = query.states._shards
            self.eventually(
                lambda: shards[self.topic, 0].position.places[self.topic].offset == end, 60, "committed"
            )
            state = state_of(query, self.topic, variables)
        ours = [rows for at, rows in sorted(handler.batches.items()) if at >= 0]
        begins = sorted(at for at in handler.batches if at >= 0)
        assert begins == [*range(begin, end, MOST)]
        both = zip_longest(pieces(ours), pieces(theirs["batches"]))
        found = [(our, their) for our, their in both if our != their]
        assert not found, "\n".join(f"ours:   {our}\ntheirs: {their}\n" for our, their in found)
        assert state == theirs["state"]


@pytest.fixture
def compared(
    spark: SparkSession,
    spark_itself: SparkItself,
    kafka: KafkaSettings,
    group: GroupOffsets,
    state_query: Make,
    eventually: Eventually,
    tmp_path: Path,
) -> Compared:
    return Compared(spark, spark_itself, kafka, group, state_query, eventually, tmp_path)


def pieces(batches: list[list[list[str]]]) -> list[str]:
    """All that was said, a line each."""
    return [
        f"batch {number}, key {key}, at {at}: {piece}"
        for number, rows in enumerate(batches)
        for key, said, at in rows
        for piece in said.split(" | ")
    ]


def test_processor_sees_and_keeps_what_it_does_in_spark(compared: Compared) -> None:
    compared.compare(CASES["timers and TTL"])


@only_long
@pytest.mark.parametrize("pandas", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_every_method_does_what_it_does_in_spark(compared: Compared, name: str, pandas: bool) -> None:
    compared.compare(CASES[name], pandas)


@only_long
def test_deleted_variables_go_as_in_spark(compared: Compared) -> None:
    compared.compare(CASES["variables"])
    compared.compare(Case("Smaller", tuple(BASIC[:MOST])))
    compared.compare(Case("Smaller", tuple(BASIC[MOST:])))
