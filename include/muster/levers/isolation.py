"""Isolating a consumer, and taking it back.

Isolation is a key in Consul with who, when and why. The coordinator gives an isolated consumer's partitions to the
others, and a consumer that can still hear closes them by itself.
"""

from __future__ import annotations

from muster.edges.consul import Discovery
from muster.levers.known import check_consumer
from muster.levers.outcome import LeverError, Outcome, Word, listed, pulled
from muster.settings.clusters import ClusterSettings


def isolate(discovery: Discovery, cluster: ClusterSettings, consumer: str, word: Word) -> Outcome:
    """Isolate `consumer`. Raises `LeverError` if there is no such consumer, or if it is isolated already."""
    check_consumer(discovery, cluster, consumer)
    if not discovery.isolate(consumer, by=word.who, why=word.why, at=word.at):
        entry = discovery.isolated().get(consumer)
        by = f" by {entry.by}: {entry.why}" if entry else ""
        raise LeverError(
            f"consumer {consumer!r} of cluster {cluster.name!r} is isolated already{by}; restore it first to give "
            "another reason"
        )
    lines = (
        f"consumer {consumer} of cluster {cluster.name} is isolated: {word.why} (by {word.who})",
        "its partitions go to the other consumers; restore takes it back",
    )
    return pulled("isolate", cluster.name, word, lines, consumer=consumer)


def restore(discovery: Discovery, cluster: ClusterSettings, consumer: str, word: Word) -> Outcome:
    """End the isolation of `consumer`. Raises `LeverError` if there is none, or if it is not isolated by Muster."""
    check_consumer(discovery, cluster, consumer)
    if not discovery.restore(consumer):
        registration = discovery.members().registered.get(consumer)
        maintenance = registration is not None and registration.maintenance
        raise LeverError(
            f"consumer {consumer!r} of cluster {cluster.name!r} is not isolated; isolated are: "
            f"{listed(discovery.isolated())}"
            + ("; it is in Consul's maintenance mode, which ends with 'consul maint'" if maintenance else "")
        )
    lines = (f"consumer {consumer} of cluster {cluster.name} is restored: {word.why} (by {word.who})",)
    return pulled("restore", cluster.name, word, lines, consumer=consumer)
