"""Where a shard is, in changelog and group, and whether they agree. Pure.

A shard is a partition of a topic, or the partitions with one number of the topics that share their state. Each
transaction of a shard ends with one record of the changelog that holds its `Position`, and commits the same offsets,
sequence and last moves for the group. An owner claims first and then reads both. Where they differ one of the two was
changed, restored or lost; then the shard does not run, and a person chooses with a seek.

A seek is a *move*: a commit without a batch that writes its id into both. What it does to the state is `SeekState`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from muster.core.model import Seek, SeekState
from muster.core.positions import Committed, Note, of_another_topic, parse_stamp

KEY = b"\x00position"
"""The key of the position's record. Those of state begin with the rebuild, and so never with two zeros."""
FIRST = 1 << 24
"""What is added to the number of a rebuild, to be the first four bytes of a key of state."""
ANYWHERE = -1
"""The offset of a shard that has read nothing yet."""
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable of a processor, as it was written: its number in keys, its kind and schemas, and whether values
    have an expiry."""

    number: int
    kind: str
    schema: str
    key_schema: str = ""
    expires: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where a shard is in one of its topics.

    `offset` is the next record to read (`ANYWHERE` before the first), and `move` the id of the topic's last seek.
    Records before `done` do not change the state. `top` is the largest event time, in milliseconds; None without one.
    """

    offset: int = ANYWHERE
    move: str = ""
    done: int = 0
    top: int | None = None
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class Position:
    """All that a shard's next batch depends on, besides keys.

    `places` are where it is, by topic: one, or those that share their state. `seq` grows by one with each commit, and
    `history` is the id of the last seek that made stores of other hosts useless. `time` is the processing time, in
    milliseconds. `rebuild` is the number of the last rebuild, as in the metadata of the group's offsets: nothing
    written under a lower one is read.
    """

    places: Mapping[str, Place]
    seq: int = 0
    history: str = ""
    rebuild: int = 0
    time: int = 0
    variables: Mapping[str, Variable] = field(default_factory=dict)
    time_mode: str = ""
    """That of the processor, which says what its timers wait for."""
    format: int = FORMAT

    @property
    def top(self) -> int | None:
        """The largest event time that all topics have reached, None before that."""
        tops = [place.top for place in self.places.values()]
        return min((top for top in tops if top is not None), default=None) if None not in tops else None

    @property
    def generation(self) -> int:
        """`prefix` as a number."""
        return FIRST + self.rebuild

    @property
    def prefix(self) -> bytes:
        """What the keys of state begin with."""
        return self.generation.to_bytes(4, "big")

    def text(self) -> bytes:
        """Write it for the changelog."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def of(cls, text: bytes) -> Position:
        """Read it. Raises ValueError if it is of a newer format, or none."""
        found: dict[str, Any] = json.loads(text)
        if found.get("format") != FORMAT:
            raise ValueError(
                f"the state has format {found.get('format')}, and this version of Muster reads {FORMAT}; install the "
                "version that has written it"
            )
        found["places"] = {topic: Place(**one) for topic, one in found["places"].items()}
        found["variables"] = {name: Variable(**one) for name, one in found["variables"].items()}
        return cls(**found)


@dataclass(frozen=True, slots=True)
class TakenUp:
    """How a shard begins: at `position`, or nowhere because of `differs`, until a person chooses.

    `chosen` is the seek that is the choice, and has to be the next commit.
    """

    position: Position | None
    differs: str = ""
    chosen: str = ""


@dataclass(frozen=True, slots=True)
class _OfGroup:
    """What the group has of one topic's partition."""

    offset: int = ANYWHERE
    seq: int = 0
    move: str = ""
    rebuild: int = 0

    @classmethod
    def of(cls, committed: Committed | None, topic_id: str) -> _OfGroup | None:
        if committed is None or of_another_topic(committed.metadata, topic_id):
            return None
        stamp = parse_stamp(committed.metadata)
        if stamp is None:
            return cls(committed.offset)
        return cls(committed.offset, stamp.seq, stamp.note.sought, stamp.note.rebuild)


def take_up(
    found: Position | None,
    committed: Mapping[str, Committed | None],
    topic_ids: Mapping[str, str],
    seek: str = "",
    end: int = 0,
    highest: int = -1,
) -> TakenUp:
    """Compare what changelog and group say of a shard of the topics `topic_ids`. `seek` is the id of the seek that is
    asked for ('': none), `end` where the changelog ends, and `highest` the highest rebuild that it has keys of, -1
    without keys.

    Keys without a position cannot be read: it says what they mean. So the state begins empty then.
    """
    if found is not None and (anew := _anew(found, topic_ids)) is not None:
        return TakenUp(anew)
    group = {topic: _OfGroup.of(committed.get(topic), topic_id) for topic, topic_id in topic_ids.items()}
    there = [one for one in group.values() if one is not None]
    rebuild = max((one.rebuild for one in there), default=0)
    seq = max((one.seq for one in there), default=0)
    lost = found is None and highest >= 0
    if found is None and not seq and not lost:
        return TakenUp(Position(_places(group, topic_ids), rebuild=rebuild))
    if found is not None and _agree(found, group):
        return TakenUp(_known(found, topic_ids))
    before = found.places.values() if found is not None else ()
    if seek > max((one.move for one in (*before, *there)), default=""):
        last = found or Position(_places(group, topic_ids))
        places = {topic: last.places.get(topic, place) for topic, place in _places(group, topic_ids).items()}
        last = replace(last, places=places, seq=max(seq, last.seq), history=seek)
        rebuild = max(rebuild, highest) + 1 if lost else rebuild
        last = _known(last, topic_ids)
        return TakenUp(_emptied(last, rebuild) if rebuild > last.rebuild else last, chosen=seek)
    return TakenUp(None, _differ(found, group, end, rebuild))


def _places(group: Mapping[str, _OfGroup | None], topic_ids: Mapping[str, str]) -> dict[str, Place]:
    return {
        topic: Place(topic_id=topic_ids[topic])
        if one is None
        else Place(one.offset, one.move, topic_id=topic_ids[topic])
        for topic, one in group.items()
    }


def _agree(found: Position, group: Mapping[str, _OfGroup | None]) -> bool:
    """Tell whether the group has what the changelog has, of each topic."""
    return found.places.keys() == group.keys() and all(
        place.offset == ANYWHERE
        if (one := group[topic]) is None
        else (place.offset, found.seq, place.move) == (one.offset, one.seq, one.move)
        for topic, place in found.places.items()
    )


def _known(position: Position, topic_ids: Mapping[str, str]) -> Position:
    """Return a position with the ids of its topics that are known now."""
    places = {
        topic: replace(place, topic_id=topic_ids[topic] or place.topic_id)
        for topic, place in position.places.items()
    }
    return replace(position, places=places)


def _anew(found: Position, topic_ids: Mapping[str, str]) -> Position | None:
    """Return a position without state, in keys that nothing was written to yet, if another topic has the name of one
    of them: nothing of the former one's state counts. None if all are the same."""
    others = {
        topic
        for topic, place in found.places.items()
        if place.topic_id and topic_ids.get(topic) and place.topic_id != topic_ids[topic]
    }
    if not others:
        return None
    places = {
        topic: Place(topic_id=topic_ids[topic]) if topic in others else replace(place, top=None, done=0)
        for topic, place in found.places.items()
    }
    history = topic_ids[min(others)]
    return Position(places, found.seq, history, found.rebuild + 1, found.time)


def _emptied(position: Position, rebuild: int) -> Position:
    places = {topic: replace(place, done=0) for topic, place in position.places.items()}
    return replace(position, places=places, rebuild=rebuild, variables={}, time_mode="")


def _differ(found: Position | None, group: Mapping[str, _OfGroup | None], end: int, rebuild: int) -> str:
    if found is None:
        changelog = "has no position, and no state that could be read"
    elif found.places.keys() != group.keys():
        changelog = (
            f"has the state of {_listed(found.places)}, and the settings have the state of {_listed(group)} in one; "
            f"set 'state' back, or begin with empty state. It is at commit {found.seq}"
        )
    else:
        at = {topic: f"offset {place.offset}{_after(place.move)}" for topic, place in found.places.items()}
        changelog = f"is at {_of_each(at)}, commit {found.seq}"
    of_group = {
        topic: "nothing"
        if one is None
        else f"offset {one.offset}, commit {one.seq or 'without state'}{_after(one.move)}"
        for topic, one in group.items()
    }
    other = f"is at {_of_each(of_group)}"
    if rebuild > (found.rebuild if found is not None else 0):
        other += f", rebuild {rebuild}, before which no state is read"
    return f"its changelog (end {end}) {changelog}; the group {other}"


def _after(move: str) -> str:
    return f", after seek {move}" if move else ""


def _of_each(texts: Mapping[str, str]) -> str:
    """Say what is so of each topic; of a single one without its name."""
    if len(texts) == 1:
        return next(iter(texts.values()))
    return ", ".join(f"{text} of topic {topic!r}" for topic, text in texts.items())


def _listed(topics: Collection[str]) -> str:
    return " and ".join(map(repr, topics))


def moved(
    now: Position, offsets: Mapping[str, int], notes: Mapping[str, Note], seek: Seek | None = None
) -> Position:
    """Return the position after a commit without a batch: one more, at `offsets`, with `notes`, each by topic, and
    after `seek` if that is in the notes.

    What a seek has read again is not late, so it resets the watermark; stores of other hosts are restored.
    """
    at = {topic: offsets.get(topic, place.offset) for topic, place in now.places.items()}
    after = {topic: replace(place, offset=at[topic]) for topic, place in now.places.items()}
    sought = {topic for topic, note in notes.items() if note.sought != now.places[topic].move}
    if not sought:
        return replace(now, places=after, seq=now.seq + 1)
    skips = seek is not None and seek.state is SeekState.SKIP
    for topic in sought:
        place = now.places[topic]
        done, top = (max(place.offset, place.done), place.top) if skips else (0, None)
        after[topic] = Place(at[topic], notes[topic].sought, done, top, place.topic_id)
    new = replace(now, places=after, seq=now.seq + 1, history=notes[min(sought)].sought)
    rebuilds = seek is not None and not skips and (seek.rebuild or seek.state is SeekState.REBUILD)
    number = max(now.rebuild + 1, *(note.rebuild for note in notes.values())) if rebuilds else 0
    return _emptied(new, number) if rebuilds else new
