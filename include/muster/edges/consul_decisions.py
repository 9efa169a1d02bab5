"""Pins and exclusions in Consul's KV, beside the isolations of `muster.edges.consul_keys`.

- `muster/[CLUSTER]/pinned/[TOPIC]/[PARTITION]`: `{"consumer": ..., "who": ..., "when": ..., "why": ...}`
- `muster/[CLUSTER]/excluded/[CONSUMER]/[TOPIC]`: `{"who": ..., "when": ..., "why": ...}`

They stand there for the reasons that isolations do: Consul's ACL says who may write them, and the coordinator's long
poll waits for changes below `muster/[CLUSTER]/` already, so they are acted upon at once. A key that cannot be read
counts as not there, and is named; it never takes the others with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from muster.core.decisions import Decisions, Exclusion, Pin
from muster.core.wire import WireError, check_id, check_topic, parse_partition
from muster.edges.consul_keys import Key, Keys, iso, read_object, seconds

PINNED = "pinned"
EXCLUDED = "excluded"


class DecisionKeys(Keys):
    """The keys of one cluster, with pins and exclusions. Raises `ConsulError` as `Keys` does."""

    def decisions(self) -> Decisions:
        """Every pin and every exclusion, from one read of all keys of the cluster.

        Raises `ConsulError` also if the answer may leave keys out: not to see a pin would be to move its partition.
        """
        pins: dict[tuple[str, int], Pin] = {}
        exclusions: dict[tuple[str, str], Exclusion] = {}
        errors: list[str] = []
        for key in self._keys(self.prefix):
            kind, _, rest = key.name.removeprefix(self.prefix).partition("/")
            if kind not in (PINNED, EXCLUDED) or not rest or rest.endswith("/"):
                continue  # another kind of key, or a "folder" that Consul's UI creates
            try:
                if kind == PINNED:
                    pin = _pin(rest, key)
                    pins[pin.topic, pin.partition] = pin
                else:
                    exclusion = _exclusion(rest, key)
                    exclusions[exclusion.consumer, exclusion.topic] = exclusion
            except ValueError as error:
                errors.append(
                    f"Consul key {key.name}: {error}; nothing follows from it. Correct it, or delete the key"
                )
        return Decisions(pins, exclusions, tuple(sorted(errors)))

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


def _pin(rest: str, key: Key) -> Pin:
    topic, partition = _two(rest, "[TOPIC]/[PARTITION]")
    check_topic(topic)
    number = parse_partition(partition)
    value = _value(key)
    consumer = value.get("consumer")
    if not isinstance(consumer, str):
        raise WireError(f"holds {key.value[:100]!r}, expected is a JSON object with 'consumer'")
    return Pin(topic, number, check_id(consumer), *_word(value))


def _exclusion(rest: str, key: Key) -> Exclusion:
    consumer, topic = _two(rest, "[CONSUMER]/[TOPIC]")
    return Exclusion(check_id(consumer), check_topic(topic), *_word(_value(key)))


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


def _word(value: Mapping[str, object]) -> tuple[str, float, str]:
    """Who, when and why. What is missing is unknown: the decision stands all the same."""
    return str(value.get("who", "unknown")), seconds(value.get("when")), str(value.get("why", ""))
