"""The leaders' racks from a real Kafka with `broker.rack`, through a real ZooKeeper, into a plan."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from devstack.kafka import Kafka
from muster.coordinator.opening import open_coordinator
from muster.core.model import Consumer, TopicSnapshot
from muster.core.overrides import Overrides
from muster.core.wire import WireError, racks_parent, racks_path
from muster.edges.kafka import KafkaError, TopicLister, librdkafka_logger
from muster.edges.zookeeper import TopicStore
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually


class ByRack:
    """An assignor that only keeps what it is given."""

    name = "by-rack"

    def assign(self, topics, consumers, previous, *, racks):  # type: ignore[no-untyped-def]
        raise NotImplementedError


@pytest.fixture(scope="module")
def racked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSettings]:
    server = Kafka(tmp_path_factory.mktemp("kafka"), guarded=True, rack="eu-west/1a")
    server.start()
    try:
        yield KafkaSettings(config={"bootstrap.servers": server.address})
    finally:
        server.stop()


def make_topic(kafka: KafkaSettings, partitions: int = 3) -> str:
    name = f"t-{uuid4().hex[:8]}"
    admin = AdminClient(dict(kafka.config), logger=librdkafka_logger())
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    return name


def test_nodes_are_written_read_changed_and_deleted(
    zookeeper: ZooKeeperSettings, cluster: str, raw: KazooClient
) -> None:
    with TopicStore(zookeeper, cluster) as store:
        assert store.racks(["t", "u"]) == {}
        assert raw.exists(racks_parent(cluster)) is None, "nothing is there where Kafka has no racks"
        store.set_racks("t", {0: "a", 1: "b"})
        store.set_racks("u", {0: "a"})
        assert store.racks(["t", "u", "never"]) == {"t": {0: "a", 1: "b"}, "u": {0: "a"}}
        assert store.racks(["u"]) == {"u": {0: "a"}}
        store.set_racks("t", {0: "b"})
        assert store.racks(["t"]) == {"t": {0: "b"}}
        assert raw.get(racks_path(cluster, "t"))[0] == b'{"racks":{"b":[0]}}'
        store.set_racks("t", {})
        store.set_racks("t", {})
        assert store.racks(["t", "u"]) == {"u": {0: "a"}}


def test_malformed_racks_node_is_named_and_leaves_topics_alone(
    zookeeper: ZooKeeperSettings, cluster: str, raw: KazooClient
) -> None:
    with TopicStore(zookeeper, cluster) as store:
        for topic in ("t", "u"):
            store.create_topic(topic, "k:9092", "g")
            store.set_racks(topic, {0: "a"})
        raw.set(racks_path(cluster, "t"), b"rubbish")
        raw.create(f"{racks_parent(cluster)}/no topic!", b"x")
        found = store.racks(["t", "u"])
        assert isinstance(found["t"], WireError)
        assert racks_path(cluster, "t") in str(found["t"])
        assert found["u"] == {0: "a"}
        assert all(isinstance(read, TopicSnapshot) for read in store.snapshots().values())


def test_a_kafka_without_racks_says_none_and_one_out_of_reach_says_so(kafka: KafkaSettings) -> None:
    make_topic(kafka)
    lister = TopicLister(kafka)
    assert lister.leader_racks() == {}
    lister.close()
    nowhere = TopicLister(KafkaSettings(config={"bootstrap.servers": "127.0.0.1:9"}, operation_timeout=0.5))
    with pytest.raises(KafkaError, match="asking for the brokers' racks"):
        nowhere.leader_racks()
    nowhere.close()


def test_racks_of_brokers_reach_the_plan(
    racked: KafkaSettings,
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    cluster: str,
    raw: KazooClient,
    eventually: Eventually,
) -> None:
    topic = make_topic(racked)
    settings = ClusterSettings.model_validate(
        {
            "name": cluster,
            "consul_service": f"{cluster}-service",
            "group_id": "g",
            "topics": [topic],
            "consumers": {"handler": "a.b"},
        }
    )
    httpx.put(
        f"http://{consul.host}:{consul.port}/v1/agent/service/register",
        json={"ID": "one", "Name": settings.consul_service, "Meta": {"zone": "eu-west/1a"}},
        trust_env=False,
    ).raise_for_status()
    with open_coordinator(settings, zookeeper, consul, racked) as coordinator:

        def noted() -> bool:
            report = coordinator.fetch_partitions()
            assert (report.errors, report.warnings, report.kafka_error) == ({}, [], None)
            return raw.exists(racks_path(cluster, topic)) is not None

        eventually(noted, 20, "the racks are noted")
        data, before = raw.get(racks_path(cluster, topic))
        assert data == b'{"racks":{"eu-west/1a":[0,1,2]}}'
        assert coordinator.fetch_partitions().racks == []
        assert raw.get(racks_path(cluster, topic))[1].version == before.version, "only written when changed"

    with open_coordinator(settings, zookeeper, consul, racked) as planning:
        snapshots = {t: s for t, s in planning.store.snapshots().items() if isinstance(s, TopicSnapshot)}
        members = planning.catalog.members().membership
        assert members is not None
        context, unknown = planning.contexts.read(snapshots, members.live, ByRack(), Overrides())
        assert unknown == ()
        assert context.racks == {topic: dict.fromkeys(range(3), "eu-west/1a")}
        zoneless = {"one": Consumer("one")}
        assert planning.contexts.read(snapshots, zoneless, ByRack(), Overrides())[0].racks == {}
    httpx.put(
        f"http://{consul.host}:{consul.port}/v1/agent/service/deregister/one", trust_env=False
    ).raise_for_status()
