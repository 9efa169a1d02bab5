"""All that persons decided about a cluster, from one read of Consul's KV; and how pins and exclusions are written.

- `muster/[CLUSTER]/pinned/[TOPIC]/[PARTITION]`: `{"consumer": ..., "who": ..., "when": ..., "why": ...}`
- `muster/[CLUSTER]/excluded/[CONSUMER]/[TOPIC]`: `{"who": ..., "when": ..., "why": ...}`

They stand there for the reasons that isolations do: Consul's ACL says who may write them, and the coordinator's long
poll waits for changes below `muster/[CLUSTER]/` already, so they are acted on at once. A key that cannot be read
counts as not there, and is named; it never takes the others with it. `muster.edges.consul_coordination` and
`muster.edges.consul_subscriptions` say what holds for theirs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.core.decisions import Decisions, Drain, Exclusion, IsolationEntry, Pin
from muster.core.subscription import TopicDecision
from muster.core.wire import WireError, check_id, check_topic, parse_partition
from muster.edges.consul_coordination import (
    ASSIGNOR,
    COORDINATION,
    EPOCHS,
    PAUSED,
    REBALANCE,
    CoordinationKeys,
    read_assignor,
    read_epochs,
    read_pause,
    read_rebalance,
)
from muster.edges.consul_keys import (
    DRAINED,
    ISOLATED,
    Key,
    iso,
    read_drain,
    read_isolation,
    read_object,
    said,
)
from muster.edges.consul_subscriptions import TOPICS, SubscriptionKeys, read_topic_decision

PINNED = "pinned"
EXCLUDED = "excluded"


class DecisionKeys(CoordinationKeys, SubscriptionKeys):
    """The keys of one cluster, with all decisions. Raises `ConsulError` as `Keys` does."""

    def decisions(self) -> Decisions:
        """Everything that was decided about the cluster, from one read of all its keys.

        Raises `ConsulError` also if the answer may leave keys out: not to see a pin would be to move its partition,
        and not to see a pause to end it.
        """
        found = _Found()
        for key in self._keys(self.prefix):
            kind, _, rest = key.name.removeprefix(self.prefix).partition("/")
            if rest and not rest.endswith("/"):  # else a "folder" that Consul's UI creates
                found.take(kind, rest, key)
        return found.decisions()

    def pin(self, topic: str, partition: int, consumer: str, by: str, why: str, at: float) -> None:
        """Fix a partition to a consumer (`at` in seconds since the epoch), in place of an earlier pin of it."""
        value = {"consumer": check_id(consumer), "who": by, "when": iso(at), "why": why}
        name = self._pin_name(topic, partition)
        if not self._api.put_key(name, json.dumps(value)):
            raise self._error(f"key {name} was not written; try again")

    def unpin(self, topic: str, partition: int) -> bool:
        """Take a pin back, also one that cannot be read; False if there is none."""
        return self._remove(self._pin_name(topic, partition))

    def exclude(self, consumer: str, topic: str, by: str, why: str, at: float) -> bool:
        """Keep a consumer from a topic. False if it already is: then who did it first, and why, stays."""
        value = json.dumps({"who": by, "when": iso(at), "why": why})
        return self._api.put_key(self._exclusion_name(consumer, topic), value, cas=0)

    def include(self, consumer: str, topic: str) -> bool:
        """Take an exclusion back, also one that cannot be read; False if there is none."""
        return self._remove(self._exclusion_name(consumer, topic))

    def _pin_name(self, topic: str, partition: int) -> str:
        return f"{self.prefix}{PINNED}/{check_topic(topic)}/{partition}"

    def _exclusion_name(self, consumer: str, topic: str) -> str:
        return f"{self.prefix}{EXCLUDED}/{check_id(consumer)}/{check_topic(topic)}"


@dataclass
class _Found:
    """What was read so far."""

    pins: dict[tuple[str, int], Pin] = field(default_factory=dict)
    exclusions: dict[tuple[str, str], Exclusion] = field(default_factory=dict)
    isolated: dict[str, IsolationEntry] = field(default_factory=dict)
    drained: dict[str, Drain] = field(default_factory=dict)
    topics: list[TopicDecision] = field(default_factory=list)
    whole: dict[str, Any] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def take(self, kind: str, rest: str, key: Key) -> None:
        """Read one key; what cannot be read is named. Other kinds of keys are none of these."""
        try:
            if kind == PINNED:
                pin = _pin(rest, key)
                self.pins[pin.topic, pin.partition] = pin
            elif kind == EXCLUDED:
                exclusion = _exclusion(rest, key)
                self.exclusions[exclusion.consumer, exclusion.topic] = exclusion
            elif kind == ISOLATED:
                self.isolated[rest] = read_isolation(rest, key)
            elif kind == DRAINED:
                self.drained[rest] = read_drain(rest, key)
            elif kind == TOPICS:
                self.topics.append(read_topic_decision(rest, key))
            elif kind == COORDINATION and rest == PAUSED:
                self.whole["paused"] = read_pause(key)
            elif kind == COORDINATION and rest == REBALANCE:
                self.whole["rebalance"] = read_rebalance(key)
            elif kind == COORDINATION and rest == ASSIGNOR:
                self.whole["assignor"] = read_assignor(key)
            elif kind == COORDINATION and rest == EPOCHS:
                self.whole["epochs"] = read_epochs(key)
        except ValueError as error:
            self._cannot_be_read(kind, rest, key, error)

    def _cannot_be_read(self, kind: str, rest: str, key: Key, error: ValueError) -> None:
        follows = "nothing follows from it. Correct it, or delete the key"
        if kind == TOPICS:
            self.whole["topics_in_doubt"] = True
            follows = (
                "until it is corrected or deleted, topics are neither taken up nor let go, except where a "
                "person decided so by their name"
            )
        elif kind == COORDINATION and rest == ASSIGNOR:
            self.whole["assignor_error"] = (
                f"Consul key {key.name}: {error}; so the assignor is unknown. Choose one again, or take "
                "the choice back"
            )
            return
        self.errors.append(f"Consul key {key.name}: {error}; {follows}")

    def decisions(self) -> Decisions:
        return Decisions(
            self.pins,
            self.exclusions,
            tuple(sorted(self.errors)),
            subscriptions=tuple(self.topics),
            isolated=self.isolated,
            drained=self.drained,
            **self.whole,
        )


def _pin(rest: str, key: Key) -> Pin:
    topic, partition = _two(rest, "[TOPIC]/[PARTITION]")
    check_topic(topic)
    number = parse_partition(partition)
    value = _value(key)
    consumer = value.get("consumer")
    if not isinstance(consumer, str):
        raise WireError(f"holds {key.value[:100]!r}, expected is a JSON object with 'consumer'")
    return Pin(topic, number, check_id(consumer), **said(value))


def _exclusion(rest: str, key: Key) -> Exclusion:
    consumer, topic = _two(rest, "[CONSUMER]/[TOPIC]")
    return Exclusion(check_id(consumer), check_topic(topic), **said(_value(key)))


def _two(rest: str, expected: str) -> tuple[str, str]:
    parts = rest.split("/")
    if len(parts) != 2:  # noqa: PLR2004  what is expected names the two
        raise WireError(f"its name ends in {rest[:100]!r}, expected is {expected}")
    return parts[0], parts[1]


def _value(key: Key) -> Mapping[str, object]:
    value = read_object(key.value)
    if value is None:
        raise WireError(f"holds {key.value[:100]!r}, expected is a JSON object")
    return value
