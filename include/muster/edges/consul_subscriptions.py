"""Topics that persons subscribed or unsubscribed, in Consul's KV, on top of clusters.yaml.

- `muster/[CLUSTER]/topics/subscribed/names/[TOPIC]`: `{"who": ..., "when": ..., "why": ...}`
- `muster/[CLUSTER]/topics/subscribed/patterns/[PATTERN]`: the same and `pattern`, which counts; in the key's name it
  is base64 for URLs, without padding (Consul decodes names twice, and allows neither spaces nor empty parts)
- `muster/[CLUSTER]/topics/unsubscribed/names/...` and `.../unsubscribed/patterns/...`: the same

A topic's name stands in the key, so a name counts whatever the key holds (fail safe).
"""

from __future__ import annotations

import base64
import json

from muster.core.subscription import TopicDecision, check_pattern
from muster.core.wire import WireError, check_topic
from muster.edges.consul_keys import Key, Keys, iso, read_object, said

TOPICS = "topics"
SUBSCRIBED = "subscribed"
UNSUBSCRIBED = "unsubscribed"
NAMES = "names"
PATTERNS = "patterns"
_DEPTH = 3
"""subscribed or unsubscribed, names or patterns, and the name."""


class SubscriptionKeys(Keys):
    """The keys of one cluster, with those on topics. Raises `ConsulError` as `Keys` does."""

    def decide_topic(
        self, selector: str, *, pattern: bool, subscribed: bool, by: str, why: str, at: float
    ) -> bool:
        """Subscribe or unsubscribe a topic, or a pattern. False if that stands already: who did it first stays."""
        value = {"who": by, "when": iso(at), "why": why}
        if pattern:
            value["pattern"] = selector
        return self._api.put_key(self._topic_key(selector, pattern, subscribed), json.dumps(value), cas=0)

    def undo_topic(self, selector: str, *, pattern: bool, subscribed: bool) -> bool:
        """Take such a decision back, also one that cannot be read; False if there is none."""
        return self._remove(self._topic_key(selector, pattern, subscribed))

    def _topic_key(self, selector: str, pattern: bool, subscribed: bool) -> str:
        name = _encoded(selector) if pattern else check_topic(selector)
        how = SUBSCRIBED if subscribed else UNSUBSCRIBED
        return f"{self.prefix}{TOPICS}/{how}/{PATTERNS if pattern else NAMES}/{name}"


def _encoded(pattern: str) -> str:
    return base64.urlsafe_b64encode(pattern.encode()).decode().rstrip("=")


def read_topic_decision(rest: str, key: Key) -> TopicDecision:
    """The decision in `key`, whose name ends in `rest`. Raises `WireError` if what it is about is unknown."""
    parts = rest.split("/")
    if (
        len(parts) != _DEPTH
        or parts[0] not in (SUBSCRIBED, UNSUBSCRIBED)
        or parts[1] not in (NAMES, PATTERNS)
    ):
        raise WireError(
            f"its name ends in {rest!r}, expected is [subscribed|unsubscribed]/[names|patterns]/[NAME]"
        )
    value = read_object(key.value)
    pattern = parts[1] == PATTERNS
    if pattern:
        selector = value.get("pattern") if value is not None else None
        if not isinstance(selector, str):
            raise WireError(f"holds {key.value[:100]!r}, expected is a JSON object with 'pattern'")
        try:
            check_pattern(selector)
        except ValueError as error:
            raise WireError(f"pattern {error}") from error
    else:
        selector = check_topic(parts[2])
    return TopicDecision(
        **said(value or {"why": f"key {key.name} holds no JSON object"}),
        selector=selector,
        pattern=pattern,
        subscribed=parts[0] == SUBSCRIBED,
    )
