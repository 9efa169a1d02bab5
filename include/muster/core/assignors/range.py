"""Range: per topic, contiguous blocks of partitions in order of consumer id."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.assignors.blocks import Quota
from muster.core.assignors.load import weight_of
from muster.core.assignors.range_by_zone import range_by_zone
from muster.core.assignors.subscriptions import audiences
from muster.core.assignors.zones import NO_RACKS, Racks, useful_racks
from muster.core.model import Assignment, Consumer


class Range:
    """The rule of Kafka's `RangeAssignor` and of the old ZooKeeper consumer.

    For each topic on its own:

    1. its subscribers stand in order of consumer id, its partitions in order of number;
    2. each subscriber takes the next `partitions // subscribers` of them, and the first
       `partitions % subscribers` subscribers take one more.

    So partition n of topics with equally many partitions and the same subscribers goes to the same consumer,
    and with many small topics the first consumers get more than the last. `previous` plays no part.

    With different weights (which Kafka does not have) the blocks are in proportion to `weight`, rounded by
    the largest remainder, with ties to the lower id; with equal weights that is the rule above.

    Where leaders' racks are known and the subscribers' zones match some of them, blocks keep their sizes but
    are no longer contiguous: `muster.core.assignors.range_by_zone` has the rule, which is Kafka's (KIP-881).
    """

    name = "range"

    def assign(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        _previous: Assignment,
        /,
        racks: Racks = NO_RACKS,
    ) -> Assignment:
        """See `Assignor.assign`; `racks` as in `Circumstances`."""
        known = useful_racks(racks, topics, consumers)
        groups = audiences(topics, consumers)
        if known and (by_zone := range_by_zone(groups, topics, consumers, known)) is not None:
            return by_zone
        assignment: dict[str, dict[int, str]] = {}
        for audience in groups:
            weights = {c: weight_of(consumers[c]) for c in audience.consumers}
            blocks: dict[int, list[tuple[str, int]]] = {}
            for topic in audience.topics:
                count = len(topics[topic])
                if count not in blocks:
                    blocks[count] = Quota(count, weights).blocks()
                assignment[topic] = _cut(topics[topic], blocks[count])
        return assignment


def _cut(partitions: frozenset[int], blocks: list[tuple[str, int]]) -> dict[int, str]:
    ordered = sorted(partitions)
    owners: dict[int, str] = {}
    start = 0
    for consumer, size in blocks:
        owners.update(dict.fromkeys(ordered[start : start + size], consumer))
        start += size
    return owners
