"""Carries out what people answer about records that the handler fails with. `run` is the loop, until `stop`.

While there is such a record the answers are read from Consul every second; else nothing is asked.
"""

from __future__ import annotations

import logging
import threading

from muster.consumer.agent import Agent
from muster.consumer.lifecycle import Beat
from muster.core.model import TopicPartition
from muster.core.parking import Answer
from muster.edges.consul import ConsulError
from muster.edges.consul_answers import AnswerBox, GivenAnswer

log = logging.getLogger(__name__)

LOOK = 1.0
"""Seconds between two looks at the answers."""
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

    def stop(self) -> None:
        """End the loop."""
        self._stopped.set()

    def run(self, beat: Beat) -> None:
        """Look whenever there may be something to do."""
        while not self._stopped.wait(LOOK):
            beat()
            if not self._agent.failing and not self._taken:
                continue
            try:
                self.look()
            except ConsulError as error:
                self._agent.problem(PROBLEM, f"what people answered is unknown: {error}")
            else:
                self._agent.problem(PROBLEM, None)

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
