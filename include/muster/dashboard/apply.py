"""Bringing a previewed plan about: as pins of the partitions that move, or as a change of assignor."""

from __future__ import annotations

from muster.commands.audit import carry_out
from muster.commands.command import Actor, CommandError, Outcome
from muster.commands.table import COMMANDS
from muster.commands.target import Target
from muster.core.partition_list import format_partitions
from muster.dashboard.commands import VIA
from muster.dashboard.models import ApplyBody, WhatIfAnswer
from muster.dashboard.what_if import Previewed, pins_of


def apply_plan(
    target: Target, asked: ApplyBody, previewed: Previewed, answer: WhatIfAnswer, actor: Actor
) -> Outcome:
    """Bring `previewed` about, which was just planned with what there is now.

    Raises `CommandError` if it is not the plan that was shown, or cannot be brought about in this way. Pins are
    written one after another: after an error of Consul some may stand, and doing it again does no harm.
    """
    if asked.plan != previewed.name:
        raise CommandError(
            "the plan is no longer the one that was shown, because something changed meanwhile; look at the new "
            "preview, and apply that"
        )
    way = answer.as_pins if asked.way == "pins" else answer.as_assignor
    if not way.possible:
        raise CommandError(f"this plan cannot be applied as {asked.way}: {way.why_not}")
    if asked.way == "assignor":
        supposed = asked.what_if.assignor
        body = {"assignor": supposed.model_dump() if supposed else None}
        return carry_out(COMMANDS["assignor"], target, actor, body, VIA)
    lines: list[str] = []
    for (topic, consumer), partitions in pins_of(previewed).items():
        pin = {"topic": topic, "partitions": format_partitions(partitions), "consumer": consumer}
        lines += carry_out(COMMANDS["pin"], target, actor, pin, VIA).lines
    values = {
        "cluster": target.cluster.name,
        "moved": answer.moved,
        "who": actor.name,
        "reason": actor.reason,
        "at": actor.at,
    }
    return Outcome(
        (f"{len(previewed.found.moves)} partition(s) pinned as previewed: {actor}", *lines), values
    )
