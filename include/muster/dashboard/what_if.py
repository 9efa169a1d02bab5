"""Previews: what would move if something were otherwise, and whether that can be brought about. Writes nothing.

A preview plans with the newest reading that everybody shares, by the same code as a coordinator run and
`muster plan`. Assignors are chosen among those that `muster.settings.assignor_choice` allows: to take any dotted path
from a request would let every user who may look run any code in Airflow's API server.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from muster.cluster.sources import Sources
from muster.cluster.state import ClusterState
from muster.coordinator.asking import StatusPoller
from muster.coordinator.planning_context import ContextReader
from muster.core.assignors import Assignor, PlanningContext
from muster.core.comparison import Balance
from muster.core.model import Consumer, Membership
from muster.core.planner import plan
from muster.core.preview import Joining, Preview, WhatIfError, preview, what_if
from muster.core.wire import WireError, check_id, check_topic
from muster.dashboard.models import (
    Applicable,
    BalanceEntry,
    JoiningConsumer,
    ShareEntry,
    SupposedAssignor,
    WhatIfAnswer,
    WhatIfRequest,
)
from muster.dashboard.timeline import grouped_moves
from muster.edges.status import StatusFailure, StatusResult
from muster.settings.assignor_choice import in_force, load_chosen, load_in_force

MOST_MOVES = 500
"""Entries of moves, and of shares, in an answer."""
MOST_PINS = 500
"""Partitions that one plan may be applied to as pins; each is a key in Consul."""

_one_at_a_time = threading.Lock()
"""Planning a large cluster takes a processor for a second: it is not to take all of the API server's."""


MOST_SUPPOSED = 200_000
"""Partitions that all topics together may be supposed to have."""
PATIENCE = 3.0
"""Seconds that a preview waits for another one: it holds a thread of the API server meanwhile."""


class NothingReadError(RuntimeError):
    """There is nothing to plan from, because a server could not be read; the message says which."""


class BusyError(RuntimeError):
    """Another preview is being planned; ask again in a moment."""


@dataclass(frozen=True)
class Previewed:
    """A preview, its name, and whether pins of what moves would bring it about: `held_by_pins` is False where the
    assignor would then move something else."""

    found: Preview
    name: str
    held_by_pins: bool
    warnings: tuple[str, ...]
    live: frozenset[str]


def in_full(state: ClusterState, request: WhatIfRequest) -> WhatIfRequest:
    """The request with the name of the assignor in force, and its options, where only options are supposed."""
    supposed = request.assignor
    if supposed is None or supposed.name:
        return request
    own = in_force(state.settings, state.decisions.assignor)
    full = SupposedAssignor(name=own.name, options={**own.options, **supposed.options})
    return request.model_copy(update={"assignor": full})


def plan_what_if(state: ClusterState, sources: Sources, request: WhatIfRequest) -> Previewed:
    """Plan as `request`, which is `in_full`, supposes.

    Raises `NothingReadError`, `WhatIfError` for suppositions that do not fit what is there, `AssignorError`, and
    `BusyError`.
    """
    membership = _membership(state)
    cluster = state.settings
    own = load_in_force(cluster, state.decisions)
    other: Assignor | None = None
    if request.assignor is not None:
        other = load_chosen(cluster, request.assignor.name, request.assignor.options)
    supposed = what_if(
        request.without,
        [*map(_joining, request.joining), *_more(request.more, state.consumers.keys())],
        list(request.partitions.items()),
        other,
        membership,
        state.unreadable,
    )
    if (asked := sum(request.partitions.values())) > MOST_SUPPOSED:
        raise WhatIfError(f"{asked} partitions are supposed, which are more than {MOST_SUPPOSED}")
    if not _one_at_a_time.acquire(timeout=PATIENCE):
        raise BusyError("another preview is being planned; ask again in a moment")
    try:
        reader = ContextReader(sources, _answered(state), lambda: state.at, 1.0)
        context, warnings = reader.read(state.snapshots, membership.live, other or own, state.decisions)
        found = preview(state.snapshots.values(), membership, own, context, supposed)
        held = _could_be_pins(request, found, membership.live) == "" and _held_by_pins(
            state,
            membership,
            own,
            reader.read(state.snapshots, membership.live, own, state.decisions)[0],
            found,
        )
    finally:
        _one_at_a_time.release()
    return Previewed(found, _name(found), held, warnings, frozenset(membership.live))


def _held_by_pins(
    state: ClusterState, membership: Membership, own: Assignor, circumstances: PlanningContext, found: Preview
) -> bool:
    """Whether the assignor in force, with what moves pinned, would plan just what was previewed."""
    pins = {topic: dict(owners) for topic, owners in circumstances.pins.items()}
    for move in found.moves:
        if move.target is not None:
            pins.setdefault(move.topic, {})[move.partition] = move.target
    snapshots = state.snapshots.values()
    planned = plan(snapshots, membership.live, own, replace(circumstances, pins=pins)).owners
    return all(planned.get(topic, {}) == dict(owners) for topic, owners in found.owners.items())


def what_if_answer(state: ClusterState, request: WhatIfRequest, previewed: Previewed) -> WhatIfAnswer:
    """What the page shows of a preview."""
    found = previewed.found
    moves = found.moves
    reasons = Counter(move.reason for move in moves)
    shares = sorted(
        (share for share in found.shares if share.before != share.after),
        key=lambda share: (-abs(share.after - share.before), share.consumer),
    )
    return WhatIfAnswer(
        plan=previewed.name,
        assignor=found.assignor,
        held=found.held,
        moved=len(moves),
        moves=grouped_moves(moves, len(moves))[:MOST_MOVES],
        reasons=sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:100],
        shares=[
            ShareEntry(consumer=s.consumer, before=s.before, after=s.after, weight=s.weight, zone=s.zone)
            for s in shares[:MOST_MOVES]
        ],
        share_count=len(shares),
        before=_balance(found.before),
        after=_balance(found.after),
        impossible_pins=list(found.impossible_pins[:100]),
        under_way=sorted(found.under_way)[:100],
        unreadable=dict(state.unreadable),
        warnings=list(previewed.warnings[:100]),
        as_pins=_as_pins(request, previewed),
        as_assignor=_as_assignor(request),
    )


def pins_of(previewed: Previewed) -> dict[tuple[str, str], frozenset[int]]:
    """The pins that bring the plan about: partitions by topic and consumer."""
    pins: dict[tuple[str, str], set[int]] = {}
    for move in previewed.found.moves:
        if move.target is not None:
            pins.setdefault((move.topic, move.target), set()).add(move.partition)
    return {key: frozenset(partitions) for key, partitions in sorted(pins.items())}


def _as_pins(request: WhatIfRequest, previewed: Previewed) -> Applicable:
    why_not = _could_be_pins(request, previewed.found, previewed.live)
    if not why_not and not previewed.held_by_pins:
        step = f"; isolate {request.without[0]} instead" if request.without else ""
        why_not = f"with these pins the assignor would move other partitions, for balance{step}"
    return Applicable(possible=not why_not, why_not=why_not)


def _could_be_pins(request: WhatIfRequest, found: Preview, live: Collection[str]) -> str:
    """Why the moves cannot be pinned at all, '' if they can."""
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


def _membership(state: ClusterState) -> Membership:
    reading = state.reading
    if reading.zookeeper.value is None or reading.consul.value is None:
        sources = (reading.zookeeper, reading.consul, reading.consumers, reading.kafka)
        errors = [source.why for source in sources if source.error is not None]
        raise NothingReadError("; ".join(errors) or "nothing was read yet; try again")
    if state.membership is None:
        raise NothingReadError(f"Consul's answer is not to be trusted now: {state.doubt}")
    return state.membership


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
    """So many new consumers, under names that are not taken."""
    found: list[Joining] = []
    number = 0
    while len(found) < count:
        number += 1
        if (name := f"new-{number}") not in taken:
            found.append(Joining(name, {}))
    return found


def _name(found: Preview) -> str:
    """The same for the same moves under the same assignor."""
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
    """The consumers' answers, as they were read."""

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
