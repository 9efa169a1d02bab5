"""The state machine of one topic: from what ZooKeeper holds and what consumers report to the next write.

Pure: no I/O and no clock. `advance` returns at most one `Transition`, which is written atomically against the
versions that it was computed from. After a crash at any point, the next coordinator continues from what was written.

State Transitions
-----------------

- *Initial* (no state node) -> *Starting*, or *Closing* if a consumer must close something first; only after every
  live consumer has reported what it holds.
- *Stable* -> *Closing* if a partition must leave a consumer, -> *Starting* if there are only starts, or if a live
  owner that answers does not run what it owns.
- *Closing* -> *Closing* each time a partition is closed and given away; -> *Starting* when all are closed.
- *Starting* -> *Stable* when every partition of `to_start` is reported running.
- In *Starting* and *Closing* a partition whose owner or new owner has left is planned again; balance is not: that
  waits for *Stable*, so a rebalance under way always ends.

Quantities
----------

Of a partition, by the two nodes:

- `owners`: the consumer that may read it. No entry: no consumer may.
- `to_close`: the consumer that has to close it, because it was taken from it.
- `to_start`: the consumer that is to run it and is not seen running it: its owner, or its next owner.
- `targets`: the owner that the plan wants.

Of a consumer:

- It is *away* when it is not live: isolated, failing its check, or not registered. The state node keeps the time of
  its absence (`missing`) until the consumer runs again all that it owns. Then it keeps for how long the consumer was
  absent (`returned`): an absence that begins before it has run for `rebalance_delay` counts together with that one,
  so one that dies again and again is not held for without an end.
- `Patience.hold`: seconds for which a consumer that is away keeps what it owns. Until then it is *held for*, after
  that it is *gone*.
- `Patience.release`: seconds after which what was taken from a consumer that is away counts as closed without its
  report. Longer than `hold` only for one that still answers: its report is waited for, but not without a limit.
- It *reports closed* a partition when it answers, each of its incarnations that answers knows the epoch of the
  assignment node, and none of them lists the partition as running, starting or closing.

The epoch of a topic grows with each write that changes `owners`. It is *ahead* of the nodes when Consul has noted, or
a consumer reports, a higher one than the assignment node's, or the two nodes have different ones. Nothing is built on
such nodes before the consumers have been asked.

Invariant
---------

A partition is in `owners` of at most one consumer, and enters `owners` of another only after one of these:

1. its old owner reports it closed (consumption stopped and offset committed), in knowledge of the epoch that took
   it away;
2. its old owner is away for longer than `release`, by a reading that was made after the partition was taken away;
3. no consumer held it: every live consumer reported so in knowledge of the topic's epoch, or the state node
   records it.

The order of writes keeps it. Taking away and giving are separate writes: the first removes the partition from
`owners` and records the old owner in `to_close`; the second needs that record and one of the facts above. The
versions make the second fail if anything was written between the reading and the writing. An owner that is gone is
no exception: it may come back, and start what it still finds under its name, while the coordinator is between
reading service discovery and writing. So its partitions are taken away first, too.

From this follow the steps, in this order, each on the result of the one before (`_step`):

1. Begin with what holds (`_basis`): the two nodes, or what consumers report (see below).
2. Take away what Kafka has no more (`_take_away_vanished`).
3. Give what an *earlier* write took away and is closed now to its next owner (`_give_what_is_closed`).
4. Plan again what no present consumer has or is to have (`_place_orphans`).
5. Only in *Stable*, with no owner held for: take away what the plan wants elsewhere (`_rebalance`).
6. Name the state by what is left (`_transition`): *Closing* with anything in `to_close`, else *Starting* with
   anything in `to_start`, else *Stable*.

A partition that does not move is in no list and is never touched.

Without a state node there is no record of closing, and after ZooKeeper was restored from a backup there may be a
wrong one: the epoch is ahead of the nodes. Then the consumers that may hold more than the nodes say have to answer
(`muster.core.epochs`), and what they report takes the place of the nodes: the consumer that runs a partition keeps
it, and one that is closing it stands in `to_close`. The new epoch is above all known ones. Where no consumer holds
anything that the nodes do not name, the nodes count, with a new epoch.

A topic that is *leaving* (no longer subscribed) is planned to have no owners. It is Closing until every owner has
reported its partitions closed, or is gone; then its nodes name no consumer, and they may be removed against the
versions of that reading (`may_be_removed`). A topic that is subscribed again before that is planned as usual.

Standbys are written with the owners. A standby neither closes nor starts anything, so a change of standbys alone
leaves state and epoch as they are, in any state. Two rules hold whatever the plan says: a consumer does not stand by
for what it holds itself; and while an owner is held for, or a partition is not yet with its planned owner, standbys
stay, because the plan has promoted some of them already. The same is true of consumers that warm up; one does so
until it owns the partition, so it brings its copy on while the old owner closes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from muster.core.epochs import Noted, epoch_ahead, highest_epochs
from muster.core.model import (
    ConsumerStatus,
    Membership,
    Move,
    Owners,
    PartitionStandbys,
    Return,
    State,
    TopicSnapshot,
    TopicState,
    Transition,
    by_consumer,
    by_partition,
)
from muster.core.patience import Patience
from muster.core.step import Draft, Inputs

NOTHING: Mapping[Any, Any] = MappingProxyType({})
"""No standbys, no reasons."""
WENT_BACK = "ZooKeeper holds an older state than was planned (was it restored?)"
"""The reason of a step that replaces what ZooKeeper holds by what consumers report."""
CREATED_AGAIN = "the topic was deleted and created again in Kafka"


def consumers_to_ask(
    snapshots: Collection[TopicSnapshot], membership: Membership, unknown: Collection[str] = ()
) -> dict[str, set[str]]:
    """Return the registered consumers whose status the next step depends on, with the topics to ask about.

    Of a topic without a state, or in `unknown`, these are all. Of the others: those that are to close or to start
    something, those that came back and do not run yet, and the owners that are registered and not live.
    """
    known = registered(membership)
    away = known - membership.live.keys()
    of_all = {
        s.topic for s in snapshots if s.assignment is not None and (s.state is None or s.topic in unknown)
    }
    asked = {consumer: set(of_all) for consumer in known} if of_all else {}
    for snapshot in snapshots:
        state = snapshot.state
        if state is None or snapshot.topic in unknown:
            continue
        concerned = {*state.to_close, *state.to_start, *state.missing} & known
        if away and snapshot.assignment is not None:
            concerned |= away.intersection(snapshot.assignment.owners.values())
        for consumer in concerned:
            asked.setdefault(consumer, set()).add(snapshot.topic)
    return asked


def registered(membership: Membership) -> set[str]:
    """Return every consumer that can be asked: live, failing, or isolated and registered."""
    return {*membership.live, *membership.failing, *membership.outside, *membership.older}


def topics_ahead(
    snapshots: Mapping[str, TopicSnapshot],
    answers: Iterable[ConsumerStatus],
    noted: Mapping[str, Noted],
) -> set[str]:
    """Return the topics whose nodes may not be the newest, by what is `noted` and what `answers` report."""
    highest = highest_epochs(answers, noted)
    return {topic for topic, snapshot in snapshots.items() if epoch_ahead(snapshot, highest) is not None}


def advance(
    snapshot: TopicSnapshot,
    patience: Patience,
    targets: Owners,
    now: float,
    *,
    standbys: PartitionStandbys = NOTHING,
    warm_ups: Owners = NOTHING,
    reasons: Mapping[int, str] = NOTHING,
    leaving: str = "",
) -> Transition | None:
    """Return the next step of a topic, or None when there is nothing to do now.

    `patience` has the consumers and the replies of those that are registered, live or not; one without an answer is
    asked again another time. `targets`, `standbys` and `warm_ups` are its plan (`muster.core.planner`).
    `reasons` says why a partition that `targets` moves from a live owner moves, where the planner knows better than
    'balance'. `leaving` says why the topic is no longer subscribed, '' if it is. Without a live consumer, without
    partitions or without an assignment node the status quo stands.
    """
    assignment = snapshot.assignment
    if not patience.membership.live or assignment is None:
        return None
    given = Inputs(snapshot, assignment, patience, targets, now, standbys, reasons, leaving, warm_ups)
    to_do = assignment.owners or given.ahead is not None if leaving else snapshot.partitions
    if snapshot.state is None and not to_do:
        return None
    return None if given.at_rest else _step(given)


def may_be_removed(snapshot: TopicSnapshot) -> bool:
    """Return whether the nodes of a topic that is leaving name no consumer: then they may be removed."""
    state, assignment = snapshot.state, snapshot.assignment
    if assignment is None:
        return True
    return not assignment.owners and (state is None or not (state.to_close or state.to_start))


def recreated(snapshot: TopicSnapshot, topic_id: str, now: float) -> Transition | None:
    """Return the step of a topic that Kafka holds under another id than ZooKeeper: deleted and created again.

    Owners stay. They close what they hold of the old topic without committing it, and start the new one; its seeks
    are not carried out. None for a topic that is not known yet. A topic of which no id was known gets it, and nothing
    else changes.
    """
    assignment, state = snapshot.assignment, snapshot.state
    if assignment is None or state is None or assignment.topic_id == topic_id:
        return None
    if not assignment.topic_id:
        return Transition(snapshot, replace(assignment, topic_id=topic_id), state)
    epoch = assignment.epoch + 1
    name = State.CLOSING if state.to_close else State.STARTING
    return Transition(
        snapshot,
        replace(assignment, topic_id=topic_id, epoch=epoch, seeks={}),
        replace(
            state,
            state=name,
            to_start=by_consumer(by_partition(state.to_start) | dict(assignment.owners)),
            epoch=epoch,
            since=_since(state, name, now),
            reason=_reason(state, name, [CREATED_AGAIN]),
        ),
    )


def _step(given: Inputs) -> Transition | None:
    """Return the next write of a topic; the module's docstring says why in this order."""
    draft = _basis(given)
    if draft is None:
        return None
    _take_away_vanished(given, draft)
    _give_what_is_closed(given, draft)
    _place_orphans(given, draft)
    if draft.from_reports:
        # Whether those that own something also run it is not known yet.
        draft.to_start |= {p: c for p, c in draft.owners.items() if c in given.live}
    elif given.settled and not _start_what_does_not_run(given, draft) and not given.held_for:
        _rebalance(given, draft)
    return _transition(given, draft)


def _basis(given: Inputs) -> Draft | None:
    """Return what to begin with: the nodes, or what consumers report; None while neither is known.

    The reports are complete when every consumer that has to answer knows the topic's epoch: one that does not may be
    about to start what an older node gave it.
    """
    if given.state is not None and given.ahead is None:
        return given.nodes.copy()
    if given.patience.unanswered(given.snapshot):
        return None
    if given.state is not None and given.patience.as_named(given.snapshot):
        # What was noted has not been written, or what was lost has changed nothing.
        return given.nodes.copy()
    holders = given.patience.holders(given.topic)
    if any(len(found) > 2 for found in holders.values()):  # noqa: PLR2004  see `_reported`
        return None
    return _reported(given, holders)


def _reported(given: Inputs, holders: Mapping[int, list[str]]) -> Draft:
    """Return what consumers report in the place of what the nodes hold; what no consumer holds stays as it is.

    Of two holders of a partition, one closes it and then the other starts it. Of more, all but two have to obey the
    assignment first, so there is no step.
    """
    draft = Draft(dict(given.before.owners), {}, {}, from_reports=True)
    draft.notes += [WENT_BACK] if given.ahead is not None else []
    for partition, found in holders.items():
        keep = [c for c in found if _keeps(given, c, partition)]
        owner = draft.owners.pop(partition, None)
        stays = owner if owner in keep else next(iter(keep), None)
        closes = [c for c in found if c != stays]
        if closes:
            draft.to_close[partition] = closes[0]
        following = stays or next(iter(closes[1:]), None)
        if stays is not None and not closes:
            draft.owners[partition] = stays
        elif following is not None:
            draft.to_start[partition] = following
    return draft


def _keeps(given: Inputs, consumer: str, partition: int) -> bool:
    """Tell whether a consumer is live and holds a partition to read it."""
    if consumer not in given.live or consumer not in given.statuses:
        return False
    status = given.statuses[consumer].on(given.topic)
    return partition in status.running | status.starting


def _take_away_vanished(given: Inputs, draft: Draft) -> None:
    """Take away what Kafka has no more, or what is unsubscribed."""
    for partition in sorted(draft.owners.keys() - given.partitions):
        why = given.leaving or "partition vanished from Kafka"
        draft.moves.append(Move(given.topic, partition, draft.owners[partition], None, why))
        draft.take_away(partition)
    for partition in draft.to_start.keys() - given.partitions:
        del draft.to_start[partition]


def _give_what_is_closed(given: Inputs, draft: Draft) -> None:
    """Give what an earlier write took away to its next owner, if the old one has closed it.

    What this step takes away is not given: a consumer that is gone by this reading may be back before this write.
    """
    taken_away = () if draft.from_reports else given.nodes.to_close
    for partition in sorted(taken_away):
        old, target = draft.to_close[partition], draft.to_start.get(partition)
        if not (given.released(old) or given.reports_closed(old, partition)):
            continue
        del draft.to_close[partition]
        if target is None or partition in draft.owners or given.gone(target):
            continue
        if not given.leaves_to_other(target, partition):
            draft.owners[partition] = target


def _place_orphans(given: Inputs, draft: Draft) -> None:
    """Give a new owner to what no live consumer holds or is to hold.

    Where the plan has no owner (no live consumer subscribes to the topic) things stay as they are, so a
    consumer that comes back finds its partitions.
    """
    for partition in sorted(given.partitions):
        holder = draft.holder(partition)
        on_its_way = partition not in draft.owners
        there = holder is not None and not given.gone(holder)
        if holder is not None and there and not (on_its_way and given.leaves_to_other(holder, partition)):
            if holder in given.live and on_its_way and partition not in draft.to_close:
                # It is back from an absence in which no other consumer could take what it was to start.
                draft.owners[partition] = holder
            continue
        target = given.live_target(partition)
        if target is None:
            continue
        if not on_its_way:
            draft.take_away(partition)
        draft.assign(partition, target)
        draft.moves.append(
            Move(given.topic, partition, holder, target, _why_placed(given, partition, holder, target))
        )


def _why_placed(given: Inputs, partition: int, holder: str | None, target: str) -> str:
    if holder is None:
        return "first assignment" if given.state is None else "no consumer held it"
    if holder in given.live:
        return f"consumer {holder} leaves"
    promoted = target in given.before.standbys.get(partition, ())
    return given.why_gone(holder) + (", a standby takes over" if promoted else "")


def _start_what_does_not_run(given: Inputs, draft: Draft) -> bool:
    """Have what a live owner does not run started again; return whether there is any.

    What its registered process answers counts, else what an older one does, and a topic that it does not list is not
    run. A process that takes over runs nothing yet, whether or not the older one comes to an end.
    """
    stopped = {
        partition: owner
        for partition, owner in draft.owners.items()
        if owner in given.live
        and (answers := given.answers(owner))
        and partition not in answers[0].on(given.topic).running
    }
    draft.to_start |= stopped
    draft.notes += [f"consumer {c} does not run what it owns" for c in sorted(set(stopped.values()))]
    return bool(stopped)


def _rebalance(given: Inputs, draft: Draft) -> None:
    """Take away what the plan wants with another live consumer."""
    known = set(given.before.owners.values())
    for partition in sorted(given.partitions & draft.owners.keys()):
        owner, target = draft.owners[partition], given.live_target(partition)
        if target is None or target == owner or owner not in given.live:
            continue
        draft.take_away(partition)
        draft.assign(partition, target)
        why = "balance" if target in known else f"consumer {target} joined"
        if given.live[owner].leaving:
            why = f"consumer {owner} leaves"
        draft.moves.append(Move(given.topic, partition, owner, target, given.reasons.get(partition, why)))


def _transition(given: Inputs, draft: Draft) -> Transition | None:
    """Return the write that makes the nodes what the draft says, or None if they say so already.

    That one of several partitions runs by now is no reason to write: the status pages show it at any time.
    """
    before, old = given.before, given.state
    waiting = {p: c for p, c in draft.to_start.items() if not _seen_running(given, draft, p, c)}
    name = State.CLOSING if draft.to_close else State.STARTING if waiting else State.STABLE
    standbys, warm_ups = _standbys(given, draft), _warm_ups(given, draft)
    missing = _remembered(given, draft)
    moved = draft.owners != dict(before.owners)
    stand_by = standbys == dict(before.standbys) and warm_ups == dict(before.warm_ups)
    if old is not None and given.ahead is None and not moved and stand_by:
        noted = by_partition(old.to_start)
        same = (
            name is old.state
            and draft.to_close == by_partition(old.to_close)
            and missing == dict(old.missing)
            and all(noted.get(p) == c for p, c in waiting.items())
        )
        if same:
            return None
    epoch = before.epoch + moved if given.ahead is None else given.ahead + 1
    reasons = [*draft.notes, *sorted({move.reason for move in draft.moves})]
    return Transition(
        before=given.snapshot,
        assignment=replace(before, owners=draft.owners, epoch=epoch, standbys=standbys, warm_ups=warm_ups),
        state=TopicState(
            state=name,
            to_start=by_consumer(waiting),
            to_close=by_consumer(draft.to_close),
            epoch=epoch,
            since=_since(old, name, given.now),
            reason=_reason(old, name, reasons),
            missing=missing,
            returned=_returned(given, draft),
        ),
        moves=tuple(draft.moves),
    )


def _seen_running(given: Inputs, draft: Draft, partition: int, consumer: str) -> bool:
    """Tell whether a live consumer reports that it runs what it owned before this step, and owns after it."""
    return (
        not draft.from_reports
        and consumer in given.live
        and draft.owners.get(partition) == given.before.owners.get(partition) == consumer
        and partition in given.running(consumer)
    )


def _standbys(given: Inputs, draft: Draft) -> dict[int, tuple[str, ...]]:
    """Return the standbys of each partition: those that stand as long as something is awaited, else the plan's."""
    standbys: dict[int, tuple[str, ...]] = {}
    for partition in sorted({*given.before.standbys, *given.standbys} & given.partitions):
        holder = draft.holder(partition)
        waits = given.held_for or given.targets.get(partition, holder) != holder
        wanted = given.before.standbys if waits else given.standbys
        ready = tuple(c for c in wanted.get(partition, ()) if c != holder and not given.gone(c))
        if ready:
            standbys[partition] = ready
    return standbys


def _warm_ups(given: Inputs, draft: Draft) -> dict[int, str]:
    """Return who warms up for each partition: who did as long as the partition is on its way, or a consumer is waited
    for, else who the plan says."""
    warm_ups: dict[int, str] = {}
    for partition in sorted({*given.before.warm_ups, *given.warm_ups} & given.partitions):
        waits = given.held_for or partition not in draft.owners
        consumer = (given.before.warm_ups if waits else given.warm_ups).get(partition)
        if consumer not in {None, draft.owners.get(partition)} and not given.gone(str(consumer)):
            warm_ups[partition] = str(consumer)
    return warm_ups


def _remembered(given: Inputs, draft: Draft) -> dict[str, float]:
    """Return the absences that the state node keeps.

    They are those of consumers that are held for, of those that have to close something, and of those that came back
    and do not run yet, so that a consumer that dies again and again is not held for each time.
    """
    closing, owning = set(draft.to_close.values()), set(draft.owners.values())
    return {
        c: since
        for c, since in given.away.items()
        if c in given.held_for or c in closing or (c in given.live and c in owning)
    }


def _returned(given: Inputs, draft: Draft) -> dict[str, Return]:
    """Return what the state node keeps of absences that are over, of consumers that own something."""
    if given.state is None:
        return {}
    returned = dict(given.state.returned)
    for consumer, since in given.state.missing.items():
        if consumer in given.live and consumer not in given.away:
            returned[consumer] = Return(given.now, max(given.now - since, 0.0))
    there = set(draft.owners.values()) - given.away.keys()
    return {
        c: last
        for c, last in sorted(returned.items())
        if c in there and given.patience.counts(last, given.now)
    }


def _since(old: TopicState | None, name: State, now: float) -> float:
    """Tell when the present rebalance, or the present quiet, began."""
    if old is not None and (name is State.STABLE) == (old.state is State.STABLE):
        return old.since
    return now


def _reason(old: TopicState | None, name: State, new: list[str]) -> str:
    """Join the reasons of a rebalance so far and the `new` ones; of a topic that stays Stable, why it last moved."""
    if old is None or old.state is State.STABLE:
        return "; ".join(new) if new or old is None or name is not State.STABLE else old.reason
    kept = [part for part in old.reason.split("; ") if part]
    return "; ".join(kept + [reason for reason in new if reason not in kept])
