"""The recipe for Avro with a schema registry, as it stands in docs/sinks.md, in a consumer job on real servers."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import deltalake
import pyarrow.parquet as pq
import pyspark
import pytest

from devstack.cache import cache_dir
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.spark.consumer_job import ConsumerJob, Servers
from tests.support.delta_rows import delta_rows
from tests.support.fetched_packages import fetched
from tests.support.hand_coordinator import coordinating
from tests.support.http_pages import Page, Pages, Request
from tests.support.only_long import only_long
from tests.support.recipes import Recipe
from tests.support.spark_topics import committed, create_topic, producer_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

RECIPE = Recipe("sinks.md", "Avro with a schema registry")
CLIENT = Path(__file__).with_name("schema-registry-2.16.1.txt")
"""What `pip install confluent-kafka[schemaregistry]` adds to this environment."""


def flight(*fields: tuple[str, object]) -> dict[str, object]:
    return {"type": "record", "name": "Flight", "fields": [{"name": n, "type": kind} for n, kind in fields]}


OLD, NEW = 7, 70_000
"""Ids of schemas: of one byte, and of more."""
SCHEMAS = {
    OLD: flight(("carrier", "string"), ("delay", "int")),
    NEW: flight(("tail", "string"), ("delay", "int"), ("carrier", "string")),
}
READ = flight(("carrier", "string"), ("delay", "long"), ("tail", "string"))
READ["fields"][2]["default"] = "unknown"  # type: ignore[index]


def avro(schema_id: int, *values: str | int) -> bytes:
    """A record of strings and numbers in Avro's binary encoding, as a serializer for the registry frames it."""
    return b"\0" + schema_id.to_bytes(4, "big") + b"".join(map(_encoded, values))


def _encoded(value: str | int) -> bytes:
    if isinstance(value, str):
        text = value.encode()
        return _encoded(len(text)) + text
    rest, found = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def schema(request: Request) -> Page:
    """What a schema registry answers to `GET /schemas/ids/[ID]` of its REST API."""
    found = SCHEMAS.get(int(asked_id(request)))
    answer = {"schema": json.dumps(found)} if found else {"error_code": 40403, "message": "Schema not found"}
    kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    return Page(json.dumps(answer).encode(), 200 if found else 404, kind)


def asked_id(request: Request) -> str:
    return urlsplit(request.path).path.removeprefix("/schemas/ids/")


def test_avro_recipe_names_the_spark_of_this_environment() -> None:
    (package,) = RECIPE.spark_conf.values()
    assert package.rpartition(":")[2] == pyspark.__version__


@only_long
def test_avro_recipe_decodes_two_schemas_in_one_batch(
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    kafka: KafkaSettings,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    (tmp_path / "avro_recipe.py").write_text(RECIPE.code, encoding="utf-8")
    topic, name = create_topic(kafka, 2), f"avro-{uuid.uuid4().hex[:8]}"
    producer = producer_of(kafka)
    for partition, value in (
        (0, avro(OLD, "DL", -3)),
        (0, avro(NEW, "N351", 1_000, "ÜA")),
        (0, None),
        (1, avro(NEW, "N9", 0, "")),
        (1, avro(OLD, "AA", 64)),
    ):
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0
    first: set[tuple[object, ...]] = {
        (0, 0, "DL", -3, "unknown"),
        (0, 1, "ÜA", 1_000, "N351"),
        (1, 0, "", 0, "N9"),
        (1, 1, "AA", 64, "unknown"),
    }

    def has(rows: set[tuple[object, ...]]) -> bool:
        found = delta_rows(job.data, "partition", "offset", "carrier", "delay", "tail")
        assert found == sorted(rows), job.log_tail()
        return True

    with (
        Pages(schema) as registry,
        coordinating(zookeeper, kafka, name, name) as coordinator,
        ConsumerJob(
            Servers(zookeeper, consul, kafka),
            name,
            "one",
            tmp_path,
            handler="avro_recipe.Decode",
            options={"registry": f"http://127.0.0.1:{registry.port}", "reader_schema": json.dumps(READ)},
            conf={**RECIPE.spark_conf, "spark.jars.ivy": str(cache_dir() / "ivy")},
            paths=(tmp_path, fetched(CLIENT)),
        ) as job,
    ):
        eventually(job.registered, 300, "registered")
        coordinator.assign(topic, {0: "one", 1: "one"})
        eventually(lambda: has(first), 180)
        eventually(lambda: committed(kafka, name, topic, (0, 1)) == {0: 3, 1: 2}, 60, "all is committed")
        files = deltalake.DeltaTable(str(job.data)).file_uris()
        tails = [set(pq.read_table(uri).column("tail").to_pylist()) for uri in files]
        assert any({"unknown"} < each for each in tails), "a batch, which is a file, had both schemas"
        assert set(map(asked_id, registry.requests)) == {str(OLD), str(NEW)}
        producer.produce(topic, None, partition=0)
        producer.produce(topic, avro(NEW, "N1", 5, "WN"), partition=1)
        assert producer.flush(30) == 0
        eventually(lambda: has({*first, (1, 2, "WN", 5, "N1")}), 120)
        eventually(lambda: committed(kafka, name, topic, (0, 1)) == {0: 4, 1: 3}, 60, "all is committed")
