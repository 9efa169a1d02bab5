"""Which topics a person is asked about, and what is said: what stands still, why, and what to do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from muster.core.diagnosis import LONGEST_ERROR, Phase, Situation, Waiting, overdue
from muster.core.model import ConsumerStatus, State
from muster.core.moments import to_iso
from muster.core.partition_list import format_partitions
from muster.core.positions import OFFSET_PROBLEM


def stuck(situation: Situation, waiting: Mapping[str, list[Waiting]]) -> dict[str, str]:
    """Return the topics that are held up for too long and that a person is asked about, with the message.

    `waiting` is what `held_up` found.
    """
    topics = sorted(situation.snapshots.keys() | waiting.keys())
    messages = {
        topic: _stuck_message(situation, topic, [each for each in waiting.get(topic, ()) if each.asked])
        for topic in topics
    }
    return {topic: message for topic, message in messages.items() if message}


def named(waiting: Mapping[str, list[Waiting]]) -> list[str]:
    """Return what stands still and no person is asked about, with who decided so, or within which bound it is."""
    return [
        str(each)
        for of_topic in waiting.values()
        for each in of_topic
        if not each.asked and each.since is not None
    ]


def blind(situation: Situation) -> str:
    """Say that it is unknown what stands still, because Kafka's offsets were not read for too long; '' if that is
    known."""
    at = situation.look.at
    if not at or situation.now - at <= situation.stuck_after:
        return ""
    return (
        f"Kafka's offsets were not read since {to_iso(at)}, so it is unknown which partitions stand still. What to "
        "do: see whether the coordinator runs, and whether Kafka answers it."
    )


def _stuck_message(given: Situation, topic: str, waiting: list[Waiting]) -> str | None:
    snapshot, limit = given.snapshots.get(topic), f"stuck_after ({given.stuck_after:.0f} s)"
    state = None if snapshot is None else snapshot.state
    assignment = None if snapshot is None else snapshot.assignment
    since = min((each.since for each in waiting if each.since is not None), default=None)
    records = [each for each in waiting if each.offset is not None]
    if not waiting or (given.doubt and since is None):
        return None
    if any(each.phase is Phase.FINISH for each in waiting):
        lasting = "is held up by a batch that takes longer than max_batch_time"
    elif records:
        lost = all(each.lost for each in records)
        lasting = f"is held up by records that {'Kafka has no more' if lost else 'its handler fails with'}"
        if all(each.timer for each in records):
            lasting = "is held up by timers of its state that fail"
    elif any(each.phase is Phase.RESTORE for each in waiting):
        lasting = "is held up by state that is not there"
    elif snapshot is not None and state is not None and overdue(snapshot, given.now, given.stuck_after):
        lasting = f"is {state.state} for {given.now - state.since:.0f} s, longer than {limit}"
    elif (
        state is None
        and waiting
        and assignment is not None
        and (
            # A topic's first epoch is the clock's seconds.
            since is not None or given.now - assignment.epoch > given.stuck_after
        )
    ):
        lasting = f"is {State.INITIAL}: nothing of it is given before those that may hold it have said what they hold"
    elif since is not None:
        still = {p for each in waiting if each.since is not None for p in each.partitions}
        still &= given.standing.get(topic, {}).keys()
        lasting = (
            f"makes no progress in partition(s) {format_partitions(still)} since {to_iso(since)}, for longer"
        )
        lasting += f" than {limit}"
        if topic in given.ahead:
            lasting += (
                ", and its epoch in ZooKeeper is behind one that was noted or is reported: nothing of it is given "
                "before those that may hold it have said what they hold"
            )
    else:
        return None
    who = "; ".join(each.cause for each in waiting)
    return f"topic {topic} {lasting}: {who}. What to do: {step(waiting, given.membership.live.keys())}."


def step(waiting: Iterable[Waiting], live: Collection[str]) -> str:
    """Say what a person can do about what holds a topic up; `live` are the consumers that can be isolated."""
    waiting = list(waiting)
    steps = []
    if any(each.lost for each in waiting):
        steps.append(
            "have the partition go on behind what is lost, or look again (muster skip-record and retry-record, or "
            "the page)"
        )
    if any(each.error for each in waiting):
        steps.append("look first at whether the handler's sink works")
    if any(each.timer for each in waiting):
        steps.append(
            "have the timer tried again, or dropped (muster retry-record and skip-record, or the page)"
        )
    if any(each.offset is not None and not (each.lost or each.timer) for each in waiting):
        steps.append(
            "have the record retried, skipped or dead-lettered (muster retry-record, skip-record and "
            "dead-letter-record, or the page)"
        )
    culprits = {each.consumer for each in waiting if each.offset is None and each.consumer}
    if there := sorted(culprits & set(live)):
        steps.append(
            f"look at the log of {', '.join(there)}; if it cannot be helped, isolate it ('muster "
            "isolate', or the page) and its partitions go to the others"
        )
    if away := sorted(culprits - set(live)):
        steps.append(f"start {', '.join(away)} again, or a consumer that takes its place")
    steps += sorted({each.todo for each in waiting if each.todo})
    return "; ".join(steps)


def changed_offsets(statuses: Mapping[str, ConsumerStatus]) -> list[str]:
    """Return what consumers say of committed offsets that another program has set or deleted."""
    return [
        f"consumer {consumer}: {error[:LONGEST_ERROR]}"
        for consumer, status in sorted(statuses.items())
        for error in status.details.errors
        if error.startswith(f"{OFFSET_PROBLEM} ")
    ]
