"""Previews for the page, and bringing one about as pins or as a change of assignor.

A preview plans with the newest reading that all viewers share (`muster.cluster.planning`). Assignors are chosen among
those that `muster.settings.assignor_choice` allows: to take any dotted path from a request would let every user who
may look run any code in Airflow's API server.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from muster.cluster.planning import Planning, Previewed
from muster.cluster.sources import Sources
from muster.cluster.state import ClusterState
from muster.commands.audit import carry_out
from muster.commands.command import Actor, CommandError, CommandOutcome
from muster.commands.table import COMMANDS
from muster.commands.target import Target
from muster.coordinator.asking import StatusPoller
from muster.core.comparison import Balance
from muster.core.copies import Warmth
from muster.core.model import Consumer
from muster.core.partition_list import format_partitions
from muster.core.planner import plan
from muster.core.preview import Joining, Preview, WhatIfError
from muster.core.state_moves import summary
from muster.core.wire import WireError, check_id, check_topic
from muster.dashboard.commands import VIA
from muster.dashboard.models import (
    Applicable,
    ApplyBody,
    BalanceEntry,
    JoiningConsumer,
    SupposedAssignor,
    WhatIfAnswer,
    WhatIfRequest,
)
from muster.dashboard.timeline import grouped_moves
from muster.edges.status import StatusFailure, StatusResult
from muster.settings.assignor_choice import in_force, load_chosen

MOST_MOVES = 500
"""Entries of moves, and of shares, in an answer."""
MOST_PINS = 500
"""Partitions that one plan may be applied to as pins; each is a key in Consul."""
MOST_SUPPOSED = 200_000
"""Partitions that all topics together may be supposed to have."""
PATIENCE = 3.0
"""Seconds that a preview waits for another one: it holds a thread of the API server meanwhile."""

_one_at_a_time = threading.Lock()
"""Planning a large cluster takes a processor for a second: it is not to take all of the API server's."""


class BusyError(RuntimeError):
    """Another preview is being planned; ask again in a moment."""


@dataclass(frozen=True)
class Planned:
    """A preview: the `request` in full, what was `found`, and the `answer` that shows it."""

    request: WhatIfRequest
    found: Preview
    answer: WhatIfAnswer


def plan_what_if(state: ClusterState, sources: Sources, request: WhatIfRequest) -> Planned:
    """Plan as `request` supposes.

    Raises `NothingReadError`, `WhatIfError` for suppositions that do not fit what is there, `AssignorError`, and
    `BusyError`.
    """
    request = _in_full(state, request)
    planning = Planning(state, sources, _answered(state))
    other = request.assignor
    supposed = planning.suppose(
        request.without,
        [*map(_joining, request.joining), *_more(request.more, state.consumers.keys())],
        list(request.partitions.items()),
        load_chosen(state.settings, other.name, other.options) if other is not None else None,
    )
    if (asked := sum(request.partitions.values())) > MOST_SUPPOSED:
        raise WhatIfError(f"{asked} partitions are supposed, which are more than {MOST_SUPPOSED}")
    if not _one_at_a_time.acquire(timeout=PATIENCE):
        raise BusyError("another preview is being planned; ask again in a moment")
    try:
        previewed = planning.preview(supposed)
        as_pins = _as_pins(request, planning, previewed.preview)
    finally:
        _one_at_a_time.release()
    return Planned(request, previewed.preview, _answer(state, request, previewed, as_pins))


def _in_full(state: ClusterState, request: WhatIfRequest) -> WhatIfRequest:
    """Give the request the name of the assignor in force, and its options, where only options are supposed."""
    supposed = request.assignor
    if supposed is None or supposed.name:
        return request
    own = in_force(state.settings, state.overrides.assignor)
    full = SupposedAssignor(name=own.name, options={**own.options, **supposed.options})
    return request.model_copy(update={"assignor": full})


def _answer(
    state: ClusterState, request: WhatIfRequest, previewed: Previewed, as_pins: Applicable
) -> WhatIfAnswer:
    found = previewed.preview
    moves = found.moves
    shares = sorted(
        (share for share in found.shares if share.before != share.after),
        key=lambda share: (-abs(share.after - share.before), share.consumer),
    )
    return WhatIfAnswer(
        plan=_name(found),
        assignor=found.assignor,
        held=found.held,
        moved=len(moves),
        moves=grouped_moves(moves, len(moves))[:MOST_MOVES],
        reasons=previewed.reasons[:100],
        shares=shares[:MOST_MOVES],
        share_count=len(shares),
        before=_balance(found.before),
        after=_balance(found.after),
        impossible_pins=list(found.impossible_pins[:100]),
        under_way=sorted(found.under_way)[:100],
        unreadable=state.unreadable_topics,
        warnings=list(previewed.warnings[:100]),
        states=_states(previewed),
        as_pins=as_pins,
        as_assignor=_as_assignor(request),
    )


def _states(previewed: Previewed) -> list[str]:
    """Say what the moves mean for state by key."""
    cold = [
        f"topic {topic}, partition {partition}: {found}"
        for (topic, partition), found in previewed.states.items()
        if found.warmth is not Warmth.WARM
    ]
    return [line for line in (summary(previewed.states), *cold[:100]) if line]


def apply_plan(target: Target, asked: ApplyBody, planned: Planned, actor: Actor) -> CommandOutcome:
    """Bring about what was just planned with what there is now.

    Raises `CommandError` if it is not the plan that was shown, or cannot be brought about in this way. Pins are
    written one after another: after an error of Consul some may stand, and doing it again does no harm.
    """
    answer = planned.answer
    if asked.plan != answer.plan:
        raise CommandError(
            "the plan is no longer the one that was shown, because something changed meanwhile; look at the new "
            "preview, and apply that"
        )
    way = answer.as_pins if asked.way == "pins" else answer.as_assignor
    if not way.possible:
        raise CommandError(f"this plan cannot be applied as {asked.way}: {way.why_not}")
    if asked.way == "assignor":
        supposed = planned.request.assignor
        body = {"assignor": supposed.model_dump() if supposed else None}
        return carry_out(COMMANDS["assignor"], target, actor, body, VIA)
    lines: list[str] = []
    for (topic, consumer), partitions in _pins(planned.found).items():
        pin = {"topic": topic, "partitions": format_partitions(partitions), "consumer": consumer}
        lines += carry_out(COMMANDS["pin"], target, actor, pin, VIA).lines
    values = {"cluster": target.cluster.name, "moved": answer.moved, **actor.values()}
    return CommandOutcome((f"{answer.moved} partition(s) pinned as previewed: {actor}", *lines), values)


def _pins(found: Preview) -> dict[tuple[str, str], set[int]]:
    """Return the pins that bring the plan about: partitions by topic and consumer."""
    pins: dict[tuple[str, str], set[int]] = {}
    for move in found.moves:
        if move.target is not None:
            pins.setdefault((move.topic, move.target), set()).add(move.partition)
    return dict(sorted(pins.items()))


def _as_pins(request: WhatIfRequest, planning: Planning, found: Preview) -> Applicable:
    why_not = _could_be_pins(request, found, planning.membership.live)
    if not why_not and not _held_by_pins(planning, found):
        step = f"; isolate {request.without[0]} instead" if request.without else ""
        why_not = f"with these pins the assignor would move other partitions, for balance{step}"
    return Applicable(possible=not why_not, why_not=why_not)


def _held_by_pins(planning: Planning, found: Preview) -> bool:
    """Tell whether the assignor in force, with what moves pinned, would plan just what was previewed."""
    context, _ = planning.context(planning.own)
    pins = {topic: dict(owners) for topic, owners in context.pins.items()}
    for move in found.moves:
        if move.target is not None:
            pins.setdefault(move.topic, {})[move.partition] = move.target
    live = planning.membership.live
    planned = plan(planning.snapshots.values(), live, planning.own, replace(context, pins=pins)).owners
    return all(planned.get(topic, {}) == dict(owners) for topic, owners in found.owners.items())


def _could_be_pins(request: WhatIfRequest, found: Preview, live: Collection[str]) -> str:
    """Say why the moves cannot be pinned at all, '' if they can."""
    targets = [move.target for move in found.moves if move.target is not None]
    strangers = sorted(set(targets) - set(live))
    if not targets:
        return "nothing would move"
    if request.partitions:
        return "partitions that are only supposed cannot be pinned"
    if strangers:
        return f"consumer {strangers[0]} is only supposed to be there"
    if len(targets) > MOST_PINS:
        return f"{len(targets)} partitions would be pinned, the most is {MOST_PINS}"
    return ""


def _as_assignor(request: WhatIfRequest) -> Applicable:
    if request.assignor is None:
        return Applicable(possible=False, why_not="no other assignor was supposed")
    if request.model_copy(update={"assignor": None}) != WhatIfRequest():
        return Applicable(possible=False, why_not="more than another assignor was supposed")
    return Applicable(possible=True)


def _joining(consumer: JoiningConsumer) -> Joining:
    try:
        check_id(consumer.consumer)
        topics = frozenset(map(check_topic, consumer.topics)) if consumer.topics else None
    except WireError as error:
        raise WhatIfError(str(error)) from error
    given: dict[str, Any] = {
        "weight": consumer.weight,
        "priority": consumer.priority,
        "zone": consumer.zone,
        "topics": topics,
    }
    return Joining(consumer.consumer, {key: value for key, value in given.items() if value is not None})


def _more(count: int, taken: Collection[str]) -> list[Joining]:
    """Make so many new consumers, under names that are not taken."""
    found: list[Joining] = []
    number = 0
    while len(found) < count:
        number += 1
        if (name := f"new-{number}") not in taken:
            found.append(Joining(name, {}))
    return found


def _name(found: Preview) -> str:
    """Return a name that is the same for the same moves under the same assignor."""
    moves = [[m.topic, m.partition, m.source, m.target] for m in found.moves]
    return hashlib.sha256(json.dumps([found.assignor, moves]).encode()).hexdigest()[:16]


def _balance(balance: Balance) -> BalanceEntry:
    return BalanceEntry(
        consumers=balance.consumers,
        partitions=balance.partitions,
        least=balance.least,
        most=balance.most,
        unowned=balance.unowned,
        words=str(balance),
    )


def _answered(state: ClusterState) -> StatusPoller:
    """Return a poller that gives the consumers' answers as they were read."""

    def poll(
        consumers: Iterable[Consumer],
        timeout: float,  # noqa: ARG001 - they were asked already
        *,
        topics: object = None,  # noqa: ARG001 - about everything
    ) -> Mapping[str, StatusResult]:
        return {
            c.id: state.statuses.get(c.id)
            or StatusFailure(c.id, state.failures.get(c.id, "its status was not read yet"))
            for c in consumers
        }

    return poll
