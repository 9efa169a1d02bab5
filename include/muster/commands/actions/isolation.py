"""Isolating a consumer, and restoring it.

An isolation is a key in Consul. The coordinator gives an isolated consumer's partitions to the others, and a consumer
that still runs closes them by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.commands.command import Actor, Outcome, done
from muster.commands.known import check_consumer
from muster.commands.refusal import CommandError, listed

if TYPE_CHECKING:
    from muster.commands.target import Target


def isolate(target: Target, actor: Actor, consumer: str) -> Outcome:
    """Isolate `consumer`. Raises `CommandError` if there is no such consumer, or if it is isolated already."""
    consul, cluster = target.consul, target.cluster.name
    check_consumer(target, consumer)
    if not consul.overrides.isolate(consumer, by=actor.name, why=actor.reason, at=actor.at):
        entry = consul.overrides.isolated().get(consumer)
        by = f" by {entry.by}: {entry.why}" if entry else ""
        raise CommandError(
            f"consumer {consumer!r} of cluster {cluster!r} is isolated already{by}; restore it first to give "
            "another reason"
        )
    lines = (
        f"consumer {consumer} of cluster {cluster} is isolated: {actor}",
        "its partitions go to the other consumers; restore takes it back",
    )
    return done("isolate", cluster, actor, lines, consumer=consumer)


def restore(target: Target, actor: Actor, consumer: str) -> Outcome:
    """End the isolation of `consumer`. Raises `CommandError` if it is not isolated by a key."""
    consul, cluster = target.consul, target.cluster.name
    check_consumer(target, consumer)
    if not consul.overrides.restore(consumer):
        registration = consul.catalog.members().registered.get(consumer)
        maintenance = registration is not None and registration.maintenance
        raise CommandError(
            f"consumer {consumer!r} of cluster {cluster!r} is not isolated; isolated are: "
            f"{listed(consul.overrides.isolated())}"
            + ("; it is in Consul's maintenance mode, which ends with 'consul maint'" if maintenance else "")
        )
    lines = (f"consumer {consumer} of cluster {cluster} is restored: {actor}",)
    return done("restore", cluster, actor, lines, consumer=consumer)
