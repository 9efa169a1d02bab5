"""Saying where partitions go: pins (a partition to a consumer) and exclusions (a consumer from a topic).

Both stand in Consul until they are taken back. The coordinator's long poll sees them at once; a topic in the middle
of a rebalance follows them when it is Stable again. To take one back needs Consul only, and may name what is gone
from ZooKeeper meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.core.decisions import Exclusion, Pin
from muster.core.partition_list import format_partitions
from muster.edges.consul import Discovery
from muster.edges.zookeeper import TopicStore
from muster.levers.known import check_consumer, check_partitions, check_topic
from muster.levers.outcome import LeverError, Outcome, Word, pulled
from muster.settings.clusters import ClusterSettings


def pin(
    discovery: Discovery,
    store: TopicStore,
    cluster: ClusterSettings,
    topic: str,
    partitions: frozenset[int],
    consumer: str,
    word: Word,
) -> Outcome:
    """Fix `partitions` of `topic` to `consumer`; earlier pins of them are replaced.

    Raises `LeverError` if the topic, a partition or the consumer is unknown, or if the consumer is excluded from the
    topic. A consumer that is not live now may be pinned to; the pin waits for it. Each partition is written by
    itself: after a `ConsulError` some may be pinned, and doing it again does no harm.
    """
    check_partitions(store, cluster, topic, partitions)
    check_consumer(discovery, cluster, consumer)
    before = discovery.decisions()
    if (exclusion := before.exclusions.get((consumer, topic))) is not None:
        raise LeverError(f"consumer {exclusion}; include it first, or pin to another consumer")
    for partition in sorted(partitions):
        discovery.pin(topic, partition, consumer, by=word.who, why=word.why, at=word.at)
    named = format_partitions(partitions)
    lines = [
        f"partition(s) {named} of topic {topic} are pinned to consumer {consumer} of cluster {cluster.name}: "
        f"{word.why} (by {word.who})",
        *(
            f"partition {old.partition} was {old} before"
            for (of, number), old in sorted(before.pins.items())
            if of == topic and number in partitions and old.consumer != consumer
        ),
        *_hindrances(discovery, topic, consumer),
        "unpin takes it back",
    ]
    return pulled("pin", cluster.name, word, lines, topic=topic, partitions=named, consumer=consumer)


def unpin(
    discovery: Discovery, cluster: ClusterSettings, topic: str, partitions: frozenset[int], word: Word
) -> Outcome:
    """Take the pins of `partitions` back. Raises `LeverError`, and takes none back, if one of them is not pinned."""
    pins = {number: pin for (of, number), pin in discovery.decisions().pins.items() if of == topic}
    if missing := partitions - pins.keys():
        raise LeverError(
            f"partition(s) {format_partitions(missing)} of topic {topic!r} in cluster {cluster.name!r} are not "
            f"pinned; pinned are: {_pins(pins.values())}"
        )
    for partition in sorted(partitions):
        discovery.unpin(topic, partition)
    named = format_partitions(partitions)
    lines = [
        f"partition(s) {named} of topic {topic} of cluster {cluster.name} are no longer pinned: {word.why} "
        f"(by {word.who})",
        "they stay where they are until balance asks for something else",
    ]
    return pulled("unpin", cluster.name, word, lines, topic=topic, partitions=named)


def exclude(
    discovery: Discovery, store: TopicStore, cluster: ClusterSettings, consumer: str, topic: str, word: Word
) -> Outcome:
    """Keep `consumer` from `topic`.

    Raises `LeverError` if one of them is unknown, or if it is kept from it already.
    """
    check_topic(store, cluster, topic)
    check_consumer(discovery, cluster, consumer)
    if not discovery.exclude(consumer, topic, by=word.who, why=word.why, at=word.at):
        entry = discovery.decisions().exclusions.get((consumer, topic))
        by = f" by {entry.by}: {entry.why}" if entry else " by a key that cannot be read"
        raise LeverError(
            f"consumer {consumer!r} of cluster {cluster.name!r} is excluded from topic {topic!r} already{by}; "
            "include it first to give another reason"
        )
    pinned = [
        number
        for (of, number), pin in discovery.decisions().pins.items()
        if of == topic and pin.consumer == consumer
    ]
    lines = [
        f"consumer {consumer} of cluster {cluster.name} is excluded from topic {topic}: {word.why} (by {word.who})",
        *(
            [f"its pins of partition(s) {format_partitions(pinned)} cannot be obeyed meanwhile"]
            if pinned
            else []
        ),
        "its partitions go to the other consumers that take the topic; include takes it back",
    ]
    return pulled("exclude", cluster.name, word, lines, consumer=consumer, topic=topic)


def include(discovery: Discovery, cluster: ClusterSettings, consumer: str, topic: str, word: Word) -> Outcome:
    """Take the exclusion of `consumer` from `topic` back. Raises `LeverError` if there is none."""
    if not discovery.include(consumer, topic):
        raise LeverError(
            f"consumer {consumer!r} of cluster {cluster.name!r} is not excluded from topic {topic!r}; excluded are: "
            f"{_exclusions(discovery.decisions().exclusions.values())}"
        )
    lines = [
        f"consumer {consumer} of cluster {cluster.name} takes topic {topic} again: {word.why} (by {word.who})"
    ]
    return pulled("include", cluster.name, word, lines, consumer=consumer, topic=topic)


def _hindrances(discovery: Discovery, topic: str, consumer: str) -> list[str]:
    """What keeps a pin from being obeyed now, as far as service discovery knows."""
    membership = discovery.members().membership
    if membership is None:
        return []
    live = membership.live.get(consumer)
    if live is None:
        state = "isolated" if consumer in membership.isolated else "not live"
        return [f"consumer {consumer} is {state} now; the pin waits for it"]
    if not live.subscribes(topic):
        return [f"consumer {consumer} does not subscribe to topic {topic}; the pin waits until it does"]
    return []


def _pins(pins: Iterable[Pin]) -> str:
    by_consumer: dict[str, list[int]] = {}
    for pin in pins:
        by_consumer.setdefault(pin.consumer, []).append(pin.partition)
    return "; ".join(f"{format_partitions(by_consumer[c])} to {c}" for c in sorted(by_consumer)) or "none"


def _exclusions(exclusions: Iterable[Exclusion]) -> str:
    return ", ".join(sorted(f"{e.consumer} from {e.topic}" for e in exclusions)) or "none"
