"""The nodes in ZooKeeper: assignment, state and racks of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, StrictInt, StrictStr, ValidationError

from muster.core.model import (
    Return,
    Seek,
    SeekState,
    State,
    TopicAssignment,
    TopicState,
    by_consumer,
    by_partition,
)
from muster.core.moments import to_iso, to_seconds
from muster.core.wire.names import (
    PROTOCOL,
    SEEK_ID,
    Epoch,
    Id,
    Moment,
    Node,
    Partition,
    Protocol,
    Setting,
    WireError,
    explain,
    mistake,
    partition_key,
    to_json,
)

LONGEST_REASON = 4_000
"""Characters of a reason that a state node keeps: a node has to fit into a ZooKeeper request, beside others."""
Racks = Mapping[int, str]
"""Partition to the rack of its leader, of one topic; a partition whose rack is unknown is absent."""


class _Seek(Node):
    id: Annotated[StrictStr, Field(pattern=f"^{SEEK_ID.pattern}$")]
    offset: Annotated[StrictInt, Field(ge=0)] | None = None
    rebuild: Epoch | None = None
    state: SeekState | None = None


class _AssignmentNode(Node):
    bootstrap_servers: Annotated[Setting, Field(alias="bootstrap.servers")]
    group_id: Annotated[Setting, Field(alias="group.id")]
    assignments: dict[Annotated[str, AfterValidator(partition_key)], Id]
    epoch: Epoch = 0
    standbys: dict[Annotated[str, AfterValidator(partition_key)], list[Id]] = Field(default_factory=dict)
    topic_id: Annotated[StrictStr, Field(alias="topic.id", pattern=r"^[A-Za-z0-9_-]{0,64}$")] = ""
    paused: list[Partition] = Field(default_factory=list)
    seeks: dict[Annotated[str, AfterValidator(partition_key)], _Seek] = Field(default_factory=dict)
    warm_ups: dict[Annotated[str, AfterValidator(partition_key)], Id] = Field(default_factory=dict)
    protocol: Protocol = None


class _Returned(Node):
    at: Moment
    absent: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _StateNode(Node):
    state: State
    to_start: Annotated[dict[Id, list[Partition]], Field(alias="toStart")]
    to_close: Annotated[dict[Id, list[Partition]], Field(alias="toClose")]
    epoch: Epoch = 0
    since: Moment | None = None
    reason: str = ""
    missing: dict[Id, Moment] = Field(default_factory=dict)
    returned: dict[Id, _Returned] = Field(default_factory=dict)
    protocol: Protocol = None


class _RacksNode(Node):
    racks: dict[Annotated[StrictStr, Field(min_length=1)], list[Partition]]


def parse_assignment(data: bytes, path: str) -> TopicAssignment | None:
    """Read an assignment node; None if it has no data yet.

    Raises `WireError` naming `path` and the key at fault.
    """
    if not data:
        return None
    try:
        node = _AssignmentNode.model_validate_json(data)
    except ValidationError as error:
        raise mistake(
            f"ZooKeeper node {path}",
            error,
            "is not an assignment: {}; correct it, or delete the topic's assignment and state nodes to have them "
            "planned again",
        ) from error
    return TopicAssignment(
        bootstrap_servers=node.bootstrap_servers,
        group_id=node.group_id,
        owners={int(partition): consumer for partition, consumer in node.assignments.items()},
        epoch=node.epoch,
        standbys={
            int(p): tuple(dict.fromkeys(standbys)) for p, standbys in node.standbys.items() if standbys
        },
        topic_id=node.topic_id,
        paused=frozenset(node.paused),
        seeks={
            int(p): Seek(seek.id, seek.offset, seek.rebuild or 0, seek.state)
            for p, seek in node.seeks.items()
        },
        warm_ups={int(p): consumer for p, consumer in node.warm_ups.items()},
    )


def format_assignment(assignment: TopicAssignment) -> bytes:
    """Write an assignment node, partitions in ascending order, standbys in the order of their promotion."""
    absent = {
        key for key in ("standbys", "topic_id", "paused", "seeks", "warm_ups") if not getattr(assignment, key)
    }
    return (
        _AssignmentNode(
            bootstrap_servers=assignment.bootstrap_servers,
            group_id=assignment.group_id,
            assignments={str(p): assignment.owners[p] for p in sorted(assignment.owners)},
            epoch=assignment.epoch,
            standbys={str(p): list(assignment.standbys[p]) for p in sorted(assignment.standbys)},
            topic_id=assignment.topic_id,
            protocol=PROTOCOL,
            paused=sorted(assignment.paused),
            seeks={
                str(p): _Seek(id=seek.id, offset=seek.offset, rebuild=seek.rebuild or None, state=seek.state)
                for p, seek in sorted(assignment.seeks.items())
            },
            warm_ups={str(p): assignment.warm_ups[p] for p in sorted(assignment.warm_ups)},
        )
        .model_dump_json(by_alias=True, exclude=absent, exclude_none=True)
        .encode()
    )


def parse_state(data: bytes, path: str) -> TopicState:
    """Read a state node. Raises `WireError` naming `path` and the key at fault."""
    try:
        node = _StateNode.model_validate_json(data)
        if node.state is State.INITIAL:
            raise WireError(f"ZooKeeper node {path}: 'Initial' is the absence of the node; delete it")
        for key, lists in (("toStart", node.to_start), ("toClose", node.to_close)):
            if twice := _in_two_lists(lists):
                raise WireError(
                    f"ZooKeeper node {path}: partition {twice[0]} stands in {key} twice, with {twice[1]} and with "
                    f"{twice[2]}; correct it, or delete the node to have the topic planned again"
                )
        return TopicState(
            state=node.state,
            to_start={c: frozenset(p) for c, p in node.to_start.items() if p},
            to_close={c: frozenset(p) for c, p in node.to_close.items() if p},
            epoch=node.epoch,
            since=0.0 if node.since is None else to_seconds(node.since),
            reason=node.reason,
            missing={consumer: to_seconds(moment) for consumer, moment in node.missing.items()},
            returned={c: Return(to_seconds(last.at), last.absent) for c, last in node.returned.items()},
        )
    except ValidationError as error:
        raise mistake(
            f"ZooKeeper node {path}",
            error,
            "is not a topic state: {}; correct it, or delete it to have the topic planned again",
        ) from error


def _in_two_lists(lists: Mapping[str, list[int]]) -> tuple[int, str, str] | None:
    """Find a partition that two consumers' lists hold, and these two; None if there is none."""
    seen: dict[int, str] = {}
    for consumer, partitions in lists.items():
        for partition in partitions:
            if seen.setdefault(partition, consumer) != consumer:
                return partition, seen[partition], consumer
    return None


def format_state(state: TopicState) -> bytes:
    """Write a state node, consumers and partitions in ascending order."""
    node = _StateNode(
        state=state.state,
        to_start={c: sorted(state.to_start[c]) for c in sorted(state.to_start)},
        to_close={c: sorted(state.to_close[c]) for c in sorted(state.to_close)},
        epoch=state.epoch,
        reason=_writable(state.reason),
        protocol=PROTOCOL,
    )
    text = node.model_dump(mode="json", by_alias=True, exclude={"since", "missing", "returned"})
    text["since"] = to_iso(state.since)
    if state.missing:
        text["missing"] = {c: to_iso(state.missing[c]) for c in sorted(state.missing)}
    if state.returned:
        text["returned"] = {
            c: {"at": to_iso(last.at), "absent": round(last.absent, 3)}
            for c, last in sorted(state.returned.items())
        }
    return to_json(text)


def _writable(reason: str) -> str:
    """Return what of a reason can be read again: it holds text of people, which may be anything."""
    text = reason.encode("utf-8", "replace").decode()
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 3]}..."


def parse_racks(data: bytes, path: str) -> dict[int, str]:
    """Read a racks node. Raises `WireError` naming `path` and what is wrong."""
    try:
        racks = _RacksNode.model_validate_json(data).racks
    except ValidationError as error:
        raise _no_racks(path, explain(error)) from error
    if twice := _in_two_lists(racks):
        raise _no_racks(path, f"partition {twice[0]} is in {twice[1][:100]!r} and in {twice[2][:100]!r}")
    return by_partition({rack: frozenset(partitions) for rack, partitions in racks.items()})


def _no_racks(path: str, problem: str) -> WireError:
    return WireError(
        f"ZooKeeper node {path} does not tell racks: {problem}; the racks of this topic count as unknown. Delete "
        "the node, the next run writes it again"
    )


def format_racks(racks: Racks) -> bytes:
    """Write a racks node, racks and partitions in ascending order, so that equal racks give equal bytes."""
    return to_json({"racks": {rack: sorted(partitions) for rack, partitions in by_consumer(racks).items()}})
