"""Changes of the real code, each a mistake that a person could make, for the model to catch.

`MUTATIONS` maps what is done wrong to a function that does it, by pytest's monkeypatch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from pytest import MonkeyPatch

from muster.consumer import predecessor
from muster.consumer.agent import Agent
from muster.consumer.assignment_watch import AssignmentWatch
from muster.consumer.commits import GuardedCommits
from muster.consumer.registration import JOINING, Registrar
from muster.coordinator import coordinator as coordination
from muster.coordinator import view as viewing
from muster.coordinator.coordinator import Coordinator
from muster.core import ownership, state_machine, wire
from muster.core.decisions import NOTHING_DECIDED, Decisions
from muster.core.model import ConsumerStatus, Owners, TopicState
from muster.core.ownership import TopicConsumer
from muster.core.state_machine import _Step
from muster.edges import kafka_fencing
from muster.edges.consul import ConsulError, Discovery, Members
from muster.edges.consul_members import to_membership
from muster.edges.kafka_fencing import Outcome
from tests.faults.model.zookeeper import Ensemble

Mutation = Callable[[MonkeyPatch], None]


def hand_over_before_the_close_is_confirmed(patch: MonkeyPatch) -> None:
    patch.setattr(_Step, "_reports_closed", lambda step, consumer, partition: consumer in step.live)


def ignore_the_epoch(patch: MonkeyPatch) -> None:
    patch.setattr(ConsumerStatus, "has_seen", lambda status, topic, epoch: True)


def forget_the_version_check(patch: MonkeyPatch) -> None:
    patch.setattr(Ensemble, "_unchanged", lambda ensemble, before: True)


def trust_an_empty_list(patch: MonkeyPatch) -> None:
    def believe(self: Discovery, isolated: Mapping[str, object], index: int) -> Members:
        return Members(to_membership((), isolated), {}, index)

    def go_on(
        snapshot: Any,
        membership: Any,
        statuses: Any,
        targets: Owners,
        now: float,
        policy: Any,
        **further: Any,
    ) -> Any:
        if snapshot.assignment is None or not snapshot.partitions:
            return None
        return _Step(
            snapshot, snapshot.assignment, membership, statuses, targets, now, policy, **further
        ).run()

    patch.setattr(Discovery, "_confirm_empty", believe)
    patch.setattr(coordination, "advance", go_on)
    patch.setattr(viewing.View, "held", property(lambda view: view.planning_error))


def give_away_on_an_unreachable_status(patch: MonkeyPatch) -> None:
    original = Coordinator._ask

    def ask(self: Coordinator, view: Any, known: Any = None) -> Any:
        statuses, failures = original(self, view, known)
        return {**{c: ConsumerStatus(c, "?") for c in failures}, **statuses}, failures

    patch.setattr(Coordinator, "_ask", ask)


def give_at_once_what_an_absent_owner_had(patch: MonkeyPatch) -> None:
    original = _Step._place_orphans

    def place(self: _Step) -> None:
        before = set(self.to_close)
        original(self)
        for partition in self.to_close.keys() - before:
            if partition in self.to_start:
                del self.to_close[partition]
                self.owners[partition] = self.to_start[partition]

    patch.setattr(_Step, "_place_orphans", place)


def forget_who_is_closing_when_restarted(patch: MonkeyPatch) -> None:
    original = wire.format_state
    patch.setattr(wire, "format_state", lambda state: original(_without_to_close(state)))


def _without_to_close(state: TopicState) -> TopicState:
    return replace(state, to_close={})


def write_while_consul_is_out_of_reach(patch: MonkeyPatch) -> None:
    original = Coordinator._view

    def view(self: Coordinator) -> Any:
        read = self.discovery.members

        def remembered() -> Members:
            try:
                members = read()
            except ConsulError:
                members = None
            if members is None or members.membership is None:
                if self._known is None:
                    raise ConsulError("nothing is known yet")
                return self._known
            self._known = members
            return members

        decided = self.discovery.decisions

        def decisions() -> Decisions:
            try:
                return decided()
            except ConsulError:
                return NOTHING_DECIDED

        self._known = getattr(self, "_known", None)
        self.discovery.members, self.discovery.decisions = remembered, decisions
        try:
            return original(self)
        finally:
            del self.discovery.members, self.discovery.decisions

    patch.setattr(Coordinator, "_view", view)


def place_orphans_without_waiting_for_to_close(patch: MonkeyPatch) -> None:
    original = _Step._place_orphans

    def place(self: _Step) -> None:
        before = set(self.to_close)
        original(self)
        for partition in before & self.to_close.keys() & self.to_start.keys():
            del self.to_close[partition]
            self.owners[partition] = self.to_start[partition]

    patch.setattr(_Step, "_place_orphans", place)


def report_closed_before_the_commit(patch: MonkeyPatch) -> None:
    patch.setattr(ownership._Partition, "outstanding", property(lambda partition: False))


def report_closed_while_a_batch_is_under_way(patch: MonkeyPatch) -> None:
    patch.setattr(ownership._Partition, "may_be_read", property(lambda partition: False))


def take_up_again_before_it_is_closed(patch: MonkeyPatch) -> None:
    """A query that failed starts a partition anew while its last commit is outstanding."""
    patch.setattr(ownership._Partition, "offerable", property(lambda p: p.claimed and not p.closing))


def begin_before_it_is_claimed(patch: MonkeyPatch) -> None:
    def offerable(partition: ownership._Partition) -> bool:
        return not partition.closing and (partition.planned is not None or not partition.outstanding)

    patch.setattr(ownership._Partition, "offerable", property(offerable))


def forget_to_fence(patch: MonkeyPatch) -> None:
    """Each process has transactional ids of its own, so that nobody is fenced off."""
    numbers = count()
    patch.setattr(kafka_fencing, "transactional_id", lambda *_: f"id-{next(numbers)}")


def commit_what_the_group_is_ahead_of(patch: MonkeyPatch) -> None:
    def commit(self: GuardedCommits, offsets: Mapping[Any, int]) -> Outcome:
        self._group.commit(offsets)
        return Outcome(done=dict(offsets))

    patch.setattr(GuardedCommits, "commit", commit)


def take_back_at_once_what_was_refused(patch: MonkeyPatch) -> None:
    """A refusal is taken for a passing trouble."""
    original = Agent.refused

    def refused(self: Agent, key: Any, term: int, why: str) -> None:
        original(self, key, term, why)
        self._ownership.allow(key)

    patch.setattr(Agent, "refused", refused)


def ignore_pins(patch: MonkeyPatch) -> None:
    patch.setattr(Decisions, "pinned", lambda decisions: {})


def forget_exclusions(patch: MonkeyPatch) -> None:
    patch.setattr(Decisions, "excluded", lambda decisions: {})


def touch_what_does_not_move(patch: MonkeyPatch) -> None:
    """Every new assignment closes everything first, as Kafka's eager protocol does."""
    original = TopicConsumer.read

    def read(self: TopicConsumer, assignment: Any, zxid: int) -> bool:
        if zxid > self.zxid:
            for partition in self.held.values():
                partition.closing = True
        return original(self, assignment, zxid)

    patch.setattr(TopicConsumer, "read", read)


def take_up_by_what_was_read_before(patch: MonkeyPatch) -> None:
    patch.setattr(Agent, "lift_once_read", Agent.lift)


def take_up_before_it_is_live(patch: MonkeyPatch) -> None:
    original = Agent.bar

    def bar(self: Agent, reason: str, mute: bool = False) -> None:
        if reason != JOINING:
            original(self, reason, mute)

    patch.setattr(Agent, "bar", bar)


def do_not_wait_for_the_predecessor(patch: MonkeyPatch) -> None:
    patch.setattr(Registrar, "_take_over", lambda registrar, known: None)


def report_closed_for_the_predecessor(patch: MonkeyPatch) -> None:
    original = Agent.bar
    patch.setattr(Agent, "bar", lambda agent, reason, mute=False: original(agent, reason))


def lose_patience_with_the_predecessor(patch: MonkeyPatch) -> None:
    original = predecessor.Waiting.look

    def look(self: predecessor.Waiting, ask: predecessor.Ask, now: float) -> bool:
        return original(self, ask, now) or now - self.began > 5.0

    patch.setattr(predecessor.Waiting, "look", look)


def forget_the_predecessor_of_the_predecessor(patch: MonkeyPatch) -> None:
    original = predecessor.olders
    patch.setattr(predecessor, "olders", lambda registration, own: original(registration, own)[-1:])


def believe_a_predecessor_that_holds_nothing_now(patch: MonkeyPatch) -> None:
    original = predecessor.Waiting.look

    def look(self: predecessor.Waiting, ask: predecessor.Ask, now: float) -> bool:
        def asked(older: predecessor.Older) -> predecessor.Answer:
            answer = ask(older)
            return replace(answer, leaving=True) if isinstance(answer, ConsumerStatus) else answer

        return original(self, asked, now)

    patch.setattr(predecessor.Waiting, "look", look)


def seem_gone_while_taking_over(patch: MonkeyPatch) -> None:
    original = Discovery.register

    def register(self: Discovery, *arguments: Any, passing: bool = False) -> None:
        original(self, *arguments)

    patch.setattr(Discovery, "register", register)


def go_on_though_isolated(patch: MonkeyPatch) -> None:
    patch.setattr(Registrar, "_isolate", lambda registrar, isolated: None)


def go_on_though_replaced(patch: MonkeyPatch) -> None:
    patch.setattr(Registrar, "_replaced_by", lambda registrar, newer: None)


def balance_in_the_middle_of_a_rebalance(patch: MonkeyPatch) -> None:
    original = _Step.run

    def run(self: _Step) -> Any:
        self.settled = True
        return original(self)

    patch.setattr(_Step, "run", run)


def forget_to_close_what_vanished(patch: MonkeyPatch) -> None:
    def let_go(self: _Step) -> None:
        for partition in self.owners.keys() - self.snapshot.partitions:
            del self.owners[partition]
        for partition in self.to_start.keys() - self.snapshot.partitions:
            del self.to_start[partition]

    patch.setattr(_Step, "_let_go_of_vanished", let_go)


def delete_partitions_that_others_found(patch: MonkeyPatch) -> None:
    original = Ensemble.set_partitions
    patch.setattr(
        Ensemble,
        "set_partitions",
        lambda store, topic, partitions, known: original(store, topic, partitions, None),
    )


def rely_on_watches(patch: MonkeyPatch) -> None:
    original = AssignmentWatch.look
    patch.setattr(AssignmentWatch, "look", lambda watch, client, full: original(watch, client, False))


def forget_an_absent_new_owner(patch: MonkeyPatch) -> None:
    """Nobody is planned in the place of a new owner that left before it started."""
    patch.setattr(state_machine._Step, "_place_orphans", _place_only_what_nobody_has)


def _place_only_what_nobody_has(self: _Step) -> None:
    for partition in self.snapshot.partitions - self.to_start.keys() - self.owners.keys():
        if (target := self.targets.get(partition)) in self.live:
            self.to_start[partition] = target
            if partition not in self.to_close:
                self.owners[partition] = target


MUTATIONS: dict[str, Mutation] = {
    mutation.__name__: mutation
    for mutation in (
        hand_over_before_the_close_is_confirmed,
        ignore_the_epoch,
        forget_the_version_check,
        trust_an_empty_list,
        give_away_on_an_unreachable_status,
        give_at_once_what_an_absent_owner_had,
        forget_who_is_closing_when_restarted,
        write_while_consul_is_out_of_reach,
        place_orphans_without_waiting_for_to_close,
        report_closed_before_the_commit,
        report_closed_while_a_batch_is_under_way,
        take_up_again_before_it_is_closed,
        begin_before_it_is_claimed,
        forget_to_fence,
        commit_what_the_group_is_ahead_of,
        take_back_at_once_what_was_refused,
        ignore_pins,
        forget_exclusions,
        touch_what_does_not_move,
        take_up_by_what_was_read_before,
        take_up_before_it_is_live,
        do_not_wait_for_the_predecessor,
        report_closed_for_the_predecessor,
        lose_patience_with_the_predecessor,
        forget_the_predecessor_of_the_predecessor,
        believe_a_predecessor_that_holds_nothing_now,
        seem_gone_while_taking_over,
        go_on_though_isolated,
        go_on_though_replaced,
        balance_in_the_middle_of_a_rebalance,
        forget_to_close_what_vanished,
        delete_partitions_that_others_found,
        rely_on_watches,
        forget_an_absent_new_owner,
    )
}
