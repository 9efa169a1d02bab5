"""One partition that a consumer holds: its facts, and what follows from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from zlib import crc32

from muster.core.deaths import NO_DEATHS, Deaths
from muster.core.model import OffsetRange, Seek, TopicPartition
from muster.core.ownership.place import Source
from muster.core.ownership.query import PlanRefusedError
from muster.core.ownership.topic import Topic
from muster.core.positions import NO_NOTE, UNKNOWN, Committed, Jump, Note, of_another_topic, taken_up

LONGEST_RENEWAL = 24 * 3600.0
"""Seconds after which a partition is committed again at the latest, unless the settings say otherwise.

Kafka forgets an offset that was not committed for `offsets.retention.minutes` (7 days), also of a partition that is
held and has nothing to read, and a producer that committed nothing for `transactional.id.expiration.ms` (7 days)."""
RENEWAL_SPREAD = 0.25
"""How much of the longest interval the intervals differ by: what is taken up together is not due together."""

LETTERS = 1_000
"""Dead letters that are written in one transaction."""

LONGEST_UNCOMMITTED = 30.0
"""Seconds for which a partition is read on while Kafka has not acknowledged what was processed of it. Kafka elects a
leader of the group's offsets within some 10 s, and ends the transaction of a silent owner after 30 s."""

PAUSED = "consumption is paused"
"""Why a partition is not read that a person paused."""
HELD_BACK = f"Kafka has acknowledged no commit for {LONGEST_UNCOMMITTED:g} s"
"""Why a partition is not read that is held back."""
REBUILDING = "the number of its rebuild is not committed yet"
"""Why a partition is not read that is being rebuilt."""


@dataclass(frozen=True, slots=True)
class Due:
    """An offset to commit, of which topic it is, for which claim epoch, and what goes with it."""

    offset: int
    topic_id: str = ""
    claim_epoch: int = 0
    note: Note = NO_NOTE
    letters: tuple[tuple[int, str], ...] = ()
    """Rejected records before the offset whose dead letters are to be written with it, each with its error."""
    seek: Seek | None = None
    """The last seek that this owner has carried out."""


@dataclass(frozen=True, slots=True)
class ToRestore:
    """A shard whose state is to be restored: for which claim epoch, where, what the group had at the claim and the
    ids of the topics, both by topic, and the seek that is asked for ('': none)."""

    claim_epoch: int
    source: Source
    committed: Mapping[str, Committed | None]
    topic_ids: Mapping[str, str]
    seek: str = ""


@dataclass(frozen=True, slots=True)
class PassOver:
    """One record to be passed over, once the offset after it is committed; with a dead letter of it, or without."""

    offset: int
    letter: bool = False


@dataclass(slots=True)
class Partition:
    """One partition that is held; see the package's quantities."""

    tp: TopicPartition
    source: Source
    claim_epoch: int = 0
    seen_id: str = ""
    """The id under which Kafka first had the topic since it was taken up; '' if that is not known."""
    has_state: bool = False
    restored: bool = True
    """Whether its state is what changelog and group say; of those without state too."""
    at_claim: Committed | None = None
    """What the group had when it was claimed."""
    claimed: bool = False
    claiming: bool = False
    """A claim has begun and has not ended: it may still fence off the owner of that time."""
    announced: bool = True
    withdrawn: bool = True
    refused: bool = False
    """What was processed is not to be committed."""
    closing: bool = False
    offered: bool = False
    start: int | None = None
    """Where its first batch began, or the first one since it was planned without."""
    planned: int | None = None
    """None if the planner's last plan does not hold it."""
    processed: int | None = None
    committed: int | None = None
    committed_at: float = 0.0
    """When, or when it was claimed, on the caller's clock."""
    in_group: bool = False
    looked_at: bool = False
    """Whether the group was looked at since it is closing."""
    uncommitted_since: float | None = None
    """Since when handled records are not committed, on the caller's clock; None if all are."""
    note: Note = NO_NOTE
    noted: Note = NO_NOTE
    seek: Seek | None = None
    """The last seek that was carried out since it was taken up."""
    paused_after: int | None = None
    """How many offers had been made when its consumption was paused; None if it is not."""
    pass_over: PassOver | None = None
    passed: int | None = None
    """Where it goes on once the planner has answered the open offer, made before a record was passed over."""
    rejected: dict[int, str] = field(default_factory=dict)
    """Offsets of processed records that the handler rejected, with the error, as long as they have no letters."""

    # -- what is known ------------------------------------------------------------------------------------

    @property
    def outstanding(self) -> bool:
        """Whether something was processed that is to be committed and is not acknowledged."""
        if self.refused or self.processed is None:
            return False
        return self.processed != self.committed or self.note.at(self.processed, self.closing) != self.noted

    @property
    def needs_letters(self) -> bool:
        """Whether what is to be committed has rejected records before it, whose dead letters go with the commit."""
        return bool(self.rejected) and self.outstanding

    @property
    def in_doubt(self) -> bool:
        """Whether its next record may be one that kills the process."""
        deaths, position = self.note.deaths, self.position
        return deaths.size > 0 and (position is None or position < deaths.end)

    @property
    def rebuilding(self) -> bool:
        """Whether the number of its rebuild is still to be acknowledged."""
        return self.note.rebuild != self.noted.rebuild

    @property
    def may_be_read(self) -> bool:
        """Whether Spark may hold a batch with it, or be about to plan one."""
        return self.offered or self.planned is not None

    @property
    def closed(self) -> bool:
        """Whether nothing holds it open any more."""
        held_open = self.may_be_read or self.outstanding or self.claiming or not self.withdrawn
        return self.closing and not held_open and not self.to_look_at

    @property
    def topic_id(self) -> str:
        """The id of the topic that it was taken up of; '' if that is not known."""
        return self.source.topic_id or self.seen_id

    @property
    def to_look_at(self) -> bool:
        """Whether the group is to be looked at once more before it is closed."""
        kept = self.in_group and bool(self.topic_id) and not self.refused
        return self.closing and kept and not (self.looked_at or self.may_be_read or self.outstanding)

    @property
    def stands(self) -> int | None:
        """The offset that the group is to have, None as long as that is not known."""
        return self.committed if self.position is None else self.position

    @property
    def position(self) -> int | None:
        """The next offset to process, None as long as it was not planned."""
        return self.start if self.processed is None else self.processed

    @property
    def offerable(self) -> bool:
        """Whether the planner may put it in the next batch."""
        ready = self.claimed and self.announced and self.restored and not self.closing
        return ready and (self.planned is not None or not (self.outstanding or self.pass_over))

    @property
    def to_claim(self) -> bool:
        """Whether it is to be claimed before it can start."""
        return not (self.claimed or self.closing)

    @property
    def claim_in_use(self) -> bool:
        """Whether it is claimed, or is to be, and its claim is not to be given up. One under way for a replacement is
        if the partition is closed without committing."""
        pointless = not self.claimed or (self.refused and self.claiming)
        return not (self.closing and pointless)

    def not_read(self, now: float) -> str | None:
        """Return why it is not to be read for now, None if it is."""
        since = self.uncommitted_since
        if self.paused_after is not None:
            return PAUSED
        if self.outstanding and since is not None and now - since > LONGEST_UNCOMMITTED:
            return HELD_BACK
        return REBUILDING if self.rebuilding else None

    def stays(self, topic: Topic) -> bool:
        """Tell whether it is neither closing nor refused, of a topic that is still the assigned one."""
        return not (self.refused or self.closing or topic.recreated)

    def lost(self, topic: Topic) -> bool:
        """Tell whether its offset is of an earlier topic than Kafka has where it is assigned."""
        return topic.recreated and topic.is_at(self.source.place)

    # -- what is assigned ---------------------------------------------------------------------------------

    def follow(self, topic: Topic, wanted: Collection[int], fencing: bool) -> None:
        """Close it unless it is `wanted`, where its topic is and not another's; without `fencing` without committing
        if it was given away."""
        self._follow_source(topic)
        number = self.tp[1]
        if number not in wanted:
            self.closing = True
        if number in topic.elsewhere and not fencing:
            self.refused = True
        if topic.is_at(self.source.place) and (topic.gone or (self.closing and topic.recreated)):
            self.refused = True

    def _follow_source(self, topic: Topic) -> None:
        """Close it if it is not where the assignment says. Offsets of an old topic are dropped; offsets of another
        Kafka cluster or group are committed there."""
        source = topic.source
        if source is None or self.source == source:
            return
        if self.source.place == source.place:
            if not self.source.topic_id:
                self.source = source
            if not source.topic_id or self.source == source:
                return
            self.refused = True
        self.closing = True

    def identified(self, kafka_id: str, gone: bool) -> None:
        """Take note that Kafka has its topic under `kafka_id` ('': unknown), or that it is `gone`. What is closing
        belongs to the topic that was there."""
        known = self.source.topic_id
        self.seen_id = self.seen_id or kafka_id
        if self.closing:
            self.refused |= gone or bool(known and kafka_id and known != kafka_id)

    # -- what is planned and processed --------------------------------------------------------------------

    def open_seek(self, topic: Topic) -> Seek | None:
        """Return the seek that is asked for and that is not known to be carried out."""
        seek = topic.seeks.get(self.tp[1])
        return seek if seek is not None and not self.note.has(seek.id) else None

    def check(self, planned: OffsetRange, jump: Jump | None, seek: Seek | None) -> None:
        """Raise `PlanRefusedError` if a range does not follow from the newest offer and the last plan."""
        (begin, end), name = planned, f"topic {self.tp[0]!r}, partition {self.tp[1]}"
        if not 0 <= begin <= end:
            raise PlanRefusedError(f"{name}: offsets {begin} to {end} are no range")
        if begin < end and (self.rebuilding or (seek is not None and seek.rebuild)):
            raise PlanRefusedError(f"{name}: planned with records, but {REBUILDING}; ask again")
        known_jump = jump is not None and (jump.before, jump.after) == (self.planned, begin)
        if self.planned is not None and begin != self.planned and not known_jump:
            raise PlanRefusedError(
                f"{name}: planned from offset {begin}, but the last plan ended at {self.planned}"
            )

    def begin(self, offset: int, note: Note, moved: bool, holder: str) -> None:
        """Start again from what the group had committed, with its note, so what was known before no longer counts.
        The position is `moved` if it is another one. `holder` is as in `Ownership`."""
        self.processed = self.committed = self.uncommitted_since = None
        self.rejected = {}
        self.start = offset
        self.note = self.noted = note
        self.note_holder(holder, offset, NO_DEATHS if moved else note.deaths)
        if self.note != self.noted:
            self.processed = self.start

    def plan(self, planned: OffsetRange | None, sought: bool) -> None:
        """Take note of its range in the newest plan (None: it has none), with a seek if `sought`."""
        self.offered = False
        if planned is None:
            self.planned = self.passed = None
            return
        self.planned = planned[1]
        if sought:
            self.passed = None
        if self.pass_over is not None and self.pass_over.offset != self.planned:
            self.pass_over = None  # the record is gone, and it goes on elsewhere
        self.go_on()

    def note_holder(self, holder: str, offset: int, found: Deaths) -> None:
        """Note whose process has it from `offset` on, and how many have died there."""
        if holder and not self.has_state:
            self.doubt(found.taken_up(holder, offset))

    def doubt(self, deaths: Deaths) -> None:
        """Have something else noted of its deaths."""
        self.note = replace(self.note, deaths=deaths)

    def carry_out(self, seek: Seek, before: int | None = None) -> None:
        """Go on where a seek says instead of at `before` (None: there). Raises `ValueError` for one that was taken
        back, which says no offset."""
        if (at := seek.offset) is None:
            raise ValueError(f"topic {self.tp[0]!r}, partition {self.tp[1]}: seek {seek.id!r} has no offset")
        self.note, self.seek = self.note.after(seek, at if before is None else before), seek
        self.start = self.processed = at
        self.rejected = {one: error for one, error in self.rejected.items() if one < at}

    def lose(self, jump: Jump) -> None:
        """Go on behind records that are lost, or where the partition ends now."""
        self.start = self.processed = jump.after
        self.note = self.note.gone_back(jump.before)

    def learn_reached(self, at: int | None) -> None:
        """Take note that its sinks have nothing from `at` on (None: they do not tell), if it is not known how far it
        was read before."""
        if self.note.reached == UNKNOWN and at is not None:
            self.note = replace(self.note, reached=at)

    def done(self, end: int, changed: bool, rejected: Mapping[int, str], now: float) -> None:
        """Take note that it is processed up to `end`, with `rejected` records. It is committed also where it was if
        its state has `changed`. Nothing if a record was passed over meanwhile."""
        if self.planned not in {None, end}:
            return
        self.processed = end
        if changed:
            self.committed = None
        self.rejected.update(rejected)
        if self.uncommitted_since is None and self.outstanding:
            self.uncommitted_since = now

    def stop(self, stopped: bool) -> None:
        """Have it committed whether its topic is stopped."""
        if self.note.stopped != stopped:
            self.note = replace(self.note, stopped=stopped)
            self.processed = self.start if self.processed is None else self.processed

    def would_pass(self, over: PassOver) -> bool:
        """Tell whether it stands before a record, and may pass over it."""
        if self.closing or self.position is None:
            return False
        if self.position > over.offset or self.planned not in {None, over.offset}:
            return False
        # What is offered and not planned may be planned from before the record.
        return self.planned is not None or not self.offered

    def go_on(self) -> None:
        """Go on after a record that was passed over."""
        if self.passed is not None and self.planned == self.passed - 1:
            self.planned = self.passed
        self.passed = None

    # -- what is committed --------------------------------------------------------------------------------

    def found(self, there: Committed | None, now: float, holder: str) -> None:
        """Take note that it is claimed, `now` in seconds of the caller's clock, and of what the group has of it."""
        self.claimed, self.claiming = True, False
        self.committed_at, self.at_claim = now, there
        topic_id = self.source.topic_id
        if there is not None and not of_another_topic(there.metadata, topic_id):
            self.in_group, self.committed = True, there.offset
            self.note = self.noted = taken_up(there, topic_id)
        if there is not None and self.committed == there.offset:
            self.note_holder(holder, there.offset, self.note.deaths)

    def due(self, topic: Topic, now: float, longest: float) -> Due | None:
        """Return what is to be committed of it now without letters; what was committed or claimed too long ago is
        due again, see `renewal_interval`."""
        over, stays = self.pass_over, self.stays(topic)
        if not self.restored or self.needs_letters:
            return None
        if over is not None and not over.letter and stays:
            return self.due_at(over.offset + 1)
        if self.outstanding and self.processed is not None:
            return None if self.lost(topic) else self.due_at(self.processed)
        if over is not None or not stays or self.stands is None:
            return None
        renew = now - self.committed_at >= renewal_interval(self.tp, longest)
        return self.due_at(self.stands) if renew else None

    def due_letters(self, topic: Topic) -> Due | None:
        """Return the offset that is to be committed together with dead letters of records before it."""
        if self.needs_letters and self.processed is not None:
            return None if self.lost(topic) else self._due_with_letters(self.processed)
        over = self.pass_over
        ready = over is not None and over.letter and self.stays(topic) and not self.outstanding
        return self.due_at(over.offset + 1) if over is not None and ready else None

    def due_at(self, offset: int) -> Due:
        """Return `offset`, to be committed."""
        note = self.note.at(offset, self.closing)
        return Due(offset, self.source.topic_id, self.claim_epoch, note, seek=self.seek)

    def _due_with_letters(self, processed: int) -> Due:
        """Return `processed`, to be committed with the letters of what was rejected; of very many only the first
        ones, and the offset of the next."""
        letters = sorted(self.rejected.items())
        if self.has_state:  # what its batch changed is one
            return replace(self.due_at(processed), letters=tuple(letters))
        offset = letters[LETTERS][0] if len(letters) > LETTERS else processed
        return replace(self.due_at(offset), letters=tuple(letters[:LETTERS]))

    def acknowledged(self, due: Due, now: float) -> None:
        """Take note that Kafka has acknowledged what was due."""
        self._acknowledged(due.offset, now)
        self.noted = due.note
        self.note = replace(self.note, rebuild=max(self.note.rebuild, due.note.rebuild))
        self.uncommitted_since = now if self.outstanding else None

    def _acknowledged(self, offset: int, now: float) -> None:
        self.committed, self.committed_at = offset, now
        self.in_group, self.looked_at = True, self.closing
        self.rejected = {at: error for at, error in self.rejected.items() if at >= offset}
        over = self.pass_over
        if over is None or offset != over.offset + 1:
            return
        self.processed, self.pass_over = offset, None
        if self.planned == over.offset:
            self.passed = offset
            if not self.offered:
                self.go_on()

    def set_by_others(self) -> None:
        """Take note that another program has set the committed offset, or deleted it: what is known here is due
        again."""
        if self.restored:
            self.processed, self.committed = self.stands, None
            self.in_group = False


def renewal_interval(tp: TopicPartition, longest: float = LONGEST_RENEWAL) -> float:
    """Return the seconds from one commit of a partition to the next at the latest, different for each partition."""
    return longest * (1 - RENEWAL_SPREAD * crc32(f"{tp[0]}/{tp[1]}".encode()) / 2**32)
