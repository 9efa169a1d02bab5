"""Of what was read from ZooKeeper, what can be read and what cannot."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.model import TopicSnapshot
from muster.core.wire import WireError


def readable(
    read: Mapping[str, TopicSnapshot | WireError],
) -> tuple[dict[str, TopicSnapshot], dict[str, str]]:
    """Part the topics into snapshots and errors in words. A topic in error is left alone; the others go on."""
    snapshots = {topic: found for topic, found in read.items() if isinstance(found, TopicSnapshot)}
    return snapshots, {topic: str(found) for topic, found in read.items() if isinstance(found, WireError)}
