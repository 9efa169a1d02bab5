"""Having partitions go on at another offset, with a look beforehand at what that means in records.

The destination is made an offset of each partition here, by what Kafka holds now. The request is kept in Consul, with
an id; the owner carries it out between two batches, and where there is none the coordinator does, unless the topic
has state by key. The id stays in what is committed, which a consumer of protocol version 1 takes for the offset of
another topic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from muster.commands.actions.consumption import (
    check_scope,
    named,
    partitions_of,
    pause_of,
    read_bounds,
    waits_for_coordination,
)
from muster.commands.actions.sinks import Effect
from muster.commands.command import Actor, CommandError, CommandOutcome, Foreseen, listed
from muster.core.model import Seek, SeekState, TopicAssignment, TopicPartition
from muster.core.overrides import Overrides, SeekRequest, flow_scope
from muster.core.partition_list import format_partitions
from muster.core.seeking import (
    Bounds,
    Destination,
    SeekError,
    To,
    effect,
    new_id,
    offset_for,
    parse_destination,
)
from muster.core.wire import readable

if TYPE_CHECKING:
    from muster.commands.target import Target


@dataclass(frozen=True, slots=True)
class Planned:
    """Where one partition goes on, by what Kafka held."""

    bounds: Bounds
    offset: int
    assignment: TopicAssignment


def foresee_seek(
    target: Target,
    actor: Actor,
    to: str,
    topic: str,
    partitions: frozenset[int],
    rebuild: bool,
    state: str,
) -> Foreseen:
    """Return what a seek would do, in records, state and sinks, and change nothing. Raises `CommandError` as `seek`
    does."""
    plan, chosen = _plan(target, actor, to, topic, partitions, rebuild, state)
    return _foreseen(target, plan, rebuild, chosen)


def seek(
    target: Target,
    actor: Actor,
    to: str,
    topic: str,
    partitions: frozenset[int],
    rebuild: bool,
    state: str,
) -> CommandOutcome:
    """Have `partitions` of `topic` go on at `to`; without partitions the topic, without a topic all. With a `rebuild`
    sinks forget what they stored of them. `state` says what becomes of state by key.

    Raises `CommandError`, and asks for nothing, if `to` is no place to go on at, the topic or a partition is unknown,
    an offset is outside of a partition's log, Kafka does not answer, a consumer would misread what is committed
    after a seek, or `state` does not fit. An earlier request of a partition that was
    not carried out yet is replaced. Each partition is written by itself: after a `ConsulError` some may be asked for.
    """
    consul, cluster = target.consul, target.cluster.name
    plan, chosen = _plan(target, actor, to, topic, partitions, rebuild, state)
    rebuild = rebuild or chosen is SeekState.REBUILD
    pending = [each.id for tp, each in consul.overrides.read().seeks.items() if tp in plan]
    seek_id = new_id(actor.at, *pending, *(each.bounds.sought for each in plan.values()))
    moment = int(actor.at) if rebuild else 0
    foreseen = _foreseen(target, plan, rebuild, chosen)
    for (of, number), planned in plan.items():
        consul.overrides.seek(
            of,
            number,
            Seek(seek_id, planned.offset, moment, chosen),
            planned.assignment.topic_id,
            by=actor.name,
            why=actor.reason,
            at=actor.at,
        )
    shown = format_partitions(partitions) if partitions else ""
    how = f", state: {chosen}" if chosen else " with a rebuild" * rebuild
    others = "" if chosen else ", and the coordinator where there is none"
    lines = (
        f"{flow_scope(topic, shown)} of cluster {cluster} is to go on at {to}{how}: {actor}",
        *foreseen.lines(),
        f"the owners carry it out between two batches{others}; cancel-seek takes back what was not carried out yet",
        *waits_for_coordination(target),
    )
    values = {"to": to, **named(topic, partitions), "seek": seek_id}
    more = ({"rebuild": moment} if rebuild else {}) | ({"state": chosen} if chosen else {})
    return CommandOutcome(lines, values | more)


def cancel_seek(target: Target, actor: Actor, topic: str, partitions: frozenset[int]) -> CommandOutcome:
    """Take back the seeks of `partitions` of `topic` that are not carried out; without partitions those of the topic,
    without a topic all. The owner, or the coordinator, commits that, so that no backup brings them back. Raises
    `CommandError` if there are none."""
    consul, cluster = target.consul, target.cluster.name
    concerned = _concerned(target, topic, partitions, consul.overrides.read())
    shown = format_partitions(partitions) if partitions else ""
    seek_id = new_id(actor.at, *(request.id for request in concerned.values()))
    found, _ = partitions_of(target, "", frozenset())
    for tp, request in concerned.items():
        assignment = found.get(tp)
        if assignment is None or assignment.topic_id != request.topic_id:
            consul.overrides.drop_seek(*tp)
            continue
        state = SeekState.SKIP if target.cluster.state.has(tp[0]) else None
        taken_back = Seek(seek_id, None, state=state)
        consul.overrides.seek(*tp, taken_back, request.topic_id, by=actor.name, why=actor.reason, at=actor.at)
    lines = (
        f"{len(concerned)} seek(s) of {flow_scope(topic, shown)} of cluster {cluster} are taken back: {actor}",
        "what its owner has carried out meanwhile stays so",
    )
    return CommandOutcome(lines, named(topic, partitions))


def foresee_cancelling(target: Target, _actor: Actor, topic: str, partitions: frozenset[int]) -> Foreseen:
    """Return which seeks are taken back, and where their partitions go on then, and change nothing. Raises
    `CommandError` as `cancel_seek` does."""
    decided = target.consul.overrides.read()
    concerned = _concerned(target, topic, partitions, decided)
    found, _ = partitions_of(target, "", frozenset())
    bounds, unread = read_bounds(target, {tp: found[tp] for tp in concerned if tp in found})
    return Foreseen(
        tuple(
            f"topic {tp[0]}, partition {tp[1]}: the seek to offset {request.offset} is taken back"
            f"{_goes_on(bounds.get(tp))}{'; stays paused' if pause_of(decided.consumption, tp) else ''}"
            for tp, request in concerned.items()
        ),
        (
            f"together {len(concerned)} seek(s) are taken back, by what is known to be carried out now",
            *unread,
        ),
    )


def _goes_on(bounds: Bounds | None) -> str:
    """Return where the partition goes on without a seek, to follow a statement; '' if that is unknown."""
    if bounds is None:
        return ""
    return f"; goes on at {bounds.position}, {bounds.end - bounds.position} record(s) wait"


def _concerned(
    target: Target, topic: str, partitions: frozenset[int], decided: Overrides
) -> dict[TopicPartition, SeekRequest]:
    """Return the seeks that are not carried out, of what is named. Raises `CommandError` if there are none."""
    if partitions and not topic:
        raise CommandError("partitions are those of a topic; name the topic as well")
    concerned = {
        (of, number): each
        for (of, number), each in sorted(decided.seeks.items())
        if (not topic or topic in target.cluster.state.together(of))
        and (not partitions or number in partitions)
        and each.offset is not None
    }
    if not concerned:
        scope = flow_scope(topic, format_partitions(partitions) if partitions else "")
        raise CommandError(
            f"no seek of {scope} is waiting in cluster {target.cluster.name!r}; it may have been carried out"
        )
    return concerned


def _plan(
    target: Target,
    actor: Actor,
    to: str,
    topic: str,
    partitions: frozenset[int],
    rebuild: bool,
    state: str,
) -> tuple[dict[TopicPartition, Planned], SeekState | None]:
    """Return where each partition goes on, and what becomes of their state. Raises `CommandError`."""
    _check_versions(target)
    check_scope(target, topic, partitions)
    try:
        destination = parse_destination(to, actor.at)
        moment = destination.value if destination.to is To.TIME else None
        _check_shared(target, topic, destination)
        assigned = _assigned(target, topic, partitions)
        chosen = _check_state(target, {of for of, _ in assigned}, rebuild, state)
        if chosen:
            _check_owners(target, assigned)
        bounds = target.bounds(assigned, moment)
        if destination.to is To.CHANGELOG and chosen:
            where = target.changelogs(assigned)
            bounds = {tp: replace(each, changelog=where.get(tp)) for tp, each in bounds.items()}
        planned = {
            tp: Planned(
                each,
                offset_for(destination, each, f"topic {tp[0]!r}, partition {tp[1]}"),
                assigned[tp],
            )
            for tp, each in bounds.items()
        }
    except SeekError as error:
        raise CommandError(str(error)) from error
    if not planned:
        raise CommandError(f"cluster {target.cluster.name!r} has no partitions yet; there is nothing to seek")
    return dict(sorted(planned.items())), chosen


def _check_shared(target: Target, topic: str, destination: Destination) -> None:
    """Raise `CommandError` for a number of records where a topic shares its state: it means nothing for two."""
    groups = [target.cluster.state.together(topic)] if topic else target.cluster.state.groups
    shared = [each for group in groups if len(group) > 1 for each in group]
    if shared and destination.to in {To.OFFSET, To.BY}:
        raise CommandError(
            f"a seek moves all topics that share their state, {listed(shared)}, and an offset or a number of records "
            "is of one; write a moment, a time ago, earliest, latest, committed or changelog"
        )


def _check_state(target: Target, topics: set[str], rebuild: bool, state: str) -> SeekState | None:
    """Return what becomes of the state of `topics`, None if they have none. Raises `CommandError` where that is not
    said, or said of a topic without state."""
    has = sorted(topic for topic in topics if target.cluster.state.has(topic))
    if state and state not in set(SeekState):
        raise CommandError(f"state {state[:100]!r}: write {', '.join(SeekState)}")
    if not has:
        if state:
            raise CommandError(f"topic(s) {listed(topics)} have no state by key; leave out --state={state}")
        return None
    if others := topics - set(has):
        raise CommandError(
            f"topic(s) {listed(has)} have state by key, and {listed(others)} have none; seek them one by one"
        )
    if rebuild:
        raise CommandError(
            f"topic(s) {listed(has)} have state by key, and a rebuild begins that empty, too; give --state=rebuild "
            "instead of --rebuild"
        )
    if not state:
        raise CommandError(
            f"topic(s) {listed(has)} have state by key; choose what becomes of it: --state=again (records change it "
            "once more), --state=skip (only those change it that have not) or --state=rebuild (it begins empty)"
        )
    return SeekState(state)


def _check_owners(target: Target, assigned: dict[TopicPartition, TopicAssignment]) -> None:
    """Raise `CommandError` for partitions with state that no live consumer owns."""
    membership = target.consul.catalog.members().membership
    live = {} if membership is None else membership.live
    without = sorted(tp for tp, of in assigned.items() if of.owners.get(tp[1]) not in live)
    if without:
        topic, _ = without[0]
        shown = format_partitions({number for of, number in without if of == topic})
        raise CommandError(
            f"{flow_scope(topic, shown)}: it has state by key and no live owner, and only an owner changes position "
            "and state together; start consumers, with the consumption paused if nothing may be read before, and "
            "seek then"
        )


def _check_versions(target: Target) -> None:
    """Raise `CommandError` while a consumer of protocol version 1 is registered: it registers its version of Muster,
    and none of the protocol. A consumer in another language registers neither."""
    old = [
        consumer
        for consumer, newest in target.consul.catalog.members().registered.items()
        if any("version" in each.meta and "protocol" not in each.meta for each in (newest, *newest.older))
    ]
    if old:
        raise CommandError(
            f"consumers of cluster {target.cluster.name!r} are of a version that does not know seeks, and would "
            f"begin at the first record: {listed(old)}; install the coordinator's version where they run, replace "
            "them one by one, and seek then"
        )


def _assigned(
    target: Target, topic: str, partitions: frozenset[int]
) -> dict[TopicPartition, TopicAssignment]:
    """Return the partitions that are named, with the assignment of their topic, and those with these numbers of the
    topics that share their state with it. Raises `CommandError` for a topic that has none."""
    with target.store() as store:
        snapshots, unreadable = readable(store.snapshots())
    chosen: dict[TopicPartition, TopicAssignment] = {}
    together = target.cluster.state.together(topic)
    for of in together if topic else sorted(snapshots.keys() | unreadable.keys()):
        found = snapshots.get(of)
        if found is None or found.assignment is None:
            raise CommandError(
                f"topic {of!r} cannot be sought: {unreadable.get(of, 'the coordinator does not know it yet')}"
            )
        if not found.assignment.topic_id:
            raise CommandError(
                f"topic {of!r} cannot be sought: its id in Kafka is not known yet; seek again after the next run of "
                "the coordinator"
            )
        chosen |= {(of, number): found.assignment for number in sorted(partitions or found.partitions)}
    return chosen


_STATE = {
    SeekState.AGAIN: "they change the state once more",
    SeekState.SKIP: "they change no state again",
    SeekState.REBUILD: "they change a state that begins empty",
}
_TWICE = "their output is written to its topic once more, and sinks of that store it as new records"
_OUTPUT = {
    SeekState.AGAIN: f"the state stays, and records that come again change it once more; {_TWICE}",
    SeekState.SKIP: "the state stays; records that it has, or that are passed over, do not change it, and have no "
    "output again",
    SeekState.REBUILD: f"the state begins empty, and records that come again change it; {_TWICE}",
}


def _foreseen(
    target: Target, plan: dict[TopicPartition, Planned], rebuild: bool, state: SeekState | None
) -> Foreseen:
    rebuild = rebuild or state is SeekState.REBUILD
    known = target.stored({tp: each.assignment for tp, each in plan.items()})
    sinks = Effect({tp: each.offset for tp, each in plan.items()}, known, rebuild)
    moved = {tp: each.bounds.position - each.offset for tp, each in plan.items()}
    again = sum(max(0, by) for by in moved.values())
    left_out = sum(max(0, -by) for by in moved.values())
    return Foreseen(
        tuple(
            f"topic {tp[0]}, partition {tp[1]}: {effect(each.bounds, each.offset)}"
            f"{f'; {_STATE[state]}' if state and moved[tp] > 0 else ''}{sinks.of(tp)}"
            for tp, each in plan.items()
        ),
        (
            f"together {again} record(s) come again and {left_out} are passed over, by offsets and what is committed "
            "now",
            *([_OUTPUT[state]] if state else []),
            *sinks.summary(),
        ),
    )
