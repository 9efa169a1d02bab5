"""Options of Spark's Kafka source in a cluster's settings: what is taken, and what is said of the others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from muster.core.seeking import Destination, To
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import load_clusters
from muster.settings.source_options import fail_on_data_loss, min_partitions, reader_settings

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
        ("startingOffsetsByTimestamp", "'startingTimestamp'"),
        ("kafka.auto.offset.reset", "'startingOffsets'"),
        ("failOnDataLoss", "expected is true or false"),
        ("minPartitions", "expected is a whole number from 1"),
        ("maxRecordsPerPartition", "'minPartitions'"),
        ("subscribe", "'topics'"),
        ("groupIdPrefix", "'group_id'"),
        ("maxTriggerDelay", "'trigger_interval'"),
        ("kafka.bootstrap.servers", "Airflow connection"),
        ("kafka.sasl.jaas.config", "Airflow connection"),
        ("kafka.group.id", "'group_id'"),
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


def test_several_tasks_read_a_partition_only_where_the_options_say_so(tmp_path: Path) -> None:
    assert min_partitions({}) == 1
    found = read(tmp_path, source_options={"MINPARTITIONS": 4})
    assert isinstance(found, ClusterSettings)
    assert min_partitions(found.consumers.source_options) == 4
    for wrong in ("0", "-2", "2.5", "", "٣"):
        assert "'minPartitions'" in str(read(tmp_path, source_options={"minPartitions": wrong})), wrong


def test_fail_on_data_loss_is_false_unless_the_options_say_otherwise(tmp_path: Path) -> None:
    for options, wanted in (
        ({}, False),
        ({"failOnDataLoss": True}, True),
        ({"FAILONDATALOSS": "False"}, False),
    ):
        found = read(tmp_path, source_options=options)
        assert isinstance(found, ClusterSettings)
        assert fail_on_data_loss(found.consumers.source_options) is wanted


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


@pytest.mark.parametrize(
    ("options", "zero", "one"),
    [
        ({}, To.EARLIEST, To.EARLIEST),
        ({"startingOffsets": "latest"}, To.LATEST, To.LATEST),
        ({"STARTINGOFFSETS": "Earliest"}, To.EARLIEST, To.EARLIEST),
        ({"startingTimestamp": 1_700_000_000_500}, To.TIME, To.TIME),
        ({"startingOffsets": '{"t": {"0": 23}}'}, To.OFFSET, To.EARLIEST),
        ({"startingOffsets": '{"t": {"0": -1, "1": -2}}'}, To.LATEST, To.EARLIEST),
        ({"startingOffsets": '{"u": {"0": 23}}'}, To.EARLIEST, To.EARLIEST),
    ],
)
def test_starting_offsets_are_taken_as_spark_names_them(
    tmp_path: Path, options: dict[str, object], zero: To, one: To
) -> None:
    found = read(tmp_path, source_options=options)
    assert isinstance(found, ClusterSettings)
    starting = found.consumers.starting_offsets
    assert (starting.of("t", 0).to, starting.of("t", 1).to) == (zero, one)
    assert starting.at_first_record("t") is (zero is To.EARLIEST)
    assert reader_settings(found.consumers.source_options) == {}, "they are no settings of Kafka's client"


def test_starting_offsets_have_their_values(tmp_path: Path) -> None:
    found = read(tmp_path, source_options={"startingOffsets": '{"t": {"0": 23}}'})
    assert isinstance(found, ClusterSettings)
    assert found.consumers.starting_offsets.of("t", 0) == Destination(To.OFFSET, 23)
    found = read(tmp_path, source_options={"startingTimestamp": "1700000000500"})
    assert isinstance(found, ClusterSettings)
    assert found.consumers.starting_offsets.of("t", 0) == Destination(To.TIME, 1_700_000_000.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "beginning"}, "expected is earliest, latest, or JSON such as"),
        ({"startingOffsets": '{"t": [1]}'}, "expected is earliest, latest, or JSON such as"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "offset -3 is no whole number from 0"),
        ({"startingOffsets": '{"t": {"x": 1}}'}, "partition 'x'"),
        ({"startingTimestamp": "2026-11-25"}, "milliseconds since 1970"),
        ({"startingOffsets": "latest", "startingTimestamp": "1"}, "two answers"),
    ],
)
def test_starting_offsets_that_mean_nothing_are_refused(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    assert message in str(read(tmp_path, source_options=options))
