"""A process with state that is killed at each step of a batch: each record changes the state once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from muster.consumer.state.position import KEY
from muster.core.positions import parse_stamp
from muster.edges.kafka import GroupOffsets
from muster.edges.state_changelog import ChangelogReader, changelog_topic
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.kafka_topics import make_topic, produce
from tests.support.only_long import only_long
from tests.support.state_query import begin_at_the_first_record
from tests.support.state_worker import AT_ONCE, STEPS, begun, counted, shared
from tests.support.stateful_consumer import CLUSTER, StatefulConsumer

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).resolve().parents[2]


class World:
    """Topics of which processes keep one state, one after the other, in one folder."""

    def __init__(self, kafka: KafkaSettings, folder: Path, records: int, topics: int = 1) -> None:
        self.kafka, self.folder, self.records = kafka, folder, records
        self.topics = sorted(make_topic(kafka, 1) for _ in range(topics))
        self.name, self.zxid = f"g-{uuid4().hex[:8]}", 0
        self.group = GroupOffsets(kafka, self.name)
        for topic in self.topics:
            produce(kafka, topic, 0, records)
            begin_at_the_first_record(self.group, topic, 1)

    def process(self, step: str, dies_in: int = 2) -> None:
        """Run a process until it is killed at `step` of a batch, or to the end."""
        self.zxid += 1
        said = {
            "step": step,
            "dies_in": dies_in,
            "kafka": dict(self.kafka.config),
            "group": self.name,
            "topics": self.topics,
            "folder": str(self.folder),
            "zxid": self.zxid,
            "records": self.records,
        }
        ended = subprocess.run(
            [sys.executable, "-m", "tests.support.state_worker", json.dumps(said)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'include'}{os.pathsep}{ROOT}"},
            timeout=120,
            check=False,
        )
        assert ended.returncode == (-signal.SIGKILL if step else 0), step

    def check(self, eventually: Eventually) -> None:
        """Each record has changed the state once, and each key has begun once."""
        expected: dict[bytes, bytes | None] = {**begun()}
        for _ in self.topics:
            expected = counted({key: value or b"" for key, value in expected.items()}, 0, self.records)
        changelog = changelog_topic(CLUSTER, self.topics[0])
        with closing(ChangelogReader(self.kafka, "look", changelog, 0)) as reader:
            there = dict(record for read in reader.read(0) for record in read.records)
        del there[KEY]
        assert {key[4:]: value for key, value in there.items()} == expected
        last = StatefulConsumer("one", self.kafka, self.group, self.folder, topics=shared(self.topics))
        for topic in self.topics:
            last.reads(topic, {0: "one"}, self.zxid + 1)
        eventually(lambda: all(last.readable(topic) for topic in self.topics), 60, "taken up")
        assert last.state(self.topics[0]) == expected
        found = self.group.positions([(topic, 0) for topic in self.topics])
        stamps = {parse_stamp(one.metadata) for one in found.values() if one is not None}
        assert len({stamp.seq for stamp in stamps if stamp}) == 1, "each commit holds all offsets"
        last.close()
        self.group.close()


@pytest.mark.parametrize("topics", [pytest.param(1, marks=only_long), 2])
def test_kills_at_each_step_change_state_once(
    kafka: KafkaSettings, tmp_path: Path, eventually: Eventually, topics: int
) -> None:
    world = World(kafka, tmp_path, 4 * AT_ONCE * len(STEPS), topics)
    for step in STEPS:
        world.process(step)
    world.check(eventually)


@only_long
@pytest.mark.parametrize("step", [step for step in STEPS if step])
def test_kill_in_the_first_batch_takes_initial_state_once(
    kafka: KafkaSettings, tmp_path: Path, eventually: Eventually, step: str
) -> None:
    world = World(kafka, tmp_path, 3 * AT_ONCE)
    for each in (step, step, ""):
        world.process(each, dies_in=1)
    world.check(eventually)
