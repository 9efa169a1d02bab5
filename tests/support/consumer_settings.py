"""Settings of a consumer, for tests of its parts."""

from __future__ import annotations

from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from muster.settings.consumer import ConsumerSettings


def consumer_settings(**more: object) -> ConsumerSettings:
    """Return the settings of consumer `me` of cluster `c`, with servers that are not there, unless `more` says so."""
    return ConsumerSettings.model_validate(
        {
            "cluster": "c",
            "consumer": "me",
            "incarnation": "i",
            "consul_service": "s",
            "zookeeper": ZooKeeperSettings(hosts="z:2181"),
            "consul": ConsulSettings(),
            "kafka": KafkaSettings(config={"bootstrap.servers": "k:9092"}),
            "handler": "a.b",
            **more,
        }
    )
