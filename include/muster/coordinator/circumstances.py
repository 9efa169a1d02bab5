"""What a plan is made with beside topics and consumers: read from Consul, ZooKeeper and the consumers themselves.

What is unavailable counts as unknown, with a warning in words, and the plan is made without it. Only pins and
exclusions are another matter: a plan made without them would undo what a person decided, so with Consul out of reach
there is none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from muster.coordinator.ports import StatusPoller
from muster.core.assignors import EMPTY_CONTEXT, Assignor, PlanningContext
from muster.core.model import Consumer, ConsumerStatus, PartitionLoad, TopicSnapshot
from muster.core.overrides import NO_OVERRIDES, Overrides
from muster.core.wire import Racks, WireError
from muster.edges.zookeeper import ZooKeeperError

LOADS_LAST = 10.0
"""Seconds for which measured loads are used again, so that the steps of one rebalance are planned with the same."""
LONGEST_ASKING = 1.0
"""Seconds that consumers are given to tell their load: a frozen one must not hold up what has to be planned now."""

Loads = Mapping[str, Mapping[int, PartitionLoad]]


@dataclass(frozen=True)
class Known:
    """`circumstances` for the planner, the `decisions` behind its pins and exclusions with who and why, and
    `warnings`: what is unknown or cannot be read, and what to do about it."""

    circumstances: PlanningContext = EMPTY_CONTEXT
    decisions: Overrides = NO_OVERRIDES
    warnings: tuple[str, ...] = ()


class RackStore(Protocol):
    """`muster.edges.zookeeper.TopicStore`, as far as racks are concerned."""

    def racks(self, topics: Iterable[str]) -> Mapping[str, Racks | WireError]:
        """The racks of the partitions' leaders, of those topics where they are known."""


class DecisionStore(Protocol):
    """`muster.edges.consul.Discovery`, as far as decisions are concerned."""

    def decisions(self) -> Overrides:
        """All that persons decided about the cluster."""


class CircumstancesReader:
    """Reads what an assignor has a parameter for, and no more."""

    def __init__(
        self,
        store: RackStore,
        discovery: DecisionStore,
        poll: StatusPoller,
        clock: Callable[[], float],
        timeout: float,
    ) -> None:
        self._store = store
        self._discovery = discovery
        self._poll = poll
        self._clock = clock
        self._timeout = min(timeout, LONGEST_ASKING)
        self._measured: tuple[float, Loads, tuple[str, ...]] | None = None

    def read(
        self,
        snapshots: Mapping[str, TopicSnapshot],
        live: Mapping[str, Consumer],
        assignor: Assignor,
        decided: Overrides | None = None,
    ) -> Known:
        """Everything that a plan of `assignor` takes into account now. Raises `ConsulError` without pins.

        Racks are only read while some consumer says its zone, loads only if the assignor goes by them, what was
        `decided` only if it is not given.
        """
        parameters = inspect.signature(assignor.assign).parameters
        decisions = self._discovery.decisions() if decided is None else decided
        warnings = list(decisions.errors)
        racks: Mapping[str, Racks] = {}
        loads: Mapping[str, Mapping[int, float]] = {}
        if "racks" in parameters and any(consumer.zone for consumer in live.values()):
            racks = self._racks(snapshots, warnings)
        if "loads" in parameters:
            loads = self._loads(snapshots, live, getattr(assignor, "measure", "rate"), warnings)
        circumstances = PlanningContext(
            pins=decisions.pinned(),
            exclusions=decisions.excluded(),
            drained=frozenset(decisions.drained),
            racks=racks,
            loads=loads,
            rebalance_now=decisions.rebalance is not None,
        )
        return Known(circumstances, decisions, tuple(warnings))

    def _racks(self, snapshots: Mapping[str, TopicSnapshot], warnings: list[str]) -> dict[str, Racks]:
        try:
            read = self._store.racks(snapshots)
        except ZooKeeperError as error:
            warnings.append(f"{error}; the leaders' racks count as unknown")
            return {}
        warnings += [str(found) for found in read.values() if isinstance(found, WireError)]
        return {topic: found for topic, found in read.items() if not isinstance(found, WireError)}

    def _loads(
        self,
        snapshots: Mapping[str, TopicSnapshot],
        live: Mapping[str, Consumer],
        measure: str,
        warnings: list[str],
    ) -> dict[str, dict[int, float]]:
        now = self._clock()
        if self._measured is None or now - self._measured[0] >= LOADS_LAST:
            self._measured = (now, *self._measure(snapshots, live))
        _, measured, failures = self._measured
        warnings += failures
        chosen: dict[str, dict[int, float]] = {}
        for topic, loads in measured.items():
            values = {p: load.lag if measure == "lag" else load.rate for p, load in loads.items()}
            chosen[topic] = {p: value for p, value in values.items() if value is not None}
        return {topic: values for topic, values in chosen.items() if values}

    def _measure(
        self, snapshots: Mapping[str, TopicSnapshot], live: Mapping[str, Consumer]
    ) -> tuple[Loads, tuple[str, ...]]:
        """What all live consumers, asked at once, say of what they hold; the owner's word before others'."""
        loads: dict[str, dict[int, PartitionLoad]] = {}
        failures = []
        answers = self._poll([live[consumer] for consumer in sorted(live)], self._timeout)
        for consumer, answer in sorted(answers.items()):
            if not isinstance(answer, ConsumerStatus):
                failures.append(f"the load of consumer {consumer} is unknown: {answer.reason}")
                continue
            for topic, status in answer.topics.items():
                if topic not in snapshots:
                    continue
                assignment = snapshots[topic].assignment
                owners = assignment.owners if assignment is not None else {}
                of_topic = loads.setdefault(topic, {})
                for partition, load in status.loads.items():
                    if partition not in of_topic or owners.get(partition) == consumer:
                        of_topic[partition] = load
        return loads, tuple(failures)
