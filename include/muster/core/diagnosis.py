"""Why a topic is not Stable yet, in words: who holds up which partitions, for how long, and what a person can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from muster.core.model import ConsumerStatus, Membership, State, TopicSnapshot


@dataclass(frozen=True, slots=True)
class Waiting:
    """A consumer that holds up partitions of a topic; `phase` is 'close' or 'start'."""

    topic: str
    consumer: str
    phase: str
    partitions: tuple[int, ...]
    why: str

    def __str__(self) -> str:
        """One line for logs and run pages."""
        partitions = ", ".join(map(str, self.partitions))
        return f"topic {self.topic}: waiting for {self.consumer} to {self.phase} {partitions} ({self.why})"


def waiting_for(
    snapshot: TopicSnapshot,
    membership: Membership,
    statuses: Mapping[str, ConsumerStatus],
    failures: Mapping[str, str],
) -> list[Waiting]:
    """Everybody who holds up this topic. `failures` says why a consumer's status could not be had."""
    state, assignment = snapshot.state, snapshot.assignment
    if state is None or assignment is None or state.state is State.STABLE:
        return []
    found: list[Waiting] = []
    for consumer in sorted(state.to_close):
        status = statuses.get(consumer)
        held = state.to_close[consumer]
        if status is not None and status.has_seen(snapshot.topic, assignment.epoch):
            held = held & status.on(snapshot.topic).held
        if held:
            why = _why(consumer, membership, status, failures, "still reports them")
            found.append(Waiting(snapshot.topic, consumer, "close", tuple(sorted(held)), why))
    for consumer in sorted(state.to_start):
        status = statuses.get(consumer)
        given = {p for p in state.to_start[consumer] if assignment.owners.get(p) == consumer}
        if status is not None and status.has_seen(snapshot.topic, assignment.epoch):
            given -= status.on(snapshot.topic).running
        if given:
            why = _why(consumer, membership, status, failures, "does not report them running yet")
            found.append(Waiting(snapshot.topic, consumer, "start", tuple(sorted(given)), why))
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
    if consumer not in membership.live:
        return "it is not live in Consul"
    if status is None:
        return f"its status cannot be had: {failures.get(consumer, 'not asked yet')}"
    return f"it {otherwise}"


def stuck_message(
    snapshot: TopicSnapshot, waiting: list[Waiting], now: float, stuck_after: float
) -> str | None:
    """What a person needs to know of a topic that is not Stable for longer than `stuck_after` seconds, else None."""
    state = snapshot.state
    if state is None or state.state is State.STABLE or state.since <= 0:
        return None
    lasting = now - state.since
    if lasting <= stuck_after:
        return None
    who = "; ".join(
        f"consumer {w.consumer} does not {w.phase} partition{'s' if len(w.partitions) > 1 else ''} "
        f"{', '.join(map(str, w.partitions))} ({w.why})"
        for w in waiting
    )
    culprits = sorted({w.consumer for w in waiting})
    step = (
        f"look at the log of {', '.join(culprits)}; if it cannot be helped, isolate it with the DAG muster_isolate "
        "and its partitions go to the others"
        if culprits
        else "look at whether any consumer that subscribes to this topic is live"
    )
    return (
        f"topic {snapshot.topic} is {state.state} for {lasting:.0f} s, longer than stuck_after "
        f"({stuck_after:.0f} s): {who or 'its partitions have no live owner'}. What to do: {step}."
    )
