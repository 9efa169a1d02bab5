"""Committed offsets of topics that are read by different consumer groups.

A group that was changed in the settings counts for a topic only when a person has moved the topic. Until then it is
read and committed by the group that its assignment names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from muster.edges.kafka import GroupOffsets, TopicPartition
from muster.settings.connections import KafkaSettings


class TopicGroups:
    """A `GroupOffsets` for each group that topics name, kept open while some topic names it. Not thread-safe.

    >>> for group, keys in groups.each(partitions, {"flights": "flights-2023"}):
    ...     committed |= group.committed(keys)
    """

    def __init__(self, settings: KafkaSettings, group_id: str) -> None:
        self._settings = settings
        self.default = GroupOffsets(settings, group_id)
        self._others: dict[str, GroupOffsets] = {}

    def each(
        self, partitions: Iterable[TopicPartition], groups: Mapping[str, str]
    ) -> list[tuple[GroupOffsets, list[TopicPartition]]]:
        """Each group with those of `partitions` that it reads. `groups` maps topics to group ids; a topic that is not
        in it is read by the default group. Raises `KafkaError` for settings that librdkafka refuses."""
        found: defaultdict[str, list[TopicPartition]] = defaultdict(list)
        for key in partitions:
            found[groups.get(key[0], self.default.group_id)].append(key)
        for group_id in self._others.keys() - found.keys():
            self._others.pop(group_id).close()
        return [(self._of(group_id), keys) for group_id, keys in sorted(found.items())]

    def close(self) -> None:
        """Let go of the connections."""
        for group in (self.default, *self._others.values()):
            group.close()
        self._others.clear()

    def _of(self, group_id: str) -> GroupOffsets:
        if group_id == self.default.group_id:
            return self.default
        if group_id not in self._others:
            self._others[group_id] = GroupOffsets(self._settings, group_id)
        return self._others[group_id]
