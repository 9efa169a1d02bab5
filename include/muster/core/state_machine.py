"""The state machine of one topic: what stands in ZooKeeper, who is there and what they report, to the next step.

Pure: no I/O and no clock. `advance` yields at most one `Transition`, which is written atomically against the
versions it was computed from. Whatever coordinator comes next, after any crash, computes on from what was written.

State Transitions
-----------------

- *Initial* (no state node) -> *Starting*, or *Closing* if a consumer must let go first; only after every live
  consumer has said what it holds.
- *Stable* -> *Closing* if a partition must leave a consumer, -> *Starting* if there are only starts, or if an owner
  reports that it does not run what it owns.
- *Closing* -> *Closing* each time a partition is closed and given away; -> *Starting* when all are closed.
- *Starting* -> *Stable* when every partition of `toStart` is reported running.
- In *Starting* and *Closing* a partition whose owner or new owner has left is planned again; balance is not: that
  waits for *Stable*, so a rebalance under way always ends.

Quantities
----------

- A consumer is *away* when it is not live: isolated, failing its check, or not registered. Since when is kept in the
  state node (`missing`), until it runs again all that it owns.
- `Patience.hold`: seconds for which a consumer that is away keeps what it owns.
- `Patience.release`: seconds after which what was taken from a consumer that is away counts as closed without its
  report. Longer than `hold` only for one that still answers: its word is worth waiting for, but not without end.

Invariant
---------

A partition is in `owners` of at most one consumer, and enters `owners` of another only after one of these:

1. its old owner, and every older incarnation of it that still answers, reported it in none of its three lists, in
   knowledge of the epoch that took it away (consumption stopped and offset committed);
2. its old owner is away for longer than `release`, by a reading that was made after the partition was taken away;
3. no consumer held it: every live consumer said so in knowledge of the topic's epoch, or the state node records it.

It holds because taking away and giving are separate writes: the first removes the partition from `owners` and
records the old owner in `toClose`, the second needs that record and one of the facts above. The versions make
the second fail if anything was written between the reading and the writing. An owner that is gone is no
exception: it may come back, and start what it still finds under its name, while the writer is on its way from
reading service discovery to writing. So it too is taken off first.

Without a state node there is no such record, and after ZooKeeper was restored from a backup there is a wrong one:
the assignment node has a lower epoch than was noted in Consul before it was written, or than a consumer reports. Then
what consumers report takes its place: who runs a partition keeps it, and who is closing it stands in `toClose`. The
new epoch is above all of these. Where none holds anything that the nodes do not say, they count, with a new epoch.

A partition that does not move is in no list and is never touched.

A topic that is *leaving* (no longer subscribed) is planned to have no owners. It is Closing until every
owner has reported its partitions closed, or is gone; then its nodes name no consumer, and they may be removed
against the versions of that reading (`may_be_removed`). Subscribed again before that, it is planned as ever.

Standbys are written with the owners. A standby neither closes nor starts anything, so a change of
standbys alone leaves state and epoch as they are, in whatever state the topic is. Two things hold whatever the plan
says: a consumer does not stand by for what it holds itself, and while owners are held for (`hold`), or a partition
is not yet with whom the plan gives it to, standbys stay, because the plan has promoted some of them already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
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
from muster.core.patience import NOTHING_HEARD, Heard, Patience, Policy

NO_STANDBYS: PartitionStandbys = MappingProxyType({})
NO_EPOCHS: Mapping[str, int] = MappingProxyType({})
NO_REASONS: Mapping[int, str] = MappingProxyType({})
"""Nothing is known of why partitions move but what the state machine sees itself."""
WENT_BACK = "ZooKeeper holds an older state than was planned (was it restored?)"
"""The reason of a step that puts what consumers report in the place of what ZooKeeper holds."""


def consumers_to_ask(
    snapshots: Iterable[TopicSnapshot], membership: Membership, unknown: Collection[str] = ()
) -> dict[str, set[str]]:
    """The registered consumers whose status the next step depends on, and the topics that it is about.

    Of a topic without a state, or in `unknown`, these are all. Of the others those that are to close or to start
    something, those that came back and do not run yet, and the owners that are registered and not live.
    """
    known = registered(membership)
    away = known - membership.live.keys()
    asked: dict[str, set[str]] = {}
    for snapshot in snapshots:
        if snapshot.state is None or snapshot.topic in unknown:
            concerned: Iterable[str] = known if snapshot.assignment is not None else ()
        else:
            state = snapshot.state
            concerned = {*state.to_close, *state.to_start, *state.missing} & known
            if away and snapshot.assignment is not None:
                concerned |= away.intersection(snapshot.assignment.owners.values())
        for consumer in concerned:
            asked.setdefault(consumer, set()).add(snapshot.topic)
    return asked


def registered(membership: Membership) -> set[str]:
    """Everyone who can be asked: live, failing, or isolated and registered."""
    return {*membership.live, *membership.failing, *membership.outside, *membership.older}


def topics_ahead(
    snapshots: Mapping[str, TopicSnapshot],
    answers: Iterable[ConsumerStatus],
    noted: Mapping[str, int] = NO_EPOCHS,
) -> dict[str, int]:
    """The topics of which consumers report, or Consul has `noted`, a higher epoch than the assignment node has, with
    the highest.

    Epochs only grow, so ZooKeeper went back to an older state; or a coordinator has written in between, and what is
    written on the strength of this reading fails; or one ended between the note and the write.
    """
    found: dict[str, int] = {}
    for topic in snapshots.keys() & noted.keys():
        assignment = snapshots[topic].assignment
        if assignment is not None and assignment.epoch < noted[topic]:
            found[topic] = noted[topic]
    for answer in answers:
        for topic, status in answer.topics.items():
            snapshot = snapshots.get(topic)
            if snapshot is None or snapshot.assignment is None or status.epoch is None or not answer.epochs:
                continue
            if status.epoch > snapshot.assignment.epoch:
                found[topic] = max(found.get(topic, 0), status.epoch)
    return found


def advance(
    snapshot: TopicSnapshot,
    membership: Membership,
    statuses: Mapping[str, ConsumerStatus],
    targets: Owners,
    now: float,
    policy: Policy,
    *,
    heard: Heard = NOTHING_HEARD,
    standbys: PartitionStandbys = NO_STANDBYS,
    reasons: Mapping[int, str] = NO_REASONS,
    leaving: str = "",
) -> Transition | None:
    """Return the next step of a topic, or None when there is nothing to do now.

    `statuses` holds the answers of registered consumers, live or not; one without an answer is asked again another
    time. `targets` and `standbys` are the plan for this topic (`muster.core.planner.plan`). `reasons` says why a
    partition that `targets` moves from a live owner moves, where the planner knows better than 'balance'. `leaving`
    says why the topic is not subscribed any more, '' if it is. Without a live consumer, without partitions or without
    an assignment node the status quo stands.
    """
    if not membership.live or snapshot.assignment is None:
        return None
    if snapshot.state is None and not (snapshot.assignment.owners if leaving else snapshot.partitions):
        return None
    behind = snapshot.assignment.epoch < heard.epochs.get(snapshot.topic, 0)
    at_rest = not (leaving or behind)
    if at_rest and _at_rest(snapshot, snapshot.assignment, membership, statuses, targets, standbys):
        return None
    patience = Patience(policy, membership, statuses, heard)
    step = _Step(snapshot, snapshot.assignment, patience, targets, now, standbys, reasons, leaving)
    return step.run()


def _at_rest(
    snapshot: TopicSnapshot,
    assignment: TopicAssignment,
    membership: Membership,
    statuses: Mapping[str, ConsumerStatus],
    targets: Owners,
    standbys: PartitionStandbys,
) -> bool:
    """Whether a step has nothing to find: Stable, all partitions with the live owners that the plan wants, nothing
    waited for, no standbys and no answer about it. What `_Step` would say, without going through the partitions one
    by one: nearly all topics of a large cluster are so at any time."""
    state = snapshot.state
    return (
        state is not None
        and state.state is State.STABLE
        and not (state.to_start or state.to_close or state.missing or assignment.standbys or standbys)
        and assignment.owners == targets
        and assignment.owners.keys() == snapshot.partitions
        and membership.live.keys() >= set(assignment.owners.values())
        and not any(snapshot.topic in status.topics for status in statuses.values())
    )


def may_be_removed(snapshot: TopicSnapshot) -> bool:
    """Whether the nodes of a topic that is leaving name no consumer: then they may go, against their versions."""
    state, assignment = snapshot.state, snapshot.assignment
    if assignment is None:
        return True
    return not assignment.owners and (state is None or not (state.to_close or state.to_start))


def recreated(snapshot: TopicSnapshot, topic_id: str, now: float) -> Transition | None:
    """The step of a topic that Kafka holds under another id than ZooKeeper: it was deleted and created again.

    Owners stay. They close what they hold of the old topic without committing it, and start the new one. None for a
    topic that is not known yet. A topic of which no id was known gets it, and nothing else changes.
    """
    assignment, state = snapshot.assignment, snapshot.state
    if assignment is None or state is None or assignment.topic_id == topic_id:
        return None
    if not assignment.topic_id:
        return Transition(snapshot, replace(assignment, topic_id=topic_id), state)
    epoch = assignment.epoch + 1
    to_start = by_partition(state.to_start) | dict(assignment.owners)
    old = [part for part in state.reason.split("; ") if part and state.state is not State.STABLE]
    reason = "the topic was deleted and created again in Kafka"
    return Transition(
        snapshot,
        replace(assignment, topic_id=topic_id, epoch=epoch),
        replace(
            state,
            state=State.CLOSING if state.to_close else State.STARTING,
            to_start=by_consumer(to_start),
            epoch=epoch,
            since=now if state.state is State.STABLE else state.since,
            reason="; ".join([*old, *([reason] if reason not in old else [])]),
        ),
    )


class _Step:
    """One step of one topic. `owners`, `to_start` and `to_close` are by partition and are changed in place."""

    def __init__(
        self,
        snapshot: TopicSnapshot,
        assignment: TopicAssignment,
        patience: Patience,
        targets: Owners,
        now: float,
        standbys: PartitionStandbys,
        reasons: Mapping[int, str],
        leaving: str,
    ) -> None:
        self.snapshot = snapshot
        self.topic = snapshot.topic
        self.partitions = frozenset[int]() if leaving else snapshot.partitions
        self.why_without = leaving or "partition vanished from Kafka"
        self.before = assignment
        self.state = snapshot.state
        self.patience = patience
        self.live = patience.membership.live
        self.isolated = patience.membership.isolated
        self.isolated_by = patience.membership.isolated_by
        self.statuses = patience.statuses
        self.older = patience.heard.older
        self.targets = targets
        self.now = now
        self.planned_standbys = standbys
        self.reasons = reasons
        self.owners = dict(assignment.owners)
        self.to_start = by_partition(self.state.to_start if self.state else {})
        self.to_close = by_partition(self.state.to_close if self.state else {})
        self._believe_the_assignment()
        self.taken_away = frozenset(self.to_close)
        everyone = chain(self.statuses.values(), chain.from_iterable(self.older.values()))
        self.ahead = topics_ahead({self.topic: snapshot}, everyone, patience.heard.epochs).get(self.topic)
        self.unknown = self.state is None or self.ahead is not None
        self.settled = not self.unknown and self.state is not None and self.state.state is State.STABLE
        self.moves: list[Move] = []
        self.notes: list[str] = []
        self.away = self._away()
        self.missing = {
            c: since
            for c, since in self.away.items()
            if c not in self.live and now - since < patience.hold(c)
        }

    def run(self) -> Transition | None:
        if self.unknown and not self._believe_the_holders():
            return None
        self._let_go_of_vanished()
        self._give_what_is_closed()
        self._place_orphans()
        if self.unknown:
            # Whether those who own something also run it is not known yet.
            self.to_start.update({p: c for p, c in self.owners.items() if c in self.live})
        elif self.settled and not self._start_what_does_not_run() and not self.missing:
            self._rebalance()
        return self._transition()

    def _believe_the_assignment(self) -> None:
        """Where the two nodes contradict each other, which no coordinator writes, the one that consumers obey counts:
        what it gives to a consumer is to start there, and is not to be closed there."""
        self.to_start |= {p: self.owners[p] for p in self.to_start.keys() & self.owners.keys()}
        self.to_close = {p: c for p, c in self.to_close.items() if self.owners.get(p) != c}

    def _believe_the_holders(self) -> bool:
        """Put what consumers hold in the place of what ZooKeeper does not know; False while that is not known either.

        A round of answers is complete when every live consumer has seen the topic's epoch: one that has not may be
        about to start what an older node gave it.
        """
        answered = all(c in self.statuses and self._seen(self.statuses[c]) for c in self.live)
        holders: dict[int, list[str]] = {}
        for consumer in sorted({*self.statuses, *self.older}):
            for partition in frozenset().union(*(a.on(self.topic).held for a in self._answers(consumer))):
                holders.setdefault(partition, []).append(consumer)
        if not answered or any(len(found) > 2 for found in holders.values()):  # noqa: PLR2004  see below
            return False
        if self.state is not None and all(
            found == [self.owners.get(partition) or self.to_close.get(partition)]
            for partition, found in holders.items()
        ):
            # What was noted has not been written, or what was lost has changed nothing.
            self.unknown = False
            self.settled = self.state.state is State.STABLE
            return True
        self.notes += [WENT_BACK] if self.ahead is not None else []
        self.to_start, self.to_close, self.taken_away = {}, {}, frozenset()
        for partition, found in holders.items():
            # Of two, one closes it and then the other starts it; of more, all but two obey the assignment first.
            keeps = [c for c in found if self._runs_on(c, partition)]
            stays = next((c for c in keeps if c == self.owners.get(partition)), keeps[0] if keeps else None)
            closes = [c for c in found if c != stays]
            if stays is not None and not closes:
                self.owners[partition] = stays
                continue
            self.owners.pop(partition, None)
            self.to_close[partition] = closes[0]
            if stays is not None or len(closes) > 1:
                self.to_start[partition] = stays or closes[1]
        return True

    def _runs_on(self, consumer: str, partition: int) -> bool:
        """Whether a consumer holds a partition to read it, and may go on."""
        status = self.statuses.get(consumer)
        return (
            consumer in self.live
            and status is not None
            and partition in status.on(self.topic).running | status.on(self.topic).starting
        )

    def _answers(self, consumer: str) -> list[ConsumerStatus]:
        """What all incarnations of a consumer answered, the registered one first."""
        newest = self.statuses.get(consumer)
        return [*([newest] if newest is not None else []), *self.older.get(consumer, ())]

    def _seen(self, answer: ConsumerStatus) -> bool:
        return answer.has_seen(self.topic, self.before.epoch)

    def _away(self) -> dict[str, float]:
        """Since when each owner and standby is away that is waited for, or has not run again since it was."""
        known = self.state.missing if self.state else {}
        involved = {*self.owners.values(), *self.to_start.values(), *self.to_close.values()}
        involved.update(chain.from_iterable(self.before.standbys.values()))
        return {
            # What a clock that was ahead has written is not waited for any longer than what is noticed now.
            consumer: min(known.get(consumer, self.now), self.now)
            for consumer in sorted(involved)
            if (
                (consumer in known and not self._runs_all(consumer))
                if consumer in self.live
                else self.patience.release(consumer) > 0
            )
        }

    def _runs_all(self, consumer: str) -> bool:
        """Whether a consumer reports that it runs all that it owns."""
        owned = {p for p, owner in self.before.owners.items() if owner == consumer}
        status = self.statuses.get(consumer)
        if not owned:
            return True
        return status is not None and self._seen(status) and owned <= status.on(self.topic).running

    def _remembered(self) -> dict[str, float]:
        """What the state node keeps of `away`: who is waited for, who is being taken off after that, and who came
        back and does not run yet, so that one that dies again and again is not waited for each time."""
        closing = set(self.to_close.values())
        return {
            c: since
            for c, since in self.away.items()
            if c in self.missing or c in closing or (c in self.live and c in self.owners.values())
        }

    def _gone(self, consumer: str) -> bool:
        return consumer not in self.live and consumer not in self.missing

    def _released(self, consumer: str) -> bool:
        """Whether what was taken from a consumer counts as closed without its report."""
        since = self.away.get(consumer, self.now)
        return consumer not in self.live and self.now - since >= self.patience.release(consumer)

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
            if not (self._released(old) or self._reports_closed(old, partition)):
                continue
            del self.to_close[partition]
            target = self.to_start.get(partition)
            if target is None or partition in self.owners or self._gone(target):
                continue
            if not self._leaves_to_other(target, partition):
                self.owners[partition] = target

    def _reports_closed(self, consumer: str, partition: int) -> bool:
        """Whether all incarnations of a consumer that answer have closed a partition; the live one must answer."""
        if consumer in self.live and consumer not in self.statuses:
            return False
        answers = self._answers(consumer)
        return bool(answers) and all(
            self._seen(answer) and partition not in answer.on(self.topic).held for answer in answers
        )

    def _leaves_to_other(self, consumer: str, partition: int) -> bool:
        """Whether a consumer is about to leave, and the plan knows another one for a partition."""
        target = self.targets.get(partition)
        return (
            consumer in self.live
            and self.live[consumer].leaving
            and target is not None
            and target != consumer
            and target in self.live
        )

    def _start_what_does_not_run(self) -> bool:
        """Have what an owner reports not to run started again; whether there is any."""
        stopped = {
            partition: owner
            for partition, owner in self.owners.items()
            if owner in self.live
            and (status := self.statuses.get(owner)) is not None
            and self.topic in status.topics
            and self._seen(status)
            and partition not in status.on(self.topic).running
        }
        self.to_start.update(stopped)
        self.notes += [f"consumer {c} does not run what it owns" for c in sorted(set(stopped.values()))]
        return bool(stopped)

    def _place_orphans(self) -> None:
        """Give a new owner to what no live consumer holds or is to hold.

        Where the plan has no owner (no live consumer subscribes to the topic) things stay as they are, so a
        consumer that comes back finds its partitions.
        """
        for partition in sorted(self.partitions):
            holder = self.to_start.get(partition) or self.owners.get(partition)
            on_its_way = partition not in self.owners
            there = holder is not None and not self._gone(holder)
            if holder is not None and there and not (on_its_way and self._leaves_to_other(holder, partition)):
                if holder in self.live and on_its_way and partition not in self.to_close:
                    # It is back from an absence in which no other consumer could take what it was to start.
                    self.owners[partition] = holder
                continue
            target = self.targets.get(partition)
            if target is None or target not in self.live:
                continue
            if partition in self.owners:
                self.to_close[partition] = self.owners.pop(partition)
            self.to_start[partition] = target
            if partition not in self.to_close:
                self.owners[partition] = target
            self._moved(partition, holder, target, self._why_placed(partition, holder, target))

    def _why_placed(self, partition: int, holder: str | None, target: str) -> str:
        if holder is None:
            return "first assignment" if self.state is None else "no consumer held it"
        if holder in self.live:
            return f"consumer {holder} leaves"
        reason = self._why_gone(holder)
        return reason + (
            ", a standby takes over" if target in self.before.standbys.get(partition, ()) else ""
        )

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
        standbys: dict[int, tuple[str, ...]] = {}
        for partition in sorted({*self.before.standbys, *self.planned_standbys} & self.partitions):
            holder = self.to_start.get(partition) or self.owners.get(partition)
            waits = self.missing or self.targets.get(partition, holder) != holder
            wanted = self.before.standbys if waits else self.planned_standbys
            ready = tuple(c for c in wanted.get(partition, ()) if c != holder and not self._gone(c))
            if ready:
                standbys[partition] = ready
        return standbys

    def _moved(self, partition: int, source: str | None, target: str | None, reason: str) -> None:
        self.moves.append(Move(self.snapshot.topic, partition, source, target, reason))

    def _runs(self, partition: int, consumer: str) -> bool:
        status = self.statuses.get(consumer)
        return (
            not self.unknown
            and consumer in self.live
            and self.owners.get(partition) == consumer
            and self.before.owners.get(partition) == consumer
            and status is not None
            and self._seen(status)
            and partition in status.on(self.topic).running
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
            or self.ahead is not None
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
        if self.ahead is not None:
            epoch = self.ahead + 1
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
        reasons = [*self.notes, *sorted({move.reason for move in self.moves})]
        under_way = self.state is not None and self.state.state is not State.STABLE
        if under_way and self.state is not None:
            old = [part for part in self.state.reason.split("; ") if part]
            reasons = old + [reason for reason in reasons if reason not in old]
        elif not reasons and self.state is not None and name is State.STABLE:
            return self.state.reason
        return "; ".join(reasons)
