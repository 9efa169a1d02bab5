"""What would be planned: now, or if consumers came or went, topics grew, or another assignor decided.

Pure: everything is read before, and nothing is written. The plan is the one that a coordinator run makes from the
same readings, so the two agree; `tests/property/test_preview_comes_true.py` holds them against each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from muster.core.assignors import EMPTY_CONTEXT, Assignor, PlanningContext, impossible_pins
from muster.core.comparison import Balance, balance_of, differences, partitions_by_consumer, resulting
from muster.core.model import Assignment, Consumer, Membership, State, TopicSnapshot
from muster.core.planner import intended_owners, plan
from muster.core.reasons import PlannedMove, Situation, explain

_NAMED = 20
"""So many names an error lists."""
MOST_PARTITIONS = 100_000
"""Of one topic, in a supposition."""
ATTRIBUTES = "weight=2, zone=b, priority=1, topics=a|b"
"""What a consumer may be supposed to have, as the command line writes it."""


class WhatIfError(ValueError):
    """What was to be supposed does not fit what is there; the message says what there is."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What is supposed to be otherwise.

    `without`: live consumers that are gone. `joining`: consumers that are there with these attributes, whether they
    are new, isolated or live with others at present. `partitions`: topic to the number of partitions it has then,
    numbered from 0. `assignor`: the one that plans instead of the cluster's.
    """

    without: frozenset[str] = frozenset()
    joining: Mapping[str, Consumer] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)
    assignor: Assignor | None = None


AS_IT_IS = WhatIf()
"""Nothing is supposed: what the next coordinator run would do."""


@dataclass(frozen=True)
class Joining:
    """A consumer that is supposed to be there, and the attributes that were given."""

    consumer: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Share:
    """What one consumer has before and after; `before` is 0 of one that joins, `after` of one that leaves."""

    consumer: str
    before: int
    after: int
    weight: float
    zone: str | None


@dataclass(frozen=True)
class Preview:
    """A plan that is not carried out.

    `owners` is who reads what when all is done, `topics` the partitions it is about. `under_way` maps
    the topics that are not Stable to their state: what is under way there is finished first. `impossible_pins` says
    which pins would not be obeyed, and why. `held` says why nothing would be planned, '' otherwise.
    """

    assignor: str
    owners: Assignment
    topics: Mapping[str, frozenset[int]]
    moves: tuple[PlannedMove, ...]
    shares: tuple[Share, ...]
    before: Balance
    after: Balance
    under_way: Mapping[str, State]
    impossible_pins: tuple[str, ...] = ()
    held: str = ""


def what_if(
    without: Sequence[str],
    joining: Sequence[Joining],
    partitions: Sequence[tuple[str, int]],
    assignor: Assignor | None,
    membership: Membership,
    unreadable_topics: Mapping[str, str],
) -> WhatIf:
    """Put suppositions together. A consumer that is live keeps the attributes that are not given.

    `unreadable_topics` maps the topics that cannot be read to the reason. Raises `WhatIfError` for what does not fit
    what is there.
    """
    for topic, _ in partitions:
        if topic in unreadable_topics:
            raise WhatIfError(f"topic {topic!r} cannot be read: {unreadable_topics[topic]}")
    supposed: dict[str, Consumer] = {}
    for each in joining:
        there = membership.live.get(each.consumer)
        if there is not None and not each.attributes:
            raise WhatIfError(
                f"consumer {each.consumer!r} is live already; to suppose other attributes, name them: {ATTRIBUTES}"
            )
        supposed[each.consumer] = replace(there or Consumer(each.consumer), **each.attributes)
    return WhatIf(frozenset(without), supposed, dict(partitions), assignor)


def suppose(
    what_if: WhatIf, snapshots: Iterable[TopicSnapshot], membership: Membership
) -> tuple[dict[str, TopicSnapshot], Membership]:
    """Return topics and consumers as they would be under `what_if`. Raises `WhatIfError` naming what there is."""
    topics = {snapshot.topic: snapshot for snapshot in snapshots}
    live = dict(membership.live)
    for consumer in sorted(what_if.without):
        if consumer in what_if.joining:
            raise WhatIfError(f"consumer {consumer!r} cannot both be there and be gone")
        if consumer not in live:
            isolated = (
                "it is isolated" if consumer in membership.isolated else "there is no such live consumer"
            )
            raise WhatIfError(f"consumer {consumer!r}: {isolated}; live are: {_named(live)}")
        del live[consumer]
    live |= what_if.joining
    for topic, count in sorted(what_if.partitions.items()):
        if topic not in topics:
            raise WhatIfError(f"there is no topic {topic!r}; there are: {_named(topics)}")
        if count < 1:
            raise WhatIfError(f"topic {topic!r}: {count} is not a number of partitions; the least is 1")
        if count > MOST_PARTITIONS:
            raise WhatIfError(
                f"topic {topic!r}: more than {MOST_PARTITIONS} partitions are a slip of the finger"
            )
        topics[topic] = replace(topics[topic], partitions=frozenset(range(count)))
    return topics, Membership(live, membership.isolated - what_if.joining.keys())


def preview(
    snapshots: Iterable[TopicSnapshot],
    membership: Membership,
    assignor: Assignor,
    context: PlanningContext = EMPTY_CONTEXT,
    what_if: WhatIf = AS_IT_IS,
) -> Preview:
    """Plan with `assignor`, or the one that `what_if` names, and say what would move and why.

    Raises `WhatIfError` if `what_if` does not fit the readings, `AssignorError` if the assignor fails.
    """
    read = {snapshot.topic: snapshot for snapshot in snapshots}
    there, members = suppose(what_if, read.values(), membership)
    chosen, consumers = what_if.assignor or assignor, members.live
    topics = {topic: snapshot.partitions for topic, snapshot in there.items()}
    standing = {topic: _standing(snapshot) for topic, snapshot in read.items()}
    held = "" if consumers else "no consumer is live: the assignment stays as it is until one appears"
    planned: Assignment = {} if held else plan(there.values(), consumers, chosen, context).owners
    owners = resulting(standing, planned, topics)
    situation = Situation(
        snapshots=there,
        consumers=consumers,
        standing=standing,
        assignor=chosen,
        context=context,
        isolated=members.isolated,
        joined=_joined(what_if, membership, standing),
        usual={c: membership.live[c] for c in what_if.joining if c in membership.live},
        usual_assignor=assignor if what_if.assignor is not None else None,
    )
    impossible = impossible_pins(context.pins, topics, consumers, context.exclusions, context.drained)
    return Preview(
        assignor=chosen.name,
        owners=owners,
        topics=topics,
        moves=() if held else tuple(explain(differences(standing, owners), situation)),
        shares=_shares(membership.live, consumers, standing, owners),
        before=balance_of(standing, {t: read[t].partitions for t in read}, membership.live),
        after=balance_of(owners, topics, consumers),
        under_way={t: s.name for t, s in read.items() if s.name in {State.STARTING, State.CLOSING}},
        impossible_pins=tuple(map(str, impossible)),
        held=held,
    )


def _standing(snapshot: TopicSnapshot) -> Mapping[int, str]:
    """Tell who reads what once the present rebalance is through, also partitions that have vanished from Kafka."""
    owned = snapshot.assignment.owners.keys() if snapshot.assignment is not None else frozenset()
    return intended_owners(replace(snapshot, partitions=snapshot.partitions | owned))


def _joined(what_if: WhatIf, membership: Membership, standing: Assignment) -> frozenset[str]:
    """Return the consumers that are supposed to join; with nothing supposed, live ones that have nothing yet."""
    if what_if != AS_IT_IS:
        return frozenset(what_if.joining.keys() - membership.live.keys())
    busy = {owner for owners in standing.values() for owner in owners.values()}
    return frozenset(membership.live.keys() - busy)


def _shares(
    before: Mapping[str, Consumer],
    after: Mapping[str, Consumer],
    standing: Assignment,
    owners: Assignment,
) -> tuple[Share, ...]:
    everybody = {**before, **after}
    had, has = partitions_by_consumer(standing, everybody), partitions_by_consumer(owners, everybody)
    return tuple(
        Share(
            consumer,
            had[consumer],
            has[consumer] if consumer in after else 0,
            everybody[consumer].weight,
            everybody[consumer].zone,
        )
        for consumer in sorted(everybody)
    )


def _named(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return (", ".join(ordered[:_NAMED]) or "none") + more
