"""What Kafka had no more when it was to be read, and what sinks left out, for the history of the cluster.

A consumer may write to no history, so it says such losses on its status page, and the coordinator writes them down.
A consumer that is behind loses a little again and again. So the losses of one partition, for one reason, are taken
together until none has followed for `QUIET` seconds, or `LONGEST` are over: then the loss is *whole*, changes no
more, and is reported for `REPORTED` seconds.

Pure; times are in seconds since the epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from muster.core.history import CommandEntry
from muster.core.model import ConsumerStatus, Loss, TopicPartition
from muster.core.partition_list import format_partitions

QUIET = 30.0
LONGEST = 600.0
REPORTED = 3_600.0
MOST = 200
"""Losses that one consumer reports at once; the newest."""
WHAT, LEFT_OUT = "lost-records", "left-out-records"
"""How the history names them, beside the commands."""


@dataclass
class LossLog:
    """The losses of one consumer."""

    _open: dict[tuple[TopicPartition, str], tuple[Loss, float]] = field(default_factory=dict)
    """Each with when it grew last."""
    _whole: list[tuple[TopicPartition, Loss, float]] = field(default_factory=list)
    """Each with when it became whole."""

    def note(self, tp: TopicPartition, found: Loss) -> None:
        """Take note of a loss that was just found."""
        known, _ = self._open.get((tp, found.why), (replace(found, records=0), found.at))
        begin, end = min(found.begin, known.begin), max(found.end, known.end)
        self._open[tp, found.why] = (
            replace(known, begin=begin, end=end, records=known.records + found.records),
            found.at,
        )

    def whole(self, now: float) -> dict[TopicPartition, tuple[Loss, ...]]:
        """Return the losses to report: those that became whole within the last hour, the newest `MOST` of them."""
        for (tp, why), (loss, grew) in list(self._open.items()):
            if now - grew >= QUIET or now - loss.at >= LONGEST:
                self._whole.append((tp, loss, now))
                del self._open[tp, why]
        self._whole = [one for one in self._whole if now - one[2] < REPORTED][-MOST:]
        found: dict[TopicPartition, tuple[Loss, ...]] = {}
        for tp, loss, _ in self._whole:
            found[tp] = (*found.get(tp, ()), loss)
        return found


def entries(statuses: Mapping[str, ConsumerStatus]) -> list[CommandEntry]:
    """Return what consumers report, as entries of the history, oldest first."""
    found = [
        CommandEntry(
            loss.at,
            consumer,
            what,
            loss.why,
            details={
                "topic": topic,
                "partition": partition,
                "from": loss.begin,
                "to": loss.end,
                "records": loss.records,
                "consumer": consumer,
            },
        )
        for consumer, status in statuses.items()
        for topic, of_topic in status.topics.items()
        for what, reported in ((WHAT, of_topic.losses), (LEFT_OUT, of_topic.left_out))
        for partition, losses in reported.items()
        for loss in losses
    ]
    return sorted(found, key=lambda entry: entry.at)


def in_words(statuses: Mapping[str, ConsumerStatus]) -> dict[str, str]:
    """Say what consumers report of each topic, in words."""
    found: defaultdict[str, defaultdict[str, list[CommandEntry]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries(statuses):
        found[entry.details["topic"]][entry.what].append(entry)
    return {
        topic: "; ".join(_in_words(topic, *each) for each in sorted(of_topic.items(), reverse=True))
        for topic, of_topic in sorted(found.items())
    }


def _in_words(topic: str, what: str, lost: list[CommandEntry]) -> str:
    records = sum(entry.details["records"] for entry in lost)
    partitions = format_partitions({entry.details["partition"] for entry in lost})
    reasons = ", ".join(sorted({entry.why for entry in lost}))
    how = (
        "are lost, of partition(s) {}: Kafka had them no more when they were to be read"
        if what == WHAT
        else "were left out by a sink, of partition(s) {}: by its own record they are stored"
    )
    return (
        f"{records} record(s) of topic {topic} {how.format(partitions)} ({reasons}); 'muster history --topic "
        f"{topic}' has their offsets"
    )


def identity(entry: CommandEntry) -> tuple[str, ...]:
    """Return what the entries of one loss, and of no other, have in common. As text, because anything may stand in an
    entry."""
    keys = ("topic", "partition", "from", "to", "consumer")
    return (entry.what, *(str(entry.details.get(key)) for key in keys))
