"""Rules for the partitions of a shard together: those with one number, of topics that share their state.

They have one claim, one state and one commit. So they are claimed and read only where this consumer holds all of
them, committed together, and closed together: where one of them goes, or is refused, the others close, too, and wait
to be claimed again. A partition without state, or of a topic with a state of its own, is a shard by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from muster.core.model import Seek, TopicPartition
from muster.core.ownership.partition import Due, Partition, ToRestore
from muster.core.ownership.place import Place
from muster.core.ownership.topic import Topic
from muster.core.state_topics import StateTopics


class Shards:
    """The shards of what is `held`, of these `topics`."""

    def __init__(
        self, state: StateTopics, topics: Mapping[str, Topic], held: Mapping[TopicPartition, Partition]
    ) -> None:
        self._state = state
        self._topics = topics
        self._held = held
        self._shared = frozenset(name for group in state.groups for name in group)
        """The topics that share their state with others."""

    def names(self, names: Collection[str] | None) -> Collection[str] | None:
        """Return `names` with the topics that share their state with these; None is all."""
        if names is None or not self._state.groups:
            return names
        return {each for name in names for each in self._state.together(name)}

    def of(self, tp: TopicPartition) -> list[Partition]:
        return [self._held[each] for each in self._state.shard(tp) if each in self._held]

    def missing(self, tp: TopicPartition) -> list[TopicPartition]:
        """Return the partitions of a shard that this consumer does not have, or has at another place."""
        held = self._held.get(tp)
        return [
            each
            for each in self._state.shard(tp)
            if held is None
            or (other := self._held.get(each)) is None
            or other.closing
            or other.source.place != held.source.place
        ]

    def whole(self, partition: Partition) -> bool:
        """Tell whether this consumer has all of a shard, in one place."""
        return partition.tp[0] not in self._shared or not self.missing(partition.tp)

    def waiting(self) -> dict[TopicPartition, list[TopicPartition]]:
        found = {
            tp: self.missing(tp) for tp, p in self._held.items() if tp[0] in self._shared and not p.closing
        }
        return {tp: others for tp, others in found.items() if others}

    def runs(self, partition: Partition) -> bool:
        """Tell whether a partition is reported as running. One that waits for others of its shard is, too: else its
        topic would never be Stable, and the coordinator brings a shard together only between Stable topics."""
        return partition.planned is not None or not (partition.closing or self.whole(partition))

    def close_split(self, partitions: Iterable[Partition]) -> None:
        """Close what was claimed of shards that are not whole any more; without committing if one is refused."""
        for partition in partitions:
            if partition.tp[0] not in self._shared:
                continue
            others = self.of(partition.tp)
            if (partition.claimed or partition.claiming) and not self.whole(partition):
                partition.closing = True
                partition.refused |= any(other.refused for other in others)

    def closed(self, partition: Partition) -> bool:
        """Tell whether nothing holds a partition open any more, nor another one that closes with it."""
        if partition.tp[0] not in self._shared:
            return partition.closed
        return all(each.closed for each in self.of(partition.tp) if each is partition or each.closing)

    def recreated(self, partition: Partition) -> bool:
        """Tell whether Kafka has a topic of a shard under another id than the assignment."""
        if partition.tp[0] not in self._shared:
            return self._topics[partition.tp[0]].recreated
        return any(
            self._topics[name].recreated
            for name in self._state.together(partition.tp[0])
            if name in self._topics
        )

    def covers(self, partition: Partition, seek: Seek) -> bool:
        """Tell whether a seek is known of all partitions of a shard."""
        return all(
            (asked := self._topics.get(name, Topic()).seeks.get(partition.tp[1])) is not None
            and asked.id == seek.id
            for name in self._state.together(partition.tp[0])
        )

    # -- what is committed --------------------------------------------------------------------------------

    def with_others(self, due: dict[Place, dict[TopicPartition, Due]], letters: bool = False) -> None:
        """Have all partitions of a shard be due of which one is, where they stand; or none, as long as one of them
        cannot be committed. `letters`: what is due goes with dead letters."""
        for of_place in due.values():
            for tp in [tp for tp in of_place if tp[0] in self._shared]:
                others = self.of(tp)
                if not all(self._may_commit(other, letters) for other in others):
                    of_place.pop(tp, None)
                    continue
                for other in others:
                    if other.stands is not None:
                        of_place.setdefault(other.tp, other.due_at(other.stands))

    def _may_commit(self, partition: Partition, letters: bool) -> bool:
        lost = partition.refused or partition.lost(self._topics[partition.tp[0]])
        return partition.restored and not lost and (letters or not partition.needs_letters)

    def uncommitted(self) -> frozenset[TopicPartition]:
        """Return the partitions with state of which something is to be committed before more is planned."""
        found = [tp for tp, p in self._held.items() if p.has_state and p.outstanding]
        return frozenset(each for tp in found for each in self._state.shard(tp))

    # -- what is restored ---------------------------------------------------------------------------------

    def to_restore(self) -> dict[TopicPartition, ToRestore]:
        """Return the shards whose state is to be restored, by the partitions that they are known by."""
        found: dict[TopicPartition, ToRestore] = {}
        for tp, partition in self._held.items():
            waits = partition.claimed and not (partition.restored or partition.closing)
            if not waits or self._state.lead(tp) != tp or not self.whole(partition):
                continue
            others = self.of(tp)
            if not all(other.claimed for other in others):
                continue
            seek = self._topics[tp[0]].seeks.get(tp[1])
            found[tp] = ToRestore(
                partition.claim_epoch,
                partition.source,
                {other.tp[0]: other.at_claim for other in others},
                {other.tp[0]: other.source.topic_id for other in others},
                seek.id if seek and seek.offset is not None and self.covers(partition, seek) else "",
            )
        return found

    def restored(self, partition: Partition, commits: Mapping[str, int]) -> None:
        """Take note that a shard's state is what changelog and group say, and that `commits`, offsets by topic, are
        to be committed once before anything is read."""
        for each in self.of(partition.tp):
            each.restored = True
            if each.tp[0] in commits:
                each.processed, each.committed = commits[each.tp[0]], None
