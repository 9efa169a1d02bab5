"""A previewed plan for people, as tables and a summary, and for programs, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console

from muster.cli.status import topics_outside
from muster.cli.tables import console, cut, listed, table
from muster.cluster.planning import Previewed
from muster.cluster.state import ClusterState
from muster.coordinator.shadow import ShadowReport
from muster.core.model import Move
from muster.core.preview import AS_IT_IS, Preview, WhatIf
from muster.core.state_moves import summary

SHOWN = 30
"""Longer tables are cut, unless everything is asked for."""
SHOWN_REASONS = 10


def as_json(state: ClusterState, previewed: Previewed, shadow: ShadowReport | None) -> str:
    """Write all of it, never cut."""
    found, supposed = previewed.preview, previewed.what_if
    value: dict[str, Any] = {
        "cluster": state.settings.name,
        "assignor": found.assignor,
        "what_if": {
            "without": sorted(supposed.without),
            "with": {
                c.id: {
                    "weight": c.weight,
                    "priority": c.priority,
                    "zone": c.zone,
                    "topics": None if c.topics is None else sorted(c.topics),
                }
                for c in supposed.joining.values()
            },
            "partitions": dict(supposed.partitions),
            "assignor": supposed.assignor.name if supposed.assignor else None,
        },
        "assignor_chosen": str(state.overrides.assignor or ""),
        "paused": str(state.overrides.paused or ""),
        "held": found.held,
        "moves": [
            {
                "topic": move.topic,
                "partition": move.partition,
                "from": move.source,
                "to": move.target,
                "cause": move.cause,
                "why": move.reason,
                **_state(previewed, move),
            }
            for move in found.moves
        ],
        "consumers": [asdict(share) for share in found.shares],
        "summary": {
            "moves": len(found.moves),
            "reasons": dict(previewed.reasons),
            "before": asdict(found.before),
            "after": asdict(found.after),
        },
        "impossible_pins": list(found.impossible_pins),
        "left_alone": state.unreadable_topics,
        "leaving": state.leaving,
        "under_way": {topic: str(state) for topic, state in found.under_way.items()},
        "warnings": list(previewed.warnings),
        "shadow": asdict(shadow) if shadow else None,
    }
    return json.dumps(value, indent=2)


def show(state: ClusterState, previewed: Previewed, shadow: ShadowReport | None, *, everything: bool) -> None:
    """Print tables and summary to stdout; tables of more than `SHOWN` rows are cut unless `everything` is wanted."""
    out = console()
    limit = None if everything else SHOWN
    if previewed.preview.moves:
        _moves(out, previewed, limit)
        _shares(out, previewed.preview, limit)
    for line in _summary(state, previewed, limit):
        out.print(line, soft_wrap=True)
    if shadow is not None:
        out.print(str(shadow), soft_wrap=True)


def _state(previewed: Previewed, move: Move) -> dict[str, Any]:
    found = previewed.states.get((move.topic, move.partition))
    return {} if found is None else {"state": asdict(found)}


def _moves(out: Console, previewed: Previewed, limit: int | None) -> None:
    found, states = previewed.preview, previewed.states
    rows = table("topic", "#partition", "from", "to", "why", *(["state"] if states else []))
    for move in found.moves[:limit]:
        state = [str(states.get((move.topic, move.partition), "-"))] if states else []
        rows.add_row(
            move.topic, str(move.partition), move.source or "-", move.target or "-", move.reason, *state
        )
    out.print(rows)
    cut(out, len(found.moves), limit)


def _shares(out: Console, found: Preview, limit: int | None) -> None:
    changed = [share for share in found.shares if share.before != share.after]
    rows = table("consumer", "#partitions now", "#then", "#weight", "zone")
    for share in changed[:limit]:
        rows.add_row(
            share.consumer, str(share.before), str(share.after), f"{share.weight:g}", share.zone or "-"
        )
    if changed:
        out.print(rows)
        cut(out, len(changed), limit)


def _summary(state: ClusterState, previewed: Previewed, limit: int | None) -> Iterator[str]:
    """Yield the lines below the tables; `limit` cuts lists of topics and pins."""
    found, overrides = previewed.preview, state.overrides
    yield f"plan: cluster {state.settings.name}, assignor {found.assignor}{_supposed(previewed.what_if)}"
    if overrides.paused:
        yield f"{overrides.paused}; the coordinator begins none of this until a person resumes it"
    if overrides.assignor:
        yield f"{overrides.assignor}; it overrides the settings"
    if found.held:
        yield f"held: {found.held}"
    partitions = sum(len(of_topic) for of_topic in found.topics.values())
    yield f"moves: {len(found.moves)} of {partitions} partitions"
    reasons = previewed.reasons
    for reason, count in reasons[:SHOWN_REASONS]:
        yield f"  {count}: {reason}"
    if len(reasons) > SHOWN_REASONS:
        yield f"  ... and {len(reasons) - SHOWN_REASONS} more reasons; --json has them"
    if states := summary(previewed.states):
        yield states
    yield f"balance before: {found.before.consumers} consumers, {found.before}"
    yield f"balance after:  {found.after.consumers} consumers, {found.after}"
    yield from listed("impossible pin: ", found.impossible_pins, limit)
    yield from topics_outside(state, limit)
    under_way = [
        f"topic {topic} is {state}: what is under way is finished first"
        for topic, state in sorted(found.under_way.items())
    ]
    yield from listed("under way: ", under_way, limit)
    yield from listed("warning: ", previewed.warnings, limit)


def _supposed(what_if: WhatIf) -> str:
    if what_if == AS_IT_IS:
        return ""
    parts = [f"without {consumer}" for consumer in sorted(what_if.without)]
    parts += [f"with {consumer}" for consumer in sorted(what_if.joining)]
    parts += [f"topic {topic} with {n} partitions" for topic, n in sorted(what_if.partitions.items())]
    if what_if.assignor is not None:
        parts.append(f"assignor {what_if.assignor.name}")
    return f"; what if: {', '.join(parts)}"
