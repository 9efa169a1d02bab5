"""What a consumer knows of one topic, and which assignments of it it obeys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from muster.core.model import Seek, TopicAssignment
from muster.core.ownership.place import Place, Source


@dataclass(frozen=True, slots=True)
class Topic:
    """What is known of one topic; without a `source` it is not assigned to any consumer."""

    source: Source | None = None
    epoch: int | None = None
    zxid: int = -1
    assigned: frozenset[int] = frozenset()
    elsewhere: frozenset[int] = frozenset()
    standby: frozenset[int] = frozenset()
    paused: frozenset[int] = frozenset()
    """The partitions whose consumption is paused, those of other consumers among them."""
    seeks: Mapping[int, Seek] = field(default_factory=dict)
    least: int = 0
    """The lowest epoch of another assignment that may be obeyed; a lower one is of a backup."""
    kafka_id: str = ""
    """The id under which Kafka has the topic, as last seen; '' if that is not known."""
    gone: bool = False
    """The topic is not in Kafka any more."""

    @property
    def owned(self) -> frozenset[int]:
        """The partitions that have an owner."""
        return self.assigned | self.elsewhere

    @property
    def has_lowest(self) -> bool:
        """Whether this consumer is assigned the lowest of the partitions."""
        return min(self.owned, default=-1) in self.assigned

    @property
    def recreated(self) -> bool:
        """Whether Kafka has the topic under another id than the assignment."""
        known = self.source.topic_id if self.source is not None else ""
        return bool(known and self.kafka_id) and known != self.kafka_id

    def is_at(self, place: Place) -> bool:
        """Tell whether the assignment names `place`."""
        return self.source is not None and self.source.place == place

    def obeys(self, assignment: TopicAssignment, owner: str) -> bool:
        """Tell whether `assignment` is the one that the consumer `owner` obeys, whatever is asked of the flow."""
        if self.source is None or assignment.epoch != self.epoch:
            return False
        mine = {p for p, consumer in assignment.owners.items() if consumer == owner}
        same = mine == self.assigned and assignment.owners.keys() - mine == self.elsewhere
        source = self.source_of(assignment)
        return same and self.is_at(source.place) and self.source.topic_id in {"", source.topic_id}

    def may_take(self, assignment: TopicAssignment, zxid: int, synced: bool, owner: str) -> bool:
        """Tell whether `owner` is to obey an assignment as it stands since transaction `zxid`, read after a sync if
        `synced`."""
        if self.obeys(assignment, owner):
            return zxid >= self.zxid or synced
        return assignment.epoch >= self.least

    def source_of(self, assignment: TopicAssignment) -> Source:
        """Return the source that an assignment names; the known id stands if a coordinator without ids wrote it."""
        source = Source(assignment.bootstrap_servers, assignment.group_id, assignment.topic_id)
        if self.source is not None and not source.topic_id and source.place == self.source.place:
            return self.source
        return source

    def taking(self, assignment: TopicAssignment, zxid: int, owner: str) -> Topic:
        """Return the topic once the consumer `owner` obeys this assignment."""
        source = self.source_of(assignment)
        assigned = frozenset(p for p, consumer in assignment.owners.items() if consumer == owner)
        return replace(
            self,
            source=source,
            epoch=assignment.epoch,
            least=assignment.epoch + 1,
            zxid=zxid,
            assigned=assigned,
            elsewhere=frozenset(assignment.owners) - assigned,
            standby=assignment.stood_by_for(owner),
            paused=assignment.paused,
            seeks=assignment.seeks,
            kafka_id=self.kafka_id if self.source is None or self.is_at(source.place) else "",
            gone=self.gone and source == self.source,
        )

    def reporting_above(self, epoch: int) -> Topic:
        """Return the topic with a reported epoch above `epoch`, which is in ZooKeeper and not obeyed. What is planned
        in knowledge of the report is obeyed."""
        if self.source is None:
            return replace(self, epoch=self.least)
        above = max(self.epoch or 0, epoch + 1)
        return replace(self, epoch=above, least=above + 1)

    def unassigned(self) -> Topic:
        """Return the topic until an assignment is read again that has at least the reported epoch."""
        least = self.least if self.epoch is None else self.epoch
        return Topic(epoch=self.epoch, zxid=self.zxid, least=least, kafka_id=self.kafka_id)

    def vanished(self, zxid: int) -> Topic:
        """Return the topic once its node is gone, since transaction `zxid` at the latest."""
        return Topic(zxid=zxid, least=self.least, kafka_id=self.kafka_id)

    def identified(self, kafka_id: str, gone: bool) -> Topic:
        """Return the topic once Kafka has it under `kafka_id` ('': unknown), or it is `gone`."""
        return replace(self, kafka_id=kafka_id, gone=gone or (self.gone and not kafka_id))
