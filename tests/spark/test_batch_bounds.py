"""How large batches of a real job are, by bytes and by what its handler takes in time; one that takes too long."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.core.diagnosis import Phase, Waiting, held_up
from muster.core.model import TopicSnapshot
from muster.core.wire import parse_status
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.spark.consumer_job import ConsumerJob, Servers
from tests.support.hand_coordinator import coordinating
from tests.support.only_long import only_long
from tests.support.spark_topics import committed, create_topic, produce

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), only_long]

BYTES = 50_000
"""`max_bytes_per_batch`."""
TARGET, LONGEST = 2.0, 1.0
"""`target_batch_time` and `max_batch_time`, in seconds."""
SMALL, LARGE = "x" * 100, "x" * 400
SLOW = 0.04
"""Seconds a record: a batch of `BYTES` with large records takes 5 s."""


@dataclass(frozen=True)
class Taken:
    """A batch as its handler took it; `pace` is in seconds a record."""

    records: int
    size: int
    pace: float

    @property
    def seconds(self) -> float:
        return self.records * self.pace


@dataclass(frozen=True)
class Slowed:
    """A job with `TakesItsTime`, and its one partition."""

    job: ConsumerJob
    topic: str
    trap: Path

    def take(self, pace: float) -> None:
        draft = self.trap.with_suffix(".draft")
        draft.write_text(f"{pace}", encoding="utf-8")
        draft.rename(self.trap)

    def batches(self, pace: float) -> list[Taken]:
        """Those that it took at this pace."""
        lines = Path(f"{self.trap}.notes").read_text(encoding="utf-8").splitlines(keepends=True)
        taken = [Taken(*json.loads(line)) for line in lines if line.endswith("\n")]
        return [batch for batch in taken if batch.pace == pace]

    def waiting(self) -> list[Waiting]:
        """What a person is asked about, by the consumer's status page."""
        members = self.job.discovery.catalog.members().membership
        assert members is not None
        status = parse_status(json.dumps(self.job.status()).encode(), "the job")
        snapshot = TopicSnapshot(self.topic, frozenset({0}))
        return held_up({self.topic: snapshot}, members, {status.consumer: status}, {}, 1e9).get(
            self.topic, []
        )


def test_batches_of_a_job_are_bounded_in_bytes_and_in_time_and_one_that_takes_too_long_is_asked_about(
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    kafka: KafkaSettings,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    topic, name = create_topic(kafka), f"bounds-{uuid.uuid4().hex[:8]}"
    written = 0

    def write(*values: str) -> None:
        nonlocal written
        produce(kafka, topic, {0: values})
        written += len(values)

    def all_is_committed() -> bool:
        return committed(kafka, name, topic, (0,)) == {0: written}

    with (
        coordinating(zookeeper, kafka, name, name) as coordinator,
        ConsumerJob(
            Servers(zookeeper, consul, kafka),
            name,
            "one",
            tmp_path,
            handler="failing_handlers.TakesItsTime",
            options={"trap": str(tmp_path / "trap")},
            more={"max_bytes_per_batch": BYTES, "target_batch_time": TARGET, "max_batch_time": LONGEST},
        ) as job,
    ):
        slowed = Slowed(job, topic, tmp_path / "trap")
        slowed.take(0)
        eventually(job.registered, 150, "registered")

        write(*[SMALL] * 3000, *[LARGE] * 1500)
        coordinator.assign(topic, {0: "one"})
        eventually(all_is_committed, 120, "all is read")
        sizes = [batch.size for batch in slowed.batches(0)]
        print(f"bytes of the batches: {sizes}")
        small = [batch.size for batch in slowed.batches(0) if batch.size == batch.records * len(SMALL)]
        assert small[0] <= 1_000 * len(SMALL), "before the size of a record is known there are 1,000 at most"
        assert max(small[1:]) <= BYTES
        assert max(small[1:]) > 0.9 * BYTES, "batches are as large as they may be"
        large = [batch.size for batch in slowed.batches(0) if batch.size == batch.records * len(LARGE)]
        assert large[-2] < 1.2 * BYTES, "the size of a record is learnt again when it changes"

        slowed.take(SLOW)
        write(*[LARGE] * 800)
        eventually(
            lambda: [b for b in slowed.batches(SLOW)[-2:] if b.seconds <= 1.25 * TARGET][1:], 120, "in time"
        )
        slow = [batch.seconds for batch in slowed.batches(SLOW)]
        print(f"seconds of the batches: {slow}")
        assert max(slow) > 1.25 * TARGET, "by its bytes alone a batch takes too long"
        assert min(slow[-2:]) > TARGET / 4, "a batch is no smaller than it has to be"
        slowed.take(0)
        eventually(all_is_committed, 120, "all is read")
        assert slowed.batches(0)[-2].records > 2 * slowed.batches(SLOW)[-1].records, "they grow again"

        assert slowed.waiting() == []
        hold = tmp_path / "trap.hold"
        hold.touch()
        write(SMALL)
        (waiting,) = eventually(slowed.waiting, 60, "a person is asked")
        assert (waiting.consumer, waiting.phase, waiting.partitions) == ("one", Phase.FINISH, (0,))
        assert "its handler has worked on this batch for" in waiting.why
        assert job.topic(topic)["offsets"]["0"]["batch"] >= LONGEST
        assert job.metric("muster_consumer_batch_under_way_seconds") > LONGEST
        hold.unlink()
        eventually(all_is_committed, 60, "nothing was interrupted")
        assert slowed.waiting() == []
        taken = [*slowed.batches(0), *slowed.batches(SLOW)]
        assert sum(batch.records for batch in taken) == written, "each record was taken once"
