"""Draining a consumer, and undraining it: a graceful way to take one out, before maintenance for example.

A drain is a key in Consul. A drained consumer is planned as one that leaves: its partitions are handed to the others
in order (it stops reading and commits, then the new owner starts), so nothing is read twice. It stays registered and
live without partitions, and nothing is suspected of it. Where no other consumer can take over, it keeps what it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.commands.command import Actor, Outcome, done
from muster.commands.known import check_consumer
from muster.commands.refusal import CommandError, listed

if TYPE_CHECKING:
    from muster.commands.target import Target


def drain(target: Target, actor: Actor, consumer: str) -> Outcome:
    """Drain `consumer`. Raises `CommandError` if there is no such consumer, or if it is drained already."""
    consul, cluster = target.consul, target.cluster.name
    check_consumer(target, consumer)
    if not consul.overrides.drain(consumer, by=actor.name, why=actor.reason, at=actor.at):
        entry = consul.overrides.decisions().drained.get(consumer)
        by = f" by {entry.said()}" if entry else ""
        raise CommandError(
            f"consumer {consumer!r} of cluster {cluster!r} is drained already{by}; undrain it first to give another "
            "reason"
        )
    lines = (
        f"consumer {consumer} of cluster {cluster} is drained: {actor}",
        "its partitions are handed to the other consumers in order; it stays without any until undrain takes it back",
        *_hindrances(target, consumer),
    )
    return done("drain", cluster, actor, lines, consumer=consumer)


def undrain(target: Target, actor: Actor, consumer: str) -> Outcome:
    """Let `consumer` have partitions again. Raises `CommandError` if it is not drained."""
    consul, cluster = target.consul, target.cluster.name
    if not consul.overrides.undrain(consumer):
        raise CommandError(
            f"consumer {consumer!r} of cluster {cluster!r} is not drained; drained are: "
            f"{listed(consul.overrides.decisions().drained)}"
        )
    lines = (f"consumer {consumer} of cluster {cluster} gets partitions again: {actor}",)
    return done("undrain", cluster, actor, lines, consumer=consumer)


def _hindrances(target: Target, consumer: str) -> list[str]:
    """Say if no other live consumer may take over."""
    membership = target.consul.catalog.members().membership
    drained = target.consul.overrides.decisions().drained
    if membership is None or membership.live.keys() - drained.keys() - {consumer}:
        return []
    return ["no other consumer is live that is not drained: it keeps its partitions until there is one"]
