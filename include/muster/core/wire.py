"""The wire format: bytes of ZooKeeper nodes and status answers to values of `muster.core.model` and back.

Paths, keys and meaning are fixed, because consumers in other languages rely on them:

- `/consumers/[CLUSTER]/assignments/[TOPIC]`
  `{"bootstrap.servers": "h:9092", "group.id": "g", "assignments": {"45": "consumer-id"}}`
- `/consumers/[CLUSTER]/assignments/[TOPIC]/[PARTITION]`: one empty child a partition
- `/consumers/[CLUSTER]/state/[TOPIC]`
  `{"state": "Closing", "toStart": {"consumer-id": [1, 3]}, "toClose": {"other-id": [1, 3]}}`
- `/consumers/[CLUSTER]/racks/[TOPIC]`: `{"racks": {"a": [0, 3], "b": [1]}}`
- `GET /status`
  `{"consumer": "id", "incarnation": "uuid", "topics": {"t": {"running": [0], "starting": [], "closing": [2]}}}`

A topic's status may hold `offsets`, `{"0": {"lag": 2, "rate": 12.5, "batch": 320}}`, for assignors that
go by load, and for the search for what makes no progress, and `state`, how the state by key of its partitions stands:
`{"0": {"keys": 12, "bytes": 40960, "offset": 320, "commit": 9, "late": 0}, "1": {"restored": 500, "total": 2000,
"rate": 120.5, "still": 0.2}, "2": {"differs": "..."}}`. A status may hold `host`, `version`, `state`,
`started`, `errors`, `records`, `batches` and `last_batch`, for people to look at.

Beside these keys Muster writes `epoch` (both nodes of a topic; it grows whenever the owners change), `since`
(ISO 8601, UTC), `reason`, `missing` and `returned`, and into the assignment node `standbys`
(`{"45": ["id-2", "id-3"]}`, absent when there are none), `topic.id` (the topic's UUID as Kafka's own tools print it,
absent while it is unknown), `paused` (`[0, 3]`, partitions that are held and not read) and `seeks`
(`{"3": {"id": "...", "offset": 120, "rebuild": 1764338460}}`, the last one only with a rebuild).
A consumer that reads epochs says `"epochs": true` in its status and
gives every topic it has read the `epoch` it acted on; then 'closed' is only believed of an epoch that is new
enough, so an answer from before the change is never mistaken for one from after it. Keys that a reader does
not know are ignored.

Both nodes of a topic, status and registration hold `protocol`, the version that their writer speaks (`PROTOCOL`).
Each side works with its neighbours of the version before and after, and does not act on what one further off wrote.

The racks of the partitions' leaders are as Kafka's `broker.rack` says. Their node exists only where Kafka has racks;
a partition that is in none of its lists has an unknown one. `fetch_partitions` writes it, planning reads it, and
consumers have no use for it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from muster.core.model import (
    ConsumerDetails,
    ConsumerStatus,
    FailingRecord,
    Loss,
    OffsetRange,
    PartitionLoad,
    PastFailure,
    Restore,
    Return,
    Seek,
    SeekState,
    ShardState,
    State,
    Stored,
    TopicAssignment,
    TopicSnapshot,
    TopicState,
    TopicStatus,
    by_consumer,
    by_partition,
)

PROTOCOL = 2
"""The version of the protocol that is spoken here. It grows with a change that the version before would misread.
What names no version is always read: version 1 named none, and consumers in other languages need not."""
MAX_PARTITION = 2**31 - 1
MAX_EPOCH = 2**53
"""The greatest whole number that readers of JSON in all languages agree on; epochs begin at the clock's seconds."""
LONGEST_REASON = 4_000
"""Characters of a reason that a state node keeps: a node has to fit into a ZooKeeper request, beside others."""
LAST_MOMENT = 253_370_764_800.0
"""Seconds since the epoch at the end of the year 9998: what can be written and shown in any time zone."""
LONGEST_NAME_SHOWN = 100
Racks = Mapping[int, str]
"""Partition to the rack of its leader, of one topic; a partition whose rack is unknown is absent."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")  # Kafka's own rule for topic names
SEEK_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What the id of a seek may be."""
TOPIC_ID = SEEK_ID
"""What Kafka's id of a topic may be, too."""
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class WireError(ValueError):
    """Something read from outside is not what the protocol says; the message names it and the next step."""


def readable(
    read: Mapping[str, TopicSnapshot | WireError],
) -> tuple[dict[str, TopicSnapshot], dict[str, str]]:
    """Return the snapshots, and the unreadable topics with the reason: they stay as they are; others go on."""
    snapshots = {topic: found for topic, found in read.items() if isinstance(found, TopicSnapshot)}
    return snapshots, {topic: str(found) for topic, found in read.items() if isinstance(found, WireError)}


def check_topic(name: str) -> str:
    """Return `name` if Kafka would take it as a topic name, else raise `WireError`."""
    if not _TOPIC.fullmatch(name) or name in {".", ".."}:
        raise WireError(
            f"topic name {_shown(name)}: allowed are 1 to 249 of letters, digits, '.', '_' and '-'"
        )
    return name


def check_id(name: str, what: str = "consumer id") -> str:
    """Return `name` if it can stand in a ZooKeeper path and a Consul key, else raise `WireError`."""
    if not _ID.fullmatch(name):
        raise WireError(
            f"{what} {_shown(name)}: allowed are 1 to 128 of letters, digits, '.', '_' and '-', "
            "beginning with a letter or digit"
        )
    return name


def _shown(name: str) -> str:
    """Show a name that may be anything, as errors do."""
    return repr(name if len(name) <= LONGEST_NAME_SHOWN else f"{name[:LONGEST_NAME_SHOWN]}...")


@lru_cache(maxsize=64)
def assignments_path(cluster: str) -> str:
    """Return the path of the parent of a cluster's assignment nodes."""
    return f"/consumers/{check_id(cluster, 'cluster name')}/assignments"


def assignment_path(cluster: str, topic: str) -> str:
    """Return the path of the assignment node of a topic."""
    return f"{assignments_path(cluster)}/{check_topic(topic)}"


def partition_path(cluster: str, topic: str, partition: int) -> str:
    """Return the path of the child that says that `partition` exists."""
    return f"{assignment_path(cluster, topic)}/{partition}"


def states_path(cluster: str) -> str:
    """Return the path of the parent of a cluster's state nodes."""
    return f"/consumers/{check_id(cluster, 'cluster name')}/state"


def state_path(cluster: str, topic: str) -> str:
    """Return the path of the state node of a topic."""
    return f"{states_path(cluster)}/{check_topic(topic)}"


def racks_parent(cluster: str) -> str:
    """Return the path of the parent of a cluster's racks nodes."""
    return f"/consumers/{check_id(cluster, 'cluster name')}/racks"


def racks_path(cluster: str, topic: str) -> str:
    """Return the path of the racks node of a topic."""
    return f"{racks_parent(cluster)}/{check_topic(topic)}"


_Partition = Annotated[StrictInt, Field(ge=0, le=MAX_PARTITION)]
# The same ids and partitions stand in every node of a cluster: each is checked once.
_Id = Annotated[StrictStr, AfterValidator(lru_cache(maxsize=65_536)(check_id))]
_Epoch = Annotated[StrictInt, Field(ge=0, le=MAX_EPOCH)]
# Control characters stand in no address or group, and librdkafka would refuse all its settings for the sake of one.
_Setting = Annotated[StrictStr, Field(min_length=1, max_length=10_000, pattern=r"^[^\x00-\x1f\x7f]+$")]


def parse_partition(text: str) -> int:
    """Read a partition number. Raises `WireError` for anything else, also for one written with leading zeros."""
    if not (_NUMBER.fullmatch(text) and int(text) <= MAX_PARTITION):
        raise WireError(f"partition {_shown(text)}: expected a whole number from 0")
    return int(text)


def _moment(value: datetime) -> datetime:
    if not 1970 <= value.year <= 9998:  # noqa: PLR2004  what can be written again in any time zone
        raise ValueError("is not a moment from 1970 to 9998")
    return value


_Moment = Annotated[datetime, AfterValidator(_moment)]


@lru_cache(maxsize=65_536)
def _partition_key(text: str) -> str:
    parse_partition(text)
    return text


class OtherVersionError(ValueError):
    """Something is of a version of the protocol that is not understood here."""


def check_protocol(version: int | None) -> int | None:
    """Return `version` if what is written in it can be relied on here. None names none.

    Raises `OtherVersionError`.
    """
    if version is None or abs(version - PROTOCOL) <= 1:
        return version
    raise OtherVersionError(
        f"it is of version {version} of the protocol, and here versions {PROTOCOL - 1} to {PROTOCOL + 1} are "
        "understood; first install a version of Muster between the two"
    )


_Protocol = Annotated[StrictInt | None, AfterValidator(check_protocol)]


class _Node(BaseModel):
    model_config = ConfigDict(extra="ignore", populate_by_name=True)


class _Seek(_Node):
    id: Annotated[StrictStr, Field(pattern=f"^{SEEK_ID.pattern}$")]
    offset: Annotated[StrictInt, Field(ge=0)] | None = None
    rebuild: _Epoch | None = None
    state: SeekState | None = None


class _AssignmentNode(_Node):
    bootstrap_servers: Annotated[_Setting, Field(alias="bootstrap.servers")]
    group_id: Annotated[_Setting, Field(alias="group.id")]
    assignments: dict[Annotated[str, AfterValidator(_partition_key)], _Id]
    epoch: _Epoch = 0
    standbys: dict[Annotated[str, AfterValidator(_partition_key)], list[_Id]] = Field(default_factory=dict)
    topic_id: Annotated[StrictStr, Field(alias="topic.id", pattern=r"^[A-Za-z0-9_-]{0,64}$")] = ""
    paused: list[_Partition] = Field(default_factory=list)
    seeks: dict[Annotated[str, AfterValidator(_partition_key)], _Seek] = Field(default_factory=dict)
    protocol: _Protocol = None


class _Returned(_Node):
    at: _Moment
    absent: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _StateNode(_Node):
    state: State
    to_start: Annotated[dict[_Id, list[_Partition]], Field(alias="toStart")]
    to_close: Annotated[dict[_Id, list[_Partition]], Field(alias="toClose")]
    epoch: _Epoch = 0
    since: _Moment | None = None
    reason: str = ""
    missing: dict[_Id, _Moment] = Field(default_factory=dict)
    returned: dict[_Id, _Returned] = Field(default_factory=dict)
    protocol: _Protocol = None


class _RacksNode(_Node):
    racks: dict[Annotated[StrictStr, Field(min_length=1)], list[_Partition]]


class _TopicStatus(_Node):
    running: list[_Partition] = Field(default_factory=list)
    starting: list[_Partition] = Field(default_factory=list)
    closing: list[_Partition] = Field(default_factory=list)
    standby: list[_Partition] = Field(default_factory=list)
    epoch: _Epoch | None = None
    offsets: Any = None
    paused: Any = None
    failing: Any = None
    losses: Any = None
    left_out: Any = None
    stored: Any = None
    state: Any = None
    failures: Any = None


class _Status(_Node):
    consumer: _Id
    incarnation: Annotated[StrictStr, Field(min_length=1, max_length=128)]
    epochs: bool = False
    leaving: bool = False
    max_batch_time: Any = None
    batch: Any = None
    topics: dict[Annotated[str, AfterValidator(check_topic)], _TopicStatus]
    cluster: Any = None
    host: Any = None
    version: Any = None
    state: Any = None
    started: Any = None
    errors: Any = None
    records: Any = None
    batches: Any = None
    last_batch: Any = None
    protocol: _Protocol = None


def _mistake(where: str, error: ValidationError, otherwise: str) -> WireError:
    """Say what is wrong `where`: a version that is not understood here, or `otherwise`, with {} for the details."""
    for each in error.errors(include_url=False):
        if isinstance(cause := each.get("ctx", {}).get("error"), OtherVersionError):
            return WireError(f"{where}: {cause}")
    return WireError(f"{where} {otherwise.format(_explain(error))}")


def _explain(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part)[:LONGEST_NAME_SHOWN] for part in first["loc"]) or "the whole text"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {first['msg']}{more}"


def to_seconds(moment: datetime) -> float:
    """Return seconds since the epoch; a moment without a time zone is in UTC."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def to_iso(seconds: float) -> str:
    """Format seconds since the epoch as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def to_json(value: Mapping[str, object]) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def parse_assignment(data: bytes, path: str) -> TopicAssignment | None:
    """Read an assignment node; None if it has no data yet.

    Raises `WireError` naming `path` and the key at fault.
    """
    if not data:
        return None
    try:
        node = _AssignmentNode.model_validate_json(data)
    except ValidationError as error:
        raise _mistake(
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
    )


def format_assignment(assignment: TopicAssignment) -> bytes:
    """Write an assignment node, partitions in ascending order, standbys in the order of their promotion."""
    absent = {key for key in ("standbys", "topic_id", "paused", "seeks") if not getattr(assignment, key)}
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
        raise _mistake(
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
        raise _no_racks(path, _explain(error)) from error
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


def parse_status(data: bytes, source: str) -> ConsumerStatus:
    """Read a status answer. Raises `WireError` naming `source` (the URL) and the key at fault."""
    try:
        node = _Status.model_validate_json(data)
    except ValidationError as error:
        raise _mistake(
            f"status answer of {source}",
            error,
            "is not understood: {}; check what listens there",
        ) from error
    return ConsumerStatus(
        consumer=node.consumer,
        incarnation=node.incarnation,
        epochs=node.epochs,
        leaving=node.leaving,
        max_batch_time=_measure(node.max_batch_time),
        batch_seconds=_measure(node.batch),
        cluster=_text(node.cluster),
        topics={
            topic: TopicStatus(
                running=frozenset(status.running),
                starting=frozenset(status.starting),
                closing=frozenset(status.closing),
                epoch=status.epoch,
                standby=frozenset(status.standby),
                loads=_loads(status.offsets),
                paused=_numbers(status.paused),
                failing=_failing(status.failing),
                batch_seconds=_seconds(status.offsets, "batch"),
                losses=_losses(status.losses),
                left_out=_losses(status.left_out),
                stored=_stored(status.stored),
                shards=_shards(status.state),
                failures=_failures(status.failures),
            )
            for topic, status in node.topics.items()
        },
        details=_details(node),
    )


LONGEST_TEXT = 500
"""Characters of what a consumer says of itself that are kept."""
MOST_ERRORS = 20
MOST_FAILURES = 1_000
MOST_LOSSES = 200


def _details(node: _Status) -> ConsumerDetails:
    """Read what the status says for people. Anything else counts as not said: it never spoils a status."""
    errors = node.errors if isinstance(node.errors, list) else []
    return ConsumerDetails(
        host=_text(node.host),
        version=_text(node.version),
        doing=_text(node.state),
        started_at=_since_epoch(node.started),
        errors=tuple(_text(error) for error in errors[:MOST_ERRORS] if _text(error)),
        records=_count(node.records),
        batches=_count(node.batches),
        last_batch_at=_since_epoch(node.last_batch),
    )


def _text(value: object) -> str:
    return value[:LONGEST_TEXT] if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _since_epoch(value: object) -> float | None:
    """Read ISO 8601 as seconds since the epoch, None for anything else."""
    try:
        return to_seconds(datetime.fromisoformat(value)) if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None


def _loads(offsets: object) -> dict[int, PartitionLoad]:
    """Read what `offsets` says of loads. Anything else counts as unknown: a measurement never spoils a status."""
    loads = {}
    for partition, entry in _offsets(offsets):
        load = PartitionLoad(_measure(entry.get("lag")), _measure(entry.get("rate")))
        if load != PartitionLoad():
            loads[partition] = load
    return loads


def _seconds(offsets: object, key: str) -> dict[int, float]:
    """Read the seconds that stand under `key`, of each partition that has some, as lenient as `_loads`."""
    return {
        partition: seconds for partition, entry in _offsets(offsets) if (seconds := _measure(entry.get(key)))
    }


def _numbers(value: object) -> frozenset[int]:
    """Read the partitions in a list; anything else is left out."""
    return (
        frozenset(n for n in value if type(n) is int and n >= 0) if isinstance(value, list) else frozenset()
    )


def _failing(failing: object) -> dict[int, FailingRecord]:
    """Read the record that holds each partition up, as lenient as `_loads`."""
    found = {}
    for partition, entry in _offsets(failing):
        if (offset := _count(entry.get("offset"))) is not None:
            found[partition] = FailingRecord(
                offset,
                error=_text(entry.get("error")),
                attempts=_count(entry.get("attempts")) or 0,
                parked=entry.get("parked") is True,
                answer=_text(entry.get("answer")),
                lost=_count(entry.get("lost")) or 0,
                timer=entry.get("timer") is True,
                decided_for=_measure(entry.get("decided_for")) or 0.0,
            )
    return found


def _losses(losses: object) -> dict[int, tuple[Loss, ...]]:
    """Read what was lost of each partition, as lenient as `_loads`."""
    found: dict[int, tuple[Loss, ...]] = {}
    for key, entries in losses.items() if isinstance(losses, dict) else ():
        if isinstance(key, str) and _NUMBER.fullmatch(key) and isinstance(entries, list):
            read = [_loss(entry) for entry in entries[:MOST_LOSSES]]
            if some := tuple(loss for loss in read if loss is not None):
                found[int(key)] = some
    return found


def _loss(entry: object) -> Loss | None:
    if not isinstance(entry, dict):
        return None
    begin, end, records = (_count(entry.get(key)) for key in ("from", "to", "records"))
    at = _since_epoch(entry.get("at"))
    if begin is None or end is None or records is None or at is None or not 0 <= at < LAST_MOMENT:
        return None
    return Loss(begin, end, records, _text(entry.get("reason")), at)


def _failures(failures: object) -> tuple[PastFailure, ...] | None:
    """Read what failed within the last hour, as lenient as `_loads`; None if it is not said."""
    if not isinstance(failures, list):
        return None
    return tuple(
        PastFailure(partition, offset, _text(entry.get("error")), _since_epoch(entry.get("at")) or 0.0)
        for entry in failures[:MOST_FAILURES]
        if isinstance(entry, dict)
        and (partition := _count(entry.get("partition"))) is not None
        and (offset := _count(entry.get("offset"))) is not None
    )


def _stored(stored: object) -> dict[int, dict[str, Stored]]:
    """Read what sinks have of each partition, as lenient as `_loads`. A sink that cannot be read leaves it unknown
    what there is of its partition."""
    found = {}
    for partition, sinks in _offsets(stored):
        read = {_text(name): _stored_in(entry) for name, entry in list(sinks.items())[:MOST_ERRORS]}
        if all(entry is not None for entry in read.values()):
            found[partition] = {name: entry for name, entry in read.items() if entry is not None}
    return found


def _stored_in(entry: object) -> Stored | None:
    if not isinstance(entry, dict) or not isinstance(listed := entry.get("ranges"), list):
        return None
    ranges = tuple(found for each in listed[:MOST_LOSSES] if (found := _range(each)) is not None)
    at, more = _since_epoch(entry.get("at")), _count(entry.get("more"))
    if len(ranges) < len(listed) or at is None or more is None or not 0 <= at < LAST_MOMENT:
        return None
    return Stored(ranges, more, at)


def _shards(state: object) -> dict[int, ShardState]:
    """Read how the state of each partition stands, as lenient as `_loads`."""
    return {partition: _shard(entry) for partition, entry in _offsets(state)}


def _shard(entry: dict[object, object]) -> ShardState:
    keys, size, commit, restored, late = (
        _count(entry.get(key)) or 0 for key in ("keys", "bytes", "commit", "restored", "late")
    )
    rate, still = (_measure(entry.get(key)) for key in ("rate", "still"))
    restore = None if still is None else Restore(restored, _count(entry.get("total")), rate or 0.0, still)
    offset, differs = _count(entry.get("offset")), _text(entry.get("differs"))
    return ShardState(keys, size, offset, commit, restore, differs, late)


def _range(value: object) -> OffsetRange | None:
    if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004
        return None
    begin, end = map(_count, value)
    return None if begin is None or end is None or begin >= end else (begin, end)


def _offsets(offsets: object) -> Iterator[tuple[int, dict[object, object]]]:
    """Yield the entries of a mapping that are about a partition."""
    for key, entry in offsets.items() if isinstance(offsets, dict) else ():
        if isinstance(key, str) and _NUMBER.fullmatch(key) and isinstance(entry, dict):
            yield int(key), entry


def _measure(value: object) -> float | None:
    """Read a finite number from 0, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
