"""Rules for seeks, batches that take long, and records that kill; a part of the watchman's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.consumer.measures import STALLED_AFTER
from muster.core.diagnosis import Situation, Waiting
from muster.core.model import Seek, TopicPartition
from muster.core.poison import ASK
from muster.core.positions import UNKNOWN, Committed, Note, noted, of_another_topic
from tests.faults.model.kafka import Record
from tests.faults.model.tally import SEEKS

if TYPE_CHECKING:
    from tests.faults.model.process import Process
    from tests.faults.model.seeks import Seeking
    from tests.faults.model.watchman import Watchman


class FlowWatch:
    """Looks beside `watchman`, which knows who is estranged, and how far each partition was read."""

    def __init__(self, watchman: Watchman) -> None:
        self.watchman = watchman
        self.world = watchman.world
        self.decided: dict[Record, float] = {}
        """When a person decided that a partition goes on behind what is lost, or behind a record."""
        self.closed: set[tuple[str, Record]] = set()
        """What processes, by their tokens, have closed in order."""

    # -- what goes elsewhere ----------------------------------------------------------------------------------

    def seeks(self, process: Process, key: TopicPartition, seek: Seek) -> None:
        """A plan of the process carries out a seek."""
        record, estranged = process.read[key], self.watchman.estranged_now(process, key)
        if not estranged and self._noted(record).has(seek.id):
            self.watchman.fail(
                f"{process.incarnation} has {key} go on at {seek.offset}, by a seek that is over"
            )
        if self.world.given[seek.id].offset is not None:
            if not estranged:
                self.watchman.done.pop(record, None)
            self._goes_on_at(record, seek.offset or 0)  # where it may begin once it is in contact again

    def skipped(self, record: Record, offset: int) -> None:
        """A person has a record skipped."""
        self._goes_on_at(record, offset + 1)
        self.decided[record] = self.world.now

    def claims(self, process: Seeking, key: TopicPartition) -> None:
        """A coordinator has claimed a partition, to carry out a seek that no consumer can."""
        coordinator, watchman = process.coordinator, self.watchman
        same = watchman.owner_since.get(key, 0) <= coordinator.store.read_zxid
        read_at = coordinator.discovery.catalog.read_at
        owner = self.world.zookeeper.owner(*key)
        if owner is not None and same and watchman.live_since.get(owner, read_at + 1) <= read_at:
            watchman.fail(f"{process.incarnation} carries out a seek of {key} beside {owner}")
        watchman.claimed[key] = (process, True)

    def commits(
        self, process: Process | Seeking, key: TopicPartition, record: Record, committed: Committed
    ) -> bool:
        """Whether the partition goes elsewhere by this commit, as a person has asked for."""
        watchman, there, note = self.watchman, self._noted(record), noted(committed, record[1])
        asked = self.world.given.get(note.sought)
        self.decided.pop(record, None)
        if note.deaths.count > there.deaths.count and (there.deaths.holder, record) in self.closed:
            watchman.fail(
                f"{process.incarnation} counts {there.deaths.holder} as dead, which has closed {key}"
            )
        if note.rebuild < there.rebuild:
            watchman.fail(f"{process.incarnation} commits {key} under rebuild {note.rebuild}, a lower one")
        read = max(there.reached, self.world.kafka.stands(record))
        same = note.rebuild == there.rebuild and not of_another_topic(committed.metadata, record[1])
        if same and committed.offset < read > note.reached != UNKNOWN:
            watchman.fail(f"{process.incarnation} commits {key} and forgets that it was read up to {read}")
        if note.sought == there.sought:
            return False
        if note.sought < there.sought or asked is None or note.sought in self.world.over:
            watchman.fail(
                f"{process.incarnation} carries out seek {note.sought!r} of {key} after {there.sought!r}"
            )
        self.world.saw.add(SEEKS)
        if asked.rebuild and note.rebuild <= there.rebuild:
            watchman.fail(
                f"{process.incarnation} rebuilds {key} under number {note.rebuild}, after {there.rebuild}"
            )
        if asked.offset is None:
            return False
        if committed.offset < asked.offset and key[0] not in self.world.kafka.small:
            watchman.fail(f"{process.incarnation} seeks {key} to {committed.offset}, not {asked.offset}")
        watchman.done.pop(record, None)
        self._goes_on_at(record, committed.offset)
        return True

    def _noted(self, record: Record) -> Note:
        """What the group has with its offset."""
        return noted(self.world.kafka.committed.get(record), record[1])

    def _goes_on_at(self, record: Record, offset: int) -> None:
        furthest = self.watchman.furthest
        furthest[record] = max(furthest.get(record, 0), offset)

    # -- what is read -----------------------------------------------------------------------------------------

    def begins(self, process: Process, key: TopicPartition, offset: int) -> None:
        """A batch with a partition begins, which is not estranged."""
        batch, record = process.query.batch, process.read[key]
        assert batch is not None
        note, number = self._noted(record), batch.rebuilds.get(key, 0)
        if number > note.rebuild and record not in self.watchman.vanished:  # else a person has deleted it
            self.watchman.fail(
                f"{process.incarnation} hands out {key} under rebuild {number}, and {note.rebuild} is committed"
            )
        held = process.agent._ownership.held.get(key)
        if (
            not note.deaths.size
            or offset >= note.deaths.end
            or held is None
            or not note.has(held.note.sought)
        ):
            return
        alone = batch.filled.keys() == {key}
        if not (alone and note.deaths.tried and note.deaths.holder == process.token):
            self.watchman.fail(
                f"{process.incarnation} reads {key}, which is in doubt ({note.deaths}), alone: {alone}"
            )

    def takes_up(self, process: Process, key: TopicPartition) -> None:
        """A process has claimed a partition, and has not closed it any more."""
        here = (self.world.kafka.ids.get(key[0], ""), key[1])
        self.closed = {(token, of) for token, of in self.closed if token != process.token or of[1:] != here}

    def closes(self, process: Process, key: TopicPartition) -> None:
        """A process has let go of a partition in order."""
        if key in process.read:
            self.closed.add((process.token, process.read[key]))

    # -- who is asked -----------------------------------------------------------------------------------------

    def is_within_its_bound(
        self, situation: Situation, tp: TopicPartition, record: Record, found: list[Waiting]
    ) -> bool:
        """Whether it is too early to ask a person about a partition that stands: what a person decided is under way,
        or its owner's handler is at work on a batch or fails with a record. A batch is named with its seconds."""
        now, bound = self.world.now, self.watchman.stuck_after
        if now - self.decided.get(record, -bound) <= bound:
            return True
        process = self._owner(situation, tp)
        mark = situation.look.marks.get(tp)
        if process is None or mark is None:
            return False
        failing = situation.replies.statuses[process.id].on(tp[0]).failing.get(tp[1])
        if failing is not None:
            tried = not (failing.parked or failing.answer)
            return tried and now - mark.since <= ASK + bound  # its owner tries it alone first
        return tp in process.running and self._is_in_a_batch(process, tp, now - mark.since, found)

    def _owner(self, situation: Situation, tp: TopicPartition) -> Process | None:
        """The process that answers that it runs a partition, as its owner; None without one, or in doubt."""
        snapshot, owner = situation.snapshots[tp[0]], self.world.zookeeper.owner(*tp)
        service = None if owner is None else self.world.consul.newest(owner)
        if service is None or situation.doubt or tp[0] in situation.ahead or snapshot.state is None:
            return None
        process = self.world.process(service.incarnation)
        status, assignment = situation.replies.statuses.get(process.id), snapshot.assignment
        if status is None or assignment is None or status.incarnation != process.incarnation:
            return None
        seen = status.has_seen(tp[0], assignment.epoch)
        return process if seen and tp[1] in status.on(tp[0]).running else None

    def _is_in_a_batch(
        self, process: Process, tp: TopicPartition, stood: float, found: list[Waiting]
    ) -> bool:
        batch, limit = process.query.batch, self.world.max_batch_time
        seconds = self.world.now - process.query.began
        if batch is None or batch.empty or seconds <= STALLED_AFTER:
            return False
        within = limit is not None and seconds <= limit
        if within and stood > 2 * (limit or 0) + self.watchman.stuck_after:
            return False
        named = [w for w in found if f" for {seconds:.0f} s" in w.why]
        if not named or any(w.asked for w in named) is within:
            self.watchman.fail(f"a batch of {tp} takes {seconds:.0f} s, of {limit}, and is named so: {found}")
        return within
