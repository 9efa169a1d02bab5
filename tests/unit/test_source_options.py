"""Options of Spark's Kafka source in a cluster's settings: what is taken, and what is said of the others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import load_clusters

OPTIONS = {
    *("assign", "subscribe", "subscribePattern"),
    *("startingOffsets", "startingTimestamp"),
    *("startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"),
    *("failOnDataLoss", "groupIdPrefix", "includeHeaders"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *("minPartitions", "maxRecordsPerPartition"),
    *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
}
"""Those of Spark 4.2 besides `kafka.*`."""
PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def read(path: Path, **consumers: object) -> ClusterSettings | str:
    """The cluster with these settings of its consumers, or what is wrong with it."""
    entry = {
        "consul_service": "s",
        "group_id": "g",
        "topics": ["t"],
        "consumers": {"handler": "a.b", **consumers},
    }
    file = path / "clusters.yaml"
    file.write_text(json.dumps({"clusters": {"c": entry}}), encoding="utf-8")
    found = load_clusters(file)
    return found.clusters.get("c") or found.errors["c"]


def test_settings_of_kafkas_client_and_the_limit_of_a_batch_are_taken(tmp_path: Path) -> None:
    options = {"kafka.max.poll.records": 20_000, "KAFKA.check.crcs": False, "maxoffsetspertrigger": "7000"}
    found = read(tmp_path, source_options=options)
    assert isinstance(found, ClusterSettings)
    assert found.consumers.source_options == {"kafka.max.poll.records": "20000", "KAFKA.check.crcs": "false"}
    assert found.consumers.max_records_per_batch == 7000


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("startingOffsets", "begins at the group's committed offset"),
        ("failOnDataLoss", "muster_consumer_lost_records_total"),
        ("minPartitions", "'spark_conf'"),
        ("subscribe", "'topics'"),
        ("groupIdPrefix", "'group_id'"),
        ("maxTriggerDelay", "'trigger_interval'"),
        ("kafka.bootstrap.servers", "Airflow connection"),
        ("kafka.sasl.jaas.config", "Airflow connection"),
        ("kafka.group.id", "'group_id'"),
        ("kafka.auto.offset.reset", "first record"),
        ("kafka.value.deserializer", "remove it"),
        ("max.poll.records", "'kafka.max.poll.records'"),
    ],
)
def test_option_that_cannot_stand_there_is_named_with_what_to_do(
    tmp_path: Path, name: str, step: str
) -> None:
    found = read(tmp_path, source_options={"kafka.fetch.min.bytes": 1, name: "x"})
    assert isinstance(found, str)
    assert f"key 'consumers.source_options': '{name}': " in found
    assert step in found


def test_limit_of_a_batch_has_one_value(tmp_path: Path) -> None:
    both = read(tmp_path, source_options={"maxOffsetsPerTrigger": 7}, max_records_per_batch=7)
    assert isinstance(both, str)
    assert "'source_options.maxOffsetsPerTrigger' and 'max_records_per_batch' are the same" in both
    wrong = read(tmp_path, source_options={"maxOffsetsPerTrigger": "many"})
    assert isinstance(wrong, str)
    assert "consumers.max_records_per_batch" in wrong


def test_page_has_every_option_of_sparks_kafka_source(tmp_path: Path) -> None:
    named = set(re.findall(r"`([\w.]+)`", PAGE.read_text(encoding="utf-8")))
    assert named >= OPTIONS
    for option in OPTIONS:
        assert "no such option" not in str(read(tmp_path, source_options={option: "1"}))
