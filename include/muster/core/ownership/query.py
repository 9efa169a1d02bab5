"""The one query that reads: what it was offered, what it has planned, and whether that is processed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.core.model import OffsetRange, Seek, TopicPartition
from muster.core.ownership.place import Source


class PlanRefusedError(ValueError):
    """A plan cannot be accepted: it was not made from the newest offer, or does not follow from it."""


@dataclass(frozen=True, slots=True)
class TopicOffer:
    """The partitions of one topic that the next batch may hold; `owned` is how many of the topic have an owner."""

    source: Source
    partitions: frozenset[int]
    owned: int = 0


@dataclass(frozen=True, slots=True)
class Offer:
    """An answer to the planner: what the next batch may hold. `asked` numbers the offers of this process.

    A topic that was in an offer stays in those of the same query, without partitions if need be. `again` has where
    partitions are read again from, whose last batch has failed. `seeks` are not known to be carried out: carry out
    each unless its id went with what is committed.
    What is `in_group` begins at the group's offset, or waits for it to be committed again.
    """

    asked: int
    topics: Mapping[str, TopicOffer]
    again: Mapping[TopicPartition, int] = field(default_factory=dict)
    seeks: Mapping[TopicPartition, Seek] = field(default_factory=dict)
    in_group: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A batch as it was planned: topic to partition to offsets; `topic_ids` are those that are known, `rebuilds` the
    numbers of the partitions that were rebuilt."""

    asked: int
    offsets: Mapping[str, Mapping[int, OffsetRange]]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    rebuilds: Mapping[TopicPartition, int] = field(default_factory=dict)
    due: frozenset[TopicPartition] = frozenset()
    """The partitions without records that are in it because something of their state is due."""

    @property
    def ranges(self) -> dict[TopicPartition, OffsetRange]:
        return {(topic, p): found for topic, ranges in self.offsets.items() for p, found in ranges.items()}

    @property
    def filled(self) -> dict[TopicPartition, OffsetRange]:
        """The offsets of the partitions that have some."""
        return {tp: (begin, end) for tp, (begin, end) in self.ranges.items() if begin < end}

    @property
    def empty(self) -> bool:
        """Whether no partition has an offset to read."""
        return not self.filled


class Query:
    """The sequence of offers, plans and batches of the query that runs now; without one, of none.

    Each offer has a number, and only a plan made from the newest offer that is open is accepted. The batch of a plan
    is processed before the next one is planned.
    """

    def __init__(self) -> None:
        self.asked = 0
        """How many offers were made, by this query and those before."""
        self.end()

    def start(self) -> None:
        """Begin a query with an empty start offset, which Spark runs as its first batch if nothing is planned."""
        self._reset(running=True)

    def end(self) -> None:
        """Note that the query is over: no plan is under way."""
        self._reset(running=False)

    def _reset(self, running: bool) -> None:
        self.running = self._first = running
        self.finished = not running
        """Whether the last plan is processed, or its batch failed."""
        self._answered = self.asked
        self.offered: frozenset[TopicPartition] = frozenset()
        self.given: dict[str, Source] = {}
        """The topics that were offered, with their sources."""
        self.plan = BatchPlan(self.asked, {})

    def offer(self, offered: frozenset[TopicPartition]) -> None:
        """Make an offer, which replaces the one before. Raises `PlanRefusedError` when no query runs."""
        if not self.running:
            raise PlanRefusedError("no query is running; the planner that asks belongs to one that ended")
        self.asked += 1
        self.offered = offered

    def plan_of(
        self,
        asked: int,
        offsets: Mapping[str, Mapping[int, OffsetRange]],
        due: frozenset[TopicPartition],
    ) -> BatchPlan:
        """Return the plan of these offsets, made from the offer numbered `asked`."""
        return BatchPlan(
            asked,
            {name: dict(ranges) for name, ranges in offsets.items() if ranges},
            {name: s.topic_id for name, s in self.given.items() if s.topic_id and offsets.get(name)},
            due=due,
        )

    def is_batch(self, plan: BatchPlan) -> bool:
        """Tell whether a plan is a batch. One equal to the plan before is none, unless it is the query's first.

        Raises `PlanRefusedError` if it was not made from the newest offer, or if the batch planned before has not
        been processed.
        """
        if not self.running or plan.asked != self.asked or self.asked == self._answered:
            raise PlanRefusedError(
                f"plan made from offer {plan.asked} is refused, the newest open offer is {self.asked}; ask again"
            )
        if plan.offsets == self.plan.offsets and not plan.due and not self._first:
            return False
        if not self.finished and not self._first:
            raise PlanRefusedError(
                f"plan made from offer {plan.asked} is refused, the batch planned from offer {self.plan.asked} is "
                "still under way"
            )
        return True

    def answered(self) -> None:
        """Take note that the newest offer has its plan."""
        self._answered = self.asked

    def accept(self, plan: BatchPlan) -> None:
        """Take the next batch."""
        self.answered()
        self.plan = plan
        self._first = self.finished = False

    @property
    def stands_at(self) -> Mapping[str, Mapping[int, OffsetRange]]:
        """The last plan's ranges: where Spark stands once that batch is processed."""
        return self.plan.offsets

    def batch(self) -> BatchPlan:
        """Return the plan of the batch that begins now.

        Raises `PlanRefusedError` if every plan was processed already.
        """
        if self.finished:
            raise PlanRefusedError("a batch begins that was not planned; the query has to be restarted")
        self._first = False
        return self.plan

    def is_under_way(self, plan: BatchPlan) -> bool:
        """Tell whether `plan` is the last one that was planned."""
        return self.running and plan is self.plan

    def leaves_out(self, tp: TopicPartition, after: int) -> bool:
        """Tell whether nothing of a partition is under way: no offer is open that was made up to the number `after`,
        and no batch with records of it."""
        none_open = self._answered == self.asked or self.asked > after
        begin, end = self.plan.ranges.get(tp, (0, 0)) if not self.finished else (0, 0)
        return none_open and begin == end
