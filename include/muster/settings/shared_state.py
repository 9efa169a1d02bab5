"""Checks the settings of topics that share their state, so that no plan splits a shard."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from muster.core.assignors.co_partitioned import CoPartitioned
from muster.core.assignors.co_partitioned.tasks import Grouping
from muster.core.state_topics import StateTopics


def why_not_shared(
    state: StateTopics,
    reads: Callable[[str], bool],
    handlers: Iterable[str],
    assignor: str,
    options: Mapping[str, Any],
) -> str:
    """Return why the topics of `state` cannot share it, '' if they can. `reads` tells whether the cluster reads a
    topic, `handlers` are the patterns that choose one."""
    named = [topic for group in state.groups for topic in group]
    patterns = [*handlers]
    for group in state.groups:
        if len({*group}) < 2:  # noqa: PLR2004  a shard of several
            return f"{list(group)} are not two topics; write a topic with a state of its own without a list"
        if twice := [topic for topic in group if named.count(topic) > 1]:
            return f"topic {twice[0]!r} is named twice; it can share one state only"
        if missing := [topic for topic in group if not reads(topic)]:
            return f"topic {missing[0]!r} is not one that the cluster reads; add it to 'topics'"
        if len({_handler(topic, patterns) for topic in group}) > 1:
            return f"topics {_listed(group)} have different handlers; one handler reads all that share their state"
    return why_split(state, assignor, options)


def why_split(state: StateTopics, assignor: str, options: Mapping[str, Any]) -> str:
    """Return why plans of an assignor would split the shards of topics that share their state, '' if none would."""
    for group in state.groups:
        if assignor != CoPartitioned.name:
            return (
                f"topics {_listed(group)} share their state, and assignor {assignor!r} may give their partitions to "
                f"different consumers; take {CoPartitioned.name!r} with 'groups: [{_entry(group)}]'"
            )
        if not Grouping(options.get("groups")).together(group):
            return (
                f"topics {_listed(group)} share their state, and no list of the assignor's 'groups' has all of them; "
                f"add {_entry(group)}"
            )
    return ""


def _handler(topic: str, patterns: Iterable[str]) -> str | None:
    return next((pattern for pattern in patterns if re.fullmatch(pattern, topic)), None)


def _listed(group: Iterable[str]) -> str:
    return " and ".join(map(repr, group))


def _entry(group: Iterable[str]) -> str:
    return f"[{', '.join(group)}]"
