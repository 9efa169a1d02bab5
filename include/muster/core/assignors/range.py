"""Range: per topic, contiguous blocks of partitions in order of consumer id."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.assignors.subscriptions import audiences
from muster.core.model import Assignment, Consumer


class Range:
    """The rule of Kafka's `RangeAssignor` (without racks) and of the old ZooKeeper consumer.

    For each topic on its own:

    1. its subscribers stand in order of consumer id, its partitions in order of number;
    2. each subscriber takes the next `partitions // subscribers` of them, and the first
       `partitions % subscribers` subscribers take one more.

    So partition n of topics with equally many partitions and the same subscribers goes to the same consumer, and
    with many small topics the first consumers get more than the last. `weight` and `previous` play no part.
    """

    name = "range"

    def assign(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        _previous: Assignment,
        /,
    ) -> Assignment:
        """See `Assignor.assign`."""
        return {
            topic: _blocks(topics[topic], audience.consumers)
            for audience in audiences(topics, consumers)
            for topic in audience.topics
        }


def _blocks(partitions: frozenset[int], consumers: tuple[str, ...]) -> dict[int, str]:
    ordered = sorted(partitions)
    size, longer = divmod(len(ordered), len(consumers))
    owners: dict[int, str] = {}
    for position, consumer in enumerate(consumers[: len(ordered)]):
        start = position * size + min(position, longer)
        end = start + size + (position < longer)
        owners.update(dict.fromkeys(ordered[start:end], consumer))
    return owners
