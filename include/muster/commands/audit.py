"""Carrying a command out and recording it in the cluster's history, from whatever surface it comes.

The effect of a command must not depend on the history: isolating a consumer needs Consul only, and has to work while
ZooKeeper is unavailable. So the command acts first, and a missing record is named in the outcome. Actor, moment and
reason are kept beside the override in Consul too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from muster.commands.command import Actor, Command, CommandError, CommandOutcome, Foreseen
from muster.commands.target import Target
from muster.core.history import LONGEST_DETAILS, CommandEntry
from muster.edges.zookeeper import ZooKeeperError


def carry_out(
    command: Command, target: Target, actor: Actor, given: Mapping[str, Any], via: str
) -> CommandOutcome:
    """Run `command` with the fields in `given`, and `record` it.

    Raises `CommandError`, and `ConsulError`, `ZooKeeperError` or `KafkaError` from the command; what a command did
    before it failed (`CommandOutcome.failure`) is recorded first.
    """
    found = command.run(target, actor, **{each.name: each.read(given) for each in command.fields})
    missing = record(target, actor, found.name or command.name, found.values, via)
    if found.failure is not None:
        raise found.failure
    return CommandOutcome(
        found.lines + missing, {"cluster": target.cluster.name, **found.values, **actor.values()}
    )


def record(target: Target, actor: Actor, what: str, values: Mapping[str, Any], via: str) -> tuple[str, ...]:
    """Record in the cluster's history that `what` was done; return a line that says so if that cannot be."""
    entry = CommandEntry(
        at=actor.at, who=actor.name, what=what, why=actor.reason, via=via, details=_within(values)
    )
    try:
        with target.store() as store:
            store.append_history(entry)
    except ZooKeeperError as error:
        return (f"it is done, but not in the cluster's history: {error}",)
    return ()


def foreseen(command: Command, target: Target, actor: Actor, given: Mapping[str, Any]) -> Foreseen:
    """Return what `command` would do with the fields in `given`; it is not carried out, and not recorded.

    Raises `CommandError` as the command does, and if it can not be foreseen.
    """
    if command.foresee is None:
        raise CommandError(f"what {command.name} would do can not be said before")
    return command.foresee(target, actor, **{each.name: each.read(given) for each in command.fields})


def _within(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details, without the longest ones where they are too long for an entry."""
    kept = dict(details)
    while len(json.dumps(kept)) > LONGEST_DETAILS:
        longest = max(kept, key=lambda key: len(json.dumps(kept[key])))
        kept[longest] = f"cut, {len(json.dumps(kept[longest]))} characters"
    return kept
