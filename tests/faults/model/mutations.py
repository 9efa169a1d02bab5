"""Changes of the real code, each a mistake that a person could make, for the model to catch.

`MUTATIONS` maps what is done wrong to a function that does it, by pytest's monkeypatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import count
from typing import Any

from pytest import MonkeyPatch

from muster.consumer import agent, predecessor
from muster.consumer.assignment_watch import AssignmentWatch
from muster.consumer.blocks import Blocks
from muster.consumer.commits import GuardedCommits
from muster.consumer.failing.parked import ParkedPartitions
from muster.consumer.outside import Outside
from muster.consumer.registration import JOINING, Registrar
from muster.coordinator import coordinator as coordinating
from muster.coordinator import topic_fetch
from muster.coordinator import view as viewing
from muster.coordinator.coordinator import Coordinator
from muster.coordinator.topic_fetch import TopicFetch
from muster.core import (
    diagnosis,
    epochs,
    ownership,
    patience,
    positions,
    progress,
    state_machine,
    stuck,
    wire,
)
from muster.core.diagnosis import Situation, Waiting
from muster.core.model import (
    ConsumerStatus,
    Owners,
    State,
    TopicPartition,
    TopicSnapshot,
    TopicState,
    Transition,
)
from muster.core.offsets import TopicOffsets
from muster.core.overrides import NO_OVERRIDES, Overrides
from muster.core.ownership import Ownership
from muster.core.patience import Patience
from muster.core.progress import Look
from muster.core.step import Draft, Inputs
from muster.edges import consul_members, zookeeper_transitions
from muster.edges.commit_outcome import CommitOutcome
from muster.edges.consul import ConsulCatalog, ConsulError, Members, OverrideStore
from muster.edges.consul_members import to_membership
from muster.edges.status import StatusResult
from muster.edges.zookeeper import TopicStore
from muster.edges.zookeeper_session import Operation
from tests.faults.model import flow_mutations, state_mutations
from tests.faults.model.commits import committer, fencing
from tests.faults.model.process import _WaitingRegistrar, ending

Mutation = Callable[[MonkeyPatch], None]


def hand_over_before_the_close_is_confirmed(patch: MonkeyPatch) -> None:
    patch.setattr(Inputs, "reports_closed", lambda given, consumer, partition: consumer in given.live)


def ignore_the_epoch(patch: MonkeyPatch) -> None:
    patch.setattr(ConsumerStatus, "has_seen", lambda status, topic, epoch: True)


def forget_the_version_check(patch: MonkeyPatch) -> None:
    original = TopicStore.apply

    def apply(self: TopicStore, transitions: Sequence[Transition]) -> list[bool]:
        read = TopicStore.snapshots(self)
        found = [(t, read[t.topic]) for t in transitions]
        return original(
            self,
            [
                replace(
                    t,
                    before=replace(
                        t.before, assignment_version=now.assignment_version, state_version=now.state_version
                    ),
                )
                for t, now in found
                if isinstance(now, TopicSnapshot)
            ],
        )

    patch.setattr(TopicStore, "apply", apply)


def write_what_an_earlier_session_read(patch: MonkeyPatch) -> None:
    original = Operation.send

    def send(self: Operation, what: str, transaction: Any, read_in: int = 0) -> Any:
        return original(self, what, transaction)

    patch.setattr(Operation, "send", send)


def trust_an_empty_list(patch: MonkeyPatch) -> None:
    def believe(self: ConsulCatalog, isolated: Mapping[str, str]) -> Members:
        return Members(to_membership((), isolated), {})

    def go_on(snapshot: Any, patience: Patience, targets: Owners, now: float, **further: Any) -> Any:
        if snapshot.assignment is None or not snapshot.partitions:
            return None
        return state_machine._step(Inputs(snapshot, snapshot.assignment, patience, targets, now, **further))

    patch.setattr(ConsulCatalog, "_confirm_empty", believe)
    patch.setattr(viewing, "advance", go_on)
    patch.setattr(viewing.CoordinatorView, "held", property(lambda view: ""))


def give_away_on_an_unreachable_status(patch: MonkeyPatch) -> None:
    original = Coordinator._ask

    def ask(self: Coordinator, view: Any, *others: Any, **named: Any) -> Any:
        asked = original(self, view, *others, **named)
        statuses = {c: ConsumerStatus(c, "?") for c in asked.replies.failures} | dict(asked.replies.statuses)
        return replace(asked, replies=replace(asked.replies, statuses=statuses))

    patch.setattr(Coordinator, "_ask", ask)


def give_at_once_what_an_absent_owner_had(patch: MonkeyPatch) -> None:
    original = state_machine._place_orphans

    def place(given: Inputs, draft: Draft) -> None:
        before = set(draft.to_close)
        original(given, draft)
        for partition in draft.to_close.keys() - before:
            if partition in draft.to_start:
                del draft.to_close[partition]
                draft.owners[partition] = draft.to_start[partition]

    patch.setattr(state_machine, "_place_orphans", place)


def forget_who_is_closing_when_restarted(patch: MonkeyPatch) -> None:
    original = wire.format_state
    patch.setattr(zookeeper_transitions, "format_state", lambda state: original(_without_to_close(state)))


def _without_to_close(state: TopicState) -> TopicState:
    return replace(state, to_close={})


def write_while_consul_is_out_of_reach(patch: MonkeyPatch) -> None:
    original = Coordinator._view

    def view(self: Coordinator) -> Any:
        read = self.catalog.members

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

        decided = self.overrides.read

        def read_overrides() -> Overrides:
            try:
                return decided()
            except ConsulError:
                return NO_OVERRIDES

        self._known = getattr(self, "_known", None)
        self.catalog.members, self.overrides.read = remembered, read_overrides
        try:
            return original(self)
        finally:
            del self.catalog.members, self.overrides.read

    note = OverrideStore.note_epochs

    def note_epochs(self: OverrideStore, epochs: Mapping[str, int]) -> None:
        with suppress(ConsulError):
            note(self, epochs)

    patch.setattr(Coordinator, "_view", view)
    patch.setattr(OverrideStore, "note_epochs", note_epochs)


def place_orphans_without_waiting_for_to_close(patch: MonkeyPatch) -> None:
    original = state_machine._place_orphans

    def place(given: Inputs, draft: Draft) -> None:
        before = set(draft.to_close)
        original(given, draft)
        for partition in before & draft.to_close.keys() & draft.to_start.keys():
            del draft.to_close[partition]
            draft.owners[partition] = draft.to_start[partition]

    patch.setattr(state_machine, "_place_orphans", place)


def report_closed_before_the_commit(patch: MonkeyPatch) -> None:
    patch.setattr(ownership.Partition, "outstanding", property(lambda partition: False))


def report_closed_while_a_batch_is_under_way(patch: MonkeyPatch) -> None:
    patch.setattr(ownership.Partition, "may_be_read", property(lambda partition: False))


def take_up_again_before_it_is_closed(patch: MonkeyPatch) -> None:
    """A query that failed starts a partition again while its last commit is outstanding."""
    patch.setattr(ownership.Partition, "offerable", property(lambda p: p.claimed and not p.closing))


def begin_before_it_is_claimed(patch: MonkeyPatch) -> None:
    def offerable(partition: ownership.Partition) -> bool:
        return not partition.closing and (partition.planned is not None or not partition.outstanding)

    patch.setattr(ownership.Partition, "offerable", property(offerable))


def forget_to_fence(patch: MonkeyPatch) -> None:
    """Each process has transactional ids of its own, so that nobody is fenced off."""
    numbers = count()
    patch.setattr(fencing, "transactional_id", lambda *_: f"id-{next(numbers)}")


def replace_stuck_producers_unasked(patch: MonkeyPatch) -> None:
    patch.setattr(Blocks, "owns_still", lambda blocks, tp, claim_epoch, since: True)


def abort_what_kafka_has_forgotten(patch: MonkeyPatch) -> None:
    """A producer that Kafka has forgotten is aborted, by which librdkafka initialises it again."""
    patch.setattr(fencing, "FORGOTTEN", frozenset())


def refuse_what_kafka_has_forgotten(patch: MonkeyPatch) -> None:
    """A producer that Kafka has forgotten counts as fenced by another owner."""
    patch.setattr(fencing, "LOST", fencing.LOST | fencing.FORGOTTEN)
    patch.setattr(fencing, "FORGOTTEN", frozenset())


def try_again_what_kafka_has_forgotten(patch: MonkeyPatch) -> None:
    """Its transaction counts as failed, and the same producer begins another one."""

    def fail(self: Any, reason: Any, timeout: float) -> None:
        if reason.code() in fencing.FORGOTTEN:
            self.phase = fencing._Phase.BEGIN
        else:
            original(self, reason, timeout)

    original = fencing._Fence._fail
    patch.setattr(fencing._Fence, "_fail", fail)


def replace_forgotten_producers_unasked(patch: MonkeyPatch) -> None:
    replace_stuck_producers_unasked(patch)


def close_without_a_last_look(patch: MonkeyPatch) -> None:
    patch.setattr(ownership.Partition, "to_look_at", property(lambda partition: False))


def take_a_deleted_offset_for_a_deleted_topic(patch: MonkeyPatch) -> None:
    patch.setattr(committer.PlaceWorker, "_of_the_same_topics", lambda worker, topic_ids: [])


def begin_again_without_the_offset_that_was_deleted(patch: MonkeyPatch) -> None:
    original = Ownership.offer
    patch.setattr(Ownership, "offer", lambda own: replace(original(own), in_group=frozenset()))


def repeat_a_claim_by_what_was_known_before_its_end(patch: MonkeyPatch) -> None:
    def end_call(self: Any) -> None:
        self.call, self.ended_at = None, self.called_at

    patch.setattr(fencing._Fence, "end_call", end_call)


def read_on_whatever_becomes_of_commits(patch: MonkeyPatch) -> None:
    patch.setattr(ownership.partition, "LONGEST_UNCOMMITTED", float("inf"))


def commit_by_a_replacement_unasked(patch: MonkeyPatch) -> None:
    """What a producer that replaces a stuck one commits is not below what the group seems to have."""
    original = fencing._Fence.commit

    def commit(self: Any, item: Any, group: Any, timeout: float, owned: object, *further: Any) -> Any:
        return original(self, item, group, timeout, lambda tp, since: True, *further)

    patch.setattr(fencing._Fence, "commit", commit)


def commit_what_the_group_is_ahead_of(patch: MonkeyPatch) -> None:
    def commit(
        self: GuardedCommits, offsets: Mapping[Any, int], metadata: Mapping[Any, str]
    ) -> CommitOutcome:
        self._group.commit(offsets, metadata)
        return CommitOutcome(done=dict(offsets))

    patch.setattr(GuardedCommits, "commit", commit)


def take_back_at_once_what_was_refused(patch: MonkeyPatch) -> None:
    """A refusal is taken for a passing trouble."""
    original = Blocks.refused

    def refused(self: Blocks, tp: Any, claim_epoch: int, why: str) -> None:
        original(self, tp, claim_epoch, why)
        with self._shared.change() as own:
            own.allow(tp)

    patch.setattr(Blocks, "refused", refused)


def take_a_commit_that_is_not_allowed_for_made(patch: MonkeyPatch) -> None:
    original = fencing.FencedCommits.commit

    def commit(self: Any, offsets: Mapping[Any, int], *further: Any) -> CommitOutcome:
        outcome: CommitOutcome = original(self, offsets, *further)
        for key in [key for key, why in outcome.failed.items() if why == "not allowed"]:
            outcome.done[key] = offsets[key]
            del outcome.failed[key]
        return outcome

    patch.setattr(fencing.FencedCommits, "commit", commit)


def ignore_pins(patch: MonkeyPatch) -> None:
    patch.setattr(Overrides, "pinned", lambda decisions: {})


def forget_exclusions(patch: MonkeyPatch) -> None:
    patch.setattr(Overrides, "excluded", lambda decisions: {})


def touch_what_does_not_move(patch: MonkeyPatch) -> None:
    """Every new assignment closes everything first, as Kafka's eager protocol does."""
    original = Ownership.read

    def read(self: Ownership, name: str, assignment: Any, zxid: int, synced: bool = False) -> bool:
        if name in self.topics and zxid > self.topics[name].zxid:
            for partition in self._of({name}).values():
                partition.closing = True
        return original(self, name, assignment, zxid, synced)

    patch.setattr(Ownership, "read", read)


def take_up_by_what_was_read_before(patch: MonkeyPatch) -> None:
    patch.setattr(Blocks, "unblock_once_read", Blocks.unblock)


def believe_the_agent_before_the_servers(patch: MonkeyPatch) -> None:
    patch.setattr(ConsulCatalog, "knows", lambda catalog, consumer, incarnation: True)


def rank_by_registration(patch: MonkeyPatch) -> None:
    """Of several processes with one id the one whose registration came last is the consumer."""

    def newest(registrations: Sequence[Any]) -> Any:
        last, *older = sorted(registrations, key=lambda r: (r.passing, r.modified), reverse=True)
        return replace(last, older=tuple(older))

    patch.setattr(consul_members, "_newest", newest)


def take_up_before_it_is_live(patch: MonkeyPatch) -> None:
    original = Blocks.block

    def block(self: Blocks, reason: str) -> None:
        if reason != JOINING:
            original(self, reason)

    patch.setattr(Blocks, "block", block)


def do_not_wait_for_the_predecessor(patch: MonkeyPatch) -> None:
    patch.setattr(Registrar, "_wait_for", lambda registrar, others: None)


def report_closed_for_the_predecessor(patch: MonkeyPatch) -> None:
    patch.setattr(agent, "TAKING_OVER", "")


def lose_patience_with_the_predecessor(patch: MonkeyPatch) -> None:
    original = predecessor.Waiting.look

    def look(self: predecessor.Waiting, ask: predecessor.Ask, now: float) -> list[predecessor.Predecessor]:
        return [] if now - self.began > 5.0 else original(self, ask, now)

    patch.setattr(predecessor.Waiting, "look", look)


def forget_the_predecessor_of_the_predecessor(patch: MonkeyPatch) -> None:
    original = predecessor.predecessors
    patch.setattr(predecessor, "predecessors", lambda registration, own: original(registration, own)[-1:])


def believe_a_predecessor_that_holds_nothing_now(patch: MonkeyPatch) -> None:
    original = predecessor.Waiting.look

    def look(self: predecessor.Waiting, ask: predecessor.Ask, now: float) -> list[predecessor.Predecessor]:
        def asked(older: predecessor.Predecessor) -> StatusResult:
            answer = ask(older)
            return replace(answer, leaving=True) if isinstance(answer, ConsumerStatus) else answer

        return original(self, asked, now)

    patch.setattr(predecessor.Waiting, "look", look)


def seem_gone_while_taking_over(patch: MonkeyPatch) -> None:
    original = ConsulCatalog.register

    def register(self: ConsulCatalog, *arguments: Any, passing: bool = False) -> None:
        original(self, *arguments)

    patch.setattr(ConsulCatalog, "register", register)


def go_on_though_isolated(patch: MonkeyPatch) -> None:
    patch.setattr(Registrar, "_isolate", lambda registrar, isolated: None)


def go_on_though_replaced(patch: MonkeyPatch) -> None:
    patch.setattr(Registrar, "_replaced", lambda registrar, newer: None)


def balance_in_the_middle_of_a_rebalance(patch: MonkeyPatch) -> None:
    patch.setattr(Inputs, "settled", True)


def take_only_to_give_back(patch: MonkeyPatch) -> None:
    """A rebalance stops what does not move, too."""
    original = state_machine._rebalance

    def rebalance(given: Inputs, draft: Draft) -> None:
        original(given, draft)
        for partition in sorted(given.partitions & draft.owners.keys()) if draft.moves else ():
            owner = draft.owners[partition]
            draft.take_away(partition)
            draft.assign(partition, owner)

    patch.setattr(state_machine, "_rebalance", rebalance)


def forget_to_close_what_vanished(patch: MonkeyPatch) -> None:
    def forget(given: Inputs, draft: Draft) -> None:
        for partition in draft.owners.keys() - given.snapshot.partitions:
            del draft.owners[partition]
        for partition in draft.to_start.keys() - given.snapshot.partitions:
            del draft.to_start[partition]

    patch.setattr(state_machine, "_take_away_vanished", forget)


def delete_partitions_that_others_found(patch: MonkeyPatch) -> None:
    original = TopicStore.set_partitions
    patch.setattr(
        TopicStore,
        "set_partitions",
        lambda store, topic, partitions, known: original(store, topic, partitions, None),
    )


def rely_on_watches(patch: MonkeyPatch) -> None:
    original = AssignmentWatch.look
    patch.setattr(AssignmentWatch, "look", lambda watch, client, full: original(watch, client, False))


def forget_an_absent_new_owner(patch: MonkeyPatch) -> None:
    """No consumer is planned in the place of a new owner that left before it started."""
    patch.setattr(state_machine, "_place_orphans", _place_only_what_no_consumer_has)


def _place_only_what_no_consumer_has(given: Inputs, draft: Draft) -> None:
    for partition in given.snapshot.partitions - draft.to_start.keys() - draft.owners.keys():
        if (target := given.targets.get(partition)) in given.live:
            draft.assign(partition, target)


def take_at_once_from_an_owner_that_fails_its_check(patch: MonkeyPatch) -> None:
    """What has not answered on its own agent's check counts as gone, as if it were not registered."""
    patch.setattr(Patience, "hold", lambda patience, consumer: patience.policy.rebalance_delay)
    patch.setattr(Patience, "release", lambda patience, consumer: patience.policy.rebalance_delay)


def do_not_wait_for_an_isolated_owner(patch: MonkeyPatch) -> None:
    original = Patience.release

    def release(self: Patience, consumer: str) -> float:
        return 0.0 if consumer in self.membership.isolated else original(self, consumer)

    patch.setattr(Patience, "release", release)


def plan_without_asking_when_the_state_is_lost(patch: MonkeyPatch) -> None:
    patch.setattr(state_machine, "_basis", _nodes_whatever_is_reported)


def _nodes_whatever_is_reported(given: Inputs) -> Draft:
    unknown = given.state is None or given.ahead is not None
    return replace(given.nodes.copy(), from_reports=unknown)


def ignore_that_zookeeper_went_back(patch: MonkeyPatch) -> None:
    """Consumers obey nothing that has a lower transaction number than what they know."""
    original = Ownership.read

    def read(self: Ownership, name: str, assignment: Any, zxid: int, synced: bool = False) -> bool:
        known = self.topics.get(name, ownership.Topic()).zxid
        return zxid >= known and original(self, name, assignment, zxid, synced)

    patch.setattr(Ownership, "read", read)


def obey_what_is_written_over_a_backup(patch: MonkeyPatch) -> None:
    """Consumers obey what has a higher transaction number, whatever its epoch."""
    original = Ownership.read

    def read(self: Ownership, name: str, assignment: Any, zxid: int, synced: bool = False) -> bool:
        topic = self.topics.get(name)
        if topic is not None and zxid > topic.zxid:
            self.topics[name] = replace(topic, least=self._least.get(name, 0))
        return original(self, name, assignment, zxid, synced)

    patch.setattr(Ownership, "read", read)


def take_up_what_a_backup_says(patch: MonkeyPatch) -> None:
    """A consumer that has just started obeys ZooKeeper, however far it had got."""
    patch.setattr(Ownership, "expect", lambda ownership, epochs: None)


def plan_over_a_backup_unasked(patch: MonkeyPatch) -> None:
    original = coordinating.ask
    patch.setattr(coordinating, "ask", lambda *arguments: original(*arguments[:-1], {}))


def write_requests_of_the_flow_over_a_backup(patch: MonkeyPatch) -> None:
    patch.setattr(viewing.CoordinatorView, "ahead", frozenset[str]())


def create_a_topic_again_over_a_backup(patch: MonkeyPatch) -> None:
    patch.setattr(topic_fetch, "epoch_ahead", lambda snapshot, highest: None)


def believe_a_state_that_was_restored_alone(patch: MonkeyPatch) -> None:
    def epoch_ahead(snapshot: TopicSnapshot, highest: Mapping[str, int]) -> int | None:
        epoch = 0 if snapshot.assignment is None else snapshot.assignment.epoch
        known = highest.get(snapshot.topic, 0)
        return known if known > epoch else None

    patch.setattr(patience, "epoch_ahead", epoch_ahead)
    patch.setattr(state_machine, "epoch_ahead", epoch_ahead)


def wait_for_all_after_a_note_without_its_write(patch: MonkeyPatch) -> None:
    original = Patience.unanswered

    def unanswered(self: Patience, snapshot: TopicSnapshot) -> frozenset[str]:
        notes = {topic: epochs.Noted(note.epoch) for topic, note in self.replies.epochs.items()}
        return original(replace(self, replies=replace(self.replies, epochs=notes)), snapshot)

    patch.setattr(Patience, "unanswered", unanswered)


def ask_nobody_after_a_note(patch: MonkeyPatch) -> None:
    """A note is taken for one without its write, whatever it was built over."""
    original = Patience.unanswered

    def unanswered(self: Patience, snapshot: TopicSnapshot) -> frozenset[str]:
        return frozenset() if snapshot.state is not None else original(self, snapshot)

    patch.setattr(Patience, "unanswered", unanswered)


def stay_stable_while_an_owner_runs_nothing(patch: MonkeyPatch) -> None:
    patch.setattr(state_machine, "_start_what_does_not_run", lambda given, draft: False)


def forget_to_note_epochs(patch: MonkeyPatch) -> None:
    patch.setattr(OverrideStore, "note_epochs", lambda keys, epochs: None)


def give_to_a_consumer_that_leaves(patch: MonkeyPatch) -> None:
    patch.setattr(Inputs, "leaves_to_other", lambda given, consumer, partition: False)


def give_to_a_consumer_that_leaves_by_a_late_write(patch: MonkeyPatch) -> None:
    """The same, in a write that happens after its sender has given up."""
    give_to_a_consumer_that_leaves(patch)


def stay_silent_on_another_group(patch: MonkeyPatch) -> None:
    patch.setattr(TopicFetch, "_elsewhere", lambda fetch, known: "")


def freeze_on_a_planning_error(patch: MonkeyPatch) -> None:
    patch.setattr(viewing.CoordinatorView, "held", property(lambda view: view.planning_error))


def trust_the_clock_of_any_worker(patch: MonkeyPatch) -> None:
    def away(given: Inputs) -> dict[str, float]:
        known = given.state.missing if given.state else {}
        nodes, isolated = given.nodes, given.patience.membership.isolated
        named = {*nodes.owners.values(), *nodes.to_start.values(), *nodes.to_close.values()}
        return {c: known.get(c, given.now) for c in sorted(named - given.live.keys() - isolated)}

    patch.setattr(Inputs, "away", property(away))
    patch.setattr(Coordinator, "_now", lambda coordinator, view: coordinator.clock())
    patch.setattr(Coordinator, "_dated", lambda coordinator, view, transitions: transitions)


def announce_leaving_though_replaced(patch: MonkeyPatch) -> None:
    original = Registrar._heed_newer

    def heed(self: Registrar, own: Any) -> None:
        original(self, own)
        if self._ending.replaced and own.registration is not None:
            self._register(own.registration)

    patch.setattr(Registrar, "_heed_newer", heed)


def deregister_before_the_older_process_has_closed(patch: MonkeyPatch) -> None:
    patch.setattr(_WaitingRegistrar, "wait_for_predecessors", lambda registrar, timeout: True)


def deregister_before_the_query_has_ended(patch: MonkeyPatch) -> None:
    patch.setattr(ending.Job, "_hand_over", lambda job: job._leave())


def let_claims_land_late(patch: MonkeyPatch) -> None:
    """A partition is closed while its claim is on its way."""
    patch.setattr(Ownership, "begin_claim", lambda ownership, tp, claim_epoch: True)


def let_replacements_land_late(patch: MonkeyPatch) -> None:
    """A partition is closed while the initialisation of a producer that replaces a stuck one is on its way."""
    original = Ownership.begin_claim

    def begin_claim(self: Ownership, tp: Any, claim_epoch: int) -> bool:
        held = self.held.get(tp)
        return (held is not None and held.claimed) or original(self, tp, claim_epoch)

    patch.setattr(Ownership, "begin_claim", begin_claim)


def read_on_in_another_topic_of_the_name(patch: MonkeyPatch) -> None:
    patch.setattr(ownership.Topic, "recreated", property(lambda topic: False))
    patch.setattr(positions, "of_another_topic", lambda metadata, topic_id: False)


def commit_by_the_name_of_the_topic(patch: MonkeyPatch) -> None:
    patch.setattr(committer, "format_stamp", lambda cluster, topic_id, note=None: "")


def keep_what_can_be_committed_no_more(patch: MonkeyPatch) -> None:
    patch.setattr(Outside, "identified", lambda outside, place, ids, gone: None)


def give_only_when_all_is_closed(patch: MonkeyPatch) -> None:
    """One consumer that does not close holds up what others have closed."""
    original = state_machine._give_what_is_closed

    def give(given: Inputs, draft: Draft) -> None:
        if draft.from_reports or all(
            given.reports_closed(draft.to_close[p], p) for p in given.nodes.to_close
        ):
            original(given, draft)

    patch.setattr(state_machine, "_give_what_is_closed", give)


def let_go_of_what_had_vanished_once(patch: MonkeyPatch) -> None:
    """A partition that is back in Kafka is taken from its owner all the same."""
    vanished: set[tuple[str, int]] = set()
    taken: dict[tuple[str, int], int] = {}

    def partitions(given: Inputs) -> frozenset[int]:
        owned, present, epoch = given.before.owners.keys(), given.snapshot.partitions, given.before.epoch
        vanished.update((given.topic, p) for p in owned - present)
        back = {p for p in owned & present if (given.topic, p) in vanished}
        return present - {p for p in back if taken.setdefault((given.topic, p), epoch) == epoch}

    once_a_step = cached_property(partitions)
    once_a_step.__set_name__(Inputs, "partitions")
    patch.setattr(Inputs, "partitions", once_a_step)


def balance_in_the_middle_by_a_late_write(patch: MonkeyPatch) -> None:
    """The same, in a write that happens after its sender has given up."""
    balance_in_the_middle_of_a_rebalance(patch)


def stand_by_for_what_it_holds(patch: MonkeyPatch) -> None:
    def standbys(given: Inputs, draft: Draft) -> dict[int, tuple[str, ...]]:
        return {p: (owner,) for p, owner in draft.owners.items()}

    patch.setattr(state_machine, "_standbys", standbys)


def go_on_behind_a_gap_unasked(patch: MonkeyPatch) -> None:
    patch.setattr(ParkedPartitions, "accepts", lambda parked, tp, jump: True)


def forget_to_ask_about_a_gap(patch: MonkeyPatch) -> None:
    patch.setattr(ParkedPartitions, "park_losses", lambda parked, losses, known: None)


def look_for_what_stands_still_in_stable_topics_alone(patch: MonkeyPatch) -> None:
    original = diagnosis._standing

    def standing(given: Situation) -> Iterator[Waiting]:
        for each in original(given):
            if each.topic in given.snapshots and given.snapshots[each.topic].name is State.STABLE:
                yield each

    patch.setattr(diagnosis, "_standing", standing)


def name_only_owners_that_answer(patch: MonkeyPatch) -> None:
    original = diagnosis._standing

    def standing(given: Situation) -> Iterator[Waiting]:
        for each in original(given):
            if not each.consumer or each.consumer in given.replies.statuses:
                yield each

    patch.setattr(diagnosis, "_standing", standing)


def ask_about_consumers_alone(patch: MonkeyPatch) -> None:
    original = stuck._stuck_message

    def message(given: Situation, topic: str, waiting: list[Waiting]) -> str | None:
        return original(given, topic, [each for each in waiting if each.consumer])

    patch.setattr(stuck, "_stuck_message", message)


def take_what_was_never_committed_for_read(patch: MonkeyPatch) -> None:
    original = TopicOffsets.lag

    def lag(self: TopicOffsets, tp: TopicPartition) -> int | None:
        return 0 if self.committed.get(tp) is None else original(self, tp)

    patch.setattr(TopicOffsets, "lag", lag)


def take_every_look_for_the_first(patch: MonkeyPatch) -> None:
    original = progress.look
    patch.setattr(progress, "look", lambda before, *others: original(Look(), *others))


MUTATIONS: dict[str, Mutation] = (
    {
        mutation.__name__: mutation
        for mutation in (
            hand_over_before_the_close_is_confirmed,
            ignore_the_epoch,
            forget_the_version_check,
            write_what_an_earlier_session_read,
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
            replace_stuck_producers_unasked,
            abort_what_kafka_has_forgotten,
            refuse_what_kafka_has_forgotten,
            try_again_what_kafka_has_forgotten,
            replace_forgotten_producers_unasked,
            close_without_a_last_look,
            take_a_deleted_offset_for_a_deleted_topic,
            begin_again_without_the_offset_that_was_deleted,
            repeat_a_claim_by_what_was_known_before_its_end,
            read_on_whatever_becomes_of_commits,
            commit_by_a_replacement_unasked,
            commit_what_the_group_is_ahead_of,
            take_back_at_once_what_was_refused,
            take_a_commit_that_is_not_allowed_for_made,
            ignore_pins,
            forget_exclusions,
            touch_what_does_not_move,
            take_up_by_what_was_read_before,
            believe_the_agent_before_the_servers,
            rank_by_registration,
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
            take_only_to_give_back,
            forget_to_close_what_vanished,
            delete_partitions_that_others_found,
            rely_on_watches,
            forget_an_absent_new_owner,
            take_at_once_from_an_owner_that_fails_its_check,
            do_not_wait_for_an_isolated_owner,
            plan_without_asking_when_the_state_is_lost,
            ignore_that_zookeeper_went_back,
            obey_what_is_written_over_a_backup,
            take_up_what_a_backup_says,
            plan_over_a_backup_unasked,
            forget_to_note_epochs,
            write_requests_of_the_flow_over_a_backup,
            create_a_topic_again_over_a_backup,
            believe_a_state_that_was_restored_alone,
            wait_for_all_after_a_note_without_its_write,
            ask_nobody_after_a_note,
            stay_stable_while_an_owner_runs_nothing,
            give_to_a_consumer_that_leaves,
            give_to_a_consumer_that_leaves_by_a_late_write,
            stay_silent_on_another_group,
            freeze_on_a_planning_error,
            trust_the_clock_of_any_worker,
            announce_leaving_though_replaced,
            deregister_before_the_older_process_has_closed,
            deregister_before_the_query_has_ended,
            let_claims_land_late,
            let_replacements_land_late,
            read_on_in_another_topic_of_the_name,
            commit_by_the_name_of_the_topic,
            keep_what_can_be_committed_no_more,
            give_only_when_all_is_closed,
            let_go_of_what_had_vanished_once,
            balance_in_the_middle_by_a_late_write,
            stand_by_for_what_it_holds,
            go_on_behind_a_gap_unasked,
            forget_to_ask_about_a_gap,
            look_for_what_stands_still_in_stable_topics_alone,
            name_only_owners_that_answer,
            ask_about_consumers_alone,
            take_what_was_never_committed_for_read,
            take_every_look_for_the_first,
        )
    }
    | flow_mutations.MUTATIONS
    | state_mutations.MUTATIONS
)
