"""What an assignor is, and what it may ask for. It fits on two pages, so that anyone can write one.

How the interface grows without breaking an assignor of a user: what a rule needs to know of a consumer is a field of
`Consumer` (`priority`, `weight`, `zone`, `topics`); what it needs to know once is an option of its constructor;
anything further that changes while it runs (measured load, leaders' racks, pins) is a field of `PlanningContext` and
comes as a keyword argument, only to assignors that have a parameter of that name. The three positional arguments and
the result stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from muster.core.model import Assignment, Consumer, Owners, PartitionStandbys, TopicPartition

Pins = Mapping[str, Owners]
"""Topic to partition to the consumer that a person fixed it to."""

Racks = Mapping[str, Mapping[int, str]]
"""Topic to partition to the rack of its leader; what is not known is absent."""

Loads = Mapping[str, Mapping[int, float]]
"""Topic to partition to measured load, in records a second or records of lag; what is not known is absent."""

Standbys = Mapping[str, PartitionStandbys]
"""Topic to partition to the consumers that stand by for it, the first to be promoted first."""

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""No pin, no rack, no load, no standby."""


@dataclass(frozen=True, slots=True)
class PlanningContext:
    """What a plan takes into account beside topics, consumers and what stood before.

    Persons decide some of it, some is measured. All of it is optional: without it, an assignor plans as if that
    feature did not exist.

    `pins`: topic to partition to the consumer that a person fixed it to. `exclusions`: consumer to the topics that a
    person keeps it from. `racks`: topic to partition to the rack of the partition's leader, where Kafka reports it.
    `loads`: topic to partition to its measured load, in records a second or records of lag (the assignor's option
    `measure` says which), where consumers report it. `standbys`: the standbys that stand in the topic nodes.
    `unsettled`: the topics in mid-rebalance, or waiting for a missing consumer; there only partitions without a live
    owner are given one, and what would move for the sake of balance does not move yet. `rebalance_now`: a person asks
    for everything to go where it belongs, also what the assignor otherwise leaves where it is until a person asks.
    `drained`: consumers that are given nothing, as those that leave.
    """

    pins: Pins = field(default_factory=dict)
    exclusions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    racks: Racks = field(default_factory=dict)
    loads: Loads = field(default_factory=dict)
    standbys: Standbys = field(default_factory=dict)
    unsettled: frozenset[str] = frozenset()
    rebalance_now: bool = False
    drained: frozenset[str] = frozenset()


EMPTY_CONTEXT = PlanningContext()
"""No pin, no exclusion, nothing measured."""


class AssignorError(RuntimeError):
    """An assignor is unavailable, or what it returned cannot be obeyed; the message names it and the reason."""

    @classmethod
    def at_fault(cls, assignor: str, what: str) -> AssignorError:
        """Make the error for an assignor that did `what`, with the next step."""
        return cls(
            f"assignor {assignor!r} {what}; nothing is moved. Correct the assignor, or name another one in "
            "the settings"
        )


@runtime_checkable
class Assignor(Protocol):
    """Decides which consumer reads which partition.

    An assignor is pure: no I/O, no clock, no memory between calls (`previous` is its memory), and the same
    arguments give an equal result whatever the order of the mappings, because a coordinator may be started again
    at any moment and must come to the same plan.
    """

    @property
    def name(self) -> str:
        """What settings, errors and the audit call it. A class attribute does."""
        ...

    def assign(
        self, topics: Mapping[str, frozenset[int]], consumers: Mapping[str, Consumer], previous: Assignment, /
    ) -> Assignment:
        """Give every partition to one of the consumers that subscribe to its topic.

        `topics` maps each topic to its partitions, which need not be contiguous. `consumers` are the live ones,
        by id. `previous` is what stood before, as it was written: it may name consumers that left, topics and
        partitions that are gone, and it need not be balanced.

        A topic that no consumer subscribes to is left out of the result; every other topic is in it with all
        its partitions. `muster.core.assignors.validate` checks just that.
        """
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How rebalances ended. `assignment` has the topics that became Stable, each partition with its owner as it was
    written; `reasons` say for each topic why it was rebalanced. `consumers` are the live ones, by id.
    """

    assignment: Assignment
    reasons: Mapping[str, str]
    consumers: Mapping[str, Consumer]


@runtime_checkable
class ObservesOutcome(Protocol):
    """An assignor that is notified how its plans ended, as `onAssignment` tells Kafka's: to count, to log, to train.

    It changes nothing: a plan may not depend on what was observed, because each run of the coordinator makes a
    new assignor.
    """

    def observe(self, outcome: Outcome, /) -> None:
        """Take note of topics that have become Stable. An error is a warning in the log of `advance_state`."""
        ...


@runtime_checkable
class HasStandbys(Protocol):
    """An assignor that also decides which consumers stand by for a partition.

    It is asked after `assign`. That a standby is promoted is up to `assign`: it finds the standbys that stood before
    in its parameter `standbys`. The promise of `Assignor` holds here, too: pure, and deterministic.
    """

    def standbys(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        assignment: Assignment,
        previous_standbys: Standbys,
        /,
    ) -> Standbys:
        """Return the standbys of each partition that is to have some; what is left out has none.

        `topics` and `consumers` are those that `assign` was given, `assignment` is what it returned.
        `previous_standbys` is what stood before and may name consumers and partitions that are gone.
        """
        ...


@runtime_checkable
class HasTasks(Protocol):
    """An assignor that moves some partitions together: those of a task wait for each other's state."""

    def tasks(
        self, topics: Mapping[str, frozenset[int]], consumers: Mapping[str, Consumer], /
    ) -> Iterable[Iterable[TopicPartition]]:
        """Return the partitions of each task; what is in none moves alone."""
        ...
