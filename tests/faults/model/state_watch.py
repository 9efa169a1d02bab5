"""What state by key promises; a part of the watchman's rules, which it looks at with each commit and restore."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from muster.consumer.state.position import ANYWHERE, KEY, Position, TakenUp
from muster.core.model import SeekState, TopicPartition
from muster.core.ownership import ToRestore
from muster.core.positions import Committed, of_another_topic, parse_stamp
from muster.edges.state_changelog import changelog_topic
from tests.faults.model.kafka import Record
from tests.faults.model.state import Log, Values, fold, values_of

if TYPE_CHECKING:
    from tests.faults.model.process import Process
    from tests.faults.model.seeks import Seeking
    from tests.faults.model.watchman import Watchman

Change = tuple[bytes, bytes | None]


@dataclass(frozen=True)
class Truth:
    """What the commits of a shard come to: the position of the last one, and the fold over their batches."""

    position: Position
    values: Values = field(default_factory=dict)


class StateWatch:
    """Looks beside `watchman`."""

    def __init__(self, watchman: Watchman) -> None:
        self.watchman = watchman
        self.world = watchman.world
        self.truth: dict[TopicPartition, Truth] = {}
        self.left_out: set[tuple[Record, int]] = set()
        """The records that a person has had skipped."""

    def log(self, tp: TopicPartition) -> Log:
        """The changelog of a shard."""
        return self.world.kafka.changelog(changelog_topic("c", tp[0]), tp[1])

    # -- commits ----------------------------------------------------------------------------------------------

    def lands(
        self,
        process: Process | Seeking,
        tp: TopicPartition,
        record: Record,
        committed: Committed,
        written: Sequence[Change],
    ) -> None:
        """A commit of a shard is about to land, with what its transaction has `written` to the changelog."""
        name, topic = f"{process.incarnation}, {tp}", tp[0]
        texts = [value for key, value in written if key == KEY and value is not None]
        stamp = parse_stamp(committed.metadata)
        if len(texts) != 1 or stamp is None:
            self.watchman.fail(f"{name}: an offset is committed without its state")
        new = Position.of(texts[0])
        place, note = new.places[topic], stamp.note
        ours = place.offset, new.seq, place.move, new.rebuild
        if ours != (committed.offset, stamp.seq, note.sought, note.rebuild):
            self.watchman.fail(f"{name}: the changelog gets {ours}, and the group {committed}")
        changes = {key: value for key, value in written if key != KEY and value is not None}
        if changes != values_of(changes, new):
            self.watchman.fail(f"{name}: something is written under another rebuild than {new.rebuild}")
        self.truth[tp] = self._after(name, tp, record, new, changes)

    def _after(self, name: str, tp: TopicPartition, record: Record, new: Position, made: Values) -> Truth:
        """What stands after a commit that has `made` these changes."""
        there, known, place = self.log(tp).position, self.truth.get(tp), new.places[tp[0]]
        group = self.world.kafka.committed.get(record)
        before = there and there.places[tp[0]]
        numbers = [0 if there is None else there.rebuild]
        if group is not None and (stamp := parse_stamp(group.metadata)) is not None:
            numbers.append(0 if of_another_topic(group.metadata, record[1]) else stamp.note.rebuild)
        if new.rebuild < max(numbers):
            self.watchman.fail(f"{name}: state is written under rebuild {new.rebuild}, after {numbers}")
        if before is not None and before.topic_id and before.topic_id != place.topic_id:
            if there is not None and new.rebuild <= there.rebuild:
                self.watchman.fail(f"{name}: another topic goes on with the state of {before.topic_id}")
            return self._after_batch(name, record, Truth(_empty(new, tp)), new, made)
        if place.move != ("" if before is None else before.move) and place.move in self.world.given:
            return self._after_move(name, tp, there, new, made)
        if there is None and (group is None or not self._seq(group, record)):
            return self._after_batch(name, record, Truth(_empty(new, tp)), new, made)
        values = {} if there is None else values_of(self.log(tp).image(), there)
        if known is None or there != known.position or values != known.values:
            self.watchman.fail(f"{name}: goes on, and the changelog has {there}, {values}, not {known}")
        if new.seq != known.position.seq + 1:
            self.watchman.fail(f"{name}: commit {new.seq} does not follow {known.position.seq}")
        if new.time < known.position.time:
            self.watchman.fail(f"{name}: processing time goes back")
        return self._after_batch(name, record, known, new, made)

    def _after_batch(self, name: str, record: Record, before: Truth, new: Position, made: Values) -> Truth:
        """What stands after a commit without a move: the state is the fold over one more batch, or nothing was
        read."""
        (topic,) = new.places
        was, place = before.position.places[topic], new.places[topic]
        begin, end = was.offset, was.offset
        if made:
            first, _, last = b"".join(made.values()).rpartition(b" ")[2].partition(b"-")
            begin, end = int(first) if begin == ANYWHERE else begin, int(last)
            folded = fold(before.values, begin, end, replace(before.position, rebuild=new.rebuild))
            if made != folded or not begin < end <= place.offset:
                self.watchman.fail(f"{name}: changes the state to {made} at {place}, after {before}")
        missed = range(max(end, was.done, was.top or 0), place.offset if was.offset != ANYWHERE else 0)
        lost = self.world.kafka.begin(record)
        if without := [at for at in missed if at >= lost and (record, at) not in self.left_out]:
            self.watchman.fail(
                f"{name}: records {without} are committed, and their batch is not in the state"
            )
        if (place.move, place.done) != (was.move, was.done) or (place.top or 0) < (was.top or 0):
            self.watchman.fail(f"{name}: {was} becomes {place} without a seek")
        return Truth(new, {**before.values, **made})

    def _after_move(
        self, name: str, tp: TopicPartition, there: Position | None, new: Position, made: Values
    ) -> Truth:
        """What stands after a seek: the state stays, or is empty under a higher number."""
        place, asked = new.places[tp[0]], self.world.given[new.places[tp[0]].move]
        before = None if there is None else there.places[tp[0]]
        if made:
            self.watchman.fail(f"{name}: seek {place.move} changes the state")
        number = -1 if there is None else there.rebuild
        skips = asked.state is SeekState.SKIP
        if asked.state is SeekState.REBUILD and new.rebuild <= number:
            self.watchman.fail(f"{name}: the state begins empty under rebuild {new.rebuild}, after {number}")
        emptied = before is None or new.rebuild != number
        done = max(before.offset, 0 if emptied else before.done) if skips and before is not None else 0
        top = before.top if skips and before is not None else None
        if not emptied and (place.done, place.top) != (done, top):
            self.watchman.fail(f"{name}: {before} becomes {place} by a seek, {asked.state}")
        return Truth(new, values_of(self.log(tp).image(), new))

    @staticmethod
    def _seq(committed: Committed, record: Record) -> int:
        stamp = parse_stamp(committed.metadata)
        other = of_another_topic(committed.metadata, record[1])
        return 0 if stamp is None or other else stamp.seq

    # -- what is taken up -------------------------------------------------------------------------------------

    def takes_up(self, process: Process, tp: TopicPartition, asked: ToRestore, found: TakenUp) -> None:
        """A process has restored a shard: it runs if changelog and group agree, or a person has chosen."""
        if found.position is None:
            shard = process.states.status().get(tp)
            if shard is None or not shard.differs:
                self.watchman.fail(f"{process.incarnation} does not run {tp}, and does not say why")
            return
        self.trusts(process, tp)
        there, topic_id = self.log(tp).position, asked.topic_ids[tp[0]]
        group = asked.committed[tp[0]]
        if there is None or found.chosen:
            return
        place = there.places[tp[0]]
        if place.topic_id and topic_id and place.topic_id != topic_id:
            return
        stamp = None if group is None else parse_stamp(group.metadata)
        if group is None or stamp is None or of_another_topic(group.metadata, topic_id):
            agree = place.offset == ANYWHERE
        else:
            ours = place.offset, there.seq, place.move
            agree = ours == (group.offset, stamp.seq, stamp.note.sought)
        if not agree:
            self.watchman.fail(
                f"{process.incarnation} runs {tp}, and the changelog has {there}, {group} the group"
            )

    def trusts(self, process: Process, tp: TopicPartition) -> None:
        """A process goes by its store of a shard: it is what the changelog says up to there."""
        shard = process.states._shards.get(tp)
        if shard is None:
            return
        mark, data, log = shard.mark, shard.store.disk.data, self.log(tp)
        if mark.upto > log.end or data != log.image(mark.upto):
            self.watchman.fail(
                f"{process.incarnation} trusts a store of {tp} that is not what its changelog has"
            )


def _empty(new: Position, tp: TopicPartition) -> Position:
    """A shard of which nothing was read."""
    place = replace(new.places[tp[0]], offset=ANYWHERE, done=0, top=None)
    return replace(new, places={tp[0]: place}, seq=new.seq - 1)
