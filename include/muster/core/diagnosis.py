"""Which consumers hold up a topic: which partitions, for how long, and what a person can do.

A topic that is not Stable waits for consumers to answer (Initial), to close or to start. A Stable one waits for an
owner that makes no progress though there is lag, unless consumption is paused. A partition that is parked waits
for a person, paused or not, whether for a record or because records are lost, and so does one that is not paused and
whose next record fails for long.
In each state a topic waits for a handler that does not come to the end of a batch within `max_batch_time`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from muster.core.model import (
    ConsumerStatus,
    FailingRecord,
    Membership,
    State,
    TopicAssignment,
    TopicSnapshot,
    TopicStatus,
)

SHOWN_ERRORS = 2
"""So many of a consumer's own errors are shown."""
LONGEST_ERROR = 300
"""Characters of each."""
UNPROVEN = "nothing shows yet that the record is at fault, it may be the sink"


class Phase(StrEnum):
    """What a consumer does not do."""

    ANSWER = "answer"
    CLOSE = "close"
    START = "start"
    PROGRESS = "make progress on"
    FINISH = "finish its batch with"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A consumer that holds up partitions of a topic; none are named while it is waited for to say what it holds."""

    topic: str
    consumer: str
    phase: Phase
    partitions: tuple[int, ...]
    why: str
    offset: int | None = None
    """Of the record of the one partition that holds it up; None if it is no record."""
    lost: int = 0
    """That record is the first of so many that Kafka has no more, and not one that a handler fails with."""
    unproven: bool = False
    """Nothing shows that the record is at fault: the handler's sink may be unavailable."""

    @property
    def lacking(self) -> str:
        """What it does not do, for messages."""
        if self.offset is not None:
            return f"get past offset {self.offset} of partition {self.partitions[0]}"
        if self.phase is Phase.ANSWER:
            return "say what it holds"
        many = "s" if len(self.partitions) > 1 else ""
        return f"{self.phase} partition{many} {', '.join(map(str, self.partitions))}"

    def __str__(self) -> str:
        """Format one line for logs and run pages."""
        return f"topic {self.topic}: waiting for {self.consumer} to {self.lacking} ({self.why})"


def held_up(
    snapshots: Mapping[str, TopicSnapshot],
    membership: Membership,
    statuses: Mapping[str, ConsumerStatus],
    failures: Mapping[str, str],
    stuck_after: float,
) -> dict[str, list[Waiting]]:
    """Return the consumers that hold up each topic; of a Stable one those without progress for `stuck_after` seconds.

    `failures` says why a consumer's status is unavailable. Topics that wait for no consumer are left out.
    """
    found = {
        topic: [
            *_waiting_for(snapshots[topic], membership, statuses, failures),
            *_failing(snapshots[topic], membership, statuses, stuck_after),
            *_too_long(topic, membership, statuses),
            *_stalled(snapshots[topic], membership, statuses, stuck_after),
        ]
        for topic in sorted(snapshots)
    }
    return {topic: waiting for topic, waiting in found.items() if waiting}


def stuck(
    snapshots: Mapping[str, TopicSnapshot],
    waiting: Mapping[str, list[Waiting]],
    now: float,
    stuck_after: float,
) -> dict[str, str]:
    """Return the topics that are held up for longer than `stuck_after` seconds, with the message for people.

    `waiting` is what `held_up` found.
    """
    messages = {
        topic: _stuck_message(snapshots[topic], waiting.get(topic, []), now, stuck_after)
        for topic in sorted(snapshots)
    }
    return {topic: message for topic, message in messages.items() if message}


def _waiting_for(
    snapshot: TopicSnapshot,
    membership: Membership,
    statuses: Mapping[str, ConsumerStatus],
    failures: Mapping[str, str],
) -> list[Waiting]:
    state, assignment, topic = snapshot.state, snapshot.assignment, snapshot.topic
    if assignment is None or (state is not None and state.state is State.STABLE):
        return []
    epoch, owners = assignment.epoch, assignment.owners

    def report(consumer: str) -> TopicStatus | None:
        status = statuses.get(consumer)
        return status.on(topic) if status is not None and status.has_seen(topic, epoch) else None

    lacking: list[tuple[str, Phase, frozenset[int], str]] = []
    if state is None:
        why = "has not read the topic's assignment yet"
        lacking = [(c, Phase.ANSWER, frozenset(), why) for c in sorted(membership.live) if report(c) is None]
    else:
        for consumer, partitions in sorted(state.to_close.items()):
            closing = partitions if (known := report(consumer)) is None else partitions & known.held
            lacking += [(consumer, Phase.CLOSE, closing, "still reports them")] if closing else []
        for consumer, partitions in sorted(state.to_start.items()):
            given = frozenset(p for p in partitions if owners.get(p) == consumer)
            starting = given if (known := report(consumer)) is None else given - known.running
            why = "does not report them running yet"
            lacking += [(consumer, Phase.START, starting, why)] if starting else []
    return [
        Waiting(topic, c, phase, tuple(sorted(held)), _why(c, membership, statuses.get(c), failures, why))
        for c, phase, held, why in lacking
    ]


def _answering(
    snapshot: TopicSnapshot, membership: Membership, statuses: Mapping[str, ConsumerStatus]
) -> Iterator[tuple[str, TopicAssignment]]:
    """Yield the live consumers that answer, each with the assignment, if the topic is Stable; else none."""
    state, assignment = snapshot.state, snapshot.assignment
    if assignment is not None and state is not None and state.state is State.STABLE:
        for consumer in sorted(membership.live.keys() & statuses.keys()):
            yield consumer, assignment


def _failing(
    snapshot: TopicSnapshot, membership: Membership, statuses: Mapping[str, ConsumerStatus], limit: float
) -> list[Waiting]:
    """Return the live owners of a Stable topic whose partition is parked, or whose next record fails for more than
    `limit` seconds unless consumption is paused."""
    found = []
    for consumer, assignment in _answering(snapshot, membership, statuses):
        status = statuses[consumer].on(snapshot.topic)
        for partition, record in sorted(status.failing.items()):
            if assignment.owners.get(partition) != consumer or record.answer:
                continue
            lasts = status.stalled.get(partition, 0.0) > limit and partition not in assignment.paused
            if not record.parked and not lasts:
                continue
            unproven = not record.parked and not record.lost
            why = why_failing(record)
            if record.parked:
                why = f"the partition is parked, {why}"
            elif unproven:
                why = f"{why}; {UNPROVEN}"
            found.append(
                Waiting(
                    snapshot.topic,
                    consumer,
                    Phase.PROGRESS,
                    (partition,),
                    why,
                    record.offset,
                    record.lost,
                    unproven,
                )
            )
    return found


def why_failing(record: FailingRecord) -> str:
    """Return why a partition does not get past `record`, in words."""
    why = record.error[:LONGEST_ERROR]
    return why if record.lost else f"the record failed {record.attempts} times alone: {why}"


def _too_long(topic: str, membership: Membership, statuses: Mapping[str, ConsumerStatus]) -> list[Waiting]:
    """Return the live consumers whose handler works on a batch for longer than their `max_batch_time`."""
    found = []
    for consumer in sorted(membership.live.keys() & statuses.keys()):
        if batch := statuses[consumer].on(topic).batch_seconds:
            why = f"its handler has worked on this batch for {max(batch.values()):.0f} s, max_batch_time is shorter"
            why = _with_errors(why, statuses[consumer])
            found.append(Waiting(topic, consumer, Phase.FINISH, tuple(sorted(batch)), why))
    return found


def _stalled(
    snapshot: TopicSnapshot, membership: Membership, statuses: Mapping[str, ConsumerStatus], limit: float
) -> list[Waiting]:
    """Return the live owners of a Stable topic that report no progress for more than `limit` seconds."""
    found = []
    for consumer, assignment in _answering(snapshot, membership, statuses):
        status = statuses[consumer]
        slow = {
            partition: seconds
            for partition, seconds in status.on(snapshot.topic).stalled.items()
            if seconds > limit
            and assignment.owners.get(partition) == consumer
            and partition not in assignment.paused
            and partition not in status.on(snapshot.topic).failing
            and partition not in status.on(snapshot.topic).batch_seconds
        }
        if slow:
            why = _with_errors(f"no progress for {max(slow.values()):.0f} s though there is lag", status)
            found.append(Waiting(snapshot.topic, consumer, Phase.PROGRESS, tuple(sorted(slow)), why))
    return found


def _why(
    consumer: str,
    membership: Membership,
    status: ConsumerStatus | None,
    failures: Mapping[str, str],
    otherwise: str,
) -> str:
    if consumer in membership.isolated:
        return "it is isolated"
    if consumer not in membership.live and status is None:
        return "it is not live in Consul"
    if status is None:
        return f"its status is unavailable: {failures.get(consumer, 'not asked yet')}"
    return _with_errors(f"it {otherwise}", status)


def _with_errors(why: str, status: ConsumerStatus) -> str:
    """Add to `why` what the consumer itself reports to be wrong."""
    errors = [error[:LONGEST_ERROR] for error in status.details.errors[:SHOWN_ERRORS]]
    return "; it reports: ".join([why, " | ".join(errors)]) if errors else why


def overdue(snapshot: TopicSnapshot, now: float, stuck_after: float) -> bool:
    """Tell whether a rebalance that has begun takes longer than `stuck_after` seconds."""
    state = snapshot.state
    return state is not None and state.state is not State.STABLE and 0 < state.since < now - stuck_after


def _stuck_message(
    snapshot: TopicSnapshot, waiting: list[Waiting], now: float, stuck_after: float
) -> str | None:
    state, assignment = snapshot.state, snapshot.assignment
    if any(each.phase is Phase.FINISH for each in waiting):
        lasting = "is held up by a batch that takes longer than max_batch_time"
    elif state is None:
        # A topic's first epoch is the clock's seconds.
        if not waiting or assignment is None or now - assignment.epoch <= stuck_after:
            return None
        lasting = (
            f"is {State.INITIAL}: nothing of it is given before all live consumers have said what they hold"
        )
    elif any(each.phase is Phase.PROGRESS for each in waiting):
        lasting = f"makes no progress for longer than stuck_after ({stuck_after:.0f} s)"
        if any(each.offset is not None for each in waiting):
            lost = all(each.lost for each in waiting if each.offset is not None)
            lasting = "is held up by records that " + (
                "Kafka has no more" if lost else "its handler fails with"
            )
    elif not overdue(snapshot, now, stuck_after):
        return None
    else:
        lasting = (
            f"is {state.state} for {now - state.since:.0f} s, longer than stuck_after ({stuck_after:.0f} s)"
        )
    who = "; ".join(f"consumer {each.consumer} does not {each.lacking} ({each.why})" for each in waiting)
    said = who or "its partitions have no live owner"
    return f"topic {snapshot.topic} {lasting}: {said}. What to do: {_step(waiting)}."


def _step(waiting: list[Waiting]) -> str:
    if not waiting:
        return "look at whether any consumer that subscribes to this topic is live"
    steps = []
    if any(each.lost for each in waiting):
        steps.append(
            "have the partition go on behind what is lost, or look again (muster skip-record and retry-record, or "
            "the page)"
        )
    if any(each.unproven for each in waiting):
        steps.append("look first at whether the handler's sink works")
    if any(each.offset is not None and not each.lost for each in waiting):
        steps.append(
            "have the record retried, skipped or dead-lettered (muster retry-record, skip-record and "
            "dead-letter-record, or the page)"
        )
    if culprits := sorted({each.consumer for each in waiting if each.offset is None}):
        steps.append(
            f"look at the log of {', '.join(culprits)}; if it cannot be helped, isolate it ('muster "
            "isolate', or the page) and its partitions go to the others"
        )
    return "; ".join(steps)
