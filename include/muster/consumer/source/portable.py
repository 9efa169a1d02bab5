"""Kafka's settings for processes on other hosts, which have no files of certificates: they hold what is in these."""

from __future__ import annotations

from muster.consumer.source.java_client import text_of
from muster.settings.connections import KafkaSettings

_FILES = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}
"""Names of files, and the settings of librdkafka that hold what is in them."""


def portable(settings: KafkaSettings) -> KafkaSettings:
    """Return settings that name no file of certificates. Raises `KafkaSettingError` naming one that is
    unreadable."""
    config = {
        _FILES.get(name, name): text_of(name, value) if name in _FILES else value
        for name, value in settings.config.items()
    }
    return settings.model_copy(update={"config": config})
