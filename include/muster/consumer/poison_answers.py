"""Carries out what people answer about records that the handler fails with. `run` is the loop, until `stop`.

The answers are read from Consul each second while there is such a record, and the standing ones where the handler
rejects records; else nothing is asked.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

from muster.consumer.agent import Agent
from muster.consumer.lifecycle import Beat
from muster.core.model import TopicPartition
from muster.core.overrides import StandingAnswer
from muster.core.parking import Answer
from muster.edges.consul import ConsulError
from muster.edges.consul_answers import AnswerBox, GivenAnswer

log = logging.getLogger(__name__)

LOOK = 1.0
"""Seconds between two looks at the answers."""
REJECTS_LOOK = 10.0
"""Seconds for which the standing answers are gone by, as they were read, where the handler rejects records."""
COUNT_AGAIN = 60.0
"""Seconds after which it is tried again to count a record for a standing answer whose limit was reached."""
PROBLEM = "answers"


class PoisonAnswers:
    """Takes the answers in `box` to `agent`, each once, and deletes those that are carried out."""

    def __init__(self, agent: Agent, box: AnswerBox) -> None:
        self._agent = agent
        self._box = box
        self._stopped = threading.Event()
        self._read_at = -math.inf
        """When the standing answers were read last, or could not be."""
        self._taken: dict[TopicPartition, GivenAnswer] = {}
        """Accepted, and not known to be carried out."""
        self._done: dict[TopicPartition, int] = {}
        """Carried out, by the number of the key, should it not be possible to delete that."""
        self._counted: dict[TopicPartition, tuple[int, bool, float]] = {}
        """Which record of a partition was to be counted for a standing answer last, whether it was, and when."""

    def stop(self) -> None:
        """End the loop."""
        self._stopped.set()

    def run(self, beat: Beat) -> None:
        """Look whenever there may be something to do."""
        while not self._stopped.wait(LOOK):
            beat()
            if self._agent.answers.failing or self._taken:
                self._try(self.look_at_standing, self.look)
            elif time.monotonic() - self._read_at > 2 * REJECTS_LOOK:
                self._agent.problems.note(PROBLEM, None)  # nothing is to be answered

    def before_rejects(self) -> None:
        """Have records be rejected by the standing answers of at most `REJECTS_LOOK` seconds ago; by those known
        where Consul does not say."""
        if time.monotonic() - self._read_at >= REJECTS_LOOK:
            self._try(self._read_standing)

    def _try(self, *looks: Callable[[], None]) -> None:
        try:
            for look in looks:
                look()
        except ConsulError as error:
            self._agent.problems.note(PROBLEM, f"what people answered is unknown: {error}")
        else:
            self._agent.problems.note(PROBLEM, None)

    def _read_standing(self) -> None:
        self._read_at = time.monotonic()
        self._agent.answers.stand(self._box.standing())

    def look_at_standing(self) -> None:
        """Give the standing answers that are due. Raises `ConsulError`."""
        self._read_standing()
        for tp, offset, one in self._agent.answers.standing_due():
            if one.limited and not self._count(tp, offset, one):
                continue
            if self._agent.answers.answer_standing(tp, offset, one):
                log.warning("topic %r, partition %d, offset %d: by a standing answer, %s", *tp, offset, one)

    def _count(self, tp: TopicPartition, offset: int, one: StandingAnswer) -> bool:
        """Count a record for a standing answer, once; False if that may be given about no more."""
        known, counted, at = self._counted.get(tp, (-1, False, 0.0))
        if known == offset and (counted or time.monotonic() - at < COUNT_AGAIN):
            return counted
        counted = self._box.take(one, time.time())
        self._counted[tp] = offset, counted, time.monotonic()
        return counted

    def look(self) -> None:
        """Take the answers that are there, and delete those that are carried out. Raises `ConsulError`."""
        given = self._box.all()
        for tp, answer in given.items():
            new = self._taken.get(tp) != answer and self._done.get(tp) != answer.modified
            by = f"{answer.by} ({answer.why})"
            if new and self._agent.answers.answer(tp, answer.offset, answer.answer, by):
                log.warning(
                    "topic %r, partition %d, offset %d: %s, by %s", *tp, answer.offset, answer.answer, by
                )
                self._taken[tp] = answer
        failing = self._agent.answers.failing
        for tp, answer in list(self._taken.items()):
            record = failing.get(tp)
            at_once = answer.answer in {Answer.RETRY, Answer.WAIT}
            if not at_once and record is not None and record.offset == answer.offset:
                continue
            del self._taken[tp]
            self._done[tp] = answer.modified
            self._box.end(tp, answer)
