"""The planner: which offsets the next micro-batch holds, and who reads them.

It runs in the agent's process, one for each query, and is called before each batch (`muster.consumer.plannings`).
It asks the agent which partitions may be read and Kafka where they end, and plans a range for each. Kafka being out
of reach for a moment does not fail the query: its partitions stay where they are (an empty range), new ones wait,
those of other Kafka clusters go on, and the status page shows it.

Where a partition goes on whose records are gone (deleted by retention, truncated, or of a topic that was created
again) `muster.core.positions` decides. One that ends before the position it was read to waits for a while first, and
each such jump is reported to the agent. With the agent's `fail_on_data_loss` a partition stays before records that
are lost, with nothing to read, until a person has accepted the loss; so that it is seen in time, Kafka is asked each
time where all partitions begin.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from muster.consumer.agent import Agent
from muster.consumer.source import offsets
from muster.consumer.source.batch_size import BatchSize, Bounds
from muster.consumer.source.cluster_offsets import ClusterOffsets, OffsetsReply, OpenOffsets, Question
from muster.consumer.source.java_client import java_properties
from muster.consumer.source.offsets import Part, Ranges
from muster.consumer.source.protocol import GoneRange, NextBatch, OffsetsJson, TaskRangesJson
from muster.consumer.source.rates import Rates
from muster.core import positions
from muster.core.model import OffsetRange, Seek, TopicPartition
from muster.core.ownership import Offer, Source, TopicOffer
from muster.core.positions import NO_NOTE, Jump, Note, Start, Why
from muster.edges.kafka import GroupOffsets
from muster.settings.connections import KafkaSettings

LONGEST_WAIT = 1.0
"""Seconds that a question waits until a planning is due, at most: Spark cannot be stopped meanwhile."""
STOOD_STILL = 1.0
"""Seconds after a planning was due from which on this process counts as having stood still."""
_GONE_AFTER = 10.0
"""Seconds for which a partition must end before its position until that is believed: a leader that has just changed
may for a moment know less."""


_TICK = ("", 0)
"""No partition: its range makes Spark take a batch for another one than the last that has the same offsets."""


@dataclass
class _Plan:
    """A planning in the making."""

    positions: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    waiting: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    jumps: dict[TopicPartition, Jump] = field(default_factory=dict)
    seeks: Mapping[TopicPartition, Seek] = field(default_factory=dict)
    """Those that are asked for."""
    in_group: frozenset[TopicPartition] = frozenset()
    sought: dict[TopicPartition, Seek] = field(default_factory=dict)
    """Those that this plan carries out, each with the offset that it comes to."""
    losses: dict[TopicPartition, Jump] = field(default_factory=dict)
    """What would go on behind records that are lost, and stays before them until a person has decided."""


class Planner:
    """Plans batches for the query of `agent` with `token`, within `bounds`. Times are in seconds.

    `kafka` supplies security and tuning; where a topic's records are, its assignment says. A planning begins
    `interval` after the one before, or as soon as partitions are to be taken up or given up. `reader` are settings of
    Kafka's Java consumer, for the connector alone, which win over those of `kafka`. Where there are fewer partitions
    than `min_tasks`, and than tasks that run at a time, several tasks read parts of one. `clock` is monotonic;
    `open_offsets` opens a group's offsets in a Kafka cluster.
    """

    def __init__(
        self,
        agent: Agent,
        token: str,
        kafka: KafkaSettings,
        bounds: Bounds,
        interval: float = 0.0,
        reader: Mapping[str, str] | None = None,
        min_tasks: int = 1,
        open_offsets: OpenOffsets = GroupOffsets,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agent = agent
        self._token = token
        self._kafka = kafka
        self._interval = interval
        self._reader = dict(reader or {})
        self._min_tasks = min_tasks
        self._open_offsets = open_offsets
        self._clock = clock
        self._clusters: dict[str, ClusterOffsets] = {}
        self._sources: dict[str, Source] = {}
        # Partitions in Spark's offset whose position was compared with the group's in this process.
        self._checked: set[TopicPartition] = set()
        # Their notes, by what the group had committed when it was compared.
        self._notes: dict[TopicPartition, Note] = {}
        # Partitions that end before their position: since when, and the least end since.
        self._ends_early: dict[TopicPartition, tuple[float, int]] = {}
        # Those of them of which a task has found that they end early, and waited for long enough.
        self._stopped_short: set[TopicPartition] = set()
        self._bytes = 0
        # Records that were found lost since the last plan.
        self._lost = 0
        # Partitions of which the last plan did not take all there is; retention may overtake them.
        self._behind: frozenset[TopicPartition] = frozenset()
        # When the next planning is due, and what the last one said.
        self._due = -math.inf
        self._metrics: Mapping[str, str] = {}
        self._slots: dict[Part, int] = {}
        self._warmed_up = False
        # How many batches were planned without records because state was due, and whether the last one was.
        self._ticks = 0
        self._ticked = False
        self._size = BatchSize(bounds)
        self._rates = Rates(bounds.rates)

    def next(self, finished: OffsetsJson, parallelism: int) -> NextBatch:
        """Plan the batch that follows the one that ended with `finished`, for tasks of which `parallelism` run at a
        time. It holds at most what the settings allow and `BatchSize` makes of it. There is none before the next
        planning is due, for which this waits up to `LONGEST_WAIT`.

        Raises `KafkaSettingError` naming a setting of the connection to Kafka that its Java client cannot use,
        `StaleTokenError` once the query has ended, and `PlanRefusedError`.
        """
        if not self._is_due():
            return NextBatch(offset=finished, metrics=self._metrics)
        self._due = self._clock() + self._interval
        held = offsets.parse_offsets(finished)
        held.pop(_TICK, None)
        offer = self._agent.offer(self._token)
        plan = self._look(offer, {tp: offer.again.get(tp, end) for tp, (_, end) in held.items()})
        most = self._size.next(self._clock(), failed=bool(offer.again))
        ranges = offsets.next_ranges(plan.positions, self._readable(plan, offer), most)
        if ranges == held and plan.positions != {tp: end for tp, (_, end) in held.items()}:
            # The batch that failed, as it was. Spark takes equal offsets for no batch: an empty one comes between.
            ranges = offsets.next_ranges(plan.positions, {}, most)
        due = self._due_state(plan, ranges, held)
        if due:
            ranges = offsets.next_ranges(plan.positions, {}, most)
        moves = bool(offer.again) or offsets.moves(held, ranges)
        if due:
            batch = self._tick(ranges, plan.ends, parallelism)
        elif moves:
            batch = self._batch(ranges, plan.ends, parallelism)
        elif not held and not offer.topics and not self._warmed_up:
            batch = self._warm_up(parallelism)
        else:
            batch = NextBatch(offset=finished)
        lost = self._lost + self._agent.planned(
            self._token,
            asked=offer.asked,
            finished=_by_topic(held),
            offsets=_by_topic(ranges if moves or due else held),
            ends=plan.ends,
            problems=plan.problems,
            jumps=plan.jumps,
            notes=self._notes,
            sought=plan.sought,
            losses=plan.losses,
            due=due,
        )
        self._size.planned(offsets.count(ranges.values()) if moves else 0, self._clock())
        self._rates.taken({tp: to - begin for tp, (begin, to) in ranges.items()} if moves else {})
        self._checked &= ranges.keys()
        self._notes = {tp: note for tp, note in self._notes.items() if tp in ranges}
        self._behind = frozenset(tp for tp, (_, to) in ranges.items() if plan.ends.get(tp, to) > to)
        self._lost = 0
        self._metrics = {**_lag(ranges, plan), "recordsLost": str(lost)}
        return batch.model_copy(update={"metrics": self._metrics})

    def _due_state(self, plan: _Plan, ranges: Ranges, held: Ranges) -> frozenset[TopicPartition]:
        """Return the partitions that get a batch without records now, because something of their state is due: not
        twice in a row if there are records, and only where all that is held goes on."""
        idle = {
            tp for tp, (begin, end) in ranges.items() if begin == end and held.get(tp, (0, -1))[1] == begin
        }
        idle -= plan.sought.keys() | plan.jumps.keys() | plan.losses.keys()
        with_records = any(begin < end for begin, end in ranges.values())
        same = ranges.keys() == held.keys() and not (self._ticked and with_records)
        due = self._agent.failing.due_state(idle) if same and idle else frozenset()
        self._ticked = bool(due)
        return due

    def _tick(self, ranges: Ranges, ends: Mapping[TopicPartition, int], parallelism: int) -> NextBatch:
        self._ticks += 1
        batch = self._batch(ranges, ends, parallelism)
        offset = offsets.format_offsets({**ranges, _TICK: (self._ticks, self._ticks + 1)})
        return batch.model_copy(update={"offset": offset})

    def _is_due(self) -> bool:
        """Wait until the next planning is due, for `LONGEST_WAIT` at most; tell whether it is.

        A process that stood still meanwhile may have lost its partitions, and is about to hear of it: it waits again.
        """
        left = self._due - self._clock()
        if left <= 0:
            return True
        changes = self._agent.shared.wait_for(lambda own: own.offer_changes, min(left, LONGEST_WAIT))
        now = self._clock()
        if now > self._due + STOOD_STILL:
            self._due = now + self._interval
            return False
        return changes or left <= LONGEST_WAIT

    def _readable(self, plan: _Plan, offer: Offer) -> dict[TopicPartition, int]:
        """Return up to where the partitions may be read whose turn it is."""
        owned = {(name, p): topic.owned for name, topic in offer.topics.items() for p in topic.partitions}
        allowed = self._rates.allow(owned, self._clock())
        ends = {
            tp: min(plan.ends.get(tp, at), at + allowed[tp]) if tp in allowed else plan.ends.get(tp, at)
            for tp, at in plan.positions.items()
        }
        # A rebuild, and of a partition with state any seek and loss, is a commit of its own.
        alone = {tp for tp, seek in plan.sought.items() if seek.rebuild}
        topics = self._agent.states.topics
        moved = [tp for tp in plan.sought.keys() | plan.jumps.keys() if topics.has(tp[0])]
        alone |= {each for tp in moved for each in topics.shard(tp)}
        ready = {tp for tp, at in plan.positions.items() if ends[tp] > at} - plan.losses.keys() - alone
        return {
            tp: ends[tp] if most is None else min(ends[tp], plan.positions[tp] + most)
            for tp, most in self._agent.failing.turn(ready).items()
        }

    def has_read(self, size: int) -> None:
        """Take note of how many bytes tasks have read since the query began. Raises `StaleTokenError`."""
        self._agent.received(self._token, size - self._bytes)
        self._size.read(size - self._bytes)
        self._bytes = size

    def missed(self, gone: GoneRange) -> None:
        """Take note of planned records that a task did not find.

        Deleted ones count as lost, once however often they are missed; a partition whose end was truncated goes on
        where the next plan says. What was read to warm up counts for nothing. Raises `StaleTokenError`.
        """
        tp = (gone.topic, gone.partition)
        if gone.topic not in self._sources:
            return
        if not gone.deleted:
            self._stops_short(tp, gone.begin)
            return
        self._lost += self._agent.lost(self._token, {tp: Jump(gone.begin, gone.end, Why.RETENTION)})

    def _stops_short(self, tp: TopicPartition, at: int) -> None:
        """Take note that a task found, by its leader's answer, that a partition ended at `at`, before its range did.

        It may have grown since.
        """
        _, lowest = self._ends_early.get(tp, (0.0, at))
        self._ends_early[tp] = (self._clock() - 2 * _GONE_AFTER, min(lowest, at))
        self._stopped_short.add(tp)

    def close(self) -> None:
        """Leave Kafka."""
        for cluster in self._clusters.values():
            cluster.close()
        self._clusters.clear()

    def _batch(self, ranges: Ranges, ends: Mapping[TopicPartition, int], parallelism: int) -> NextBatch:
        parts = offsets.parts(ranges, min(self._min_tasks, parallelism))
        of = {part: (self._agent.states.topics.lead(part[0]), part[1]) for part in parts}
        together = offsets.joined(parts, of)  # one task reads all of a shard
        self._slots = offsets.slots(together, max(1, min(parallelism, len(together))), self._slots)
        tasks: list[dict[str, TaskRangesJson]] = [
            {} for _ in range(1 + max(self._slots.values(), default=-1))
        ]
        for (tp, part), (start, to) in sorted(parts.items()):
            (begin, end), slot = ranges[tp], self._slots[of[tp, part]]
            # As if the next batch had as many records; the topic's end is the furthest that can be read ahead.
            then = min(end + start - begin, max(end, ends.get(tp, end)))
            cluster = tasks[slot].setdefault(self._sources[tp[0]].bootstrap_servers, {})
            cluster.setdefault(tp[0], {})[str(tp[1])] = (start, to, then)
        return NextBatch(
            offset=offsets.format_offsets(ranges),
            tasks=tasks,
            kafka=self._java_properties({servers for task in tasks for servers in task}),
            state=self._agent.states.for_tasks(),
            fail_on_data_loss=self._agent.parked.fail_on_data_loss,
        )

    def _java_properties(self, clusters: Collection[str]) -> dict[str, dict[str, str]]:
        return {
            servers: java_properties({**self._kafka.config, "bootstrap.servers": servers}) | self._reader
            for servers in sorted(clusters)
        }

    def _warm_up(self, parallelism: int) -> NextBatch:
        """Plan the query's first batch while nothing may be taken up, which reaches no handler and counts for
        nothing: each task reads the last record of a partition of each Kafka cluster, as far as there are any, so
        that the JVM has done all that a batch takes before records wait for it.

        Committed offsets are not asked for, which may wait for the transaction of a consumer that has just gone.
        """
        self._warmed_up = True
        with self._agent.shared.locked() as own:
            near = own.nearby()
        clusters = self._open_clusters(near)
        asked = []
        for name, topic in near.items():
            (number,) = topic.partitions
            tp, servers = (name, number), topic.source.bootstrap_servers
            question = Question({topic.source.group_id: [tp]}, behind=frozenset({tp}))
            asked.append((tp, servers, clusters[servers].ask(question)))
        found: dict[str, TaskRangesJson] = {}
        for tp, servers, result in asked:
            said = result() or OffsetsReply()
            if said.ends.get(tp, 0) > said.earliest.get(tp, math.inf):
                end = said.ends[tp]
                found[servers] = {tp[0]: {str(tp[1]): (end - 1, end, end)}}
        tasks = [found] * parallelism if found else []
        return NextBatch(offset={}, tasks=tasks, kafka=self._java_properties(found))

    def _look(self, offer: Offer, held: Mapping[TopicPartition, int]) -> _Plan:
        """Ask all Kafka clusters at once: where each partition stands, unless `held` says it, and how far it can be
        read."""
        self._sources.update({name: topic.source for name, topic in offer.topics.items()})
        self._checked &= held.keys()
        for tp, one in self._agent.parked.losses.items():
            if one.loss is not None and one.loss.why is Why.TRUNCATION:
                # Also if it has grown since, or the planner is another query's.
                self._stops_short(tp, one.loss.after)
        clusters = self._open_clusters(offer.topics)
        asked = []
        for servers, cluster in clusters.items():
            groups: dict[str, list[TopicPartition]] = {}
            for name, offered in offer.topics.items():
                if offered.source.bootstrap_servers == servers and offered.partitions:
                    groups.setdefault(offered.source.group_id, []).extend(
                        (name, p) for p in offered.partitions
                    )
            partitions = frozenset(tp for of_group in groups.values() for tp in of_group)
            if not partitions:
                continue
            question = Question(
                groups,
                unchecked=partitions - self._checked,
                doubtful=partitions & frozenset(self._ends_early),
                behind=partitions
                if self._agent.parked.fail_on_data_loss
                else partitions & (self._behind | offer.seeks.keys()),
            )
            asked.append((servers, cluster, partitions, cluster.ask(question)))
        plan = _Plan(seeks=offer.seeks, in_group=offer.in_group)
        for servers, cluster, partitions, result in asked:
            found = result()
            if found is None:
                plan.problems.append(
                    f"Kafka at {servers} is out of reach, its {len(partitions)} partitions wait: {cluster.problem}"
                )
                plan.positions.update({tp: held[tp] for tp in partitions if tp in held})
                continue
            for tp in sorted(partitions):
                topic_id = self._sources[tp[0]].topic_id
                self._place(tp, held.get(tp), servers, topic_id, found, plan)
        self._stay_before_losses(plan)
        for (servers, topic, why), numbers in plan.waiting.items():
            plan.problems.append(
                f"Kafka at {servers}: topic {topic!r}, partitions {numbers} wait, their offsets are unavailable: "
                f"{why}; check that the topic exists and may be read"
            )
        self._ends_early = {tp: seen for tp, seen in self._ends_early.items() if tp in plan.ends}
        self._stopped_short &= self._ends_early.keys()
        return plan

    def _open_clusters(self, topics: Mapping[str, TopicOffer]) -> dict[str, ClusterOffsets]:
        """Open the Kafka clusters of these topics; those that no topic is in any more are left.

        Without topics all stay open: a consumer that has just been warmed up waits for its first ones, and connecting
        again would take a good part of the time for which they pause.
        """
        wanted = {topic.source.bootstrap_servers for topic in topics.values() if topic.partitions}
        for servers in self._clusters.keys() - wanted if wanted else ():
            self._clusters.pop(servers).close()
        for servers in sorted(wanted - self._clusters.keys()):
            kafka = self._kafka.at(servers)
            self._clusters[servers] = ClusterOffsets(kafka, self._open_offsets, self._clock)
        return self._clusters

    def _place(
        self,
        tp: TopicPartition,
        position: int | None,
        servers: str,
        topic_id: str,
        found: OffsetsReply,
        plan: _Plan,
    ) -> None:
        """Put one partition into the plan: at its position, at the group's offset, or where it goes on instead."""
        unchecked = tp not in self._checked
        end = found.ends.get(tp)
        seek = plan.seeks.get(tp)
        known = tp in found.earliest and (tp in found.committed or not unchecked)
        if end is None or ((unchecked or seek is not None) and not known):
            why = found.errors.get(tp, "no answer")
            plan.waiting.setdefault((servers, tp[0], why), []).append(tp[1])
            if position is not None:
                plan.positions[tp] = position
            return
        plan.ends[tp] = end
        if unchecked and position is None and found.committed[tp] is None and tp in plan.in_group:
            plan.problems.append(
                f"Kafka at {servers}: topic {tp[0]!r}, partition {tp[1]}: its committed offset was deleted; it waits "
                "until that is committed again"
            )
            return
        if unchecked:
            start = positions.start(position, found.committed[tp], topic_id, found.earliest[tp])
            self._notes[tp] = positions.taken_up(found.committed[tp], topic_id)
        else:
            at = position if position is not None else end
            start = positions.go_on(at, found.earliest.get(tp, at))
        seek = self._not_done(tp, seek)
        if seek is not None and seek.offset is not None:
            start = positions.sought(position, start, seek.offset, found.earliest[tp], end)
            self._stopped_short.discard(tp)
        if start.offset > end or (position in {None, start.offset} and self._is_short(tp, start.offset)):
            after = self._after_the_end(tp, start.offset, end, servers, topic_id, found, plan)
            if after is None:
                if position is not None:
                    plan.positions[tp] = position
                return
            start = after
        else:
            self._ends_early.pop(tp, None)
        if seek is not None:
            plan.sought[tp] = replace(seek, offset=start.offset)
        if start.jump is not None:
            plan.jumps[tp] = start.jump
        self._checked.add(tp)
        plan.positions[tp] = start.offset

    def _not_done(self, tp: TopicPartition, seek: Seek | None) -> Seek | None:
        return None if seek is None or self._notes.get(tp, NO_NOTE).has(seek.id) else seek

    def _stay_before_losses(self, plan: _Plan) -> None:
        """Have partitions stay before records that are lost, where the agent does not accept that."""
        for tp, jump in list(plan.jumps.items()):
            if not self._agent.parked.accepts(tp, jump):
                plan.losses[tp] = plan.jumps.pop(tp)
                plan.sought.pop(tp, None)
                plan.positions[tp] = jump.before
                if jump.why is Why.TRUNCATION:
                    self._stops_short(tp, jump.after)

    def _is_short(self, tp: TopicPartition, at: int) -> bool:
        """Tell whether a task has found that the partition ends before `at`; after a batch that failed, `at` may be
        one of its records that are there."""
        return tp in self._stopped_short and self._ends_early[tp][1] < at

    def _after_the_end(
        self,
        tp: TopicPartition,
        at: int,
        end: int,
        servers: str,
        topic_id: str,
        found: OffsetsReply,
        plan: _Plan,
    ) -> Start | None:
        """Return where a partition goes on that ends before its position; None: it waits."""
        now = self._clock()
        since, lowest = self._ends_early.get(tp, (now, end))
        ended = min(lowest, end)
        self._ends_early[tp] = (since, ended)
        text = f"Kafka at {servers}: topic {tp[0]!r}, partition {tp[1]}: it ended at {ended}, before the offset {at}"
        if now - since < _GONE_AFTER or tp not in found.earliest:
            plan.problems.append(
                f"{text} it was read to; it waits until it is known whether the topic was truncated, or deleted and "
                "created again"
            )
            return None
        kafka_id = found.topic_ids.get(tp[0], "")
        start = positions.after_the_end(at, ended, found.earliest[tp], topic_id, kafka_id)
        if start is None:
            plan.problems.append(
                f"{text} it was read to; it waits, because Kafka has the topic under id {kafka_id or 'unknown'}, "
                f"and the assignment under {topic_id}: the coordinator puts the new id there"
            )
            return None
        del self._ends_early[tp]
        self._stopped_short.discard(tp)
        return start


def _by_topic(ranges: Ranges) -> dict[str, dict[int, OffsetRange]]:
    found: dict[str, dict[int, OffsetRange]] = {}
    for (topic, partition), bounds in ranges.items():
        found.setdefault(topic, {})[partition] = bounds
    return found


def _lag(ranges: Ranges, plan: _Plan) -> dict[str, str]:
    """Return what is left to read after the batch, under the names of Spark's own Kafka source."""
    behind = [max(0, plan.ends[tp] - end) for tp, (_, end) in ranges.items() if tp in plan.ends]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }
