"""Overrides: what persons set by hand for a cluster, with actor, moment and reason.

A *pin* fixes one partition to one consumer. An *exclusion* keeps one consumer from one topic; a *drain* and an
*isolation* keep it from all. The *consumption* of a partition, a topic or all topics may be paused, and a *seek* has
a partition go on at another offset. A *standing answer* says what becomes of a topic's records that fail with one
error. A cluster may be *paused*, asked to *rebalance* now, planned with another
*assignor*, and *subscribed* to other topics than the settings name. All stand until a person takes them back; a
seek or a request to rebalance ends when it is carried out.

Assignors get pins and exclusions as plain mappings (`muster.core.assignors.PlanningContext`); here is who set them,
so that a partition that moves because of one can say so. Which topics are read follows in `muster.core.subscription`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from muster.core.deployment import Deployment
from muster.core.epochs import Noted
from muster.core.model import Owners, Seek, SeekState, TopicPartition
from muster.core.parking import Answer
from muster.core.turns import Failure

LONGEST_WHY = 200
"""Characters of a person's name, and of a reason, that stand in the reason of a move; all of it stands in Consul."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """`by` set it, at `at` (seconds since the epoch, 0 if unknown), and `why`."""

    by: str
    at: float
    why: str

    def said(self, *, since: bool = False) -> str:
        """Return `ann: why` on one line and not too long; semicolons separate the reasons of a topic.

        `since` adds the moment, `ann since 2026-03-01T12:00:00+00:00: why`, unless it is unknown.
        """
        who, words = _line(self.by), _line(self.why)
        if since and self.at > 0:
            who += f" since {datetime.fromtimestamp(self.at, UTC).isoformat(timespec='seconds')}"
        return f"{who}: {words}" if words else who


@dataclass(frozen=True, slots=True)
class Pin(Override):
    """A partition is fixed to a consumer."""

    topic: str
    partition: int
    consumer: str

    def __str__(self) -> str:
        return f"pinned to {self.consumer} by {self.said()}"


@dataclass(frozen=True, slots=True)
class Exclusion(Override):
    """A consumer is kept from a topic."""

    consumer: str
    topic: str

    def __str__(self) -> str:
        return f"{self.consumer} excluded from topic {self.topic} by {self.said()}"


@dataclass(frozen=True, slots=True)
class Drain(Override):
    """A consumer's partitions are handed to the others in order, and it is given no more."""

    consumer: str

    def __str__(self) -> str:
        return f"{self.consumer} drained by {self.said()}"


@dataclass(frozen=True, slots=True)
class IsolationEntry(Override):
    """A consumer gets no partitions."""

    consumer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(Override):
    """Coordination is held still until a person resumes it: nothing is planned, and nothing is written."""

    def __str__(self) -> str:
        return f"paused by {self.said(since=True)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumptionPause(Override):
    """Consumption is paused: of one partition, of a topic (`partition` is None), or of all topics (`topic` is '')."""

    topic: str = ""
    partition: int | None = None

    def __str__(self) -> str:
        return f"consumption of {self.scope} paused by {self.said(since=True)}"

    @property
    def scope(self) -> str:
        """What is paused, in words."""
        return flow_scope(self.topic, "" if self.partition is None else str(self.partition))


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekRequest(Override):
    """A partition is to go on at `offset`, or an earlier seek is taken back (None); `rebuild` and `state` are as in
    `Seek`. It stands until it has been carried out, or its topic is another one than that with `topic_id`. `modified`
    is Consul's index of the key, to end this request and no later one."""

    topic: str
    partition: int
    topic_id: str
    id: str
    offset: int | None
    rebuild: int = 0
    state: SeekState | None = None
    modified: int = 0

    def __str__(self) -> str:
        where = flow_scope(self.topic, str(self.partition))
        how = " with a rebuild" if self.rebuild else ""
        how = f", state: {self.state}" if self.state else how
        if self.offset is None:
            return f"seek of {where} taken back by {self.said(since=True)}, which is not committed yet"
        return f"seek of {where} to offset {self.offset}{how} asked for by {self.said(since=True)}"

    @property
    def seek(self) -> Seek:
        """The request as it stands in the assignment."""
        return Seek(self.id, self.offset, self.rebuild, self.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingAnswer(Override):
    """What becomes of records of a topic that fail with `error`, the class of an exception or Spark's condition, and
    a message that holds `text`: they are skipped or dead-lettered, or tried on, and no person is asked (`RETRY`).

    It stands until it is taken back; for `records` more of them, or for `hourly` of them an hour, unless these are
    None. `modified` is Consul's index of the key.
    """

    topic: str
    answer: Answer
    error: str
    text: str = ""
    records: int | None = None
    hourly: int | None = None
    modified: int = 0

    def matches(self, failure: str) -> bool:
        """Tell whether it is about an error, given as `ValueError: no date`."""
        return Failure(failure).kind == self.error and self.text in failure

    @property
    def limited(self) -> bool:
        """Whether it is for so many records only."""
        return self.records is not None or self.hourly is not None

    @property
    def about(self) -> str:
        """Which errors it is about, in words."""
        return f"{self.error} with {self.text!r}" if self.text else self.error

    @property
    def does(self) -> str:
        """What it has Muster do, in words."""
        bound = f" for {self.records} more" if self.records is not None else ""
        bound = f" for {self.hourly} an hour" if self.hourly is not None else bound
        return f"{self.answer.replace('_', '-')}{bound}"

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.does} what fails with {self.about}, by {self.said(since=True)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceRequest(Override):
    """A rebalance is to happen now. It stands until a coordinator run has carried it out.

    Meanwhile no `rebalance_delay` is waited for, and assignors that keep something where it is on purpose know it
    (`rebalance_now` of `muster.core.assignors.PlanningContext`). `modified` is Consul's index of the key, to end this
    request and no later one.
    """

    modified: int = 0

    def __str__(self) -> str:
        return f"rebalance asked for by {self.said()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignorChoice(Override):
    """The assignor `name`, made with `options`, takes the place of the one that the settings name."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"assignor {self.name}{shown_options(self.options)} by {self.said(since=True)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOverride(Override):
    """A topic, or all whose whole names match (`pattern`), is subscribed or unsubscribed (`subscribed`)."""

    selector: str
    pattern: bool
    subscribed: bool

    def __str__(self) -> str:
        how = "subscribed" if self.subscribed else "unsubscribed"
        by_pattern = f" by pattern {self.selector!r}" if self.pattern else ""
        return f"{how}{by_pattern} by {self.said()}"


@dataclass(frozen=True, slots=True)
class Overrides:
    """All overrides of a cluster, from one reading.

    `pins` is by topic and partition, `exclusions` by consumer and topic. `errors` says what could not be read and
    what to do about it; what it names is nowhere else. `paused`, `rebalance` and `assignor` are None unless a person
    set them. With `assignor_error` a person did, and it cannot be read which one: then nothing may be planned.
    `topics_in_doubt`: an override of topics cannot be read. `epochs` is no override, but read with them: what is
    noted of each topic before it is written to ZooKeeper. So is `deployment`, which coordinates the cluster.
    `large` names the keys that Consul will soon not take any more.
    """

    pins: Mapping[tuple[str, int], Pin] = field(default_factory=dict)
    exclusions: Mapping[tuple[str, str], Exclusion] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    paused: Pause | None = None
    rebalance: RebalanceRequest | None = None
    assignor: AssignorChoice | None = None
    assignor_error: str = ""
    subscriptions: tuple[TopicOverride, ...] = ()
    topics_in_doubt: bool = False
    epochs: Mapping[str, Noted] = field(default_factory=dict)
    deployment: Deployment | None = None
    large: tuple[str, ...] = ()
    isolated: Mapping[str, IsolationEntry] = field(default_factory=dict)
    drained: Mapping[str, Drain] = field(default_factory=dict)
    consumption: tuple[ConsumptionPause, ...] = ()
    """The pauses of consumption in force."""
    seeks: Mapping[TopicPartition, SeekRequest] = field(default_factory=dict)
    """Those that are not known to be carried out."""
    standing: tuple[StandingAnswer, ...] = ()
    """The standing answers about records that handlers fail with."""

    def pinned(self) -> dict[str, Owners]:
        """Map topic to partition to the consumer it is pinned to, as assignors take it."""
        found: dict[str, dict[int, str]] = {}
        for (topic, partition), pin in sorted(self.pins.items()):
            found.setdefault(topic, {})[partition] = pin.consumer
        return dict(found)

    def excluded(self) -> dict[str, frozenset[str]]:
        """Map consumer to the topics that it is kept from, as assignors take it."""
        found: dict[str, set[str]] = {}
        for consumer, topic in sorted(self.exclusions):
            found.setdefault(consumer, set()).add(topic)
        return {consumer: frozenset(topics) for consumer, topics in found.items()}

    def not_consumed(self, topic: str, partitions: frozenset[int]) -> frozenset[int]:
        """Return those of the `partitions` of `topic` whose consumption is paused."""
        found = [each for each in self.consumption if each.topic in {"", topic}]
        if any(each.partition is None for each in found):
            return partitions
        return partitions & {each.partition for each in found if each.partition is not None}

    def topics(self) -> frozenset[str]:
        """Return the topics that pins and exclusions name."""
        return frozenset({topic for topic, _ in self.pins} | {topic for _, topic in self.exclusions})

    def reasons(self, topic: str, owners: Owners, targets: Owners) -> dict[int, str]:
        """Say why partitions of `topic` go from `owners` to `targets`, for those that go because of an override.

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

    def moved_at(self, tp: TopicPartition, owner: str, target: str) -> float | None:
        """Return when a person asked that a partition goes from `owner` to `target`, in seconds since the epoch; None
        if it goes for another reason."""
        pin, kept_from = self.pins.get(tp), self._kept_from(owner, tp[0])
        if pin is not None and pin.consumer == target:
            return pin.at
        return None if kept_from is None else kept_from.at

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
        """Return what keeps `consumer` from `topic`, None if nothing does."""
        return self.exclusions.get((consumer, topic)) or self.drained.get(consumer)


NO_OVERRIDES = Overrides()


def flow_scope(topic: str, partitions: str) -> str:
    """Say what a command on the flow is about: `partition(s) 0-3 of topic t`, `topic t`, `all topics`."""
    if not topic:
        return "all topics"
    return f"partition(s) {partitions} of topic {topic}" if partitions else f"topic {topic}"


def shown_options(options: Mapping[str, Any]) -> str:
    """Format options as ` (budget=10, measure=lag)`, '' without any."""
    listed = ", ".join(f"{key}={options[key]}" for key in sorted(options))
    return f" ({listed})" if listed else ""


def _line(text: str) -> str:
    """Put `text` on one line, without what UTF-8 cannot write or semicolons, and cut it where it is long."""
    words = " ".join(text.encode("utf-8", "replace").decode().split()).replace(";", ",")
    return words if len(words) <= LONGEST_WHY else words[: LONGEST_WHY - 3] + "..."
