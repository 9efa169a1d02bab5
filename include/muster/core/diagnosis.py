"""Nothing stands still unnamed: which partitions stand still, since when, for what cause, and what a person can do.

The rule: a partition with unread records, or of unknown lag, that has not moved for `stuck_after` is named, whatever
the state of its topic (`muster.core.progress` knows since when it stands). `_cause` names it, and always finds
something: it goes in order through all that has to be so for a partition to be read, and names the first that is not.

Named without waiting for that are a batch beyond `max_batch_time`, a parked partition, one whose state does not fit
its committed offset, a rebalance that takes longer than `stuck_after` though there is nothing to read, and, of a
rebalance under way, the consumers that it waits for.

A person is asked about what is named, unless one has paused or drained it; it waits for a batch that is with a
handler for no longer than `max_batch_time` (and stands for no longer than twice that and `stuck_after`); its state
has come further within `stuck_after`; or it is a record that its owner does not ask about (`muster.core.poison`), or
that was to be left out no longer than `stuck_after` ago.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from muster.core.model import (
    ConsumerStatus,
    FailingRecord,
    Membership,
    State,
    TopicAssignment,
    TopicSnapshot,
    by_partition,
)
from muster.core.moments import to_iso
from muster.core.overrides import NO_OVERRIDES, Overrides
from muster.core.partition_list import format_partitions
from muster.core.patience import Patience, Policy, Replies
from muster.core.progress import Look, Mark
from muster.core.turns import Failure

SHOWN_ERRORS = 2
"""So many of a consumer's own errors are shown."""
LONGEST_ERROR = 300
"""Characters of each."""
COORDINATOR = "look at the coordinator's last run"


class Phase(StrEnum):
    """What a consumer does not do."""

    ANSWER = "answer"
    CLOSE = "close"
    START = "start"
    PROGRESS = "make progress on"
    FINISH = "finish its batch with"
    RESTORE = "restore the state of"


@dataclass(frozen=True, slots=True)
class Waiting:
    """What holds up partitions of a topic: a consumer, or what `why` says if `consumer` is ''. Without `partitions`
    all of them are meant."""

    topic: str
    consumer: str
    phase: Phase
    partitions: tuple[int, ...]
    why: str
    offset: int | None = None
    """Of the record of the one partition that holds it up; None if it is no record."""
    lost: int = 0
    """That record is the first of so many that Kafka has no more, and not one that a handler fails with."""
    error: str = ""
    """The kind of error that the handler fails with; '' if the record is lost, or a timer fails."""
    timer: bool = False
    """A timer of the partition's state fails before that record."""
    asked: bool = True
    """A person is to be asked about it: none has decided it, and it is not within a bound that was set."""
    since: float | None = None
    """Since when partitions have not moved, in seconds since the epoch; None while that is not longer than
    `stuck_after`."""
    todo: str = ""
    """What to do, where it is not a matter of the consumer or a record."""

    @property
    def lacking(self) -> str:
        """What it does not do, for messages."""
        if self.offset is not None:
            return f"get past offset {self.offset} of partition {self.partitions[0]}"
        if self.phase is Phase.ANSWER:
            return "say what it holds"
        many = "s" if len(self.partitions) > 1 else ""
        return f"{self.phase} partition{many} {', '.join(map(str, self.partitions))}"

    @property
    def cause(self) -> str:
        """Who does not do what, and why, for messages."""
        if self.consumer:
            return f"consumer {self.consumer} does not {self.lacking} ({self.why})"
        return (
            f"partition(s) {format_partitions(self.partitions)}: {self.why}" if self.partitions else self.why
        )

    @property
    def kind(self) -> str:
        """The cause in a word or two, for metrics."""
        if self.phase is Phase.RESTORE:
            return "restoring" if not self.asked else "restore" if self.consumer else "state differs"
        if not self.asked:
            return "decided"
        if self.offset is not None:
            return "record"
        return self.phase.name.lower() if self.consumer else "no consumer"

    def __str__(self) -> str:
        """Format one line for logs and run pages."""
        since = "" if self.since is None else f", not moved since {to_iso(self.since)}"
        if self.consumer:
            return f"topic {self.topic}: waiting for {self.consumer} to {self.lacking} ({self.why}{since})"
        return f"topic {self.topic}: {self.cause}{since}"


@dataclass(frozen=True)
class Situation:
    """All that the rule is computed from, from one reading, at `now` (seconds since the epoch).

    `doubt` says why it is unknown which consumers there are, '' if it is known.
    """

    snapshots: Mapping[str, TopicSnapshot]
    membership: Membership
    replies: Replies
    now: float
    stuck_after: float
    overrides: Overrides = NO_OVERRIDES
    look: Look = field(default_factory=Look)
    doubt: str = ""

    @cached_property
    def standing(self) -> Mapping[str, Mapping[int, Mark]]:
        """The partitions that have not moved for longer than `stuck_after`, by topic."""
        return self.look.standing(self.now, self.stuck_after)

    @cached_property
    def ahead(self) -> set[str]:
        """The topics whose epoch in ZooKeeper is behind one that was noted or is reported."""
        return {topic for topic, each in self.snapshots.items() if self.patience.ahead(each) is not None}

    @cached_property
    def patience(self) -> Patience:
        """What says who has to answer before a topic is written again."""
        replies = replace(self.replies, epochs=self.overrides.epochs)
        return Patience(Policy(), self.membership, replies)


def held_up(situation: Situation) -> dict[str, list[Waiting]]:
    """Return what holds up each topic: all that stands still, and the consumers that a rebalance waits for."""
    found: dict[str, list[Waiting]] = {}
    for each in (*_awaited(situation), *_at_once(situation), *_standing(situation)):
        found.setdefault(each.topic, []).append(each)
    for topic, snapshot in situation.snapshots.items():
        if (
            topic not in found
            and overdue(snapshot, situation.now, situation.stuck_after)
            and not situation.doubt
        ):
            todo = "look at whether any consumer that subscribes to this topic is live"
            no_owner = "its partitions have no live owner"
            found[topic] = [Waiting(topic, "", Phase.PROGRESS, (), no_owner, todo=todo)]
    return {topic: _merged(found[topic]) for topic in sorted(found)}


def overdue(snapshot: TopicSnapshot, now: float, stuck_after: float) -> bool:
    """Tell whether a rebalance that has begun takes longer than `stuck_after` seconds."""
    state = snapshot.state
    return state is not None and state.state is not State.STABLE and 0 < state.since < now - stuck_after


def why_failing(record: FailingRecord) -> str:
    """Return why a partition does not get past `record`, in words."""
    why = record.error[:LONGEST_ERROR]
    alone = not record.lost and record.attempts
    return why if not alone else f"the record failed {record.attempts} times alone: {why}"


# Which partitions


def _awaited(given: Situation) -> Iterator[Waiting]:
    """Yield the consumers that a rebalance waits for, however short it has lasted."""
    if given.doubt:
        return
    for topic, snapshot in sorted(given.snapshots.items()):
        state, assignment = snapshot.state, snapshot.assignment
        if assignment is None:
            continue
        if state is None or topic in given.ahead:
            yield from _unanswered(given, topic)
            continue
        if state.state is State.STABLE:
            continue
        for consumer, partitions in sorted(state.to_close.items()):
            for partition in sorted(partitions):
                if (found := _closing(given, topic, partition, consumer, assignment)) is not None:
                    yield found
        for consumer, partitions in sorted(state.to_start.items()):
            for partition in sorted(p for p in partitions if assignment.owners.get(p) == consumer):
                if (found := _not_running(given, topic, partition, consumer, assignment)) is not None:
                    yield found


def _at_once(given: Situation) -> Iterator[Waiting]:
    """Yield what is named without waiting for `stuck_after`: parked partitions, and batches that take too long."""
    for consumer in sorted(given.membership.live.keys() & given.replies.statuses.keys()):
        status = given.replies.statuses[consumer]
        for topic in sorted(status.topics):
            snapshot, of_topic = given.snapshots.get(topic), status.topics[topic]
            if snapshot is None or snapshot.assignment is None:
                continue
            for partition, record in sorted(of_topic.failing.items()):
                owned = snapshot.assignment.owners.get(partition) == consumer
                if record.parked and owned and not record.answer:
                    yield _failing(given, topic, partition, consumer, record)
            for partition in sorted(of_topic.shards):
                owned = snapshot.assignment.owners.get(partition) == consumer
                found = _state(given, topic, partition, consumer, status)
                if owned and found is not None and found.asked:
                    yield found
            for partition in sorted(of_topic.batch_seconds):
                found = _batch(topic, partition, consumer, status)
                if found is not None and found.phase is Phase.FINISH:
                    yield found


def _standing(given: Situation) -> Iterator[Waiting]:
    """Yield what holds up each partition that has not moved for longer than `stuck_after`."""
    for topic, marks in given.standing.items():
        for partition, mark in marks.items():
            for each in _cause(given, topic, partition, mark):
                yield replace(each, partitions=(partition,), since=float(mark.since))


# Why


def _cause(given: Situation, topic: str, partition: int, mark: Mark) -> Iterator[Waiting]:
    """Yield what a partition waits for; there is always something.

    These have to be so, in this order: no person has paused it; it is known which consumers there are, and some are
    live; Kafka tells its lag; the topic has an assignment with the present epoch; the partition is closed by the
    consumer before; it has an owner, which is live, answers, and runs it; its handler returns and does not fail.
    """
    if (found := _without_topic(given, topic, partition)) is not None:
        yield found
        return
    snapshot = given.snapshots[topic]
    assignment, state = snapshot.assignment, snapshot.state
    if not mark.known:
        said = " | ".join(given.look.errors) or "Kafka does not tell its offsets"
        todo = "see whether its leader is there, and whether the coordinator may describe topic and group"
        yield _no_consumer(topic, partition, f"its lag is unknown: {said}", todo)
    elif assignment is None:
        yield _no_consumer(topic, partition, "ZooKeeper does not say yet who reads it", COORDINATOR)
    elif state is None or topic in given.ahead:
        answers = list(_unanswered(given, topic))
        yield from answers or [
            _no_consumer(
                topic, partition, "all consumers have said what they hold, and it is not given", COORDINATOR
            )
        ]
    elif (old := by_partition(state.to_close).get(partition)) is not None:
        closing = _closing(given, topic, partition, old, assignment)
        yield closing or _no_consumer(
            topic, partition, f"{old} has closed it, and it is not given", COORDINATOR
        )
    elif (owner := assignment.owners.get(partition)) is None:
        yield _without_owner(given, topic, partition)
    else:
        yield _not_running(given, topic, partition, owner, assignment) or _not_moving(
            given, topic, partition, owner, mark
        )


def _without_topic(given: Situation, topic: str, partition: int) -> Waiting | None:
    """Return what holds a partition up whatever its topic's nodes say: a person, or that there are no consumers."""
    if given.overrides.paused is not None:
        return _no_consumer(topic, partition, str(given.overrides.paused), asked=False)
    pauses = [
        each
        for each in given.overrides.consumption
        if each.topic in {"", topic} and each.partition in {None, partition}
    ]
    if pauses:
        return _no_consumer(topic, partition, "; ".join(map(str, pauses)), asked=False)
    if given.doubt:
        return _no_consumer(topic, partition, given.doubt, "look at Consul and its agents")
    if topic not in given.snapshots:
        return _no_consumer(topic, partition, "its nodes in ZooKeeper cannot be read", COORDINATOR)
    if not given.membership.live:
        why = "no consumer is live: the assignment stays as it is until one appears"
        return _no_consumer(topic, partition, why, "start consumers, or see why their checks fail")
    return None


def _unanswered(given: Situation, topic: str) -> Iterator[Waiting]:
    """Yield the live consumers that have to say what they hold of a topic before anything of it is given."""
    for consumer in sorted(given.patience.unanswered(given.snapshots[topic])):
        why = _why(given, consumer, "has not read the topic's assignment yet", topic)
        yield Waiting(topic, consumer, Phase.ANSWER, (), why)


def _closing(
    given: Situation, topic: str, partition: int, consumer: str, assignment: TopicAssignment
) -> Waiting | None:
    status = given.replies.statuses.get(consumer)
    seen = status is not None and status.has_seen(topic, assignment.epoch)
    if status is not None and seen and partition not in status.on(topic).held:
        return None
    why = _why(given, consumer, "still reports them", topic)
    return Waiting(topic, consumer, Phase.CLOSE, (partition,), why)


def _without_owner(given: Situation, topic: str, partition: int) -> Waiting:
    able = [c for c, there in given.membership.live.items() if there.subscribes(topic)]
    kept = {c: given.overrides.drained.get(c) or given.overrides.exclusions.get((c, topic)) for c in able}
    decided = [str(why) for _, why in sorted(kept.items()) if why is not None]
    if decided and len(decided) == len(able):
        return _no_consumer(topic, partition, "; ".join(decided), asked=False)
    if not able:
        why = "it has no owner: no live consumer subscribes to the topic"
        return _no_consumer(topic, partition, why, "start a consumer that takes the topic")
    return _no_consumer(topic, partition, "it has no owner", COORDINATOR)


def _not_running(
    given: Situation, topic: str, partition: int, owner: str, assignment: TopicAssignment
) -> Waiting | None:
    """Return why it is not known that the owner runs a partition; None if the owner reports that it does."""
    status = given.replies.statuses.get(owner)
    if status is not None and owner in given.membership.live:
        if not status.has_seen(topic, assignment.epoch):
            why = _why(given, owner, "has not read the topic's assignment yet", topic)
        elif (found := _state(given, topic, partition, owner, status)) is not None:
            return found
        elif partition in status.on(topic).running:
            return None
        else:
            why = _why(given, owner, "does not report them running yet", topic)
    else:
        why = _why(given, owner, "answers", topic)
    drain = given.overrides.drained.get(owner) if owner not in given.membership.live else None
    if drain is not None:
        return Waiting(topic, owner, Phase.START, (partition,), f"{drain}; {why}", asked=False)
    return Waiting(topic, owner, Phase.START, (partition,), why)


def _not_moving(given: Situation, topic: str, partition: int, owner: str, mark: Mark) -> Waiting:
    """Return why a partition that its owner runs does not move.

    It may have to wait for one batch before its own. Where it stands for longer than both may take, its batches come
    to nothing, or it is in none.
    """
    status = given.replies.statuses[owner]
    record = status.on(topic).failing.get(partition)
    if record is not None:
        return _failing(given, topic, partition, owner, record)
    batch, two = _batch(topic, partition, owner, status), 2 * (status.max_batch_time or 0.0)
    if batch is not None and (batch.asked or given.now - mark.since <= two + given.stuck_after):
        return batch
    why = _with_errors("it reports that it runs them", status, topic, partition)
    return Waiting(topic, owner, Phase.PROGRESS, (partition,), why)


def _failing(given: Situation, topic: str, partition: int, consumer: str, record: FailingRecord) -> Waiting:
    """Return that a partition does not get past a record."""
    if record.answer:
        why = f"{record.answer} of offset {record.offset} was decided {record.decided_for:.0f} s ago, and is not done"
        why = _with_errors(why, given.replies.statuses[consumer], topic, partition)
        late = record.decided_for > given.stuck_after
        return Waiting(topic, consumer, Phase.PROGRESS, (partition,), why, asked=late)
    why = f"the partition is parked, {why_failing(record)}" if record.parked else why_failing(record)
    kind, phase = "" if record.lost or record.timer else Failure(record.error).kind, Phase.PROGRESS
    where = topic, consumer, phase, (partition,)
    return Waiting(*where, why, record.offset, record.lost, kind, record.timer, asked=record.parked)


def _batch(topic: str, partition: int, consumer: str, status: ConsumerStatus) -> Waiting | None:
    """Return that a handler is at work on a batch, for which a partition waits; None if it reports no such batch."""
    within, limit = status.on(topic).batch_seconds.get(partition), status.max_batch_time
    seconds = status.batch_seconds if within is None else within
    if seconds is None:
        return None
    this = "a batch of other partitions" if within is None else "this batch"
    works = f"its handler has worked on {this} for {seconds:.0f} s"
    if limit is None:
        why = _with_errors(f"{works}, and no max_batch_time is set", status, topic, partition)
        return Waiting(topic, consumer, Phase.PROGRESS, (partition,), why)
    if seconds <= limit:
        why = f"{works}, max_batch_time is {limit:g} s"
        return Waiting(topic, consumer, Phase.PROGRESS, (partition,), why, asked=False)
    why = _with_errors(f"{works}, max_batch_time is shorter ({limit:g} s)", status, topic, partition)
    phase = Phase.PROGRESS if within is None else Phase.FINISH
    return Waiting(topic, consumer, phase, (partition,), why)


def _state(
    given: Situation, topic: str, partition: int, consumer: str, status: ConsumerStatus
) -> Waiting | None:
    """Return why the state of a partition is not there yet; None if it is, or there is none."""
    shard = status.on(topic).shards.get(partition)
    if shard is None or partition in status.on(topic).closing:
        return None
    if shard.differs:
        why = f"its state and its committed offset do not fit: {shard.differs}"
        todo = (
            f"choose where partition {partition} goes on ('muster seek --to=changelog --state=again {topic} "
            f"{partition}', '--to=committed' with '--state=again' or 'skip', or '--state=rebuild')"
        )
        return Waiting(topic, "", Phase.RESTORE, (partition,), why, todo=todo)
    if (restore := shard.restore) is None:
        return None
    stands = restore.still > given.stuck_after
    why = f"{restore}, and no progress for {restore.still:.0f} s" if stands else str(restore)
    if stands:
        why = _with_errors(why, status, topic, partition)
    return Waiting(topic, consumer, Phase.RESTORE, (partition,), why, asked=stands)


def _no_consumer(topic: str, partition: int, why: str, todo: str = "", *, asked: bool = True) -> Waiting:
    return Waiting(topic, "", Phase.PROGRESS, (partition,), why, todo=todo, asked=asked)


def _why(given: Situation, consumer: str, otherwise: str, topic: str) -> str:
    """Say what is seen of a consumer that does not do something; `otherwise` if it is live and answers."""
    membership, status = given.membership, given.replies.statuses.get(consumer)
    if consumer in membership.isolated:
        isolation = given.overrides.isolated.get(consumer)
        return "it is isolated" + (f" by {isolation.said()}" if isolation is not None else "")
    if consumer in membership.failing:
        return "its check in Consul does not pass"
    if consumer not in membership.live and status is None:
        return "it is not live in Consul"
    if status is None:
        why = f"its status is unavailable: {given.replies.failures.get(consumer, 'not asked yet')}"
    else:
        why = _with_errors(f"it {otherwise}", status, topic)
        if status.details.doing not in {"", "running"}:
            why += f"; its state is {status.details.doing!r}"
    if older := given.replies.older.get(consumer):
        held = ", ".join(each.incarnation for each in older)
        why += f"; an older process of it still answers (incarnation {held}), and it waits for that to end"
    return why


def _with_errors(why: str, status: ConsumerStatus, topic: str, partition: int | None = None) -> str:
    """Add to `why` what the consumer itself reports to be wrong, first what names the topic and partition."""

    def far(error: str) -> int:
        named = (f"topic {topic}", f"topic {topic!r}", f"{topic} [")
        of_partition = (f"partition {partition}", f"[{partition}]")
        return -any(each in error for each in named) - any(each in error for each in of_partition)

    errors = [error[:LONGEST_ERROR] for error in sorted(status.details.errors, key=far)[:SHOWN_ERRORS]]
    return "; it reports: ".join([why, " | ".join(errors)]) if errors else why


def _merged(found: list[Waiting]) -> list[Waiting]:
    """Join what differs in nothing but partitions and since when; what stands still counts, and comes first."""
    groups: dict[Waiting, list[Waiting]] = {}
    for each in found:
        key = replace(each, partitions=() if each.offset is None else each.partitions, since=None)
        groups.setdefault(key, []).append(each)
    return [
        replace(
            key,
            partitions=tuple(sorted({p for each in group for p in each.partitions})),
            since=min((each.since for each in group if each.since is not None), default=None),
        )
        for key, group in groups.items()
    ]
