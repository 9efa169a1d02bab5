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
from tests.support.state_worker import AT_ONCE, STEPS, counted
from tests.support.stateful_consumer import CLUSTER, StatefulConsumer

pytestmark = pytest.mark.timeout(600)

RECORDS = 4 * AT_ONCE * len(STEPS)
ROOT = Path(__file__).resolve().parents[2]


def test_kills_at_each_step_change_state_once(
    kafka: KafkaSettings, tmp_path: Path, eventually: Eventually
) -> None:
    topic, name = make_topic(kafka, 1), f"g-{uuid4().hex[:8]}"
    produce(kafka, topic, 0, RECORDS)
    with closing(GroupOffsets(kafka, name)) as group:
        topic_id = group.topics.identities({topic}).ids[topic]
        group.commit({(topic, 0): 0}, {(topic, 0): f"muster:{CLUSTER}:{topic_id}"})
        for number, step in enumerate(STEPS):
            said = {
                "step": step,
                "kafka": dict(kafka.config),
                "group": name,
                "topic": topic,
                "folder": str(tmp_path),
                "zxid": number + 1,
                "records": RECORDS,
            }
            ended = subprocess.run(
                [sys.executable, "-m", "tests.support.state_worker", json.dumps(said)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'include'}{os.pathsep}{ROOT}"},
                timeout=120,
                check=False,
            )
            assert ended.returncode == (-signal.SIGKILL if step else 0), step
        expected = counted({}, 0, RECORDS)
        with closing(ChangelogReader(kafka, "look", changelog_topic(CLUSTER, topic), 0)) as reader:
            there = dict(record for read in reader.read(0) for record in read.records)
        del there[KEY]
        assert {key[4:]: value for key, value in there.items()} == expected
        last = StatefulConsumer("one", kafka, group, tmp_path)
        last.reads(topic, {0: "one"}, len(STEPS) + 1)
        eventually(lambda: last.readable(topic), 60, "taken up")
        assert last.state(topic) == expected
        last.close()
