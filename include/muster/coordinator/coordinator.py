"""One run of the coordinator of one cluster: reads, lets the pure core decide, writes.

The four parts are the four tasks of the coordinator DAG. Nothing is handed from one to the next but ZooKeeper
and Consul themselves, so a run can be cut off anywhere and the next one carries on.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

from muster.coordinator.asking import BRIEFLY, SILENCE, Answers, Questions, StatusPoller, ask, merged
from muster.coordinator.gate_reader import GateReader
from muster.coordinator.observing import tell
from muster.coordinator.planning_context import ContextReader
from muster.coordinator.recording import record_losses, unrecorded
from muster.coordinator.reports import AdvanceReport, Change, PartitionsReport, PlanReport
from muster.coordinator.seek_requests import SeekRequests
from muster.coordinator.seeker import Seeker
from muster.coordinator.shadow import ShadowReport, shadow_report
from muster.coordinator.standstill import Found, OffsetsSource, Progress
from muster.coordinator.topic_fetch import TopicFetch
from muster.coordinator.view import CoordinatorView
from muster.core.assignors import Assignor, AssignorError
from muster.core.assignors.sticky import Sticky
from muster.core.deployment import Deployment
from muster.core.diagnosis import Situation, Waiting
from muster.core.epochs import Noted, to_note
from muster.core.history import Step, removal_of, step_of
from muster.core.model import Transition
from muster.core.overrides import AssignorChoice, Overrides, TopicOverride
from muster.core.patience import Policy
from muster.core.planner import Plan, intended_owners, plan, propose
from muster.core.subscription import Subscription
from muster.core.wire import readable
from muster.edges import consul, kafka, zookeeper
from muster.settings.assignor_choice import load_in_force
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import (
    KafkaSettings,
)

log = logging.getLogger(__name__)

FIRST_POLL = 0.05
"""Seconds until statuses are asked again after a change; longer by `POLL_GROWTH` each time, up to `LAST_POLL`, while
nothing changes."""
POLL_GROWTH = 1.25
"""What has come about is noticed later than it could be by a quarter, at most, of the time that it took."""
LAST_POLL = 1.0
FALLBACK = Sticky()
"""Replaces the dead while the cluster's own assignor fails."""
LONG_POLL_OVER = "end of the long poll"
"""What ends the wait of a run with nothing to do."""
LOOK_AT_OWNERS = 120.0
"""Seconds within which every owner is asked how it stands, on average, while nothing moves."""
OWNERS_AT_ONCE = 50
"""So many owners are asked in any case at each look."""
WARM_UP_LOOK = 4.0
"""Seconds until it is looked again whether a store is warm, so that a partition moves within 10 s."""
SEEK_LOOK = 0.1
"""It is looked whether a seek was carried out after so much of the time since it was asked for."""


@dataclass(eq=False)
class Coordinator:
    """The parts of a run that need ZooKeeper; `ConsumersReport.of` is the other one.

    Raises `ZooKeeperError` or `ConsulError` when one is out of reach: then nothing more is written, and what is
    assigned stays assigned. Without an `assignor` it is that of the settings, or of an override. With a `deployment`,
    which is this one, `ConsulError` is raised too while another one coordinates the cluster.
    """

    cluster: ClusterSettings
    kafka_settings: KafkaSettings
    store: zookeeper.TopicStore
    catalog: consul.ConsulCatalog
    overrides: consul.OverrideStore
    lister: kafka.TopicLister
    poll: StatusPoller
    assignor: Assignor | None = None
    seeker: Seeker | None = None
    offsets: OffsetsSource | None = None
    deployment: Deployment | None = None
    clock: Callable[[], float] = time.time
    pause: Callable[[float], None] = time.sleep
    _chosen: tuple[AssignorChoice | None, Assignor] | None = field(init=False, default=None)
    _too_large: dict[str, str] = field(init=False, default_factory=dict)
    """The topics whose next step ZooKeeper would not take, with why; they stay as they are."""

    def __post_init__(self) -> None:
        self.policy = Policy(self.cluster.rebalance_delay, self.cluster.closing_timeout)
        self._seeks = SeekRequests(self.seeker, self.overrides)
        self.progress = Progress(self.cluster, self.store, self.offsets)
        self.contexts = ContextReader(self.store, self.poll, self.clock, self.cluster.status_timeout)
        self.gates = GateReader(self.cluster, self.poll, self.clock)

    def fetch_partitions(self) -> PartitionsReport:
        """Bring the partition children of the topics that are subscribed up to what Kafka says; see `TopicFetch`.

        Nothing is done while the cluster is paused. Raises `ConsulError` if it is unknown what is subscribed.
        """
        overrides = self._decisions()
        self._note_deployment(overrides)
        if overrides.paused is not None:
            return PartitionsReport(held=f"{overrides.paused}; resume the cluster to go on")
        fetch = TopicFetch(
            self.cluster,
            self.kafka_settings,
            self.store,
            self.lister,
            overrides.epochs,
            self.overrides.note_epochs,
        )
        return fetch.run(self.subscription(overrides))

    def _await_need(self, long_poll: float) -> tuple[CoordinatorView, str, float]:
        """Look at everything until there is something to act on, or `long_poll` seconds are over.

        Returns what was seen last, what ended the wait (`LONG_POLL_OVER` if its time is up), and how many seconds it
        took, without the last look.
        """
        began = self.clock()
        index = consul.WaitIndex()
        subscribed: tuple[TopicOverride, ...] | None = None
        while True:
            woken = threading.Event()
            self.store.watch_changes(woken)
            waited = self.clock() - began
            # The index is taken before the reading, so a change in between ends the wait at once.
            index = self.catalog.wait(index, 0)
            view = self._view()
            view = view if view.held else self._ask(view, silence=BRIEFLY)
            left = long_poll - (self.clock() - began)
            woke = self._why_act(view)
            if not woke and subscribed not in (None, view.overrides.subscriptions):
                woke = "topics were subscribed or unsubscribed"  # the next fetch_partitions takes them up
            subscribed = view.overrides.subscriptions
            woke = woke or (LONG_POLL_OVER if left <= 0 else "")
            if woke:
                return view, woke, waited
            expiry = self._next_change(view)
            if expiry is not None:
                left = max(min(left, expiry), 0.0)
            before, index = index, self._wait(index, left, woken)
            unchanged = (index.seen_health, index.seen_keys) == (before.seen_health, before.seen_keys)
            waited = self.clock() - began
            if unchanged and waited >= long_poll and expiry is None and view.trusted:
                # Looking again would show the same; and nothing is written on the strength of it.
                return view, LONG_POLL_OVER, waited

    def _wait(self, index: consul.WaitIndex, timeout: float, woken: threading.Event) -> consul.WaitIndex:
        """Wait for Consul in a thread of its own, so that a change in ZooKeeper (`woken`) ends the wait too.

        Raises whatever that thread raises.
        """
        result: list[consul.WaitIndex | Exception] = []

        def watch() -> None:
            try:
                result.append(self.catalog.wait(index, timeout))
            except Exception as error:  # raised below, where it is seen
                result.append(error)
            finally:
                woken.set()

        threading.Thread(target=watch, daemon=True, name="consul-wait").start()
        woken.wait()
        found = result[0] if result else index
        if isinstance(found, Exception):
            raise found
        return found

    def _why_act(self, view: CoordinatorView) -> str:
        if not view.held:
            for topic, step in view.under_way().items():
                return f"topic {topic}: {step}"
            if view.to_rebalance:
                return view.to_rebalance
        if view.overrides.paused is None:
            for _, why in view.seeks_ended:
                return why
            for topic, partition in view.seeks_without_owner:
                return f"topic {topic}, partition {partition}: a seek, and no consumer has it"
        for transition in self._transitions(view):
            return f"topic {transition.topic}: {transition.reason or transition.state.state}"
        return ""

    def next_change(self) -> float | None:
        """Return in how many seconds the patience with an absent consumer ends, None if none is; writes nothing."""
        return self._next_change(self._ask(self._view()))

    def _next_change(self, view: CoordinatorView) -> float | None:
        """Return in how many seconds patience ends, or a look at seeks or warm-ups is due; None for none of them."""
        found = self._next_of_people(view)
        warming = view.overrides.paused is None and view.warming
        return min(WARM_UP_LOOK, WARM_UP_LOOK if found is None else found) if warming else found

    def _next_of_people(self, view: CoordinatorView) -> float | None:
        if view.overrides.paused is None and any(map(view.seeks, view.snapshots)):
            age = self.clock() - max(each.at for each in view.overrides.seeks.values())
            return min(max(LAST_POLL, age * SEEK_LOOK), self.cluster.long_poll_timeout)
        if not (view.trusted and view.absences):
            return None
        now = self._now(view)
        at = view.patience.next_change(view.snapshots.values(), now)
        # One that is back and does not run yet is asked again.
        return LAST_POLL if at is None else at - now

    def compute_assignment(self, long_poll: float = 0.0) -> PlanReport:
        """Say what `advance` would begin with, and write nothing. With nothing to do, wait up to `long_poll` seconds
        for something."""
        view, woke, waited = self._await_need(long_poll)
        idle = woke == LONG_POLL_OVER
        owners = _some(view.live_owners(), self.cluster.long_poll_timeout) if idle else {}
        view, found = self._look(view, owners)
        transitions = self._transitions(view)
        report = PlanReport(
            held=view.held,
            errors=self._errors(view),
            warnings=view.warnings + found.named,
            stuck=found.stuck,
            states=view.states(),
            behind=self.progress.behind,
            woke=woke,
            waited=waited,
        )
        steps = {
            t.topic: f"{t.before.name} -> {t.state.state}: {t.reason or 'partitions vanished'}"
            for t in transitions
        }
        seeks = view.overrides.paused is None and bool(view.seeks_ended or view.seeks_without_owner)
        if view.held:
            return replace(report, needed=bool(transitions or seeks or found.stuck), topics=steps)
        under_way = view.under_way()
        lost = bool(unrecorded(self.store, view.replies.statuses))
        return replace(
            report,
            needed=bool(transitions or under_way or view.to_rebalance or found.stuck or seeks or lost),
            topics=under_way | steps,
            moves=sum(len(t.moves) for t in transitions),
            reasons=sorted({move.reason for t in transitions for move in t.moves}),
            planning_error=view.planning_error,
            assignor=str(view.overrides.assignor or ""),
            asked=view.asked,
            # Last, when all that counts is computed: it may fail or hang without harm.
            shadow=self._shadow(view),
        )

    def advance(self, budget: float, on_change: Callable[[Change], None] = lambda _: None) -> AdvanceReport:
        """Carry every topic on until all are Stable or `budget` seconds are over; the next run resumes.

        With nothing under way and nothing to plan, the owners themselves are why this was called: all are asked.
        `on_change` is called with each transition right after it was written.
        """
        deadline = self.clock() + budget
        changes: list[Change] = []
        delay = FIRST_POLL
        answers = Answers()
        while True:
            began = self.clock()
            view = self._view()
            sought = self._seeks.carry_out(view)
            if view.held:
                if (
                    sought or self._write(self._transitions(view), changes, on_change)
                ) and self.clock() < deadline:
                    continue
                view, found = self._look(view)
                return AdvanceReport(
                    changes,
                    view.all_stable,
                    held=view.held,
                    waiting=found.named,
                    stuck=found.stuck,
                    errors=self._errors(view),
                    warnings=view.warnings,
                )
            view = self._ask(view, answers)
            transitions = self._transitions(view)
            if not (transitions or changes or view.under_way() or view.to_rebalance):
                view = self._ask(view, answers, view.live_owners())
                transitions = self._transitions(view)
            transitions = self._dated(view, transitions)
            transitions = self._noted(view, transitions)
            before = len(changes)
            carried_out = self._write(transitions, changes, on_change)
            removed: list[str] = []
            for topic, snapshot in view.removable().items():
                if self.store.remove_topic(topic, snapshot, view.leaving[topic]):
                    removed.append(topic)
                    step = removal_of(snapshot, view.leaving[topic])
                    self._note_change(self._change(step), changes, on_change)
            self._forget_epochs(view, removed)
            written = len(changes) > before
            if carried_out:
                self._tell(view, carried_out)
            at_rest = view.all_stable and not view.leaving and not written and not sought
            if at_rest or self.clock() >= deadline:
                record_losses(self.store, view.replies.statuses)
                view, found = self._look(view, kept=answers)
                request = view.overrides.rebalance
                if at_rest and request is not None and not view.warming:
                    self.overrides.end_rebalance(request)
                return AdvanceReport(
                    changes,
                    stable=at_rest,
                    waiting=[str(each) for of_topic in found.waiting.values() for each in of_topic],
                    stuck=found.stuck,
                    planning_error=view.planning_error,
                    errors=self._errors(view),
                    warnings=view.warnings,
                    asked=view.asked if at_rest else "",
                )
            if written:
                delay = FIRST_POLL
            else:
                answers.silent.clear()
                # At a size where a look takes long, not more often than every other moment.
                self.pause(max(delay, self.clock() - began))
                delay = min(delay * POLL_GROWTH, LAST_POLL)

    def _write(
        self, transitions: Sequence[Transition], changes: list[Change], on_change: Callable[[Change], None]
    ) -> list[Transition]:
        """Write transitions, add those that were written to `changes`, and return them."""
        written = list(compress(transitions, self.store.apply(transitions)))
        for transition in written:
            self._note_change(self._change(step_of(transition, self.clock())), changes, on_change)
        return written

    @staticmethod
    def _note_change(change: Change, changes: list[Change], on_change: Callable[[Change], None]) -> None:
        log.info("%s", change)
        changes.append(change)
        on_change(change)

    def stuck(self) -> list[Waiting]:
        """Return what holds up a topic for longer than the cluster's `stuck_after`, and a person is asked about."""
        view = self._view()
        _, found = self._look(view, view.live_owners())
        return [each for topic in found.topics for each in found.waiting.get(topic, []) if each.asked]

    def waits_for(self, consumer: str) -> bool:
        """Return whether some topic waits for `consumer`."""
        view = self._view()
        owned = view.live_owners()
        _, found = self._look(view, {consumer: owned[consumer]} if consumer in owned else {})
        waiting = [each for of_topic in found.waiting.values() for each in of_topic]
        return any(each.consumer == consumer and each.offset is None and each.asked for each in waiting)

    def stands_still(self, topic: str) -> bool:
        """Return whether a person is asked about `topic`; its owners say what of its state is missing."""
        view = self._view()
        owners = {consumer: {topic} for consumer, topics in view.live_owners().items() if topic in topics}
        return topic in self._look(view, owners)[1].topics

    def fails_with(self, topic: str, partition: int, offset: int) -> bool:
        """Return whether a live owner still fails with this record and nothing was decided about it; write nothing.

        True where that is unknown, because the owner does not answer.
        """
        view = self._view()
        if not view.trusted:
            return True
        snapshot = view.snapshots.get(topic)
        owners = (
            snapshot.assignment.owners if snapshot is not None and snapshot.assignment is not None else {}
        )
        if (owner := owners.get(partition)) is None:
            return False
        answer = self._ask(view, also={owner: {topic}}).replies.statuses.get(owner)
        if answer is None:
            return owner in view.membership.live
        record = answer.on(topic).failing.get(partition)
        return record is not None and record.offset == offset and not record.answer

    def subscription(self, overrides: Overrides) -> Subscription:
        """Return the topics that the cluster reads: by the settings, and by overrides."""
        return self.cluster.topics.read_with(overrides.subscriptions, overrides.topics_in_doubt)

    def _view(self) -> CoordinatorView:
        snapshots, unreadable = readable(self.store.snapshots())
        overrides = self._decisions()
        members = self.catalog.members()
        sought, seek_errors = self._seeks.sought(overrides, snapshots)
        view = CoordinatorView(
            snapshots,
            unreadable,
            members,
            overrides,
            sought=sought,
            leaving=self.subscription(overrides).leaving(snapshots),
            unknown=(*overrides.errors, *seek_errors),
            policy=self.policy if overrides.rebalance is None else replace(self.policy, rebalance_delay=0.0),
        )
        if view.held:
            return view
        live, staying = view.membership.live, view.staying
        try:
            assignor = self._assignor(overrides)
            context, unknown = self.contexts.read(staying, live, assignor, overrides)
            proposal = propose(staying.values(), live, assignor, context, self.cluster.state.has)
            planned = proposal.plan(self.gates.read(proposal, live, overrides))
        except AssignorError as error:
            return self._without_plan(view, str(error))
        return replace(view, unknown=(*unknown, *seek_errors), plan=planned)

    def _decisions(self) -> Overrides:
        """Return all overrides. Raises `ConsulError` if another deployment coordinates the cluster."""
        found = self.overrides.read()
        if self.deployment is not None and (clash := self.deployment.clash(found.deployment, self.clock())):
            raise consul.ConsulError(f"cluster {self.cluster.name}: {clash}")
        return found

    def _note_deployment(self, found: Overrides) -> None:
        now = self.clock()
        if self.deployment is not None and self.deployment.due(found.deployment, now):
            # If another coordinator was faster, the next run sees which.
            self.overrides.note_deployment(replace(self.deployment, at=now), found.deployment)

    def _without_plan(self, view: CoordinatorView, error: str) -> CoordinatorView:
        """Return the view while the assignor fails: what needs no plan goes on. The sticky assignor replaces
        consumers that are gone for `planning_error_delay`, and leaving ones as next owners."""
        live, staying = view.membership.live, view.staying
        delay = max(view.policy.rebalance_delay, self.cluster.planning_error_delay)
        replacements: dict[str, dict[int, str]] = {}
        try:
            context, _ = self.contexts.read(staying, live, FALLBACK, view.overrides)
            planned = plan(staying.values(), live, FALLBACK, context).owners
        except AssignorError as fallback:
            error = f"{error}; nor can the sticky assignor plan: {fallback}"
        else:
            for topic, snapshot in staying.items():
                owned = snapshot.assignment.owners if snapshot.assignment is not None else {}
                lost = {
                    partition
                    for partition, owner in intended_owners(snapshot).items()
                    if owner not in live or (live[owner].leaving and partition not in owned)
                }
                replacements[topic] = {p: target for p, target in planned[topic].items() if p in lost}
        there = {t: s.assignment for t, s in staying.items() if s.assignment is not None}
        standbys = {t: assignment.standbys for t, assignment in there.items()}
        warm_ups = {t: assignment.warm_ups for t, assignment in there.items()}
        return replace(
            view,
            plan=Plan(replacements, standbys, warm_ups, replacements),
            policy=replace(view.policy, rebalance_delay=delay),
            planning_error=(
                f"{error}; what is under way is finished, and consumers that are gone for {delay:g} s are replaced "
                "by the sticky assignor. Correct the assignor, or choose another one with 'muster assignor'"
            ),
        )

    def _assignor(self, overrides: Overrides) -> Assignor:
        """Return the assignor that a person chose, else that of the settings. Raises `AssignorError` without it."""
        choice = overrides.assignor
        if choice is None and not overrides.assignor_error and self.assignor is not None:
            return self.assignor
        if self._chosen is None or self._chosen[0] != choice:
            self._chosen = (choice, load_in_force(self.cluster, overrides))
        return self._chosen[1]

    def _tell(self, view: CoordinatorView, written: Collection[Transition]) -> None:
        """Tell the assignor how its plans ended; not the one that stands in for it while it fails."""
        if not view.planning_error:
            tell(self._assignor(view.overrides), written, view.membership.live)

    def _shadow(self, view: CoordinatorView) -> ShadowReport | None:
        if self.cluster.shadow_assignor is None:
            return None
        live, staying = view.membership.live, view.staying
        return shadow_report(
            self.cluster.shadow_assignor,
            staying.values(),
            live,
            view.plan.wanted,
            lambda candidate: self.contexts.read(staying, live, candidate, view.overrides)[0],
        )

    def _ask(
        self,
        view: CoordinatorView,
        known: Answers | None = None,
        also: Questions | None = None,
        silence: float = SILENCE,
    ) -> CoordinatorView:
        """Ask all that the next step depends on, and `also` these; return the view with the replies.

        What is `known` already is not asked again. Those that are not live have `silence` seconds.
        """
        kept = Answers() if known is None else known
        timeout, noted = self.cluster.status_timeout, view.overrides.epochs
        replies = ask(self.poll, view.snapshots, view.membership, timeout, kept, also or {}, silence, noted)
        return replace(view, replies=replies)

    def _now(self, view: CoordinatorView) -> float:
        """Tell the time by which patience is counted: ZooKeeper's, if an absence began by it."""
        return self.store.now() if view.absences else self.clock()

    def _transitions(self, view: CoordinatorView) -> list[Transition]:
        return self._fitting(view.transitions(self._now(view)))

    def _errors(self, view: CoordinatorView) -> dict[str, str]:
        """Say what keeps topics as they are, and which consumers are left out, by topic and consumer."""
        return {**view.members.strangers, **view.unreadable_topics, **self._too_large}

    def _fitting(self, transitions: list[Transition]) -> list[Transition]:
        """Return the steps that ZooKeeper takes; the topics of the others are named, and the run goes on."""
        self._too_large = self.store.too_large(transitions)
        return [t for t in transitions if t.topic not in self._too_large]

    def _dated(self, view: CoordinatorView, transitions: list[Transition]) -> list[Transition]:
        """Date steps that are to be written by ZooKeeper's clock: workers whose clocks differ compare with them."""
        dated = transitions and not view.absences
        return self._fitting(view.transitions(self.store.now())) if dated else transitions

    def _look(
        self, view: CoordinatorView, also: Questions | None = None, kept: Answers | None = None
    ) -> tuple[CoordinatorView, Found]:
        """Look for what stands still; return the view with the answers of those that hold it up, and of `also`.

        By ZooKeeper's clock, which is the same for all that coordinate.
        """
        now = self.store.now()
        looked = self.progress.look(view.staying, now)
        standing = looked.standing(now, self.cluster.stuck_after)
        questions = merged(view.concerned(standing), also or {})
        if questions and not view.held:
            view = self._ask(view, kept, questions)
        situation = Situation(
            view.snapshots,
            view.membership,
            view.replies,
            now,
            self.cluster.stuck_after,
            view.overrides,
            looked,
            view.members.doubt,
        )
        return view, Found.of(situation)

    def _noted(self, view: CoordinatorView, transitions: list[Transition]) -> list[Transition]:
        """Note in Consul which epochs are about to be written, before they are: what ZooKeeper holds below them later
        is of a backup. Raises `ConsulError`; then nothing may be written. Where Consul does not take so many topics,
        those go on that it has noted before; return the steps that may be written."""
        noted = view.overrides.epochs
        new = {
            t.topic: to_note(t)
            for t in transitions
            if t.topic not in noted or t.assignment.epoch > noted[t.topic].epoch
        }
        if new:
            written = {
                t: Noted(s.assignment.epoch) for t, s in view.snapshots.items() if s.assignment is not None
            }
            try:
                self.overrides.note_epochs(written | new)
            except consul.ConsulTooLargeError as error:
                self._too_large |= {topic: f"topic {topic}: {error}" for topic in new.keys() - noted.keys()}
                self.overrides.note_epochs({t: note for t, note in new.items() if t in noted})
                return [t for t in transitions if t.topic in noted]
        return transitions

    def _forget_epochs(self, view: CoordinatorView, removed: Collection[str]) -> None:
        """Have the notes of topics go with their nodes: of those that were `removed`, and of those that are not read
        and that have no nodes, because a run ended before it came to this."""
        reads = self.subscription(view.overrides)
        there = view.snapshots.keys() | view.unreadable_topics.keys()
        gone = {
            topic: note.epoch
            for topic, note in view.overrides.epochs.items()
            if topic in removed or (topic not in there and reads.lets_go(topic))
        }
        if gone:
            self.overrides.forget_epochs(gone)

    def _change(self, step: Step) -> Change:
        return Change(
            step.topic,
            step.before,
            step.after,
            step.reason,
            step.moves,
            step.epoch,
            self.clock(),
            step.lasted,
        )


def _some(owned: dict[str, set[str]], long_poll: float) -> dict[str, set[str]]:
    """Return the owners to ask at a look, when one comes every `long_poll` seconds: of many a random part."""
    many = max(OWNERS_AT_ONCE, round(long_poll / LOOK_AT_OWNERS * len(owned)))
    return {c: owned[c] for c in random.sample(sorted(owned), min(many, len(owned)))}
