"""The history of a cluster: what was written to its topics and which commands were given, as an append-only log.

One node below `/consumers/[CLUSTER]/history` an entry, numbered by ZooKeeper (`entry-0000000042`), in JSON:

- `{"kind": "transitions", "at": "2026-11-22T07:00:00.000+00:00", "by": "...", "steps": [...]}`: the steps that were
  written in one multi, together with this node, so that none is missing and none is here that did not happen. A step
  is `{"topic", "before", "after", "epoch", "reason", "lasted", "moved", "moves"}`; `moves` is grouped,
  `[{"why": "consumer a left", "from": "a", "to": {"b": [1, 2], "c": [3]}}]`, and `from` or `to` may be null.
- `{"kind": "lever", "at", "who", "what", "why", "via", "details"}`: what a person did. Its effect, if there is one,
  comes as transitions after it.

`moves` is cut where the moves of all steps of a node would take more than `MOVES_BYTES`, evenly over the steps;
`moved` is always the number of all. Keys that a reader does not know are ignored, and a node that holds something
else is shown as such (`Unreadable`): the others are read nevertheless.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from muster.core.model import Move, State, TopicSnapshot, Transition
from muster.core.moments import LAST_MOMENT, to_iso, to_seconds
from muster.core.wire import check_id, to_json

MOVES_BYTES = 128 * 1024
"""About so many bytes of one node hold moves; a node of ZooKeeper holds a megabyte."""
LONGEST_TEXT = 1_000
"""Characters of a reason that are kept."""
LONGEST_DETAILS = 4_096
"""Characters of JSON that the details of a command may have."""
LONGEST_REBALANCE = 1e9
"""Seconds, about thirty years; more than that was not written by a clock."""
SHOWN_DATA = 200
"""Characters of an entry that cannot be read, as far as it is shown."""

_NAME = re.compile(r"entry-(\d{10})")


@dataclass(frozen=True, slots=True)
class Step:
    """One transition of one topic. `lasted` is in seconds since the topic's rebalance began, 0 for its first step.

    `moved` counts all moves, of which `moves` may hold only some.
    """

    topic: str
    before: State
    after: State
    epoch: int
    reason: str = ""
    lasted: float = 0.0
    moves: tuple[Move, ...] = ()
    moved: int = 0


@dataclass(frozen=True, slots=True)
class Transitions:
    """The steps of one write, at `at` (seconds since the epoch). `by` is who wrote it: a DAG and its run, ..."""

    at: float
    by: str
    steps: tuple[Step, ...]
    kind: Literal["transitions"] = "transitions"


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command: `who` gave `what` (`isolate`, `pin`, `pause`, ...) and `why`, at `at` (seconds since the epoch).

    `via` is where it was given (a DAG and its run, `command line`, `dashboard`). `details` holds plain JSON-able
    values, such as `consumer`, `topic` and `partitions`.
    """

    at: float
    who: str
    what: str
    why: str
    via: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    kind: Literal["lever"] = "lever"
    """As it is on the wire."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An entry that holds something else; `at` is when ZooKeeper got it."""

    at: float
    problem: str
    kind: Literal["unreadable"] = "unreadable"


Entry = Transitions | CommandEntry
"""What is appended."""


@dataclass(frozen=True, slots=True)
class Record:
    """An entry as it stands in the log. Numbers grow with time; `written` is by ZooKeeper's clock."""

    number: int
    written: float
    entry: Entry | Unreadable


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Part of the log, newest first. There are older ones if `before` is given: pass it on to get them."""

    records: tuple[Record, ...] = ()
    before: int | None = None


def history_path(cluster: str) -> str:
    """Return the path of the parent of a cluster's entries."""
    return f"/consumers/{check_id(cluster, 'cluster name')}/history"


def entry_prefix(cluster: str) -> str:
    """Return the path of an entry without its number, which ZooKeeper gives it."""
    return f"{history_path(cluster)}/entry-"


def entry_name(number: int) -> str:
    """Return the name of an entry's node."""
    return f"entry-{number:010d}"


def entry_number(name: str) -> int | None:
    """Return the number of an entry's node, None for a node that is no entry."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def step_of(transition: Transition, now: float) -> Step:
    """Return what the history says of `transition`, written at `now` (seconds since the epoch)."""
    before = transition.before
    under_way = before.state is not None and before.state.state is not State.STABLE
    # `since` is by ZooKeeper's clock, so the end of a rebalance is compared with its begin by that clock, too.
    until = transition.state.since if transition.state.state is State.STABLE else now
    lasted = until - before.state.since if under_way and before.state is not None else 0.0
    return Step(
        topic=transition.topic,
        before=before.name,
        after=transition.state.state,
        epoch=transition.state.epoch,
        reason=transition.reason,
        lasted=max(0.0, round(lasted, 3)),
        moves=transition.moves,
        moved=len(transition.moves),
    )


def removal_of(snapshot: TopicSnapshot, reason: str) -> Step:
    """Return what the history says when the nodes of an unsubscribed topic are removed."""
    epoch = snapshot.assignment.epoch if snapshot.assignment is not None else 0
    return Step(snapshot.topic, snapshot.name, State.INITIAL, epoch, reason)


# To bytes


def format_entry(entry: Entry) -> bytes:
    """Write an entry; moves are cut, see `MOVES_BYTES`.

    Raises ValueError for a command whose details are longer than `LONGEST_DETAILS`.
    """
    head = {"kind": entry.kind, "at": to_iso(entry.at)}
    if isinstance(entry, Transitions):
        budget = MOVES_BYTES // max(1, len(entry.steps))
        steps = [_step(step) | {"moves": _grouped(_within(step.moves, budget))} for step in entry.steps]
        return to_json({**head, "by": entry.by[:LONGEST_TEXT], "steps": steps})
    details = dict(entry.details)
    if len(json.dumps(details)) > LONGEST_DETAILS:
        raise ValueError(
            f"history of {entry.what}: details take more than {LONGEST_DETAILS} characters of JSON"
        )
    texts = {key: getattr(entry, key)[:LONGEST_TEXT] for key in ("who", "what", "why", "via")}
    return to_json({**head, **texts, "details": details})


def step_size(step: Step) -> int:
    """Count the bytes of a step without its moves, to see how much fits into one request."""
    return len(to_json(_step(step)))


def _step(step: Step) -> dict[str, Any]:
    return {
        "topic": step.topic,
        "before": str(step.before),
        "after": str(step.after),
        "epoch": step.epoch,
        "reason": step.reason[:LONGEST_TEXT],
        "lasted": step.lasted,
        "moved": step.moved,
    }


def _within(moves: Iterable[Move], budget: int) -> list[Move]:
    """Return as many of `moves` as take about `budget` bytes, grouped."""
    kept: list[Move] = []
    groups: set[tuple[str, str | None]] = set()
    targets: set[tuple[str, str | None, str | None]] = set()
    for move in moves:
        group = (move.reason, move.source)
        size = len(str(move.partition)) + 1
        size += 0 if group in groups else len(move.reason) + len(move.source or "") + 32
        size += 0 if (*group, move.target) in targets else len(move.target or "") + 6
        budget -= size
        if budget < 0:
            break
        groups.add(group)
        targets.add((*group, move.target))
        kept.append(move)
    return kept


def _grouped(moves: Iterable[Move]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str | None], dict[str, list[int]]] = {}
    nowhere: dict[tuple[str, str | None], list[int]] = {}
    for move in moves:
        group = (move.reason[:LONGEST_TEXT], move.source)
        if move.target is None:
            nowhere.setdefault(group, []).append(move.partition)
        else:
            groups.setdefault(group, {}).setdefault(move.target, []).append(move.partition)
    return [
        *({"why": why, "from": source, "to": to} for (why, source), to in groups.items()),
        *({"why": why, "from": source, "to": None, "partitions": p} for (why, source), p in nowhere.items()),
    ]


# From bytes


class _Node(BaseModel):
    model_config = ConfigDict(extra="ignore")


_Count = Annotated[int, Field(ge=0)]


class _Moves(_Node):
    why: str = ""
    source: Annotated[str | None, Field(alias="from")] = None
    to: dict[str, list[_Count]] | None = None
    partitions: list[_Count] = Field(default_factory=list)


class _Step(_Node):
    topic: str
    before: State
    after: State
    epoch: _Count = 0
    reason: str = ""
    lasted: Annotated[float, Field(ge=0, le=LONGEST_REBALANCE, allow_inf_nan=False)] = 0.0
    moved: _Count = 0
    moves: list[_Moves] = Field(default_factory=list)


class _Transitions(_Node):
    kind: Literal["transitions"]
    at: datetime
    by: str = ""
    steps: list[_Step]


class _Command(_Node):
    kind: Literal["lever"]
    at: datetime
    who: str
    what: str
    why: str = ""
    via: str = ""
    details: dict[str, Any] = Field(default_factory=dict)


_ENTRY: TypeAdapter[_Transitions | _Command] = TypeAdapter(
    Annotated[_Transitions | _Command, Field(discriminator="kind")]
)


def parse_entry(data: bytes, path: str, written: float) -> Entry | Unreadable:
    """Read the entry at `path`, which ZooKeeper got at `written` (seconds since the epoch). Never raises."""
    try:
        node = _ENTRY.validate_json(data)
        at = _seconds(node.at)
        if isinstance(node, _Command):
            json.dumps(node.details, allow_nan=False)  # what is no number is no JSON for those who read on
    except (ValidationError, OverflowError, ValueError) as error:
        why = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else str(error)
        first = why[:SHOWN_DATA]
        shown = data[:SHOWN_DATA].decode(errors="replace")
        return Unreadable(
            written,
            f"ZooKeeper node {path} is no entry of a history ({first}): {shown!r}; delete it if it is not yours",
        )
    if isinstance(node, _Command):
        return CommandEntry(at, node.who, node.what, node.why, node.via, node.details)
    return Transitions(at, node.by, tuple(_read_step(step) for step in node.steps))


def _read_step(step: _Step) -> Step:
    moves = [
        Move(step.topic, partition, group.source, target, group.why)
        for group in step.moves
        for target, partitions in [*(group.to or {}).items(), (None, group.partitions)]
        for partition in partitions
    ]
    return Step(
        **dict(step)
        | {
            "moves": tuple(sorted(moves, key=lambda move: move.partition)),
            "moved": max(step.moved, len(moves)),
        }
    )


def _seconds(moment: datetime) -> float:
    found = to_seconds(moment)
    if not 0 <= found < LAST_MOMENT:
        raise ValueError(f"no clock has shown {moment}")
    return found
