"""A seek back over a Delta table in a real job: rows that are gone are written, or their absence is named."""

from __future__ import annotations

import json
import shutil
import uuid
from contextlib import closing
from pathlib import Path

import deltalake
import pytest

from muster.commands.actions.sinks import Effect
from muster.core.model import Seek
from muster.core.wire import parse_status
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.spark.consumer_job import ConsumerJob, Servers
from tests.spark.job_topic import PARTITIONS, Topic
from tests.support.delta_rows import delta_rows
from tests.support.hand_coordinator import coordinating
from tests.support.only_long import only_long

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@only_long
def test_rows_that_are_gone_are_written_again_or_named(
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    kafka: KafkaSettings,
    eventually: Eventually,
    tmp_path: Path,
) -> None:
    name, table = f"job-{uuid.uuid4().hex[:8]}", tmp_path / "table"
    topic = Topic(kafka, name)
    with closing(GroupOffsets(kafka, name)) as group:
        topic_id = group.topic_ids([topic.name])[topic.name]
    job = ConsumerJob(
        Servers(zookeeper, consul, kafka),
        name,
        "one",
        tmp_path,
        handler="muster.sinks.DeltaSink",
        options={"path": str(table)},
    )
    with coordinating(zookeeper, kafka, name, name) as coordinator, job:
        coordinator.assign(topic.name, dict.fromkeys(range(PARTITIONS), "one"), topic_id=topic_id)
        topic.produce(40)
        eventually(lambda: topic.committed() == dict.fromkeys(range(PARTITIONS), 40), 150, "committed")

        shutil.rmtree(table)
        coordinator.seek(topic.name, {p: Seek("s1", 0) for p in range(PARTITIONS)})
        eventually(lambda: len(delta_rows(table, "offset")) == 40 * PARTITIONS, 60, "written again")
        eventually(lambda: topic.committed() == dict.fromkeys(range(PARTITIONS), 40), 60, "committed again")
        assert job.metric("muster_consumer_left_out_unexpectedly_records_total") == 0

        deltalake.DeltaTable(str(table)).delete()
        coordinator.seek(topic.name, {0: Seek("s2", 10)})
        eventually(
            lambda: job.metric("muster_consumer_left_out_unexpectedly_records_total") == 30, 60, "counted"
        )
        assert "partition 0: offsets 10 to 39 (30 record(s)) were left out after a seek" in str(
            job.status()["errors"]
        )
        assert delta_rows(table, "offset") == []
        assert "others have changed or removed rows (DELETE at version" in str(job.status()["errors"])

        places = [(topic.name, p) for p in range(PARTITIONS)]

        def stored() -> dict[int, str]:
            """What a preview of a seek to offset 20 says of each partition."""
            known = parse_status(json.dumps(job.status()).encode(), "u").on(topic.name).stored
            effect = Effect(dict.fromkeys(places, 20), {tp: known[tp[1]] for tp in places})
            return {tp[1]: effect.of(tp) for tp in places}

        leaves_out = f"; Delta table {table} leaves out 20 of them"
        assert stored() == dict.fromkeys(range(PARTITIONS), leaves_out)
        coordinator.seek(topic.name, {0: Seek("s3", 30, 7)})
        eventually(lambda: len(delta_rows(table, "offset")) == 10, 60, "written again")
        eventually(lambda: topic.committed()[0] == 40, 60, "committed again")
        assert job.status()["topics"][topic.name]["offsets"]["0"]["rebuild"] == 7
        assert stored() == dict.fromkeys(range(PARTITIONS), leaves_out) | {
            0: f"; Delta table {table} leaves out 10 of them"
        }
