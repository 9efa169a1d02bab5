"""The settings of Kafka's Java client that do what librdkafka's do, so that one connection serves both.

What both call the same is passed on, with its value as Java writes it (`_VALUES`). What only librdkafka has, and what
changes nothing that is read, is left out.
The connector refuses what Kafka's Java client does not have. Files of certificates are read here, so that executors
need none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

_RENAMED = {
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}
_READ = {
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
"""Names of files, and the settings that hold what is in them."""
_LEFT_OUT = frozenset(
    {
        "api.version.request",
        "broker.address.family",
        "broker.address.ttl",
        "debug",
        "enable.ssl.certificate.verification",
        "fetch.error.backoff.ms",
        "fetch.queue.backoff.ms",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "log.connection.close",
        "log_level",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "message.max.bytes",
        "partition.assignment.strategy",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "receive.message.max.bytes",
        "sasl.kerberos.kinit.cmd",
        "session.timeout.ms",
        "socket.keepalive.enable",
        "socket.max.fails",
        "socket.nagle.disable",
        "statistics.interval.ms",
        "topic.metadata.refresh.fast.interval.ms",
        "topic.metadata.refresh.sparse",
    }
)
_SUITE = re.compile(
    r"(ECDHE-ECDSA|ECDHE-RSA|DHE-RSA)-(?:(AES)(128|256)-GCM-(SHA256|SHA384)|CHACHA20-POLY1305)"
)
_NEVER = str(2**31 - 1)
"""Milliseconds that stand for never, where Java has no number for that."""
_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class KafkaSettingError(ValueError):
    """A setting of the connection to Kafka cannot be used by Kafka's Java client; the message names it."""


def java_properties(config: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's properties as those of Kafka's Java consumer. They hold secrets.

    Raises `KafkaSettingError` naming a property that it has nothing for, or a file that cannot be read.
    """
    if config.get("enable.ssl.certificate.verification", "true").lower() not in {"true", "1"}:
        raise KafkaSettingError(
            "enable.ssl.certificate.verification: Kafka's Java client always verifies certificates; give it the "
            "certificate of the brokers' authority in ssl.ca.location"
        )
    # librdkafka reads only what is committed unless it is set otherwise, and so did this consumer from its beginning.
    properties = {"isolation.level": "read_committed"}
    for name, value in config.items():
        if name in _READ:
            properties[_READ[name]] = text_of(name, value)
        elif name not in _LEFT_OUT and name not in {"sasl.username", "sasl.password"}:
            properties[_RENAMED.get(name, name)] = _VALUES[name](value) if name in _VALUES else value
    if "ssl.truststore.certificates" in properties:
        properties["ssl.truststore.type"] = "PEM"
    if "ssl.keystore.key" in properties:
        properties["ssl.keystore.type"] = "PEM"
    if "sasl.username" in config:
        properties["sasl.jaas.config"] = _login(config, properties.get("sasl.mechanism", "GSSAPI"))
    return properties


def _cipher_suites(value: str) -> str:
    return ",".join(_cipher_suite(name) for name in value.split(":"))


def _cipher_suite(name: str) -> str:
    if name.startswith("TLS_"):
        return name
    found = _SUITE.fullmatch(name)
    if found is None:
        raise KafkaSettingError(
            f"ssl.cipher.suites: {name[:100]!r} has no name in Java that is known here; give full names such as "
            "ECDHE-RSA-AES256-GCM-SHA384 or TLS_AES_256_GCM_SHA384, separated by colons, or remove the setting"
        )
    exchange, aes, bits, digest = found.groups()
    cipher = f"{aes}_{bits}_GCM_{digest}" if aes else "CHACHA20_POLY1305_SHA256"
    return f"TLS_{exchange.replace('-', '_')}_WITH_{cipher}"


def _instead(number: str, java: str) -> Callable[[str], str]:
    """Return what writes `number`, which has a meaning of its own, as Java does."""
    return lambda value: java if value.strip() == number else value


def _boolean(value: str) -> str:
    return {"t": "true", "1": "true", "f": "false", "0": "false"}.get(value.lower(), value)


_VALUES: Mapping[str, Callable[[str], str]] = {
    "check.crcs": _boolean,
    "connections.max.idle.ms": _instead("0", "-1"),
    "security.protocol": str.upper,
    "socket.receive.buffer.bytes": _instead("0", "-1"),
    "socket.send.buffer.bytes": _instead("0", "-1"),
    "ssl.cipher.suites": _cipher_suites,
    "ssl.endpoint.identification.algorithm": _instead("none", ""),
    "topic.metadata.refresh.interval.ms": _instead("-1", _NEVER),
}
"""Settings whose values Java writes in another way."""


def _login(config: Mapping[str, str], mechanism: str) -> str:
    module = _LOGIN.get(mechanism)
    if module is None:
        raise KafkaSettingError(
            f"sasl.mechanism {mechanism!r} with sasl.username: expected one of {', '.join(sorted(_LOGIN))}"
        )
    user, password = (_quoted(config.get(name, "")) for name in ("sasl.username", "sasl.password"))
    return f"{module} required username={user} password={password};"


def text_of(name: str, path: str) -> str:
    """Return what is in a file of certificates that a setting names. Raises `KafkaSettingError`."""
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise KafkaSettingError(
            f"{name}: {path} cannot be read as PEM: {error}; correct the connection to Kafka"
        ) from error


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
