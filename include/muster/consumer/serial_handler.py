"""Calls the handler for one thing at a time: a batch, or what it asks to know.

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
from collections.abc import Mapping
from typing import TYPE_CHECKING

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
    """`handler`, informed of what `agent` has. `run` is the loop that informs it, until `close`."""

    def __init__(self, handler: Handler, agent: Agent) -> None:
        self._handler = handler
        self._agent = agent
        self._turn = threading.Lock()
        self._stopped = threading.Event()
        self._standing_by: frozenset[TopicPartition] = frozenset()

    def __call__(self, frame: DataFrame, batch: Batch) -> None:
        """Give it a batch. Raises what it raises."""
        with self._turn:
            self._handler(frame, batch)

    def run(self, beat: Beat) -> None:
        """Inform it whenever there is something new."""
        pause = 0.0
        while not self._stopped.is_set():
            beat()
            if self._agent.wait_for(self._news, 1.0):
                pause = 0.0 if self._inform() else min(2 * pause or FIRST_PAUSE, LONGEST_PAUSE)
                self._agent.wait_for(lambda own: bool(own.to_withdraw), pause)

    def close(self) -> None:
        """Let it end. To be called when no batch is with the handler and none will be."""
        self._stopped.set()
        with self._turn:
            self._call(CLOSE)

    def _news(self, own: Ownership) -> bool:
        return bool(own.to_announce or own.to_withdraw) or own.standing_by != self._standing_by

    def _inform(self) -> bool:
        """Call it for all that is new; False if that is to be tried again."""
        with self._turn:
            with self._agent.locked() as own:
                gone, here, standing_by = own.to_withdraw, own.to_announce, own.standing_by
                own.begin_announcing(here)
            if gone:
                self._call(REVOKED, gone)
                with self._agent.change() as own:
                    own.withdrawn(gone)
            taken = not here or self._call(ASSIGNED, here)
            with self._agent.change() as own:
                (own.announced if taken else own.withdrawn)(here)
            if standing_by != self._standing_by:
                self._standing_by = standing_by
                self._call(STANDBY, dict.fromkeys(standing_by, 0))
            return taken

    def _call(self, name: str, partitions: Mapping[TopicPartition, int] | None = None) -> bool:
        """Call one of its methods, if it has it; False if it raised, which is a problem until it returns."""
        method = getattr(self._handler, name, None)
        if method is None:
            return True
        try:
            method(*([] if partitions is None else [frozenset(partitions)]))
        except Exception as error:
            log.exception("the handler failed in %r", name)
            self._agent.problem(f"handler.{name}", f"it raised {type(error).__name__}: {error}"[:500])
            return False
        self._agent.problem(f"handler.{name}", None)
        return True
