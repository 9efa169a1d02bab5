"""Changing a cluster's assignor without touching clusters.yaml, and taking the change back.

The choice is kept in Consul and overrides clusters.yaml until it is cleared, also when the file changes meanwhile.
The next coordinator run plans with it; `muster plan --assignor` shows beforehand what that would move.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from muster.commands.command import Actor, NamedAssignor, Outcome, done
from muster.commands.refusal import CommandError
from muster.core.assignors import AssignorError
from muster.core.overrides import shown_options
from muster.settings.assignor_choice import load_chosen

if TYPE_CHECKING:
    from muster.commands.target import Target


def plan_with(target: Target, actor: Actor, assignor: NamedAssignor | None) -> Outcome:
    """Plan with `assignor` from now on; None: with the one of clusters.yaml again.

    Raises `CommandError` if there is no such assignor, it may not be chosen by hand or refuses its options; for None
    if none was chosen. A custom one has to be importable here and where the coordinator runs; where it is not, the
    coordinator says so and leaves everything as it is.
    """
    return _clear(target, actor) if assignor is None else _choose(target, actor, assignor)


def _choose(target: Target, actor: Actor, assignor: NamedAssignor) -> Outcome:
    cluster, name, options = target.cluster, assignor.name, dict(assignor.options)
    try:
        load_chosen(cluster, name, options)
        json.dumps(options, allow_nan=False)
    except (AssignorError, TypeError, ValueError) as error:
        raise CommandError(f"{error}; the assignor of cluster {cluster.name!r} stays as it is") from error
    before = target.discovery.decisions().assignor
    target.discovery.choose_assignor(name, options, by=actor.name, why=actor.reason, at=actor.at)
    lines = [
        f"cluster {cluster.name} is planned with {name}{shown_options(options)}: {actor}",
        f"it was {before} before"
        if before
        else f"clusters.yaml says {_own(target)}, which is overridden until it is cleared",
    ]
    return done("assignor", cluster.name, actor, lines, assignor=name, options=options)


def _clear(target: Target, actor: Actor) -> Outcome:
    cluster = target.cluster
    before = target.discovery.decisions().assignor
    if not target.discovery.clear_assignor():
        raise CommandError(
            f"cluster {cluster.name!r} is planned with {_own(target)} of clusters.yaml already; nothing to clear"
        )
    lines = [
        f"cluster {cluster.name} is planned with {_own(target)} of clusters.yaml again: {actor}",
        *([f"it was {before} before"] if before else []),
    ]
    own = cluster.assignor
    return done("clear-assignor", cluster.name, actor, lines, assignor=own.name, options=own.options)


def _own(target: Target) -> str:
    own = target.cluster.assignor
    return f"{own.name}{shown_options(own.options)}"
