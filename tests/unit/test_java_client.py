"""The settings of Kafka's Java client that do what librdkafka's do."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.consumer.source.java_client import KafkaSettingError, java_properties


def test_settings_of_one_name_are_passed_on_and_records_are_read_committed() -> None:
    assert java_properties({"bootstrap.servers": "k:9092", "client.rack": "r"}) == {
        "bootstrap.servers": "k:9092",
        "client.rack": "r",
        "isolation.level": "read_committed",
    }
    assert java_properties({"isolation.level": "read_uncommitted"}) == {"isolation.level": "read_uncommitted"}


def test_settings_of_librdkafka_are_renamed_or_left_out() -> None:
    found = java_properties(
        {"fetch.wait.max.ms": "7", "sasl.mechanisms": "GSSAPI", "queued.min.messages": "9", "debug": "all"}
    )
    assert found == {
        "fetch.max.wait.ms": "7",
        "sasl.mechanism": "GSSAPI",
        "isolation.level": "read_committed",
    }


@pytest.mark.parametrize(
    ("name", "value", "java_name", "java_value"),
    [
        (
            "ssl.cipher.suites",
            "ECDHE-RSA-AES256-GCM-SHA384:TLS_AES_128_GCM_SHA256:ECDHE-ECDSA-CHACHA20-POLY1305",
            "ssl.cipher.suites",
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256,"
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        ),
        ("topic.metadata.refresh.interval.ms", "-1", "metadata.max.age.ms", "2147483647"),
        ("topic.metadata.refresh.interval.ms", "5000", "metadata.max.age.ms", "5000"),
        ("connections.max.idle.ms", "0", "connections.max.idle.ms", "-1"),
        ("socket.receive.buffer.bytes", "0", "receive.buffer.bytes", "-1"),
        ("check.crcs", "1", "check.crcs", "true"),
    ],
)
def test_values_are_written_as_java_does(name: str, value: str, java_name: str, java_value: str) -> None:
    assert java_properties({name: value})[java_name] == java_value


def test_group_membership_settings_are_left_out() -> None:
    given = {
        "partition.assignment.strategy": "range,roundrobin",
        "session.timeout.ms": "1",
        "group.protocol": "x",
    }
    assert java_properties(given) == {"isolation.level": "read_committed"}


def test_login_is_quoted() -> None:
    found = java_properties(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "u",
            "sasl.password": 'a"b\\c',
        }
    )
    assert found["security.protocol"] == "SASL_SSL"
    assert found["sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="a\\"b\\\\c";'
    )
    assert not {"sasl.username", "sasl.password"} & found.keys()


def test_certificates_are_read_from_their_files(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(f"the {name}")
    found = java_properties(
        {
            "ssl.ca.location": str(tmp_path / "ca"),
            "ssl.certificate.location": str(tmp_path / "cert"),
            "ssl.key.location": str(tmp_path / "key"),
            "ssl.key.password": "p",
            "ssl.endpoint.identification.algorithm": "none",
        }
    )
    assert found == {
        "isolation.level": "read_committed",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "the ca",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "the cert",
        "ssl.keystore.key": "the key",
        "ssl.key.password": "p",
        "ssl.endpoint.identification.algorithm": "",
    }


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"enable.ssl.certificate.verification": "false"}, "enable.ssl.certificate.verification"),
        ({"sasl.username": "u", "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER"),
        ({"ssl.ca.location": "/not/there"}, "/not/there"),
        ({"ssl.cipher.suites": "HIGH:!aNULL"}, "'HIGH' has no name in Java"),
    ],
)
def test_settings_that_java_has_nothing_for_are_named(config: dict[str, str], named: str) -> None:
    with pytest.raises(KafkaSettingError, match=named):
        java_properties(config)
