"""What is decided about the coordination of a cluster as a whole: pause, rebalance now, another assignor.

Paused, the coordinator plans nothing and writes nothing, and each of its runs says who paused it and why. Consumers
keep what they have; a hand-over under way waits. Unlike pausing the coordinator's DAG it is an override with a name
and a reason, it is shown wherever the cluster is, and it takes effect in the middle of a run.

A rebalance now ends the waits: for absent consumers (`rebalance_delay`), and of assignors that keep something where
it is until a person says otherwise. What a setting bounds stays bounded. docs/decisions/0006 has the reasons.

A chosen assignor overrides the settings until it is cleared, also when the file changes meanwhile. The next
coordinator run plans with it; `muster plan --assignor` shows beforehand what that would move.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from muster.commands.command import Actor, CommandError, CommandOutcome, NamedAssignor
from muster.core.assignors import AssignorError
from muster.core.overrides import shown_options
from muster.settings.assignor_choice import load_chosen

if TYPE_CHECKING:
    from muster.commands.target import Target


def pause(target: Target, actor: Actor) -> CommandOutcome:
    """Pause coordination. Raises `CommandError` if it is paused already."""
    cluster = target.cluster.name
    if not target.consul.overrides.pause(by=actor.name, why=actor.reason, at=actor.at):
        found = target.consul.overrides.read().paused
        raise CommandError(
            f"cluster {cluster!r} is {found or 'paused'} already; resume it first to give another reason"
        )
    lines = (
        f"coordination of cluster {cluster} is paused: {actor}",
        "nothing is planned or written until it is resumed; consumers go on with what they have, and one that dies "
        "is not replaced",
    )
    return CommandOutcome(lines)


def resume(target: Target, actor: Actor) -> CommandOutcome:
    """End the pause. Raises `CommandError` if coordination is not paused."""
    cluster = target.cluster.name
    before = target.consul.overrides.read().paused
    if not target.consul.overrides.resume():
        raise CommandError(
            f"cluster {cluster!r} is not paused by Muster's command; the coordinator's DAG may be"
        )
    lines = [f"coordination of cluster {cluster} goes on: {actor}"]
    if before is not None:
        lines.append(f"it was {before}")
    return CommandOutcome(tuple(lines))


def rebalance_now(target: Target, actor: Actor) -> CommandOutcome:
    """Have the coordinator rebalance at once. Raises `CommandError` if coordination is paused.

    An earlier request that was not carried out yet is replaced.
    """
    cluster = target.cluster.name
    before = target.consul.overrides.read()
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
    return CommandOutcome(tuple(lines))


def plan_with(target: Target, actor: Actor, assignor: NamedAssignor | None) -> CommandOutcome:
    """Plan with `assignor` from now on; None: with the one of the settings again.

    Raises `CommandError` if there is no such assignor, it may not be chosen by hand or refuses its options; for None
    if none was chosen. A custom one has to be importable here and where the coordinator runs; where it is not, the
    coordinator says so and leaves everything as it is.
    """
    return _clear(target, actor) if assignor is None else _choose(target, actor, assignor)


def _choose(target: Target, actor: Actor, assignor: NamedAssignor) -> CommandOutcome:
    cluster, name, options = target.cluster, assignor.name, dict(assignor.options)
    try:
        load_chosen(cluster, name, options)
        json.dumps(options, allow_nan=False)
    except (AssignorError, TypeError, ValueError) as error:
        raise CommandError(f"{error}; the assignor of cluster {cluster.name!r} stays as it is") from error
    before = target.consul.overrides.read().assignor
    target.consul.overrides.choose_assignor(name, options, by=actor.name, why=actor.reason, at=actor.at)
    lines = (
        f"cluster {cluster.name} is planned with {name}{shown_options(options)}: {actor}",
        f"it was {before} before"
        if before
        else f"the settings say {_own(target)}, which is overridden until it is cleared",
    )
    return CommandOutcome(lines, {"assignor": name, "options": options})


def _clear(target: Target, actor: Actor) -> CommandOutcome:
    cluster = target.cluster
    before = target.consul.overrides.read().assignor
    if not target.consul.overrides.clear_assignor():
        raise CommandError(
            f"cluster {cluster.name!r} is planned with {_own(target)} of the settings already; nothing to clear"
        )
    lines = [f"cluster {cluster.name} is planned with {_own(target)} of the settings again: {actor}"]
    if before is not None:
        lines.append(f"it was {before} before")
    own = cluster.assignor
    return CommandOutcome(tuple(lines), {"assignor": own.name, "options": own.options}, name="clear-assignor")


def _own(target: Target) -> str:
    own = target.cluster.assignor
    return f"{own.name}{shown_options(own.options)}"
