"""Reading and committing the offsets of a consumer group without being a member of it.

Not with the admin client, though it could: librdkafka (2.16) ends the whole process with a segmentation fault when
the group's coordinator answers an admin client with an error that means "look for the coordinator again", as it does
after every restart of a broker. A consumer that subscribes to nothing is the way that is well trodden.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as _TopicPartition

from muster.core.model import TopicPartition
from muster.core.positions import Committed
from muster.edges.kafka_admin import (
    SILENCE,
    Failure,
    KafkaError,
    Trouble,
    client_config,
    open_client,
)
from muster.settings.connections import KafkaSettings

_Found = dict[TopicPartition, int | Failure]

POLL = 0.005
"""Seconds between looks for the answer to a commit; librdkafka takes the callback in, but does not end its wait."""


def item_to_commit(tp: TopicPartition, offset: int, metadata: str) -> _TopicPartition:
    """Return an offset as librdkafka takes it to commit."""
    return _TopicPartition(*tp, offset, metadata)


class GroupClient:
    """A consumer that consumes nothing, for its group's offsets. Thread-safe; commits are made one at a time.

    Raises `KafkaError` for settings that librdkafka refuses.
    """

    def __init__(self, settings: KafkaSettings, group_id: str) -> None:
        self._servers = settings.bootstrap_servers
        self._close_timeout = settings.operation_timeout
        self._trouble = Trouble()
        self._lock = threading.Lock()
        self._answers: list[tuple[Failure | None, list[Any]]] = []
        config = client_config(settings) | {
            "group.id": group_id,
            "enable.auto.commit": False,
            # An offset that a transaction under way may yet change is not the committed one.
            "isolation.level": "read_committed",
            "on_commit": self._on_commit,
            "error_cb": self._trouble.heard,
        }
        self._consumer: Consumer | None = open_client(Consumer, config)
        self._another = partial(open_client, Consumer, config)

    @property
    def trouble(self) -> str:
        """The last trouble since Kafka answered, '' if there was none."""
        if self._consumer is not None:
            self._poll(self._consumer, 0)
        return self._trouble.text

    def committed(
        self, asked: Collection[TopicPartition], timeout: float
    ) -> dict[TopicPartition, Committed | Failure | None]:
        """Return what is committed of each partition, None if nothing is. Raises confluent-kafka's KafkaException."""
        found: dict[TopicPartition, Committed | Failure | None] = {}
        for item in self._open().committed([_TopicPartition(*tp) for tp in asked], timeout=timeout):
            there = Committed(item.offset, item.metadata or "") if item.offset >= 0 else None
            found[item.topic, item.partition] = there if item.error is None else Failure.of(item.error)
        self._trouble.over()
        return found

    def commit(
        self, offsets: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str], timeout: float
    ) -> _Found:
        """Commit, and wait for the acknowledgement. Raises confluent-kafka's KafkaException."""
        end = time.monotonic() + timeout
        wanted = [item_to_commit(tp, offset, metadata.get(tp, "")) for tp, offset in offsets.items()]
        if not self._lock.acquire(timeout=timeout):
            return dict.fromkeys(offsets, SILENCE)
        try:
            consumer = self._open()
            self._answers.clear()
            # A synchronous commit knows no time-out (45 s without a broker), so this waits for the callback of
            # an asynchronous one.
            consumer.commit(offsets=wanted, asynchronous=True)
            while (left := end - time.monotonic()) > 0:
                self._poll(consumer, min(POLL, left))
                answers, self._answers = self._answers, []
                for failure, items in answers:
                    # The late answer to an earlier commit is for other offsets; if it is for these, it will do.
                    if {(item.topic, item.partition): item.offset for item in items} == dict(offsets):
                        self._trouble.over()
                        return dict(offsets) if failure is None else self._outcome(offsets, failure, end)
        finally:
            self._lock.release()
        return dict.fromkeys(offsets, SILENCE)

    def metadata(self) -> object:
        """Return librdkafka's metadata of the group: that it has no member. Raises `KafkaError` once closed."""
        return self._open().consumer_group_metadata()

    def close(self) -> None:
        """Let go of the connections; never takes longer than `operation_timeout`."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            _close(consumer).join(self._close_timeout)

    def revive(self, timeout: float) -> None:
        """Make another client in place of one that finds no broker, where others do; see `RENEW_AFTER`."""
        consumer = self._open()
        try:
            consumer.list_topics(timeout=timeout)
        except KafkaException:
            if not self._lock.acquire(timeout=timeout):
                return  # a commit is under way, and is to say first what became of it
            try:
                if self._consumer is consumer:
                    # Other threads may be using it, so it is not closed: it ends with the last of them.
                    self._consumer = self._another()
            finally:
                self._lock.release()

    def _outcome(self, offsets: Mapping[TopicPartition, int], failure: Failure, end: float) -> _Found:
        """Tell which partitions of a failed commit failed.

        librdkafka gives the first partition's error to all of them, so the group is asked what it has.
        """
        present: Mapping[TopicPartition, Committed | Failure | None] = {}
        if len(offsets) > 1:
            with suppress(KafkaException):
                present = self.committed(offsets.keys(), max(0.1, end - time.monotonic()))
        there = {tp: found.offset for tp, found in present.items() if isinstance(found, Committed)}
        return {tp: offset if there.get(tp) == offset else failure for tp, offset in offsets.items()}

    def _open(self) -> Consumer:
        if self._consumer is None:
            raise KafkaError(f"Kafka at {self._servers}: this client is closed; make a new one")
        # librdkafka hands over what it has to say only when asked; it would pile up.
        self._poll(self._consumer, 0)
        return self._consumer

    def _poll(self, consumer: Consumer, timeout: float) -> None:
        """Let librdkafka say what it has to say. That the group may not be asked for comes as a message."""
        message = consumer.poll(timeout)
        if message is not None and (error := message.error()) is not None:
            self._trouble.heard(error)

    def _on_commit(self, error: confluent_kafka.KafkaError | None, items: list[Any]) -> None:
        failed = error or next((item.error for item in items if item.error is not None), None)
        self._answers.append((None if failed is None else Failure.of(failed), items))


def _close(consumer: Consumer) -> threading.Thread:
    """Close it in a thread of its own: librdkafka may wait for brokers."""
    closing = threading.Thread(target=consumer.close, daemon=True, name="kafka-close")
    closing.start()
    return closing
