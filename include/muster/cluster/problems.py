"""What a person should know of a cluster, in words that name the thing and the next step. Pure.

The one list for the page, `muster status --check` and every other front end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from muster.cluster.condition import Condition, ConsumerState
from muster.cluster.partitions import PartitionState
from muster.core.model import State
from muster.core.partition_list import format_partitions
from muster.core.time_lag import TimeLag, caught_up, in_words

if TYPE_CHECKING:
    from muster.cluster.state import ClusterState

Level = Literal["critical", "warning"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem. `blocking`: records are not consumed as assigned, or that is unknown, so `--check` fails."""

    level: Level
    what: str
    topic: str | None = None
    consumer: str | None = None
    blocking: bool = True


def problems(state: ClusterState) -> list[Problem]:
    """Return everything that a person should know, the worst first."""
    found = [
        *_of_servers(state),
        *_of_kafka(state),
        *_of_topics(state),
        *of_time(state),
        *_of_flow(state),
        *_of_losses(state),
        *_of_consumers(state),
    ]
    return sorted(found, key=lambda problem: problem.level != "critical")


def _of_servers(state: ClusterState) -> Iterator[Problem]:
    reading = state.reading
    for name, source in (
        ("ZooKeeper", reading.zookeeper),
        ("Consul", reading.consul),
        ("The consumers", reading.consumers),
    ):
        if source.error is not None:
            yield Problem("critical", f"{name} cannot be reached: {source.why}")
    if state.consul is None:
        return
    if state.doubt:
        yield Problem("critical", f"Consul's answer is not to be trusted: {state.doubt}")
    if state.overrides.assignor_error:
        yield Problem("critical", state.overrides.assignor_error)
    for error in state.overrides.errors:
        yield Problem("warning", error)


def _of_kafka(state: ClusterState) -> Iterator[Problem]:
    """Yield what Kafka does not answer. Consumption does not depend on it; lag is then what the consumers report."""
    source = state.reading.kafka
    if source.error is not None:
        yield Problem("warning", f"Kafka cannot be reached: {source.why}", blocking=False)
    for error in state.offsets.errors:
        yield Problem("warning", error, blocking=False)
    if source.current is None:
        return
    for topic, snapshot in state.snapshots.items():
        absent = snapshot.partitions - source.current.partitions.get(topic, frozenset())
        if absent and topic not in state.leaving:
            what = (
                f"Kafka does not list partition(s) {format_partitions(absent)} of topic {topic}, so their lag is "
                "unknown; check that the topic exists and that this connection's user may describe it"
            )
            yield Problem("warning", what, topic=topic, blocking=False)


def _of_topics(state: ClusterState) -> Iterator[Problem]:
    for topic, why in state.unreadable_topics.items():
        yield Problem("critical", why, topic=topic)
    for topic, message in state.stuck.items():
        yield Problem("critical", message, topic=topic)
    if state.blind:
        yield Problem("critical", state.blind)
    for what in state.named:
        yield Problem("warning", what, blocking=False)
    starts = [c for c, each in state.consumers.items() if each.condition is Condition.STARTING]
    if state.membership is not None and not state.live and starts:
        yield Problem("warning", f"No consumer is live yet; starting: {', '.join(starts)}")
    elif state.membership is not None and state.snapshots and not state.live:
        yield Problem(
            "critical",
            "No consumer is live: the assignment stays as it is until one appears. Start consumers with the DAG "
            f"muster_consumers__{state.settings.name}, or see why their checks fail",
        )
    for topic, cells in state.cells.items():
        count = cells.counts.get(PartitionState.UNASSIGNED, 0)
        if count and state.snapshots[topic].name is State.STABLE:
            what = f"{count} partition(s) of topic {topic} have no owner: no live consumer takes the topic"
            yield Problem("warning", what, topic=topic)


def of_time(state: ClusterState) -> Iterator[Problem]:
    """Yield the topics that are further behind than `max_lag` allows, and those that may lose what is unread."""
    source = state.reading.kafka
    if source.value is None and source.error is None:
        return  # it was not asked
    for topic, found in state.behind.items():
        most = None if topic in state.leaving else state.settings.max_lag_of(topic)
        if most is not None:
            yield from _promised(state, topic, found, most)
        if found.near_deletion and found.kept is not None:
            when = f"in {in_words(found.kept)}" if found.kept else "now"
            what = (
                f"Kafka may delete records of topic {topic} {when} that are not committed: see that its consumers "
                "run, add some, or raise the topic's retention.ms or retention.bytes"
            )
            yield Problem("critical", what, topic=topic)


def _promised(state: ClusterState, topic: str, found: TimeLag, most: float) -> Iterator[Problem]:
    if found.age is not None and found.age > most:
        late = {p for p, each in state.time_lags[topic].items() if each.age is not None and each.age > most}
        what = (
            f"Topic {topic} is {in_words(found.age)} behind, and max_lag is {in_words(most)}: partition(s) "
            f"{format_partitions(late)}; {caught_up(found)}"
        )
        yield Problem("critical", what, topic=topic)
    unknown = {p for p, each in state.time_lags[topic].items() if each.age is None}
    if unknown or state.reading.kafka.error is not None:
        which = f"of partition(s) {format_partitions(unknown)} " if unknown else ""
        why = state.reading.kafka.why or state.offsets.unread or "Kafka does not tell it"
        what = (
            f"Whether topic {topic} keeps its max_lag {which}is unknown: {why}; see that Kafka answers, and that "
            "this connection's user may read the topic"
        )
        yield Problem("warning", what, topic=topic)


def _of_flow(state: ClusterState) -> Iterator[Problem]:
    """Yield what people asked of the flow, and stands in the way of consumption."""
    for each in state.overrides.consumption:
        what = f"C{str(each)[1:]}; its records wait for muster resume-consumption, or until retention deletes them"
        yield Problem("warning", what, topic=each.topic or None)


def _of_losses(state: ClusterState) -> Iterator[Problem]:
    """Yield what Kafka had no more; consumption goes on behind it, or its partition is parked."""
    for topic, what in state.lost.items():
        yield Problem("warning", what, topic=topic, blocking=False)


def _of_consumers(state: ClusterState) -> Iterator[Problem]:
    for consumer, each in state.consumers.items():
        if each.failure:
            yield Problem("warning", f"Consumer {consumer}: {each.failure}", consumer=consumer)
        if each.missing:
            yield Problem("warning", _missing(each), consumer=consumer, blocking=bool(each.partitions))
        if each.condition is Condition.STARTING and each.starting is not None:
            what = f"Consumer {consumer} is starting: {each.starting.said(state.at)}"
            yield Problem("warning", what, consumer=consumer, blocking=bool(each.partitions))
        if each.condition is Condition.ISOLATED:
            yield Problem("warning", _isolated(each), consumer=consumer, blocking=bool(each.partitions))
    for consumer, status in sorted(state.statuses.items()):
        for error in status.details.errors:
            yield Problem(
                "warning", f"Consumer {consumer} reports: {error}", consumer=consumer, blocking=False
            )


def _missing(each: ConsumerState) -> str:
    output = f" ({each.output})" if each.output else ""
    how = f"does not pass its check{output}" if each.condition is Condition.FAILING else "is gone"
    has = f"; {each.partitions} partition(s) are still assigned to it" if each.partitions else ""
    tried = each.starting if each.starting is not None and each.condition is Condition.ABSENT else None
    why = (
        f"; its try {tried.tries} to start failed: {tried.failed}"
        if tried is not None and tried.failed
        else ""
    )
    return f"Consumer {each.consumer} {how}{has}{why}"


def _isolated(each: ConsumerState) -> str:
    if each.isolation is None:
        return f"Consumer {each.consumer} is in Consul's maintenance mode"
    return f"Consumer {each.consumer} is isolated by {each.isolation.by}: {each.isolation.why}"
