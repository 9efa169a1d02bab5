"""Pausing the coordination of a cluster, resuming it, and rebalancing now.

Paused, the coordinator plans nothing and writes nothing, and each of its runs says who paused it and why. Consumers
keep what they have; a hand-over under way waits. Unlike pausing the coordinator's DAG it is an override with a name
and a reason, it is shown wherever the cluster is, and it takes effect in the middle of a run.

A rebalance now ends the waits: for absent consumers (`rebalance_delay`), and of assignors that keep something where
it is until a person says otherwise. What a setting bounds stays bounded. docs/decisions/0015 has the reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.commands.command import Actor, Outcome, done
from muster.commands.refusal import CommandError

if TYPE_CHECKING:
    from muster.commands.target import Target


def pause(target: Target, actor: Actor) -> Outcome:
    """Pause coordination. Raises `CommandError` if it is paused already."""
    cluster = target.cluster.name
    if not target.consul.overrides.pause(by=actor.name, why=actor.reason, at=actor.at):
        found = target.consul.overrides.decisions().paused
        raise CommandError(
            f"cluster {cluster!r} is {found or 'paused'} already; resume it first to give another reason"
        )
    lines = (
        f"coordination of cluster {cluster} is paused: {actor}",
        "nothing is planned or written until it is resumed; consumers go on with what they have, and one that dies "
        "is not replaced",
    )
    return done("pause", cluster, actor, lines)


def resume(target: Target, actor: Actor) -> Outcome:
    """End the pause. Raises `CommandError` if coordination is not paused."""
    cluster = target.cluster.name
    before = target.consul.overrides.decisions().paused
    if not target.consul.overrides.resume():
        raise CommandError(
            f"cluster {cluster!r} is not paused by Muster's command; the coordinator's DAG may be"
        )
    lines = [f"coordination of cluster {cluster} goes on: {actor}"]
    if before is not None:
        lines.append(f"it was {before}")
    return done("resume", cluster, actor, lines)


def rebalance_now(target: Target, actor: Actor) -> Outcome:
    """Have the coordinator rebalance at once. Raises `CommandError` if coordination is paused.

    An earlier request that was not carried out yet is replaced.
    """
    cluster = target.cluster.name
    before = target.consul.overrides.decisions()
    if before.paused is not None:
        raise CommandError(
            f"cluster {cluster!r} is {before.paused}: nothing can be rebalanced now; resume it first"
        )
    target.consul.overrides.ask_for_rebalance(by=actor.name, why=actor.reason, at=actor.at)
    lines = [
        f"cluster {cluster} is rebalanced now: {actor}",
        "absent consumers are not waited for, and what the assignor keeps where it is until a person asks goes where "
        "it belongs; a cluster that is balanced stays as it is",
    ]
    if before.rebalance is not None:
        lines.append(f"in place of: {before.rebalance}")
    return done("rebalance", cluster, actor, lines)
