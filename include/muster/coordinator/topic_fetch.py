"""Bring what ZooKeeper holds on topics up to what Kafka says: partitions, ids, racks; and notice what differs."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass

from muster.coordinator.reports import PartitionsReport
from muster.core.epochs import Noted, epoch_ahead, highest_epochs, to_note
from muster.core.model import TopicSnapshot
from muster.core.positions import format_stamp, of_another_topic
from muster.core.seeking import SeekError, To, offset_for
from muster.core.state_machine import recreated
from muster.core.subscription import Subscription
from muster.core.wire import Racks, WireError, check_topic
from muster.edges import kafka, zookeeper
from muster.edges.consul import ConsulTooLargeError
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import KafkaSettings

log = logging.getLogger(__name__)

IDS_AT_ONCE = 5_000
"""Partitions of the topics whose ids are asked for in one run; it takes a tenth of a second."""


@dataclass(frozen=True)
class TopicFetch:
    """One look at the topics of a cluster. `noted` is what Consul has of their epochs; `note_epochs` notes there what
    is about to be written."""

    cluster: ClusterSettings
    kafka_settings: KafkaSettings
    store: zookeeper.TopicStore
    lister: kafka.TopicLister
    noted: Mapping[str, Noted]
    note_epochs: Callable[[Mapping[str, Noted]], None]

    def run(self, reads: Subscription) -> PartitionsReport:
        """Bring the topics that are subscribed (`reads`) up to what Kafka says.

        Kafka out of reach, or silent on a topic that was there, leaves the last known partitions. A topic that stands
        in ZooKeeper with another Kafka or group than the settings name stays as it is, with an error. One that Kafka
        has under another id was created again, and begins again. Nothing is done while the cluster is paused. Raises
        `ConsulError` if it is unknown what is subscribed.
        """
        # In this order: a partition that is added in between must not seem to have vanished from Kafka.
        known = self.store.snapshots()
        try:
            found = self.lister.list_partitions()
        except kafka.KafkaError as error:
            return PartitionsReport(kafka_error=f"{error}; the last known partitions stand")
        errors = {topic: str(read) for topic, read in known.items() if isinstance(read, WireError)}
        wanted = {
            topic
            for topic in found
            if (not reads.lets_go(topic) if topic in known else reads.takes_up(topic))
        }
        where = f"is not in Kafka at {self.kafka_settings.bootstrap_servers}, or this user may not see it"
        for topic in sorted(reads.named() - found.keys()):
            errors[topic] = (
                f"topic {topic} {where}; create it there, let the user describe it, or unsubscribe cluster "
                f"{self.cluster.name} from it"
                + (" (its last known partitions stand)" if topic in known else "")
            )
        report = PartitionsReport(topics=len(wanted), errors=errors)
        for topic in sorted(known.keys() - found.keys() - errors.keys()):
            if not reads.lets_go(topic):
                report.warnings.append(
                    f"topic {topic} {where}; its last known partitions stand until cluster {self.cluster.name} is "
                    "unsubscribed from it"
                )
        for topic in sorted(wanted):
            if difference := self._elsewhere(known.get(topic)):
                errors[topic] = difference
        wanted -= errors.keys()
        ids = self._topic_ids({topic: found[topic] for topic in wanted}, known, report)
        for topic in sorted(wanted - ids.keys()):
            if not (present := known.get(topic)) or (
                isinstance(present, TopicSnapshot) and present.assignment is None
            ):
                errors[topic] = (
                    f"topic {topic} is not taken up, because Kafka at {self.kafka_settings.bootstrap_servers} does "
                    "not say its id; the next run asks again. Brokers have ids since 2.8, and this user must be "
                    "allowed to describe the topic"
                )
        wanted -= errors.keys()
        for topic in sorted(wanted):
            self._bring_up_to_date(topic, found[topic], known.get(topic), ids.get(topic, ""), report)
        self._note_racks(wanted, report)
        if report.added or report.removed or report.new_topics or report.recreated or report.racks:
            self.store.touch()
        return report

    def _bring_up_to_date(
        self,
        topic: str,
        partitions: frozenset[int],
        known: TopicSnapshot | WireError | None,
        topic_id: str,
        report: PartitionsReport,
    ) -> None:
        if isinstance(known, WireError) or not partitions:
            return
        check_topic(topic)
        if known is None or known.assignment is None:
            try:
                self._begin(topic, partitions, topic_id)
            except (kafka.KafkaError, SeekError) as error:
                report.errors[topic] = (
                    f"{error}; topic {topic} is taken up when its starting offsets are committed"
                )
                return
            servers, group = self.kafka_settings.bootstrap_servers, self.cluster.group_id
            # The seconds of ZooKeeper's clock as the first epoch say when a topic became known. One that was there
            # before has to come back with a higher epoch than its consumers have obeyed.
            last = self.noted[topic].epoch if topic in self.noted else -1
            self.store.create_topic(topic, servers, group, max(int(self.store.now()), last + 1), topic_id)
            report.new_topics.append(topic)
        elif (
            topic_id
            and known.assignment.topic_id != topic_id
            and epoch_ahead(known, highest_epochs((), self.noted)) is None  # else it is planned first
            and (step := recreated(known, topic_id, self.store.now())) is not None
        ):
            if too_large := self.store.too_large([step]).get(topic):
                report.errors[topic] = too_large
                return
            try:
                self.note_epochs({topic: to_note(step)})
            except ConsulTooLargeError as error:
                report.errors[topic] = f"topic {topic}: {error}"
                return
            (written,) = self.store.apply([step])
            if not written:
                return  # a coordinator wrote in between: the next run looks again
            if known.assignment.topic_id:
                report.recreated.append(topic)
        before = known.partitions if known is not None else frozenset()
        if before == partitions:
            return
        self.store.set_partitions(topic, partitions, before)
        if added := sorted(partitions - before):
            report.added[topic] = added
        if removed := sorted(before - partitions):
            report.removed[topic] = removed

    def _begin(self, topic: str, partitions: frozenset[int], topic_id: str) -> None:
        """Commit the starting offsets of a topic before it is taken up, if the group has committed nothing of it.

        No consumer has it yet, so no commit of an owner is in the way; and a topic of which the group has committed
        something was begun before: its other partitions have been added since, and begin at their first record.
        Raises `KafkaError`, and `SeekError` for an offset outside of the log.
        """
        starting = self.cluster.consumers.starting_offsets
        if starting.at_first_record(topic):
            return
        moment = starting.of(topic, 0).value if starting.default.to is To.TIME else None
        wanted = [(topic, partition) for partition in sorted(partitions)]
        with closing(kafka.GroupOffsets(self.kafka_settings, self.cluster.group_id)) as group:
            if any(
                at is not None and not of_another_topic(at.metadata, topic_id)
                for at in group.positions(wanted).values()
            ):
                return
            bounds = group.bounds(wanted, moment)
            offsets = {
                tp: offset_for(
                    starting.of(*tp), bounds[tp], f"startingOffsets of topic {topic!r}, partition {tp[1]}"
                )
                for tp in wanted
            }
            stamp = format_stamp(self.cluster.name, topic_id)
            group.commit(offsets, dict.fromkeys(offsets, stamp))
        log.info("topic %s: it begins at %s, as startingOffsets says", topic, offsets)

    def _elsewhere(self, known: TopicSnapshot | WireError | None) -> str:
        """Say how a known topic differs from the settings in where it is read and where its offsets are, '' if it
        does not: the offsets of another group or another Kafka are others, so that is for a person to decide."""
        if not isinstance(known, TopicSnapshot) or known.assignment is None:
            return ""
        present = (known.assignment.bootstrap_servers, known.assignment.group_id)
        wanted = (self.kafka_settings.bootstrap_servers, self.cluster.group_id)
        if (_addresses(present[0]), present[1]) == (_addresses(wanted[0]), wanted[1]):
            return ""
        return (
            f"topic {known.topic} is read at {present[0]} for group {present[1]!r}, but the settings of cluster "
            f"{self.cluster.name} say {wanted[0]} and group {wanted[1]!r}; consumers go on as before. Put the "
            "settings back, or move the topic: unsubscribe it, wait until its nodes are gone, and subscribe it again "
            f"(it then begins at the offsets of group {wanted[1]!r})"
        )

    def _topic_ids(
        self,
        wanted: Mapping[str, frozenset[int]],
        known: Mapping[str, TopicSnapshot | WireError],
        report: PartitionsReport,
    ) -> Mapping[str, str]:
        """Return Kafka's ids of topics that are new or have other partitions than before, and of some of the others:
        asking costs CPU for each partition, so with very many each topic has its turn."""
        changed: list[str] = []
        same: list[str] = []
        for topic, partitions in wanted.items():
            before = known.get(topic)
            quiet = isinstance(before, TopicSnapshot) and before.partitions == partitions
            (same if quiet else changed).append(topic)
        asked = changed
        left = IDS_AT_ONCE - sum(len(wanted[topic]) for topic in changed)
        for topic in random.sample(same, len(same)):
            if left <= 0:
                break
            asked.append(topic)
            left -= len(wanted[topic])
        try:
            return self.lister.topic_ids(asked)
        except kafka.KafkaError as error:
            report.warnings.append(f"{error}; whether topics were created again is not known")
            return {}

    def _note_racks(self, topics: Collection[str], report: PartitionsReport) -> None:
        """Note in ZooKeeper where the partitions' leaders stand, for the planning that other processes do."""
        try:
            found = self.lister.leader_racks()
            known = self.store.racks(topics)
            for topic in sorted(topics):
                racks = found.get(topic, {})
                if racks != known.get(topic, {}):
                    self._set_racks(topic, racks, report)
        except (kafka.KafkaError, zookeeper.ZooKeeperError) as error:
            report.warnings.append(f"{error}; the last known racks of the partitions' leaders stand")

    def _set_racks(self, topic: str, racks: Racks, report: PartitionsReport) -> None:
        try:
            self.store.set_racks(topic, racks)
            report.racks.append(topic)
        except zookeeper.TooLargeError as error:
            report.warnings.append(f"{error}; the topic is planned without the racks of its leaders")


def _addresses(servers: str) -> set[str]:
    """Return the brokers of `bootstrap.servers`: their order means nothing."""
    return {address.strip() for address in servers.split(",")} - {""}
