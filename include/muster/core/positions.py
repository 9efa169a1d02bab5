"""Where a partition goes on: what a committed offset is worth, and what becomes of a position that Kafka lost. Pure.

A topic is its id, not its name. Each offset that is committed carries *metadata* that says of which topic it is, and
which cluster has committed it, `muster:[CLUSTER]:[TOPIC ID]`, and then a `Note`, as far as there is one:
`:[SEEK ID]:[stopped]:[REBUILD]`, after one more colon the number of the commit, if the topic has state by key, and
after another one what `muster.core.deaths` notes, and after a last one how far it had been read. So an offset of a
topic that was deleted is not taken for one of the topic that has its name now, and two clusters with one group are
distinguished. Other metadata (none, or another tool's) says neither, and its offset is believed.

Definitions
-----------

- *committed*: the group's offset and its metadata. It is *of another topic* if its metadata names another topic id.
- *rebuild*: sinks forget what they stored of a partition and write again. A person asks for it with a seek, which
  names a moment in seconds: the number of the rebuild, unless the number before is not lower. Then it is one more.
- *reached*: how far a partition had been read before it went back, by a seek or because its end was gone. It is noted
  until the partition has come so far again, because sinks have the records before it. A rebuild ends it. It is
  `UNKNOWN` if another program has set or deleted the committed offset.
- *earliest*, *end*: the first offset that Kafka still has of the partition, and the one after the last.
- *jump*: the partition goes on at another offset than the one it was read up to. `retention`: the records in between
  were deleted before they were read. `truncation`: the end of the partition is gone, as after the election of a
  leader that had not everything. `recreated`: the topic is another one now, and begins at its first record. `seek`: a
  person asked for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from muster.core.deaths import NO_DEATHS, Deaths, parse_deaths
from muster.core.model import Seek

OFFSET_PROBLEM = "offset"
"""What a consumer's error begins with that says that another program has set or deleted a committed offset."""

MARK = "muster"
"""What metadata of ours begins with."""
STOPPED = "stopped"
UNKNOWN, _UNKNOWN = -1, "?"
"""Stands for how far a partition had been read, and how metadata says so."""
_NUMBER = re.compile(r"[0-9]{1,18}")


class Why(StrEnum):
    """Why a partition goes on at another offset than the one it was read up to."""

    RETENTION = "retention"
    TRUNCATION = "truncation"
    RECREATED = "recreated"
    SEEK = "seek"


@dataclass(frozen=True, slots=True)
class Committed:
    """What a group has committed of a partition: the next offset to read, and the words that came with it."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """What goes with each commit of a partition, so that every owner knows it."""

    sought: str = ""
    """The id of the last seek that was carried out."""
    stopped: bool = False
    """Whether nothing of the topic is dead-lettered until a person answers (`muster.core.poison`)."""
    rebuild: int = 0
    """The number of the last rebuild, by which sinks forget what they stored under lower ones. It only grows."""
    deaths: Deaths = NO_DEATHS
    """Whose process has the partition, and the processes that died at this offset."""
    reached: int = 0
    """How far it had been read before it went back, if that is behind the offset, or `UNKNOWN`."""

    def has(self, seek_id: str) -> bool:
        """Tell whether a seek with this id was carried out or taken back, or a later one was."""
        return seek_id <= self.sought

    def after(self, seek: Seek, before: int = 0) -> Note:
        """Return it as it is once `seek` is carried out, by whichever consumer, and however often, of a partition
        that was read up to `before`."""
        found = replace(self, sought=seek.id, deaths=Deaths(self.deaths.holder))
        if not seek.rebuild:
            return found.gone_back(before)
        return replace(found, rebuild=max(self.rebuild + 1, seek.rebuild), reached=0)

    def gone_back(self, before: int) -> Note:
        """Return it as it is if the partition goes on elsewhere, and was read up to `before`."""
        known = self.reached == UNKNOWN or self.reached >= before
        return self if known else replace(self, reached=before)

    def at(self, offset: int, closing: bool = False) -> Note:
        """Return it as it goes with `offset`, of a partition that is `closing` or not."""
        deaths = self.deaths.after(offset, closing)
        reached = 0 if 0 < self.reached <= offset else self.reached
        same = deaths is self.deaths and reached == self.reached
        return self if same else replace(self, deaths=deaths, reached=reached)


NO_NOTE = Note()


@dataclass(frozen=True, slots=True)
class Stamp:
    """What metadata of ours says; `topic_id` is '' where it was unknown."""

    cluster: str
    topic_id: str = ""
    note: Note = NO_NOTE
    seq: int = 0
    """The number of the commit of a partition with state, 0 without."""


@dataclass(frozen=True, slots=True)
class Jump:
    """A partition goes on at `after` instead of `before`."""

    before: int
    after: int
    why: Why

    @property
    def loses(self) -> bool:
        """Whether what is in between is lost."""
        return self.why in {Why.RETENTION, Why.TRUNCATION}

    @property
    def lost(self) -> int:
        """How many offsets Kafka has no more; none where the topic is another one, or a person asked for it."""
        return abs(self.after - self.before) if self.loses else 0


@dataclass(frozen=True, slots=True)
class Start:
    """Where a partition begins or goes on."""

    offset: int
    jump: Jump | None = None


def format_stamp(cluster: str, topic_id: str, note: Note = NO_NOTE, seq: int = 0) -> str:
    """Format the metadata of an offset that `cluster` commits of the topic with this id ('': unknown), as the commit
    with the number `seq` of its state (0: it has none)."""
    stopped, rebuild = STOPPED if note.stopped else "", str(note.rebuild or "")
    reached = _UNKNOWN if note.reached == UNKNOWN else str(note.reached or "")
    said = [note.sought, stopped, rebuild, str(seq or ""), str(note.deaths), reached]
    while said and not said[-1]:
        said.pop()
    return ":".join([MARK, cluster, topic_id, *said])


def parse_stamp(metadata: str) -> Stamp | None:
    """Parse what metadata says, None if it is not ours."""
    mark, _, rest = metadata.partition(":")
    cluster, colon, rest = rest.partition(":")
    topic_id, sought, stopped, rebuild, seq, deaths, reached, *_ = (*rest.split(":"), *6 * ("",))
    if not (mark == MARK and cluster and colon):
        return None
    number, commit, read = (int(each) if _NUMBER.fullmatch(each) else 0 for each in (rebuild, seq, reached))
    read = UNKNOWN if reached == _UNKNOWN else read
    note = Note(sought, stopped == STOPPED, number, parse_deaths(deaths), read)
    return Stamp(cluster, topic_id, note, commit)


def noted(committed: Committed | None, topic_id: str) -> Note:
    """Return the note in what is committed of a partition of this topic."""
    if committed is None or of_another_topic(committed.metadata, topic_id):
        return NO_NOTE
    stamp = parse_stamp(committed.metadata)
    return NO_NOTE if stamp is None else stamp.note


def taken_up(committed: Committed | None, topic_id: str) -> Note:
    """Return the note that an owner goes by that begins where a partition of this topic is committed."""
    if committed is None or parse_stamp(committed.metadata) is None:
        return Note(reached=UNKNOWN)
    return noted(committed, topic_id)


def passed_by(present: Committed | None, ours: Committed) -> str:
    """Say by what another consumer has passed an offset that is to be committed, '' if none has."""
    stamp = parse_stamp(ours.metadata)
    topic_id, note = ("", NO_NOTE) if stamp is None else (stamp.topic_id, stamp.note)
    if present is None or of_another_topic(present.metadata, topic_id):
        return ""
    there = noted(present, topic_id)
    if there.rebuild > note.rebuild:
        return f"another consumer has begun rebuild {there.rebuild} since"
    if not note.has(there.sought):
        return f"another consumer has carried out seek {there.sought} since"
    return (
        f"another consumer has committed offset {present.offset} since"
        if present.offset > ours.offset
        else ""
    )


def of_another_topic(metadata: str, topic_id: str) -> bool:
    """Tell whether an offset with this metadata is of another topic than the one with `topic_id` ('': unknown)."""
    stamp = parse_stamp(metadata)
    return stamp is not None and bool(stamp.topic_id and topic_id) and stamp.topic_id != topic_id


def of_another_cluster(metadata: str, cluster: str) -> str | None:
    """Return the cluster that has committed an offset with this metadata, None if it is `cluster` or not known."""
    stamp = parse_stamp(metadata)
    return stamp.cluster if stamp is not None and stamp.cluster != cluster else None


def by_others(committed: Committed, cluster: str) -> bool:
    """Tell whether what is committed of a partition that this `cluster` has committed was set by another program."""
    stamp = parse_stamp(committed.metadata)
    return stamp is None or stamp.cluster != cluster


def start(position: int | None, committed: Committed | None, topic_id: str, earliest: int) -> Start:
    """Choose where to begin a partition that was not planned before.

    `position` is where the last batch ended, None for a partition just added. The group's offset is the truth: it is
    only behind `position` while the last batch's commit is under way, and only ahead of it if another consumer has
    read on since. Without either, or if the group's offset is of another topic, the partition begins at its first
    record.
    """
    if committed is not None and of_another_topic(committed.metadata, topic_id):
        if position is None:
            return Start(earliest, Jump(committed.offset, earliest, Why.RECREATED))
        committed = None
    group = None if committed is None else committed.offset
    known = [offset for offset in (position, group) if offset is not None]
    return go_on(max(known), earliest) if known else Start(earliest)


def sought(position: int | None, start: Start, offset: int, earliest: int, end: int) -> Start:
    """Choose where a partition goes on that is sought to `offset`, as far as Kafka still has that. Without the seek
    it is `start`; `position` is as for `start()`."""
    at = min(max(offset, earliest), max(end, earliest))
    before = start.offset if position is None else position
    return Start(at, Jump(before, at, Why.SEEK) if at != before else None)


def go_on(position: int, earliest: int) -> Start:
    """Choose where a partition goes on whose records before `earliest` are deleted."""
    if position >= earliest:
        return Start(position)
    return Start(earliest, Jump(position, earliest, Why.RETENTION))


def after_the_end(
    position: int, lowest_end: int, earliest: int, topic_id: str, kafka_id: str
) -> Start | None:
    """Choose where a partition goes on that ends before the `position` it was read up to; None: nowhere for now.

    `lowest_end` is the least of the ends that were seen since. `kafka_id` is the id under which Kafka has the topic
    now, `topic_id` the one that it was read under; each is '' if it is unknown. The same topic was truncated, and
    goes on at its end. Another topic waits until its id stands in the assignment. A topic that was read without
    knowing its id counts as another one, because then nothing is left out.
    """
    if topic_id:
        if topic_id != kafka_id:
            return None
        at = max(lowest_end, earliest)
        return Start(at, Jump(position, at, Why.TRUNCATION))
    return Start(earliest, Jump(position, earliest, Why.RECREATED))
