"""Failover: everything to the consumers of the highest priority; the others take over when those are gone.

Active and passive consumers, by `priority` in their Consul metadata (higher is preferred, 0 is normal). In this
order:

1. Of the live consumers that subscribe to a topic, those with the highest priority make up its active level. All
   its partitions go to the active level, however much that is for them; no other gets any.
2. When the last consumer of a level is gone, the next level takes over. When one comes back, so do the partitions.
   With `give_back: false` they do not: what a lower level holds stays where it is until its holder leaves or drops
   the topic, or until a person asks for a rebalance now. What has no owner (new partitions, those of a consumer
   that left) goes to the active level in either case.
3. Within a level the rule of `muster.core.assignors.sticky` holds, over all topics together: balanced in proportion
   to `weight`, then as few moves as possible.

A pin is obeyed whatever the level of its consumer. What stays at a lower level, for the sake of a pin or of
`give_back: false`, is not balanced, nor does it count in the balance. `weight` and `zone` never outweigh
`priority`: they play their part among consumers of one level only, and there the same one as in sticky.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from muster.core.assignors.api import NOTHING, Pins, Racks
from muster.core.assignors.pins import with_pinned, without_pinned
from muster.core.assignors.sticky import Sticky
from muster.core.assignors.subscriptions import audiences
from muster.core.model import Assignment, Consumer


class Failover:
    """Assigns by the rule of this module.

    Option `give_back` (by default true): whether a level that is back gets its partitions back.
    """

    name = "failover"

    def __init__(self, give_back: bool = True) -> None:
        if not isinstance(give_back, bool):
            raise TypeError(f"give_back must be true or false, found {give_back!r}")
        self._give_back = give_back
        self._sticky = Sticky()

    def assign(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        previous: Assignment,
        /,
        pins: Pins = NOTHING,
        racks: Racks = NOTHING,
        rebalance_now: bool = False,
    ) -> Assignment:
        """See `Assignor.assign`; `pins` are those that can be obeyed, the rest is as in `PlanningContext`."""
        active, lower = _levels(topics, consumers)
        pinned_above: dict[str, dict[int, str]] = {}
        kept: dict[str, dict[int, str]] = {}
        for topic in () if self._give_back or rebalance_now else lower:
            owners = previous.get(topic, {})
            kept[topic] = {p: c for p, c in owners.items() if c in lower[topic] and p in topics[topic]}
        for topic, owners in pins.items():
            for partition, consumer in owners.items():
                of_level = pinned_above if active[consumer].subscribes(topic) else kept
                kept.get(topic, {}).pop(partition, None)
                of_level.setdefault(topic, {})[partition] = consumer
        free = without_pinned(topics, kept)
        assignment = self._sticky.assign(free, active, previous, pins=pinned_above, racks=racks)
        return with_pinned(assignment, kept)


def _levels(
    topics: Mapping[str, frozenset[int]], consumers: Mapping[str, Consumer]
) -> tuple[dict[str, Consumer], dict[str, set[str]]]:
    """Return the consumers, each subscribed only to topics in whose active level it is, and by topic those below."""
    active: dict[str, set[str]] = {consumer: set() for consumer in consumers}
    lower: dict[str, set[str]] = {}
    for audience in audiences(topics, consumers):
        highest = max(consumers[consumer].priority for consumer in audience.consumers)
        below = {c for c in audience.consumers if consumers[c].priority < highest}
        for consumer in audience.consumers:
            if consumer not in below:
                active[consumer].update(audience.topics)
        lower.update(dict.fromkeys(audience.topics if below else (), below))
    return {name: replace(consumers[name], topics=frozenset(active[name])) for name in consumers}, lower
