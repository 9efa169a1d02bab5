"""The planner: which offsets the next micro-batch holds.

Spark runs it in a process of its own beside the driver and asks it before each batch. It asks the agent which
partitions may be read and Kafka where they end, and plans a range for each. Neither being out of reach for a
moment fails the query:

- Kafka: its partitions stay where they are (an empty range), new ones wait, those of other Kafka clusters go
  on; the agent is informed, so that the status page shows it.
- the agent: the offset stays as it is, no batch is planned. The agent lives in the driver, so if it is gone for
  longer than `agent_patience`, the driver is dying and the query ends with an error.

Where a partition goes on whose records are gone (deleted by retention, truncated, or of a topic that was created
again) `muster.core.positions` decides. One that ends before the position it was read to waits for a while first, and
each such jump is reported to the agent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from muster.consumer.source import offsets
from muster.consumer.source.batch_size import BatchSize
from muster.consumer.source.cluster_offsets import Answer, ClusterOffsets, OpenOffsets, Question
from muster.consumer.source.fetch_ahead import fetch_ahead
from muster.consumer.source.java_client import java_properties
from muster.consumer.source.offsets import Range, TopicPartition
from muster.consumer.source.protocol import (
    LONGEST_WAIT,
    AgentUnreachableError,
    Jumps,
    NextBatch,
    Offsets,
    SourcePartitions,
    SourcePlanned,
    TopicSource,
)
from muster.consumer.source.reader import ClusterRanges, Share, Task
from muster.consumer.source.shares import ShareBooks
from muster.core import positions
from muster.core.positions import Jump, Start
from muster.edges.kafka import GroupOffsets, KafkaError
from muster.settings.connections import KafkaSettings

T = TypeVar("T")

LOG = logging.getLogger(__name__)

_GONE_AFTER = 10.0
"""Seconds for which a partition must end before its position until that is believed: a leader that has just changed
may for a moment know less."""

_REHEARSAL_TIMEOUT = 5.0
"""Seconds for which a partition may give nothing in a rehearsal."""
_REPEAT_LOG, _CHANGE_LOG = 60.0, 10.0
_RETRY = 0.5
_NO_LIMIT = 2**31 - 1


class Offers(Protocol):
    """The agent as a planner sees it: directly, or through the local API (`AgentClient`)."""

    def partitions(self, wait: float = 0.0) -> SourcePartitions:
        """Return what the next batch may hold; while that is nothing, wait up to `wait` seconds."""

    def planned(self, plan: SourcePlanned) -> None:
        """Take the next batch."""

    def close(self) -> None:
        """End it."""


@dataclass
class _Plan:
    """A planning in the making."""

    positions: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    waiting: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    jumps: dict[TopicPartition, Jump] = field(default_factory=dict)


class Planner:
    """Plans batches for one query. Times are in seconds.

    A planning with nothing to read waits up to `idle_wait` for something. `shares` is a folder that planner and
    workers see, in which tasks choose what to read (`muster.consumer.source.shares`); without one that is fixed.

    `clock` is monotonic; `open_offsets` opens a group's offsets in a Kafka cluster.
    """

    def __init__(
        self,
        agent: Offers,
        parallelism: int = 1,
        read_timeout: float = 120.0,
        agent_patience: float = 30.0,
        idle_wait: float = 0.0,
        shares: str = "",
        open_offsets: OpenOffsets = GroupOffsets,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agent = agent
        self._parallelism = parallelism
        self._read_timeout = read_timeout
        self._patience = agent_patience
        self._idle_wait = min(idle_wait, LONGEST_WAIT)
        self._open_offsets = open_offsets
        self._clock = clock
        self._clusters: dict[str, ClusterOffsets] = {}
        self._sources: dict[str, TopicSource] = {}
        self._kafka: dict[str, str] = {}
        # Partitions in Spark's offset whose position was compared with the group's in this process.
        self._checked: set[TopicPartition] = set()
        # Partitions that end before their position: since when, and the least end since.
        self._ends_early: dict[TopicPartition, tuple[float, int]] = {}
        # Those of them of which a task has found that they end early, and waited for long enough.
        self._stopped_short: set[TopicPartition] = set()
        self._slots: dict[TopicPartition, int] = {}
        # Partitions of which the last plan did not take all there is; retention may overtake them.
        self._behind: frozenset[TopicPartition] = frozenset()
        self._target: Mapping[TopicPartition, int] | None = None
        self._newest: Mapping[TopicPartition, int] = {}
        self._agent_lost: float | None = None
        self._size = BatchSize()
        self._books = ShareBooks(shares) if shares else None
        self._said: tuple[list[str], float] = ([], 0.0)
        self._rehearsed = False
        self._rehearsal: list[ClusterRanges] | None = None

    def latest(self, start: dict[str, Any], limit: int | None) -> dict[str, Any]:
        """The end of the next batch, `start` itself if there is nothing to do.

        At most `limit` records, and at most what the agent allows and `BatchSize` makes of it; None lifts all. Raises
        `AgentUnreachableError` when the agent was out of reach for too long.
        """
        held = offsets.parse_offsets(start)
        try:
            answer = self._agent.partitions(0.0 if held else self._idle_wait)
            if not self._rehearsed and self._rehearsal is None:
                self._rehearsal = self._prepare_rehearsal(answer)
            plan = self._look(answer, held)
            most = None
            if limit is not None:
                most = min(limit, self._size.next(answer.max_records_per_batch, self._clock()))
            ranges = offsets.next_ranges(plan.positions, self._readable(plan), most)
            # Spark compares offsets as text, so what is the same batch must be the same text.
            end = offsets.format_offsets(ranges) if offsets.moves(held, ranges) else start
            self._agent.planned(
                SourcePlanned(
                    asked=answer.asked,
                    finished=offsets.format_offsets(held),
                    offsets=offsets.format_offsets(offsets.parse_offsets(end)),
                    ends=offsets.nest(plan.ends),
                    problems=plan.problems,
                    jumps=_format_jumps(plan.jumps),
                )
            )
        except AgentUnreachableError as error:
            self._without_agent(error)
            return start
        self._agent_lost = None
        self._size.planned(0 if end is start else offsets.count(ranges.values()), self._clock())
        self._checked &= ranges.keys()
        self._newest = plan.ends
        self._behind = frozenset(tp for tp, (_, to) in ranges.items() if plan.ends.get(tp, to) > to)
        self._say(plan.problems)
        return end

    def next(self, finished: Offsets, parallelism: int) -> NextBatch:
        """Plan the batch that follows the one that ended with `finished`, for tasks of which `parallelism` run at a
        time.

        Raises `KafkaSettingError` naming a setting of the connection to Kafka that its Java client cannot use.
        """
        self._rehearsed = True
        end = self.latest(finished, _NO_LIMIT)
        if end is finished:
            return NextBatch(offset=finished, metrics=self._lag(offsets.parse_offsets(finished)))
        ranges = offsets.parse_offsets(end)
        self._slots = offsets.slots(ranges, max(1, min(parallelism, len(ranges))), self._slots)
        number = 1 + max(self._slots.values(), default=-1)
        tasks: list[dict[str, dict[TopicPartition, Range]]] = [{} for _ in range(number)]
        for tp, slot in sorted(self._slots.items()):
            servers = self._sources[tp[0]].bootstrap_servers
            tasks[slot].setdefault(servers, {})[tp] = ranges[tp]
        used = {servers for task in tasks for servers in task}
        return NextBatch(
            offset=offsets.format_offsets(ranges),
            tasks=[
                {servers: offsets.format_offsets(held) for servers, held in task.items()} for task in tasks
            ],
            kafka={
                servers: java_properties({**self._kafka, "bootstrap.servers": servers})
                for servers in sorted(used)
            },
            metrics=self._lag(ranges),
        )

    def stopped_short(self, tp: TopicPartition, at: int) -> None:
        """Take note that a task found that a partition ends at `at`, before its range did, for long enough to be
        believed."""
        _, lowest = self._ends_early.get(tp, (0.0, at))
        self._ends_early[tp] = (self._clock() - 2 * _GONE_AFTER, min(lowest, at))
        self._stopped_short.add(tp)

    def _lag(self, ranges: offsets.Ranges) -> dict[str, str]:
        """What is left to read after the batch, under the names of Spark's own Kafka source."""
        behind = [max(0, self._newest[tp] - end) for tp, (_, end) in ranges.items() if tp in self._newest]
        if not behind:
            return {}
        return {
            "minOffsetsBehindLatest": str(min(behind)),
            "maxOffsetsBehindLatest": str(max(behind)),
            "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
        }

    def newest(self) -> dict[str, Any] | None:
        """The ends that the last planning saw, as an offset, for Spark's progress report."""
        return dict(offsets.format_offsets({tp: (end, end) for tp, end in self._newest.items()})) or None

    def stop_at_present_end(self) -> None:
        """From now on plan up to the present ends of the present partitions, and no further (AvailableNow).

        Raises `AgentUnreachableError`, or `KafkaError` if Kafka stays out of reach for `agent_patience`.
        """
        deadline = self._clock() + self._patience
        while True:
            answer = self._insist(self._agent.partitions)
            plan = self._look(answer, {})
            wanted = {(topic, p) for topic, source in answer.topics.items() for p in source.partitions}
            if wanted <= plan.ends.keys():
                self._target = plan.ends
                self._checked.clear()
                return
            if self._clock() > deadline:
                raise KafkaError("; ".join(plan.problems))
            time.sleep(_RETRY)

    def tasks(self, end: dict[str, Any]) -> list[Task]:
        """The tasks of the batch that ends with `end`. The same `end` always gives the same records.

        Raises ValueError if `end` holds a topic of which the agent does not know where it is, and OSError if the
        folder in which tasks choose cannot be written to.
        """
        self._rehearsed = True
        held = offsets.parse_offsets(end)
        filled = {tp: bounds for tp, bounds in held.items() if bounds[1] > bounds[0]}
        if any(topic not in self._sources for topic, _ in filled):
            self._learn(self._insist(self._agent.partitions))
        if unknown := sorted({topic for topic, _ in filled} - self._sources.keys()):
            raise ValueError(
                f"topic {unknown[0]!r} is in a batch that is run again, but the agent does not know where its "
                "records are; start the query with a new checkpoint"
            )
        known = {tp: bounds for tp, bounds in held.items() if tp[0] in self._sources}
        ahead = fetch_ahead(len(known) / self._parallelism)
        shares = [self._share(dict(group), ahead) for group in offsets.tasks(known, self._parallelism)]
        if self._books is None or len(shares) < 2:  # noqa: PLR2004 - one leaves no choice
            return [Task((share,), self._read_timeout) for share in shares]
        return [Task(tuple(shares), self._read_timeout, choice) for choice in self._books.open(len(shares))]

    def rehearsal(self) -> list[Task]:
        """The tasks of a batch that reaches no handler: the first time as many as there are at most, which have
        Spark, its Python workers and their connections to Kafka ready for those that count; then none.

        Each reads the same: the last record of a partition of each Kafka cluster, as far as there are any.
        """
        if self._rehearsed:
            return []
        self._rehearsed = True
        return [Task((tuple(self._rehearsal or ()),), _REHEARSAL_TIMEOUT)] * self._parallelism

    def close(self) -> None:
        """Leave Kafka and the agent."""
        for cluster in self._clusters.values():
            cluster.close()
        self._clusters.clear()
        self._agent.close()

    def _share(self, ranges: dict[TopicPartition, Range], ahead: Mapping[str, str]) -> Share:
        clusters: dict[tuple[str, str], dict[TopicPartition, Range]] = {}
        for (topic, partition), bounds in ranges.items():
            source = self._sources[topic]
            clusters.setdefault((source.bootstrap_servers, source.group_id), {})[topic, partition] = bounds
        return tuple(
            self._cluster_ranges(servers, group, ahead, of_cluster)
            for (servers, group), of_cluster in clusters.items()
            # Where nothing is to be read, nothing need be in reach.
            if offsets.count(of_cluster.values())
        )

    def _cluster_ranges(
        self, servers: str, group: str, ahead: Mapping[str, str], ranges: Mapping[TopicPartition, Range]
    ) -> ClusterRanges:
        settings = {**ahead, **self._kafka, "bootstrap.servers": servers, "group.id": group}
        return ClusterRanges(servers, settings, ranges)

    def _prepare_rehearsal(self, answer: SourcePartitions) -> list[ClusterRanges]:
        """Meet the Kafka clusters from which there may be something to read soon, and find a record of each.

        What is unavailable now is left out: no task waits for it. Committed offsets are not asked for, which may
        have to wait for the transaction of a consumer that has just gone.
        """
        self._learn(answer)
        clusters = self._open_clusters(answer)
        asked = []
        for topic, source in answer.nearby.items():
            partitions = frozenset((topic, p) for p in source.partitions)
            question = Question({source.group_id: partitions}, behind=partitions)
            asked.append((source, partitions, clusters[source.bootstrap_servers].ask(question)))
        found = []
        for source, partitions, result in asked:
            said = result() or Answer()
            for tp in partitions & said.ends.keys() & said.earliest.keys():
                if (end := said.ends[tp]) > said.earliest[tp]:
                    ranges = {tp: (end - 1, end)}
                    found.append(
                        self._cluster_ranges(
                            source.bootstrap_servers, source.group_id, fetch_ahead(1), ranges
                        )
                    )
        return found

    def _learn(self, answer: SourcePartitions) -> None:
        self._kafka = answer.kafka
        self._sources.update(answer.topics)

    def _look(self, answer: SourcePartitions, held: Mapping[TopicPartition, Range]) -> _Plan:
        """Ask all Kafka clusters at once; where each partition stands and how far it can be read."""
        self._learn(answer)
        self._checked &= held.keys()
        clusters = self._open_clusters(answer)
        asked = []
        for servers, cluster in clusters.items():
            groups: dict[str, list[TopicPartition]] = {}
            for topic, source in answer.topics.items():
                if source.bootstrap_servers == servers and source.partitions:
                    groups.setdefault(source.group_id, []).extend((topic, p) for p in source.partitions)
            partitions = frozenset(tp for of_group in groups.values() for tp in of_group)
            if not partitions:
                continue
            question = Question(
                groups,
                unchecked=partitions - self._checked,
                doubtful=partitions & frozenset(self._ends_early),
                behind=partitions & self._behind,
            )
            asked.append((servers, cluster, partitions, cluster.ask(question)))
        plan = _Plan()
        for servers, cluster, partitions, result in asked:
            found = result()
            if found is None:
                plan.problems.append(
                    f"Kafka at {servers} is out of reach, its {len(partitions)} partitions wait: {cluster.problem}"
                )
                plan.positions.update({tp: held[tp][1] for tp in partitions if tp in held})
                continue
            for tp in sorted(partitions):
                topic_id = answer.topics[tp[0]].topic_id
                self._place(tp, held[tp][1] if tp in held else None, servers, topic_id, found, plan)
        for (servers, topic, why), numbers in plan.waiting.items():
            plan.problems.append(
                f"Kafka at {servers}: topic {topic!r}, partitions {numbers} wait, their offsets are unavailable: "
                f"{why}; check that the topic exists and may be read"
            )
        self._ends_early = {tp: seen for tp, seen in self._ends_early.items() if tp in plan.ends}
        self._stopped_short &= self._ends_early.keys()
        return plan

    def _open_clusters(self, answer: SourcePartitions) -> dict[str, ClusterOffsets]:
        """The Kafka clusters of this answer; those that no topic is in or nearby any more are left."""
        sources = (*answer.topics.values(), *answer.nearby.values())
        wanted = {source.bootstrap_servers for source in sources if source.partitions}
        for servers in self._clusters.keys() - wanted:
            self._clusters.pop(servers).close()
        for servers in sorted(wanted - self._clusters.keys()):
            settings = KafkaSettings(
                config={**answer.kafka, "bootstrap.servers": servers},
                operation_timeout=answer.operation_timeout,
            )
            self._clusters[servers] = ClusterOffsets(settings, self._open_offsets, self._clock)
        return self._clusters

    def _place(
        self,
        tp: TopicPartition,
        position: int | None,
        servers: str,
        topic_id: str,
        found: Answer,
        plan: _Plan,
    ) -> None:
        """Put one partition into the plan: at its position, at the group's offset, or where it goes on instead."""
        unchecked = tp not in self._checked
        end = found.ends.get(tp)
        if end is None or (unchecked and (tp not in found.committed or tp not in found.earliest)):
            why = found.errors.get(tp, "no answer")
            plan.waiting.setdefault((servers, tp[0], why), []).append(tp[1])
            if position is not None:
                plan.positions[tp] = position
            return
        plan.ends[tp] = end
        if unchecked:
            start = positions.start(position, found.committed[tp], topic_id, found.earliest[tp])
        else:
            at = position if position is not None else end
            start = positions.go_on(at, found.earliest.get(tp, at))
        if start.offset > end or (tp in self._stopped_short and start.offset == position):
            after = self._after_the_end(tp, start.offset, end, servers, topic_id, found, plan)
            if after is None:
                if position is not None:
                    plan.positions[tp] = position
                return
            start = after
        else:
            self._ends_early.pop(tp, None)
        if start.jump is not None:
            plan.jumps[tp] = start.jump
        self._checked.add(tp)
        plan.positions[tp] = start.offset

    def _after_the_end(
        self,
        tp: TopicPartition,
        at: int,
        end: int,
        servers: str,
        topic_id: str,
        found: Answer,
        plan: _Plan,
    ) -> Start | None:
        """Where a partition goes on that ends before its position; None: it waits."""
        now = self._clock()
        since, lowest = self._ends_early.get(tp, (now, end))
        self._ends_early[tp] = (since, min(lowest, end))
        text = f"Kafka at {servers}: topic {tp[0]!r}, partition {tp[1]}: it ends at {end}, before the offset {at}"
        if now - since < _GONE_AFTER or tp not in found.earliest:
            plan.problems.append(
                f"{text} it was read to; it waits until it is known whether the topic was truncated, or deleted and "
                "created again"
            )
            return None
        kafka_id = found.topic_ids.get(tp[0], "")
        start = positions.after_the_end(at, min(lowest, end), found.earliest[tp], topic_id, kafka_id)
        if start is None:
            plan.problems.append(
                f"{text} it was read to; it waits, because Kafka has the topic under id {kafka_id or 'unknown'}, "
                f"and the assignment under {topic_id}: the coordinator puts the new id there"
            )
            return None
        del self._ends_early[tp]
        self._stopped_short.discard(tp)
        return start

    def _readable(self, plan: _Plan) -> dict[TopicPartition, int]:
        if self._target is None:
            return plan.ends
        return {tp: min(end, self._target[tp]) for tp, end in plan.ends.items() if tp in self._target}

    def _without_agent(self, error: AgentUnreachableError) -> None:
        now = self._clock()
        if self._agent_lost is None:
            self._agent_lost = now
            LOG.warning("%s; no batch is planned until it answers", error)
        if now - self._agent_lost > self._patience:
            raise error

    def _insist(self, call: Callable[[], T]) -> T:
        """Call the agent, again and again for `agent_patience`."""
        deadline = self._clock() + self._patience
        while True:
            try:
                return call()
            except AgentUnreachableError:
                if self._clock() > deadline:
                    raise
                time.sleep(_RETRY)

    def _say(self, problems: list[str]) -> None:
        """Log problems when they change, and now and then while they last."""
        said, at = self._said
        now = self._clock()
        if problems == said and (not problems or now - at < _REPEAT_LOG):
            return
        if problems and said and now - at < _CHANGE_LOG:
            return
        self._said = (problems, now)
        for problem in problems:
            LOG.warning("%s", problem)
        if not problems:
            LOG.warning("all partitions can be read again")


def _format_jumps(jumps: Mapping[TopicPartition, Jump]) -> Jumps:
    told: Jumps = {}
    for (topic, partition), jump in sorted(jumps.items()):
        told.setdefault(topic, {})[str(partition)] = (jump.before, jump.after, jump.why)
    return told
