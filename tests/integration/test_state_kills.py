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
from muster.edges.kafka import GroupOffsets
from muster.edges.state_changelog import ChangelogReader, changelog_topic
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.kafka_topics import make_topic, produce
from tests.support.only_long import only_long
from tests.support.state_query import begin_at_the_first_record
from tests.support.state_worker import AT_ONCE, STEPS, begun, counted
from tests.support.stateful_consumer import CLUSTER, StatefulConsumer

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).resolve().parents[2]


class World:
    """A topic of which processes keep state, one after the other, in one folder."""

    def __init__(self, kafka: KafkaSettings, folder: Path, records: int) -> None:
        self.kafka, self.folder, self.records = kafka, folder, records
        self.topic, self.name, self.zxid = make_topic(kafka, 1), f"g-{uuid4().hex[:8]}", 0
        produce(kafka, self.topic, 0, records)
        self.group = GroupOffsets(kafka, self.name)
        begin_at_the_first_record(self.group, self.topic, 1)

    def process(self, step: str, dies_in: int = 2) -> None:
        """Run a process until it is killed at `step` of a batch, or to the end."""
        self.zxid += 1
        said = {
            "step": step,
            "dies_in": dies_in,
            "kafka": dict(self.kafka.config),
            "group": self.name,
            "topic": self.topic,
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
        expected = counted(begun(), 0, self.records)
        changelog = changelog_topic(CLUSTER, self.topic)
        with closing(ChangelogReader(self.kafka, "look", changelog, 0)) as reader:
            there = dict(record for read in reader.read(0) for record in read.records)
        del there[KEY]
        assert {key[4:]: value for key, value in there.items()} == expected
        last = StatefulConsumer("one", self.kafka, self.group, self.folder)
        last.reads(self.topic, {0: "one"}, self.zxid + 1)
        eventually(lambda: last.readable(self.topic), 60, "taken up")
        assert last.state(self.topic) == expected
        last.close()
        self.group.close()


def test_kills_at_each_step_change_state_once(
    kafka: KafkaSettings, tmp_path: Path, eventually: Eventually
) -> None:
    world = World(kafka, tmp_path, 4 * AT_ONCE * len(STEPS))
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
