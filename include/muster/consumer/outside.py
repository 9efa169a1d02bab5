"""What others do in Kafka beside this consumer: topics are deleted or created again, offsets are set or deleted."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from muster.consumer.problems import of_partition
from muster.consumer.shared import Shared
from muster.core.model import TopicPartition
from muster.core.ownership import Ownership, Place, Topic
from muster.core.positions import OFFSET_PROBLEM, Committed

SHOWN_FOR = 600.0
"""Seconds for which it is shown that another program has set a committed offset."""


class Outside:
    """Takes what was seen in Kafka to the ownership, and says it. Thread-safe."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._set: dict[TopicPartition, float] = {}
        """When another program had set the committed offset of a partition."""

    def identified(self, place: Place, ids: Mapping[str, str], gone: Collection[str]) -> None:
        """Take note that Kafka has the watched topics of `place` under these ids, and not those that are `gone`."""
        with self._shared.change() as own:
            for name in own.watched().get(place, ()):
                own.identify(name, place, ids.get(name, ""), name in gone)
                topic = own.topics[name]
                if topic.source is None or topic.is_at(place):
                    self._shared.problems.note(identity(name), _what_is_wrong(topic, place))

    def set_by_others(self, found: Mapping[TopicPartition, Committed | None], group_id: str) -> None:
        """Say that another program has set the committed offsets of these partitions, or deleted them (None). What
        this consumer has stands, and is committed again."""
        with self._shared.change() as own:
            for tp, there in sorted(found.items()):
                partition = own.held.get(tp)
                if partition is None:
                    continue
                partition.set_by_others()
                self._shared.counters.foreign_commits += 1
                self._set[tp] = self._shared.clock()
                self._shared.problems.note(
                    of_partition(OFFSET_PROBLEM, tp),
                    f"its committed offset was {_what_became(there, group_id)}; this consumer goes on at "
                    f"{partition.stands} and commits that again. To have it go on elsewhere: muster seek {tp[0]} "
                    f"{tp[1]}",
                )

    def follow(self, own: Ownership) -> None:
        """Say no more of what is not held, or was long ago. Under the lock."""
        now = self._shared.clock()
        for tp in [tp for tp, at in self._set.items() if tp not in own.held or now - at > SHOWN_FOR]:
            del self._set[tp]
            self._shared.problems.note(of_partition(OFFSET_PROBLEM, tp), None)


def identity(topic: str) -> str:
    """Return the key of the problem of a topic that is gone, or another one than was assigned."""
    return f"identity {topic}"


def _what_is_wrong(topic: Topic, place: Place) -> str | None:
    where = f"Kafka at {place.bootstrap_servers}"
    if topic.gone:
        return (
            f"{where} does not have it any more: its partitions are closed without committing; create it again, "
            "or unsubscribe the cluster from it"
        )
    if topic.recreated and topic.source is not None:
        return (
            f"{where} has it under id {topic.kafka_id}, but its assignment is for id {topic.source.topic_id}: it "
            "was deleted and created again. It is neither read nor committed until the coordinator has put the "
            "new id into the assignment; if that takes longer than some runs, look at the coordinator's last run"
        )
    return None


def _what_became(there: Committed | None, group_id: str) -> str:
    """Say what became of a committed offset, and who may have done it."""
    if there is None:
        return (
            f"deleted from group {group_id!r} (by kafka-consumer-groups, or by Kafka itself after its "
            "offsets.retention.minutes, which have to be more than a day)"
        )
    return (
        f"set to {there.offset} by another program (kafka-consumer-groups, or a consumer that uses group "
        f"{group_id!r})"
    )
