"""All that one consumer holds. The package's docstring states the rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from muster.core.deaths import Deaths
from muster.core.model import OffsetRange, Seek, TopicAssignment, TopicPartition, TopicStatus
from muster.core.ownership.partition import LONGEST_RENEWAL, Due, Partition, PassOver
from muster.core.ownership.place import Place
from muster.core.ownership.query import BatchPlan, Offer, PlanRefusedError, Query, TopicOffer
from muster.core.ownership.shards import Shards
from muster.core.ownership.topic import Topic
from muster.core.positions import NO_NOTE, Committed, Jump, Note
from muster.core.state_topics import NO_STATE, StateTopics

_T = TypeVar("_T")


class Ownership:
    """Everything that the consumer `owner` holds, and the one query that reads it.

    `blocks` are the reasons why nothing is taken up (isolation, stopping, being replaced); they add up. Without a
    query nothing is read, so then partitions close as soon as their commits are acknowledged.
    `fencing`: the broker refuses late commits. `announces`: the handler asks to know what it has. `state` are the
    topics with state by key. `holder` is the token of this process; without one nothing is noted of its end.
    """

    def __init__(
        self,
        owner: str,
        fencing: bool = False,
        announces: bool = False,
        longest_renewal: float = LONGEST_RENEWAL,
        state: StateTopics = NO_STATE,
        holder: str = "",
    ) -> None:
        self.owner = owner
        self._holder = holder
        self._state = state
        self._fencing = fencing
        self._announces = announces
        self._longest_renewal = longest_renewal
        self.topics: dict[str, Topic] = {}
        self.held: dict[TopicPartition, Partition] = {}
        self.shards = Shards(state, self.topics, self.held)
        self.query = Query()
        self.refused: set[TopicPartition] = set()
        """Partitions that were refused, and have not been allowed since."""
        self.blocks: set[str] = set()
        self._least: dict[str, int] = {}
        self._taken_up = 0

    # -- from ZooKeeper -----------------------------------------------------------------------------------

    def read(self, name: str, assignment: TopicAssignment, zxid: int, synced: bool = False) -> bool:
        """Take the assignment of a topic that stands in ZooKeeper since transaction `zxid`, and was read after a sync
        if `synced`; False if it is not obeyed."""
        topic = self.topics.setdefault(name, Topic(least=self._least.get(name, 0)))
        if not topic.may_take(assignment, zxid, synced, self.owner):
            if synced:
                self.topics[name] = topic.reporting_above(assignment.epoch)
            return False
        self.topics[name] = topic.taking(assignment, zxid, self.owner)
        self._settle({name})
        return True

    def expect(self, epochs: Mapping[str, int]) -> None:
        """Obey no lower epochs than these, by topic; what was obeyed of lower ones before counts no longer."""
        self._least = dict(epochs)
        for name in self.topics.keys() & epochs.keys():
            topic = self.topics[name]
            if topic.epoch is None:
                self.topics[name] = replace(topic, least=max(topic.least, epochs[name]))
            elif topic.epoch < epochs[name]:
                self.topics[name] = replace(topic, epoch=epochs[name])
                self.forget_assigned([name])

    def missing(self, names: Iterable[str], zxid: int) -> list[str]:
        """Return the topics that are known and not in this list, which is older than their nodes."""
        absent = self.topics.keys() - set(names)
        return sorted(n for n in absent if self.topics[n].source is not None and zxid < self.topics[n].zxid)

    def keep_only(self, names: Iterable[str], zxid: int) -> list[str]:
        """Take the list of all topics, as it stands since transaction `zxid`; return those that vanished.

        A topic whose node was read later than the list stays.
        """
        absent = sorted(self.topics.keys() - set(names))
        known = [n for n in absent if self.topics[n].source is not None or self.topics[n].epoch is not None]
        vanished = [name for name in known if zxid >= self.topics[name].zxid]
        for name in vanished:
            self.topics[name] = self.topics[name].vanished(zxid)
        self._settle(vanished)
        return vanished

    def forget_assigned(self, names: Collection[str]) -> None:
        """Close what is held of these topics: nothing of them is assigned until an assignment is read again that has
        at least the reported epoch."""
        for name in self.topics.keys() & set(names):
            self.topics[name] = self.topics[name].unassigned()
        self._settle(names)

    # -- from discovery and the process's own end ---------------------------------------------------------

    def block(self, reason: str) -> None:
        """Close everything, because of `reason`, and take nothing up."""
        self.blocks.add(reason)
        self._settle()

    def unblock(self, reason: str) -> None:
        """Take back `reason`; without any other, take up what is assigned."""
        self.blocks.discard(reason)
        self._settle()

    # -- from Spark ---------------------------------------------------------------------------------------

    def query_ended(self) -> None:
        """Note that the query is over: nothing is read and no plan is under way; what was processed stands."""
        self.query.end()
        for partition in self.held.values():
            partition.plan(None, sought=False)
        self._settle()

    def offer(self) -> Offer:
        """Return what the next batch may hold; this replaces the offer before.

        Raises `PlanRefusedError` when no query runs.
        """
        self.query.offer(self._offerable())
        partitions: dict[str, set[int]] = {}
        for tp, partition in self.held.items():
            partition.go_on()
            partition.offered = tp in self.query.offered
            if partition.offered:
                partitions.setdefault(tp[0], set()).add(tp[1])
        self._settle()
        for name, topic in self.topics.items():
            if name in partitions and topic.source is not None:
                self.query.given[name] = topic.source
        topics = {
            name: TopicOffer(source, frozenset(partitions.get(name, ())), len(self.topics[name].owned))
            for name, source in self.query.given.items()
        }
        offered = {tp: partition for tp, partition in self.held.items() if partition.offered}
        ends = {tp: end for tp, (_, end) in self.query.plan.ranges.items()}
        again = {
            tp: partition.planned
            for tp, partition in offered.items()
            if partition.planned is not None and partition.planned != ends.get(tp)
        }
        seeks = {tp: partition.open_seek(self.topics[tp[0]]) for tp, partition in offered.items()}
        known = {tp for tp, p in offered.items() if p.planned is None and p.in_group and p.source.topic_id}
        return Offer(
            self.query.asked,
            topics,
            again,
            {tp: seek for tp, seek in seeks.items() if seek and self.shards.covers(offered[tp], seek)},
            frozenset(known),
        )

    def not_read(self, now: float) -> dict[TopicPartition, str]:
        """Return what is held and not to be read for now, with the reason: it stays in the plans, with nothing to
        read. `now` is in seconds, of the same clock as that of `processed`."""
        return {tp: why for tp, partition in self.held.items() if (why := partition.not_read(now))}

    @property
    def offer_changes(self) -> bool:
        """Whether an offer made now would hold other partitions than the last one: some are to be taken up or given
        up."""
        return self._offerable() != self.query.offered

    def _offerable(self) -> frozenset[TopicPartition]:
        return frozenset(tp for tp, p in self.held.items() if p.offerable and not self.shards.recreated(p))

    def nearby(self) -> dict[str, TopicOffer]:
        """Return, of each Kafka cluster, a topic with a partition that some consumer has, and that partition."""
        found: dict[str, tuple[str, TopicOffer]] = {}
        for name, topic in sorted(self.topics.items()):
            if topic.source is not None and (partitions := topic.owned):
                offer = TopicOffer(topic.source, frozenset({min(partitions)}), len(partitions))
                found.setdefault(topic.source.bootstrap_servers, (name, offer))
        return dict(found.values())

    def planned(
        self,
        asked: int,
        offsets: Mapping[str, Mapping[int, OffsetRange]],
        jumps: Mapping[TopicPartition, Jump] | None = None,
        notes: Mapping[TopicPartition, Note] | None = None,
        sought: Mapping[TopicPartition, Seek] | None = None,
        due: frozenset[TopicPartition] = frozenset(),
    ) -> None:
        """Take the batch that the planner planned from the offer numbered `asked`, which must be the newest.

        `jumps` are the partitions that do not continue where they were read up to; where that is because records are
        lost, the offset after them is committed at once. `notes` are those of the partitions that begin, by what
        is committed. `sought` are the seeks that this plan carries out, each with the offset that it goes on at: that
        is committed at once, with the id, whatever becomes of the batch. `due` is as in `BatchPlan`.

        A plan equal to the one before is no batch, unless it is the query's first. Raises `PlanRefusedError` and
        changes nothing if the plan does not follow from the newest offer, or if the batch planned before has not
        been processed.
        """
        jumps, sought = jumps or {}, sought or {}
        plan = self._with_rebuilds(self.query.plan_of(asked, offsets, due), notes or {})
        if not self.query.is_batch(plan):
            self.query.answered()
            self._seek(sought, jumps)
            return
        ranges = plan.ranges
        for tp in sorted(ranges):
            partition = self.held.get(tp)
            if partition is None or not partition.offered:
                raise PlanRefusedError(
                    f"topic {tp[0]!r}, partition {tp[1]}: planned, but it was not in the offer; ask again"
                )
            partition.check(ranges[tp], jumps.get(tp), sought.get(tp))
        self.query.accept(plan)
        for tp, partition in self.held.items():
            if tp in ranges and partition.planned is None:
                moved = tp in jumps or tp in sought
                partition.begin(ranges[tp][0], (notes or {}).get(tp, NO_NOTE), moved, self._holder)
            partition.plan(ranges.get(tp), tp in sought)
        for tp, jump in jumps.items():
            if jump.loses and tp not in sought and tp in ranges:
                self.held[tp].lose(jump)
        self._seek(sought, jumps)
        self._settle()

    def in_doubt(self) -> dict[TopicPartition, Deaths]:
        """Return the partitions whose next record may be one that kills the process, and what is known of that."""
        return {tp: p.note.deaths for tp, p in self.held.items() if p.in_doubt}

    def not_noted(self) -> frozenset[TopicPartition]:
        """Return the partitions in doubt of which it is still to be committed what is tried next."""
        return frozenset(
            tp for tp, p in self.held.items() if p.in_doubt and (p.outstanding or p.planned is None)
        )

    def _with_rebuilds(self, plan: BatchPlan, notes: Mapping[TopicPartition, Note]) -> BatchPlan:
        known = {**notes, **{tp: p.note for tp, p in self.held.items() if p.planned is not None}}
        rebuilds = {tp: known[tp].rebuild for tp in plan.filled.keys() & known.keys()}
        return replace(plan, rebuilds={tp: number for tp, number in rebuilds.items() if number})

    def _seek(self, sought: Mapping[TopicPartition, Seek], jumps: Mapping[TopicPartition, Jump]) -> None:
        for tp, seek in sought.items():
            if partition := self.held.get(tp):
                partition.carry_out(seek, jumps[tp].before if tp in jumps else None)

    def processed(
        self,
        plan: BatchPlan,
        now: float,
        rejected: Mapping[TopicPartition, Mapping[int, str]] | None = None,
    ) -> None:
        """Take note that the handler finished a batch at `now`, in seconds, of the same clock as that of `committed`,
        and `rejected` some of its records, by partition and offset, with the error: each gets a dead letter.

        Raises `PlanRefusedError` if it is not the last planned.
        """
        if not self.query.is_under_way(plan):
            raise PlanRefusedError(
                f"the batch of offer {plan.asked} is not the one under way; restart the query"
            )
        self.query.finished = True
        for tp, (_, end) in plan.ranges.items():
            if partition := self.held.get(tp):
                partition.done(end, tp in plan.due, (rejected or {}).get(tp, {}), now)
        self._settle()

    def failed(self, plan: BatchPlan) -> None:
        """Take note that the handler raised: the batch is read again, by other plans. Nothing if it is not the last
        planned."""
        if not self.query.is_under_way(plan):
            return
        self.query.finished = True
        for tp, (begin, end) in plan.ranges.items():
            if tp in self.held and self.held[tp].planned == end:
                self.held[tp].planned = begin

    def stop(self, topic: str, stopped: bool) -> None:
        """Have it committed with the offsets of a topic whether that is stopped."""
        for partition in self._of({topic}).values():
            partition.stop(stopped)

    # -- from people, or the settings in their place -----------------------------------------------------

    def pass_over(self, tp: TopicPartition, over: PassOver) -> bool:
        """Pass over the next record of a partition; False if the partition is closing, or does not stand before
        it."""
        partition = self.held.get(tp)
        if partition is None or not partition.would_pass(over):
            return False
        partition.pass_over = over
        return True

    def keep(self, tp: TopicPartition, claim_epoch: int, offset: int) -> bool:
        """Keep a record that was to be passed over with a dead letter, which cannot be written; False if it is not
        to be any more."""
        partition = self._claimed_as(tp, claim_epoch)
        if partition is None or partition.pass_over != PassOver(offset, letter=True):
            return False
        partition.pass_over = None
        return True

    # -- from Kafka ---------------------------------------------------------------------------------------

    def due(self, now: float) -> dict[Place, dict[TopicPartition, Due]]:
        """Return the offsets to commit now, by where they belong.

        What was last committed, or claimed, too long ago is due again. `now` is in seconds, of the same clock as that
        of `committed`.
        """
        found = self._by_place(lambda topic, p: p.due(topic, now, self._longest_renewal))
        self.shards.with_others(found)
        return found

    def letters(self) -> dict[Place, dict[TopicPartition, Due]]:
        """Return the offsets that are to be committed together with dead letters of records before them, by where
        they belong: of those that a `Due` names, or without these of the record just before. Nothing else of these
        partitions is due meanwhile."""
        found = self._by_place(lambda topic, p: p.due_letters(topic))
        self.shards.with_others(found, letters=True)
        return found

    def committed(self, offsets: Mapping[TopicPartition, Due], now: float) -> None:
        """Take note that Kafka acknowledged these offsets."""
        for tp, due in offsets.items():
            if partition := self._claimed_as(tp, due.claim_epoch):
                partition.acknowledged(due, now)
        self._settle()

    def restored(self, tp: TopicPartition, claim_epoch: int, commits: Mapping[str, int]) -> None:
        """Take note that the state of a shard is what changelog and group say, which is known by the partition `tp`.
        `commits` are the offsets, by topic, that are to be committed once before anything is read."""
        if (partition := self._claimed_as(tp, claim_epoch)) is None or partition.closing:
            return
        self.shards.restored(partition, commits)
        self._settle({tp[0]})

    def in_group(self) -> dict[Place, dict[TopicPartition, str]]:
        """Return what the group has to have an offset of, which only another program may have changed, with the ids
        of the topics ('': unknown)."""
        return self._by_place(lambda topic, p: p.topic_id if p.in_group and p.stays(topic) else None)

    def last_looks(self) -> dict[Place, dict[TopicPartition, str]]:
        """Return what is closed once the group was looked at once more, with the ids of the topics."""
        return self._by_place(lambda _topic, p: p.topic_id if p.to_look_at else None)

    def looked_at(self, partitions: Iterable[TopicPartition]) -> None:
        """Take note that the group was looked at once more for these, or could not be."""
        for tp in self.held.keys() & set(partitions):
            self.held[tp].looked_at = True
        self._settle()

    def refuse(self, tp: TopicPartition, claim_epoch: int) -> bool:
        """Close a partition without committing, because its commit was refused for good; False if it is not held
        under this claim epoch."""
        partition = self._claimed_as(tp, claim_epoch)
        if partition is None:
            return False
        partition.refused = partition.closing = True
        self.refused.add(tp)
        self._settle({tp[0]})
        return True

    def keeps(self, tp: TopicPartition, claim_epoch: int) -> bool:
        """Tell whether a partition is held under this claim epoch and was given to no other consumer, as far as is
        known; one that is to be closed is not given away before that is done."""
        partition, topic = self._claimed_as(tp, claim_epoch), self.topics.get(tp[0], Topic())
        return partition is not None and not partition.refused and tp[1] not in topic.elsewhere

    def allow(self, tp: TopicPartition) -> None:
        """Allow a partition that was refused to be taken up again, if it is assigned."""
        self.refused.discard(tp)
        self._settle({tp[0]})

    def unclaimed(self) -> dict[Place, dict[TopicPartition, int]]:
        """Return the partitions that have to be claimed before they can start, with their claim epochs, by place."""
        return self._by_place(
            lambda _topic, p: p.claim_epoch if p.to_claim and self.shards.whole(p) else None
        )

    def claims_in_use(self) -> dict[Place, dict[TopicPartition, int]]:
        """Return all that is held and claimed, or is to be, with its claim epochs, by place; give up other claims."""
        return self._by_place(lambda _topic, p: p.claim_epoch if p.claim_in_use else None)

    def begin_claim(self, tp: TopicPartition, claim_epoch: int) -> bool:
        """Note that a claim begins; False if it must not, because the partition is closing, or was taken up again.

        One that is claimed already, and whose producer is replaced, may be closing: it is committed before it closes.
        """
        partition = self._claimed_as(tp, claim_epoch)
        if partition is None or not self.keeps(tp, claim_epoch):
            return False
        if partition.closing and not partition.claimed:
            return False
        partition.claiming = True
        return True

    def claim_ended(self, tp: TopicPartition, claim_epoch: int) -> None:
        """Take note that a claim that had begun can no longer take effect, or has been given up."""
        if partition := self._claimed_as(tp, claim_epoch):
            partition.claiming = False
        self._settle({tp[0]})

    def claimed(
        self,
        claim_epochs: Mapping[TopicPartition, int],
        now: float,
        group: Mapping[TopicPartition, Committed | None] | None = None,
    ) -> None:
        """Take note that these partitions are claimed for these claim epochs, and what the `group` has of them since.
        `now` is in seconds, of the same clock as that of `committed`."""
        for partition in self._claimed_for(claim_epochs):
            partition.found((group or {}).get(partition.tp), now, self._holder)
        self._settle()

    def watched(self) -> dict[Place, set[str]]:
        """Return the topics of which this consumer has partitions, or is assigned some, by place."""
        found: dict[Place, set[str]] = {}
        for (name, _), partition in self.held.items():
            found.setdefault(partition.source.place, set()).add(name)
        for name, topic in self.topics.items():
            if topic.source is not None and topic.assigned:
                found.setdefault(topic.source.place, set()).add(name)
        return found

    def identify(self, name: str, place: Place, kafka_id: str, gone: bool = False) -> None:
        """Take note that Kafka at `place` has a topic under `kafka_id` ('': unknown), or that it is `gone` from it.

        What is being closed there belongs to the topic that was there; it may be another place than the assignment's.
        """
        if name not in self.topics:
            return
        for partition in self._of({name}).values():
            if partition.source.place == place:
                partition.identified(kafka_id, gone)
        if self.topics[name].is_at(place):
            self.topics[name] = self.topics[name].identified(kafka_id, gone)
        self._settle({name})

    # -- from the handler ---------------------------------------------------------------------------------

    @property
    def to_announce(self) -> dict[TopicPartition, int]:
        """What is to be announced to the handler, with the claim epochs."""
        return {
            tp: p.claim_epoch
            for tp, p in self.held.items()
            if p.claimed and not p.announced and p.withdrawn and not p.closing
        }

    @property
    def to_withdraw(self) -> dict[TopicPartition, int]:
        """What is to be withdrawn from the handler, with the claim epochs."""
        return {
            tp: p.claim_epoch
            for tp, p in self.held.items()
            if p.closing and not p.withdrawn and not p.may_be_read
        }

    def begin_announcing(self, claim_epochs: Mapping[TopicPartition, int]) -> None:
        """Note that these begin to be announced to the handler."""
        for partition in self._claimed_for(claim_epochs):
            partition.withdrawn = False

    def announced(self, claim_epochs: Mapping[TopicPartition, int]) -> None:
        """Take note that these were announced to the handler."""
        for partition in self._claimed_for(claim_epochs):
            partition.announced = True

    def withdrawn(self, claim_epochs: Mapping[TopicPartition, int]) -> None:
        """Take note that these were withdrawn from the handler, or were not announced after all."""
        for partition in self._claimed_for(claim_epochs):
            partition.withdrawn = True
        self._settle({topic for topic, _ in claim_epochs})

    @property
    def standing_by(self) -> frozenset[TopicPartition]:
        """What this consumer stands by for."""
        if self.blocks:
            return frozenset()
        return frozenset((name, p) for name, topic in self.topics.items() for p in topic.standby)

    # -- what follows -------------------------------------------------------------------------------------

    def _settle(self, names: Collection[str] | None = None) -> None:
        """Close what is not wanted, drop what is closed, take up what is wanted and closed; in that order.

        `names` are the topics that an event concerned, None for all.
        """
        names = self.shards.names(names)
        concerned = self._of(names)
        for tp, partition in concerned.items():
            topic = self.topics[tp[0]]
            partition.follow(topic, self._wanted(topic), self._fencing)
        self.shards.close_split(concerned.values())
        for tp in [tp for tp, partition in concerned.items() if self.shards.closed(partition)]:
            del self.held[tp]
        self._take_up(names)
        for (name, number), partition in self._of(names).items():
            if number not in self.topics[name].paused:
                partition.paused_after = None
            elif partition.paused_after is None:
                partition.paused_after = self.query.asked

    def _take_up(self, names: Collection[str] | None) -> None:
        for name in self.topics if names is None else names:
            topic = self.topics.get(name, Topic())
            for tp in ((name, number) for number in self._wanted(topic)):
                if topic.source is not None and tp not in self.held and tp not in self.refused:
                    self._taken_up += 1
                    state = self._state.has(name)
                    self.held[tp] = Partition(
                        tp,
                        topic.source,
                        self._taken_up,
                        announced=not self._announces,
                        has_state=state,
                        restored=not state,
                    )

    def _wanted(self, topic: Topic) -> frozenset[int]:
        return frozenset() if self.blocks or topic.gone else topic.assigned

    def _of(self, names: Collection[str] | None) -> dict[TopicPartition, Partition]:
        return {tp: held for tp, held in self.held.items() if names is None or tp[0] in names}

    def _claimed_as(self, tp: TopicPartition, claim_epoch: int) -> Partition | None:
        """Return the partition if it is held under this claim epoch."""
        partition = self.held.get(tp)
        return partition if partition is not None and partition.claim_epoch == claim_epoch else None

    def _claimed_for(self, claim_epochs: Mapping[TopicPartition, int]) -> Iterator[Partition]:
        """Yield those of these partitions that are held under their claim epochs."""
        for tp, claim_epoch in claim_epochs.items():
            if partition := self._claimed_as(tp, claim_epoch):
                yield partition

    def _by_place(
        self, which: Callable[[Topic, Partition], _T | None]
    ) -> dict[Place, dict[TopicPartition, _T]]:
        """Return what `which` finds of the partitions that are held, by where they are."""
        found: dict[Place, dict[TopicPartition, _T]] = {}
        for tp, partition in self.held.items():
            value = which(self.topics[tp[0]], partition)
            if value is not None:
                found.setdefault(partition.source.place, {})[tp] = value
        return found

    # -- for others ---------------------------------------------------------------------------------------

    def status(self, name: str | None = None) -> dict[str, TopicStatus]:
        """Return what the status page says, of one topic or of all: every topic that is assigned, those still being
        closed, and those whose assignment is of a backup and not obeyed."""
        found: defaultdict[str, defaultdict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        for (of, number), partition in self._of(None if name is None else {name}).items():
            running = "running" if self.shards.runs(partition) else "starting"
            found[of]["closing" if partition.closing else running].add(number)
            if self._stopped(partition):
                found[of]["paused"].add(number)
        statuses: dict[str, TopicStatus] = {}
        for of in sorted(self.topics) if name is None else {name} & self.topics.keys():
            topic, lists = self.topics[of], found[of]
            if lists or topic.epoch is not None:
                statuses[of] = TopicStatus(
                    running=frozenset(lists["running"]),
                    starting=frozenset(lists["starting"]),
                    closing=frozenset(lists["closing"]),
                    epoch=topic.epoch,
                    standby=frozenset() if self.blocks else topic.standby,
                    paused=frozenset(lists["paused"]),
                )
        return statuses

    def _stopped(self, partition: Partition) -> bool:
        """Tell whether its consumption is paused, and nothing of it is under way: no offer from before the pause is
        open, and what was planned is processed and committed."""
        if partition.paused_after is None or partition.closing or partition.outstanding:
            return False
        return self.query.leaves_out(partition.tp, partition.paused_after)

    @property
    def closed(self) -> bool:
        """Whether nothing is held."""
        return not self.held
