"""Kafka: reachable, the topics of the cluster are there, their lag in time may be read, the group's committed offsets
may be read, no consumer is a member of the group, and the changelogs of state by key are as they have to be.

Commits and transactional ids are not tried: a commit would be a change, and the first step of a transaction fences
its present holder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from confluent_kafka import KafkaException

from muster.core.model import TopicPartition
from muster.doctor.findings import Check, Part, explained, named
from muster.doctor.versions import TESTED
from muster.edges.kafka import GroupOffsets, TopicLister, TopicListing
from muster.edges.kafka_admin import Admin, Failure, KafkaError
from muster.edges.kafka_listener import ask_listener
from muster.edges.kafka_offsets import OffsetReader
from muster.edges.state_changelog import ChangelogTopic, changelog_topic
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import KafkaSettings

BROKERS = ("reachable", "topics", "lag in time")
"""What those are asked that list topics."""
GROUP = ("group", "members")
"""What those are asked that read and commit: the jobs. Members of the group, which are consumers with
`group.subscribe`, commit offsets of the same partitions as Muster's consumers, and so rewind one another."""
STATE = "state"
"""What those are asked in addition that keep state by key."""


def check_kafka(
    part: Part, settings: KafkaSettings, cluster: ClusterSettings, names: tuple[str, ...]
) -> Iterator[Check]:
    """Make the checks of `BROKERS`, `GROUP` or both. Each takes at most `operation_timeout` seconds and a grace."""
    try:
        lister = TopicLister(settings)
        try:
            listing = lister.list_topics()
        finally:
            lister.close()
    except KafkaError as error:
        yield _not_spoken(part, names[0], settings) or part.refused(names[0], error)
        yield from (part.skipped(name, "Kafka is out of reach") for name in names[1:])
        return
    if "reachable" in names:
        yield part.ok(
            "reachable",
            f"{settings.bootstrap_servers}, {_who(settings)}, {_brokers(settings)}; Kafka's client does not tell its "
            f"version, {TESTED['Kafka']} is tested",
        )
        yield _topics(part, settings, cluster, listing)
        yield _lag_in_time(part, settings, cluster, listing)
    if "group" in names:
        yield from _check_group(part, settings, cluster, listing)
        if cluster.consumers.state:
            yield _state(part, settings, cluster, listing)


def _not_spoken(part: Part, name: str, settings: KafkaSettings) -> Check | None:
    """Report that the first server speaks another protocol than the connection, or lacks its mechanism, if so."""
    server = settings.bootstrap_servers.partition(",")[0].strip()
    listener = ask_listener(server, settings.operation_timeout)
    if listener is None:
        return None
    config = settings.config
    protocol = config.get("security.protocol", "PLAINTEXT").upper()
    mechanism = config.get("sasl.mechanism") or config.get("sasl.mechanisms") or "GSSAPI"
    offered = ", ".join(listener.mechanisms)
    if listener.protocol != protocol:
        also = f" and sasl.mechanism to one of these: {offered}" if offered else ""
        return part.failed(
            name,
            f"{server} speaks {listener.protocol}, and the connection has security.protocol {protocol}",
            f"set security.protocol in the connection to {listener.protocol}{also}; or name a port that speaks "
            f"{protocol}",
        )
    if offered and mechanism not in listener.mechanisms:
        return part.failed(
            name,
            f"{server} speaks the SASL mechanisms {offered}, and the connection has sasl.mechanism {mechanism}",
            f"set sasl.mechanism in the connection to one of these: {offered}",
        )
    return None


def _state(part: Part, settings: KafkaSettings, cluster: ClusterSettings, listing: TopicListing) -> Check:
    """Check the changelogs. Only a handler knows which topics it writes to."""
    topics = [
        topic
        for topic in sorted(listing.partitions)
        if cluster.topics.includes(topic) and cluster.state.has(topic)
    ]
    if not topics:
        step = "correct 'state' of the consumers: regular expressions of whole names of topics that are read"
        return part.warning(
            STATE, f"no topic that is read has state by {', '.join(map(str, cluster.consumers.state))}", step
        )
    wrong: list[str] = []
    states = {cluster.state.together(topic) for topic in topics}
    for together in sorted(states):
        try:
            wrong += ChangelogTopic(settings, cluster.name, together).examine(listing.partitions)
        except KafkaError as error:
            wrong.append(str(error))
    if wrong:
        return part.failed(
            STATE, named(wrong), f"do as they say, with the rights of {_user(settings)}", wrong
        )
    there = sum(changelog_topic(cluster.name, topic) in listing.partitions for topic, *_ in states)
    made = f", {len(states) - there} may be made" if there < len(states) else ""
    return part.ok(
        STATE,
        f"{_who(settings)}: {len(topics)} topics have state, {there} changelogs are there{made}; the rights on the "
        "topics that handlers write to are not known",
    )


def _check_group(
    part: Part, settings: KafkaSettings, cluster: ClusterSettings, listing: TopicListing
) -> Iterator[Check]:
    ours = [(t, p) for t, there in listing.partitions.items() if cluster.topics.includes(t) for p in there]
    try:
        group = GroupOffsets(settings, cluster.group_id)
        try:
            committed = group.committed(ours)
            members = _members(part, group)
        finally:
            group.close()
    except KafkaError as error:
        yield part.refused("group", error)
        yield part.skipped("members", "the group cannot be read")
        return
    yield _group(part, settings, cluster, committed)
    yield members


def _group(
    part: Part,
    settings: KafkaSettings,
    cluster: ClusterSettings,
    committed: Mapping[TopicPartition, int | None],
) -> Check:
    if not committed:
        return part.skipped("group", f"{_who(settings)}: there is no topic to ask for")
    with_offset = sum(offset is not None for offset in committed.values())
    fenced = (
        f", nor the right to transactional ids muster/{cluster.name}/..., which fencing needs"
        if cluster.fencing
        else ""
    )
    return part.ok(
        "group",
        f"{cluster.group_id}, {_who(settings)}: offsets of {with_offset} of {len(committed)} partitions are "
        f"committed; whether commits are allowed is not tried{fenced}",
    )


def _members(part: Part, group: GroupOffsets) -> Check:
    try:
        members = group.members()
    except KafkaError as error:
        problem, step = explained(error)
        if "timed out" in problem.lower():
            step = f"ask again, a new Kafka first makes its topic __consumer_offsets; then {step}"
        return part.warning("members", f"whether the group has members is unknown: {problem}", step)
    if not members:
        return part.ok("members", f"no consumer is a member of group {group.group_id}")
    listed = sorted(f"{member.client_id} at {member.host}" for member in members)
    return part.warning(
        "members",
        f"group {group.group_id} has {len(listed)} member(s), consumers that subscribe with this group.id: "
        f"{named(listed)}; they commit offsets of the same partitions as Muster's consumers",
        "stop these consumers, or give them or this cluster another group id",
        listed,
    )


def _who(settings: KafkaSettings) -> str:
    user = settings.config.get("sasl.username")
    return f"as user {user!r}" if user else "without a user"


def _user(settings: KafkaSettings) -> str:
    user = settings.config.get("sasl.username")
    return f"user {user!r}" if user else "clients without a user"


def _brokers(settings: KafkaSettings) -> str:
    try:
        admin = Admin(settings)
        try:
            brokers = admin.brokers(admin.timeout)
        except KafkaException as error:
            return f"brokers unknown ({Failure.of(error).text})"
        finally:
            admin.close()
    except KafkaError as error:
        return f"brokers unknown ({error})"
    return f"{len(brokers)} broker{'s' if len(brokers) != 1 else ''}"


def _topics(part: Part, settings: KafkaSettings, cluster: ClusterSettings, listing: TopicListing) -> Check:
    wrong = [
        f"topic {name}: {listing.errors.get(name, 'is not there')}"
        for name in cluster.topics.names
        if name not in listing.partitions
    ]
    wrong += [f"pattern {p!r} matches no topic" for p in cluster.topics.patterns if not _matches(p, listing)]
    if wrong:
        return part.failed(
            "topics",
            named(wrong),
            f"create the topics, correct the settings, or allow {_user(settings)} to describe them: Kafka "
            "hides a topic from users that may not",
            wrong,
        )
    found: Mapping[str, int] = {
        topic: len(there) for topic, there in listing.partitions.items() if cluster.topics.includes(topic)
    }
    return part.ok("topics", f"{len(found)} topics with {sum(found.values())} partitions")


def _lag_in_time(
    part: Part, settings: KafkaSettings, cluster: ClusterSettings, listing: TopicListing
) -> Check:
    ours = {topic for topic in listing.partitions if cluster.topics.includes(topic)}
    reader = OffsetReader(settings, cluster.group_id)
    try:
        unread = reader.read_of(cluster.topics.includes, {}).unread
        lister = TopicLister(settings)
        try:
            kept = lister.retention(ours)
        finally:
            lister.close()
    except KafkaError as error:
        problem, step = explained(error)
        return part.warning("lag in time", f"it cannot be read: {problem}", step)
    finally:
        reader.close()
    wrong = [f"the first record that is not committed cannot be read: {unread}"] if unread else []
    if hidden := sorted(ours - kept.keys()):
        wrong.append(f"the retention cannot be read of topics {named(hidden)}")
    if wrong:
        step = (
            f"allow {_user(settings)} Read and DescribeConfigs on the topics, as docs/security.md has it; without "
            "them everything else works"
        )
        return part.warning("lag in time", "; ".join(wrong), step)
    return part.ok("lag in time", f"timestamps and retention of {len(ours)} topics can be read")


def _matches(pattern: str, listing: TopicListing) -> bool:
    return any(not name.startswith("__") and re.fullmatch(pattern, name) for name in listing.partitions)
