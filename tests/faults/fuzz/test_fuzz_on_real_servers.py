"""The same on a real ZooKeeper and a real Consul, a few dozen inputs at once: what the servers let through."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest
from kazoo.client import KazooClient

from muster.coordinator.coordinator import Coordinator
from muster.coordinator.reports import ConsumersReport
from muster.core import wire
from muster.core.assignors import load_assignor
from muster.core.model import Consumer, ConsumerStatus, State, TopicStatus
from muster.core.wire import WireError
from muster.edges.consul import ConsulCluster
from muster.edges.zookeeper import TopicStore
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.faults.fuzz.error_text import explains
from tests.faults.fuzz.malformed import HUGE_TEXT, ODD_TEXTS
from tests.faults.fuzz.znodes import ASSIGNMENT, STATE

NODES = (
    *(
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        HUGE_TEXT.encode(),
        json.dumps(ASSIGNMENT).encode("utf-16"),
    ),
    *(
        json.dumps({**ASSIGNMENT, key: value}).encode()
        for key in ASSIGNMENT
        for value in (None, "\ud800", -1, {"x": "../y"})
    ),
)
STATES = (
    *(b"", b"{", b'{"state": "Initial", "toStart": {}, "toClose": {}}', b"[" * 100_000),
    *(
        json.dumps({**STATE, key: value}).encode()
        for key in STATE
        for value in (None, -1, {"a": [-1]}, "0001-01-01T00:00:00+14:00")
    ),
)
VALUES = (
    b"",
    b"rotten",
    b"[]",
    b"[" * 100_000,
    HUGE_TEXT.encode(),
    b"\xff",
    b'{"consumer": "../x"}',
    b'{"consumer": 3}',
)
NAMES = [
    name
    for name in ODD_TEXTS
    if 0 < len(name) <= 300 and "/" not in name and name.isprintable() and name not in {".", ".."}
]


class Lister:
    def __init__(self, topics: Mapping[str, int]) -> None:
        self.topics = topics

    def list_partitions(self) -> dict[str, frozenset[int]]:
        return {topic: frozenset(range(count)) for topic, count in self.topics.items()}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: f"id-of-{topic}" for topic in topics if topic in self.topics}

    def leader_racks(self) -> dict[str, dict[int, str]]:
        return {}


@pytest.fixture
def client(zookeeper: ZooKeeperSettings) -> Iterator[KazooClient]:
    client = KazooClient(hosts=zookeeper.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def put(consul: ConsulSettings) -> Iterator[Callable[[str, bytes], None]]:
    with httpx.Client(base_url=f"http://{consul.host}:{consul.port}", trust_env=False) as http:

        def write(key: str, value: bytes) -> None:
            http.put(f"/v1/kv/{key}", content=value).raise_for_status()

        yield write


def test_dozens_of_rotten_nodes_keys_and_registrations_beside_good_topics(
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    client: KazooClient,
    put: Callable[[str, bytes], None],
    eventually: Eventually,
) -> None:
    name = f"c{uuid4().hex[:10]}"
    topics = {"good-1": 3, "good-2": 2}
    rotten = {f"rotten-{number}": number for number in range(len(NODES) + len(STATES))}
    root, states = wire.assignments_path(name), wire.states_path(name)
    for topic, number in rotten.items():
        node, state = (
            (NODES[number], None)
            if number < len(NODES)
            else (json.dumps(ASSIGNMENT).encode(), STATES[number - len(NODES)])
        )
        client.create(f"{root}/{topic}", node, makepath=True)
        for partition in ("0", "1"):
            client.create(f"{root}/{topic}/{partition}")
        if state is not None:
            client.create(f"{states}/{topic}", state, makepath=True)
    for odd in NAMES:
        client.create(f"{root}/{odd}", b"x")
        client.create(f"{root}/rotten-0/{odd}", b"x")
    for number, value in enumerate(VALUES):
        for key in (
            f"pinned/good-1/{number}",
            f"excluded/x/t{number}",
            f"isolated/x{number}",
            f"stop/x{number}",
            f"submitted/x{number}",
        ):
            put(f"muster/{name}/{key}", value)
    put(f"muster/{name}/pinned/good-2/1", b'{"consumer": "b"}')
    discovery = ConsulCluster(consul, name, f"{name}-service")
    strange = {"weight": "1e308", "priority": "9" * 400, "topics": "../x,,"}
    consumers = [("a", "127.0.0.1", 1, {}), ("b", "127.0.0.1", 1, {}), ("c", "h/../x", 1, strange)]
    with registered(discovery, consumers):
        before = {path: client.get(path)[0] for path in everything(client, f"/consumers/{name}")}
        settings = ClusterSettings.model_validate(
            {
                "name": name,
                "consul_service": f"{name}-service",
                "group_id": "g",
                "topics": [*topics],
                "consumers": {"handler": "a.b"},
            }
        )
        with TopicStore(zookeeper, name) as store:

            def poll(consumers: Any, timeout: float, topics: Any) -> dict[str, ConsumerStatus]:
                """Everybody runs at once what the assignment says."""
                read = store.snapshots()
                return {c.id: obedient(c, read) for c in consumers}

            one = Coordinator(
                settings,
                KafkaSettings(config={"bootstrap.servers": "k:1"}),
                store,
                discovery.catalog,
                discovery.overrides,
                Lister(topics),
                poll,
                load_assignor("sticky", {}),
            )
            eventually(lambda: len(discovery.catalog.members().membership.live) == 3, 30, "registered")  # type: ignore[union-attr]
            read = store.snapshots()
            refused = {topic: str(found) for topic, found in read.items() if isinstance(found, WireError)}
            assert len(refused) >= len(rotten) // 2 + len(NAMES) // 2
            for topic, error in refused.items():
                explains(error, f"/{topic}")

            def stable() -> bool:
                advanced = None
                fetched = one.fetch_partitions()
                ConsumersReport.of(one.catalog.members())
                report = one.compute_assignment()
                assert refused.keys() <= report.errors.keys()
                assert not fetched.kafka_error
                if report.needed:
                    advanced = one.advance(2)
                found = store.snapshots()
                states = {topic: found.get(topic) for topic in topics}
                assert all(getattr(state, "name", None) is State.STABLE for state in states.values()), (
                    f"{states}, {report}, {advanced}"
                )
                return True

            eventually(stable, 120, "the good topics are Stable")
            found = store.snapshots()
            assert found["good-2"].assignment.owners[1] == "b", "the good pin is obeyed"  # type: ignore[union-attr]
            assert len(discovery.overrides.read().errors) >= len(VALUES)
            for topic in refused:
                for path in (f"{root}/{topic}", f"{states}/{topic}"):
                    assert (client.get(path)[0] if client.exists(path) else None) == before.get(path), path


def obedient(consumer: Consumer, read: Mapping[str, Any]) -> ConsumerStatus:
    topics = {}
    for topic, found in read.items():
        if not isinstance(found, WireError) and found.assignment is not None:
            mine = frozenset(p for p, owner in found.assignment.owners.items() if owner == consumer.id)
            topics[topic] = TopicStatus(running=mine, epoch=found.assignment.epoch)
    return ConsumerStatus(consumer.id, "one", topics, epochs=True)


@contextmanager
def registered(
    discovery: ConsulCluster, consumers: list[tuple[str, str, int, dict[str, str]]]
) -> Iterator[None]:
    for consumer, address, port, meta in consumers:
        discovery.catalog.register(
            consumer, address, port, meta, "http://127.0.0.1:1/", 36_000.0, 36_000.0, passing=True
        )
    try:
        yield
    finally:
        for consumer, *_ in consumers:
            discovery.catalog.deregister(consumer)


def everything(client: KazooClient, path: str) -> list[str]:
    """All nodes below `path`."""
    found = []
    for child in client.get_children(path):
        found += [f"{path}/{child}", *everything(client, f"{path}/{child}")]
    return found
