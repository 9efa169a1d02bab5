"""What persons decided about a cluster, with who, when and why.

A *pin* fixes one partition to one consumer. An *exclusion* keeps one consumer from one topic, a *drain* from all.
They stand until a person takes them back. The planner gets them as plain mappings
(`muster.core.assignors.PlanningContext`); here is who decided them, so that a partition which moves for one can say
so. What is decided about coordination as a whole is in `muster.core.coordination`, which topics are read in
`muster.core.subscription`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.core.coordination import AssignorChoice, Pause, RebalanceRequest
from muster.core.decided import Decided
from muster.core.model import Owners
from muster.core.subscription import TopicDecision


@dataclass(frozen=True, slots=True)
class Pin(Decided):
    """A person fixed a partition to a consumer."""

    topic: str
    partition: int
    consumer: str

    def __str__(self) -> str:
        return f"pinned to {self.consumer} by {self.said()}"


@dataclass(frozen=True, slots=True)
class Exclusion(Decided):
    """A person keeps a consumer from a topic."""

    consumer: str
    topic: str

    def __str__(self) -> str:
        return f"{self.consumer} excluded from topic {self.topic} by {self.said()}"


@dataclass(frozen=True, slots=True)
class Drain(Decided):
    """A person drains a consumer: its partitions are handed to the others in order, and it is given no more."""

    consumer: str

    def __str__(self) -> str:
        return f"{self.consumer} drained by {self.said()}"


@dataclass(frozen=True, slots=True)
class IsolationEntry(Decided):
    """A person isolated a consumer: it gets no partitions."""

    consumer: str


@dataclass(frozen=True, slots=True)
class Decisions:
    """Everything that persons decided about a cluster, from one reading.

    `pins` is by topic and partition, `exclusions` by consumer and topic. `errors` says what could not be read and
    what to do about it; what it names is nowhere else. `paused`, `rebalance` and `assignor` are None unless a person
    decided so. With `assignor_error` a person did, and it cannot be read which one: then nothing may be planned.
    `topics_in_doubt`: a decision about topics cannot be read. `epochs` is no decision, but read with them: by topic
    the highest epoch that was ever about to be written to ZooKeeper.
    """

    pins: Mapping[tuple[str, int], Pin] = field(default_factory=dict)
    exclusions: Mapping[tuple[str, str], Exclusion] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    paused: Pause | None = None
    rebalance: RebalanceRequest | None = None
    assignor: AssignorChoice | None = None
    assignor_error: str = ""
    subscriptions: tuple[TopicDecision, ...] = ()
    topics_in_doubt: bool = False
    epochs: Mapping[str, int] = field(default_factory=dict)
    isolated: Mapping[str, IsolationEntry] = field(default_factory=dict)
    drained: Mapping[str, Drain] = field(default_factory=dict)

    def pinned(self) -> dict[str, Owners]:
        """Topic to partition to the consumer it is pinned to, as assignors take it."""
        found: dict[str, dict[int, str]] = {}
        for (topic, partition), pin in sorted(self.pins.items()):
            found.setdefault(topic, {})[partition] = pin.consumer
        return dict(found)

    def excluded(self) -> dict[str, frozenset[str]]:
        """Consumer to the topics that it is kept from, as assignors take it."""
        found: dict[str, set[str]] = {}
        for consumer, topic in sorted(self.exclusions):
            found.setdefault(consumer, set()).add(topic)
        return {consumer: frozenset(topics) for consumer, topics in found.items()}

    def topics(self) -> frozenset[str]:
        """The topics that something was decided about by their names."""
        return frozenset({topic for topic, _ in self.pins} | {topic for _, topic in self.exclusions})

    def reasons(self, topic: str, owners: Owners, targets: Owners) -> dict[int, str]:
        """Why partitions of `topic` go from `owners` to `targets`, for those that go because of a decision.

        A partition that goes where it is pinned goes because of the pin; one that leaves a consumer that is
        excluded from the topic, or drained, goes because of that. All others have no entry.
        """
        found: dict[int, str] = {}
        for partition, target in targets.items():
            owner = owners.get(partition)
            if owner == target:
                continue
            pin = self.pins.get((topic, partition))
            kept_from = self._kept_from(owner, topic) if owner is not None else None
            if pin is not None and pin.consumer == target:
                found[partition] = str(pin)
            elif kept_from is not None:
                found[partition] = str(kept_from)
        return found

    def unobeyed(self, topic: str, owners: Owners, targets: Owners) -> list[str]:
        """Describe the exclusions and drains that are not obeyed, because no other consumer can take over."""
        stranded: dict[str, int] = {}
        for partition, owner in owners.items():
            if partition not in targets and self._kept_from(owner, topic) is not None:
                stranded[owner] = stranded.get(owner, 0) + 1
        return [self._stranded(owner, topic, count) for owner, count in sorted(stranded.items())]

    def _stranded(self, consumer: str, topic: str, count: int) -> str:
        exclusion = self.exclusions.get((consumer, topic))
        which, undo = ("it", "take the exclusion back") if exclusion else (f"topic {topic}", "undrain it")
        return (
            f"consumer {self._kept_from(consumer, topic)}, but keeps {count} partition(s) of {which}: no other live "
            f"consumer takes the topic. Start one, or {undo}"
        )

    def _kept_from(self, consumer: str, topic: str) -> Exclusion | Drain | None:
        """What keeps `consumer` from `topic`."""
        return self.exclusions.get((consumer, topic)) or self.drained.get(consumer)


NOTHING_DECIDED = Decisions()
"""No pin, no exclusion."""
