"""A cluster at a glance: how each topic stands, what each consumer has, and who holds up what. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.core.decisions import NOTHING_DECIDED, Decisions
from muster.core.diagnosis import Waiting, stalled, stuck_message, waiting_for
from muster.core.model import Consumer, ConsumerStatus, Membership, State, TopicSnapshot


@dataclass(frozen=True, slots=True)
class TopicLine:
    """One topic. `seconds` is how long it has been Stable, or not Stable; None where that is not known.

    `starting` partitions have an owner that is not seen running them, `closing` ones have not been let go of yet;
    `unowned` ones have no owner, which those that are closing are too.
    """

    topic: str
    state: State
    seconds: float | None
    partitions: int
    unowned: int
    starting: int
    closing: int
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class ConsumerLine:
    """One consumer.

    `state` is `live`, `isolated`, `not passing` (registered, but its check fails), `gone` (named in an assignment and
    not registered) or `unknown` (Consul cannot be trusted). `answers` says what was wrong with its status, '' if
    nothing was or it was not asked. `why` says who isolated or drained it, and why.
    """

    consumer: str
    state: str
    partitions: int
    weight: float | None = None
    zone: str | None = None
    priority: int | None = None
    address: str = ""
    answers: str = ""
    why: str = ""


@dataclass(frozen=True)
class Overview:
    """A cluster at one moment. `left_alone` maps topics that cannot be read to the reason; `doubt` says why nobody
    knows who is live, '' otherwise; `stuck` are full messages for people. `leaving` maps topics that are not
    subscribed any more to the reason. `paused`, `asked` (a rebalance now) and `assignor` (one in the place of
    clusters.yaml's) say who decided so and why, '' if none did; `unreadable` names what cannot be read of that."""

    topics: tuple[TopicLine, ...]
    consumers: tuple[ConsumerLine, ...]
    waiting: tuple[Waiting, ...]
    stuck: tuple[str, ...]
    left_alone: Mapping[str, str]
    doubt: str
    leaving: Mapping[str, str] = field(default_factory=dict)
    paused: str = ""
    asked: str = ""
    assignor: str = ""
    unreadable: tuple[str, ...] = ()

    @property
    def well(self) -> bool:
        """Whether every topic can be read, is Stable and in the hands of live consumers that all answer, and
        the cluster is not paused."""
        return (
            not self.doubt
            and not self.left_alone
            and not self.paused
            and not self.unreadable
            and all(topic.state is State.STABLE and not topic.unowned for topic in self.topics)
            and any(consumer.state == "live" for consumer in self.consumers)
            and all(
                (consumer.state == "live" or not consumer.partitions) and not consumer.answers
                for consumer in self.consumers
            )
        )


@dataclass(frozen=True)
class Reading:
    """What an overview is made from.

    `registered` maps every registered consumer to where its status page is (`host:port`), `isolated` every isolated
    one to who did it and why. Without `membership`, `doubt` says why. `failures` says why a status could not be had.
    `leaving` is as in `Overview`.
    """

    snapshots: Mapping[str, TopicSnapshot]
    left_alone: Mapping[str, str]
    membership: Membership | None
    doubt: str
    registered: Mapping[str, str]
    isolated: Mapping[str, str]
    statuses: Mapping[str, ConsumerStatus]
    failures: Mapping[str, str]
    decisions: Decisions = NOTHING_DECIDED
    leaving: Mapping[str, str] = field(default_factory=dict)


def overview(read: Reading, now: float, stuck_after: float) -> Overview:
    """Put together what was read at `now` (seconds since the epoch); `stuck_after` in seconds."""
    decisions = read.decisions
    snapshots = [read.snapshots[topic] for topic in sorted(read.snapshots)]
    waiting: list[Waiting] = []
    stuck: list[str] = []
    for snapshot in snapshots:
        if read.membership is None:
            break  # who is to be waited for depends on who is live
        of_topic = waiting_for(snapshot, read.membership, read.statuses, read.failures)
        of_topic += stalled(snapshot, read.membership, read.statuses, stuck_after)
        waiting += of_topic
        if (message := stuck_message(snapshot, of_topic, now, stuck_after)) is not None:
            stuck.append(message)
    return Overview(
        topics=tuple(_topic(snapshot, now) for snapshot in snapshots),
        consumers=_consumers(read),
        waiting=tuple(waiting),
        stuck=tuple(stuck),
        left_alone=read.left_alone,
        doubt=read.doubt if read.membership is None else "",
        leaving=read.leaving,
        paused=str(decisions.paused or ""),
        asked=str(decisions.rebalance or ""),
        assignor=str(decisions.assignor or ""),
        unreadable=(*decisions.errors, *([decisions.assignor_error] if decisions.assignor_error else [])),
    )


def _topic(snapshot: TopicSnapshot, now: float) -> TopicLine:
    state, assignment = snapshot.state, snapshot.assignment
    owners = assignment.owners if assignment is not None else {}
    return TopicLine(
        topic=snapshot.topic,
        state=snapshot.name,
        seconds=round(max(0.0, now - state.since), 1) if state is not None and state.since > 0 else None,
        partitions=len(snapshot.partitions),
        unowned=len(snapshot.partitions - owners.keys()),
        starting=sum(map(len, state.to_start.values())) if state is not None else 0,
        closing=sum(map(len, state.to_close.values())) if state is not None else 0,
        epoch=assignment.epoch if assignment is not None else 0,
        reason=state.reason if state is not None else "",
    )


def _drained(read: Reading, consumer: str) -> str:
    drain = read.decisions.drained.get(consumer)
    return "" if drain is None else f"by {drain.said()}"


def _consumers(read: Reading) -> tuple[ConsumerLine, ...]:
    owned: Counter[str] = Counter()
    for snapshot in read.snapshots.values():
        if snapshot.assignment is not None:
            owned.update(snapshot.assignment.owners.values())
    live: Mapping[str, Consumer] = read.membership.live if read.membership is not None else {}
    isolated = read.isolated.keys() | (read.membership.isolated if read.membership is not None else set())
    lines = []
    for name in sorted(owned.keys() | live.keys() | isolated | read.registered.keys()):
        there = live.get(name)
        if name in isolated:
            state = "isolated"
        elif there is not None:
            state = "live"
        elif read.membership is None:
            state = "unknown"
        else:
            state = "not passing" if name in read.registered else "gone"
        lines.append(
            ConsumerLine(
                consumer=name,
                state=state,
                partitions=owned[name],
                weight=there.weight if there else None,
                zone=there.zone if there else None,
                priority=there.priority if there else None,
                address=read.registered.get(name, ""),
                answers=read.failures.get(name, ""),
                why=read.isolated.get(name) or _drained(read, name),
            )
        )
    return tuple(lines)
