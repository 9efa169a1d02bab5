"""What flows through Muster: topics, consumers, assignments and states, as plain immutable values.

Nothing here talks to a network, a clock or a file. Times are seconds since the Unix epoch and always come
in as arguments. Every other module of the core speaks in these types; the edges turn what they read into
them once (`muster.core.wire` for ZooKeeper nodes and status answers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated

from muster.core.copies import Copies
from muster.core.lenient import (
    MOST_ERRORS,
    AnyMoment,
    Count,
    Dated,
    Duration,
    Flag,
    MaybeCount,
    MaybeMoment,
    Measure,
    OffsetRanges,
    Required,
    Text,
    Texts,
    Wire,
    each,
    list_of,
    lists,
    measure,
    named,
    numbers,
    of_partitions,
    read,
    text,
    write,
    write_partitions,
)
from muster.core.partition_list import format_partitions

TopicPartition = tuple[str, int]
"""Topic and partition number."""

OffsetRange = tuple[int, int]
"""Offsets of one partition, from the first up to, not including, the second."""

Owners = Mapping[int, str]
"""Partition number to consumer id, of one topic."""

Assignment = Mapping[str, Owners]
"""Topic to owners: what an assignor takes as `previous` and what it returns."""

PartitionStandbys = Mapping[int, tuple[str, ...]]
"""Partition number to the consumers that stand by for it, of one topic; the first is promoted first."""

PartitionsByConsumer = Mapping[str, frozenset[int]]
"""Consumer id to the partitions of one topic, as `toStart` and `toClose` hold them."""


def by_partition(by_consumer: PartitionsByConsumer) -> dict[int, str]:
    """Turn lists of partitions by consumer round."""
    return {p: consumer for consumer in sorted(by_consumer) for p in by_consumer[consumer]}


def by_consumer(owners: Owners) -> dict[str, frozenset[int]]:
    """Turn owners round: the partitions of each consumer, consumers in ascending order."""
    lists: dict[str, set[int]] = {}
    for partition, consumer in owners.items():
        lists.setdefault(consumer, set()).add(partition)
    return {consumer: frozenset(lists[consumer]) for consumer in sorted(lists)}


class State(StrEnum):
    """The states of a topic, one state node a topic. `Initial` is the absence of the node."""

    INITIAL = "Initial"
    STARTING = "Starting"
    STABLE = "Stable"
    CLOSING = "Closing"


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer as service discovery describes it.

    `priority` (higher is preferred), `weight` (share of the load, 1.0 is normal) and `zone` come from its
    Consul metadata. `topics` is None when it takes every topic of its cluster.
    """

    id: str
    address: str = ""
    port: int = 0
    priority: int = 0
    weight: float = 1.0
    zone: str | None = None
    topics: frozenset[str] | None = None
    incarnation: str | None = None
    leaving: bool = False
    """It is about to leave, and reads on until its partitions are taken from it: it is given nothing more."""
    generation: int = 0
    """The place of this process among all that ever had this id, 0 if it does not say (foreign consumers)."""
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What it registered beyond the keys that Muster knows, for an assignor that knows more."""

    def subscribes(self, topic: str) -> bool:
        """Tell whether this consumer takes partitions of `topic`."""
        return self.topics is None or topic in self.topics


@dataclass(frozen=True, slots=True)
class Membership:
    """The consumers that are there, from one trustworthy reading of service discovery.

    `live` are the consumers that pass their check and are not isolated. `isolated` are those that a person
    took out (a key in the KV, or Consul's maintenance mode), whether or not they are registered. A consumer
    in neither has left or is missing. `isolated_by` says who isolated those that were by a key, and why, in words on
    one line without semicolons.

    Every consumer that is registered is in exactly one of `live`, `failing` (its check does not pass) and `outside`
    (isolated); those of the latter two may still hold partitions, and can be asked. An id that is registered more
    than once (with several agents of Consul) counts by its newest process; `older` has the others, newest first,
    whether or not they pass.
    """

    live: Mapping[str, Consumer]
    isolated: frozenset[str] = frozenset()
    isolated_by: Mapping[str, str] = field(default_factory=dict)
    failing: Mapping[str, Consumer] = field(default_factory=dict)
    outside: Mapping[str, Consumer] = field(default_factory=dict)
    older: Mapping[str, tuple[Consumer, ...]] = field(default_factory=dict)


class SeekState(StrEnum):
    """What a seek does to the state by key of its partition."""

    AGAIN = "again"
    """Records change the state, also those that have changed it before."""
    SKIP = "skip"
    """Records that have changed the state, or were passed over, do not change it again."""
    REBUILD = "rebuild"
    """The state begins empty."""


@dataclass(frozen=True, slots=True)
class Seek:
    """A request that a partition goes on at `offset`; with None it goes on where it is, as earlier requests were
    taken back. Its `id` goes with the commits of a partition from then on. Ids ascend, and no request is carried out
    that is not above that one: each once, and none after a later one, whatever a backup brings back.
    `rebuild` is the least number of the rebuild that it begins, 0 for none. `state` is what it does to state by key,
    None where the topic has none."""

    id: str
    offset: int | None
    rebuild: int = 0
    state: SeekState | None = None


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """The assignment node of a topic: where its records are, whose offsets count, and who reads what.

    A partition on the move has no owner and is therefore absent from `owners`. `standbys` are those who are
    to take a partition over when its owner leaves; a partition without any is absent from it. `topic_id` is the id
    that Kafka gave the topic when it was created, '' where it is unknown: a topic that is deleted and created again
    under its name has another one. What people ask of the flow stands beside the owners and changes none of them:
    partitions in `paused` are held and not read, and `seeks` are not known to be carried out. `warm_ups` name the
    consumer that brings a copy of a partition's state to where it may take the partition over.
    """

    bootstrap_servers: str
    group_id: str
    owners: Owners = field(default_factory=dict)
    epoch: int = 0
    standbys: PartitionStandbys = field(default_factory=dict)
    topic_id: str = ""
    paused: frozenset[int] = frozenset()
    seeks: Mapping[int, Seek] = field(default_factory=dict)
    warm_ups: Owners = field(default_factory=dict)

    def stood_by_for(self, consumer: str) -> frozenset[int]:
        """Return the partitions that a consumer stands by for, or warms up for."""
        standing = {p for p, standbys in self.standbys.items() if consumer in standbys}
        return frozenset(standing | {p for p, other in self.warm_ups.items() if other == consumer})


@dataclass(frozen=True, slots=True)
class Return:
    """When a consumer ran again all that it owns, in seconds since the epoch, and for how many seconds it was absent.

    `absent` counts earlier absences, too, where the consumer did not run for `rebalance_delay` between them.
    """

    at: float
    absent: float


@dataclass(frozen=True, slots=True)
class TopicState:
    """The state node of a topic.

    `to_close` names the old owners of partitions that move; `to_start` names the new owner of every partition
    that is not yet seen running, whether it was already given away (then `TopicAssignment.owners` has it) or
    still waits to be closed (then `to_close` has it). `since` is when the topic left or reached `Stable`:
    the start of the present rebalance, or of the present quiet. `missing` is when each owner that is absent
    without isolation was first seen absent (only kept while a `rebalance_delay` runs). `returned` is what is known
    of earlier absences; entries older than `rebalance_delay` mean nothing, and stay until the next write.
    """

    state: State
    to_start: PartitionsByConsumer = field(default_factory=dict)
    to_close: PartitionsByConsumer = field(default_factory=dict)
    epoch: int = 0
    since: float = 0.0
    reason: str = ""
    missing: Mapping[str, float] = field(default_factory=dict)
    returned: Mapping[str, Return] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """All that ZooKeeper holds on one topic, with the versions to write against.

    `assignment` is None when the topic node has no data yet, `state` is None in `Initial`. `session` is the number of
    ZooKeeper's session that read it, 0 if unknown: versions count within that session.
    """

    topic: str
    partitions: frozenset[int]
    assignment: TopicAssignment | None = None
    assignment_version: int = -1
    state: TopicState | None = None
    state_version: int = -1
    session: int = field(default=0, compare=False)

    @property
    def name(self) -> State:
        """The state's name, `Initial` when there is no state node."""
        return State.INITIAL if self.state is None else self.state.state


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """What a consumer measures of one partition that it holds; None is what it cannot tell yet.

    `lag` is in records not yet processed. `rate` is in records that arrive a second, over about the last minute.
    """

    lag: Measure = None
    rate: Measure = None


@dataclass(frozen=True, slots=True)
class FailingRecord:
    """A record that a handler fails with alone: its offset, the last error, and how many times it was tried; 0 times
    if the handler rejects it, and may not.

    With `lost` it is the first of so many that Kafka has no more, and `error` says why. With `timer` it is the next
    one, and a timer of the partition's state fails before it, which `error` names.

    `parked`: a person is asked about it. `answer` is what was decided about it and is not done
    yet: `skip`, `dead_letter`, or '' for nothing; that was so many seconds ago (`decided_for`).
    """

    offset: Required
    error: Text = ""
    attempts: Count = 0
    parked: Flag = False
    answer: Text = ""
    lost: Count = 0
    timer: Flag = False
    decided_for: Duration = 0.0


@dataclass(frozen=True, slots=True)
class PastFailure:
    """A record that a handler failed with, or rejected: of which partition, with which error the last time, and when,
    in seconds since the epoch."""

    partition: Required
    offset: Required
    error: Text
    at: AnyMoment


@dataclass(frozen=True, slots=True)
class Loss:
    """So many `records` of a partition that Kafka had no more when they were to be read, the first at offset `begin`,
    and all before `end`; `why` is a word, and `at` when the first was found, in seconds since the epoch."""

    begin: Annotated[int, named("from", Required)]
    end: Annotated[int, named("to", Required)]
    records: Required
    why: Annotated[str, named("reason", Text)]
    at: Dated


@dataclass(frozen=True, slots=True)
class Stored:
    """What a sink has of a partition, as it said `at` (seconds since the epoch): `ranges`, in order, and before them
    so many `more`."""

    ranges: OffsetRanges
    more: Required = 0
    at: Dated = 0.0


@dataclass(frozen=True, slots=True)
class Restore:
    """How far the state of a partition is restored: `read` of `total` offsets of its changelog (None while it waits
    for its turn), at `rate` a second. It came further `still` seconds ago."""

    read: Annotated[int, named("restored", Count)]
    total: MaybeCount
    rate: Duration
    still: Annotated[float, Wire(measure, lambda seconds: round(seconds, 1), required=True)]

    @property
    def left(self) -> float | None:
        """Seconds until it is done at that rate; None while that is unknown."""
        return None if self.total is None or not self.rate else (self.total - self.read) / self.rate

    def __str__(self) -> str:
        """Say it for people."""
        if self.total is None:
            return "it waits for its turn to be restored"
        share = 100 * self.read // max(1, self.total)
        left = "" if self.left is None else f", {self.left:,.0f} s left"
        return f"{share} % of {self.total:,} offsets of its changelog, {self.rate:,.0f} a second{left}"


@dataclass(frozen=True, slots=True)
class ShardState:
    """The state by key of one partition. One that runs has so many `keys` and `bytes` in its local store, and its
    position: the next `offset` to read (None before the first record), after so many commits. `late` rows came after
    the watermark since it was taken up, and were dropped. `executor` is the one on another host that computed it
    last.

    `restore` is set while it is restored. `differs` says why it does not run until a person chooses.
    """

    keys: Count = 0
    bytes: Count = 0
    offset: MaybeCount = None
    commit: Count = 0
    restore: Restore | None = None
    differs: Text = ""
    late: Count = 0
    executor: Text = ""


def _read_stored(value: object) -> Mapping[str, Stored] | None:
    """Read what sinks have of a partition. A sink that cannot be read leaves it unknown what there is of it."""
    if not isinstance(value, dict):
        return None
    found = {text(name): read(Stored, entry) for name, entry in list(value.items())[:MOST_ERRORS]}
    known = {name: entry for name, entry in found.items() if entry is not None}
    return known if len(known) == len(found) else None


def _write_stored(sinks: Mapping[str, Stored]) -> dict[str, object]:
    return {sink: write(sinks[sink]) for sink in sorted(sinks)}


def _read_shard(value: object) -> ShardState | None:
    """Read a shard; the fields of its restore stand beside its own."""
    shard = read(ShardState, value)
    return None if shard is None else replace(shard, restore=read(Restore, value))


def _write_shard(shard: ShardState) -> dict[str, object]:
    if shard.differs:
        return {"differs": shard.differs}
    if shard.restore is not None:
        return write(shard.restore)
    return {key: said for key, said in write(shard).items() if key not in {"differs", "executor"} or said}


_STORED = Wire(
    lambda value: of_partitions(value, _read_stored), lambda values: write_partitions(values, _write_stored)
)
_SHARDS = Wire(
    lambda value: of_partitions(value, _read_shard),
    lambda values: write_partitions(values, _write_shard),
    name="state",
)


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """What one consumer reports on one topic; a partition in none of the three is closed and committed.

    `epoch` is the newest assignment epoch that the consumer has acted on, None from consumers that do not
    report it. `standby` are the partitions that it stands by for and does not read. `loads` holds the partitions of
    which something was measured, none from consumers that do not measure. Of those in `paused` reading has stopped,
    and what was read is committed. `failing` has the record that holds a partition up, where there is one.
    `batch_seconds` has for how long a handler has worked on a batch with records of a partition, if that
    is not short. `losses` are those of the last hour, and `left_out` is what sinks left out in it and were not to.
    `stored` is what sinks have of each partition, by their names: no sink is known where that is empty, and nothing
    is known of partitions that are not in it. `shards` has the state by key of partitions that have one.
    """

    running: frozenset[int] = frozenset()
    starting: frozenset[int] = frozenset()
    closing: frozenset[int] = frozenset()
    epoch: int | None = None
    standby: frozenset[int] = frozenset()
    loads: Mapping[int, PartitionLoad] = field(default_factory=dict)
    paused: Annotated[frozenset[int], Wire(numbers, sorted)] = frozenset()
    failing: Annotated[Mapping[int, FailingRecord], each(FailingRecord)] = field(default_factory=dict)
    batch_seconds: Mapping[int, float] = field(default_factory=dict)
    losses: Annotated[Mapping[int, tuple[Loss, ...]], lists(Loss)] = field(default_factory=dict)
    left_out: Annotated[Mapping[int, tuple[Loss, ...]], lists(Loss)] = field(default_factory=dict)
    stored: Annotated[Mapping[int, Mapping[str, Stored]], _STORED] = field(default_factory=dict)
    shards: Annotated[Mapping[int, ShardState], _SHARDS] = field(default_factory=dict)
    failures: Annotated[tuple[PastFailure, ...] | None, list_of(PastFailure)] = None
    """The records that failed within the last hour; None unless the consumer was asked for them."""

    @property
    def held(self) -> frozenset[int]:
        """Every partition that is not closed."""
        return self.running | self.starting | self.closing


@dataclass(frozen=True, slots=True)
class ConsumerDetails:
    """What a consumer tells of itself for people to look at; nothing is decided by it, and foreign ones need not.

    `started_at` and `last_batch_at` are in seconds since the epoch, `doing` is a word or two (running, leaving),
    `errors` are messages, `records` and `batches` count since it started.
    """

    host: Text = ""
    version: Text = ""
    doing: Annotated[str, named("state", Text)] = ""
    started_at: Annotated[float | None, named("started", MaybeMoment)] = None
    errors: Texts = ()
    records: MaybeCount = None
    batches: MaybeCount = None
    last_batch_at: Annotated[float | None, named("last_batch", MaybeMoment)] = None


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """One answer of a consumer's status page.

    `epochs` says that this consumer reports the epoch of every topic it has read, so a topic that is not in
    `topics`, or whose epoch is behind, has not been acted on yet. `leaving` says that it ends, and takes nothing up
    any more. `max_batch_time` is its setting, in seconds; None if it has none. `batch_seconds` is for how long a
    handler has worked on the batch under way; None if there is none, or it is short.
    `cluster` is the one that it belongs to, '' if it does not say. `copies` has the local stores of shards on its
    disk, by topic and partition, whether or not it has read an assignment of the topic; None if it does not report
    them.
    """

    consumer: str
    incarnation: str
    topics: Mapping[str, TopicStatus] = field(default_factory=dict)
    epochs: bool = False
    leaving: bool = False
    max_batch_time: float | None = None
    batch_seconds: float | None = None
    cluster: str = ""
    copies: Copies | None = None
    details: ConsumerDetails = field(default_factory=ConsumerDetails)

    def on(self, topic: str) -> TopicStatus:
        """Return what it reports on `topic`; nothing held and no epoch if it does not mention it."""
        return self.topics.get(topic, TopicStatus())

    def has_seen(self, topic: str, epoch: int) -> bool:
        """Tell whether this answer was given in knowledge of `epoch`; always true of a consumer without epochs."""
        if not self.epochs:
            return True
        seen = self.on(topic).epoch
        return seen is not None and seen >= epoch


@dataclass(frozen=True, slots=True)
class Move:
    """One partition changing hands, and why. `source` is None for a partition without an owner, `target` is
    None for one that no consumer takes (it vanished, or no subscribed consumer is live)."""

    topic: str
    partition: int
    source: str | None
    target: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of one topic: both nodes as they are to be, to be written together against the versions of
    `before`. A writer fails without harm if either node changed in between."""

    before: TopicSnapshot
    assignment: TopicAssignment
    state: TopicState
    moves: tuple[Move, ...] = ()

    @property
    def topic(self) -> str:
        """The topic that this step is about."""
        return self.before.topic

    @property
    def reason(self) -> str:
        """Why, in words, '' if there is nothing to say.

        A step from Stable to Stable moves nothing: the state keeps the reason of its last rebalance. One that leaves
        the state as it is changes standbys, what people ask of the flow, or notes the topic's id.
        """
        old, new = self.before.state, self.state
        if new == old:
            before = self.before.assignment
            if before is not None and self.assignment.warm_ups != before.warm_ups:
                return "warm-ups changed"
            if before is None or self.assignment.standbys != before.standbys:
                return "standbys changed"
            return flow_change(before, self.assignment) or "topic id noted"
        if old is None or not old.state is new.state is State.STABLE:
            return new.reason
        missing, back = new.missing.keys() - old.missing.keys(), old.missing.keys() - new.missing.keys()
        changes = [
            *(f"consumer {c} is missing; waiting for it" for c in sorted(missing)),
            *(f"consumer {c} is no longer waited for" for c in sorted(back)),
        ]
        return "; ".join(changes) or new.reason


def flow_change(before: TopicAssignment, after: TopicAssignment) -> str:
    """Say what became different of what people ask of the flow, in words; '' for nothing."""
    sought = {p for p in {*before.seeks, *after.seeks} if before.seeks.get(p) != after.seeks.get(p)}
    asked = {p for p in sought if p in after.seeks and after.seeks[p].offset is not None}
    changes = (
        ("consumption paused", after.paused - before.paused),
        ("consumption resumed", before.paused - after.paused),
        ("seek asked for", asked),
        ("seek carried out or taken back", sought - asked),
    )
    return "; ".join(f"{what}: partition(s) {format_partitions(found)}" for what, found in changes if found)
