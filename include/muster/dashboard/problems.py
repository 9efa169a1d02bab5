"""What a person should know of a cluster, in words that name the thing and the next step. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.model import State
from muster.dashboard.board import Board
from muster.dashboard.models import PartitionState, Problem

_SERVERS = {
    "zookeeper": "ZooKeeper",
    "consul": "Consul",
    "kafka": "Kafka",
    "consumers": "The consumers",
    "history": "The history",
}


def problems(board: Board) -> list[Problem]:
    """Everything that a person should know, the worst first."""
    found = [*_of_servers(board), *_of_topics(board), *_of_consumers(board)]
    return sorted(found, key=lambda problem: problem.level != "critical")


def _of_servers(board: Board) -> Iterator[Problem]:
    collected = board.collected
    for source in collected.health:
        if not source.reachable:
            # Nobody's work depends on Kafka answering the dashboard; lag is then what the consumers say.
            level = "warning" if source.source == "kafka" else "critical"
            yield _problem(level, f"{_SERVERS[source.source]} cannot be reached: {source.error}")
    if collected.consul is not None:
        if board.overview.doubt:
            yield _problem("critical", f"Consul's answer is not to be trusted: {board.overview.doubt}")
        if collected.consul.decisions.assignor_error:
            yield _problem("critical", collected.consul.decisions.assignor_error)
        for error in collected.consul.decisions.errors:
            yield _problem("warning", error)
    for error in collected.offset_errors:
        yield _problem("warning", error)


def _of_topics(board: Board) -> Iterator[Problem]:
    for topic, why in board.unreadable.items():
        yield _problem("critical", why, topic=topic)
    for topic, message in board.stuck.items():
        yield _problem("critical", message, topic=topic)
    trusted = board.collected.consul is not None and not board.overview.doubt
    if trusted and board.snapshots and not board.collected.live:
        yield _problem(
            "critical",
            "No consumer is live: the assignment stays as it is until one appears. Start consumers with the DAG "
            f"muster_consumers__{board.collected.settings.name}, or see why their checks fail",
        )
    for topic, cells in board.cells.items():
        count = cells.counts.get(PartitionState.UNASSIGNED, 0)
        if count and board.snapshots[topic].name is State.STABLE:
            what = f"{count} partition(s) of topic {topic} are in nobody's hands: no live consumer takes the topic"
            yield _problem("warning", what, topic=topic)


def _of_consumers(board: Board) -> Iterator[Problem]:
    expected = board.expected
    for consumer, line in board.lines.items():
        if line.answers:
            yield _problem("warning", f"Consumer {consumer}: {line.answers}", consumer=consumer)
        if line.state in {"gone", "not passing"} and (line.partitions or consumer in expected):
            yield _problem("warning", _absent(board, consumer, line.state), consumer=consumer)
        if line.state == "isolated":
            yield _problem("warning", _isolated(board, consumer), consumer=consumer)
    for consumer, status in sorted(board.collected.statuses.items()):
        for error in status.details.errors:
            yield _problem("warning", f"Consumer {consumer} reports: {error}", consumer=consumer)


def _problem(level: str, what: str, topic: str | None = None, consumer: str | None = None) -> Problem:
    return Problem(
        level="critical" if level == "critical" else "warning", what=what, topic=topic, consumer=consumer
    )


def _absent(board: Board, consumer: str, state: str) -> str:
    consul = board.collected.consul
    output = (
        consul.members.registered[consumer].output if consul and consumer in consul.members.registered else ""
    )
    how = (
        f"does not pass its check{f' ({output})' if output else ''}" if state == "not passing" else "is gone"
    )
    has = board.lines[consumer].partitions
    return f"Consumer {consumer} {how}" + (f"; {has} partition(s) are still assigned to it" if has else "")


def _isolated(board: Board, consumer: str) -> str:
    consul = board.collected.consul
    entry = consul.isolated.get(consumer) if consul else None
    if entry is None:
        return f"Consumer {consumer} is in Consul's maintenance mode"
    return f"Consumer {consumer} is isolated by {entry.by}: {entry.why}"
