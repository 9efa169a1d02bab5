"""A checkpoint that Spark's own Kafka source has written, as `muster import-offsets` reads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from devstack.jars import jars
from muster.commands.actions.moving_in import from_checkpoint
from muster.commands.command import CommandError
from muster.settings.connections import KafkaSettings
from tests.support.kafka_topics import make_topic, produce
from tests.support.only_long import only_long

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), only_long]


def run(kafka: KafkaSettings, topic: str, checkpoint: Path, fail: bool) -> None:
    script = Path(__file__).with_name("kafka_stream.py")
    arguments = [str(jars("spark-kafka")), kafka.bootstrap_servers, topic, str(checkpoint), str(int(fail))]
    done = subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]


def test_offsets_of_the_last_finished_batch_are_found(kafka: KafkaSettings, tmp_path: Path) -> None:
    topic, checkpoint = make_topic(kafka, 2), tmp_path / "checkpoint"
    produce(kafka, topic, 0, 7)
    with pytest.raises(CommandError, match="cannot be read as the checkpoint"):
        from_checkpoint(checkpoint)
    run(kafka, topic, checkpoint, fail=False)
    assert from_checkpoint(checkpoint) == {(topic, 0): 7, (topic, 1): 0}
    produce(kafka, topic, 1, 3)
    run(kafka, topic, checkpoint, fail=True)
    begun = {int(file.name) for file in (checkpoint / "offsets").iterdir() if file.name.isdecimal()}
    assert max(begun) == 1, "a second batch was begun"
    assert from_checkpoint(checkpoint) == {(topic, 0): 7, (topic, 1): 0}
