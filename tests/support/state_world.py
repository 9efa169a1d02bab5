"""A Kafka of one shard, its owners, and a judge of all that lands: histories of claims, commits, deaths and harm.

The shard has one topic or two.

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
- afresh: a store with a commit that the changelog has lost is restored, and that of the host that carries a choice
  out
- orphans: keys without a position are not read
- history: a store of another history is restored
- age: a store that was not current for long is restored
- time: processing time never goes back
- every_offset: a transaction holds the offsets of all topics
- every_place: owner compares the group's offsets of all topics
- smaller: the watermark is the smaller one of the topics
- whole_seek: a seek covers all topics
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from muster.consumer.state import shards
from muster.consumer.state.position import ANYWHERE, FIRST, KEY, Place, Position, TakenUp
from muster.consumer.state.shards import Computed, States
from muster.core.model import Seek, SeekState
from muster.core.ownership import Due, Source, ToRestore
from muster.core.positions import Committed, Note, Stamp, format_stamp, parse_stamp
from muster.core.state_topics import StateTopics
from muster.edges.state_changelog import Carried, Landed, Read
from muster.settings.connections import KafkaSettings
from tests.support.state_rules import RETENTION, leaving_out

RULES = (
    *("claim_first", "compare", "compare_all", "claim_again", "end", "ack", "both", "watermark", "history"),
    *("age", "time", "skip", "rebuild", "number", "once", "choice", "afresh", "orphans"),
    *("every_offset", "every_place", "smaller", "whole_seek"),
)
OF_SEVERAL = {"every_offset", "every_place", "smaller", "whole_seek"}
"""The rules that only shards of several topics need."""
TP = ("t", 0)
TOPICS = ("t", "u")
DELAY, MOST = 2, 3
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


Tops = dict[str, int | None]
Ranges = Mapping[str, tuple[int, int]]


def fold(
    state: dict[bytes, bytes], records: Mapping[str, list[Record]], tops: Tops, top: int | None
) -> tuple[dict[bytes, bytes | None], Tops]:
    """What a batch changes, of which the largest event time was `top`, and the largest event times after it."""
    new: dict[bytes, bytes | None] = dict(state)
    tops = dict(tops)
    watermark = None if top is None else top - DELAY
    for topic, record in [(each, record) for each in tops for record in records.get(each, ())]:
        before = tops[topic]
        tops[topic] = record.moment if before is None else max(before, record.moment)
        if watermark is not None and record.moment < watermark:
            continue
        total = int(new.get(record.key) or b"0") + record.delta
        new[record.key] = str(total).encode() if record.delta else None
    return {key: value for key, value in new.items() if value != state.get(key)}, tops


def tops_of(position: Position) -> Tops:
    return {topic: place.top for topic, place in position.places.items()}


def smallest(tops: Tops) -> int | None:
    known = [top for top in tops.values() if top is not None]
    return min(known) if len(known) == len(tops) else None


class World:
    """Kafka and the judge. `log` is the changelog: offset, key, value, and when it was written."""

    def __init__(self, folder: Path, seed: int, without: str = "", topics: tuple[str, ...] = ("t",)) -> None:
        self.random, self.without, self.folder, self.topics = random.Random(seed), without, folder, topics
        self.input = {topic: [self.record() for _ in range(4)] for topic in topics}
        self.log: list[tuple[int, bytes, bytes | None, int]] = []
        self.end, self.clock, self.epoch = 0, 100, 0
        self.starts: list[int] = []
        self.group = {topic: Committed(0, format_stamp("c", "id")) for topic in topics}
        self.seek: Seek | None = None
        """The newest one that was asked for; it stays so when it is carried out."""
        self.goes_to: dict[str, int] = {}
        """Its offsets."""
        self.carried_out = set[str]()
        self.seeks = 0
        self.late: list[Callable[[], None]] = []
        self.fate = "ok"
        self.assigned: Owner | None = None
        self.owners: list[tuple[Owner, Iterator[None]]] = []
        self.truth = Position({topic: Place(0, topic_id="id") for topic in topics})
        self.state = dict[bytes, bytes]()
        self.rebuilt, self.done = 0, dict.fromkeys(topics, 0)
        """The judge's: the number of the last rebuild, and before which offsets nothing changes the state."""
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
        stamps = {topic: self.stamp(topic) for topic in self.topics}
        there = {
            topic: None
            if found is None
            else (found.places[topic].offset, found.seq, found.places[topic].move)
            for topic in self.topics
        }
        of_group = {topic: (self.group[topic].offset, s.seq, s.note.sought) for topic, s in stamps.items()}
        if there != of_group and (found is not None or any(s.seq for s in stamps.values())):
            self.suspect = epoch
            self.check(self.harmed, "a shard waits for a person without a fault")

    def stamp(self, topic: str) -> Stamp:
        stamp = parse_stamp(self.group[topic].metadata)
        assert stamp is not None
        return stamp

    def transact(self, epoch: int, carried: Carried, due: Mapping[str, Due]) -> Landed:
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

    def _land(self, carried: Carried, due: Mapping[str, Due], epoch: int) -> Landed:
        position = Position.of(carried.position[1])
        self._judge(carried, position, epoch)
        moves = self.moves(position)
        self.starts.append(self.end)
        for key, value in [*zip(carried.keys, carried.values, strict=True), carried.position]:
            self.log.append((self.end, key, value, self.clock))
            self.end += 1
        self.end += 1
        computed = carried.of.computed
        for topic, one in due.items():
            if not self.keeps("every_offset") and computed is not None and topic not in computed.ranges:
                continue
            seq = self.stamp(topic).seq if moves and not self.keeps("both") else carried.number
            note = replace(one.note, rebuild=carried.rebuild if self.keeps("number") else 0)
            self.group[topic] = Committed(one.offset, format_stamp("c", "id", note, seq))
        self.truth = position
        self.suspect = 0 if moves else self.suspect
        self.harmed = False
        self.landed += 1
        self.carried_out |= {place.move for place in position.places.values()}
        return Landed(carried, self.end, self.clock)

    def image(self) -> dict[bytes, bytes]:
        mine = prefix(self.rebuilt)
        latest = {key[4:]: value for _, key, value, _ in self.log if key.startswith(mine)}
        return {key: value for key, value in latest.items() if value is not None}

    def moves(self, new: Position) -> bool:
        return any(place.move != self.truth.places[topic].move for topic, place in new.places.items())

    # -- the judge ----------------------------------------------------------------------------------------

    def check(self, holds: bool, promise: str) -> None:
        if not holds:
            raise BrokenError(promise)

    def _judge(self, carried: Carried, new: Position, epoch: int) -> None:
        old, computed = self.truth, carried.of.computed
        moves = self.moves(new)
        self.check(moves or self.suspect != epoch, "it runs though changelog and group disagree")
        if not moves:
            self.check(self.image() == self.state, "the changelog lacks what was committed")
            self.check(new.seq == old.seq + 1, "a commit does not follow the last one")
        else:
            asked = None if self.seek is None else self.seek.id
            found = {place.move for place in new.places.values()}
            self.check(asked in found and len(found) == 1, "an older seek is carried out, or half of one")
            self.check(asked not in self.carried_out, "a seek is carried out twice")
            self.check(computed is None, "a seek changes state")
            self._judge_seek(new)
        self.check(new.rebuild == self.rebuilt, "it reads what was written under a lower number")
        if computed is None:
            same = all(place.offset == old.places[topic].offset for topic, place in new.places.items())
            self.check(moves or same, "it goes elsewhere without a batch or a seek")
            return
        self.check(new.time >= old.time, "processing time goes back")
        follows = all(begin == old.places[topic].offset for topic, (begin, _) in computed.ranges.items())
        self.check(follows, "a batch does not follow the one before")
        tops = tops_of(old)
        changes, tops = fold(self.state, self.records(computed.ranges, self.done), tops, smallest(tops))
        keys = zip(carried.keys, carried.values, strict=True)
        made = {key[4:]: value for key, value in keys if key.startswith(prefix(self.rebuilt))}
        self.check((made, tops_of(new)) == (changes, tops), "a batch is not what its records say")
        after: dict[bytes, bytes | None] = {**self.state, **changes}
        self.state = {key: value for key, value in after.items() if value is not None}

    def _judge_seek(self, new: Position) -> None:
        assert self.seek is not None
        there = self.position() or Position({topic: Place(self.group[topic].offset) for topic in self.topics})
        skips = self.seek.state is SeekState.SKIP
        tops = tops_of(there) if skips else dict.fromkeys(self.topics)
        self.check(tops_of(new) == tops, "what was sought back is late")
        for topic, place in there.places.items():
            done = place.done if there.rebuild == new.rebuild else 0
            self.done[topic] = max(place.offset, done) if skips else 0
        if self.seek.rebuild or (self.position() is None and self.has_keys()):
            self.check(new.rebuild > self.rebuilt, "a rebuild does not raise its number")
            self.rebuilt = new.rebuild
        self.state = self.image()  # what a person chose

    def topic(self) -> str:
        """Return one of the topics."""
        return self.topics[0] if len(self.topics) == 1 else self.random.choice(self.topics)

    def records(self, ranges: Ranges, done: Mapping[str, int]) -> dict[str, list[Record]]:
        """Return the records of a batch that count."""
        return {t: self.input[t][max(begin, done[t]) : end] for t, (begin, end) in ranges.items()}

    # -- what happens -------------------------------------------------------------------------------------

    def step(self) -> None:
        """Let something happen."""
        choice = self.random.random()
        if choice < 0.66:
            self._run_an_owner()
        elif choice < 0.72:
            self.clock += self.random.choice([1, 5, 25, 45])
        elif choice < 0.80:
            self.input[self.topic()].append(self.record())
        elif choice < 0.84:
            self.fate = self.random.choice(["lost", "late"])
        elif choice < 0.87 and self.late:
            self.late.pop(0)()
        elif choice < 0.91:
            self.assigned = Owner(self, self.random.randrange(2), self.random.choice([0, -8]))
            self.owners.append((self.assigned, self.assigned.life()))
        elif choice < (0.97 if self.harmed else 0.93) and not self.asks:
            how = self.random.choice([*SeekState])
            rebuild = self.clock if how is SeekState.REBUILD else 0
            self.seek_to(
                {topic: self.random.randrange(len(self.input[topic])) for topic in self.topics}, rebuild, how
            )
        elif choice < 0.975:
            self._compact()
        else:
            self._harm()

    def seek_to(self, offsets: dict[str, int], rebuild: int = 0, how: SeekState | None = None) -> None:
        """Have a person ask for a seek."""
        self.seeks += 1
        self.goes_to = offsets
        self.seek = Seek(f"s{self.seeks:03}", offsets[self.topics[0]], rebuild, how)

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
            wrong, topic = self.random.choice(["offset", "seq"]), self.topic()
            stamp, there = self.stamp(topic), self.truth.places[topic].offset
            offset = there if wrong == "seq" else max(0, there - 1)
            seq = stamp.seq + (wrong == "seq")
            self.group[topic] = Committed(offset, format_stamp("c", "id", stamp.note, seq))
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
            found = [each for each in self.world.log if begin <= each[0] < self.end]
            yield Read([each[1:3] for each in found], self.end, max((each[0] for each in found), default=-1))

    def close(self) -> None:
        pass


class Owner:
    """A consumer that was given the shard."""

    def __init__(self, world: World, host: int, skew: int) -> None:
        self.world, self.skew = world, skew
        topics = StateTopics([world.topics] if len(world.topics) > 1 else [".*"])
        self.states = States("c", f"host{host}", KAFKA, topics, world.folder)
        self.states.wall = lambda: float(world.clock)
        self.states.clock = lambda: 0.0
        self.epoch = 0
        self.known = Position({topic: Place() for topic in world.topics})
        self.notes = dict.fromkeys(world.topics, Note())

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
        committed = dict(world.group)
        yield
        end = world.end
        self.epoch = world.claim()
        yield
        if world.keeps("claim_first"):
            committed, end = dict(world.group), world.end
        seek = world.seek.id if world.seek is not None else ""
        world.look(self.epoch)
        self.notes = {
            topic: stamp.note for topic, one in committed.items() if (stamp := parse_stamp(one.metadata))
        }
        ids = dict.fromkeys(world.topics, "id")
        asked = ToRestore(self.epoch, Source("k:1", "g", "id"), committed, ids, seek)
        taken = self._take_up(asked, end)
        if taken is None or taken.position is None:
            return
        yield
        self.known = taken.position
        if world.seek is not None and not world.keeps("once"):
            self.known = yield from self._commit(world.goes_to, world.seek)
        if not taken.chosen:
            self.known = yield from self._commit(offsets_of(taken.position))
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
            if world.seek is not None and world.seek.id not in {p.move for p in position.places.values()}:
                position = yield from self._commit(world.goes_to, world.seek)
            ranges = {}
            for topic, place in position.places.items():
                end = min(len(world.input[topic]), place.offset + world.random.randrange(1, MOST + 1))
                if place.offset < end and (len(world.topics) == 1 or world.random.random() < 0.7):
                    ranges[topic] = (place.offset, end)
            if not ranges:
                yield
                continue
            computed = self._compute(position, ranges)
            yield
            self.states.computed({TP: computed})
            self.known = position
            position = yield from self._commit({topic: end for topic, (_, end) in ranges.items()})
            self.known = position

    def _compute(self, position: Position, ranges: Ranges) -> Computed:
        try:
            begins = {topic: begin for topic, (begin, _) in ranges.items()}
            view, reader = self.states.view(TP, begins), self.states.reader(TP)
        except Exception as error:
            raise LostError from error
        try:
            mine = prefix(view.position.rebuild)
            state = {key[4:]: value for key, value in reader.scan(mine)}
        finally:
            reader.close()
        places = view.position.places
        counts = self.world.records(ranges, {topic: place.done for topic, place in places.items()})
        tops = tops_of(view.position)
        top = max((one for one in tops.values() if one is not None), default=None)
        top = view.position.top if self.world.keeps("smaller") else top
        changes, tops = fold(state, counts, tops, top)
        now = max(self.world.clock + self.skew, view.position.time if self.world.keeps("time") else 0)
        places = {topic: replace(place, top=tops[topic]) for topic, place in places.items()}
        after = replace(view.position, time=now, places=places)
        keys = [mine + key for key in changes]
        if not self.world.keeps("ack"):
            shard = self.states._shards[TP]
            shard.store.apply(zip(keys, changes.values(), strict=True), shard.mark, shard.mark)
        return Computed(ranges, after, keys, list(changes.values()))

    def _commit(self, offsets: dict[str, int], seek: Seek | None = None) -> Generator[None, None, Position]:
        """Commit, also the topics that are not in `offsets`, where they are. Of a seek this owner may have read that
        of one topic alone."""
        if seek is not None:
            half = len(self.notes) > 1 and self.world.random.random() < 0.3
            self.notes = {
                t: note if half and t != TP[0] else note.after(seek) for t, note in self.notes.items()
            }
        offsets = {**offsets_of(self.known), **offsets}
        due = {
            (topic, 0): Due(offset, "id", self.epoch, self.notes[topic], seek=seek)
            for topic, offset in offsets.items()
        }
        carried = self.states.carry(TP, due)
        if carried is None:
            raise LostError("no shard")
        yield
        landed = self.world.transact(self.epoch, carried, {topic: one for (topic, _), one in due.items()})
        yield
        try:
            self.states.landed(TP, landed)
        except Exception as error:
            raise LostError from error
        return Position.of(carried.position[1])

    def close(self) -> None:
        self.states.keep({})
        self.states.stores.release()


def offsets_of(position: Position) -> dict[str, int]:
    return {topic: place.offset for topic, place in position.places.items() if place.offset != ANYWHERE}


def play(folder: Path, seed: int, steps: int, without: str = "", topics: tuple[str, ...] = TOPICS) -> int:
    """Play one history; returns how many commits landed. Raises `BrokenError`."""
    world = World(folder, seed, without, topics)
    with leaving_out(without):
        try:
            for _ in range(steps):
                world.step()
        finally:
            world.close()
    return world.landed
