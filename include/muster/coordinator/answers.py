"""What consumers answered while one run carries topics on, so that no consumer is asked twice for the same.

A topic is Stable when all its consumers run what they were given. Of many hundreds, some answer late in any one
round; if only one round counted, a large topic might never get there. What a consumer reports in knowledge of an
epoch stays true of that epoch: partitions that it runs it took up then, and those that it closed it cannot take up
again without a newer one. So its answer is kept, by topic, as long as its incarnation is the registered one, it is
live, and the epoch is the topic's. A consumer that reports no epochs is asked every time: its answer does not say to
which epoch it belongs. So is one that is not live, because whether it still answers is the question.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from muster.core.model import ConsumerStatus, Membership, TopicSnapshot
from muster.core.state_machine import consumers_to_ask

Process = tuple[str, str | None]
"""A consumer's id and its incarnation."""


class Answers:
    """The answers of consumers, kept for one run. `silent` are those that were asked in vain while not live."""

    def __init__(self) -> None:
        self._said: dict[str, ConsumerStatus] = {}
        self.silent: set[Process] = set()

    def open_questions(
        self, snapshots: Mapping[str, TopicSnapshot], membership: Membership, unknown: Collection[str] = ()
    ) -> dict[str, set[str]]:
        """Whom to ask about which topics: those that matter now and have not said what is waited for."""
        asked = consumers_to_ask(snapshots.values(), membership, unknown)
        self._forget(membership)
        found = {
            consumer: {topic for topic in topics if not self._settled(consumer, snapshots[topic])}
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
        """What counts now: the answers of those who `answered` just now, and of all who report epochs."""
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
