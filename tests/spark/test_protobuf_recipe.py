"""The recipe for Protobuf, as it stands in docs/sinks.md, in a consumer job on real servers."""

from __future__ import annotations

import uuid
from pathlib import Path

import httpx
import pyspark
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from devstack.cache import cache_dir
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.spark.consumer_job import ConsumerJob, Servers
from tests.support.delta_rows import delta_rows
from tests.support.hand_coordinator import coordinating
from tests.support.only_long import only_long
from tests.support.recipes import Recipe
from tests.support.spark_topics import committed, create_topic, producer_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

CENTRAL = "https://repo1.maven.org/maven2"
RECIPE = Recipe("sinks.md", "Protobuf with a schema registry")
Field = descriptor_pb2.FieldDescriptorProto


def schema(**fields: int) -> descriptor_pb2.FileDescriptorSet:
    """What `protoc` makes of a file with the message `Flight`, whose fields have these types, numbered from 1 on."""
    flight = descriptor_pb2.DescriptorProto(name="Flight")
    for number, (name, kind) in enumerate(fields.items(), 1):
        flight.field.add(name=name, number=number, type=kind, label=Field.LABEL_OPTIONAL)  # type: ignore[arg-type]
    file = descriptor_pb2.FileDescriptorProto(name="flight.proto", syntax="proto3", message_type=[flight])
    return descriptor_pb2.FileDescriptorSet(file=[file])


OLD = schema(carrier=Field.TYPE_STRING, delay=Field.TYPE_SINT32)
NEW = schema(carrier=Field.TYPE_STRING, delay=Field.TYPE_SINT32, tail=Field.TYPE_STRING)


def protobuf(written_with: descriptor_pb2.FileDescriptorSet, schema_id: int, **values: object) -> bytes:
    """A record as a serializer for the registry frames it: the first message of its file."""
    pool = descriptor_pool.DescriptorPool()
    (file,) = written_with.file
    flight = message_factory.GetMessageClass(pool.Add(file).message_types_by_name["Flight"])
    return b"\0" + schema_id.to_bytes(4, "big") + b"\0" + flight(**values).SerializeToString()


def skip_without(package: str) -> None:
    """Skip the test where Maven's repository has no such package, GROUP:NAME:VERSION: not each mirror has all."""
    group, name, version = package.split(":")
    pom = f"{CENTRAL}/{group.replace('.', '/')}/{name}/{version}/{name}-{version}.pom"
    if httpx.head(pom, timeout=60, follow_redirects=True).status_code == httpx.codes.NOT_FOUND:
        pytest.skip(f"there is no {pom}")


def test_protobuf_recipe_names_the_spark_of_this_environment() -> None:
    (package,) = RECIPE.spark_conf.values()
    assert package.rpartition(":")[2] == pyspark.__version__


@only_long
def test_protobuf_recipe_decodes_records_of_an_older_and_of_the_newest_schema(
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    kafka: KafkaSettings,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    skip_without(*RECIPE.spark_conf.values())
    (tmp_path / "protobuf_recipe.py").write_text(RECIPE.code, encoding="utf-8")
    descriptor = tmp_path / "flight.desc"
    descriptor.write_bytes(NEW.SerializeToString())
    topic, name = create_topic(kafka), f"protobuf-{uuid.uuid4().hex[:8]}"
    producer = producer_of(kafka)
    for value in (
        protobuf(OLD, 7, carrier="DL", delay=-3),
        protobuf(NEW, 70_000, carrier="ÜA", delay=1_000, tail="N351"),
        None,
        protobuf(NEW, 70_000, carrier="AA", tail="N9"),
    ):
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0

    def has(*rows: tuple[object, ...]) -> bool:
        assert delta_rows(job.data, "offset", "carrier", "delay", "tail") == list(rows), job.log_tail()
        return True

    with (
        coordinating(zookeeper, kafka, name, name) as coordinator,
        ConsumerJob(
            Servers(zookeeper, consul, kafka),
            name,
            "one",
            tmp_path,
            handler="protobuf_recipe.Decode",
            options={"message": "Flight", "descriptor": str(descriptor)},
            conf={**RECIPE.spark_conf, "spark.jars.ivy": str(cache_dir() / "ivy")},
            paths=(tmp_path,),
        ) as job,
    ):
        eventually(job.registered, 300, "registered")
        coordinator.assign(topic, {0: "one"})
        first = [(0, "DL", -3, ""), (1, "ÜA", 1_000, "N351"), (3, "AA", 0, "N9")]
        eventually(lambda: has(*first), 180)
        eventually(lambda: committed(kafka, name, topic, (0,)) == {0: 4}, 60, "all is committed")
        producer.produce(topic, None, partition=0)
        assert producer.flush(30) == 0
        eventually(lambda: committed(kafka, name, topic, (0,)) == {0: 5}, 60, "a batch without rows is taken")
        assert has(*first)
