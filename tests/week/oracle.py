"""Decides from Kafka alone which partitions stand still, and asks Muster whether it names them.

A partition stands still while its group's committed offset is below its end and does not advance. Muster has to name
it `STUCK_AFTER` seconds after the first look at Kafka's offsets that could find it so, however late that comes on a
busy machine; and where no look comes, it has to say so.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from devstack.silence import silent_logger
from muster.core.progress import Look
from tests.week.clock import STUCK_AFTER

EVERY = 1.0
"""Seconds between two looks."""
TIMEOUT = 5.0
SLACK = 1.0
"""Seconds by which the clocks' readings may be cut."""
UNSEEN = 20.0
"""Where no look comes for so many seconds, Muster has to say so `STUCK_AFTER` seconds later."""
OUT_OF_REACH = "exit code 3: "
"""How what Muster says begins where ZooKeeper or Consul is out of reach."""

Key = tuple[str, str, int]
"""Cluster, topic, partition."""


@dataclass(frozen=True)
class Standing:
    """A partition that did not move, since when (seconds since the epoch), and where."""

    key: Key
    since: float
    committed: int
    end: int


@dataclass
class Oracle:
    """A thread. `groups` maps cluster to group, `topics` says which partitions each cluster reads now; `excused` are
    those that a person keeps from moving; `ask` gives what Muster says about a cluster, `looked` the last look of its
    coordinator at Kafka's offsets, which finds nothing in a topic that the coordinator does not know yet."""

    servers: str
    groups: Mapping[str, str]
    topics: Callable[[str], Mapping[str, int]]
    excused: Callable[[Key], bool]
    ask: Callable[[str], str]
    looked: Callable[[str], Look]
    committed: dict[Key, int] = field(default_factory=dict)
    ends: dict[Key, int] = field(default_factory=dict)
    unread: dict[tuple[str, int], str] = field(default_factory=dict)
    """Whose end Kafka did not tell at the last reading, and why."""
    unnamed: list[tuple[Standing, str]] = field(default_factory=list)
    """What stood still and was not named, with what Muster said instead, and the mark that it has."""
    looked_at: float = 0.0
    judging: bool = False
    """Whether all is up, and what stands still from now on counts."""

    def __post_init__(self) -> None:
        """Connect."""
        self._admin = AdminClient({"bootstrap.servers": self.servers}, logger=silent_logger())
        # They never join their groups. An administrator's client (librdkafka 2.16) crashes where a broker answers
        # that it coordinates the group no more.
        self._members = {
            cluster: Consumer({"bootstrap.servers": self.servers, "group.id": group}, logger=silent_logger())
            for cluster, group in self.groups.items()
        }
        self._standing: dict[Key, Standing] = {}
        self._found: dict[Standing, float] = {}
        """When the first look came that could find it."""
        self._judged: set[Standing] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="test-oracle")

    def start(self) -> None:
        """Look from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join(60)
        for member in self._members.values():
            member.close()

    def _run(self) -> None:
        while not self._ended.wait(EVERY):
            began = time.time()
            try:
                ends, committed = self._read()
            except KafkaException:
                continue  # Kafka is away
            self.ends, self.committed, self.looked_at = ends, committed, began
            if self.judging:
                self._judge(began)

    def _read(self) -> tuple[dict[Key, int], dict[Key, int]]:
        wanted = {name: self.topics(name) for name in self.groups}
        partitions = {
            (t, p) for topics in wanted.values() for t, count in topics.items() for p in range(count)
        }
        asked = {TopicPartition(*tp): OffsetSpec.latest() for tp in partitions}
        found = self._admin.list_offsets(asked, request_timeout=TIMEOUT)
        ends, unread = {}, {}
        for tp, future in found.items():
            try:
                ends[tp.topic, tp.partition] = future.result(TIMEOUT).offset
            except KafkaException as error:
                unread[tp.topic, tp.partition] = str(error)  # it is just being created or deleted
        self.unread = unread
        committed = {key: at for name, topics in wanted.items() for key, at in self._committed(name, topics)}
        return {
            (name, t, p): ends[t, p]
            for name, topics in wanted.items()
            for t, count in topics.items()
            for p in range(count)
            if (t, p) in ends
        }, committed

    def _committed(self, cluster: str, topics: Mapping[str, int]) -> Iterator[tuple[Key, int]]:
        asked = [TopicPartition(topic, p) for topic, count in topics.items() for p in range(count)]
        for tp in self._members[cluster].committed(asked, timeout=TIMEOUT):
            if tp.error is None and tp.offset >= 0:
                yield (cluster, tp.topic, tp.partition), tp.offset

    def _judge(self, now: float) -> None:
        before, self._standing = self._standing, {}
        found_before, self._found = self._found, {}
        looked = {cluster: self.looked(cluster) for cluster in self.groups}
        due: dict[str, list[Standing]] = {}
        for key, end in self.ends.items():
            at = self.committed.get(key, 0)
            if at >= end or self.excused(key):
                continue
            stood = before.get(key)
            same = stood is not None and stood.committed == at
            standing = self._standing[key] = (
                stood if stood is not None and same else Standing(key, now, at, end)
            )
            look = looked[key[0]]
            last = look.at if key[1:] in look.marks else 0.0
            if standing in found_before and found_before[standing] <= last:
                self._found[standing] = found_before[standing]
            elif last > standing.since:  # the first, or the first behind a backup that knew nothing of it
                self._found[standing] = last
            since = self._found.get(standing, standing.since + UNSEEN)
            if now - since > STUCK_AFTER + SLACK and standing not in self._judged:
                due.setdefault(key[0], []).append(standing)
        self._judged &= set(self._standing.values())
        for cluster, stands in due.items():
            told = self.ask(cluster)
            unnamed = [each for each in stands if not names(told, each.key)]
            # The answer rightly leaves out what has moved by then. Where Kafka does not say so, it is asked again.
            try:
                committed = self._read()[1] if unnamed else {}
            except KafkaException:
                continue
            self._judged |= set(stands)
            self.unnamed += [
                (each, f"{looked[cluster].marks.get(each.key[1:])}, {told}")
                for each in unnamed
                if committed.get(each.key, 0) == each.committed
            ]


def names(told: str, key: Key) -> bool:
    """Whether what `muster status --json` printed names a partition, or a server that is out of reach."""
    _, topic, partition = key
    try:
        found = json.loads(told)
    except ValueError:
        return told.startswith(OUT_OF_REACH)
    waiting = [each["partitions"] for each in found["waiting"] if each["topic"] == topic]
    named = any(not partitions or partition in partitions for partitions in waiting)
    return named or bool(found["doubt"] or found["blind"]) or topic in found["left_alone"]
