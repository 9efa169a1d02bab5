"""Every commit that Kafka accepted, in order: read from `__consumer_offsets`, where the broker itself keeps them.

Asking for the committed offset now and then would miss a step back that is made good soon after. Layout: Apache
Kafka, `OffsetCommitKey.json` and `OffsetCommitValue.json`; what a transaction that was aborted held is not read.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from muster.core.positions import parse_stamp

INTERNAL = "__consumer_offsets"
NEWEST_KEY = 1
"""Keys of a higher version are about the group, not about offsets."""

WITH_EPOCH, COMPACT = 3, 4
"""The first versions of a value that have a leader's epoch, and that have strings with a compact length."""


@dataclass(frozen=True)
class Commit:
    """`at` is when the broker took it, in seconds since the epoch."""

    at: float
    partition: int
    offset: int
    topic_id: str = ""
    """Of which topic of that name it is, by its metadata; '' if that does not say."""


class CommitLog:
    """Follows the commits of one group and topic in a thread, from the first one on."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str) -> None:
        self._servers = bootstrap_servers
        self._group = group
        self._topic = topic
        self._commits: dict[int, list[Commit]] = defaultdict(list)
        self.forgotten = 0
        """How often Kafka dropped the offset of a partition, because its topic was deleted."""
        self.steps_back: list[tuple[Commit, Commit]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="test-commit-log")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def committed(self) -> dict[int, int]:
        """The last commit of each partition."""
        return {
            partition: commits[-1].offset for partition, commits in list(self._commits.items()) if commits
        }

    def reached(self, partition: int, offset: int) -> float | None:
        """When the group was first committed beyond `offset`; None if it is not yet."""
        commits = self._commits[partition]
        low, high = 0, len(commits)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if commits[middle].offset > offset else (middle + 1, high)
        return commits[low].at if low < len(commits) else None

    def longest_pause(self, since: float, until: float) -> float:
        """The longest time within these, in seconds, for which a partition was not committed further.

        An offset that is committed again, as versions before this one do when they take a partition up, is no step.
        """
        longest = 0.0
        for commits in list(self._commits.values()):
            further = (late.at for early, late in pairwise(commits) if late.offset != early.offset)
            moments = [since, *(at for at in further if since <= at < until), until]
            longest = max(longest, *(later - earlier for earlier, later in pairwise(moments)))
        return longest

    def went_back(self, since: float, until: float) -> int:
        """How many commits were accepted within these times that were lower than the one before of the same topic.

        What an earlier topic of that name leaves behind is not believed: its metadata names that topic.
        """
        return sum(1 for _, late in self.steps_back if since <= late.at < until)

    def _run(self) -> None:
        config = {
            "bootstrap.servers": self._servers,
            "group.id": "test-commit-log",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 500,
        }
        quiet = logging.getLogger("tests.faults.commit_log")
        admin = AdminClient({"bootstrap.servers": self._servers}, logger=quiet)
        partitions: list[int] = []
        while not partitions and not self._stop.wait(0.5):
            found = admin.list_topics(timeout=10).topics.get(INTERNAL)
            partitions = [] if found is None else list(found.partitions)
        consumer = Consumer(config, logger=quiet)
        consumer.assign([TopicPartition(INTERNAL, number, 0) for number in partitions])
        try:
            while not self._stop.is_set():
                for message in consumer.consume(500, 0.2):
                    self._take(message)
        finally:
            consumer.close()

    def _take(self, message: Message) -> None:
        key, value = message.key(), message.value()
        if message.error() is not None or not key:
            return
        assert isinstance(key, bytes)
        if struct.unpack_from(">h", key)[0] > NEWEST_KEY:
            return
        group, rest = _text(key[2:])
        topic, rest = _text(rest)
        if (group, topic) != (self._group, self._topic):
            return
        partition = struct.unpack(">i", rest)[0]
        commits = self._commits[partition]
        if not value:
            self.forgotten += 1
            commits.clear()
            return
        assert isinstance(value, bytes)
        version, offset = struct.unpack_from(">hq", value)
        stamp = parse_stamp(_metadata(version, value[10:]))
        topic_id = stamp.topic_id if stamp is not None else ""
        commit = Commit(message.timestamp()[1] / 1000, partition, offset, topic_id)
        before = next((c for c in reversed(commits) if c.topic_id == topic_id), None)
        if before is not None and commit.offset < before.offset:
            self.steps_back.append((before, commit))
        commits.append(commit)


def _metadata(version: int, rest: bytes) -> str:
    """What follows the offset, and the leader's epoch where there is one."""
    rest = rest[4:] if version >= WITH_EPOCH else rest
    if version < COMPACT:
        return _text(rest)[0]
    length, shift = 0, 0
    while True:
        length |= (rest[0] & 0x7F) << shift
        more, rest, shift = rest[0] & 0x80, rest[1:], shift + 7
        if not more:
            return rest[: length - 1].decode()


def _text(data: bytes) -> tuple[str, bytes]:
    length = struct.unpack_from(">h", data)[0]
    return data[2 : 2 + length].decode(), data[2 + length :]
