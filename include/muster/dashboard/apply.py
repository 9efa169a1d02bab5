"""Bringing a previewed plan about: as pins of the partitions that move, or as a change of assignor."""

from __future__ import annotations

from muster.core.partition_list import format_partitions
from muster.dashboard.levers import LeverEdges, pull
from muster.dashboard.models import ApplyLever, AssignorChoice, AssignorLever, PinLever, WhatIfAnswer
from muster.dashboard.what_if import Previewed, pins_of
from muster.levers.outcome import LeverError, Outcome, Word
from muster.settings.clusters import ClusterSettings


def apply_plan(
    edges: LeverEdges,
    cluster: ClusterSettings,
    asked: ApplyLever,
    previewed: Previewed,
    answer: WhatIfAnswer,
    word: Word,
) -> Outcome:
    """Bring `previewed` about, which was just planned anew.

    Raises `LeverError` if it is not the plan that was shown, or cannot be brought about in this way. Pins are
    written one after another: after an error of Consul some may stand, and doing it again does no harm.
    """
    if asked.plan != previewed.name:
        raise LeverError(
            "the plan is no longer the one that was shown, because something changed meanwhile; look at the new "
            "preview, and apply that"
        )
    way = answer.as_pins if asked.way == "pins" else answer.as_assignor
    if not way.possible:
        raise LeverError(f"this plan cannot be applied as {asked.way}: {way.why_not}")
    if asked.way == "assignor":
        supposed = asked.what_if.assignor
        choice = AssignorChoice(name=supposed.name, options=supposed.options) if supposed else None
        lever = AssignorLever(reason=asked.reason, assignor=choice)
        return pull("assignor", edges, cluster, lever, word)
    lines: list[str] = []
    for (topic, consumer), partitions in pins_of(previewed).items():
        pin = PinLever(
            reason=asked.reason, topic=topic, partitions=format_partitions(partitions), consumer=consumer
        )
        lines += pull("pin", edges, cluster, pin, word).lines
    values = {
        "cluster": cluster.name,
        "moved": answer.moved,
        "who": word.who,
        "reason": word.why,
        "at": word.at,
    }
    pinned = len(previewed.found.moves)
    return Outcome((f"{pinned} partition(s) pinned as previewed: {word.why} (by {word.who})", *lines), values)
