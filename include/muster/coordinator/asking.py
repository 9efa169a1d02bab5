"""Ask consumers for their status, and say what follows for those that are not live.

A consumer that is registered is asked before anything is taken from it because of its absence, whether its check
passes or not: only a refused connection, or silence past `SILENCE`, means that it is gone. Where more than half of
all consumers are gone by that, and more than one, their absence is doubted for a while.

Within one run no consumer is asked twice for the same (`Answers`). A topic is Stable when all its consumers run what
they were given. Of many hundreds, some answer late in any one round; if only one round counted, a large topic might
never become Stable. What a consumer reports in knowledge of an epoch stays true of that epoch: partitions that it
runs it took up then, and those that it closed it cannot take up again without a newer one. So its answer is kept, by
topic, as long as its incarnation is the registered one, it is live, and the epoch is the topic's. A consumer that
reports no epochs is asked every time: its answer does not say to which epoch it belongs. So is one that is not live,
because whether it still answers is the question.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from muster.core.epochs import Noted
from muster.core.model import Consumer, ConsumerStatus, Membership, TopicSnapshot, TopicStatus
from muster.core.patience import Replies
from muster.core.state_machine import consumers_to_ask, topics_ahead
from muster.edges.status import StatusFailure, StatusResult

SILENCE = 1.0
"""Seconds that a consumer that is not live has for its answer. Its check has failed, so it was silent before."""
BRIEFLY = 0.2
"""Seconds that it has where nothing is written on the strength of its silence, or where the run has just asked it in
vain."""

Questions = Mapping[str, set[str]]
"""Consumer id to the topics that it is asked about."""
Process = tuple[str, str | None]
"""A consumer's id and its incarnation."""


class StatusPoller(Protocol):
    """`muster.edges.status.poll_statuses`."""

    def __call__(
        self,
        consumers: Iterable[Consumer],
        timeout: float,
        *,
        topics: Mapping[str, Collection[str]] | None = None,
    ) -> Mapping[str, StatusResult]:
        """Ask all consumers at once; each about its `topics` only, if given. Answers may hold others, too."""


def ask(
    poll: StatusPoller,
    snapshots: Mapping[str, TopicSnapshot],
    membership: Membership,
    timeout: float,
    kept: Answers,
    also: Questions,
    silence: float,
    noted: Mapping[str, Noted],
) -> Replies:
    """Ask all consumers that the next step depends on, and those in `also`. What is `kept` is not asked again.
    Those that are not live have `silence` seconds. `noted` is what Consul has of epochs, by topic.

    Where these or an answer show that ZooKeeper went back (`topics_ahead`), all consumers are asked about that topic.
    """
    round_ = _Round(poll, membership, timeout, min(silence, timeout), kept.silent)
    behind = topics_ahead(snapshots, (), noted)
    round_.ask(merged(kept.open_questions(snapshots, membership, behind), also))
    kept.take(round_.live_answers())
    if (ahead := topics_ahead(snapshots, round_.all_answers(), noted)) != behind:
        round_.ask(kept.open_questions(snapshots, membership, ahead))
        kept.take(round_.live_answers())
    owners = _owners(snapshots.values())
    statuses = {**round_.answers, **kept.said(round_.answers)}
    lost = owners - membership.live.keys() - membership.isolated
    without_sign = lost - statuses.keys() - round_.gone
    doubted = len(without_sign) > 1 and 2 * len(without_sign) > len(owners | membership.live.keys())
    first_of_older = {consumer: found[0] for consumer, found in round_.older.items()}
    return Replies(
        statuses,
        round_.failures,
        {consumer: tuple(found) for consumer, found in round_.older.items()},
        frozenset(without_sign if doubted else ()),
        noted,
        {consumer: answer.topics.keys() for consumer, answer in (first_of_older | statuses).items()},
    )


class Answers:
    """The answers of consumers, kept for one run. `silent` are those that were asked in vain while not live."""

    def __init__(self) -> None:
        self._said: dict[str, ConsumerStatus] = {}
        self.silent: set[Process] = set()

    def open_questions(
        self, snapshots: Mapping[str, TopicSnapshot], membership: Membership, unknown: Collection[str] = ()
    ) -> dict[str, set[str]]:
        """Return the consumers to ask, with topics: those that matter and have not reported what is waited for."""
        asked = consumers_to_ask(snapshots.values(), membership, unknown)
        self._forget(membership)
        found = {
            consumer: {topic for topic in topics if not self._settled(consumer, snapshots[topic])}
            if consumer in self._said
            else topics
            for consumer, topics in asked.items()
        }
        return {consumer: topics for consumer, topics in found.items() if topics}

    def take(self, answers: Iterable[ConsumerStatus]) -> None:
        """Keep what was answered just now, in the place of what the same incarnation said of the same topics."""
        for answer in answers:
            before = self._said.get(answer.consumer)
            if before is not None and before.epochs and before.incarnation == answer.incarnation:
                answer = replace(answer, topics={**before.topics, **answer.topics})  # noqa: PLW2901
            self._said[answer.consumer] = answer

    def said(self, answered: Iterable[str]) -> dict[str, ConsumerStatus]:
        """Return what counts now: the answers of those that `answered` just now, and of all that report epochs."""
        now = set(answered)
        return {
            consumer: status for consumer, status in self._said.items() if status.epochs or consumer in now
        }

    def _forget(self, membership: Membership) -> None:
        self._said = {
            consumer: status
            for consumer, status in self._said.items()
            if consumer in membership.live
            and membership.live[consumer].incarnation in {None, status.incarnation}
        }

    def _settled(self, consumer: str, snapshot: TopicSnapshot) -> bool:
        status = self._said.get(consumer)
        state, assignment = snapshot.state, snapshot.assignment
        if status is None or not status.epochs or assignment is None:
            return False
        of_topic = status.on(snapshot.topic)
        if of_topic.epoch != assignment.epoch:
            return False
        if state is None:
            return not of_topic.held
        wanted = state.to_start.get(consumer, frozenset())
        if consumer in state.missing:
            wanted |= {p for p, owner in assignment.owners.items() if owner == consumer}
        return wanted <= of_topic.running and not state.to_close.get(consumer, frozenset()) & of_topic.held


@dataclass
class _Round:
    """Answers by consumer, as they come in.

    `gone` are the consumers whose process is certainly gone; `silent` grows by the processes that are not live and
    did not answer within `silence` seconds.
    """

    poll: StatusPoller
    membership: Membership
    timeout: float
    silence: float
    silent: set[Process]
    answers: dict[str, ConsumerStatus] = field(default_factory=dict)
    older: dict[str, list[ConsumerStatus]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def ask(self, questions: Questions) -> None:
        """Ask about these topics: at first those that are not live, whose time is short."""
        members = self.membership
        away = {**members.failing, **members.outside}
        self._take(away, self._ask_away(away, questions), questions)
        older = {c: members.older[c] for c in sorted(questions.keys() & members.older.keys())}
        for place in range(max(map(len, older.values()), default=0)):
            once = {c: found[place] for c, found in older.items() if place < len(found)}
            for consumer, answer in self._ask_away(once, questions).items():
                if isinstance(answer, ConsumerStatus) and answer.incarnation == once[consumer].incarnation:
                    self.older.setdefault(consumer, []).append(_complete(answer, questions[consumer]))
        self._take(members.live, self._ask(members.live, questions, self.timeout), questions)

    def live_answers(self) -> list[ConsumerStatus]:
        return [answer for consumer, answer in self.answers.items() if consumer in self.membership.live]

    def all_answers(self) -> list[ConsumerStatus]:
        """Return what all answered, older incarnations too."""
        return [*self.answers.values(), *(answer for found in self.older.values() for answer in found)]

    def _take(
        self, consumers: Mapping[str, Consumer], answers: Mapping[str, StatusResult], questions: Questions
    ) -> None:
        for consumer, answer in answers.items():
            if isinstance(answer, StatusFailure):
                self.failures[consumer] = answer.reason
                if answer.refused:
                    self.gone.add(consumer)
            elif consumers[consumer].incarnation not in {None, answer.incarnation}:
                # What another process under this id has closed, or runs, says nothing about the registered one.
                self.failures[consumer] = (
                    f"incarnation {answer.incarnation} answers, which is not the registered one"
                )
                self.gone.add(consumer)
            else:
                self.answers[consumer] = _complete(answer, questions[consumer])

    def _ask_away(self, consumers: Mapping[str, Consumer], questions: Questions) -> dict[str, StatusResult]:
        """Ask those that are not live; only briefly those that were silent before."""
        answers: dict[str, StatusResult] = {}
        for before, silence in ((True, min(BRIEFLY, self.silence)), (False, self.silence)):
            some = {c: found for c, found in consumers.items() if (_process(found) in self.silent) is before}
            answers |= self._ask(some, questions, silence)
        self.silent |= {_process(consumers[c]) for c, a in answers.items() if isinstance(a, StatusFailure)}
        return answers

    def _ask(
        self, consumers: Mapping[str, Consumer], questions: Questions, timeout: float
    ) -> Mapping[str, StatusResult]:
        asked = {c: questions[c] for c in sorted(questions) if c in consumers}
        return self.poll([consumers[c] for c in asked], timeout, topics=asked) if asked else {}


def _process(consumer: Consumer) -> Process:
    return consumer.id, consumer.incarnation


def _complete(answer: ConsumerStatus, topics: Iterable[str]) -> ConsumerStatus:
    """Complete an answer with every topic that was asked about. One that is not mentioned is not held, and of a
    consumer that reports epochs none is known."""
    return replace(answer, topics={topic: TopicStatus() for topic in topics} | dict(answer.topics))


def merged(first: Questions, second: Questions) -> dict[str, set[str]]:
    """Return what either asks."""
    return {c: first.get(c, set()) | second.get(c, set()) for c in first.keys() | second.keys()}


def _owners(snapshots: Iterable[TopicSnapshot]) -> set[str]:
    owners: set[str] = set()
    for snapshot in snapshots:
        if snapshot.assignment is not None:
            owners.update(snapshot.assignment.owners.values())
    return owners
