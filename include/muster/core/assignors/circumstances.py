"""What a plan takes into account beside topics, consumers and what stood before.

Persons decide some of it (pins, exclusions), some is measured while it runs (racks of the leaders, load). All of it
is optional: where nothing is known, an assignor does as if it had never heard of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.core.model import Owners, PartitionStandbys

Standbys = Mapping[str, PartitionStandbys]
"""Topic to partition to the consumers that stand by for it, the first to be promoted first."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Everything further that a plan is made with.

    `pins`: topic to partition to the consumer that a person fixed it to. `exclusions`: consumer to the topics that a
    person keeps it from. `racks`: topic to partition to the rack of the partition's leader, where Kafka tells.
    `loads`: topic to partition to its measured load, in records a second or records of lag (the assignor's option
    `measure` says which), where consumers report it. `standbys`: the standbys that stand in the topic nodes.
    `unsettled`: the topics in mid-rebalance, or waiting for a missing consumer; there only partitions without a live
    owner are given one, and what would move for the sake of balance does not move yet. `rebalance_now`: a person asks
    for everything to go where it belongs, also what the assignor otherwise leaves where it is until a person asks.
    `drained`: consumers that are given nothing, as those that leave.
    """

    pins: Mapping[str, Owners] = field(default_factory=dict)
    exclusions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    racks: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    loads: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    standbys: Standbys = field(default_factory=dict)
    unsettled: frozenset[str] = frozenset()
    rebalance_now: bool = False
    drained: frozenset[str] = frozenset()


NOTHING_FURTHER = Circumstances()
"""No pin, no exclusion, nothing measured."""
