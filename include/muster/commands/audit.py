"""Carrying a command out and recording it in the cluster's history, from whatever surface it comes.

The effect of a command must not depend on the history: isolating a consumer needs Consul only, and has to work while
ZooKeeper is unavailable. So the command acts first, and a missing record is named in the outcome. Actor, moment and
reason are kept beside the override in Consul too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from muster.commands.command import Actor, Command, Outcome
from muster.commands.target import Target
from muster.core.history import LONGEST_DETAILS, CommandEntry
from muster.edges.zookeeper import ZooKeeperError

_OWN_FIELDS = frozenset({"cluster", "who", "at", "reason"})
"""What an entry has a place of its own for."""


def carry_out(command: Command, target: Target, actor: Actor, given: Mapping[str, Any], via: str) -> Outcome:
    """Run `command` with the fields in `given`, and record it; `via` is the surface (a DAG and its run, ...).

    Raises what `Command.act` raises. A record that cannot be written is one more line of the outcome.
    """
    return recorded(command.act(target, actor, given), target, via)


def recorded(outcome: Outcome, target: Target, via: str) -> Outcome:
    """Append what a command did to the cluster's history. Never raises for ZooKeeper: the outcome says what is
    missing."""
    values = outcome.values
    entry = CommandEntry(
        at=float(values["at"]),
        who=str(values["who"]),
        what=outcome.command,
        why=str(values["reason"]),
        via=via,
        details=_within({key: value for key, value in values.items() if key not in _OWN_FIELDS}),
    )
    try:
        with target.store() as store:
            store.append_history(entry)
    except ZooKeeperError as error:
        missing = f"it is done, but not in the cluster's history: {error}"
        return replace(outcome, lines=(*outcome.lines, missing))
    return outcome


def _within(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details, without the longest ones where they are too long for an entry."""
    kept = dict(details)
    while len(json.dumps(kept)) > LONGEST_DETAILS:
        longest = max(kept, key=lambda key: len(json.dumps(kept[key])))
        kept[longest] = f"cut, {len(json.dumps(kept[longest]))} characters"
    return kept
