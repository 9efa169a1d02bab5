"""The state machine of one topic: what stands in ZooKeeper, who is there and what they report, to the next step.

Pure: no I/O and no clock. `advance` yields at most one `Transition`, which is written atomically against the
versions it was computed from. Whoever comes next, after any crash, computes on from what was written.

State Transitions
-----------------

- *Initial* (no state node) -> *Starting*, or *Closing* if somebody must let go first.
- *Stable* -> *Closing* if a partition must leave a consumer, -> *Starting* if there are only starts.
- *Closing* -> *Closing* each time a partition is closed and given away; -> *Starting* when all are closed.
- *Starting* -> *Stable* when every partition of `toStart` is reported running.
- In *Starting* and *Closing* a partition whose owner or new owner has left is planned again; balance is not: that
  waits for *Stable*, so a rebalance under way always ends.

Invariant
---------

A partition is in `owners` of at most one consumer, and enters `owners` of another only after one of these:

1. its old owner, live, reported it in none of its three lists, in knowledge of the epoch that took it away
   (consumption stopped and offset committed);
2. its old owner is isolated, or is gone from service discovery for longer than `rebalance_delay`, by a reading
   that was made after the partition was taken away;
3. nobody held it.

It holds because taking away and giving are separate writes: the first removes the partition from `owners` and
records the old owner in `toClose`, the second needs that record and one of the facts above. The versions make
the second fail if anything was written between the reading and the writing. An owner that is gone is no
exception: it may come back, and start what it still finds under its name, while the writer is on its way from
reading service discovery to writing. So it too is taken off first.

A partition that does not move is in no list and is never touched.

A topic that is *leaving* (nobody subscribes to it any more) is planned to have no owners. It is Closing until every
owner has reported its partitions closed, or is gone; then nobody is named in its nodes, and they may be removed
against the versions of that reading (`may_be_removed`). Subscribed again before that, it is planned as ever.

Standbys are written with the owners. Who stands by is nothing that anyone has to close or start, so a change of
standbys alone leaves state and epoch as they are, in whatever state the topic is. Two things hold whatever the plan
says: nobody stands by for what it holds itself, and while a `rebalance_delay` runs standbys stay, because the plan
has promoted some of them already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType

from muster.core.model import (
    ConsumerStatus,
    Membership,
    Move,
    Owners,
    PartitionStandbys,
    State,
    TopicAssignment,
    TopicSnapshot,
    TopicState,
    Transition,
    by_consumer,
    by_partition,
)

NOBODY: PartitionStandbys = MappingProxyType({})
"""Nobody stands by for any partition."""
NO_REASONS: Mapping[int, str] = MappingProxyType({})
"""Nothing is known of why partitions move but what the state machine sees itself."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a cluster's settings say about patience; seconds.

    For `rebalance_delay` after an owner was first seen missing, its partitions are kept for it.
    """

    rebalance_delay: float = 0.0


def consumers_to_ask(snapshots: Iterable[TopicSnapshot], membership: Membership) -> dict[str, set[str]]:
    """The live consumers whose status the next step depends on, and the topics that it is about."""
    asked: dict[str, set[str]] = {}
    for snapshot in snapshots:
        if snapshot.state is not None:
            for consumer in (*snapshot.state.to_close, *snapshot.state.to_start):
                if consumer in membership.live:
                    asked.setdefault(consumer, set()).add(snapshot.topic)
    return asked


def advance(
    snapshot: TopicSnapshot,
    membership: Membership,
    statuses: Mapping[str, ConsumerStatus],
    targets: Owners,
    now: float,
    policy: Policy,
    *,
    standbys: PartitionStandbys = NOBODY,
    reasons: Mapping[int, str] = NO_REASONS,
    leaving: str = "",
) -> Transition | None:
    """Return the next step of a topic, or None when there is nothing to do now.

    `statuses` holds the answers that could be had; a consumer without one is asked again another time.
    `targets` and `standbys` are the plan for this topic (`muster.core.planner.plan`). `reasons` says why a partition
    that `targets` moves from a live owner moves, where the planner knows better than 'balance'. `leaving` says why
    the topic is not subscribed any more, '' if it is. Without a live consumer, without partitions or without an
    assignment node the status quo stands.
    """
    if not membership.live or snapshot.assignment is None:
        return None
    if snapshot.state is None and not (snapshot.assignment.owners if leaving else snapshot.partitions):
        return None
    if not leaving and _at_rest(snapshot, snapshot.assignment, membership, targets, standbys):
        return None
    step = _Step(
        snapshot,
        snapshot.assignment,
        membership,
        statuses,
        targets,
        now,
        policy,
        standbys,
        reasons,
        leaving,
    )
    return step.run()


def _at_rest(
    snapshot: TopicSnapshot,
    assignment: TopicAssignment,
    membership: Membership,
    targets: Owners,
    standbys: PartitionStandbys,
) -> bool:
    """Whether a step has nothing to find: Stable, all partitions with the live owners that the plan wants, nothing
    waited for and nobody standing by. What `_Step` would say, without going through the partitions one by one: nearly
    all topics of a large cluster are so at any time."""
    state = snapshot.state
    return (
        state is not None
        and state.state is State.STABLE
        and not (state.to_start or state.to_close or state.missing or assignment.standbys or standbys)
        and assignment.owners == targets
        and assignment.owners.keys() == snapshot.partitions
        and membership.live.keys() >= set(assignment.owners.values())
    )


def may_be_removed(snapshot: TopicSnapshot, now: float) -> bool:
    """Whether a topic that is leaving may go, against the versions of `snapshot`: nobody holds anything of it, and
    the clock is past its epoch, so that a topic of that name begins with a higher one if it is subscribed again."""
    state, assignment = snapshot.state, snapshot.assignment
    if assignment is None:
        return True
    named = bool(assignment.owners) or (state is not None and bool(state.to_close or state.to_start))
    return not named and assignment.epoch < int(now)


def next_expiry(snapshots: Iterable[TopicSnapshot], policy: Policy) -> float | None:
    """When the first `rebalance_delay` that runs now ends (seconds since the epoch), None if none runs."""
    moments = [
        since + policy.rebalance_delay
        for snapshot in snapshots
        if snapshot.state is not None
        for since in snapshot.state.missing.values()
    ]
    return min(moments, default=None)


class _Step:
    """One step of one topic. `owners`, `to_start` and `to_close` are by partition and are changed in place."""

    def __init__(
        self,
        snapshot: TopicSnapshot,
        assignment: TopicAssignment,
        membership: Membership,
        statuses: Mapping[str, ConsumerStatus],
        targets: Owners,
        now: float,
        policy: Policy,
        standbys: PartitionStandbys,
        reasons: Mapping[int, str],
        leaving: str,
    ) -> None:
        self.snapshot = snapshot
        self.partitions = frozenset[int]() if leaving else snapshot.partitions
        self.why_without = leaving or "partition vanished from Kafka"
        self.before = assignment
        self.state = snapshot.state
        self.live = membership.live
        self.isolated = membership.isolated
        self.isolated_by = membership.isolated_by
        self.statuses = statuses
        self.targets = targets
        self.now = now
        self.policy = policy
        self.planned_standbys = standbys
        self.reasons = reasons
        self.owners = dict(assignment.owners)
        self.to_start = by_partition(self.state.to_start if self.state else {})
        self.to_close = by_partition(self.state.to_close if self.state else {})
        self._believe_the_assignment()
        self.taken_away = frozenset(self.to_close)
        self.settled = self.state is None or self.state.state is State.STABLE
        self.moves: list[Move] = []
        self.absent = self._absent()
        self.missing = {c: since for c, since in self.absent.items() if now - since < policy.rebalance_delay}

    def run(self) -> Transition | None:
        self._let_go_of_vanished()
        self._give_what_is_closed()
        self._place_orphans()
        if self.settled and not self.missing:
            self._rebalance()
        if self.state is None:
            # Nobody knows yet whether those who own something also run it.
            self.to_start.update({p: c for p, c in self.owners.items() if c in self.live})
        return self._transition()

    def _believe_the_assignment(self) -> None:
        """Where the two nodes contradict each other, which no coordinator writes, the one that consumers obey counts:
        what it gives to somebody is to start there, and is not to be closed there."""
        self.to_start |= {p: self.owners[p] for p in self.to_start.keys() & self.owners.keys()}
        self.to_close = {p: c for p, c in self.to_close.items() if self.owners.get(p) != c}

    def _absent(self) -> dict[str, float]:
        """The absent owners and standbys, and when each was first seen absent; none without a `rebalance_delay`."""
        if self.policy.rebalance_delay <= 0:
            return {}
        known = self.state.missing if self.state else {}
        involved = {*self.owners.values(), *self.to_start.values(), *self.to_close.values()}
        involved.update(chain.from_iterable(self.before.standbys.values()))
        return {
            consumer: known.get(consumer, self.now)
            for consumer in sorted(involved)
            if consumer not in self.live and consumer not in self.isolated
        }

    def _remembered(self) -> dict[str, float]:
        """What the state node keeps of `absent`: who is waited for, and who is being taken off after that."""
        leaving = set(self.to_close.values())
        return {c: since for c, since in self.absent.items() if c in self.missing or c in leaving}

    def _gone(self, consumer: str) -> bool:
        return consumer not in self.live and consumer not in self.missing

    def _why_gone(self, consumer: str) -> str:
        if consumer not in self.isolated:
            return f"consumer {consumer} left"
        by = self.isolated_by.get(consumer)
        return f"consumer {consumer} was isolated" + (f" by {by}" if by else "")

    def _let_go_of_vanished(self) -> None:
        present = self.partitions
        for partition in sorted(self.owners.keys() - present):
            owner = self.owners.pop(partition)
            self.to_close[partition] = owner
            self._moved(partition, owner, None, self.why_without)
        for partition in sorted(self.to_start.keys() - present):
            del self.to_start[partition]

    def _give_what_is_closed(self) -> None:
        # Only what an earlier write took away: who is gone by this reading may be back before this write.
        for partition in sorted(self.taken_away):
            old = self.to_close[partition]
            if not (self._gone(old) or self._reports_closed(old, partition)):
                continue
            del self.to_close[partition]
            target = self.to_start.get(partition)
            if target is not None and partition not in self.owners and not self._gone(target):
                self.owners[partition] = target

    def _reports_closed(self, consumer: str, partition: int) -> bool:
        status = self.statuses.get(consumer)
        if consumer not in self.live or status is None:
            return False
        topic = self.snapshot.topic
        return status.has_seen(topic, self.before.epoch) and partition not in status.on(topic).held

    def _place_orphans(self) -> None:
        """Give a new owner to what nobody live holds or is to hold.

        Where the plan knows nobody (no live consumer subscribes to the topic) things stay as they are, so a
        consumer that comes back finds its partitions.
        """
        for partition in sorted(self.partitions):
            holder = self.to_start.get(partition) or self.owners.get(partition)
            if holder is not None and not self._gone(holder):
                if holder in self.live and partition not in self.owners and partition not in self.to_close:
                    # It is back from an absence in which nobody else could take what it was to start.
                    self.owners[partition] = holder
                continue
            target = self.targets.get(partition)
            if target is None or target not in self.live:
                continue
            if holder is not None:
                reason = self._why_gone(holder)
                if target in self.before.standbys.get(partition, ()):
                    reason += ", a standby takes over"
            else:
                reason = "first assignment" if self.state is None else "nobody held it"
            if partition in self.owners:
                self.to_close[partition] = self.owners.pop(partition)
            self.to_start[partition] = target
            if partition not in self.to_close:
                self.owners[partition] = target
            self._moved(partition, holder, target, reason)

    def _rebalance(self) -> None:
        known = set(self.before.owners.values())
        for partition in sorted(self.partitions & self.owners.keys()):
            owner, target = self.owners[partition], self.targets.get(partition)
            if target is None or target == owner or target not in self.live or owner not in self.live:
                continue
            del self.owners[partition]
            self.to_close[partition] = owner
            self.to_start[partition] = target
            usual = "balance" if target in known else f"consumer {target} joined"
            if self.live[owner].leaving:
                usual = f"consumer {owner} leaves"
            self._moved(partition, owner, target, self.reasons.get(partition, usual))

    def _standbys(self) -> dict[int, tuple[str, ...]]:
        wanted = self.before.standbys if self.missing else self.planned_standbys
        standbys: dict[int, tuple[str, ...]] = {}
        for partition in sorted(wanted.keys() & self.partitions):
            holder = self.to_start.get(partition) or self.owners.get(partition)
            ready = tuple(c for c in wanted[partition] if c != holder and not self._gone(c))
            if ready:
                standbys[partition] = ready
        return standbys

    def _moved(self, partition: int, source: str | None, target: str | None, reason: str) -> None:
        self.moves.append(Move(self.snapshot.topic, partition, source, target, reason))

    def _runs(self, partition: int, consumer: str) -> bool:
        status = self.statuses.get(consumer)
        topic = self.snapshot.topic
        return (
            consumer in self.live
            and self.owners.get(partition) == consumer
            and self.before.owners.get(partition) == consumer
            and status is not None
            and status.has_seen(topic, self.before.epoch)
            and partition in status.on(topic).running
        )

    def _transition(self) -> Transition | None:
        waiting = {p: consumer for p, consumer in self.to_start.items() if not self._runs(p, consumer)}
        if self.to_close:
            name = State.CLOSING
        elif waiting:
            name = State.STARTING
        else:
            name = State.STABLE
        standbys = self._standbys()
        remembered = self._remembered()
        changed = (
            self.state is None
            or standbys != dict(self.before.standbys)
            or name is not self.state.state
            or self.owners != dict(self.before.owners)
            or self.to_close != by_partition(self.state.to_close)
            or remembered != dict(self.state.missing)
            or any(
                self.to_start[p] != c for p, c in by_partition(self.state.to_start).items() if p in waiting
            )
            or bool(waiting.keys() - by_partition(self.state.to_start).keys())
        )
        if not changed:
            # That a partition of several now runs is no reason to write: the status pages say so at any time.
            return None
        epoch = self.before.epoch + (self.owners != dict(self.before.owners))
        state = TopicState(
            state=name,
            to_start=by_consumer(waiting),
            to_close=by_consumer(self.to_close),
            epoch=epoch,
            since=self._since(name),
            reason=self._reason(name),
            missing=remembered,
        )
        return Transition(
            before=self.snapshot,
            assignment=replace(self.before, owners=self.owners, epoch=epoch, standbys=standbys),
            state=state,
            moves=tuple(self.moves),
        )

    def _since(self, name: State) -> float:
        quiet = name is State.STABLE
        if self.state is not None and quiet == (self.state.state is State.STABLE):
            return self.state.since
        return self.now

    def _reason(self, name: State) -> str:
        reasons = sorted({move.reason for move in self.moves})
        under_way = self.state is not None and self.state.state is not State.STABLE
        if under_way and self.state is not None:
            old = [part for part in self.state.reason.split("; ") if part]
            reasons = old + [reason for reason in reasons if reason not in old]
        elif not reasons and self.state is not None and name is State.STABLE:
            return self.state.reason
        return "; ".join(reasons)
