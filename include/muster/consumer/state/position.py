"""Where a shard is, in changelog and group, and whether they agree. Pure.

Each transaction of a shard ends with one record of the changelog that holds its `Position`, and commits the same
offset, sequence and last move for the group. An owner claims first and then reads both. Where they differ one of the
two was changed, restored or lost; then the shard does not run, and a person chooses with a seek.

A seek is a *move*: a commit without a batch that writes its id into both. What it does to the state is `SeekState`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
class Position:
    """All that a shard's next batch depends on, besides keys.

    `offset` is the next record to read (`ANYWHERE` before the first), `seq` grows by one with each commit, `move` is
    the id of the last seek, and `history` that of the last one that made stores of other hosts useless. `time` is the
    processing time, `top` the largest event time, in milliseconds; None without one. `rebuild` is the number of the
    topic's last rebuild, as in the metadata of the group's offset: nothing written under a lower one is read. Records
    before `done` do not change the state.
    """

    offset: int
    seq: int = 0
    move: str = ""
    history: str = ""
    rebuild: int = 0
    done: int = 0
    time: int = 0
    top: int | None = None
    topic_id: str = ""
    variables: Mapping[str, Variable] = field(default_factory=dict)
    time_mode: str = ""
    """That of the processor, which says what its timers wait for."""
    format: int = FORMAT

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


def take_up(
    found: Position | None,
    committed: Committed | None,
    topic_id: str,
    seek: str = "",
    end: int = 0,
    highest: int = -1,
) -> TakenUp:
    """Compare what changelog and group say of a shard. `seek` is the id of the seek that is asked for ('': none),
    `end` where the changelog ends, and `highest` the highest rebuild that it has keys of, -1 without keys.

    Keys without a position cannot be read: it says what they mean. So the state begins empty then.
    """
    if committed is not None and of_another_topic(committed.metadata, topic_id):
        committed = None
    if found is not None and found.topic_id and topic_id and found.topic_id != topic_id:
        # Another topic under the same name: nothing of the former one's state counts.
        return TakenUp(_anew(found, topic_id))
    stamp = None if committed is None else parse_stamp(committed.metadata)
    rebuild = stamp.note.rebuild if stamp else 0
    group = (
        None
        if committed is None
        else (committed.offset, stamp.seq if stamp else 0, stamp.note.sought if stamp else "")
    )
    lost = found is None and highest >= 0
    if found is None and group is not None and not (group[1] or lost):
        return TakenUp(Position(group[0], move=group[2], rebuild=rebuild, topic_id=topic_id))
    if found is None and group is None and not lost:
        return TakenUp(Position(ANYWHERE, topic_id=topic_id))
    if found is not None and group == (found.offset, found.seq, found.move):
        return TakenUp(replace(found, topic_id=topic_id or found.topic_id))
    if seek > max(found.move if found else "", group[2] if group else ""):
        seq = max(found.seq if found else 0, group[1] if group else 0)
        offset = found.offset if found else group[0] if group else 0
        last = found or Position(offset, topic_id=topic_id)
        last = replace(last, seq=seq, history=seek, topic_id=topic_id or last.topic_id)
        rebuild = max(rebuild, highest) + 1 if lost else rebuild
        return TakenUp(_emptied(last, rebuild) if rebuild > last.rebuild else last, chosen=seek)
    return TakenUp(None, _differ(found, group, end, rebuild))


def _anew(found: Position, topic_id: str) -> Position:
    """Return a position without state, in keys that nothing was written to yet."""
    return Position(
        ANYWHERE,
        found.seq,
        rebuild=found.rebuild + 1,
        history=topic_id,
        time=found.time,
        topic_id=topic_id,
    )


def _emptied(position: Position, rebuild: int) -> Position:
    return replace(position, rebuild=rebuild, done=0, variables={}, time_mode="")


def _differ(found: Position | None, group: tuple[int, int, str] | None, end: int, rebuild: int) -> str:
    changelog = (
        "has no position, and no state that could be read"
        if found is None
        else f"is at offset {found.offset}, commit {found.seq}"
    )
    if found is not None and found.move:
        changelog += f", after seek {found.move}"
    if group is None:
        other = "has none"
    else:
        other = f"is at offset {group[0]}, commit {group[1] or 'without state'}"
        if group[2]:
            other += f", after seek {group[2]}"
        if rebuild > (found.rebuild if found is not None else 0):
            other += f", rebuild {rebuild}, before which no state is read"
    return f"its changelog (end {end}) {changelog}; the group {other}"


def moved(now: Position, offset: int, note: Note, seek: Seek | None = None) -> Position:
    """Return the position after a commit without a batch: one more, at `offset`, with `note`, and after `seek` if
    that is in the note.

    What a seek has read again is not late, so it resets the watermark; stores of other hosts are restored.
    """
    new = replace(now, offset=offset, seq=now.seq + 1)
    if note.sought == now.move:
        return new
    new = replace(new, move=note.sought, history=note.sought)
    if seek is not None and seek.state is SeekState.SKIP:
        return replace(new, done=max(now.offset, now.done))
    new = replace(new, top=None, done=0)
    rebuilds = seek is not None and (seek.rebuild or seek.state is SeekState.REBUILD)
    return _emptied(new, max(now.rebuild + 1, note.rebuild)) if rebuilds else new
