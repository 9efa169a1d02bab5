"""Every lever that was pulled stands in the cluster's history, wherever it was pulled: this is where it gets there.

A lever's effect must not depend on the history: isolating a consumer needs Consul only, and has to work while
ZooKeeper is out of reach. So the lever is pulled first, and what cannot be told is said in the outcome. Who, when and
why then still stand beside the decision in Consul.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from muster.core.history import LONGEST_DETAILS, Lever
from muster.edges.zookeeper import TopicStore, ZooKeeperError
from muster.levers.outcome import Outcome

_OWN_FIELDS = frozenset({"cluster", "who", "at", "reason"})
"""What an entry has a place of its own for."""

OpenStore = Callable[[], AbstractContextManager[TopicStore]]
"""How to come to the cluster's nodes in ZooKeeper."""


def recorded(outcome: Outcome, open_store: OpenStore, via: str) -> Outcome:
    """Append what a lever did to the cluster's history; `via` is where it was pulled (a DAG and its run, ...).

    Never raises for ZooKeeper: where it is out of reach, or refuses, the outcome returned has a line more.
    """
    values = outcome.values
    entry = Lever(
        at=float(values["at"]),
        who=str(values["who"]),
        what=outcome.lever,
        why=str(values["reason"]),
        via=via,
        details=_within({key: value for key, value in values.items() if key not in _OWN_FIELDS}),
    )
    try:
        with open_store() as store:
            store.append_history(entry)
    except ZooKeeperError as error:
        missing = f"it is done, but not in the cluster's history: {error}"
        return replace(outcome, lines=(*outcome.lines, missing))
    return outcome


def _within(details: Mapping[str, Any]) -> dict[str, Any]:
    """The details, without the longest ones where they are too long for an entry."""
    kept = dict(details)
    while len(json.dumps(kept)) > LONGEST_DETAILS:
        longest = max(kept, key=lambda key: len(json.dumps(kept[key])))
        kept[longest] = f"cut, {len(json.dumps(kept[longest]))} characters"
    return kept
