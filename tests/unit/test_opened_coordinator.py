"""A coordinator is opened with all that it was given, and lets go of it at its end."""

from __future__ import annotations

from typing import Any

import pytest

from muster.coordinator import opening
from muster.coordinator.opening import open_coordinator
from muster.core.deployment import Deployment
from muster.edges import kafka, status, zookeeper
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import ConsulSettings, KafkaSettings, StatusPageSettings, ZooKeeperSettings

CLUSTER = ClusterSettings.model_validate(
    {
        "name": "c",
        "consul_service": "consumers",
        "consul_prefix": "kept",
        "group_id": "g",
        "topics": ["t"],
        "consumers": {"handler": "a.b"},
    }
)
ZOOKEEPER = ZooKeeperSettings(hosts="z:2181")
CONSUL = ConsulSettings(host="127.0.0.1", port=1)
KAFKA = KafkaSettings(config={"bootstrap.servers": "k:9092"})
PAGES = StatusPageSettings()


class Part:
    """Notes what it is made with, and whether it was closed."""

    made: dict[str, Part]

    def __init__(self, *given: Any, **named: Any) -> None:
        self.given, self.closed = (*given, *named.values()), False
        self.made[type(self).__name__] = self

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


class Store(Part):
    """Stands for ZooKeeper's."""


class Lister(Part):
    """Stands for Kafka's."""


class TheSeeker(Part):
    """Stands for what carries out seeks."""


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Part]:
    Part.made = {}
    monkeypatch.setattr(zookeeper, "TopicStore", Store)
    monkeypatch.setattr(kafka, "TopicLister", Lister)
    monkeypatch.setattr(opening, "Seeker", TheSeeker)
    return Part.made


def test_opened_coordinator_has_what_it_was_given(
    parts: dict[str, Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        status, "poll_statuses", lambda *given, pages, cluster: asked.append((*given, pages, cluster))
    )
    with open_coordinator(CLUSTER, ZOOKEEPER, CONSUL, KAFKA, PAGES, by="run 7") as opened:
        assert (opened.cluster, opened.kafka_settings) == (CLUSTER, KAFKA)
        assert (opened.store, opened.lister, opened.seeker) == tuple(
            parts[name] for name in ("Store", "Lister", "TheSeeker")
        )
        assert parts["Store"].given == (ZOOKEEPER, "c", "run 7")
        assert parts["Lister"].given == (KAFKA,)
        assert parts["TheSeeker"].given == ("c", KAFKA, CLUSTER.fencing, CLUSTER.state)
        assert opened.deployment == Deployment.of("z:2181", "c")
        assert opened.overrides._keys is opened.catalog._keys
        assert opened.assignor is None
        opened.poll([], 1.0)
        assert asked == [([], 1.0, PAGES, "c")]
        assert not any(part.closed for part in parts.values())
    assert all(part.closed for part in parts.values())


@pytest.mark.parametrize("fencing", [True, False])
def test_seeks_are_fenced_as_the_cluster_says(parts: dict[str, Part], fencing: bool) -> None:
    cluster = CLUSTER.model_copy(update={"fencing": fencing})
    with open_coordinator(cluster, ZOOKEEPER, CONSUL, KAFKA):
        assert parts["TheSeeker"].given[:3] == ("c", KAFKA, fencing)


def test_coordinator_that_is_not_opened_lets_go_of_kafka(
    parts: dict[str, Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> None:
        raise zookeeper.ZooKeeperError("away")

    monkeypatch.setattr(Store, "__enter__", unreachable)
    with pytest.raises(zookeeper.ZooKeeperError), open_coordinator(CLUSTER, ZOOKEEPER, CONSUL, KAFKA):
        pytest.fail("it was opened")
    assert parts["Lister"].closed
    assert parts["TheSeeker"].closed
