"""Claims the partitions that are taken up, and commits what was processed, for as long as it takes.

Threads of their own for each place (Kafka cluster and group), so that one that is away holds up no other, that
claiming many partitions does not keep those that run from being committed, that both go on while Kafka is asked which
topics it has, and that a dead letter that cannot be written delays no commit for long. While a place is away they try
again with a growing pause; each attempt takes what is due then, and reading goes on for
`muster.core.ownership.LONGEST_UNCOMMITTED`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from muster.consumer.agent import Agent
from muster.consumer.commits import Commits, GuardedCommits
from muster.consumer.state.errors import StateStoreError
from muster.core.model import TopicPartition
from muster.core.ownership import Due, Ownership, Place
from muster.core.parking import Answer
from muster.core.positions import Committed, by_others, format_stamp, of_another_cluster
from muster.edges.commit_outcome import NO_LETTERS, CommitOutcome, Letters
from muster.edges.dead_letters import DeadLetterTopic, Record, ToWrite, letter
from muster.edges.kafka import GroupOffsets, Identities, KafkaError, PartitionError, TopicLister
from muster.edges.kafka_admin import name_partitions
from muster.edges.kafka_fencing import FencedCommits
from muster.edges.record_reader import RecordReader
from muster.settings.connections import KafkaSettings

if TYPE_CHECKING:
    from muster.consumer.lifecycle import Beat  # which imports Spark
    from muster.consumer.state.shards import States  # which imports LMDB

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
"""Seconds between two attempts, at first and at most."""
LOOK_UP = 1.0
"""Seconds of a wait for work, until it is seen whether to stop; and of the end of a thread."""
TOPICS_LOOK = 2.0
"""Seconds between two looks at the topics' ids. What is read of a topic in between is read again when its new id is
known."""
COMMITS_LOOK = 10.0
"""Seconds between two looks at what is committed of partitions that have nothing to commit; the others are looked at
before each commit."""
SHARE = 50
"""A look that takes long is followed by a pause of so many times that: many partitions cost Kafka and this process
time, and the looks must take no more than two per cent of it."""
LONGEST_LOOK = 60.0
"""Seconds of that pause at most: one slow answer must not hide for minutes that a topic was created again."""
GONE_AFTER = 10.0
"""Seconds for which Kafka does not know a topic until it counts as gone, if a list of all topics agrees."""


class Committer:
    """Watches the agent for partitions to claim and offsets that are due. `run` is the loop, until `stop`.

    With `fencing`, the broker refuses the commits of a former owner; see `muster.consumer.commits`.
    """

    def __init__(
        self,
        agent: Agent,
        kafka: KafkaSettings,
        cluster: str,
        fencing: bool,
        dead_letter_topic: str = "",
        states: States | None = None,
    ) -> None:
        self._states = states
        self._agent = agent
        self._kafka = kafka
        self._cluster = cluster
        self._fencing = fencing
        self._dead_letter_topic = dead_letter_topic
        self._stopped = threading.Event()
        self._places: dict[Place, PlaceWorker] = {}

    def stop(self) -> None:
        """End the loop, and everything that is being tried again."""
        self._stopped.set()

    def run(self, beat: Beat) -> None:
        """Serve each place where something becomes due. Raises RuntimeError if one of its threads dies."""
        try:
            while not self._stopped.is_set():
                beat()
                for place in self._agent.wait_for_place(self._places.keys(), timeout=LOOK_UP):
                    self._places[place] = self._open(place)
                for place, worker in self._places.items():
                    if not worker.alive and not self._stopped.is_set():
                        raise RuntimeError(f"a thread that commits for {place} has ended; the log says why")
        finally:
            self._stopped.set()
            for worker in self._places.values():
                worker.close()

    def _open(self, place: Place) -> PlaceWorker:
        settings = self._kafka.at(place.bootstrap_servers)
        group = GroupOffsets(settings, place.group_id)
        commits: Commits = (
            FencedCommits(settings, self._cluster, group, self._agent.states.topics)
            if self._fencing
            else GuardedCommits(group)
        )
        letters = (
            DeadLetters(settings, place.group_id, self._dead_letter_topic)
            if self._fencing and self._dead_letter_topic
            else None
        )
        worker = PlaceWorker(
            self._agent, self._cluster, place, group, commits, self._stopped, letters, self._states
        )
        worker.start()
        return worker


class DeadLetters:
    """What dead letters of a place need: where they go, and the records themselves."""

    def __init__(self, settings: KafkaSettings, group_id: str, topic: str) -> None:
        self.topic = DeadLetterTopic(settings, topic)
        self.records = RecordReader(settings, group_id)


class PlaceWorker:
    """One Kafka cluster and group. `claim`, `commit`, `dead_letter` and `look_at_topics` are each one
    round of a thread.

    Each partition whose claim was asked for is in `_claims`, with its claim epoch, until it is released. That
    includes claims that failed: until then they may take effect.
    """

    def __init__(
        self,
        agent: Agent,
        cluster: str,
        place: Place,
        group: GroupOffsets,
        commits: Commits,
        stopped: threading.Event,
        letters: DeadLetters | None = None,
        states: States | None = None,
    ) -> None:
        self._states = states
        self._agent = agent
        self._cluster = cluster
        self._place = place
        self._group = group
        self._commits = commits
        self._stopped = stopped
        self._letters = letters
        self._committing = threading.Lock()
        self._claims: dict[TopicPartition, int] = {}
        self._rebuilds: dict[tuple[TopicPartition, int], int] = {}
        """The numbers that were committed, by partition and claim epoch."""
        self._fenced: dict[TopicPartition, int] = {}
        self._commit_failed = False
        self._look_due = 0.0
        self._topics = TopicWatch(group.topics)
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads."""
        where = f"group {self._place.group_id} at {self._place.bootstrap_servers}"
        for name, wait, work, sleep in (
            (f"commit of {where}", self._wait_for_due, self.commit, self._stopped.wait),
            (f"taking up partitions of {where}", self._wait_for_claims, self.claim, self._wait_for_release),
            (
                f"identity of the topics of {where}",
                self._wait_for_topics,
                self.look_at_topics,
                self._stopped.wait,
            ),
            (f"dead letters of {where}", self._wait_for_letters, self.dead_letter, self._stopped.wait),
        ):
            thread = threading.Thread(
                target=self._serve, args=(name, wait, work, sleep), name=f"muster-{name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    @property
    def alive(self) -> bool:
        """Whether all threads run."""
        return all(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        """Let go of the connections; a call under way ends by itself."""
        for thread in self._threads:
            thread.join(LOOK_UP)
        self._commits.close()
        self._group.close()

    def _serve(
        self,
        key: str,
        wait: Callable[[], bool],
        work: Callable[[], None],
        sleep: Callable[[float], object],
    ) -> None:
        """Do `work` whenever `wait` finds some, and try it again after a growing pause for as long as it fails."""
        pause = 0.0
        try:
            while not self._stopped.is_set():
                if not pause and not wait():
                    continue
                try:
                    work()
                except KafkaError as error:
                    self._agent.problems.note(key, str(error))
                    pause = min(2 * pause or FIRST_PAUSE, LONGEST_PAUSE)
                    sleep(pause)
                else:
                    pause = 0.0
                    self._agent.problems.note(key, None)
        except Exception:
            log.exception("%s: stopped", key)

    # -- commits ------------------------------------------------------------------------------------------

    def _wait_for_due(self) -> bool:
        return self._agent.shared.wait_for(
            lambda own: bool(
                own.due(self._agent.clock()).get(self._place) or own.last_looks().get(self._place)
            ),
            timeout=LOOK_UP,
        )

    def commit(self) -> None:
        """Look a last time at what is closing, and commit what is due now. Raises `KafkaError` if it has to be tried
        again."""
        self._look_before_closing()
        due = self._agent.due(self._place)
        if not due:
            return
        began, failed = time.monotonic(), True
        if not self._commit_failed:  # else a commit may still be under way, and Kafka would not tell
            # A Kafka that is away is the commit's business, and must not hold it up.
            with suppress(KafkaError):
                self._look_at_commits(due.keys())
        try:
            outcome = self._commit(due)
            failed = bool(outcome.failed)
        finally:
            self._commit_failed = failed
            self._agent.commit_tried(time.monotonic() - began, failed)
        self._take(due, outcome)
        self._raise_for("committing offsets", outcome.failed)

    def _commit(
        self, due: Mapping[TopicPartition, Due], letters: Mapping[TopicPartition, Letters] = NO_LETTERS
    ) -> CommitOutcome:
        with self._committing:
            # The other thread may have committed a rebuild since these became due; then they are due again.
            due = {
                tp: one
                for tp, one in due.items()
                if one.note.rebuild >= self._rebuilds.get((tp, one.claim_epoch), 0)
            }
            topics = self._agent.states.topics
            carried = {} if self._states is None else self._states.carry_all(due)
            waiting = {tp for tp in due if topics.has(tp[0]) and topics.lead(tp) not in carried}
            due = {tp: one for tp, one in due.items() if tp not in waiting}
            offsets = {key: one.offset for key, one in due.items()}
            stamps = {tp: format_stamp(self._cluster, one.topic_id, one.note) for tp, one in due.items()}
            for tp, one in due.items():
                if (of := carried.get(topics.lead(tp))) is not None:
                    note = replace(one.note, rebuild=of.rebuild)
                    stamps[tp] = format_stamp(self._cluster, one.topic_id, note, of.number)
            if isinstance(self._commits, FencedCommits):
                outcome = self._commits.commit(
                    offsets,
                    stamps,
                    letters,
                    lambda tp, since: self._agent.blocks.owns_still(tp, due[tp].claim_epoch, since),
                    lambda tp: self._begin(tp, due[tp].claim_epoch),
                    lambda tp: self._landed(tp, due[tp].claim_epoch),
                    carried,
                )
            else:
                outcome = self._commits.commit(offsets, stamps)
            outcome.failed.update(dict.fromkeys(waiting, "its state is not at its position yet"))
            self._rebuilds |= {(tp, due[tp].claim_epoch): due[tp].note.rebuild for tp in outcome.done}
            return outcome

    def _take(self, due: Mapping[TopicPartition, Due], outcome: CommitOutcome) -> None:
        broken = self._take_state(outcome)
        if outcome.done:
            # One partition that cannot be committed must not keep the others from being closed.
            done = {key: replace(due[key], offset=at) for key, at in outcome.done.items()}
            if self._states is not None:
                for landed in outcome.landed.values():
                    done |= self._states.due_of(landed)
            self._agent.committed(done)
        for tp, why in broken.items():
            self._agent.blocks.refused(tp, due[tp].claim_epoch, why)
        for (topic, partition), why in sorted(outcome.refused.items()):
            self._agent.blocks.refused(
                (topic, partition),
                due[topic, partition].claim_epoch,
                f"topic {topic!r}, partition {partition}: commit of offset {due[topic, partition].offset} refused: "
                f"{why}; this consumer closes it without committing, and takes it up again only if ZooKeeper "
                "still assigns it and Consul still has it registered",
            )

    def _take_state(self, outcome: CommitOutcome) -> dict[TopicPartition, str]:
        """Bring the local stores to what was committed; return those that failed, which are taken up again."""
        broken: dict[TopicPartition, str] = {}
        if self._states is None:
            return broken
        for tp, landed in outcome.landed.items():
            try:
                self._states.landed(tp, landed)
            except StateStoreError as error:
                why = f"topic {tp[0]!r}, partition {tp[1]}: {error}; it is closed, and taken up again"
                broken |= dict.fromkeys(self._states.due_of(landed), why)
        return broken

    # -- dead letters -------------------------------------------------------------------------------------

    def _wait_for_letters(self) -> bool:
        return bool(self._agent.letters(self._place, timeout=LOOK_UP))

    def dead_letter(self) -> None:
        """Write the dead letters that are due, each with an offset after its record. Raises `KafkaError` if some have
        to be tried again."""
        due = self._agent.letters(self._place)
        if not due:
            return
        if self._letters is None:
            raise KafkaError(
                "dead letters need 'fencing: true' and a topic: set them for the cluster, or skip the records"
            )
        self._letters.topic.ensure()
        about = {tp: self._about(tp, one) for tp, one in due.items()}
        found = self._letters.records.read_all(about)
        letters: dict[TopicPartition, dict[int, ToWrite]] = {}
        ready: dict[TopicPartition, Due] = {}
        for tp, records in found.records.items():
            if records and None in records.values() and not due[tp].letters:
                self._agent.answers.answer(
                    tp, min(records), Answer.SKIP, "Kafka, which has no such record any more"
                )
            elif records:
                unread = about[tp].keys() - records.keys()
                if unread and self._agent.states.topics.has(tp[0]):
                    continue  # what its batch changed is written with all of its letters
                ready[tp] = replace(due[tp], offset=min(unread)) if unread else due[tp]
                letters[tp] = {
                    at: self._letter(record, about[tp][at]) for at, record in records.items() if record
                }
        for tp in due.keys() - ready.keys():  # what is committed with another partition of its shard
            if not about[tp] and ready.keys() & set(self._agent.states.topics.shard(tp)):
                ready[tp] = due[tp]
        outcome = self._commit(ready, letters)
        self._take(ready, outcome)
        for tp, (offset, why) in outcome.too_large.items():
            self._agent.letter_too_large(tp, ready[tp], offset, why)
        if outcome.failed or outcome.too_large:
            self._commit_failed = True
            self._letters.topic.doubt()
        self._raise_for("writing dead letters", found.failed | outcome.failed)

    def _about(self, tp: TopicPartition, due: Due) -> dict[int, dict[str, object]]:
        """Return what the letters say that are to be written with an offset, by the offsets of their records."""
        if due.letters:
            by = "the handler, which rejected it"
            return {at: {"error": error, "attempts": 1, "by": by} for at, error in due.letters}
        record = self._agent.answers.failing.get(tp)
        if record is None or record.offset + 1 != due.offset:
            return {}
        by = self._agent.answers.answered_by(tp)
        return {record.offset: {"error": record.error, "attempts": record.attempts, "by": by}}

    def _letter(self, found: Record, about: Mapping[str, object]) -> ToWrite:
        assert self._letters is not None  # noqa: S101  asked before
        said = {**about, "cluster": self._cluster, "consumer": self._agent.owner}
        return letter(found, self._letters.topic.name, said)

    def _look_before_closing(self) -> None:
        """Look at the group once more for what closes; a Kafka that is out of reach must not hold that up."""
        with self._agent.shared.locked() as own:
            closing = own.last_looks().get(self._place, {})
        if not closing:
            return
        with suppress(KafkaError):
            self._look(closing)
        with self._agent.shared.change() as own:
            own.looked_at(closing)

    def _look_at_commits(self, partitions: Collection[TopicPartition]) -> None:
        """Notice that another program has set or deleted what is committed of these. Raises `KafkaError`."""
        with self._agent.shared.locked() as own:
            known = own.in_group().get(self._place, {})
        self._look({tp: topic_id for tp, topic_id in known.items() if tp in partitions})

    def _look(self, topic_ids: Mapping[TopicPartition, str]) -> None:
        if not topic_ids:
            return
        try:
            found: Mapping[TopicPartition, Committed | None] = self._group.positions(topic_ids.keys())
        except PartitionError as error:
            found = error.offsets
        changed = {tp: there for tp, there in found.items() if there and by_others(there, self._cluster)}
        deleted = self._of_the_same_topics(
            {tp: topic_ids[tp] for tp, there in found.items() if there is None}
        )
        if changed or deleted:
            self._agent.outside.set_by_others({**changed, **dict.fromkeys(deleted)}, self._place.group_id)

    def _of_the_same_topics(self, topic_ids: Mapping[TopicPartition, str]) -> list[TopicPartition]:
        """Return those whose topics still have these ids: Kafka itself drops the offsets of a topic it deletes."""
        if not topic_ids:
            return []
        there = self._group.topics.identities({topic for topic, _ in topic_ids}).ids
        return [tp for tp, topic_id in topic_ids.items() if topic_id and there.get(tp[0]) == topic_id]

    # -- claims -------------------------------------------------------------------------------------------

    def _wait_for_claims(self) -> bool:
        return self._agent.shared.wait_for(
            lambda own: bool(self._unclaimed(own) or self._unused(own)), timeout=LOOK_UP
        )

    def _unclaimed(self, own: Ownership) -> dict[TopicPartition, int]:
        """Return the claims to make, with their claim epochs."""
        return own.unclaimed().get(self._place, {})

    def _unused(self, own: Ownership) -> dict[TopicPartition, int]:
        """Return the claims that were begun and are to be given up."""
        used = own.claims_in_use().get(self._place, {})
        return {tp: claim_epoch for tp, claim_epoch in self._claims.items() if used.get(tp) != claim_epoch}

    def _wait_for_release(self, seconds: float) -> None:
        """Sleep, but not while a claim is to be given up: its partition is closed only after that."""
        until = time.monotonic() + seconds
        while not self._stopped.is_set() and (left := until - time.monotonic()) > 0:
            if self._agent.shared.wait_for(self._unused, min(LOOK_UP, left)):
                return

    def claim(self) -> None:
        """Give up the claims that are not in use any more, and claim what was taken up.

        The group's offsets are read once the claims are made: those of another cluster are not to be touched. Raises
        `KafkaError` if some have to be tried again.
        """
        with self._agent.shared.locked() as own:
            wanted, over = self._unclaimed(own), self._unused(own)
        for tp, claim_epoch in over.items():
            self._release(tp, claim_epoch)
        self._fenced = {tp: epoch for tp, epoch in self._fenced.items() if wanted.get(tp) == epoch}
        if not wanted:
            return
        asked = wanted.keys() - self._fenced.keys()
        self._claims.update(wanted)
        found = self._commits.claim(asked, lambda tp: self._begin(tp, wanted[tp]))
        for tp in asked - found.done - found.failed.keys():
            self._release(tp, wanted[tp])
        self._fenced.update({tp: wanted[tp] for tp in found.done})
        failures = dict(found.failed)
        group = self._read(failures)
        with self._agent.shared.change() as own:
            own.claimed({tp: self._fenced.pop(tp) for tp in group}, self._agent.clock(), group)
        self._raise_for("taking up", failures)

    def _begin(self, tp: TopicPartition, claim_epoch: int) -> bool:
        with self._agent.shared.locked() as own:
            return own.begin_claim(tp, claim_epoch)

    def _landed(self, tp: TopicPartition, claim_epoch: int) -> None:
        with self._agent.shared.change() as own:
            own.claimed({tp: claim_epoch}, self._agent.clock())

    def _read(self, failures: dict[TopicPartition, str]) -> dict[TopicPartition, Committed | None]:
        """Return what the group has of those that are claimed and that no other cluster commits; why not goes to
        `failures`."""
        try:
            found: Mapping[TopicPartition, Committed | None] = self._group.positions(self._fenced.keys())
        except PartitionError as error:
            found = error.offsets
            failures.update(error.errors)
        for key, there in found.items():
            if there is not None and (other := of_another_cluster(there.metadata, self._cluster)):
                failures[key] = (
                    f"its offset was committed by cluster {other!r}, and a group belongs to one cluster: give "
                    f"cluster {self._cluster!r} a 'group_id' of its own; if cluster {other!r} is gone for good, have "
                    f"kafka-consumer-groups --group {self._place.group_id} --all-topics --reset-offsets --to-current "
                    "--execute take its name off the offsets"
                )
        return {key: there for key, there in found.items() if key not in failures}

    def _release(self, tp: TopicPartition, claim_epoch: int) -> None:
        self._claims.pop(tp, None)
        self._rebuilds.pop((tp, claim_epoch), None)
        self._fenced.pop(tp, None)
        self._commits.release([tp], partial(self._released, claim_epoch))

    def _released(self, claim_epoch: int, tp: TopicPartition) -> None:
        with self._agent.shared.change() as own:
            own.claim_ended(tp, claim_epoch)

    # -- topics -------------------------------------------------------------------------------------------

    def _wait_for_topics(self) -> bool:
        return not self._stopped.wait(self._topics.pause(time.monotonic()))

    def look_at_topics(self) -> None:
        """Ask Kafka under which ids it has the topics of this place. Raises `KafkaError`."""
        with self._agent.shared.locked() as own:
            watched = own.watched().get(self._place, set())
        seen = self._topics.look(watched, time.monotonic)
        self._agent.outside.identified(self._place, seen.ids, seen.absent)
        if time.monotonic() >= self._look_due:
            with self._agent.shared.locked() as own:
                idle = own.in_group().get(self._place, {}).keys() - own.due(self._agent.clock()).get(
                    self._place, {}
                )
            self._look_at_commits(idle)
            self._look_due = time.monotonic() + COMMITS_LOOK

    def _raise_for(self, what: str, failures: Mapping[TopicPartition, str]) -> None:
        if failures:
            raise KafkaError(
                f"Kafka at {self._place.bootstrap_servers}: {what} for group {self._place.group_id}: "
                f"{name_partitions(failures)}; it is tried again"
            )


class TopicWatch:
    """Which of a place's topics are there, and under which ids. The times come in.

    A topic that was deleted and created again is known by its id. One that was only deleted is known by its absence,
    and absence is believed late: a broker that has just started, or lags behind, may not know a topic yet.
    """

    def __init__(self, topics: TopicLister) -> None:
        self._topics = topics
        self._absent: dict[str, float] = {}
        self._due = 0.0

    def pause(self, now: float) -> float:
        """Return the seconds until the next look."""
        return max(0.05, self._due - now)

    def look(self, topics: Collection[str], clock: Callable[[], float]) -> Identities:
        """Ask for the ids of `topics`; those that are gone are absent in the answer. Raises `KafkaError`."""
        began = clock()
        self._due = began + TOPICS_LOOK
        if not topics:
            self._absent.clear()
            return Identities()
        found = self._topics.identities(topics)
        now = clock()
        self._absent = {topic: self._absent.get(topic, now) for topic in found.absent}
        gone = frozenset(topic for topic, since in self._absent.items() if now - since >= GONE_AFTER)
        if gone:
            listing = self._topics.list_topics()
            gone -= listing.partitions.keys() | listing.errors.keys()
        self._due = clock() + min(LONGEST_LOOK, max(TOPICS_LOOK, SHARE * (now - began)))
        return Identities(found.ids, gone)
