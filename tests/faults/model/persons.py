"""What persons do: they decide who reads what, pause, have partitions go on elsewhere, and answer about records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from muster.core.overrides import SeekRequest
from muster.core.parking import Answer
from tests.faults.model.consul import Servers
from tests.faults.model.kafka import Brokers, Record
from tests.faults.model.seeks import Desk

if TYPE_CHECKING:
    from tests.faults.model.process import Process
    from tests.faults.model.watchman import Watchman
    from tests.faults.model.zookeeper import Ensemble


class Persons:
    """The events of `Model` that are persons' doing, and the records that they are asked about."""

    now: float
    consul: Servers
    kafka: Brokers
    zookeeper: Ensemble
    watchman: Watchman
    processes: list[Process]
    _group: str

    def __init__(self) -> None:
        self.deadly: set[tuple[Record, int]] = set()
        """The records that kill the process that reads them."""
        self.bad: set[tuple[Record, int]] = set()
        """The records that handlers fail with."""
        self.given: dict[str, SeekRequest] = {}
        """The seeks that persons asked for or took back, by their ids."""
        self.cancelled: set[str] = set()
        """The ids of those that they took back while their topic was there."""
        self.over: set[str] = set()
        """Those of them that no server held any more when a backup brought them back."""
        self.backup: dict[str, bytes] = {}
        """The last seek of each partition that was asked for, as it stood in Consul."""

    def isolate(self, consumer: str, how: str) -> None:
        """A person isolates a consumer or restores it, by key or by maintenance mode."""
        key = f"muster/c/isolated/{consumer}"
        if how == "maintenance":
            if service := self.consul.newest(consumer):
                service.maintenance = not service.maintenance
        elif self.consul.keys.pop(key, None) is None:
            self.consul.keys[key] = (b"{}", self.consul.next())

    def pin(self, topic: str, partition: str, consumer: str) -> None:
        """A person pins a partition, or takes the pin back."""
        self._decide(f"pinned/{topic}/{partition}", {"consumer": consumer})

    def exclude(self, consumer: str, topic: str) -> None:
        """A person keeps a consumer from a topic, or takes that back."""
        self._decide(f"excluded/{consumer}/{topic}", {})

    def seek(self, topic: str, partition: str, to: str, how: str = "") -> None:
        """A person has a partition go on elsewhere, with a 'rebuild' or not; if it has state, with that 'again', or
        in the way that `how` says."""
        self._desk().seek(topic, int(partition), to, how)
        self._note_seek(topic, partition)

    def cancel_seek(self, topic: str, partition: str) -> None:
        """A person takes that back."""
        asked = self._asked(topic, partition)
        snapshot = self.zookeeper.snapshot(topic)
        if asked is not None and snapshot is not None and snapshot.assignment is not None:
            self.cancelled |= {asked.id} if asked.topic_id == snapshot.assignment.topic_id else set()
        self._desk().cancel(topic, int(partition))
        self._note_seek(topic, partition)

    def _desk(self) -> Desk:
        raise NotImplementedError

    def _asked(self, topic: str, partition: str) -> SeekRequest | None:
        """The seek of a partition that stands in Consul, whether that can be reached or not."""
        away, self.consul.away = self.consul.away, False
        try:
            return self._desk().consul.overrides.read().seeks.get((topic, int(partition)))
        finally:
            self.consul.away = away

    def _note_seek(self, topic: str, partition: str) -> None:
        key = f"muster/c/seeks/{topic}/{partition}"
        if (asked := self._asked(topic, partition)) is not None:
            self.given[asked.id] = asked
            if asked.offset is not None:
                self.backup[key], _ = self.consul.keys[key]

    def bring_seeks_back(self) -> None:
        """Consul is restored: the last seek of each partition stands there again."""
        for key in self.backup.keys() - self.consul.keys.keys():
            self.over |= {json.loads(self.backup[key])["id"]} & self.cancelled
        self.consul.keys |= {key: (value, self.consul.next()) for key, value in self.backup.items()}

    def pause_consumption(self, *place: str) -> None:
        """A person pauses the consumption of `all`, `topics/[TOPIC]` or `partitions/[TOPIC]/[PARTITION]`, or resumes
        it. A stored history has the parts of a place apart."""
        self._decide(f"consumption/{'/'.join(place)}", {})

    def _decide(self, name: str, value: dict[str, str]) -> None:
        key = f"muster/c/{name}"
        if self.consul.keys.pop(key, None) is None:
            said = {**value, "who": "ann", "when": "2026-01-01T00:00:00+00:00", "why": "w"}
            self.consul.keys[key] = (json.dumps(said).encode(), self.consul.next())

    def kills(self, topic: str, partition: str) -> None:
        """The next record of a partition kills the process that reads it."""
        self.deadly |= self._next_record(topic, partition)

    def breaks(self, topic: str, partition: str) -> None:
        """Handlers fail with the next record of a partition."""
        self.bad |= self._next_record(topic, partition)

    def _next_record(self, topic: str, partition: str) -> set[tuple[Record, int]]:
        record = self.kafka.record((topic, int(partition)), self._group)
        if topic not in self.kafka.topics:
            return set()
        at = max(self.kafka.begin(record), self.kafka.stands(record), self.watchman.read_to(record))
        return {(record, at)}

    def skip_records(self) -> None:
        """A person has every record skipped that handlers fail with."""
        for process in self.processes:
            for key, why in process.agent.answers.failing.items() if process.runs else ():
                if not why.lost and process.agent.answers.answer(key, why.offset, Answer.SKIP, "ann"):
                    self.watchman.flow.skipped(process.read[key], why.offset)
                    self.watchman.state.left_out.add((process.read[key], why.offset))

    def choose(self) -> None:
        """A person chooses where each shard goes on of which changelog and group differ."""
        for topic, number in sorted({tp for process in self.processes for tp in process.differing}):
            if self._asked(topic, str(number)) is None:
                there = self.watchman.state.log((topic, number)).position
                how = ("earliest", "rebuild") if there is None else ("changelog", "again")
                self.seek(topic, str(number), *how)

    def accept_losses(self) -> None:
        """A person accepts every loss that is asked about."""
        for process in self.processes:
            for key, why in process.agent.parked.losses.items() if process.runs else ():
                if process.agent.answers.answer(key, why.offset, Answer.SKIP, "ann"):
                    self.watchman.accepted.add(process.read[key])
                    self.watchman.flow.decided[process.read[key]] = self.now
