"""After a restart of all brokers each partition's producer goes on, and is not replaced as one that is stuck."""

from __future__ import annotations

from pathlib import Path

import pytest

from devstack.kafka import Kafka
from muster.edges.kafka import GroupOffsets
from muster.edges.kafka_fencing import FencedCommits
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.kafka_topics import make_topic
from tests.support.servers import running

PARTITIONS = 4


def _librdkafkas_threads() -> int:
    """How many threads of this process librdkafka has named."""
    names = []
    for thread in Path("/proc/self/task").iterdir():
        try:
            names.append((thread / "comm").read_text())
        except OSError:
            continue  # it has just ended
    return sum(name.startswith("rdk:") for name in names)


def test_producers_go_on_after_all_brokers_restarted(
    tmp_path: Path, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    with running(Kafka(tmp_path / "kafka", guarded=True)) as server:
        settings = KafkaSettings(config={"bootstrap.servers": server.address})
        topic = make_topic(settings, PARTITIONS)
        tps = [(topic, partition) for partition in range(PARTITIONS)]
        group = GroupOffsets(settings, "g")
        fenced = FencedCommits(settings, "c", group)
        others = _librdkafkas_threads()
        eventually(lambda: len(fenced.claim(tps).done) == PARTITIONS, 60)
        eventually(lambda: len(fenced.commit(dict.fromkeys(tps, 1)).done) == PARTITIONS, 60)
        mine = _librdkafkas_threads() - others
        for offset in (2, 3):
            server.stop()
            server.start()
            eventually(lambda: len(fenced.commit(dict.fromkeys(tps, offset)).done) == PARTITIONS, 60)  # noqa: B023
        assert not [record for record in caplog.records if "it is replaced" in record.message]
        eventually(lambda: _librdkafkas_threads() - others <= mine, 30, "no threads are left behind")
        fenced.close()
        group.close()
