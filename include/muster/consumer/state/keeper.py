"""Takes up the shards of partitions that are claimed, a few at a time, for as long as it takes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from muster.consumer.agent import Agent
from muster.consumer.problems import of_partition
from muster.consumer.state.errors import StateError, StateStoreError
from muster.consumer.state.position import ANYWHERE
from muster.consumer.state.shards import States
from muster.core.model import TopicPartition
from muster.core.ownership import Ownership, ToRestore
from muster.edges.kafka import KafkaError

if TYPE_CHECKING:
    from muster.consumer.lifecycle import Beat  # which imports Spark

log = logging.getLogger(__name__)

AT_A_TIME = 4
"""Shards that are restored at a time."""
NAMED_AFTER = 10.0
"""Seconds after which a partition is named that waits for others of its shard."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds until a shard that failed is tried again, at first and at most."""


class Keeper:
    """Watches the agent for shards to take up, and for those that went. `run` is the loop, until `stop`."""

    def __init__(self, agent: Agent, states: States) -> None:
        self._agent = agent
        self._states = states
        self._stopped = threading.Event()
        self._pool = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="muster-state")
        self._busy: dict[TopicPartition, int] = {}
        self._again: dict[TopicPartition, tuple[int, float, float]] = {}
        """By partition: for which claim epoch it failed, when it is tried again, and the pause."""
        self._asked: dict[TopicPartition, int] = {}
        self._waiting: dict[TopicPartition, float] = {}
        """Since when partitions wait for others of their shards."""

    def stop(self) -> None:
        """End the loop, and what is being restored."""
        self._stopped.set()

    def run(self, beat: Beat) -> None:
        """Take up whatever is to be taken up."""
        try:
            while not self._stopped.is_set():
                beat()
                self._agent.shared.wait_for(lambda own: bool(self._due(own)) or self._has_gone(own), 0.5)
                self.look()
        finally:
            self._stopped.set()
            self._pool.shutdown(wait=False, cancel_futures=True)

    def look(self) -> None:
        """Let go of the shards that went, and begin to take up those that are due."""
        with self._agent.shared.locked() as own:
            due = self._due(own)
            held = {tp: one.claim_epoch for tp, one in own.held.items() if one.has_state}
            waiting = own.shards.waiting()
        self._asked = held
        self._states.keep(held)
        self._name_waiting(waiting)
        for tp in self._again.keys() - held.keys():
            del self._again[tp]
            self._agent.problems.note(_problem(tp), None)
        for tp, asked in due.items():
            self._busy[tp] = asked.claim_epoch
            self._states.restores.wait_turn(tp, asked.claim_epoch)
            self._pool.submit(self._take_up, tp, asked)

    def _name_waiting(self, waiting: Mapping[TopicPartition, Sequence[TopicPartition]]) -> None:
        """Name the partitions that have waited for others of their shards for longer than a hand-over takes."""
        now = time.monotonic()
        for tp in self._waiting.keys() - waiting.keys():
            del self._waiting[tp]
            self._agent.problems.note(_problem(tp), None)
        for tp, others in waiting.items():
            if now - self._waiting.setdefault(tp, now) < NAMED_AFTER:
                continue
            names = ", ".join(f"topic {topic!r}, partition {partition}" for topic, partition in others)
            self._agent.problems.note(
                _problem(tp),
                f"topic {tp[0]!r}, partition {tp[1]} waits, because it shares its state with {names}, and this "
                "consumer does not have that: nothing of it is read. See where it is with 'muster status'; it has to "
                "be assigned to the same consumer, which the assignor co-partitioned does, unless pins, exclusions "
                "or consumers' topics keep it from that",
            )

    def _due(self, own: Ownership) -> dict[TopicPartition, ToRestore]:
        now = time.monotonic()
        return {
            tp: asked
            for tp, asked in own.shards.to_restore().items()
            if self._busy.get(tp) is None
            and ((again := self._again.get(tp)) is None or again[0] != asked.claim_epoch or again[1] <= now)
        }

    def _has_gone(self, own: Ownership) -> bool:
        return any(
            (held := own.held.get(tp)) is None or held.claim_epoch != epoch
            for tp, epoch in self._asked.items()
        )

    def _wanted(self, tp: TopicPartition, claim_epoch: int) -> bool:
        with self._agent.shared.locked() as own:
            held = own.held.get(tp)
            same = held is not None and held.claim_epoch == claim_epoch and not held.closing
        return same and not self._stopped.is_set()

    def _take_up(self, tp: TopicPartition, asked: ToRestore) -> None:
        why: str | None = None
        try:
            found = self._states.take_up(tp, asked, lambda: self._wanted(tp, asked.claim_epoch))
            if found is not None and found.position is None:
                why = (
                    f"topic {tp[0]!r}, partition {tp[1]} is not read, because its state and its committed offset do "
                    f"not fit: {found.differs}. Choose: back to the changelog, 'muster seek --to=changelog "
                    f"--state=again {tp[0]} {tp[1]}'; the group's offset with that state, '--to=committed "
                    "--state=again' or 'skip'; or an empty state, '--to=earliest --state=rebuild'"
                )
            elif found is not None and found.position is not None:
                places = found.position.places
                with self._agent.shared.change() as own:
                    own.restored(
                        tp,
                        asked.claim_epoch,
                        {}
                        if found.chosen
                        else {topic: one.offset for topic, one in places.items() if one.offset != ANYWHERE},
                    )
        except (KafkaError, StateStoreError, StateError) as error:
            why = f"topic {tp[0]!r}, partition {tp[1]}: its state is not restored: {error}; it is tried again"
        except Exception as error:
            log.exception("taking up the state of topic %r, partition %d failed", *tp)
            why = (
                f"topic {tp[0]!r}, partition {tp[1]}: its state is not restored: {error!r}; it is tried again"
            )
        finally:
            self._agent.problems.note(_problem(tp), why)
            if why is None:
                self._again.pop(tp, None)
            else:
                before = self._again.get(tp)
                pause = min(LONGEST_PAUSE, 2 * before[2]) if before is not None else FIRST_PAUSE
                self._again[tp] = (asked.claim_epoch, time.monotonic() + pause, pause)
            self._busy.pop(tp, None)


def _problem(tp: TopicPartition) -> str:
    """Return the key of the problem of a shard that is not taken up."""
    return of_partition("state", tp)
