"""Brings the stores of shards that this consumer stands by for to the end of their changelogs, and keeps them there.

It also finds what is on the disk of other shards, and how far that is behind, so that plans go by it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from muster.consumer.agent import Agent
from muster.consumer.problems import of_partition
from muster.consumer.state.errors import StateError, StateStoreError
from muster.consumer.state.shards import States
from muster.consumer.state.store import Mark, Store
from muster.consumer.state.stores import bring_on, follows
from muster.core.model import TopicPartition
from muster.core.ownership import Place, Source
from muster.edges.kafka import KafkaError
from muster.edges.state_changelog import Read, changelog_topic
from muster.edges.state_tail import AT_ONCE, LISTEN, ChangelogTail

if TYPE_CHECKING:
    from muster.consumer.lifecycle import Beat  # which imports Spark

log = logging.getLogger(__name__)

LOOK = 30.0
"""Seconds until it looks again at the stores that it does not bring on."""
AGAIN = 10.0
"""Seconds until a store that failed is tried again."""
STILL_CURRENT = 600.0
"""Seconds after which a store that nothing changes notes again that it has everything."""


@dataclass(frozen=True, slots=True)
class _Followed:
    """A store that is brought on, where it is, and whether it began with nothing and has not been at the end yet."""

    source: Source
    store: Store
    mark: Mark
    fresh: bool


class Follower:
    """Watches the agent for shards to stand by for. `run` is the loop, until `stop`."""

    def __init__(self, agent: Agent, states: States) -> None:
        self._agent = agent
        self._states = states
        self._stopped = threading.Event()
        self._followed: dict[TopicPartition, _Followed] = {}
        self._tails: dict[Place, ChangelogTail] = {}
        self._ids: dict[str, tuple[Source, str]] = {}
        """The ids of changelogs that were looked at, by topic."""
        self._again: dict[TopicPartition, float] = {}
        self._looked = -LOOK
        self._known: frozenset[str] | None = None
        """The topics whose place was known at the last look."""

    def stop(self) -> None:
        """End the loop."""
        self._stopped.set()

    def run(self, beat: Beat) -> None:
        """Bring on whatever this consumer stands by for."""
        try:
            while not self._stopped.is_set():
                beat()
                began = time.monotonic()
                try:
                    wait = 0.0 if self._round(beat) else LISTEN
                except Exception:  # who stands by is no reason to end what is read
                    log.exception("following changelogs failed; it is tried again")
                    wait = AGAIN
                # While there is much to read, half of the time is left to batches.
                self._stopped.wait(max(wait, min(LISTEN, time.monotonic() - began)))
        finally:
            for tp in list(self._followed):
                self._let_go(tp)
            for tail in self._tails.values():
                tail.close()

    def _round(self, beat: Beat) -> bool:
        """Do what there is to do; return whether stores are brought on."""
        with self._agent.shared.locked() as own:
            standing = own.standing_by
            sources = {name: topic.source for name, topic in own.topics.items() if topic.source is not None}
            held = frozenset(own.held)
        topics = self._states.topics
        wanted = {
            topics.lead(tp): sources[topics.lead(tp)[0]]
            for tp in standing
            if topics.has(tp[0])
            and held.isdisjoint(topics.shard(tp))
            and sources.keys() >= set(topics.together(tp[0]))
        }
        for tp, one in list(self._followed.items()):
            if wanted.get(tp) != one.source or not self._states.stores.stands_by(tp, one.store):
                self._let_go(tp)
        for tp in self._again.keys() - wanted.keys():
            self._fails(tp, None)
        self._states.stores.copies.to_follow(wanted)
        now = time.monotonic()
        for tp in sorted(wanted.keys() - self._followed.keys()):
            if self._again.get(tp, 0.0) <= now:
                self._begin(tp, wanted[tp], [sources[topic].topic_id for topic in topics.together(tp[0])])
                beat()
        for place, tail in self._tails.items():
            self._read(place, tail)
        if now - self._looked > LOOK or self._known != sources.keys():
            self._looked, self._known = now, frozenset(sources)
            self._look(sources, beat)
        return bool(self._followed)

    def _begin(self, tp: TopicPartition, source: Source, topic_ids: Sequence[str]) -> None:
        lock = self._states.stores.opening(tp)
        if not lock.acquire(blocking=False):
            return  # it is taken up, or let go of
        try:
            self._states.stores.stand_down(tp)
            if self._states.stores.is_open(tp):
                return  # this consumer had it until now, and closes it in a moment
            ids = self._changelog_id(tp[0], source), *topic_ids
            begin, end = self._tail(source).bounds(_changelog(self._states, tp))
            store, _ = self._states.stores.open(tp, ids, end)
            try:
                mark = store.mark
                self._tail(source).follow(_changelog(self._states, tp), max(begin, mark.upto))
            except BaseException:
                self._states.stores.close(tp, store)
                raise
            self._states.stores.stand_by(tp, store)
            self._followed[tp] = _Followed(source, store, mark, mark.upto == 0)
        except (KafkaError, StateStoreError, StateError) as error:
            self._ids.pop(tp[0], None)
            self._fails(tp, str(error))
        finally:
            lock.release()

    def _changelog_id(self, topic: str, source: Source) -> str:
        known = self._ids.get(topic)
        if known is None or known[0] != source:
            known = self._ids[topic] = source, self._states.changelog(topic, source).ensure()
        return known[1]

    def _tail(self, source: Source) -> ChangelogTail:
        if source.place not in self._tails:
            self._tails[source.place] = ChangelogTail(
                self._states.kafka.at(source.bootstrap_servers), source.group_id
            )
        return self._tails[source.place]

    def _read(self, place: Place, tail: ChangelogTail) -> None:
        changelogs = {
            _changelog(self._states, tp): tp
            for tp, one in self._followed.items()
            if one.source.place == place
        }
        if not changelogs:
            return
        reads, failed = tail.read(AT_ONCE, LISTEN)
        for where, read in reads.items():
            if (tp := changelogs.get(where)) is not None:
                self._bring_on(tp, read)
        for where, error in failed.items():
            if (tp := changelogs.get(where)) is not None:
                self._let_go(tp)
                self._ids.pop(tp[0], None)
                self._fails(tp, str(error))
        for where, tp in changelogs.items():
            if where not in reads and (one := self._followed.get(tp)) is not None:
                self._note(tp, one, tail.seen_end(where))

    def _bring_on(self, tp: TopicPartition, read: Read) -> None:
        one, where = self._followed[tp], _changelog(self._states, tp)
        tail = self._tails[one.source.place]
        lock = self._states.stores.opening(tp)
        if not lock.acquire(blocking=False):
            self._let_go(tp)  # it is taken up, which closes the store
            return
        try:
            if not self._states.stores.stands_by(tp, one.store):
                return
            end = tail.seen_end(where) or read.upto
            current = self._states.wall() if read.upto >= end else one.mark.current
            read = replace(read, upto=max(read.upto, one.mark.upto))
            mark, position = bring_on(
                one.store, one.mark, read, one.fresh, current, f"changelog {where[0]!r}"
            )
            if not one.fresh and position is not None and not follows(position, one.mark):
                log.info("topic %r, partition %d: its state has another history; it is read again", *tp)
                one.store.clear(self._states.wall())
                tail.drop([where])
                tail.follow(where, tail.bounds(where)[0])
                self._followed[tp] = replace(one, mark=one.store.mark, fresh=True)
                self._states.stores.copies.begin(tp, 0, end)
                return
            self._followed[tp] = replace(one, mark=mark, fresh=one.fresh and read.upto < end)
            self._states.stores.copies.came(tp, mark.upto, end, one.store.count()[1])
            self._fails(tp, None)  # only now: Kafka refuses a user without Read with the first fetch
        except (KafkaError, StateStoreError, StateError) as error:
            self._forget(tp)
            self._states.stores.stand_down(tp)
            self._fails(tp, str(error))
        finally:
            lock.release()

    def _note(self, tp: TopicPartition, one: _Followed, end: int | None) -> None:
        """Take note of where a changelog ends of which nothing was read now."""
        lock = self._states.stores.opening(tp)
        if end is None or not lock.acquire(blocking=False):
            return
        try:
            if not self._states.stores.stands_by(tp, one.store):
                return  # it was taken up, and its owner says how far it is
            self._states.stores.copies.came(tp, one.mark.upto, end)
        finally:
            lock.release()
        if one.mark.upto >= end and self._states.wall() - one.mark.current > STILL_CURRENT:
            self._bring_on(tp, Read([], end))

    def _let_go(self, tp: TopicPartition) -> None:
        """Bring a store on no further. If its lock is taken, the shard is taken up, which closes the store."""
        one, lock = self._forget(tp), self._states.stores.opening(tp)
        if lock.acquire(blocking=False):
            try:
                if self._states.stores.stands_by(tp, one.store):
                    self._states.stores.stand_down(tp)
            finally:
                lock.release()

    def _forget(self, tp: TopicPartition) -> _Followed:
        one = self._followed.pop(tp)
        self._tails[one.source.place].drop([_changelog(self._states, tp)])
        return one

    def _fails(self, tp: TopicPartition, why: str | None) -> None:
        if why is None:
            self._again.pop(tp, None)
        else:
            self._again[tp] = time.monotonic() + AGAIN
        said = (
            None
            if why is None
            else f"topic {tp[0]!r}, partition {tp[1]}: no copy of its state is kept: {why}"
        )
        self._agent.problems.note(of_partition("standby", tp), said)

    def _look(self, sources: Mapping[str, Source], beat: Beat) -> None:
        """Look at the stores on the disk that are not open, and at the ends of their changelogs."""
        stores = self._states.stores
        try:
            found = stores.tidy()
        except OSError as error:
            log.warning("the state stores in %s cannot be looked at: %s", self._states.folder, error)
            return
        for tp, (mark, size) in found.items():
            end: int | None = None
            if (source := sources.get(tp[0])) is not None and self._states.topics.has(tp[0]):
                try:
                    begin, end = self._tail(source).bounds(_changelog(self._states, tp))
                    end = None if not begin <= mark.upto <= end else end
                except KafkaError as error:
                    log.warning("topic %r, partition %d: how old its copy is is unknown: %s", *tp, error)
            stores.copies.found(tp, mark.upto, end, size)
            beat()
        for tp in stores.copies.view().keys() - found.keys():
            stores.copies.gone(tp)


def _changelog(states: States, tp: TopicPartition) -> TopicPartition:
    """Return the changelog of a topic, and which partition of it is that of a shard."""
    return changelog_topic(states.cluster, tp[0]), tp[1]
