"""Kafka with SASL over TLS and ACLs: the rights of `docs/security.md` are enough, and a lack of them is reported."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from devstack.certificates import Authority
from devstack.secured import SecureKafka
from muster.consumer.state.contents import Contents
from muster.core.offsets import Retention, TopicOffsets
from muster.doctor import kafka as doctor
from muster.doctor.findings import Check, CheckOutcome, Part
from muster.edges.dead_letters import DeadLetterTopic, letter
from muster.edges.kafka import GroupOffsets, KafkaError, PartitionError, TopicLister
from muster.edges.kafka_admin import librdkafka_logger
from muster.edges.kafka_fencing import FencedCommits
from muster.edges.kafka_offsets import OffsetReader
from muster.edges.record_reader import RecordReader
from muster.edges.state_changelog import ChangelogTopic, changelog_topic
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.only_long import only_long
from tests.support.secured import (
    CLUSTER,
    CONSUMER,
    COORDINATOR,
    GROUP,
    STRANGER,
    TOPIC,
    VIEWER,
    Passwords,
    connection,
)

PARTITION = (TOPIC, 0)
VALUES = [b"a", b"b", b"c"]
IMPATIENT = 4.0
"""Seconds: long enough to be refused."""
HIDDEN = "hidden"
"""A topic to which no user has rights."""


@pytest.fixture(scope="module")
def server(secure_kafka: SecureKafka) -> SecureKafka:
    """With the topics, and records in one of them."""
    admin = AdminClient(secure_kafka.client_settings(), logger=librdkafka_logger())
    present = admin.list_topics(timeout=10).topics
    wanted = [NewTopic(name, 1, 1) for name in (TOPIC, HIDDEN) if name not in present]
    for future in admin.create_topics(wanted).values() if wanted else ():
        future.result(20)
    producer = Producer(secure_kafka.client_settings(), logger=librdkafka_logger())
    for value in VALUES:
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(20) == 0
    return secure_kafka


@pytest.fixture
def of(server: SecureKafka, passwords: Passwords, authority: Authority) -> Callable[..., KafkaSettings]:
    """The settings that the connection of the page comes to."""

    def make(user: str, password: str | None = None, **changed: str) -> KafkaSettings:
        known = passwords.users()[user] if password is None else password
        page = connection(
            "kafka-connection", SERVERS=server.address, CA=str(authority.ca), USER=user, PASSWORD=known
        )
        config = page["extra"] | {key.replace("_", "."): value for key, value in changed.items()}
        return KafkaSettings(config=config, operation_timeout=IMPATIENT)

    return make


@pytest.fixture
def group_of() -> Iterator[Callable[[KafkaSettings], GroupOffsets]]:
    opened: list[GroupOffsets] = []

    def make(settings: KafkaSettings) -> GroupOffsets:
        opened.append(GroupOffsets(settings, GROUP))
        return opened[-1]

    yield make
    for group in opened:
        group.close()


def test_the_coordinators_rights_are_enough_to_list_its_topics_and_no_others(of) -> None:
    assert TopicLister(of(COORDINATOR)).list_partitions() == {TOPIC: frozenset({0})}


def test_the_consumers_rights_are_enough_to_plan_and_to_commit(of, group_of) -> None:
    settings = of(CONSUMER)
    group = group_of(settings)
    assert group.beginning_offsets([PARTITION]) == {PARTITION: 0}
    assert group.end_offsets([PARTITION])[PARTITION] >= len(VALUES)
    group.commit({PARTITION: 2})
    assert group.committed([PARTITION]) == {PARTITION: 2}


def checks(settings: KafkaSettings, names: tuple[str, ...], *state: str) -> Iterator[Check]:
    consumers = {"handler": "a.b", "state": list(state)}
    text = {"consul_service": CLUSTER, "group_id": GROUP, "topics": [TOPIC], "consumers": consumers}
    cluster = ClusterSettings.model_validate({"name": CLUSTER, **text})
    return doctor.check_kafka(Part("kafka"), settings, cluster, names)


def test_doctor_says_so_where_the_user_may_not_describe_the_group(of) -> None:
    (_, members) = checks(of(STRANGER), doctor.GROUP)
    assert members.outcome is CheckOutcome.WARNING
    assert members.found.startswith("whether the group has members is unknown: ")
    assert "Describe on the topics and the group" in members.step
    (_, members) = checks(of(CONSUMER), doctor.GROUP)
    assert members.name == "members"
    assert members.outcome is CheckOutcome.OK


def test_doctor_checks_changelogs_and_the_rights_on_them(of, server: SecureKafka) -> None:
    """Whether one may be made is asked, and none is made."""
    name = changelog_topic(CLUSTER, TOPIC)
    admin = AdminClient(server.client_settings(), logger=librdkafka_logger())

    def state(user: str, *patterns: str) -> Check:
        return list(checks(of(user), doctor.GROUP, *(patterns or (TOPIC,))))[-1]

    found = state(CONSUMER)
    assert (found.name, found.outcome) == ("state", CheckOutcome.OK)
    assert "1 topics have state, 0 changelogs are there, 1 may be made" in found.found
    assert name not in admin.list_topics(timeout=10).topics
    refused = state(COORDINATOR)
    assert refused.outcome is CheckOutcome.FAILED
    assert "make it with 'kafka-topics.sh --create" in refused.found
    assert state(CONSUMER, "other").outcome is CheckOutcome.WARNING
    ChangelogTopic(of(CONSUMER), CLUSTER, [TOPIC]).ensure()
    try:
        assert "1 changelogs are there; the rights on the topics" in state(CONSUMER).found
        assert "lacks the rights DESCRIBE_CONFIGS, WRITE" in "".join(state(VIEWER).details)
        assert "if it is there, allow this user Describe on it" in state(COORDINATOR).found
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
        resource.add_incremental_config(entry)
        admin.incremental_alter_configs([resource])[resource].result(20)
        admin.create_partitions([NewPartitions(name, 3)])[name].result(20)
        wrong = state(CONSUMER)
        assert wrong.outcome is CheckOutcome.FAILED
        assert "it has 3 partitions, and topic 'flights' has 1" in wrong.details[0]
        assert "--add-config cleanup.policy=compact'" in wrong.details[1]
    finally:
        admin.delete_topics([name])[name].result(20)


def test_state_command_names_the_right_that_is_missing(of, server: SecureKafka) -> None:
    """Who may describe a changelog sees it, and may not read it."""
    admin = AdminClient(server.client_settings(), logger=librdkafka_logger())
    producer = Producer(server.client_settings(), logger=librdkafka_logger())
    own, other = (changelog_topic(cluster, "rights") for cluster in (CLUSTER, "other"))
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in (own, other)]).values():
        future.result(20)
    try:
        for name in (own, other):
            producer.produce(name, b"x", b"\x01")
        assert producer.flush(20) == 0
        right = ["--allow-principal", f"User:{VIEWER}", "--operation", "Describe", "--topic", other]
        server.grant(["--add", *right])
        with closing(Contents(of(VIEWER), GROUP, CLUSTER, "rights", 0)) as contents:
            assert contents.position is None
        with pytest.raises(KafkaError, match=f"allow this user Read and Describe on topic '{other}'"):
            Contents(of(VIEWER), GROUP, "other", "rights", 0)
    finally:
        for future in admin.delete_topics([own, other]).values():
            future.result(20)


@pytest.mark.parametrize(
    ("changed", "found", "step"),
    [
        ({"security_protocol": "PLAINTEXT"}, "speaks SASL_SSL, ", "to SASL_SSL and sasl.mechanism to one of"),
        ({"security_protocol": "SSL"}, "speaks SASL_SSL, ", "these: PLAIN, SCRAM-SHA-512; or name a port"),
        pytest.param(
            {"security_protocol": "SASL_PLAINTEXT"},
            "has security.protocol SASL_PLAINTEXT",
            "SASL_SSL",
            marks=only_long,
        ),
        pytest.param(
            {"sasl_mechanism": "SCRAM-SHA-256"},
            "mechanisms PLAIN, SCRAM-SHA-512, and",
            "PLAIN, SCRAM-SHA-512",
            marks=only_long,
        ),
    ],
)
def test_doctor_names_the_protocol_that_kafka_speaks(changed, found, step, of) -> None:
    check = next(checks(of(COORDINATOR, **changed), doctor.BROKERS))
    assert check.outcome is CheckOutcome.FAILED
    assert found in check.found
    assert step in check.step


def test_doctor_names_a_kafka_without_sasl(of, kafka: KafkaSettings) -> None:
    check = next(
        checks(
            of(COORDINATOR, bootstrap_servers=kafka.bootstrap_servers, security_protocol="SASL_PLAINTEXT"),
            doctor.BROKERS,
        )
    )
    assert f"{kafka.bootstrap_servers} speaks PLAINTEXT, and the connection has" in check.found
    assert check.step.startswith("set security.protocol in the connection to PLAINTEXT; or name a port")


def transact(settings: KafkaSettings, transactional_id: str) -> None:
    """Commit an offset of the group in a transaction."""
    config = {**settings.config, "transactional.id": transactional_id}
    producer = Producer(config, logger=librdkafka_logger())
    member = Consumer({**settings.config, "group.id": GROUP}, logger=librdkafka_logger())
    try:
        producer.init_transactions(10)
        producer.begin_transaction()
        group = member.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(*PARTITION, 1)], group, 10)
        producer.commit_transaction(10)
    finally:
        member.close()


def test_the_consumers_rights_are_enough_for_a_commit_in_a_transaction(of, group_of) -> None:
    settings = of(CONSUMER)
    transact(settings, f"muster/{CLUSTER}/{TOPIC}/0/{GROUP}")
    assert group_of(settings).committed([PARTITION]) == {PARTITION: 1}
    with pytest.raises(KafkaException, match="Transactional Id authorization failed"):
        transact(settings, f"muster/other/{TOPIC}/0/{GROUP}")


def test_the_consumers_rights_are_enough_for_dead_letters(of, group_of, eventually: Eventually) -> None:
    settings = of(CONSUMER)
    group = group_of(settings)
    letters_to = f"__muster.dead-letters.{CLUSTER}"
    for _ in range(2):
        DeadLetterTopic(settings, letters_to).ensure()
    # Other tests may have written to the topic before this file's records.
    first = group.end_offsets([PARTITION])[PARTITION] - len(VALUES)
    record = RecordReader(settings, GROUP).read(PARTITION, first)
    assert record is not None
    assert record.value == VALUES[0]
    commits = FencedCommits(settings, CLUSTER, group)
    eventually(lambda: not commits.claim([PARTITION]).failed, 60, "claimed")
    refused = {PARTITION: {0: letter(record, HIDDEN, {})}}

    def why() -> str:
        return commits.commit({PARTITION: 1}, letters=refused).failed[PARTITION]

    eventually(lambda: f"allow this user to write to topic '{HIDDEN}'" in why(), 60, "refused")
    made = {PARTITION: {0: letter(record, letters_to, {})}}
    eventually(lambda: commits.commit({PARTITION: 1}, letters=made).done == {PARTITION: 1}, 60, "written")
    commits.close()


def test_viewers_rights_are_enough_for_lag_in_time(of) -> None:
    def read(user: str) -> TopicOffsets:
        reader = OffsetReader(of(user), GROUP)
        try:
            return reader.read({TOPIC: frozenset({0})}, {})
        finally:
            reader.close()

    for user, retention in ((VIEWER, {TOPIC: Retention(7 * 86_400.0)}), (CONSUMER, {})):
        found = read(user)
        assert found.first[PARTITION] is not None
        assert (found.unread, found.retention) == ("", retention)


def test_doctor_names_rights_that_lag_in_time_needs(of) -> None:
    assert [check.outcome for check in checks(of(VIEWER), doctor.BROKERS)] == [CheckOutcome.OK] * 3
    *_, lag = checks(of(COORDINATOR), doctor.BROKERS)
    assert lag.outcome is CheckOutcome.WARNING, "it may not describe the group"
    *_, lag = checks(of(CONSUMER), doctor.BROKERS)
    assert lag.found == f"the retention cannot be read of topics {TOPIC}"
    assert lag.step.startswith(f"allow user '{CONSUMER}' Read and DescribeConfigs on the topics")


def test_read_only_user_sees_offsets_and_changes_none(of, group_of) -> None:
    settings = of(VIEWER)
    assert TopicLister(settings).list_partitions() == {TOPIC: frozenset({0})}
    group = group_of(settings)
    assert group.end_offsets([PARTITION])[PARTITION] >= len(VALUES)
    assert PARTITION in group.committed([PARTITION])
    with pytest.raises(KafkaError, match=f"roup authorization failed.*asked as user '{VIEWER}'"):
        group.commit({PARTITION: 0})


def test_user_without_rights_sees_nothing(of) -> None:
    assert TopicLister(of(STRANGER)).list_partitions() == {}


def test_group_is_closed_to_other_users_with_an_error_that_says_so(of, group_of) -> None:
    group = group_of(of(COORDINATOR))
    for call in (lambda: group.committed([PARTITION]), lambda: group.commit({PARTITION: 0})):
        with pytest.raises(KafkaError) as refused:
            call()
        message = str(refused.value)
        assert f"of group {GROUP}" in message
        assert "Group authorization failed" in message
        assert f"Describe on its transactional ids (asked as user '{COORDINATOR}')" in message


def test_a_topic_that_one_may_not_read_is_named(of, group_of) -> None:
    with pytest.raises(
        PartitionError, match=f"{HIDDEN} .*check that the topic exists and may be read by this user"
    ):
        group_of(of(CONSUMER)).end_offsets([(HIDDEN, 0)])


def refusals(settings: KafkaSettings, group: GroupOffsets) -> list[str]:
    """What each part of Muster says to these settings, all asked at once as most of it is waiting."""
    calls: list[Callable[[], Any]] = [
        lambda: TopicLister(settings).list_topics(),
        lambda: group.end_offsets([PARTITION]),
        lambda: group.committed([PARTITION]),
        lambda: group.commit({PARTITION: 0}),
    ]

    def refusal(call: Callable[[], Any]) -> str:
        with pytest.raises(KafkaError) as refused:
            call()
        return str(refused.value)

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(refusal, calls))


def test_wrong_password_is_reported_by_every_part(of, group_of, caplog: pytest.LogCaptureFixture) -> None:
    settings = of(CONSUMER, password="pa55word-that-is-wrong")  # noqa: S106
    with caplog.at_level(logging.DEBUG):
        for message in refusals(settings, group_of(settings)):
            assert f"Kafka at {settings.bootstrap_servers}" in message
            assert "SASL authentication error" in message
            assert "check sasl.username, sasl.password and sasl.mechanism in the connection" in message
            assert f"asked as user '{CONSUMER}'" in message
            assert "pa55word" not in message
    assert "pa55word" not in caplog.text


def test_foreign_certificate_is_reported_by_every_part(of, group_of, stranger_ca: Path) -> None:
    settings = of(CONSUMER, ssl_ca_location=str(stranger_ca))
    for message in refusals(settings, group_of(settings)):
        assert f"Kafka at {settings.bootstrap_servers}" in message
        assert "certificate verify failed" in message
        assert "check ssl.ca.location in the connection" in message


def test_missing_ca_is_reported_before_connecting(of) -> None:
    settings = of(CONSUMER, ssl_ca_location="/nowhere/ca.pem")
    for call in (
        lambda: TopicLister(settings),
        lambda: GroupOffsets(settings, GROUP),
    ):
        with pytest.raises(KafkaError, match=r"ssl\.ca\.location failed.*correct the connection"):
            call()
