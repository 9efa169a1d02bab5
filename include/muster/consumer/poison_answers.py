"""Carries out what people answer about records that the handler fails with. `run` is the loop, until `stop`.

While there is such a record the answers are read from Consul every second, else only the standing ones, now and then.
"""

from __future__ import annotations

import logging
import threading
import time

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
STANDING_LOOK = 10.0
"""Seconds between two looks at the standing answers while nothing fails."""
COUNT_AGAIN = 60.0
"""Seconds after which it is tried again to count a record for a standing answer whose limit was reached."""
PROBLEM = "answers"


class PoisonAnswers:
    """Takes the answers in `box` to `agent`, each once, and deletes those that are carried out."""

    def __init__(self, agent: Agent, box: AnswerBox) -> None:
        self._agent = agent
        self._box = box
        self._stopped = threading.Event()
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
        looked_at = -STANDING_LOOK
        while not self._stopped.wait(LOOK):
            beat()
            fails = bool(self._agent.failing or self._taken)
            if not fails and time.monotonic() - looked_at < STANDING_LOOK:
                continue
            try:
                self.look_at_standing()
                looked_at = time.monotonic()
                if fails:
                    self.look()
            except ConsulError as error:
                self._agent.problem(PROBLEM, f"what people answered is unknown: {error}")
            else:
                self._agent.problem(PROBLEM, None)

    def look_at_standing(self) -> None:
        """Give the standing answers that are due. Raises `ConsulError`."""
        self._agent.stand(self._box.standing())
        for tp, offset, one in self._agent.standing_due():
            if one.limited and not self._count(tp, offset, one):
                continue
            if self._agent.answer_standing(tp, offset, one):
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
            if new and self._agent.answer(tp, answer.offset, answer.answer, by):
                log.warning(
                    "topic %r, partition %d, offset %d: %s, by %s", *tp, answer.offset, answer.answer, by
                )
                self._taken[tp] = answer
        failing = self._agent.failing
        for tp, answer in list(self._taken.items()):
            record = failing.get(tp)
            at_once = answer.answer in {Answer.RETRY, Answer.WAIT}
            if not at_once and record is not None and record.offset == answer.offset:
                continue
            del self._taken[tp]
            self._done[tp] = answer.modified
            self._box.end(tp, answer)
