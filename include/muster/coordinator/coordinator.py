"""One run of the coordinator of one cluster: reads, lets the pure core decide, writes.

The four parts are the four tasks of the coordinator DAG. Nothing is handed from one to the next but ZooKeeper
and Consul themselves, so a run can be cut off anywhere and the next one carries on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from pydantic import SecretStr

from muster.coordinator import cycle_search
from muster.coordinator.answers import Answers
from muster.coordinator.circumstances import CircumstancesReader, Known
from muster.coordinator.ports import Discovery, Lister, StatusPoller, Store
from muster.coordinator.reports import (
    AdvanceReport,
    Change,
    ConsumersReport,
    PartitionsReport,
    PlanReport,
)
from muster.coordinator.shadow import ShadowReport, shadow_report
from muster.coordinator.view import View
from muster.core.assignors import Assignor, AssignorError
from muster.core.coordination import AssignorChoice
from muster.core.decisions import Decisions
from muster.core.diagnosis import Waiting, stuck_message, waiting_for
from muster.core.model import Consumer, ConsumerStatus, Membership, State, TopicSnapshot, Transition
from muster.core.planner import plan
from muster.core.readable import readable
from muster.core.state_machine import NO_REASONS, Policy, advance, next_expiry
from muster.core.subscription import Subscription, TopicDecision
from muster.core.wire import WireError, check_topic
from muster.edges import consul, kafka, status, zookeeper
from muster.settings.assignor_choice import load_in_force
from muster.settings.clusters import ClusterSettings
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings

log = logging.getLogger(__name__)

FIRST_POLL = 0.05
"""Seconds until statuses are asked again after a change; longer by `POLL_GROWTH` each time, up to `LAST_POLL`, while
nothing changes."""
POLL_GROWTH = 1.25
"""What has come about is noticed later than it could be by a quarter, at most, of the time that it took."""
LAST_POLL = 1.0


class Coordinator:
    """The four parts of a run. Raises `ZooKeeperError` or `ConsulError` when one is out of reach: then nothing
    more is written, and what is assigned stays assigned."""

    def __init__(
        self,
        cluster: ClusterSettings,
        kafka_settings: KafkaSettings,
        store: Store,
        discovery: Discovery,
        lister: Lister,
        poll: StatusPoller,
        assignor: Assignor,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.cluster = cluster
        self.kafka_settings = kafka_settings
        self.store = store
        self.discovery = discovery
        self.lister = lister
        self.poll = poll
        self.assignor = assignor
        self.clock = clock
        self.pause = pause
        self.policy = Policy(rebalance_delay=cluster.rebalance_delay)
        self._chosen: tuple[AssignorChoice | None, Assignor] | None = None
        self._reader = CircumstancesReader(store, discovery, poll, clock, cluster.status_timeout)

    def fetch_partitions(self) -> PartitionsReport:
        """Bring the partition children of the topics that are subscribed up to what Kafka says.

        Kafka out of reach, or silent on a topic that was there, leaves the last known partitions. Nothing is done
        while the cluster is paused. Raises `ConsulError` if it cannot be told what is subscribed.
        """
        decisions = self.discovery.decisions()
        if decisions.paused is not None:
            return PartitionsReport(held=f"{decisions.paused}; resume the cluster to go on")
        reads = self.subscription(decisions)
        # In this order: a partition that somebody else adds in between must not seem to have vanished from Kafka.
        known = self.store.snapshots()
        try:
            found = self.lister.list_partitions()
        except kafka.KafkaError as error:
            return PartitionsReport(kafka_error=f"{error}; the last known partitions stand")
        errors = {topic: str(read) for topic, read in known.items() if isinstance(read, WireError)}
        wanted = {
            topic
            for topic in found
            if (not reads.lets_go(topic) if topic in known else reads.takes_up(topic))
        }
        where = f"is not in Kafka at {self.kafka_settings.bootstrap_servers}, or this user may not see it"
        for topic in sorted(reads.named() - found.keys()):
            errors[topic] = (
                f"topic {topic} {where}; create it there, let the user describe it, or unsubscribe cluster "
                f"{self.cluster.name} from it"
                + (" (its last known partitions stand)" if topic in known else "")
            )
        report = PartitionsReport(topics=len(wanted), errors=errors)
        for topic in sorted(known.keys() - found.keys() - errors.keys()):
            if not reads.lets_go(topic):
                report.warnings.append(
                    f"topic {topic} {where}; its last known partitions stand until cluster {self.cluster.name} is "
                    "unsubscribed from it"
                )
        for topic in sorted(wanted):
            self._bring_up_to_date(topic, found[topic], known.get(topic), report)
        self._note_racks(wanted, report)
        if report.added or report.removed or report.new_topics or report.racks:
            self.store.touch()
        return report

    def _bring_up_to_date(
        self,
        topic: str,
        partitions: frozenset[int],
        known: TopicSnapshot | WireError | None,
        report: PartitionsReport,
    ) -> None:
        if isinstance(known, WireError) or not partitions:
            return
        check_topic(topic)
        if known is None or known.assignment is None:
            # The clock's seconds: higher than what consumers may remember of a node that was deleted before.
            epoch = int(self.clock())
            self.store.create_topic(
                topic, self.kafka_settings.bootstrap_servers, self.cluster.group_id, epoch
            )
            report.new_topics.append(topic)
        before = known.partitions if known is not None else frozenset()
        if before == partitions:
            return
        self.store.set_partitions(topic, partitions, before)
        if added := sorted(partitions - before):
            report.added[topic] = added
        if removed := sorted(before - partitions):
            report.removed[topic] = removed

    def _note_racks(self, topics: Collection[str], report: PartitionsReport) -> None:
        """Note in ZooKeeper where the partitions' leaders stand, for the planning that other processes do."""
        try:
            found = self.lister.leader_racks()
            known = self.store.racks(topics)
            for topic in sorted(topics):
                racks = found.get(topic, {})
                if racks != known.get(topic, {}):
                    self.store.set_racks(topic, racks)
                    report.racks.append(topic)
        except (kafka.KafkaError, zookeeper.ZooKeeperError) as error:
            report.warnings.append(f"{error}; the last known racks of the partitions' leaders stand")

    def fetch_consumers(self) -> ConsumersReport:
        """Say who is live, and who is isolated. Raises `ConsulError` if that cannot be told."""
        members = self.discovery.members()
        if members.membership is None:
            return ConsumersReport(trusted=False, doubt=members.doubt)
        return ConsumersReport(
            live=len(members.membership.live), isolated=sorted(members.membership.isolated)
        )

    def _await_need(self, long_poll: float) -> tuple[View, str, float]:
        """Look at everything until there is something to act upon, or `long_poll` seconds are over.

        Returns what was seen last, what ended the wait ('tick' if it is over), and how many seconds it took, without
        the last look.
        """
        began = self.clock()
        index = consul.WaitIndex()
        subscribed: tuple[TopicDecision, ...] | None = None
        while True:
            woken = threading.Event()
            self.store.watch_changes(woken)
            waited = self.clock() - began
            # The index is taken before the reading, so a change in between ends the wait at once.
            index = self.discovery.wait(index, 0)
            view = self._view()
            left = long_poll - (self.clock() - began)
            woke = self._why_act(view)
            if not woke and subscribed not in (None, view.decisions.subscriptions):
                woke = (
                    "topics were subscribed or unsubscribed"  # the next run's fetch_partitions takes them up
                )
            subscribed = view.decisions.subscriptions
            woke = woke or ("tick" if left <= 0 else "")
            if woke:
                return view, woke, waited
            expiry = next_expiry(view.snapshots.values(), view.policy)
            if expiry is not None:
                left = max(min(left, expiry - self.clock()), 0.0)
            before, index = index, self._wait(index, left, woken)
            unchanged = (index.seen_health, index.seen_keys) == (before.seen_health, before.seen_keys)
            waited = self.clock() - began
            if unchanged and waited >= long_poll and expiry is None and view.membership is not None:
                # Looking again would show the same; and nothing is written on the strength of it.
                return view, "tick", waited

    def _wait(self, index: consul.WaitIndex, timeout: float, woken: threading.Event) -> consul.WaitIndex:
        """Wait for Consul in a thread of its own, so that a change in ZooKeeper (`woken`) ends the wait too."""
        result: list[consul.WaitIndex | consul.ConsulError] = []

        def watch() -> None:
            try:
                result.append(self.discovery.wait(index, timeout))
            except consul.ConsulError as error:
                result.append(error)
            finally:
                woken.set()

        threading.Thread(target=watch, daemon=True, name="consul-wait").start()
        woken.wait()
        found = result[0] if result else index
        if isinstance(found, consul.ConsulError):
            raise found
        return found

    def _why_act(self, view: View) -> str:
        if view.membership is None or view.held:
            return ""
        for topic, snapshot in view.snapshots.items():
            if snapshot.state is not None and snapshot.state.state is not State.STABLE:
                return f"topic {topic} is {snapshot.name}"
        for topic, reason in view.leaving.items():
            return f"topic {topic}: {reason}"
        if view.asked:
            return view.asked
        for transition in self._transitions(view, {}):
            return f"topic {transition.topic}: {transition.reason or transition.state.state}"
        return ""

    def compute_assignment(self, long_poll: float = 0.0) -> PlanReport:
        """Say what `advance` would begin with, and write nothing. With nothing to do, wait up to `long_poll` seconds
        for something."""
        view, woke, waited = self._await_need(long_poll)
        if view.held or view.membership is None:
            return PlanReport(
                held=view.held,
                errors=view.errors,
                warnings=view.warnings,
                states=view.states(),
                woke=woke,
                waited=round(waited, 3),
            )
        statuses, failures = self._ask(view)
        transitions = self._transitions(view, statuses)
        under_way = view.under_way()
        steps = {
            t.topic: f"{t.before.name} -> {t.state.state}: {t.reason or 'partitions vanished'}"
            for t in transitions
        }
        return PlanReport(
            needed=bool(transitions or under_way or view.asked),
            topics=under_way | steps,
            moves=sum(len(t.moves) for t in transitions),
            reasons=sorted({move.reason for t in transitions for move in t.moves}),
            errors=view.errors,
            warnings=view.warnings,
            stuck=self._stuck(view, self._waiting(view, view.membership, statuses, failures)),
            assignor=str(view.decisions.assignor or ""),
            asked=view.asked,
            # Last, when all that counts is computed: it may fail or hang without harm.
            shadow=self._shadow(view),
            states=view.states(),
            woke=woke,
            waited=round(waited, 3),
        )

    def advance(self, budget: float, on_change: Callable[[Change], None] = lambda _: None) -> AdvanceReport:
        """Carry every topic on until all are Stable or `budget` seconds are over; the next run resumes.

        `on_change` is told of each transition right after it was written.
        """
        deadline = self.clock() + budget
        changes: list[Change] = []
        delay = FIRST_POLL
        answers = Answers()
        while True:
            began = self.clock()
            view = self._view()
            if view.membership is None or view.held:
                return AdvanceReport(
                    changes,
                    view.all_stable,
                    held=view.held,
                    errors=view.errors,
                    warnings=view.warnings,
                )
            statuses, failures = self._ask(view, answers)
            transitions = self._transitions(view, statuses)
            written = [
                self._change(transition)
                for transition, done in zip(transitions, self.store.apply(transitions), strict=True)
                if done
            ]
            written += [
                self._removed(snapshot, view.leaving[topic])
                for topic, snapshot in view.removable(self.clock()).items()
                if self.store.remove_topic(topic, snapshot, view.leaving[topic])
            ]
            for change in written:
                log.info("%s", change)
                changes.append(change)
                on_change(change)
            if written:
                delay = FIRST_POLL
            elif (at_rest := view.all_stable and not view.leaving) or self.clock() >= deadline:
                waiting = self._waiting(view, view.membership, statuses, failures)
                request = view.decisions.rebalance
                if at_rest and request is not None:
                    self.discovery.end_rebalance(request)
                return AdvanceReport(
                    changes,
                    stable=view.all_stable,
                    waiting=[str(w) for found in waiting.values() for w in found],
                    stuck=self._stuck(view, waiting),
                    errors=view.errors,
                    warnings=view.warnings,
                    asked=view.asked if at_rest else "",
                )
            else:
                # At a size where a look takes long, not more often than every other moment.
                self.pause(max(delay, self.clock() - began))
                delay = min(delay * POLL_GROWTH, LAST_POLL)

    def stuck(self) -> list[Waiting]:
        """Who holds up a topic for longer than the cluster's `stuck_after`; writes nothing."""
        view = self._view()
        if view.held or view.membership is None:
            return []
        statuses, failures = self._ask(view)
        waiting = self._waiting(view, view.membership, statuses, failures)
        now = self.clock()
        return [
            each
            for topic, found in waiting.items()
            for each in found
            if stuck_message(view.snapshots[topic], found, now, self.cluster.stuck_after)
        ]

    def subscription(self, decisions: Decisions) -> Subscription:
        """The topics that the cluster reads: by clusters.yaml, and by what persons decided."""
        return self.cluster.topics.read_with(decisions.subscriptions, decisions.topics_in_doubt)

    def _view(self) -> View:
        snapshots, errors = readable(self.store.snapshots())
        decisions = self.discovery.decisions()
        members = self.discovery.members()
        leaving = self.subscription(decisions).leaving(snapshots)
        policy = Policy(0.0) if decisions.rebalance is not None else self.policy
        view = View(
            snapshots,
            errors,
            members,
            decisions,
            leaving,
            known=Known(warnings=decisions.errors),
            policy=policy,
        )
        if view.held or members.membership is None:
            return view
        live = members.membership.live
        staying = {topic: snapshot for topic, snapshot in snapshots.items() if topic not in leaving}
        try:
            assignor = self._assignor(decisions)
            known = self._reader.read(staying, live, assignor, decisions)
            targets = plan(staying.values(), live, assignor, known.circumstances)
        except AssignorError as error:
            return replace(view, planning_error=f"{error}; the topics stay as they are")
        return replace(view, known=known, targets=targets)

    def _assignor(self, decisions: Decisions) -> Assignor:
        """The assignor that a person chose, else that of clusters.yaml. Raises `AssignorError` without it."""
        choice = decisions.assignor
        if choice is None and not decisions.assignor_error:
            return self.assignor
        if self._chosen is None or self._chosen[0] != choice:
            self._chosen = (choice, load_in_force(self.cluster, decisions))
        return self._chosen[1]

    def circumstances(
        self,
        snapshots: Mapping[str, TopicSnapshot],
        live: Mapping[str, Consumer],
        assignor: Assignor | None = None,
    ) -> Known:
        """What a plan of `assignor` (clusters.yaml's, unless another is named) is made with now.

        Raises `ConsulError` if pins and exclusions cannot be read; everything else may be unknown, with a warning.
        """
        return self._reader.read(snapshots, live, assignor or self.assignor)

    def _shadow(self, view: View) -> ShadowReport | None:
        if self.cluster.shadow_assignor is None or view.membership is None:
            return None
        live = view.membership.live
        staying = {topic: s for topic, s in view.snapshots.items() if topic not in view.leaving}
        return shadow_report(
            self.cluster.shadow_assignor,
            staying.values(),
            live,
            view.targets,
            lambda candidate: self.circumstances(staying, live, candidate).circumstances,
        )

    def _ask(
        self, view: View, known: Answers | None = None
    ) -> tuple[dict[str, ConsumerStatus], dict[str, str]]:
        """Statuses, and why others could not be had. What is `known` already is not asked again."""
        membership = view.membership
        if membership is None:
            return {}, {}
        kept = Answers() if known is None else known
        asked = kept.open_questions(view.snapshots, membership)
        answers = self.poll(
            [membership.live[consumer] for consumer in sorted(asked)],
            self.cluster.status_timeout,
            topics=asked,
        )
        statuses: dict[str, ConsumerStatus] = {}
        failures: dict[str, str] = {}
        for consumer, answer in answers.items():
            if not isinstance(answer, ConsumerStatus):
                failures[consumer] = answer.reason
            elif membership.live[consumer].incarnation not in {None, answer.incarnation}:
                # What an older process under this id has closed, or runs, says nothing about the registered one.
                failures[consumer] = (
                    f"incarnation {answer.incarnation} answers, which is not the registered one"
                )
            else:
                statuses[consumer] = answer
        kept.take(statuses.values())
        return kept.said(statuses), failures

    def _transitions(self, view: View, statuses: Mapping[str, ConsumerStatus]) -> list[Transition]:
        if view.membership is None:
            return []
        now = self.clock()
        reasons = view.reasons()
        steps = (
            advance(
                snapshot,
                view.membership,
                statuses,
                view.targets.get(topic, {}),
                now,
                view.policy,
                standbys=view.targets.standbys.get(topic, {}),
                reasons=reasons.get(topic, NO_REASONS),
                leaving=view.leaving.get(topic, ""),
            )
            for topic, snapshot in sorted(view.snapshots.items())
        )
        return [step for step in steps if step is not None]

    def _change(self, transition: Transition) -> Change:
        before = transition.before
        rebalancing = before.state is not None and before.state.state is not State.STABLE
        now = self.clock()
        return Change(
            topic=transition.topic,
            before=before.name,
            after=transition.state.state,
            reason=transition.reason,
            moves=transition.moves,
            epoch=transition.state.epoch,
            at=now,
            lasted=now - before.state.since if rebalancing and before.state is not None else 0.0,
        )

    def _removed(self, snapshot: TopicSnapshot, reason: str) -> Change:
        """The step of a topic whose nodes went."""
        epoch = snapshot.assignment.epoch if snapshot.assignment is not None else 0
        return Change(snapshot.topic, snapshot.name, State.INITIAL, reason, (), epoch, self.clock(), 0.0)

    @staticmethod
    def _waiting(
        view: View,
        membership: Membership,
        statuses: Mapping[str, ConsumerStatus],
        failures: Mapping[str, str],
    ) -> dict[str, list[Waiting]]:
        return {
            topic: waiting_for(snapshot, membership, statuses, failures)
            for topic, snapshot in view.snapshots.items()
        }

    def _stuck(self, view: View, waiting: Mapping[str, list[Waiting]]) -> list[str]:
        now = self.clock()
        messages = (
            stuck_message(snapshot, waiting[topic], now, self.cluster.stuck_after)
            for topic, snapshot in view.snapshots.items()
        )
        return [message for message in messages if message]


@contextmanager
def open_coordinator(
    cluster: ClusterSettings,
    zookeeper_settings: ZooKeeperSettings,
    consul_settings: ConsulSettings,
    kafka_settings: KafkaSettings,
    status_token: SecretStr | None = None,
    by: str = "",
) -> Iterator[Coordinator]:
    """Connect to the edges of `cluster` and close them again at the end.

    `status_token` is the bearer token of the consumers' status pages, if they ask for one. `by` is who coordinates,
    for the history: a DAG and its run.

    It is for a process that coordinates and does little else: see `muster.coordinator.cycle_search`.

    Raises `ZooKeeperError` if ZooKeeper is out of reach, `AssignorError` if the assignor cannot be loaded.
    Kafka and Consul are contacted when they are first needed.
    """
    assignor = load_in_force(cluster)
    lister = kafka.TopicLister(kafka_settings)
    try:
        with (
            cycle_search.seldom(),
            zookeeper.TopicStore(zookeeper_settings, cluster.name, by=by) as store,
        ):
            discovery = consul.Discovery.of(consul_settings, cluster)
            poll = partial(status.poll_statuses, token=status_token)
            yield Coordinator(cluster, kafka_settings, store, discovery, lister, poll, assignor)
    finally:
        lister.close()
