"""A Kafka of one shard, its owners, and a judge of all that lands: histories of claims, commits, deaths and harm.

The owners keep their state with the product's `States` on real local stores, each host its own. An owner can be
frozen at each `yield`, and goes on later as if nothing had happened. `without` leaves a rule out, which lets some
history break a promise:

- claim_first: an owner claims before it reads group and changelog
- compare, compare_all: it does not run where the two differ, in any part
- claim_again: after an unknown outcome it claims and reads again
- end: a transaction fails if the changelog does not end where its owner left it
- ack: the store changes after the acknowledgement
- both: a seek is one transaction of both positions
- watermark: a seek resets the watermark, unless it skips
- skip: if it does, records that have changed the state do not change it again
- rebuild: a rebuild raises its number, and nothing is read that was written under a lower one
- number: the group has that number, too
- once: a seek whose id is in the position was carried out, though it is still asked for
- choice: such a seek is no choice where the two differ
- afresh: a choice restores the store of the host that carries it out
- orphans: keys without a position are not read
- history: a store of another history is restored
- age: a store that was not current for long is restored
- time: processing time never goes back
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from muster.consumer.state import shards
from muster.consumer.state.position import ANYWHERE, FIRST, KEY, Position, TakenUp
from muster.consumer.state.shards import Computed, States
from muster.core.model import Seek, SeekState
from muster.core.ownership import Due, Source, ToRestore
from muster.core.positions import Committed, Note, format_stamp, parse_stamp
from muster.edges.state_changelog import Carried, Landed, Read
from muster.settings.connections import KafkaSettings

RULES = (
    *("claim_first", "compare", "compare_all", "claim_again", "end", "ack", "both", "watermark", "history"),
    *("age", "time", "skip", "rebuild", "number", "once", "choice", "afresh", "orphans"),
)
TP = ("t", 0)
DELAY, RETENTION, MOST = 2, 40, 3
KAFKA = KafkaSettings(config={"bootstrap.servers": "k:1"})


class BrokenError(Exception):
    """A promise does not hold."""


class LostError(Exception):
    """The owner has to claim again: it was fenced off, something does not fit, or the outcome is not known."""


class UnknownError(LostError):
    """The outcome of a transaction is not known."""


@dataclass(frozen=True)
class Record:
    key: bytes
    delta: int
    """What is added; 0 deletes the key."""
    moment: int


def prefix(rebuild: int) -> bytes:
    """What keys of state begin with."""
    return (FIRST + rebuild).to_bytes(4, "big")


def fold(
    state: dict[bytes, bytes], records: list[Record], top: int | None
) -> tuple[dict[bytes, bytes | None], int | None]:
    """What a batch changes, and the largest event time after it."""
    new: dict[bytes, bytes | None] = dict(state)
    watermark = None if top is None else top - DELAY
    for record in records:
        top = record.moment if top is None else max(top, record.moment)
        if watermark is not None and record.moment < watermark:
            continue
        total = int(new.get(record.key) or b"0") + record.delta
        new[record.key] = str(total).encode() if record.delta else None
    return {key: value for key, value in new.items() if value != state.get(key)}, top


class World:
    """Kafka and the judge. `log` is the changelog: offset, key, value, and when it was written."""

    def __init__(self, folder: Path, seed: int, without: str = "") -> None:
        self.random, self.without, self.folder = random.Random(seed), without, folder
        self.input = [self.record() for _ in range(4)]
        self.log: list[tuple[int, bytes, bytes | None, int]] = []
        self.end, self.clock, self.epoch = 0, 100, 0
        self.starts: list[int] = []
        self.group: Committed | None = Committed(0, format_stamp("c", "id"))
        self.seek: Seek | None = None
        """The newest one that was asked for; it stays so when it is carried out."""
        self.carried_out = set[str]()
        self.seeks = 0
        self.late: list[Callable[[], None]] = []
        self.fate = "ok"
        self.assigned: Owner | None = None
        self.owners: list[tuple[Owner, Iterator[None]]] = []
        self.truth, self.state = Position(0, topic_id="id"), dict[bytes, bytes]()
        self.rebuilt, self.done = 0, 0
        """The judge's: the number of the last rebuild, and before which offset nothing changes the state."""
        self.suspect = 0
        """The epoch of the owner that found that changelog and group disagree."""
        self.harmed = False
        """Whether that is no owner's doing."""
        self.landed = 0

    def keeps(self, rule: str) -> bool:
        return rule != self.without

    def record(self) -> Record:
        return Record(
            self.random.choice([b"a", b"b", b"c"]), self.random.choice([0, 1, 2]), self.random.randrange(20)
        )

    @property
    def asks(self) -> bool:
        """Whether a seek is asked for that was not carried out."""
        return self.seek is not None and self.seek.id not in self.carried_out

    # -- Kafka --------------------------------------------------------------------------------------------

    def claim(self) -> int:
        self.epoch += 1
        self.late.clear()
        return self.epoch

    def position(self) -> Position | None:
        """Return where the changelog is."""
        text = {key: value for _, key, value, _ in self.log}.get(KEY)
        return None if text is None else Position.of(text)

    def has_keys(self) -> bool:
        latest = {key: value for _, key, value, _ in self.log if key != KEY}
        return any(value is not None for value in latest.values())

    def look(self, epoch: int) -> None:
        """Take note of what an owner is about to find."""
        found = self.position()
        stamp = None if self.group is None else parse_stamp(self.group.metadata)
        assert stamp is not None
        assert self.group is not None
        there = None if found is None else (found.offset, found.seq, found.move)
        of_group = (self.group.offset, stamp.seq, stamp.note.sought)
        if there != of_group and (there is not None or stamp.seq):
            self.suspect = epoch
            self.check(self.harmed, "a shard waits for a person without a fault")

    def transact(self, epoch: int, carried: Carried, due: Due) -> Landed:
        if epoch != self.epoch:
            raise LostError("fenced")
        if carried.end != self.end and self.keeps("end"):
            raise LostError("the changelog ends elsewhere")
        fate, self.fate = self.fate, "ok"
        if fate == "late":
            self.late.append(lambda: self._land(carried, due, epoch))
        if fate != "ok":
            raise UnknownError(fate)
        return self._land(carried, due, epoch)

    def _land(self, carried: Carried, due: Due, epoch: int) -> Landed:
        position = Position.of(carried.position[1])
        self._judge(carried, position, epoch)
        moves = position.move != self.truth.move
        self.starts.append(self.end)
        for key, value in [*zip(carried.keys, carried.values, strict=True), carried.position]:
            self.log.append((self.end, key, value, self.clock))
            self.end += 1
        self.end += 1
        seq = carried.number
        if moves and not self.keeps("both"):
            seq = parse_stamp(self.group.metadata).seq if self.group is not None else 0  # type: ignore[union-attr]
        note = replace(due.note, rebuild=carried.rebuild if self.keeps("number") else 0)
        self.group = Committed(due.offset, format_stamp("c", "id", note, seq))
        self.truth = position
        self.suspect = 0 if moves else self.suspect
        self.harmed = False
        self.landed += 1
        self.carried_out.add(position.move)
        return Landed(carried, self.end, self.clock)

    def image(self) -> dict[bytes, bytes]:
        mine = prefix(self.rebuilt)
        latest = {key[4:]: value for _, key, value, _ in self.log if key.startswith(mine)}
        return {key: value for key, value in latest.items() if value is not None}

    # -- the judge ----------------------------------------------------------------------------------------

    def check(self, holds: bool, promise: str) -> None:
        if not holds:
            raise BrokenError(promise)

    def _judge(self, carried: Carried, new: Position, epoch: int) -> None:
        old, computed = self.truth, carried.of.computed
        moves = new.move != old.move
        self.check(moves or self.suspect != epoch, "it runs though changelog and group disagree")
        if not moves:
            self.check(self.image() == self.state, "the changelog lacks what was committed")
            self.check(new.seq == old.seq + 1, "a commit does not follow the last one")
        else:
            self.check(self.seek is not None and self.seek.id == new.move, "an older seek is carried out")
            self.check(new.move not in self.carried_out, "a seek is carried out twice")
            self.check(computed is None, "a seek changes state")
            self._judge_seek(new)
        self.check(new.rebuild == self.rebuilt, "it reads what was written under a lower number")
        if computed is None:
            self.check(moves or new.offset == old.offset, "it goes elsewhere without a batch or a seek")
            return
        self.check(new.time >= old.time, "processing time goes back")
        self.check(computed.begin == old.offset, "a batch does not follow the one before")
        changes, top = fold(self.state, self.input[max(computed.begin, self.done) : computed.end], old.top)
        keys = zip(carried.keys, carried.values, strict=True)
        made = {key[4:]: value for key, value in keys if key.startswith(prefix(self.rebuilt))}
        self.check((made, new.top) == (changes, top), "a batch is not what its records say")
        after: dict[bytes, bytes | None] = {**self.state, **changes}
        self.state = {key: value for key, value in after.items() if value is not None}

    def _judge_seek(self, new: Position) -> None:
        assert self.seek is not None
        assert self.group is not None
        there = self.position() or Position(self.group.offset)
        skips = self.seek.state is SeekState.SKIP
        self.check(new.top == (there.top if skips else None), "what was sought back is late")
        done = there.done if there.rebuild == new.rebuild else 0
        self.done = max(there.offset, done) if skips else 0
        if self.seek.rebuild or (self.position() is None and self.has_keys()):
            self.check(new.rebuild > self.rebuilt, "a rebuild does not raise its number")
            self.rebuilt = new.rebuild
        self.state = self.image()  # what a person chose

    # -- what happens -------------------------------------------------------------------------------------

    def step(self) -> None:
        """Let something happen."""
        choice = self.random.random()
        if choice < 0.66:
            self._run_an_owner()
        elif choice < 0.72:
            self.clock += self.random.choice([1, 5, 25, 45])
        elif choice < 0.80:
            self.input.append(self.record())
        elif choice < 0.84:
            self.fate = self.random.choice(["lost", "late"])
        elif choice < 0.87 and self.late:
            self.late.pop(0)()
        elif choice < 0.91:
            self.assigned = Owner(self, self.random.randrange(2), self.random.choice([0, -8]))
            self.owners.append((self.assigned, self.assigned.life()))
        elif choice < (0.97 if self.harmed else 0.93) and not self.asks:
            self.seeks += 1
            how = self.random.choice([*SeekState])
            rebuild = self.clock if how is SeekState.REBUILD else 0
            self.seek = Seek(f"s{self.seeks:03}", self.random.randrange(len(self.input)), rebuild, how)
        elif choice < 0.975:
            self._compact()
        else:
            self._harm()

    def _run_an_owner(self) -> None:
        """The newest most of the time; a frozen one sometimes."""
        if not self.owners:
            self.assigned = Owner(self, 0, 0)
            self.owners.append((self.assigned, self.assigned.life()))
        at = -1 if self.random.random() < 0.75 else self.random.randrange(len(self.owners))
        owner, life = self.owners[at]
        try:
            next(life)
        except StopIteration:
            owner.close()
            self.owners.remove((owner, life))

    def _compact(self) -> None:
        """Keep the last record of each key, and of deletions those that are young."""
        last = {key: offset for offset, key, _, _ in self.log}
        self.log = [
            each
            for each in self.log
            if last[each[1]] == each[0] and (each[2] is not None or self.clock - each[3] < RETENTION)
        ]

    def _harm(self) -> None:
        """Another program sets the group's offset, or the changelog loses its end; a person will have to choose."""
        if not self.starts:
            return
        self.harmed = True
        if self.random.random() < 0.25:
            wrong = self.random.choice(["offset", "seq"])
            stamp = parse_stamp(self.group.metadata) if self.group is not None else None
            assert self.group is not None
            assert stamp is not None
            offset = self.truth.offset if wrong == "seq" else max(0, self.truth.offset - 1)
            seq = stamp.seq + (wrong == "seq")
            self.group = Committed(offset, format_stamp("c", "id", stamp.note, seq))
        else:
            start = self.starts.pop()
            self.log = [each for each in self.log if each[0] < start]
            self.end = start
            self.late.clear()

    def close(self) -> None:
        for owner, _ in self.owners:
            owner.close()


class Changelog:
    """In the place of `ChangelogTopic` and `ChangelogReader`."""

    def __init__(self, world: World) -> None:
        self.world, self.topic, self.where = world, "changelog", "the changelog"
        self.begin, self.end = 0, world.end

    def read(self, begin: int, _wanted: object) -> Iterator[Read]:
        if begin < self.end:
            found = [(key, value) for offset, key, value, _ in self.world.log if begin <= offset < self.end]
            yield Read(found, self.end)

    def close(self) -> None:
        pass


class Owner:
    """A consumer that was given the shard."""

    def __init__(self, world: World, host: int, skew: int) -> None:
        self.world, self.skew = world, skew
        self.states = States("c", f"host{host}", KAFKA, [".*"], world.folder)
        self.states.wall = lambda: float(world.clock)
        self.states.clock = lambda: 0.0
        self.epoch = 0
        self.known = Position(ANYWHERE)
        self.note = Note()

    def life(self) -> Generator[None]:
        world, claims = self.world, True
        while True:
            try:
                yield from self._run(claims)
            except LostError as error:
                claims = world.keeps("claim_again") or not isinstance(error, UnknownError)
            yield
            if world.assigned is not self:  # by ZooKeeper and Consul
                return

    def _run(self, claims: bool) -> Generator[None]:
        world = self.world
        if not claims:
            yield from self._go_on(self.known)
        committed = world.group
        yield
        end = world.end
        self.epoch = world.claim()
        yield
        if world.keeps("claim_first"):
            committed, end = world.group, world.end
        seek = world.seek.id if world.seek is not None else ""
        world.look(self.epoch)
        stamp = None if committed is None else parse_stamp(committed.metadata)
        self.note = Note() if stamp is None else stamp.note
        asked = ToRestore(self.epoch, Source("k:1", "g", "id"), committed, seek)
        taken = self._take_up(asked, end)
        if taken is None or taken.position is None:
            return
        yield
        self.known = taken.position
        if world.seek is not None and not world.keeps("once"):
            self.known = yield from self._commit(world.seek.offset, world.seek)
        if not taken.chosen and taken.position.offset != ANYWHERE:
            self.known = yield from self._commit(taken.position.offset)
        yield from self._go_on(self.known)

    def _take_up(self, asked: ToRestore, end: int) -> TakenUp | None:
        reader = Changelog(self.world)
        reader.end = end
        with (
            mock.patch.object(shards, "ChangelogTopic", lambda *_: mock.Mock(ensure=lambda: "changelog-id")),
            mock.patch.object(shards, "ChangelogReader", lambda *_: reader),
        ):
            return self.states.take_up(TP, asked, lambda: True)

    def _go_on(self, position: Position) -> Generator[None]:
        world = self.world
        while True:
            if world.seek is not None and world.seek.id != position.move:
                position = yield from self._commit(world.seek.offset, world.seek)
            end = min(len(world.input), position.offset + world.random.randrange(1, MOST + 1))
            if end <= position.offset:
                yield
                continue
            computed = self._compute(position, end)
            yield
            self.states.computed({TP: computed})
            self.known = position
            position = yield from self._commit(end)
            self.known = position

    def _compute(self, position: Position, end: int) -> Computed:
        try:
            view, reader = self.states.view(TP, position.offset), self.states.reader(TP)
        except Exception as error:
            raise LostError from error
        try:
            mine = prefix(view.position.rebuild)
            state = {key[4:]: value for key, value in reader.scan(mine)}
        finally:
            reader.close()
        counts = self.world.input[max(position.offset, view.position.done) : end]
        changes, top = fold(state, counts, view.position.top)
        now = max(self.world.clock + self.skew, view.position.time if self.world.keeps("time") else 0)
        after = replace(view.position, time=now, top=top)
        keys = [mine + key for key in changes]
        if not self.world.keeps("ack"):
            shard = self.states._shards[TP]
            shard.store.apply(zip(keys, changes.values(), strict=True), shard.mark, shard.mark)
        return Computed(position.offset, end, after, keys, list(changes.values()))

    def _commit(self, offset: int, seek: Seek | None = None) -> Generator[None, None, Position]:
        self.note = self.note if seek is None else self.note.after(seek)
        due = Due(offset, "id", self.epoch, self.note, seek=seek)
        carried = self.states.carry(TP, due)
        if carried is None:
            raise LostError("no shard")
        yield
        landed = self.world.transact(self.epoch, carried, due)
        yield
        try:
            self.states.landed(TP, landed)
        except Exception as error:
            raise LostError from error
        return Position.of(carried.position[1])

    def close(self) -> None:
        self.states.forget([TP])
        self.states.release()


@contextmanager
def leaving_out(rule: str) -> Iterator[None]:
    """Leave out a rule that is the product's own code."""
    patches: dict[str, tuple[str, Any]] = {
        "compare": ("take_up", _take_all),
        "compare_all": ("take_up", _take_by_offset),
        "watermark": ("moved", lambda now, *more: replace(_moved(now, *more), top=now.top)),
        "skip": ("moved", lambda *what: replace(_moved(*what), done=0)),
        "rebuild": ("moved", lambda now, *more: replace(_moved(now, *more), rebuild=now.rebuild)),
        "history": ("_follows", lambda *_: True),
        "choice": ("take_up", _take_any_choice),
        "afresh": ("_is_outdated", lambda found, *more: _outdated(replace(found, chosen=""), *more)),
        "orphans": ("take_up", lambda *what: _taken(*what[:5])),
        "age": ("OLDEST", float("inf")),
    }
    name, value = patches.get(rule, ("OLDEST", RETENTION / 2))
    with mock.patch.object(shards, "OLDEST", RETENTION / 2), mock.patch.object(shards, name, value):
        yield


_taken, _moved, _outdated = shards.take_up, shards.moved, shards._is_outdated


def _take_all(found: Position | None, committed: Committed | None, *more: Any) -> TakenUp:
    taken = _taken(found, committed, *more)
    return TakenUp(found) if taken.position is None and found is not None else taken


def _take_any_choice(
    found: Position | None, committed: Committed | None, topic_id: str, seek: str, *more: int
) -> TakenUp:
    taken = _taken(found, committed, topic_id, seek and f"{seek}-again", *more)
    return replace(taken, chosen=seek) if taken.chosen else taken


def _take_by_offset(found: Position | None, committed: Committed | None, *more: Any) -> TakenUp:
    taken = _taken(found, committed, *more)
    same = found is not None and committed is not None and found.offset == committed.offset
    return TakenUp(found) if taken.position is None and same else taken


def play(folder: Path, seed: int, steps: int, without: str = "") -> int:
    """Play one history; returns how many commits landed. Raises `BrokenError`."""
    world = World(folder, seed, without)
    with leaving_out(without):
        try:
            for _ in range(steps):
                world.step()
        finally:
            world.close()
    return world.landed
