"""Calls the handlers for one thing at a time: a batch, or what they ask to know.

A handler that is an object may have, besides being callable, any of these methods:

- `assigned(partitions)`: these are this consumer's from now on; before their first record is given to the handler.
  What their former owner has done to them is over. While it raises, none of the partitions is read, and it is called
  again after a pause.
- `revoked(partitions)`: these are no longer this consumer's; after their last record, and before another consumer
  begins with them.
- `standby(partitions)`: all that this consumer stands by for, whenever that changes. Who stands by reads nothing.
- `close()`: the process ends in order; after everything else.

`partitions` is a frozenset of `(topic, partition)`. An exception in `revoked`, `standby` or `close` is a problem of
the consumer, and holds nothing up. A process that is killed calls nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from muster.consumer.cause import cause
from muster.consumer.handler import ASSIGNED, CLOSE, REVOKED, STANDBY, Handler
from muster.core.model import TopicPartition
from muster.core.ownership import Ownership
from muster.sinks.batch import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from muster.consumer.agent import Agent
    from muster.consumer.lifecycle import Beat

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
"""Seconds until `assigned` is called again after it raised, at first and at most."""


class SerialHandler:
    """`handlers`, by the numbers that `agent` has for topics, each informed of what the agent has of its topics.

    `run` is the loop that informs them, until `close`.
    """

    def __init__(self, handlers: Sequence[Handler], agent: Agent) -> None:
        self._handlers = handlers
        self._agent = agent
        self._turn = threading.Lock()
        self._stopped = threading.Event()
        self._standing_by: frozenset[TopicPartition] = frozenset()

    def __call__(self, frame: DataFrame, batch: Batch) -> None:
        """Give a batch, all of which has one handler, to that. Raises what it raises."""
        (number,) = {self._agent.handler_of(topic) for topic, _ in (*batch.ranges, *batch.due)}
        with self._turn:
            self._handlers[number](frame, batch)

    def run(self, beat: Beat) -> None:
        """Inform them whenever there is something new."""
        pause = 0.0
        while not self._stopped.is_set():
            beat()
            if self._agent.shared.wait_for(self._news, 1.0):
                pause = 0.0 if self._inform() else min(2 * pause or FIRST_PAUSE, LONGEST_PAUSE)
                self._agent.shared.wait_for(lambda own: bool(own.to_withdraw), pause)

    def close(self) -> None:
        """Let them end. To be called when no batch is with the handler and none will be."""
        self._stopped.set()
        with self._turn:
            for number in range(len(self._handlers)):
                self._call(number, CLOSE)

    def _news(self, own: Ownership) -> bool:
        return bool(own.to_announce or own.to_withdraw) or own.standing_by != self._standing_by

    def _inform(self) -> bool:
        """Call them for all that is new; False if some of it is to be tried again."""
        all_taken = True
        with self._turn:
            if self._stopped.is_set():
                return True
            with self._agent.shared.locked() as own:
                gone, here, standing_by = own.to_withdraw, own.to_announce, own.standing_by
                own.begin_announcing(here)
            for number, partitions in self._by_handler(gone):
                self._call(number, REVOKED, partitions)
            with self._agent.shared.change() as own:
                own.withdrawn(gone)
            for number, partitions in self._by_handler(here):
                taken = self._call(number, ASSIGNED, partitions)
                all_taken &= taken
                with self._agent.shared.change() as own:
                    (own.announced if taken else own.withdrawn)({tp: here[tp] for tp in partitions})
            before = dict(self._by_handler(self._standing_by))
            after = dict(self._by_handler(standing_by))
            self._standing_by = standing_by
            for number in sorted(before.keys() | after.keys()):
                if before.get(number) != after.get(number):
                    self._call(number, STANDBY, after.get(number, frozenset()))
        return all_taken

    def _by_handler(
        self, partitions: Iterable[TopicPartition]
    ) -> list[tuple[int, frozenset[TopicPartition]]]:
        """Group the partitions by the numbers of their handlers."""
        found: dict[int, set[TopicPartition]] = {}
        for tp in partitions:
            found.setdefault(self._agent.handler_of(tp[0]), set()).add(tp)
        return [(number, frozenset(found[number])) for number in sorted(found)]

    def _call(self, number: int, name: str, *partitions: frozenset[TopicPartition]) -> bool:
        """Call a handler's method, if it has it; False if it raised, which is a problem until it returns."""
        handler = self._handlers[number]
        method = getattr(handler, name, None)
        if method is None:
            return True
        what = f"{type(handler).__name__}.{name}"
        try:
            method(*partitions)
        except Exception as error:
            log.exception("the handler failed in %s", what)
            self._agent.problems.note(what, f"it raised {cause(error)}")
            return False
        self._agent.problems.note(what, None)
        return True
