"""Reads what a plan takes into account beside topics and consumers: overrides, leaders' racks, measured loads.

What is unavailable counts as unknown, with a warning, and the plan is made without it. Only pins and exclusions are
another matter: a plan made without them would undo what a person set, so without Consul there is none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from muster.coordinator.asking import StatusPoller
from muster.core.assignors import Assignor, PlanningContext
from muster.core.model import Consumer, ConsumerStatus, PartitionLoad, TopicSnapshot
from muster.core.overrides import Overrides
from muster.core.wire import Racks, WireError
from muster.edges.zookeeper import ZooKeeperError

LOADS_LAST = 10.0
"""Seconds for which measured loads are used again, so that the steps of one rebalance are planned with the same."""
LONGEST_ASKING = 1.0
"""Seconds that consumers have to report their load: a frozen one must not hold up what has to be planned now."""

Loads = Mapping[str, Mapping[int, PartitionLoad]]


class RackStore(Protocol):
    """`muster.edges.zookeeper.TopicStore`, as far as racks are concerned."""

    def racks(self, topics: Iterable[str]) -> Mapping[str, Racks | WireError]:
        """Return the racks of the partitions' leaders, of those topics where they are known."""


class ContextReader:
    """Reads what an assignor has a parameter for, and no more."""

    def __init__(
        self, store: RackStore, poll: StatusPoller, clock: Callable[[], float], timeout: float
    ) -> None:
        self._store = store
        self._poll = poll
        self._clock = clock
        self._timeout = min(timeout, LONGEST_ASKING)
        self._measured: tuple[float, Loads, tuple[str, ...]] | None = None

    def read(
        self,
        snapshots: Mapping[str, TopicSnapshot],
        live: Mapping[str, Consumer],
        assignor: Assignor,
        overrides: Overrides,
    ) -> tuple[PlanningContext, tuple[str, ...]]:
        """Return what a plan of `assignor` takes into account now, and what is unknown or cannot be read, in words.

        Racks are only read while some consumer has a zone, loads only if the assignor goes by them.
        """
        parameters = inspect.signature(assignor.assign).parameters
        warnings = list(overrides.errors)
        racks: Mapping[str, Racks] = {}
        loads: Mapping[str, Mapping[int, float]] = {}
        if "racks" in parameters and any(consumer.zone for consumer in live.values()):
            racks = self._racks(snapshots, warnings)
        if "loads" in parameters:
            loads = self._loads(snapshots, live, getattr(assignor, "measure", "rate"), warnings)
        context = PlanningContext(
            pins=overrides.pinned(),
            exclusions=overrides.excluded(),
            drained=frozenset(overrides.drained),
            racks=racks,
            loads=loads,
            rebalance_now=overrides.rebalance is not None,
        )
        return context, tuple(warnings)

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
        """Return what all live consumers, asked at once, report of what they hold; the owner's report comes first."""
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
