"""A previewed plan for people, as tables and a summary, and for programs, as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console

from muster.cli.tables import console, cut, listed, table
from muster.coordinator.shadow import ShadowReport
from muster.core.preview import AS_IT_IS, Preview, WhatIf

SHOWN = 30
"""Longer tables are cut, unless everything is asked for."""
SHOWN_REASONS = 10


@dataclass(frozen=True)
class PlanResult:
    """What `muster plan` found. `left_alone` maps topics that cannot be read to the reason, `leaving` those that are
    not subscribed any more. `paused` and `chosen` (an assignor instead of clusters.yaml's) say who decided so."""

    cluster: str
    what_if: WhatIf
    preview: Preview
    left_alone: Mapping[str, str]
    warnings: Sequence[str]
    shadow: ShadowReport | None
    leaving: Mapping[str, str] = field(default_factory=dict)
    paused: str = ""
    chosen: str = ""

    @property
    def reasons(self) -> list[tuple[str, int]]:
        """Each reason in words with the number of moves, the most frequent first."""
        counts = Counter(move.reason for move in self.preview.moves)
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def as_json(result: PlanResult) -> str:
    """All of it, never cut."""
    found, supposed = result.preview, result.what_if
    value: dict[str, Any] = {
        "cluster": result.cluster,
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
        "assignor_chosen": result.chosen,
        "paused": result.paused,
        "held": found.held,
        "moves": [
            {
                "topic": move.topic,
                "partition": move.partition,
                "from": move.source,
                "to": move.target,
                "cause": move.cause,
                "why": move.reason,
            }
            for move in found.moves
        ],
        "consumers": [asdict(share) for share in found.shares],
        "summary": {
            "moves": len(found.moves),
            "reasons": dict(result.reasons),
            "before": asdict(found.before),
            "after": asdict(found.after),
        },
        "impossible_pins": list(found.impossible_pins),
        "left_alone": dict(result.left_alone),
        "leaving": dict(result.leaving),
        "under_way": {topic: str(state) for topic, state in found.under_way.items()},
        "warnings": list(result.warnings),
        "shadow": asdict(result.shadow) if result.shadow else None,
    }
    return json.dumps(value, indent=2)


def show(result: PlanResult, *, everything: bool = False) -> None:
    """Print tables and summary to stdout; tables of more than `SHOWN` rows are cut unless `everything` is wanted."""
    out = console()
    limit = None if everything else SHOWN
    if result.preview.moves:
        _moves(out, result.preview, limit)
        _shares(out, result.preview, limit)
    for line in summary(result, limit):
        out.print(line, soft_wrap=True)


def _moves(out: Console, found: Preview, limit: int | None) -> None:
    rows = table("topic", "#partition", "from", "to", "why")
    for move in found.moves[:limit]:
        rows.add_row(move.topic, str(move.partition), move.source or "-", move.target or "-", move.reason)
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


def summary(result: PlanResult, limit: int | None = SHOWN) -> Iterator[str]:
    """The lines below the tables; `limit` cuts lists of topics and pins."""
    found = result.preview
    yield f"plan: cluster {result.cluster}, assignor {found.assignor}{_supposed(result.what_if)}"
    if result.paused:
        yield f"{result.paused}; the coordinator begins none of this until a person resumes it"
    if result.chosen:
        yield f"{result.chosen}; it overrides clusters.yaml"
    if found.held:
        yield f"held: {found.held}"
    partitions = sum(len(of_topic) for of_topic in found.topics.values())
    yield f"moves: {len(found.moves)} of {partitions} partitions"
    reasons = result.reasons
    for reason, count in reasons[:SHOWN_REASONS]:
        yield f"  {count}: {reason}"
    if len(reasons) > SHOWN_REASONS:
        yield f"  ... and {len(reasons) - SHOWN_REASONS} more reasons; --json has them"
    yield f"balance before: {found.before.consumers} consumers, {found.before}"
    yield f"balance after:  {found.after.consumers} consumers, {found.after}"
    yield from listed("impossible pin: ", found.impossible_pins, limit)
    yield from listed("left alone: ", [f"topic {t}: {why}" for t, why in result.left_alone.items()], limit)
    yield from listed("leaving: ", [f"topic {t}: {why}" for t, why in result.leaving.items()], limit)
    under_way = [
        f"topic {topic} is {state}: what is under way is finished first"
        for topic, state in sorted(found.under_way.items())
    ]
    yield from listed("under way: ", under_way, limit)
    yield from listed("warning: ", result.warnings, limit)
    if result.shadow is not None:
        yield str(result.shadow)


def _supposed(what_if: WhatIf) -> str:
    if what_if == AS_IT_IS:
        return ""
    parts = [f"without {consumer}" for consumer in sorted(what_if.without)]
    parts += [f"with {consumer}" for consumer in sorted(what_if.joining)]
    parts += [f"topic {topic} with {n} partitions" for topic, n in sorted(what_if.partitions.items())]
    if what_if.assignor is not None:
        parts.append(f"assignor {what_if.assignor.name}")
    return f"; what if: {', '.join(parts)}"
